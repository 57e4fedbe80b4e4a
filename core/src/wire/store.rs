//! The store protocol: what query-service sends a lane's store, and gets back. JSON over HTTPS, one POST a method
//! of [`crate::lane_client::LaneClient`]; each request carries an attestation ([`crate::attest`]).
//!
//! Requests and answers of the query API travel as they are; what only parts know (candidates, encodings,
//! state) has its form here, apart from the types it is made of. Errors are problem+json with the
//! [`LaneError`]'s code and come back as the same error ([`Problem`]); the cause of an internal error stays in
//! the store's log.
//!
//! Not here: HTTP. Paths, bodies and status codes are named; who serves and asks is elsewhere.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::encoding::WireEncoding;
use super::events::{SaveRequest, TurnRole};
use super::forget::ForgetRequest;
use super::memory::{MemorySaveRequest, Paragraph};
use super::recall::{Arm, ArmCoverage, Filter, LaneCounts, Surface};
use crate::error::{FenceReason, LaneError, ReadOnlyReason};
use crate::fingerprint::Fingerprint;
use crate::ids::{EventId, Hash32, Seq};
use crate::lane_client::{Candidate, Idempotency, LaneStatus, MemoryCandidate, StoreAnswer};
use crate::scope::Action;

/// Paths, one a method.
pub mod path {
    /// [`super::AppendBody`] → `SaveResponse`
    pub const APPEND: &str = "/v1/store/append";
    /// [`super::ListBody`] → `EventPage`
    pub const LIST_EVENTS: &str = "/v1/store/list_events";
    /// [`super::RecallBody`] → [`super::RecallAnswer`]
    pub const RECALL: &str = "/v1/store/recall";
    /// [`super::Nothing`] → list of names
    pub const KNOWN_SPEAKERS: &str = "/v1/store/known_speakers";
    /// [`super::ForgetBody`] → `ForgetResponse`
    pub const FORGET: &str = "/v1/store/forget";
    /// [`super::MemoryBody`] → `MemoryPage`
    pub const MEMORY: &str = "/v1/store/memory";
    /// [`super::SaveMemoryBody`] → `MemorySaveResponse`
    pub const SAVE_MEMORY: &str = "/v1/store/save_memory";
    /// [`super::Nothing`] → `MemoryHistory`
    pub const MEMORY_HISTORY: &str = "/v1/store/memory_history";
    /// [`super::Nothing`] → `VerifyReport`
    pub const VERIFY: &str = "/v1/store/verify";
    /// `RebuildRequest` → `RebuildReport`
    pub const REBUILD: &str = "/v1/store/rebuild";
    /// [`super::Nothing`] → JSON Lines, streamed
    pub const EXPORT: &str = "/v1/store/export";
    /// JSON Lines, a whole export by itself → `ImportReport`; `?force_personal=true`
    pub const IMPORT: &str = "/v1/store/import";
    /// [`super::Nothing`] → bytes, streamed
    pub const BACKUP: &str = "/v1/store/backup";
    /// `GET`, no caller → [`super::StatusAnswer`]
    pub const STATUS: &str = "/v1/store/status";
}

/// Largest body of a request, bytes: a save's 1 MiB with room for its escapes, or a piece of an import.
pub const BODY_BYTES: usize = 8 * 1024 * 1024;
/// Largest answer that is not streamed, bytes.
pub const ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// The body of a method that takes none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Puts the Idempotency-Key of the header and the hash of the caller's own body together. One without the other is
/// a fault of the asking side.
pub fn idempotency(key: Option<String>, body_sha256: Option<Hash32>) -> Result<Option<Idempotency>, LaneError> {
    match (key, body_sha256) {
        (None, None) => Ok(None),
        (Some(key), Some(hash)) => Ok(Some(Idempotency { key, body_sha256: *hash.as_bytes() })),
        (Some(_), None) | (None, Some(_)) => {
            Err(LaneError::invalid("body_sha256", "must come with Idempotency-Key, and not without it"))
        }
    }
}

/// A save. The Idempotency-Key is in its header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppendBody {
    /// The save.
    pub save: SaveRequest,
    /// SHA-256 of the body as the caller sent it, where an Idempotency-Key came with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_sha256: Option<Hash32>,
}

/// A listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListBody {
    /// Events after this place.
    pub after: Seq,
    /// At most so many.
    pub limit: u32,
}

