//! `…/memory`: curated paragraphs, one `MEMORY.md` an owner.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{EventId, Seq};

/// One paragraph of a `MEMORY.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Paragraph {
    /// Stable while the paragraph's text stays in the file. One written by hand since the last save has an
    /// id that is good for this version of the file only, a nil `event_id` and seq 0.
    pub id: String,
    /// Whose file.
    pub owner: String,
    /// 0-based place in the file.
    pub position: u32,
    /// The text, without the blank lines around it.
    pub text: String,
    /// The event that first wrote it.
    #[schema(value_type = String)]
    pub event_id: EventId,
    /// Its place in the log.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// When it was written, RFC 3339.
    pub at: String,
}

/// One owner's file as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryDocument {
    /// Whose.
    pub owner: String,
    /// Version for If-Match (without quotes).
    pub etag: String,
    /// The whole file.
    pub text: String,
}

/// Answer of `GET …/memory`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryPage {
    /// `listing` for an empty query, else `search` (literal, without regard to case).
    pub mode: String,
    /// The files this caller may read; of a search those with a paragraph that matches.
    pub documents: Vec<MemoryDocument>,
    /// Paragraphs that match, or all.
    pub paragraphs: Vec<Paragraph>,
}

/// `PUT …/memory`: replaces the caller's file (or the shared one) as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemorySaveRequest {
    /// The whole file; paragraphs are parted by blank lines.
    pub text: String,
    /// True: the shared file. Else the one private owner path that the scope allows.
    #[serde(default)]
    pub shared: bool,
}

/// Answer of `PUT …/memory`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemorySaveResponse {
    /// The file now.
    pub document: MemoryDocument,
    /// The event of this save.
    #[schema(value_type = String)]
    pub event_id: EventId,
    /// Its place in the log.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// Paragraphs new in this version.
    pub added: u32,
    /// Paragraphs no longer in it.
    pub removed: u32,
    /// Set if the file had been changed by hand: that version is kept as this event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub kept_hand_edit: Option<EventId>,
    /// True where a replay meets a save that was forgotten since: `text` is empty, `etag` is of the file now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forgotten: bool,
}

/// One version in a file's history. Text is null where it was forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryVersion {
    /// The event.
    #[schema(value_type = String)]
    pub event_id: EventId,
    /// Its place in the log.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// Whose file.
    pub owner: String,
    /// `save`, `hand_edit`, `conflict` or `forget`.
    pub cause: String,
    /// Who.
    pub principal: Option<String>,
    /// RFC 3339.
    pub at: String,
    /// The whole file then; of a `conflict` the base64 of its bytes.
    pub text: Option<String>,
}

/// Answer of `GET …/memory/history`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryHistory {
    /// Newest first.
    pub versions: Vec<MemoryVersion>,
    /// True where older versions were left out, since the texts of those listed are many megabytes already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub older_left_out: bool,
}
