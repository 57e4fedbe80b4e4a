//! Forgetting paragraphs: from the file, from every version that holds their text, from the conflict files.
//!
//! # Flow
//! 1. As in a save: what is unwritten is written, an edit by hand becomes an event.
//! 2. Ids become texts: of the file as it is, else of a version in the history.
//! 3. A `forget` event names every version of this owner that holds one of the texts anywhere, and their
//!    bodies go.
//! 4. A version of cause `forget` holds what is left, and the trail of what the erased versions can no
//!    longer tell.
//! 5. After the commit the file is replaced, conflict files that hold the text go, the write-ahead log is
//!    emptied.
//!
//! # Caveats
//! - A text is forgotten, so paragraphs of the very same text go along (docs/decisions/0053). A paragraph
//!   that holds it among other words stays until it is forgotten itself; the receipt says so.

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt;
use lanekeeper_core::hooks::guard;
use lanekeeper_core::lane::Language;
use lanekeeper_core::lane_client::{Caller, Idempotency};
use lanekeeper_core::wire::forget::{Erasure, ForgetMemory, ForgetResponse, Receipt};
use lanekeeper_core::{EventId, LaneError, Seq};
use sqlx::{Row, SqliteConnection};

use super::absorb::{absorb, current_text, version, version_bytes};
use super::file::{Disk, digest};
use super::paragraphs::{continued, hand_id, parse_paragraph_id, texts, without};
use super::rows::{self, FileRow, Origin, event_id, parse_body, seq};
use super::{Cause, blocking};
use crate::error::statement;
use crate::forget::{Targets, append_forget, erase_body, receipt};
use crate::idempotency::KeyUse;
use crate::log::row::{MemoryBody, MemoryTrail};
use crate::store::LaneStore;
use crate::writer::WriteTx;

/// A forget on its way into the writer.
struct Forget {
    owner: String,
    ids: Vec<String>,
    disk: Disk,
    by: String,
    reason: String,
    language: Language,
}

/// A version that holds a forgotten text.
#[derive(Debug)]
struct Affected {
    seq: Seq,
    id: EventId,
    cause: String,
    trail: Option<MemoryTrail>,
}

/// The texts that go.
#[derive(Debug, Clone, Default)]
struct Gone(BTreeSet<String>);

impl Gone {
    fn is(&self, paragraph: &str) -> bool {
        self.0.contains(paragraph)
    }

    /// Anywhere in some bytes, also where line ends were written the other way.
    fn stands_in(&self, bytes: &[u8]) -> bool {
        let text = String::from_utf8_lossy(bytes);
        let plain = text.replace("\r\n", "\n");
        self.0.iter().any(|gone| text.contains(gone.as_str()) || plain.contains(&gone.replace("\r\n", "\n")))
    }
}

impl LaneStore {
    /// The caller is admitted to forget on this owner's path already.
    pub(crate) async fn forget_paragraphs(
        &self,
        caller: &Caller,
        request: ForgetMemory,
        dry_run: bool,
        reason: Option<String>,
        idempotency: Option<Idempotency>,
    ) -> Result<ForgetResponse, LaneError> {
        let ForgetMemory { owner, paragraphs } = request;
        let folder = self.owner_folder(&owner)?;
        let _one_at_a_time = self.memory_lock.lock().await;
        if dry_run {
            let mut conn = self.reader().await?;
            let here = folder.clone();
            let disk = blocking(move || here.read()).await?.keepable()?;
            return would(&mut conn, &owner, &paragraphs, &disk).await;
        }
        self.settle_file(&owner).await?;
        let here = folder.clone();
        let disk = blocking(move || here.read()).await?.keepable()?;
        let key = idempotency.map(|key| KeyUse::new(caller, "forget", &key, &self.keys));
        let forget = Forget {
            owner: owner.clone(),
            ids: paragraphs,
            disk,
            by: caller.principal.to_string(),
            reason: reason.unwrap_or_else(|| "unspecified".into()),
            language: self.settings().language,
        };
        self.state.set_memory_unwritten(true);
        let done =
            self.writer()?.write(move |tx| Box::pin(async move { forget_in(tx, forget, key.as_ref()).await })).await;
        let mut settled = self.settle_file(&owner).await.is_ok();
        let (mut response, gone) = done?;
        let mut others = 0;
        if let Some(gone) = gone {
            let swept = blocking(move || {
                let (conflicts, others) = folder.holding(|bytes| gone.stands_in(bytes))?;
                for event in conflicts {
                    folder.drop_conflict(event)?;
                }
                folder.drop_leftovers()?;
                Ok(others)
            });
            match swept.await {
                Ok(found) => others = found,
                Err(_) => settled = false,
            }
        }
        self.settle(&mut response);
        if let Some(receipt) = &mut response.receipt {
            let erased = settled && !self.state.wal_holds_erased();
            receipt.surfaces.insert("curated".into(), if erased { Erasure::Erased } else { Erasure::Pending });
            if others > 0 {
                receipt.surfaces.insert("curated_copies".into(), Erasure::Unreachable);
                receipt.cannot_reach.push(format!("{others} files that an editor left beside MEMORY.md"));
            }
        }
        Ok(response)
    }
}

