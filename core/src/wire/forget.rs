//! `POST …/forget`

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::LaneError;
use crate::ids::{EventId, Seq};

/// Paragraphs of one owner's curated memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetMemory {
    /// The owner's segment, or `_shared`.
    pub owner: String,
    /// Paragraph ids.
    pub paragraphs: Vec<String>,
}

/// `POST …/forget`: exactly one of `events`, `session`, `memory`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ForgetRequest {
    /// Event ids; exactly these are forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub events: Option<Vec<EventId>>,
    /// All turns of a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Curated paragraphs, with their history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ForgetMemory>,
    /// Say what would be forgotten and change nothing.
    pub dry_run: bool,
    /// A short code kept in the log, such as `user_request`. Default `unspecified`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl ForgetRequest {
    /// Exactly one target; the reason is a code, not a text (it stays readable in the log).
    pub fn check(&self) -> Result<(), LaneError> {
        let targets = usize::from(self.events.is_some())
            + usize::from(self.session.is_some())
            + usize::from(self.memory.is_some());
        if targets != 1 {
            return Err(LaneError::invalid("events", "exactly one of events, session and memory must be given"));
        }
        if self.events.as_ref().is_some_and(|events| events.is_empty() || events.len() > 10_000) {
            return Err(LaneError::invalid("events", "must hold 1 to 10000 ids"));
        }
        if let Some(session) = &self.session {
            super::events::check_session("session", session)?;
        }
        if self.memory.as_ref().is_some_and(|memory| memory.paragraphs.is_empty()) {
            return Err(LaneError::invalid("memory.paragraphs", "must hold at least one id"));
        }
        if let Some(reason) = &self.reason {
            let good = (1..=64).contains(&reason.len())
                && reason.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            if !good {
                return Err(LaneError::invalid("reason", "must be 1 to 64 characters of a-z, 0-9 and '_'"));
            }
        }
        Ok(())
    }
}

/// What became of one surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Erasure {
    /// Gone.
    Erased,
    /// Will go; kept in the outbox across restarts.
    Pending,
    /// Not in this store's reach.
    Unreachable,
}

/// The record of a forget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Receipt {
    /// The `forget` event.
    #[schema(value_type = String)]
    pub event_id: EventId,
    /// Its place in the log.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// When, RFC 3339.
    pub at: String,
    /// Who.
    pub by: String,
    /// The reason code.
    pub reason: String,
    /// How many events were forgotten.
    pub count: u64,
    /// Per surface: `log_text`, `full_text`, `vectors`, `vector_engine_deleted`, `curated`, `backups`, …
    pub surfaces: BTreeMap<String, Erasure>,
    /// What stays readable of a forgotten event.
    pub stays_readable: Vec<String>,
    /// Following turns whose windows and vectors are made again without the forgotten ones.
    pub neighbours_rewritten: u64,
    /// What a forget cannot reach, in words.
    pub cannot_reach: Vec<String>,
}

/// Answer of `POST …/forget`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForgetResponse {
    /// What is (or would be) forgotten.
    #[schema(value_type = Vec<String>)]
    pub events: Vec<EventId>,
    /// Per kind: `turns`, `paragraphs`, `claims`, `promoted`, `neighbours`.
    pub counts: BTreeMap<String, u64>,
    /// Absent for a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
}
