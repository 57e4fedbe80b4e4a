//! The store protocol: what query-service sends a lane's store, and gets back. JSON over HTTPS, one POST a method
//! of [`crate::lane_client::LaneClient`]; each request carries an attestation ([`crate::attest`]).
//!
//! Requests and answers of the query API travel as they are; what only parts know (candidates, encodings,
//! state) has its form here, apart from the types it is made of. Errors are in [`super::problem`].
//!
//! Not here: HTTP. Paths, bodies and status codes are named; who serves and asks is elsewhere.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::encoding::WireEncoding;
use super::events::{SaveRequest, TurnRole};
use super::forget::ForgetRequest;
use super::memory::{MemorySaveRequest, Paragraph};
use super::recall::{Arm, ArmCoverage, Filter, LaneCounts, Surface};
use crate::error::LaneError;
use crate::fingerprint::Fingerprint;
use crate::ids::{EventId, Hash32, Seq};
use crate::lane_client::{Candidate, Idempotency, LaneStatus, MemoryCandidate, StoreAnswer};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_and_its_hash_come_together() {
        let hash = Hash32::from_bytes([1; 32]);
        assert_eq!(idempotency(None, None), Ok(None));
        assert_eq!(idempotency(Some("k".into()), Some(hash)).unwrap().unwrap().body_sha256, [1; 32]);
        assert!(idempotency(Some("k".into()), None).is_err());
        assert!(idempotency(None, Some(hash)).is_err());
    }
}
