//! The lane while it is opened, open and closed.
//!
//! What must always hold: a lane that cannot be opened is tried again and its reason is a stable code in
//! `/readyz`; one that was opened without its record is opened again as soon as there is one, since its published
//! head was not compared and its epoch not read; after [`Slot::set_stopping`] nothing is opened any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::LaneError;
use tokio::sync::watch;

use crate::error::StoreError;
use crate::store::LaneStore;

/// How long after a failure it is tried again.
const AGAIN: Duration = Duration::from_secs(3);
/// How often a record is looked for that was not there at open.
const RECORD: Duration = Duration::from_secs(5);

/// Opens the lane; called again after a failure.
#[async_trait]
pub trait Opener: Send + Sync + std::fmt::Debug {
    /// Opens it.
    async fn open(&self) -> Result<Arc<LaneStore>, StoreError>;
}

#[derive(Debug)]
struct State {
    store: Option<Arc<LaneStore>>,
    reason: &'static str,
}

/// Where the open lane is found.
#[derive(Debug)]
pub struct Slot {
    state: RwLock<State>,
    stopping: AtomicBool,
}

impl Default for Slot {
    fn default() -> Self {
        Self { state: RwLock::new(State { store: None, reason: "store_opening" }), stopping: AtomicBool::new(false) }
    }
}

impl Slot {
    /// The open lane.
    pub fn store(&self) -> Result<Arc<LaneStore>, LaneError> {
        if self.stopping.load(Ordering::SeqCst) {
            return Err(LaneError::Unavailable { what: "the lane's store".into() });
        }
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.store.clone().ok_or_else(|| LaneError::Unavailable { what: "the lane's store".into() })
    }

    /// Why it is not open.
    pub(super) fn reason(&self) -> &'static str {
        if self.stopping.load(Ordering::SeqCst) {
            return "store_stopping";
        }
        self.state.read().unwrap_or_else(PoisonError::into_inner).reason
    }

    /// No further request reaches the lane.
    pub(super) fn set_stopping(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    fn put(&self, store: Option<Arc<LaneStore>>, reason: &'static str) -> Option<Arc<LaneStore>> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.reason = reason;
        std::mem::replace(&mut state.store, store)
    }

    /// Closes the lane, if it is open.
    pub(super) async fn close(&self) {
        if let Some(store) = self.put(None, "store_closed") {
            store.close().await;
            tracing::info!("the lane is closed");
        }
    }
}

/// Opens the lane, again where it fails, until it is open and has its record, or the server stops.
pub(super) async fn keep_open(slot: Arc<Slot>, opener: Arc<dyn Opener>, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow_and_update() {
        let wait = match opener.open().await {
            Ok(store) => {
                tracing::info!(lane = %store.config().lane, head = store.head().0.0, "the lane is open");
                let complete = store.opened_with_record;
                slot.put(Some(store), "store_open");
                if complete {
                    return;
                }
                if !until_there_is_a_record(&slot, &mut stop).await {
                    return;
                }
                slot.close().await;
                continue;
            }
            Err(error) => {
                let reason = code(&error);
                tracing::error!(reason, "the lane cannot be opened: {}", error.chain());
                slot.put(None, reason);
                AGAIN
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            changed = stop.changed() => if changed.is_err() { return },
        }
    }
}

/// False: the server stops.
async fn until_there_is_a_record(slot: &Slot, stop: &mut watch::Receiver<bool>) -> bool {
    loop {
        tokio::select! {
            () = tokio::time::sleep(RECORD) => {}
            changed = stop.changed() => if changed.is_err() || *stop.borrow() { return false },
        }
        let Ok(store) = slot.store() else { return false };
        if store.fence.registry().read(&store.config().collection).await.is_ok() {
            tracing::info!("the record can be read; the lane is opened again with it");
            return true;
        }
    }
}

fn code(error: &StoreError) -> &'static str {
    match error {
        StoreError::Locked { .. } => "store_locked",
        StoreError::SchemaTooNew { .. } => "store_schema_too_new",
        StoreError::OtherLane { .. } => "store_other_lane",
        StoreError::OtherLog => "store_other_log",
        StoreError::FileGone { .. } => "store_file_gone",
        StoreError::Vectors(_) => "store_vectors",
        StoreError::Occupied { .. }
        | StoreError::BackupDamaged { .. }
        | StoreError::Io { .. }
        | StoreError::Sqlite { .. }
        | StoreError::Registry(_)
        | StoreError::Malformed { .. }
        | StoreError::Lane(_) => "store_not_open",
    }
}
