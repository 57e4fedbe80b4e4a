//! The tables of curated memory. All of them can be made again from the log: see [`super::reindex`].

use lanekeeper_core::lane::Language;
use lanekeeper_core::{EventId, Hash32, LaneError, Seq};
use sqlx::{Row, SqliteConnection};

use super::Cause;
use super::paragraphs::{continued, paragraph_id};
use crate::error::statement;
use crate::log::row::{Kind, MemoryBody};
use crate::text::analyze::document_tokens;
use crate::writer::{Appended, NewEvent, WriteTx};

/// The last written file of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileRow {
    pub(super) digest: Hash32,
    /// The event that holds it.
    pub(super) event_seq: Seq,
    pub(super) unwritten: bool,
    pub(super) replaces: Option<Hash32>,
    pub(super) conflict_seq: Option<Seq>,
}

/// A paragraph of the last written file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredRow {
    pub(super) id: String,
    pub(super) position: u32,
    pub(super) event_seq: Seq,
    pub(super) text: String,
}

/// Where a new paragraph comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) seq: Seq,
    pub(super) id: EventId,
    pub(super) at_ms: i64,
    pub(super) principal: Option<&'a str>,
}

/// What a version changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) added: u32,
    pub(super) removed: u32,
}

fn hash(bytes: Option<Vec<u8>>) -> Result<Option<Hash32>, LaneError> {
    bytes
        .map(|bytes| {
            Hash32::from_slice(&bytes).ok_or_else(|| LaneError::internal("a digest of a curated file is not 32 bytes"))
        })
        .transpose()
}

pub(super) fn seq(value: i64) -> Seq {
    Seq(value.cast_unsigned())
}

/// The id in a row's column.
pub(super) fn event_id(bytes: &[u8]) -> Result<EventId, LaneError> {
    uuid::Uuid::from_slice(bytes).map(EventId::from_uuid).map_err(LaneError::internal)
}

pub(super) async fn owners(conn: &mut SqliteConnection) -> Result<Vec<String>, LaneError> {
    sqlx::query_scalar("SELECT owner FROM memory_files ORDER BY owner").fetch_all(conn).await.map_err(statement)
}

pub(super) async fn file_row(conn: &mut SqliteConnection, owner: &str) -> Result<Option<FileRow>, LaneError> {
    let row =
        sqlx::query("SELECT sha256, event_seq, unwritten, replaces, conflict_seq FROM memory_files WHERE owner = ?")
            .bind(owner)
            .fetch_optional(conn)
            .await
            .map_err(statement)?;
    let Some(row) = row else { return Ok(None) };
    let digest = hash(row.try_get(0).map_err(statement)?)?;
    let event_seq: i64 = row.try_get(1).map_err(statement)?;
    let conflict_seq: Option<i64> = row.try_get(4).map_err(statement)?;
    Ok(Some(FileRow {
        digest: digest.ok_or_else(|| LaneError::internal("a curated file has no digest"))?,
        event_seq: seq(event_seq),
        unwritten: row.try_get(2).map_err(statement)?,
        replaces: hash(row.try_get(3).map_err(statement)?)?,
        conflict_seq: conflict_seq.map(seq),
    }))
}

pub(super) async fn set_file(tx: &mut WriteTx, owner: &str, row: &FileRow) -> Result<(), LaneError> {
    let FileRow { digest, event_seq, unwritten, replaces, conflict_seq } = row;
    sqlx::query(
        "INSERT OR REPLACE INTO memory_files (owner, sha256, event_seq, unwritten, replaces, conflict_seq)
         VALUES (?, ?, ?, ?, ?, ?)",
    )
    .bind(owner)
    .bind(digest.as_bytes().as_slice())
    .bind(event_seq.0.cast_signed())
    .bind(unwritten)
    .bind(replaces.as_ref().map(|digest| digest.as_bytes().as_slice()))
    .bind(conflict_seq.map(|seq| seq.0.cast_signed()))
    .execute(tx.conn())
    .await
    .map(drop)
    .map_err(statement)
}

/// The body of a version; `None` once forgotten.
pub(super) async fn body(conn: &mut SqliteConnection, seq: Seq) -> Result<Option<MemoryBody>, LaneError> {
    let body: Option<Option<Vec<u8>>> = sqlx::query_scalar("SELECT body FROM events WHERE seq = ? AND kind = 'memory'")
        .bind(seq.0.cast_signed())
        .fetch_optional(conn)
        .await
        .map_err(statement)?;
    body.flatten().map(|bytes| parse_body(&bytes)).transpose()
}