/// The question's encoding, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EncodingOrReason {
    /// It.
    Encoding(WireEncoding),
    /// A coverage reason, such as `embedder_unavailable`.
    Reason(String),
}

/// A recall.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecallBody {
    /// The question, already cut to its limit.
    pub query: String,
    /// Its encoding.
    pub encoding: EncodingOrReason,
    /// The fingerprint of the encoding.
    pub fingerprint: Fingerprint,
    /// What to search.
    pub surfaces: Vec<Surface>,
    /// Applied inside every arm.
    #[serde(default)]
    pub filter: Filter,
    /// Arms switched off (benchmarks only).
    #[serde(default)]
    pub arms_off: Vec<Arm>,
    /// Pool question tokens by idf.
    pub idf_pooling: bool,
    /// After this no arm should start; milliseconds since the epoch.
    pub deadline_ms: i64,
}

/// A forget. The Idempotency-Key is in its header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForgetBody {
    /// The forget.
    pub request: ForgetRequest,
    /// See [`AppendBody::body_sha256`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_sha256: Option<Hash32>,
}

/// A look at curated memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryBody {
    /// Empty: a listing.
    pub query: String,
}

/// A curated save. Idempotency-Key and If-Match (in quotes) are in their headers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaveMemoryBody {
    /// The save.
    pub request: MemorySaveRequest,
    /// See [`AppendBody::body_sha256`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_sha256: Option<Hash32>,
}

/// See [`Candidate`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of Candidate, described there")]
pub struct WireCandidate {
    pub event_id: EventId,
    pub seq: Seq,
    pub at_ms: i64,
    pub at: String,
    pub role: TurnRole,
    pub speaker: Option<String>,
    pub session: String,
    pub principal: Option<String>,
    pub text: String,
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    pub content: Hash32,
    pub scores: BTreeMap<Arm, f64>,
    pub ranks: BTreeMap<Arm, u32>,
    pub folded: u32,
}

impl From<Candidate> for WireCandidate {
    fn from(candidate: Candidate) -> Self {
        let Candidate {
            event_id,
            seq,
            at_ms,
            at,
            role,
            speaker,
            session,
            principal,
            text,
            metadata,
            content,
            scores,
            ranks,
            folded,
        } = candidate;
        let content = Hash32::from_bytes(content);
        Self {
            event_id,
            seq,
            at_ms,
            at,
            role,
            speaker,
            session,
            principal,
            text,
            metadata,
            content,
            scores,
            ranks,
            folded,
        }
    }
}

impl From<WireCandidate> for Candidate {
    fn from(candidate: WireCandidate) -> Self {
        let WireCandidate {
            event_id,
            seq,
            at_ms,
            at,
            role,
            speaker,
            session,
            principal,
            text,
            metadata,
            content,
            scores,
            ranks,
            folded,
        } = candidate;
        let content = *content.as_bytes();
        Self {
            event_id,
            seq,
            at_ms,
            at,
            role,
            speaker,
            session,
            principal,
            text,
            metadata,
            content,
            scores,
            ranks,
            folded,
        }
    }
}

/// See [`MemoryCandidate`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of MemoryCandidate, described there")]
pub struct WireMemoryCandidate {
    pub paragraph: Paragraph,
    pub score: f64,
    pub rank: u32,
}

/// Answer of a recall; see [`StoreAnswer`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of StoreAnswer, described there")]
pub struct RecallAnswer {
    pub candidates: Vec<WireCandidate>,
    pub memory: Vec<WireMemoryCandidate>,
    pub arms: BTreeMap<Arm, ArmCoverage>,
    pub counts: LaneCounts,
    pub floor: Option<f32>,
    pub pooling: Option<String>,
    pub has_speakers: bool,
    pub speaker_in_query: Option<String>,
}

impl From<StoreAnswer> for RecallAnswer {
    fn from(answer: StoreAnswer) -> Self {
        let StoreAnswer { candidates, memory, arms, counts, floor, pooling, has_speakers, speaker_in_query } = answer;
        Self {
            candidates: candidates.into_iter().map(Into::into).collect(),
            memory: memory
                .into_iter()
                .map(|MemoryCandidate { paragraph, score, rank }| WireMemoryCandidate { paragraph, score, rank })
                .collect(),
            arms,
            counts,
            floor,
            pooling,
            has_speakers,
            speaker_in_query,
        }
    }
}

