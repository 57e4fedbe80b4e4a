//! A lane that has no store to ask yet: no record, or one that names another lane. It says why in its state, and
//! every request is told that the store is not available, as while a store starts.

use async_trait::async_trait;
use lanekeeper_core::lane_client::{
    AppendRequest, ByteStream, Caller, Idempotency, LaneClient, LaneStatus, StoreAnswer, StoreRecall,
};
use lanekeeper_core::wire::events::{EventPage, SaveResponse};
use lanekeeper_core::wire::forget::{ForgetRequest, ForgetResponse};
use lanekeeper_core::wire::memory::{MemoryHistory, MemoryPage, MemorySaveRequest, MemorySaveResponse};
use lanekeeper_core::wire::upkeep::{ImportReport, RebuildReport, RebuildRequest, VerifyReport};
use lanekeeper_core::{LaneError, Seq};

/// See the module's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoStore {
    /// A stable code.
    pub(super) reason: &'static str,
}

fn unavailable<T>() -> Result<T, LaneError> {
    Err(LaneError::Unavailable { what: "the lane's store".into() })
}

#[async_trait]
impl LaneClient for NoStore {
    async fn append(&self, _: &Caller, _: AppendRequest) -> Result<SaveResponse, LaneError> {
        unavailable()
    }
    async fn list_events(&self, _: &Caller, _: Seq, _: u32) -> Result<EventPage, LaneError> {
        unavailable()
    }
    async fn recall(&self, _: &Caller, _: StoreRecall) -> Result<StoreAnswer, LaneError> {
        unavailable()
    }
    async fn known_speakers(&self, _: &Caller) -> Result<Vec<String>, LaneError> {
        unavailable()
    }
    async fn forget(&self, _: &Caller, _: ForgetRequest, _: Option<Idempotency>) -> Result<ForgetResponse, LaneError> {
        unavailable()
    }
    async fn memory(&self, _: &Caller, _: &str) -> Result<MemoryPage, LaneError> {
        unavailable()
    }
    async fn save_memory(
        &self,
        _: &Caller,
        _: MemorySaveRequest,
        _: Option<String>,
        _: Option<Idempotency>,
    ) -> Result<MemorySaveResponse, LaneError> {
        unavailable()
    }
    async fn memory_history(&self, _: &Caller) -> Result<MemoryHistory, LaneError> {
        unavailable()
    }
    async fn verify(&self, _: &Caller) -> Result<VerifyReport, LaneError> {
        unavailable()
    }
    async fn rebuild(&self, _: &Caller, _: RebuildRequest) -> Result<RebuildReport, LaneError> {
        unavailable()
    }
    async fn export(&self, _: &Caller) -> Result<ByteStream, LaneError> {
        unavailable()
    }
    async fn import(&self, _: &Caller, _: ByteStream, _: bool) -> Result<ImportReport, LaneError> {
        unavailable()
    }
    async fn backup(&self, _: &Caller) -> Result<ByteStream, LaneError> {
        unavailable()
    }
    async fn status(&self) -> LaneStatus {
        LaneStatus { reasons: vec![self.reason.to_owned()], ..LaneStatus::default() }
    }
}