pub(super) fn parse_body(bytes: &[u8]) -> Result<MemoryBody, LaneError> {
    // The parser's own message could quote the text.
    serde_json::from_slice(bytes).map_err(|_| LaneError::internal("the body of a memory event cannot be read"))
}

/// Appends a version to the log and says whose it is.
pub(super) async fn append_version(
    tx: &mut WriteTx,
    principal: Option<&str>,
    body: &MemoryBody,
) -> Result<Appended, LaneError> {
    let json = serde_json::to_vec(body).map_err(LaneError::internal)?;
    let appended = tx
        .append(NewEvent {
            kind: Kind::Memory,
            at_ms: None,
            principal: principal.map(str::to_owned),
            session: None,
            body: json,
        })
        .await?;
    add_version(tx, appended.seq, &body.owner, &body.cause).await?;
    Ok(appended)
}

pub(super) async fn add_version(tx: &mut WriteTx, seq: Seq, owner: &str, cause: &str) -> Result<(), LaneError> {
    sqlx::query("INSERT OR REPLACE INTO memory_versions (seq, owner, cause) VALUES (?, ?, ?)")
        .bind(seq.0.cast_signed())
        .bind(owner)
        .bind(cause)
        .execute(tx.conn())
        .await
        .map(drop)
        .map_err(statement)
}

/// A body of this cause.
pub(super) fn version(owner: &str, cause: Cause, text: String) -> MemoryBody {
    MemoryBody { owner: owner.to_owned(), cause: cause.as_str().to_owned(), text, trail: None }
}

pub(super) async fn stored(conn: &mut SqliteConnection, owner: &str) -> Result<Vec<StoredRow>, LaneError> {
    let rows = sqlx::query(
        "SELECT para_id, position, event_seq, text FROM memory_paragraphs WHERE owner = ? ORDER BY position",
    )
    .bind(owner)
    .fetch_all(conn)
    .await
    .map_err(statement)?;
    rows.iter()
        .map(|row| {
            let event_seq: i64 = row.try_get(2).map_err(statement)?;
            Ok(StoredRow {
                id: row.try_get(0).map_err(statement)?,
                position: row.try_get(1).map_err(statement)?,
                event_seq: seq(event_seq),
                text: row.try_get(3).map_err(statement)?,
            })
        })
        .collect()
}

/// Makes the rows those of a new version: what stays keeps its id and origin.
pub(super) async fn apply(
    tx: &mut WriteTx,
    owner: &str,
    texts: &[&str],
    origin: Origin<'_>,
    language: Language,
) -> Result<Changes, LaneError> {
    let old = stored(tx.conn(), owner).await?;
    let old_texts: Vec<&str> = old.iter().map(|row| row.text.as_str()).collect();
    let continued = continued(&old_texts, texts);
    let mut left: Vec<bool> = vec![true; old.len()];
    for index in continued.iter().flatten() {
        left[*index] = false;
    }
    let mut changes = Changes::default();
    // What goes, goes first: an id that is made again must be free.
    for (row, _) in old.iter().zip(&left).filter(|(_, left)| **left) {
        sqlx::query("DELETE FROM memory_paragraphs WHERE para_id = ?")
            .bind(&row.id)
            .execute(tx.conn())
            .await
            .map_err(statement)?;
        changes.removed += 1;
    }
    for (position, (text, index)) in texts.iter().zip(&continued).enumerate() {
        let place = u32::try_from(position).unwrap_or(u32::MAX);
        match index.map(|index| &old[index]) {
            Some(row) if row.position == place => {}
            Some(row) => {
                sqlx::query("UPDATE memory_paragraphs SET position = ? WHERE para_id = ?")
                    .bind(place)
                    .bind(&row.id)
                    .execute(tx.conn())
                    .await
                    .map_err(statement)?;
            }
            None => {
                insert(tx, owner, place, text, &paragraph_id(origin.id, position), origin, language).await?;
                changes.added += 1;
            }
        }
    }
    Ok(changes)
}

pub(super) async fn insert(
    tx: &mut WriteTx,
    owner: &str,
    position: u32,
    text: &str,
    id: &str,
    origin: Origin<'_>,
    language: Language,
) -> Result<(), LaneError> {
    let Origin { seq, id: event, at_ms, principal } = origin;
    sqlx::query(
        "INSERT INTO memory_paragraphs (para_id, owner, position, event_seq, event_id, at_ms, principal, tokens, text)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(id)
    .bind(owner)
    .bind(position)
    .bind(seq.0.cast_signed())
    .bind(event.as_uuid().as_bytes().as_slice())
    .bind(at_ms)
    .bind(principal)
    .bind(document_tokens(text, language).join(" "))
    .bind(text)
    .execute(tx.conn())
    .await
    .map(drop)
    .map_err(statement)
}