/// What a forget would do.
async fn would(
    conn: &mut SqliteConnection,
    owner: &str,
    ids: &[String],
    disk: &Disk,
) -> Result<ForgetResponse, LaneError> {
    let row = rows::file_row(conn, owner).await?;
    // A file behind the log says nothing: the log does.
    let disk = if row.is_some_and(|row| row.unwritten) { &Disk::Missing } else { disk };
    let current = current_text(conn, disk, row.as_ref()).await?;
    let gone = resolve(conn, owner, ids, disk, row.as_ref(), &current).await?;
    let affected = affected(conn, owner, &gone).await?;
    Ok(answer(&affected, &current, &gone, None))
}

async fn forget_in(
    tx: &mut WriteTx,
    forget: Forget,
    key: Option<&KeyUse>,
) -> Result<(ForgetResponse, Option<Gone>), LaneError> {
    let Forget { owner, ids, disk, by, reason, language } = forget;
    if let Some(key) = key
        && let Some(answer) = key.replay(tx).await?
    {
        return Ok((serde_json::from_str(&answer).map_err(LaneError::internal)?, None));
    }
    let row = rows::file_row(tx.conn(), &owner).await?;
    let current = current_text(tx.conn(), &disk, row.as_ref()).await?;
    let gone = resolve(tx.conn(), &owner, &ids, &disk, row.as_ref(), &current).await?;
    let kept = absorb(tx, &owner, &disk, row.as_ref(), language).await?;
    let affected = affected(tx.conn(), &owner, &gone).await?;
    let targets = Targets { events: affected.iter().map(|version| (version.seq, version.id)).collect() };
    let event = append_forget(tx, &targets, &by, &reason).await?;
    for version in &affected {
        erase_body(tx, version.seq, event.seq).await?;
    }
    let rest = without(&current, |paragraph| gone.is(paragraph));
    let origin = Origin { seq: event.seq, id: event.id, at_ms: event.at_ms, principal: Some(&by) };
    // Nothing is new in what is left, so no paragraph gets this origin.
    rows::apply(tx, &owner, &texts(&rest), origin, language).await?;
    let trail = trail(tx, &owner, &affected).await?;
    let body = MemoryBody { trail: Some(trail), ..rows::version(&owner, Cause::Forget, rest) };
    let left = rows::append_version(tx, Some(&by), &body).await?;
    let written = FileRow {
        digest: digest(body.text.as_bytes()),
        event_seq: left.seq,
        unwritten: true,
        replaces: disk.digest(),
        // Bytes that held a forgotten text are not put beside the file.
        conflict_seq: kept
            .filter(|kept| kept.conflict && affected.iter().all(|version| version.seq != kept.event.seq))
            .map(|kept| kept.event.seq),
    };
    rows::set_file(tx, &owner, &written).await?;
    tx.truncate_wal_after();
    let receipt = told(receipt(tx, &event, &by, &reason, affected.len() as u64, 0, Erasure::Erased), &body.text, &gone);
    let response = answer(&affected, &current, &gone, Some(receipt));
    if let Some(key) = key {
        let json = serde_json::to_string(&response).map_err(LaneError::internal)?;
        key.remember(tx, &json, &[]).await?;
    }
    Ok((response, Some(gone)))
}

/// What the ids mean. One that means nothing refuses the whole request.
async fn resolve(
    conn: &mut SqliteConnection,
    owner: &str,
    ids: &[String],
    disk: &Disk,
    row: Option<&FileRow>,
    current: &str,
) -> Result<Gone, LaneError> {
    let stored = rows::stored(conn, owner).await?;
    let old: Vec<&str> = stored.iter().map(|row| row.text.as_str()).collect();
    let new = texts(current);
    let file = version(disk, row);
    let here: BTreeMap<String, &str> = new
        .iter()
        .zip(continued(&old, &new))
        .enumerate()
        .map(|(position, (text, place))| {
            (place.map_or_else(|| hand_id(owner, file, position), |place| stored[place].id.clone()), *text)
        })
        .collect();
    let mut gone = Gone::default();
    for id in ids {
        let text = match here.get(id) {
            Some(text) => Some((*text).to_owned()),
            None => in_history(conn, owner, id).await?,
        };
        gone.0.insert(text.ok_or(LaneError::NotFound { what: "paragraph" })?);
    }
    Ok(gone)
}

