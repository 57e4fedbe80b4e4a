//! The write fence.
//!
//! # Flow
//! 1. A store knows what it expects ([`Expectation`]) from the moment it opens.
//! 2. Before a group of writes it calls [`Fence::confirm`]. A confirmation younger than a second is used
//!    as it is; else the record is read and compared field by field.
//! 3. The answer is a [`Fenced`], the only way into the append path, or a [`Refusal`] with its reason.
//!
//! # Guarantees
//! - A refusal by content (another writer, epoch, holder …) takes effect at once and stays until a later
//!   read agrees again. An unreadable registry leaves the last confirmation valid until it is 15 s old.
//! - Nobody can make a [`Fenced`] elsewhere.
//! - While the holder before may still land a write ([`Fence::hold_back`]) nothing is confirmed. That wait is
//!   measured on a clock that nobody sets.
//!
//! # Caveats
//! - A write admitted under a confirmation may land up to 15 s after the record changed: hand-over waits
//!   that long, or for the old holder's release.

use std::sync::{Arc, Mutex};

use lanekeeper_core::clock::Clock;
use lanekeeper_core::error::FenceReason;
use lanekeeper_core::fingerprint::Fingerprint;
use lanekeeper_core::hooks::guard;
use lanekeeper_core::limits::FENCE_FRESH_MS;
use lanekeeper_core::{Epoch, LaneError, LaneUid, LogId};
use tokio::time::Instant;

use crate::record::{Mode, Record};
use crate::registry::{Registry, RegistryError};

/// How old a confirmation may be before the record is read again, milliseconds.
const REREAD_MS: i64 = 1_000;

/// What a store holds itself to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// `<namespace>.<collection>`.
    pub collection: String,
    /// This lane.
    pub writer: LaneUid,
    /// This log.
    pub log_id: LogId,
    /// What this store projects with.
    pub fingerprint: Fingerprint,
    /// What it writes under.
    pub epoch: Epoch,
    /// This process.
    pub holder: String,
}

/// A refused write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Refusal {
    /// Which check failed.
    pub reason: FenceReason,
    /// In words, for the caller.
    pub detail: String,
}

impl From<Refusal> for LaneError {
    fn from(refusal: Refusal) -> Self {
        Self::Fence { reason: refusal.reason, detail: refusal.detail }
    }
}

/// Proof that the fence was confirmed. Only [`Fence::confirm`] makes one.
#[derive(Debug, Clone)]
pub struct Fenced {
    epoch: Epoch,
    confirmed_at_ms: i64,
}

impl Fenced {
    /// The epoch to write under.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// When the record was read, milliseconds since the epoch.
    #[must_use]
    pub const fn confirmed_at_ms(&self) -> i64 {
        self.confirmed_at_ms
    }
}

/// Compares a record with what a store expects. Pure.
pub fn check(record: &Record, expected: &Expectation) -> Result<(), Refusal> {
    let refuse = |reason, detail: String| Err(Refusal { reason, detail });
    let spec = &record.spec;
    if spec.collection != expected.collection {
        return refuse(FenceReason::RecordGarbled, format!("the record is of collection {}", spec.collection));
    }
    if spec.writer.uid != expected.writer && guard("fence") {
        return refuse(
            FenceReason::OtherWriter,
            format!("collection {} is written by lane {}/{}", spec.collection, spec.writer.namespace, spec.writer.name),
        );
    }
    if spec.mode != Mode::ReadWrite && guard("fence_mode") {
        return refuse(FenceReason::NotWritable, format!("collection {} is sealed", spec.collection));
    }
    if spec.log_id != expected.log_id && guard("fence_log") {
        return refuse(FenceReason::OtherLog, "the record names another log".into());
    }
    if spec.fingerprint != expected.fingerprint && guard("fence_fingerprint") {
        return refuse(
            FenceReason::OtherFingerprint,
            format!(
                "the record's embedding is {}, this store's {}",
                spec.fingerprint.short(),
                expected.fingerprint.short()
            ),
        );
    }
    if spec.epoch != expected.epoch && guard("epoch") {
        return refuse(
            FenceReason::OtherEpoch,
            format!("the record's epoch is {}, this store's {}", spec.epoch, expected.epoch),
        );
    }
    let holds = record.status.holder.as_ref().is_some_and(|holder| holder.id == expected.holder && !holder.released);
    if !holds && guard("holder") {
        return refuse(FenceReason::OtherHolder, "the record names another process as holder".into());
    }
    Ok(())
}

