//! What a store knows about itself beyond its files: whether it only reads, which rows are damaged, what
//! background work is under way.

use std::collections::BTreeSet;
use std::sync::Mutex;

use lanekeeper_core::Seq;
use lanekeeper_core::error::ReadOnlyReason;

#[derive(Debug, Default)]
struct Inner {
    read_only: Option<ReadOnlyReason>,
    bad_rows: BTreeSet<Seq>,
    verifying: Option<(u64, u64)>,
    wal_holds_erased: bool,
    memory_unwritten: bool,
    vector_trouble: Option<&'static str>,
    projection_trouble: Option<&'static str>,
}

/// Shared by the writer, the background tasks and the readers.
#[derive(Debug, Default)]
pub(crate) struct LaneState(Mutex<Inner>);

impl LaneState {
    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn read_only(&self) -> Option<ReadOnlyReason> {
        self.inner().read_only.clone()
    }

    /// Stays until the store is opened again: a damaged log needs a person.
    pub(crate) fn set_read_only(&self, reason: ReadOnlyReason) {
        let mut inner = self.inner();
        if let ReadOnlyReason::BadRow(seq) = &reason {
            inner.bad_rows.insert(*seq);
        }
        if inner.read_only.is_none() {
            tracing::error!(code = reason.code(), "the lane is read-only from here on");
            inner.read_only = Some(reason);
        }
    }

    pub(crate) fn is_bad(&self, seq: Seq) -> bool {
        self.inner().bad_rows.contains(&seq)
    }

    pub(crate) fn set_verifying(&self, progress: Option<(u64, u64)>) {
        self.inner().verifying = progress;
    }

    pub(crate) fn verifying(&self) -> Option<(u64, u64)> {
        self.inner().verifying
    }

    /// Whether pages that a forget cleared may still stand in the write-ahead log.
    pub(crate) fn wal_holds_erased(&self) -> bool {
        self.inner().wal_holds_erased
    }

    pub(crate) fn set_wal_holds_erased(&self, holds: bool) {
        self.inner().wal_holds_erased = holds;
    }

    /// Whether a curated file may be behind the log; upkeep brings it up.
    pub(crate) fn memory_unwritten(&self) -> bool {
        self.inner().memory_unwritten
    }

    pub(crate) fn set_memory_unwritten(&self, unwritten: bool) {
        self.inner().memory_unwritten = unwritten;
    }

    pub(crate) fn set_vector_trouble(&self, code: Option<&'static str>) {
        self.inner().vector_trouble = code;
    }

    pub(crate) fn vector_trouble(&self) -> Option<&'static str> {
        self.inner().vector_trouble
    }

    pub(crate) fn set_projection_trouble(&self, code: Option<&'static str>) {
        self.inner().projection_trouble = code;
    }

    pub(crate) fn projection_trouble(&self) -> Option<&'static str> {
        self.inner().projection_trouble
    }
}