/// The text of a paragraph that is no longer in the file: in the version that first wrote it, or in the trail
/// of a later forget.
async fn in_history(conn: &mut SqliteConnection, owner: &str, id: &str) -> Result<Option<String>, LaneError> {
    let Some((event, position)) = parse_paragraph_id(id) else { return Ok(None) };
    let bodies: Vec<Vec<u8>> = sqlx::query_scalar(
        "SELECT e.body FROM memory_versions v JOIN events e ON e.seq = v.seq
         WHERE v.owner = ? AND v.cause <> 'conflict' AND e.body IS NOT NULL
             AND (v.cause = 'forget' OR lower(hex(substr(e.id, 9, 8))) = ?)
         ORDER BY v.seq",
    )
    .bind(owner)
    .bind(event)
    .fetch_all(conn)
    .await
    .map_err(statement)?;
    for body in bodies {
        let body = parse_body(&body)?;
        let place = match &body.trail {
            Some(trail) => trail.paragraphs.iter().position(|(held, _)| held == id),
            None => Some(position),
        };
        if let Some(text) = place.and_then(|place| texts(&body.text).get(place).map(|text| (*text).to_owned())) {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

/// Every version of this owner that still has a body and holds one of the texts anywhere.
async fn affected(conn: &mut SqliteConnection, owner: &str, gone: &Gone) -> Result<Vec<Affected>, LaneError> {
    let mut versions = sqlx::query(
        "SELECT v.seq, e.id, v.cause, e.body FROM memory_versions v JOIN events e ON e.seq = v.seq
         WHERE v.owner = ? AND e.body IS NOT NULL ORDER BY v.seq",
    )
    .bind(owner)
    .fetch(conn);
    let mut affected = Vec::new();
    if !guard("memory_history") {
        return Ok(affected);
    }
    while let Some(row) = versions.try_next().await.map_err(statement)? {
        let bytes: Vec<u8> = row.try_get(3).map_err(statement)?;
        let body = parse_body(&bytes)?;
        if gone.stands_in(&version_bytes(&body)) {
            let place: i64 = row.try_get(0).map_err(statement)?;
            let id: Vec<u8> = row.try_get(1).map_err(statement)?;
            affected.push(Affected {
                seq: seq(place),
                id: event_id(&id)?,
                cause: row.try_get(2).map_err(statement)?,
                trail: body.trail,
            });
        }
    }
    Ok(affected)
}

/// What the log must still say once the bodies are gone.
async fn trail(tx: &mut WriteTx, owner: &str, affected: &[Affected]) -> Result<MemoryTrail, LaneError> {
    let paragraphs = rows::stored(tx.conn(), owner).await?.into_iter().map(|row| (row.id, row.event_seq.0)).collect();
    let mut erased: BTreeMap<u64, String> = BTreeMap::new();
    for Affected { seq, id: _, cause, trail } in affected {
        erased.extend(trail.iter().flat_map(|trail| trail.erased.clone()));
        erased.insert(seq.0, cause.clone());
    }
    Ok(MemoryTrail { paragraphs, erased: erased.into_iter().collect() })
}

/// Curated memory has no vectors; what is left may hold the same words.
fn told(mut receipt: Receipt, rest: &str, gone: &Gone) -> Receipt {
    for surface in ["vectors", "vector_engine_deleted"] {
        receipt.surfaces.remove(surface);
    }
    receipt.surfaces.insert("curated".into(), Erasure::Pending);
    receipt.cannot_reach.retain(|line| !line.contains("vector"));
    let holding = texts(rest).into_iter().filter(|paragraph| gone.stands_in(paragraph.as_bytes())).count();
    if holding > 0 {
        receipt.cannot_reach.push(format!("{holding} paragraphs of the file that hold the same words among others"));
    }
    receipt
}

fn answer(affected: &[Affected], current: &str, gone: &Gone, receipt: Option<Receipt>) -> ForgetResponse {
    let paragraphs = texts(current).into_iter().filter(|paragraph| gone.is(paragraph)).count();
    ForgetResponse {
        events: affected.iter().map(|version| version.id).collect(),
        counts: BTreeMap::from([
            ("paragraphs".to_owned(), paragraphs as u64),
            ("versions".to_owned(), affected.len() as u64),
        ]),
        receipt,
    }
}
