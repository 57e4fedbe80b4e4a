//! The questions query-service asks of a lane. In process or over HTTP, the caller sees no difference.
//!
//! A [`Caller`] is made from a credential and the Lane's current access, never from a request. The
//! store checks it again: UID binding, scope, and for a reading lane the consent in its record.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;

use crate::encoder::QueryEncoding;
use crate::error::LaneError;
use crate::fingerprint::Fingerprint;
use crate::ids::{EventId, LaneName, LaneUid, Seq};
use crate::principal::Principal;
use crate::scope::{Action, Decision, EffectiveScope, ScopePath};
use crate::wire::events::{EventPage, SaveRequest, SaveResponse, TurnRole};
use crate::wire::forget::{ForgetRequest, ForgetResponse};
use crate::wire::memory::{MemoryHistory, MemoryPage, MemorySaveRequest, MemorySaveResponse};
use crate::wire::recall::{Arm, ArmCoverage, Filter, LaneCounts, Surface};
use crate::wire::upkeep::{ImportReport, RebuildReport, RebuildRequest, VerifyReport};

/// Who asks, and what that may be, in one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The credential's subject.
    pub principal: Principal,
    /// The lane, by name.
    pub lane: LaneName,
    /// The lane, by what the name was bound to when the scope was derived.
    pub lane_uid: LaneUid,
    /// What may be done there.
    pub scope: EffectiveScope,
    /// Set where the lane is read through another lane's `reads`: that lane's UID.
    pub reading_lane: Option<LaneUid>,
}

impl Caller {
    /// The decision on the lane's events.
    #[must_use]
    pub fn on_events(&self, action: Action) -> Decision {
        self.scope.evaluate(&ScopePath::events(&self.lane, self.lane_uid), action)
    }

    /// The decision on one owner's curated memory.
    #[must_use]
    pub fn on_memory(&self, owner: &str, action: Action) -> Decision {
        ScopePath::memory(&self.lane, self.lane_uid, owner)
            .map_or(Decision::Deny, |path| self.scope.evaluate(&path, action))
    }
}

/// The one place where a [`Decision`] becomes an answer: Auto passes, Deny is not found.
pub const fn require(decision: Decision, action: Action) -> Result<(), LaneError> {
    match decision {
        Decision::Auto => Ok(()),
        Decision::Gate => Err(LaneError::GateRequired { action }),
        Decision::Human => Err(LaneError::HumanRequired { action }),
        Decision::Deny => Err(LaneError::NotFound { what: "lane" }),
    }
}

/// An Idempotency-Key with the hash of what came with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// As sent: 1 to 255 visible ASCII characters.
    pub key: String,
    /// SHA-256 of the body as sent. The store keeps only a keyed hash of it.
    pub body_sha256: [u8; 32],
}

/// The question's encoding under the lane's fingerprint, or why there is none (a coverage reason such
/// as `embedder_unavailable`). A future, so that a lane searches its text while the model works.
pub type EncodingFuture = Pin<Box<dyn Future<Output = Result<Arc<QueryEncoding>, String>> + Send>>;

/// A recall as one lane sees it.
pub struct StoreRecall {
    /// The question, already cut to its limit.
    pub query: String,
    /// Its encoding; awaited by the vector arm alone.
    pub encoding: EncodingFuture,
    /// The fingerprint of `encoding`.
    pub fingerprint: Fingerprint,
    /// What to search.
    pub surfaces: Vec<Surface>,
    /// Applied inside every arm.
    pub filter: Filter,
    /// Arms switched off by name (benchmarks only).
    pub arms_off: Vec<Arm>,
    /// Pool question tokens by idf (off: mean over all tokens; benchmarks only).
    pub idf_pooling: bool,
    /// Milliseconds since the epoch after which no arm should start.
    pub deadline_ms: i64,
}

/// One candidate with every arm's exact raw score.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The event (the newest surviving holder of the content that passes the filters).
    pub event_id: EventId,
    /// Its place in the log.
    pub seq: Seq,
    /// When, milliseconds since the epoch.
    pub at_ms: i64,
    /// When, as sent.
    pub at: String,
    /// Who said it.
    pub role: TurnRole,
    /// The speaker.
    pub speaker: Option<String>,
    /// The session.
    pub session: String,
    /// Who saved it.
    pub principal: Option<String>,
    /// As sent.
    pub text: String,
    /// The caller's own.
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Keyed content hash: equal within a lane for equal content; says nothing across lanes.
    pub content: [u8; 32],
    /// Exact score of each arm that was searched (cosine, BM25; 0 where no term matches). The vector
    /// arm has no entry where the event has no vectors.
    pub scores: BTreeMap<Arm, f64>,
    /// 1-based rank in each arm that listed it.
    pub ranks: BTreeMap<Arm, u32>,
    /// Other surviving events of equal content that pass the filters.
    pub folded: u32,
}