#[derive(Debug, Default)]
struct State {
    confirmed_at_ms: Option<i64>,
    last_refusal: Option<Refusal>,
    held_back_until: Option<Instant>,
}

/// The fence of one store.
#[derive(Debug)]
pub struct Fence {
    registry: Arc<dyn Registry>,
    expected: Mutex<Expectation>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

impl Fence {
    /// A fence that has confirmed nothing yet.
    #[must_use]
    pub fn new(registry: Arc<dyn Registry>, expected: Expectation, clock: Arc<dyn Clock>) -> Self {
        Self { registry, expected: Mutex::new(expected), clock, state: Mutex::default() }
    }

    /// What is expected.
    pub fn expected(&self) -> Expectation {
        lock(&self.expected).clone()
    }

    /// The last refusal that still stands, for `/readyz`. Asks nobody.
    pub fn refusal(&self) -> Option<Refusal> {
        self.held_back().or_else(|| lock(&self.state).last_refusal.clone())
    }

    /// Confirms nothing for this long: the holder before may still land a write that it was admitted to.
    pub fn hold_back(&self, wait: std::time::Duration) {
        lock(&self.state).held_back_until = Some(Instant::now() + wait);
    }

    /// The refusal of a store that waits for the holder before it, while it waits.
    pub fn held_back(&self) -> Option<Refusal> {
        let until = lock(&self.state).held_back_until?;
        let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        if !guard("holder_wait") {
            return None;
        }
        let seconds = left.as_secs() + 1;
        Some(Refusal {
            reason: FenceReason::Unconfirmed,
            detail: format!("the process that held the lane before may still write for up to {seconds} s"),
        })
    }

    /// The registry.
    pub fn registry(&self) -> &Arc<dyn Registry> {
        &self.registry
    }

    /// Confirms the fence now, or says why not.
    pub async fn confirm(&self) -> Result<Fenced, Refusal> {
        if let Some(refusal) = self.held_back() {
            return Err(refusal);
        }
        let expected = self.expected();
        let now = self.clock.now_ms();
        if let Some(at) = lock(&self.state).confirmed_at_ms.filter(|at| (0..REREAD_MS).contains(&(now - at))) {
            return Ok(Fenced { epoch: expected.epoch, confirmed_at_ms: at });
        }
        let outcome = match self.registry.read(&expected.collection).await {
            Ok(record) => check(&record, &expected),
            Err(error) => Err(Self::refusal_of(&error)),
        };
        let mut state = lock(&self.state);
        match outcome {
            Ok(()) => {
                // The age counts from before the read, so a slow read never makes a confirmation younger.
                state.confirmed_at_ms = Some(now);
                state.last_refusal = None;
                Ok(Fenced { epoch: expected.epoch, confirmed_at_ms: now })
            }
            Err(refusal) => {
                if refusal.reason == FenceReason::RegistryUnreadable {
                    let fresh = state.confirmed_at_ms.filter(|at| (0..FENCE_FRESH_MS).contains(&(now - at)));
                    if let Some(at) = fresh {
                        return Ok(Fenced { epoch: expected.epoch, confirmed_at_ms: at });
                    }
                }
                state.confirmed_at_ms = None;
                state.last_refusal = Some(refusal.clone());
                Err(refusal)
            }
        }
    }

    /// Whether a confirmation may still carry a commit.
    pub fn check_fresh(&self, fenced: &Fenced) -> Result<(), Refusal> {
        if (0..FENCE_FRESH_MS).contains(&(self.clock.now_ms() - fenced.confirmed_at_ms)) {
            return Ok(());
        }
        Err(Refusal { reason: FenceReason::Unconfirmed, detail: "the last confirmation is older than 15 s".into() })
    }

    fn refusal_of(error: &RegistryError) -> Refusal {
        let reason = match error {
            RegistryError::Missing { .. } => FenceReason::RecordMissing,
            RegistryError::Garbled { .. } => FenceReason::RecordGarbled,
            RegistryError::Taken { .. } => FenceReason::OtherWriter,
            RegistryError::Unreadable { .. } => FenceReason::RegistryUnreadable,
        };
        Refusal { reason, detail: error.to_string() }
    }
}

/// A panic while a lock is held leaves no half-written state here: both states are replaced whole.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