impl From<RecallAnswer> for StoreAnswer {
    fn from(answer: RecallAnswer) -> Self {
        let RecallAnswer { candidates, memory, arms, counts, floor, pooling, has_speakers, speaker_in_query } = answer;
        Self {
            candidates: candidates.into_iter().map(Into::into).collect(),
            memory: memory
                .into_iter()
                .map(|WireMemoryCandidate { paragraph, score, rank }| MemoryCandidate { paragraph, score, rank })
                .collect(),
            arms,
            counts,
            floor,
            pooling,
            has_speakers,
            speaker_in_query,
        }
    }
}

/// Answer of `GET /v1/store/status`; see [`LaneStatus`]. Holds no text of any memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of LaneStatus, described there")]
pub struct StatusAnswer {
    pub ready: bool,
    pub writable: bool,
    pub reasons: Vec<String>,
    pub head_seq: u64,
    pub counts: LaneCounts,
    pub purge_outbox: u64,
    pub verifying: Option<(u64, u64)>,
    pub rebuilding: bool,
}

impl From<LaneStatus> for StatusAnswer {
    fn from(status: LaneStatus) -> Self {
        let LaneStatus { ready, writable, reasons, head_seq, counts, purge_outbox, verifying, rebuilding } = status;
        Self { ready, writable, reasons, head_seq, counts, purge_outbox, verifying, rebuilding }
    }
}

impl From<StatusAnswer> for LaneStatus {
    fn from(status: StatusAnswer) -> Self {
        let StatusAnswer { ready, writable, reasons, head_seq, counts, purge_outbox, verifying, rebuilding } = status;
        Self { ready, writable, reasons, head_seq, counts, purge_outbox, verifying, rebuilding }
    }
}

/// A [`LaneError`] as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum WireError {
    Invalid { field: String, rule: String },
    NotFound { what: String },
    GateRequired { action: Action },
    HumanRequired { action: Action },
    SinglePrivateOwnerRequired,
    HeadMismatch { actual_seq: Seq, actual_hash: Hash32 },
    IdempotencyConflict,
    IdempotencyInFlight,
    PreconditionFailed { current: String },
    PreconditionRequired { current: String },
    Fence { reason: FenceReason, detail: String },
    BadRow { seq: Seq },
    Rollback,
    Fork,
    CommitUnknown,
    DiskFull,
    Overloaded { retry_after_s: u32 },
    TooLarge { what: String, limit: usize },
    Conflict { code: String, detail: String },
    Unavailable { what: String },
    Deadline,
    Internal,
}

/// What [`LaneError::NotFound`] names. The type holds a constant, so what comes from outside must be one of these.
pub const NOT_FOUND: [&str; 3] = ["lane", "event", "paragraph"];
/// The codes of [`LaneError::Conflict`]; as [`NOT_FOUND`].
pub const CONFLICTS: [&str; 5] =
    ["lane_suspended", "memory_not_a_file", "nothing_to_accept", "personal_into_corpus", "rebuild_running"];

fn known(words: &'static [&'static str], word: &str) -> Option<&'static str> {
    words.iter().find(|known| **known == word).copied()
}

impl From<&LaneError> for WireError {
    fn from(error: &LaneError) -> Self {
        match error.clone() {
            LaneError::Invalid { field, rule } => Self::Invalid { field, rule },
            LaneError::NotFound { what } => Self::NotFound { what: what.to_owned() },
            LaneError::GateRequired { action } => Self::GateRequired { action },
            LaneError::HumanRequired { action } => Self::HumanRequired { action },
            LaneError::SinglePrivateOwnerRequired => Self::SinglePrivateOwnerRequired,
            LaneError::HeadMismatch { actual_seq, actual_hash } => Self::HeadMismatch { actual_seq, actual_hash },
            LaneError::IdempotencyConflict => Self::IdempotencyConflict,
            LaneError::IdempotencyInFlight => Self::IdempotencyInFlight,
            LaneError::PreconditionFailed { current } => Self::PreconditionFailed { current },
            LaneError::PreconditionRequired { current } => Self::PreconditionRequired { current },
            LaneError::Fence { reason, detail } => Self::Fence { reason, detail },
            LaneError::ReadOnly(ReadOnlyReason::BadRow(seq)) => Self::BadRow { seq },
            LaneError::ReadOnly(ReadOnlyReason::Rollback) => Self::Rollback,
            LaneError::ReadOnly(ReadOnlyReason::Fork) => Self::Fork,
            LaneError::CommitUnknown => Self::CommitUnknown,
            LaneError::DiskFull => Self::DiskFull,
            LaneError::Overloaded { retry_after_s } => Self::Overloaded { retry_after_s },
            LaneError::TooLarge { what, limit } => Self::TooLarge { what, limit },
            LaneError::Conflict { code, detail } => Self::Conflict { code: code.to_owned(), detail },
            LaneError::Unavailable { what } => Self::Unavailable { what },
            LaneError::Deadline => Self::Deadline,
            // The cause is in the store's log and goes no further.
            LaneError::Internal { cause: _ } => Self::Internal,
        }
    }
}

