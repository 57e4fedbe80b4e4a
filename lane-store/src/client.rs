//! The store as a [`LaneClient`]: every request passes [`LaneStore::admit`] first.
//!
//! This is the store's choke point: the lane UID must be this lane's, the scope must allow the action on
//! the very path, and a lane that reads through `reads` must stand in the record's readers. The edge has
//! checked all of it before; the store trusts none of that.

use async_trait::async_trait;
use lanekeeper_core::hooks::guard;
use lanekeeper_core::lane::LaneKind;
use lanekeeper_core::lane_client::{
    AppendRequest, ByteStream, Caller, Idempotency, LaneClient, LaneStatus, StoreAnswer, StoreRecall, require,
};
use lanekeeper_core::scope::{Action, SHARED_OWNER};
use lanekeeper_core::wire::events::{EventPage, SaveResponse};
use lanekeeper_core::wire::forget::{ForgetRequest, ForgetResponse};
use lanekeeper_core::wire::memory::{MemoryHistory, MemoryPage, MemorySaveRequest, MemorySaveResponse};
use lanekeeper_core::wire::upkeep::{ImportReport, RebuildReport, RebuildRequest, VerifyReport};
use lanekeeper_core::{LaneError, Seq};
use lanekeeper_federation::Refusal;

use crate::error::statement;
use crate::store::LaneStore;

impl LaneStore {
    /// Whether the caller may speak to this lane at all. A foreign lane is not found.
    async fn admit(&self, caller: &Caller) -> Result<(), LaneError> {
        let mine = caller.lane_uid == self.config.uid && caller.lane == self.config.lane;
        if !mine && guard("uid_binding_store") {
            return Err(LaneError::NotFound { what: "lane" });
        }
        let Some(reader) = caller.reading_lane else { return Ok(()) };
        if !guard("reads_consent_store") {
            return Ok(());
        }
        // One-way: a personal lane is read by no other, whatever its record says.
        if self.config.kind != LaneKind::Corpus {
            return Err(LaneError::NotFound { what: "lane" });
        }
        match self.fence.registry().read(&self.config.collection).await {
            Ok(record) if record.spec.readers.contains(&reader) => Ok(()),
            Ok(_) => Err(LaneError::NotFound { what: "lane" }),
            Err(_) => Err(LaneError::Unavailable { what: "the record of readers".into() }),
        }
    }

    async fn admit_to_events(&self, caller: &Caller, action: Action) -> Result<(), LaneError> {
        self.admit(caller).await?;
        if !guard("scope_deny_store") {
            return Ok(());
        }
        require(caller.on_events(action), action)
    }
}

#[async_trait]
impl LaneClient for LaneStore {
    async fn append(&self, caller: &Caller, request: AppendRequest) -> Result<SaveResponse, LaneError> {
        self.admit_to_events(caller, Action::Save).await?;
        self.append_turns(caller, request).await
    }

    async fn list_events(&self, caller: &Caller, after: Seq, limit: u32) -> Result<EventPage, LaneError> {
        self.admit_to_events(caller, Action::Recall).await?;
        self.list(after, limit).await
    }

    async fn recall(&self, caller: &Caller, request: StoreRecall) -> Result<StoreAnswer, LaneError> {
        self.admit_to_events(caller, Action::Recall).await?;
        self.recall_turns(caller, request).await
    }

    async fn known_speakers(&self, caller: &Caller) -> Result<Vec<String>, LaneError> {
        self.admit_to_events(caller, Action::Recall).await?;
        let mut conn = self.reader().await?;
        crate::recall::speakers(&mut conn).await
    }

