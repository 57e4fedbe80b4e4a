//! A lane as the query API reaches it here: its store while it is open, and the reasons while it is not.
//!
//! What must always hold: the store is taken anew at each call, so a lane that is suspended, removed or
//! opened again counts for the next request; reasons that lie outside the store (its manifest is refused,
//! the folder of manifests is unreadable) stand beside the store's own.

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use lanekeeper_core::lane_client::{
    AppendRequest, ByteStream, Caller, Idempotency, LaneClient, LaneStatus, StoreAnswer, StoreRecall,
};
use lanekeeper_core::wire::events::{EventPage, SaveResponse};
use lanekeeper_core::wire::forget::{ForgetRequest, ForgetResponse};
use lanekeeper_core::wire::memory::{MemoryHistory, MemoryPage, MemorySaveRequest, MemorySaveResponse};
use lanekeeper_core::wire::upkeep::{ImportReport, RebuildReport, RebuildRequest, VerifyReport};
use lanekeeper_core::{LaneError, Seq};
use lanekeeper_lane_store::LaneStore;

#[derive(Debug, Default)]
struct State {
    store: Option<Arc<LaneStore>>,
    reasons: Vec<&'static str>,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct LocalLane(RwLock<State>);

impl LocalLane {
    /// The store is open.
    pub(crate) fn open(&self, store: Arc<LaneStore>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).store = Some(store);
    }

    /// No further call reaches the store; whoever gets it closes it.
    pub(crate) fn take(&self) -> Option<Arc<LaneStore>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).store.take()
    }

    /// Whether there is an open store.
    pub(crate) fn is_open(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).store.is_some()
    }

    /// What is wrong beside the store.
    pub(crate) fn set_reasons(&self, reasons: Vec<&'static str>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).reasons = reasons;
    }

    /// The store, while it is open.
    pub(crate) fn store(&self) -> Result<Arc<LaneStore>, LaneError> {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        state.store.clone().ok_or_else(|| LaneError::Unavailable { what: "the lane's store".into() })
    }

    fn reasons(&self) -> Vec<&'static str> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).reasons.clone()
    }
}

#[async_trait]
impl LaneClient for LocalLane {
    async fn append(&self, caller: &Caller, request: AppendRequest) -> Result<SaveResponse, LaneError> {
        self.store()?.append(caller, request).await
    }

    async fn list_events(&self, caller: &Caller, after: Seq, limit: u32) -> Result<EventPage, LaneError> {
        self.store()?.list_events(caller, after, limit).await
    }

    async fn recall(&self, caller: &Caller, request: StoreRecall) -> Result<StoreAnswer, LaneError> {
        self.store()?.recall(caller, request).await
    }

    async fn known_speakers(&self, caller: &Caller) -> Result<Vec<String>, LaneError> {
        self.store()?.known_speakers(caller).await
    }

    async fn forget(
        &self,
        caller: &Caller,
        request: ForgetRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<ForgetResponse, LaneError> {
        self.store()?.forget(caller, request, idempotency).await
    }

    async fn memory(&self, caller: &Caller, query: &str) -> Result<MemoryPage, LaneError> {
        self.store()?.memory(caller, query).await
    }

    async fn save_memory(
        &self,
        caller: &Caller,
        request: MemorySaveRequest,
        if_match: Option<String>,
        idempotency: Option<Idempotency>,
    ) -> Result<MemorySaveResponse, LaneError> {
        self.store()?.save_memory(caller, request, if_match, idempotency).await
    }

    async fn memory_history(&self, caller: &Caller) -> Result<MemoryHistory, LaneError> {
        self.store()?.memory_history(caller).await
    }

    async fn verify(&self, caller: &Caller) -> Result<VerifyReport, LaneError> {
        self.store()?.verify(caller).await
    }

    async fn rebuild(&self, caller: &Caller, request: RebuildRequest) -> Result<RebuildReport, LaneError> {
        self.store()?.rebuild(caller, request).await
    }

    async fn export(&self, caller: &Caller) -> Result<ByteStream, LaneError> {
        self.store()?.export(caller).await
    }

    async fn import(&self, caller: &Caller, body: ByteStream, force_personal: bool) -> Result<ImportReport, LaneError> {
        self.store()?.import(caller, body, force_personal).await
    }

    async fn backup(&self, caller: &Caller) -> Result<ByteStream, LaneError> {
        self.store()?.backup(caller).await
    }

    async fn status(&self) -> LaneStatus {
        let mut status = match self.store() {
            Ok(store) => store.status().await,
            Err(_) => LaneStatus::default(),
        };
        for reason in self.reasons() {
            if !status.reasons.iter().any(|known| known == reason) {
                status.reasons.push(reason.to_owned());
            }
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lane_without_a_store_says_why() {
        let lane = LocalLane::default();
        assert!(!lane.is_open());
        assert_eq!(lane.store().unwrap_err().code(), "unavailable");
        lane.set_reasons(vec!["store_locked"]);
        let status = lane.status().await;
        assert!(!status.ready && !status.writable);
        assert_eq!(status.reasons, ["store_locked"]);
    }
}