impl From<WireError> for LaneError {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Invalid { field, rule } => Self::Invalid { field, rule },
            WireError::NotFound { what } => match known(&NOT_FOUND, &what) {
                Some(what) => Self::NotFound { what },
                None => Self::internal("the store did not find something that this version does not know"),
            },
            WireError::GateRequired { action } => Self::GateRequired { action },
            WireError::HumanRequired { action } => Self::HumanRequired { action },
            WireError::SinglePrivateOwnerRequired => Self::SinglePrivateOwnerRequired,
            WireError::HeadMismatch { actual_seq, actual_hash } => Self::HeadMismatch { actual_seq, actual_hash },
            WireError::IdempotencyConflict => Self::IdempotencyConflict,
            WireError::IdempotencyInFlight => Self::IdempotencyInFlight,
            WireError::PreconditionFailed { current } => Self::PreconditionFailed { current },
            WireError::PreconditionRequired { current } => Self::PreconditionRequired { current },
            WireError::Fence { reason, detail } => Self::Fence { reason, detail },
            WireError::BadRow { seq } => Self::ReadOnly(ReadOnlyReason::BadRow(seq)),
            WireError::Rollback => Self::ReadOnly(ReadOnlyReason::Rollback),
            WireError::Fork => Self::ReadOnly(ReadOnlyReason::Fork),
            WireError::CommitUnknown => Self::CommitUnknown,
            WireError::DiskFull => Self::DiskFull,
            WireError::Overloaded { retry_after_s } => Self::Overloaded { retry_after_s },
            WireError::TooLarge { what, limit } => Self::TooLarge { what, limit },
            WireError::Conflict { code, detail } => match known(&CONFLICTS, &code) {
                Some(code) => Self::Conflict { code, detail },
                None => Self::internal("the store's conflict has a code that this version does not know"),
            },
            WireError::Unavailable { what } => Self::Unavailable { what },
            WireError::Deadline => Self::Deadline,
            WireError::Internal => Self::internal("the lane's store failed; the cause is in its log"),
        }
    }
}

/// The HTTP status of a lane's error, on the store protocol and on the query API alike.
///
/// Temporary refusals of the fence are 503; those that only a person or the operator can end are 409, so that
/// clients do not retry them.
#[must_use]
pub const fn status(error: &LaneError) -> u16 {
    match error {
        LaneError::Invalid { .. } => 400,
        LaneError::NotFound { .. } => 404,
        LaneError::GateRequired { .. } | LaneError::HumanRequired { .. } | LaneError::SinglePrivateOwnerRequired => 403,
        LaneError::HeadMismatch { .. }
        | LaneError::IdempotencyConflict
        | LaneError::IdempotencyInFlight
        | LaneError::ReadOnly(_)
        | LaneError::Conflict { .. } => 409,
        LaneError::Fence { .. } => {
            if error.is_transient() {
                503
            } else {
                409
            }
        }
        LaneError::PreconditionFailed { .. } => 412,
        LaneError::PreconditionRequired { .. } => 428,
        LaneError::CommitUnknown | LaneError::Unavailable { .. } => 503,
        LaneError::DiskFull => 507,
        LaneError::Overloaded { .. } => 429,
        LaneError::TooLarge { .. } => 413,
        LaneError::Deadline => 504,
        LaneError::Internal { .. } => 500,
    }
}

/// The code of a refused attestation. The reason is in the store's log and metric only.
pub const ATTESTATION_REFUSED: &str = "attestation_refused";

/// The body of every error answer of a store (problem+json).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// `tag:lanekeeper.dev,2026:problem/CODE`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The HTTP status.
    pub status: u16,
    /// The error's code.
    pub code: String,
    /// For people.
    pub detail: String,
    /// The error, where it is one of a lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<WireError>,
}