    async fn forget(
        &self,
        caller: &Caller,
        request: ForgetRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<ForgetResponse, LaneError> {
        match &request.memory {
            Some(memory) => {
                self.admit(caller).await?;
                require(caller.on_memory(&memory.owner, Action::Forget), Action::Forget)?;
            }
            None => self.admit_to_events(caller, Action::Forget).await?,
        }
        self.forget_turns(caller, request, idempotency).await
    }

    async fn memory(&self, caller: &Caller, query: &str) -> Result<MemoryPage, LaneError> {
        self.admit(caller).await?;
        self.list_memory(caller, query).await
    }

    async fn save_memory(
        &self,
        caller: &Caller,
        request: MemorySaveRequest,
        if_match: Option<String>,
        idempotency: Option<Idempotency>,
    ) -> Result<MemorySaveResponse, LaneError> {
        self.admit(caller).await?;
        let owner = if request.shared {
            require(caller.on_memory(SHARED_OWNER, Action::MemoryWrite), Action::MemoryWrite)?;
            SHARED_OWNER.to_owned()
        } else {
            // The owner comes from the scope, never from the request.
            caller
                .scope
                .single_private_owner(&caller.lane, caller.lane_uid, Action::MemoryWrite)
                .ok_or(LaneError::SinglePrivateOwnerRequired)?
        };
        self.write_memory(caller, &owner, request, if_match, idempotency).await
    }

    async fn memory_history(&self, caller: &Caller) -> Result<MemoryHistory, LaneError> {
        self.admit(caller).await?;
        self.history(caller).await
    }

    async fn verify(&self, caller: &Caller) -> Result<VerifyReport, LaneError> {
        self.admit_to_events(caller, Action::Verify).await?;
        self.verify_whole().await
    }

    async fn rebuild(&self, caller: &Caller, request: RebuildRequest) -> Result<RebuildReport, LaneError> {
        self.admit_to_events(caller, Action::Rebuild).await?;
        self.rebuild_all(request).await
    }

    async fn export(&self, caller: &Caller) -> Result<ByteStream, LaneError> {
        self.admit_to_events(caller, Action::Export).await?;
        self.export_lines().await
    }

    async fn import(&self, caller: &Caller, body: ByteStream, force_personal: bool) -> Result<ImportReport, LaneError> {
        self.admit_to_events(caller, Action::Import).await?;
        self.import_lines(caller, body, force_personal).await
    }

    async fn backup(&self, caller: &Caller) -> Result<ByteStream, LaneError> {
        self.admit_to_events(caller, Action::Backup).await?;
        self.backup_stream().await
    }

    async fn status(&self) -> LaneStatus {
        let refusal = self.fence.confirm().await.err();
        self.status_under(refusal).await
    }
}

impl LaneStore {
    /// State by what is known, without asking the registry: for probes, which come every few seconds.
    #[cfg(feature = "server")]
    pub(crate) async fn known_status(&self) -> LaneStatus {
        self.status_under(self.fence.refusal()).await
    }

    async fn status_under(&self, refusal: Option<Refusal>) -> LaneStatus {
        let mut reasons = Vec::new();
        let read_only = self.state.read_only();
        if let Some(reason) = &read_only {
            reasons.push(reason.code().to_owned());
        }
        if let Some(refusal) = &refusal {
            reasons.push(refusal.reason.code().to_owned());
        }
        reasons.extend(self.state.projection_trouble().map(str::to_owned));
        reasons.extend(self.state.vector_trouble().map(str::to_owned));
        let counted = async {
            let mut conn = self.reader().await?;
            let counts = self.counts(&mut conn).await?;
            let outbox: i64 = sqlx::query_scalar("SELECT count(*) FROM purge_outbox")
                .fetch_one(&mut *conn)
                .await
                .map_err(statement)?;
            Ok::<_, LaneError>((counts, outbox.cast_unsigned()))
        };
        let counted = counted.await;
        if let Err(error) = &counted {
            reasons.push(error.code().to_owned());
        }
        let (seq, _) = self.head();
        let ready = counted.is_ok();
        let (counts, purge_outbox) = counted.unwrap_or_default();
        LaneStatus {
            ready,
            writable: ready && read_only.is_none() && refusal.is_none(),
            reasons,
            head_seq: seq.0,
            counts,
            purge_outbox,
            verifying: self.state.verifying(),
            rebuilding: self.vectors.has_shadow(),
        }
    }
}
