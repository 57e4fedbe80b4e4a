//! What stands on disk against what was last written, and how an edit by hand gets into the log.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lanekeeper_core::hooks::guard;
use lanekeeper_core::lane::Language;
use lanekeeper_core::{Hash32, LaneError};
use sqlx::SqliteConnection;

use super::file::{Disk, digest};
use super::rows::{self, FileRow, Origin};
use super::{Cause, paragraphs};
use crate::log::row::MemoryBody;
use crate::writer::{Appended, WriteTx};

/// What stands on disk, seen from the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing<'a> {
    /// What was last written, or nothing.
    AsWritten,
    /// Another text.
    Edited(&'a str),
    /// Bytes that are no text.
    NotText(&'a [u8]),
}

/// Compares the two. Without a row an empty file is nothing.
pub(super) fn standing<'a>(disk: &'a Disk, row: Option<&FileRow>) -> Standing<'a> {
    let written = row.map_or_else(|| digest(b""), |row| row.digest);
    match disk {
        Disk::Text { digest, .. } if *digest == written => Standing::AsWritten,
        Disk::Text { text, .. } => Standing::Edited(text),
        Disk::NotText { bytes, .. } => Standing::NotText(bytes),
        Disk::Missing | Disk::TooLarge | Disk::NotAFile => Standing::AsWritten,
    }
}

/// The version that If-Match is compared with: of what is on disk, else of what was last written.
pub(super) fn version(disk: &Disk, row: Option<&FileRow>) -> Hash32 {
    disk.digest().or_else(|| row.map(|row| row.digest)).unwrap_or_else(|| digest(b""))
}

/// The text that a change starts from: the last good one.
pub(super) async fn current_text(
    conn: &mut SqliteConnection,
    disk: &Disk,
    row: Option<&FileRow>,
) -> Result<String, LaneError> {
    if let Disk::Text { text, .. } = disk {
        return Ok(text.clone());
    }
    let Some(row) = row else { return Ok(String::new()) };
    let body = rows::body(conn, row.event_seq).await?;
    body.map(|body| body.text).ok_or_else(|| LaneError::internal("the last version of a curated file has no body"))
}

/// An edit that became an event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Absorbed {
    pub(super) event: Appended,
    /// Its bytes must be put beside the file.
    pub(super) conflict: bool,
}

/// Appends what was edited by hand, before anything else is.
pub(super) async fn absorb(
    tx: &mut WriteTx,
    owner: &str,
    disk: &Disk,
    row: Option<&FileRow>,
    language: Language,
) -> Result<Option<Absorbed>, LaneError> {
    if !guard("hand_edit") {
        return Ok(None);
    }
    match standing(disk, row) {
        Standing::AsWritten => Ok(None),
        Standing::Edited(text) => {
            // Nobody authenticated for it, so no principal is named.
            let event = rows::append_version(tx, None, &rows::version(owner, Cause::HandEdit, text.to_owned())).await?;
            let origin = Origin { seq: event.seq, id: event.id, at_ms: event.at_ms, principal: None };
            rows::apply(tx, owner, &paragraphs::texts(text), origin, language).await?;
            Ok(Some(Absorbed { event, conflict: false }))
        }
        Standing::NotText(bytes) => {
            let event = rows::append_version(tx, None, &conflict(owner, bytes)).await?;
            Ok(Some(Absorbed { event, conflict: true }))
        }
    }
}

/// The body of a conflict.
pub(super) fn conflict(owner: &str, bytes: &[u8]) -> MemoryBody {
    rows::version(owner, Cause::Conflict, STANDARD.encode(bytes))
}

/// The bytes that a version held: of a conflict those found, else the file.
pub(super) fn version_bytes(body: &MemoryBody) -> Vec<u8> {
    if body.cause == Cause::Conflict.as_str() {
        return STANDARD.decode(&body.text).unwrap_or_else(|_| body.text.clone().into_bytes());
    }
    body.text.clone().into_bytes()
}
