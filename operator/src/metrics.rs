//! What the operator counts, for Prometheus. Labels come from closed lists: no lane's name is one.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::status::Reason;

/// Which controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Controller(pub &'static str);

impl EncodeLabelValue for Controller {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(self.0)
    }
}

impl EncodeLabelValue for Reason {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(self.as_str())
    }
}

/// A finished reconcile.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Outcome {
    controller: Controller,
    result: Controller,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    controller: Controller,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneState {
    ready: Controller,
    reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cause {
    cause: Reason,
}

/// All of it.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    reconciles: Family<Outcome, Counter>,
    seconds: Family<Of, Histogram, fn() -> Histogram>,
    queue: Family<Of, Gauge>,
    lanes: Family<LaneState, Gauge>,
    conflicts: Counter,
    pending: Family<Cause, Gauge>,
    leader: Gauge<f64, AtomicU64>,
}

fn seconds() -> Histogram {
    Histogram::new([0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("lanekeeper_operator");
        let reconciles = Family::default();
        registry.register("reconcile", "Reconciles that ended, by controller and result", reconciles.clone());
        let seconds: Family<Of, Histogram, fn() -> Histogram> = Family::new_with_constructor(seconds);
        registry.register("reconcile_seconds", "How long a reconcile takes", seconds.clone());
        let queue = Family::default();
        registry.register("queue", "Objects that wait for a reconcile, now or later", queue.clone());
        let lanes = Family::default();
        registry.register("lanes", "Lanes by Ready and its reason", lanes.clone());
        let conflicts = Counter::default();
        registry.register("fence_conflicts", "Claims of a collection that another lane holds", conflicts.clone());
        let pending = Family::default();
        registry.register("embedder_pending", "Embedders that are not ready, by cause", pending.clone());
        let leader = Gauge::default();
        registry.register("leading", "1 while this replica leads", leader.clone());
        Self { registry: Arc::new(registry), reconciles, seconds, queue, lanes, conflicts, pending, leader }
    }
}

impl Metrics {
    /// A reconcile ended.
    pub fn reconciled(&self, controller: &'static str, result: &'static str, took: Duration) {
        let controller = Controller(controller);
        self.reconciles.get_or_create(&Outcome { controller, result: Controller(result) }).inc();
        self.seconds.get_or_create(&Of { controller }).observe(took.as_secs_f64());
    }

    /// How many wait.
    pub fn queued(&self, controller: &'static str, waiting: usize) {
        let waiting = i64::try_from(waiting).unwrap_or(i64::MAX);
        self.queue.get_or_create(&Of { controller: Controller(controller) }).set(waiting);
    }

    /// A claim met another lane's.
    pub fn fence_conflict(&self) {
        self.conflicts.inc();
    }

    /// Whether this replica leads.
    pub fn leading(&self, leads: bool) {
        self.leader.set(f64::from(u8::from(leads)));
    }

    /// The lanes and embedders as they are in the caches; counted anew at each scrape.
    pub fn population(&self, lanes: &[(bool, Reason)], embedders: &[Reason]) {
        self.lanes.clear();
        for (ready, reason) in lanes {
            let ready = Controller(if *ready { "true" } else { "false" });
            self.lanes.get_or_create(&LaneState { ready, reason: *reason }).inc();
        }
        self.pending.clear();
        for cause in embedders {
            self.pending.get_or_create(&Cause { cause: *cause }).inc();
        }
    }

    /// For Prometheus.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing into a String fails only where an encoder of ours does.
        if prometheus_client::encoding::text::encode(&mut text, &self.registry).is_err() {
            tracing::error!("metrics could not be written");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_as_documented() {
        let metrics = Metrics::default();
        metrics.reconciled("lane", "ok", Duration::from_millis(3));
        metrics.reconciled("lane", "ok", Duration::from_millis(3));
        metrics.fence_conflict();
        metrics.population(&[(true, Reason::Ready), (false, Reason::CollectionTaken)], &[Reason::InsufficientGPU]);
        metrics.population(&[(true, Reason::Ready)], &[Reason::InsufficientGPU]);
        let text = metrics.render();
        for line in [
            "lanekeeper_operator_reconcile_total{controller=\"lane\",result=\"ok\"} 2",
            "lanekeeper_operator_fence_conflicts_total 1",
            "lanekeeper_operator_lanes{ready=\"true\",reason=\"Ready\"} 1",
            "lanekeeper_operator_embedder_pending{cause=\"InsufficientGPU\"} 1",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("CollectionTaken"), "a lane that is gone is still counted");
    }
}
