//! The tables of curated memory, made again from the log alone.

use std::collections::BTreeMap;

use lanekeeper_core::lane::Language;
use lanekeeper_core::{EventId, LaneError, Seq};
use sqlx::Row;

use super::Cause;
use super::file::digest;
use super::paragraphs::{continued, paragraph_id, texts};
use super::rows::{self, FileRow, Origin, event_id, parse_body, seq};
use crate::error::statement;
use crate::log::row::MemoryTrail;
use crate::writer::WriteTx;

/// Where an event stands in the log.
#[derive(Debug, Clone)]
struct Place {
    seq: Seq,
    id: EventId,
    at_ms: i64,
    principal: Option<String>,
}

/// A paragraph with where it was first written.
#[derive(Debug, Clone)]
struct Held {
    id: String,
    origin: Seq,
    text: String,
}

/// One owner's file while the log is read.
#[derive(Debug, Default)]
struct Replay {
    text: String,
    last: Seq,
    held: Vec<Held>,
}

impl Replay {
    fn next(&mut self, place: &Place, text: String, trail: Option<&MemoryTrail>) {
        let new = texts(&text);
        let old: Vec<&str> = self.held.iter().map(|held| held.text.as_str()).collect();
        let continued = continued(&old, &new);
        let told = trail.filter(|trail| trail.paragraphs.len() == new.len());
        let held = new
            .iter()
            .enumerate()
            .map(|(position, text)| {
                let (id, origin) = match (told.map(|trail| &trail.paragraphs[position]), continued[position]) {
                    (Some((id, origin)), _) => (id.clone(), Seq(*origin)),
                    (None, Some(index)) => (self.held[index].id.clone(), self.held[index].origin),
                    (None, None) => (paragraph_id(place.id, position), place.seq),
                };
                Held { id, origin, text: (*text).to_owned() }
            })
            .collect();
        *self = Self { last: place.seq, held, text };
    }
}

/// Makes files, paragraphs and versions again; gives the number of paragraphs. A file that is on its way to
/// the disk stays so; one whose row was lost is compared with the disk by the next heal.
pub(crate) async fn reindex_memory(tx: &mut WriteTx, language: Language) -> Result<u64, LaneError> {
    let mut before: BTreeMap<String, FileRow> = BTreeMap::new();
    for owner in rows::owners(tx.conn()).await? {
        if let Some(row) = rows::file_row(tx.conn(), &owner).await? {
            before.insert(owner, row);
        }
    }
    for sql in ["DELETE FROM memory_paragraphs", "DELETE FROM memory_files", "DELETE FROM memory_versions"] {
        sqlx::query(sql).execute(tx.conn()).await.map_err(statement)?;
    }
    let files = replay(tx).await?;
    let mut paragraphs = 0;
    for (owner, Replay { text, last, held }) in files {
        for (position, held) in (0_u32..).zip(&held) {
            let place = place(tx, held.origin).await?;
            let Place { seq, id, at_ms, principal } = place;
            let origin = Origin { seq, id, at_ms, principal: principal.as_deref() };
            rows::insert(tx, &owner, position, &held.text, &held.id, origin, language).await?;
            paragraphs += 1;
        }
        let found = FileRow {
            digest: digest(text.as_bytes()),
            event_seq: last,
            unwritten: true,
            replaces: None,
            conflict_seq: None,
        };
        let row = before
            .get(&owner)
            .filter(|row| (row.digest, row.event_seq) == (found.digest, found.event_seq))
            .copied()
            .unwrap_or(found);
        rows::set_file(tx, &owner, &row).await?;
    }
    Ok(paragraphs)
}

/// Reads every version in order. A damaged one is passed over.
async fn replay(tx: &mut WriteTx) -> Result<BTreeMap<String, Replay>, LaneError> {
    let mut files: BTreeMap<String, Replay> = BTreeMap::new();
    let mut after = Seq(0);
    loop {
        let row = sqlx::query(
            "SELECT seq, id, at_ms, principal, body FROM events
             WHERE kind = 'memory' AND kind <> 'turn' AND body IS NOT NULL AND seq > ? ORDER BY seq LIMIT 1",
        )
        .bind(after.0.cast_signed())
        .fetch_optional(tx.conn())
        .await
        .map_err(statement)?;
        let Some(row) = row else { return Ok(files) };
        let place = read_place(&row)?;
        after = place.seq;
        let body: Vec<u8> = row.try_get(4).map_err(statement)?;
        let Ok(body) = parse_body(&body) else { continue };
        rows::add_version(tx, place.seq, &body.owner, &body.cause).await?;
        for (erased, cause) in body.trail.iter().flat_map(|trail| &trail.erased) {
            rows::add_version(tx, Seq(*erased), &body.owner, cause).await?;
        }
        match Cause::parse(&body.cause) {
            Some(Cause::Save | Cause::HandEdit | Cause::Forget) => {
                files.entry(body.owner).or_default().next(&place, body.text, body.trail.as_ref());
            }
            // A conflict never was the file; of an unknown cause nothing is known.
            Some(Cause::Conflict) | None => {}
        }
    }
}

async fn place(tx: &mut WriteTx, seq: Seq) -> Result<Place, LaneError> {
    let row = sqlx::query("SELECT seq, id, at_ms, principal FROM events WHERE seq = ?")
        .bind(seq.0.cast_signed())
        .fetch_one(tx.conn())
        .await
        .map_err(statement)?;
    read_place(&row)
}

fn read_place(row: &sqlx::sqlite::SqliteRow) -> Result<Place, LaneError> {
    let place: i64 = row.try_get(0).map_err(statement)?;
    let id: Vec<u8> = row.try_get(1).map_err(statement)?;
    Ok(Place {
        seq: seq(place),
        id: event_id(&id)?,
        at_ms: row.try_get(2).map_err(statement)?,
        principal: row.try_get(3).map_err(statement)?,
    })
}