impl Problem {
    /// A lane's error.
    #[must_use]
    pub fn of(error: &LaneError) -> Self {
        Self {
            kind: format!("tag:lanekeeper.dev,2026:problem/{}", error.code()),
            status: status(error),
            code: error.code().to_owned(),
            detail: error.to_string(),
            error: Some(error.into()),
        }
    }

    /// A refused attestation.
    #[must_use]
    pub fn attestation_refused() -> Self {
        Self {
            kind: format!("tag:lanekeeper.dev,2026:problem/{ATTESTATION_REFUSED}"),
            status: 401,
            code: ATTESTATION_REFUSED.to_owned(),
            detail: "the attestation is refused".to_owned(),
            error: None,
        }
    }

    /// The lane's error, if it is one.
    #[must_use]
    pub fn into_lane_error(self) -> Option<LaneError> {
        self.error.map(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_error() -> Vec<LaneError> {
        let fence = |reason| LaneError::Fence { reason, detail: "why".into() };
        let mut all = vec![
            LaneError::invalid("turns[3].at", "must be a time"),
            LaneError::GateRequired { action: Action::Forget },
            LaneError::HumanRequired { action: Action::Import },
            LaneError::SinglePrivateOwnerRequired,
            LaneError::HeadMismatch { actual_seq: Seq(4), actual_hash: Hash32::from_bytes([1; 32]) },
            LaneError::IdempotencyConflict,
            LaneError::IdempotencyInFlight,
            LaneError::PreconditionFailed { current: "v2".into() },
            LaneError::PreconditionRequired { current: "v2".into() },
            LaneError::ReadOnly(ReadOnlyReason::BadRow(Seq(u64::MAX))),
            LaneError::ReadOnly(ReadOnlyReason::Rollback),
            LaneError::ReadOnly(ReadOnlyReason::Fork),
            LaneError::CommitUnknown,
            LaneError::DiskFull,
            LaneError::Overloaded { retry_after_s: 7 },
            LaneError::TooLarge { what: "the body".into(), limit: 1_048_576 },
            LaneError::Unavailable { what: "the lane".into() },
            LaneError::Deadline,
        ];
        all.extend(NOT_FOUND.map(|what| LaneError::NotFound { what }));
        all.extend(CONFLICTS.map(|code| LaneError::Conflict { code, detail: "why".into() }));
        all.extend(
            [
                FenceReason::Unconfirmed,
                FenceReason::RecordMissing,
                FenceReason::RecordGarbled,
                FenceReason::RegistryUnreadable,
                FenceReason::OtherWriter,
                FenceReason::NotWritable,
                FenceReason::OtherLog,
                FenceReason::OtherFingerprint,
                FenceReason::OtherEpoch,
                FenceReason::OtherHolder,
            ]
            .map(fence),
        );
        all
    }

    fn over_the_wire(error: &LaneError) -> LaneError {
        let json = serde_json::to_string(&Problem::of(error)).unwrap();
        serde_json::from_str::<Problem>(&json).unwrap().into_lane_error().unwrap()
    }

    #[test]
    fn every_error_comes_back_the_same() {
        for error in every_error() {
            assert_eq!(over_the_wire(&error), error);
            let problem = Problem::of(&error);
            assert!(problem.kind.ends_with(error.code()) && (400..600).contains(&problem.status), "{problem:?}");
        }
    }

    #[test]
    fn an_internal_cause_stays_where_it_is() {
        let error = LaneError::internal("SECRET-CAUSE");
        assert!(!serde_json::to_string(&Problem::of(&error)).unwrap().contains("SECRET-CAUSE"));
        assert_eq!(over_the_wire(&error).code(), "internal");
    }

    #[test]
    fn what_this_version_does_not_know_is_an_internal_error() {
        for json in [r#"{"kind":"not_found","what":"moon"}"#, r#"{"kind":"conflict","code":"other","detail":""}"#] {
            let error: WireError = serde_json::from_str(json).unwrap();
            assert_eq!(LaneError::from(error).code(), "internal");
        }
        assert!(Problem::attestation_refused().into_lane_error().is_none());
    }

    #[test]
    fn a_key_and_its_hash_come_together() {
        let hash = Hash32::from_bytes([1; 32]);
        assert_eq!(idempotency(None, None), Ok(None));
        assert_eq!(idempotency(Some("k".into()), Some(hash)).unwrap().unwrap().body_sha256, [1; 32]);
        assert!(idempotency(Some("k".into()), None).is_err());
        assert!(idempotency(None, Some(hash)).is_err());
    }
}
