//! `…/events`: append and list.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::error::LaneError;
use crate::ids::{EventId, Hash32, Seq};
use crate::limits;
use crate::time::parse_rfc3339_ms;

/// Who said a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TurnRole {
    /// The person.
    User,
    /// The agent.
    Assistant,
    /// A tool's output.
    Tool,
    /// Instructions.
    System,
}

impl TurnRole {
    /// The name on the wire and in the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::System => "system",
        }
    }
}

impl std::str::FromStr for TurnRole {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::User, Self::Assistant, Self::Tool, Self::System].into_iter().find(|role| role.as_str() == text).ok_or(())
    }
}

/// One turn as sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// Who said it.
    pub role: TurnRole,
    /// Stored byte for byte.
    pub text: String,
    /// The speaker's name, where several people share a role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
    /// RFC 3339 with an offset, at most 24 h ahead; kept as sent. Default: the time of the append.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The caller's own; at most 16 KiB as JSON. Never read as scope or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
}

/// A place in the log that must be its head for the append to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Seq of the last event; 0 in an empty log.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// Its hash, 64 hex digits.
    #[schema(value_type = String)]
    pub hash: Hash32,
}

/// `POST …/events`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SaveRequest {
    /// Groups turns; context never crosses sessions. 1 to 256 characters.
    pub session: String,
    /// 1 to 256 turns, stored all or none.
    #[schema(min_items = 1, max_items = 256)]
    pub turns: Vec<Turn>,
    /// Refuse unless the log's head is this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_head: Option<Head>,
}

impl SaveRequest {
    /// Checks what the types do not. `now_ms` bounds `at`.
    pub fn check(&self, now_ms: i64) -> Result<(), LaneError> {
        check_session("session", &self.session)?;
        if self.turns.is_empty() || self.turns.len() > limits::TURNS_PER_SAVE {
            return Err(LaneError::invalid("turns", format!("must hold 1 to {} turns", limits::TURNS_PER_SAVE)));
        }
        for (index, turn) in self.turns.iter().enumerate() {
            turn.check(&format!("turns[{index}]"), now_ms)?;
        }
        Ok(())
    }
}

/// A session name is 1 to 256 characters, not all blank.
pub fn check_session(field: &str, session: &str) -> Result<(), LaneError> {
    let chars = session.chars().count();
    if chars == 0 || chars > limits::SESSION_CHARS || session.trim().is_empty() {
        return Err(LaneError::invalid(
            field,
            format!("must be 1 to {} characters, not all blank", limits::SESSION_CHARS),
        ));
    }
    Ok(())
}

impl Turn {
    /// Checks one turn; `path` is its JSON path.
    pub fn check(&self, path: &str, now_ms: i64) -> Result<(), LaneError> {
        if self.text.trim().is_empty() {
            return Err(LaneError::invalid(format!("{path}.text"), "must not be empty or blank"));
        }
        if let Some(speaker) = &self.speaker {
            let chars = speaker.chars().count();
            if speaker.trim().is_empty() || chars > limits::SPEAKER_CHARS || speaker.contains(['\n', '\r', ':']) {
                return Err(LaneError::invalid(
                    format!("{path}.speaker"),
                    format!(
                        "must be 1 to {} characters, not blank, without ':' or a line break",
                        limits::SPEAKER_CHARS
                    ),
                ));
            }
        }
        if let Some(at) = &self.at {
            let field = || format!("{path}.at");
            let at_ms = parse_rfc3339_ms(at).map_err(|error| LaneError::invalid(field(), error.rule))?;
            if at_ms > now_ms.saturating_add(limits::AT_AHEAD_MS) {
                return Err(LaneError::invalid(field(), "must not lie more than 24 h ahead"));
            }
        }
        if let Some(metadata) = &self.metadata {
            let bytes = serde_json::to_vec(metadata).map_or(usize::MAX, |json| json.len());
            if bytes > limits::METADATA_BYTES {
                return Err(LaneError::TooLarge { what: format!("{path}.metadata"), limit: limits::METADATA_BYTES });
            }
        }
        Ok(())
    }
}

/// Where a turn's vectors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Projection {
    /// In the vector engine, durably.
    Complete,
    /// Not yet; text finds the turn at once.
    Pending,
    /// The same text has vectors under an earlier event.
    Duplicate,
    /// Its role gets no vectors in this lane.
    Skipped,
}

/// One stored event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SavedEvent {
    /// UUIDv7.
    #[schema(value_type = String)]
    pub id: EventId,
    /// Place in the log.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// Its hash; empty string where the event was forgotten since is never used: forgotten events keep their hash.
    #[schema(value_type = String)]
    pub hash: Hash32,
    /// When, as sent; else the append's time in UTC.
    pub at: String,
    /// Where its vectors are.
    pub projection: Projection,
    /// Windows the text is cut into.
    pub chunks: u32,
    /// The earlier event with the same text, where `projection` is `duplicate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub duplicate_of: Option<EventId>,
    /// True where a replay meets an event that was forgotten since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forgotten: bool,
}

/// Answer of `POST …/events`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SaveResponse {
    /// In the order sent.
    pub events: Vec<SavedEvent>,
    /// The log's head after this save.
    pub head: Head,
}

/// One event of a listing. Text and the rest are null where it was forgotten.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListedEvent {
    /// UUIDv7.
    #[schema(value_type = String)]
    pub id: EventId,
    /// Place in the log.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// Its hash.
    #[schema(value_type = String)]
    pub hash: Hash32,
    /// `turn`, `memory`, `forget`, `opened`, …
    pub kind: String,
    /// Who wrote it; null only for an import that says so.
    pub principal: Option<String>,
    /// The session of a turn.
    pub session: Option<String>,
    /// When, as sent; else the append's time.
    pub at: String,
    /// Of a turn.
    pub role: Option<TurnRole>,
    /// Of a turn.
    pub speaker: Option<String>,
    /// Of a turn, as sent.
    pub text: Option<String>,
    /// Of a turn.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
    /// Of a turn.
    pub projection: Option<Projection>,
    /// The earlier event with the same text.
    #[schema(value_type = Option<String>)]
    pub duplicate_of: Option<EventId>,
    /// Whether it was forgotten.
    pub forgotten: bool,
}

/// Answer of `GET …/events`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    /// By seq, ascending.
    pub events: Vec<ListedEvent>,
    /// Pass as `after` for the next page; null at the end.
    pub next_after: Option<u64>,
    /// The log's head.
    pub head: Head,
}