/// One curated paragraph found.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryCandidate {
    /// The paragraph.
    pub paragraph: crate::wire::memory::Paragraph,
    /// Query terms it holds, weighted (BM25 over paragraphs).
    pub score: f64,
    /// 1-based.
    pub rank: u32,
}

/// What one lane found.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreAnswer {
    /// The union of the arms' pools, each candidate with every arm's score.
    pub candidates: Vec<Candidate>,
    /// Curated paragraphs, best first.
    pub memory: Vec<MemoryCandidate>,
    /// Each arm: searched or not, and why.
    pub arms: BTreeMap<Arm, ArmCoverage>,
    /// Counts.
    pub counts: LaneCounts,
    /// The floor that was applied to vector-only candidates.
    pub floor: Option<f32>,
    /// `idf_weighted` or `server`; `None` without a vector arm.
    pub pooling: Option<String>,
    /// Whether any turn of this lane has a speaker.
    pub has_speakers: bool,
    /// The one known speaker whose name stands in the question as a word, if exactly one does.
    pub speaker_in_query: Option<String>,
}

/// A save.
#[derive(Debug, Clone)]
pub struct AppendRequest {
    /// Checked by the edge, and again by the store.
    pub save: SaveRequest,
    /// From the Idempotency-Key header.
    pub idempotency: Option<Idempotency>,
}

/// Bytes that come as they are made.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, LaneError>> + Send>>;

/// State of a lane for `/readyz`, `/v1/lanes` and metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneStatus {
    /// Recall works.
    pub ready: bool,
    /// Writes work.
    pub writable: bool,
    /// Stable codes of what is wrong.
    pub reasons: Vec<String>,
    /// Head's seq.
    pub head_seq: u64,
    /// Counts.
    pub counts: LaneCounts,
    /// Purges whose vectors are not gone yet.
    pub purge_outbox: u64,
    /// Whether a background walk of the log runs, and how far it is (rows done, rows in all).
    pub verifying: Option<(u64, u64)>,
    /// Whether vectors are being rebuilt.
    pub rebuilding: bool,
}

/// A lane.
#[async_trait]
pub trait LaneClient: Send + Sync + std::fmt::Debug {
    /// Appends turns; all or nothing; returns after the durable commit.
    async fn append(&self, caller: &Caller, request: AppendRequest) -> Result<SaveResponse, LaneError>;
    /// Events after `after` by seq, at most `limit`.
    async fn list_events(&self, caller: &Caller, after: Seq, limit: u32) -> Result<EventPage, LaneError>;
    /// Candidates of every arm.
    async fn recall(&self, caller: &Caller, request: StoreRecall) -> Result<StoreAnswer, LaneError>;
    /// Names of the speakers in the turns this caller may recall: for an embedder that pools by itself
    /// they are stripped from the question before it is embedded. A client that cannot tell says so,
    /// and the answer's `ranking` passes it on.
    async fn known_speakers(&self, caller: &Caller) -> Result<Vec<String>, LaneError> {
        let _ = caller;
        Err(LaneError::Unavailable { what: "the list of speakers".into() })
    }
    /// Forgets, or says what would be.
    async fn forget(
        &self,
        caller: &Caller,
        request: ForgetRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<ForgetResponse, LaneError>;
    /// Curated memory: a listing for an empty query, else a literal search.
    async fn memory(&self, caller: &Caller, query: &str) -> Result<MemoryPage, LaneError>;
    /// Replaces a curated file. `if_match` is the version without quotes.
    async fn save_memory(
        &self,
        caller: &Caller,
        request: MemorySaveRequest,
        if_match: Option<String>,
        idempotency: Option<Idempotency>,
    ) -> Result<MemorySaveResponse, LaneError>;
    /// Versions of the files the caller may read.
    async fn memory_history(&self, caller: &Caller) -> Result<MemoryHistory, LaneError>;
    /// Walks the whole log.
    async fn verify(&self, caller: &Caller) -> Result<VerifyReport, LaneError>;
    /// Makes every projection again from the log.
    async fn rebuild(&self, caller: &Caller, request: RebuildRequest) -> Result<RebuildReport, LaneError>;
    /// JSON Lines: a header, then turns with original text and times.
    async fn export(&self, caller: &Caller) -> Result<ByteStream, LaneError>;
    /// Reads JSON Lines as [`Self::export`] writes them. `force_personal` allows a corpus lane to take
    /// what came from a personal lane; `unattributed` keeps rows without a principal.
    async fn import(&self, caller: &Caller, body: ByteStream, force_personal: bool) -> Result<ImportReport, LaneError>;
    /// A tar-free archive: see docs/formats.md; verified by `lanekeeper restore`.
    async fn backup(&self, caller: &Caller) -> Result<ByteStream, LaneError>;
    /// State; asked by the program itself, so without a caller.
    async fn status(&self) -> LaneStatus;
}
