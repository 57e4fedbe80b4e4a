//! What the service is made of.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_core::clock::Clock;
use lanekeeper_core::limits;
use tokio::sync::Semaphore;

use crate::auth::{Gate, Verifiers};
use crate::directory::LaneDirectory;
use crate::metrics::Metrics;
use crate::rank::Steps;
use crate::recall::{Budgets, Setting};

/// What whoever runs the service hands in.
pub struct Parts {
    /// The lanes, current at each request.
    pub directory: Arc<dyn LaneDirectory>,
    /// Whose tokens are believed.
    pub verifiers: Verifiers,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Limits of the edge.
    pub limits: Limits,
    /// Steps of the ranking; all of them in the product, fewer in a benchmark.
    pub steps: Steps,
}

/// Limits of the edge. The defaults are the documented ones; tests make them small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests under `/v1` that are worked on at once; one more is answered 503.
    pub concurrent_requests: usize,
    /// Largest JSON body, and longest line of an import, bytes.
    pub body_bytes: usize,
    /// How long a JSON body may take to arrive, and how long an import may pause.
    pub body_wait: Duration,
    /// How long a recall may take.
    pub recall: Budgets,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            concurrent_requests: 256,
            body_bytes: limits::BODY_BYTES,
            body_wait: Duration::from_secs(30),
            recall: Budgets::default(),
        }
    }
}

/// The service: shared by the API's router and the metrics' router.
///
/// Handlers get no lane from it: those come from the extractors in [`crate::auth`] alone.
pub struct App {
    gate: Gate,
    clock: Arc<dyn Clock>,
    limits: Limits,
    steps: Steps,
    metrics: Metrics,
    permits: Arc<Semaphore>,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("limits", &self.limits).field("steps", &self.steps).finish_non_exhaustive()
    }
}

impl App {
    /// Puts the parts together.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { directory, verifiers, clock, limits, steps } = parts;
        Arc::new(Self {
            gate: Gate::new(directory, verifiers, Arc::clone(&clock)),
            clock,
            limits,
            steps,
            metrics: Metrics::default(),
            permits: Arc::new(Semaphore::new(limits.concurrent_requests.min(Semaphore::MAX_PERMITS))),
        })
    }

    pub(crate) const fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) const fn permits(&self) -> &Arc<Semaphore> {
        &self.permits
    }

    pub(crate) fn recall_setting(&self) -> Setting<'_> {
        Setting { clock: self.clock.as_ref(), budgets: self.limits.recall, steps: self.steps }
    }
}
