//! `…/verify`, `…/rebuild`, `…/import`

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::events::Head;

/// Answer of `POST …/verify`, and of `lanekeeper verify FILE`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerifyReport {
    /// Whether every row holds.
    pub ok: bool,
    /// Rows walked.
    pub events: u64,
    /// Of those, forgotten with a forget event that names them.
    pub purged: u64,
    /// The first bad row.
    pub first_bad_seq: Option<u64>,
    /// What is wrong with it.
    pub reason: Option<String>,
    /// Signed up to this seq by the lane's key; 0: nothing signed.
    pub signed_up_to: u64,
    /// Whether the signature was checked with the lane's public key (offline it may not be there).
    pub signature_checked: bool,
    /// The head.
    pub head: Option<Head>,
    /// 64 hex digits.
    pub log_id: String,
    /// One line for people.
    pub statement: String,
}

/// `POST …/rebuild`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RebuildRequest {
    /// Also make the vector collection anew on disk, so that deleted vectors are physically gone.
    pub erase_vectors: bool,
}

/// Answer of `POST …/rebuild`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RebuildReport {
    /// Turns read from the log.
    pub turns: u64,
    /// Full-text rows written.
    pub text_rows: u64,
    /// Vector claims set to be projected again into the new generation.
    pub claims: u64,
    /// The generation now being filled.
    pub generation: u64,
    /// Whether vectors are still being made (watch `pending_projection`).
    pub projecting: bool,
}

/// One refused row of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportError {
    /// 1-based line.
    pub line: u64,
    /// JSON path within the line.
    pub field: String,
    /// The rule.
    pub rule: String,
}

/// Answer of `POST …/import`; `lines = imported + already_present + refused`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportReport {
    /// Lines read that hold a turn.
    pub lines: u64,
    /// Written now.
    pub imported: u64,
    /// Known by (origin log_id, origin id).
    pub already_present: u64,
    /// Refused.
    pub refused: u64,
    /// The first 100 refusals.
    pub errors: Vec<ImportError>,
}
