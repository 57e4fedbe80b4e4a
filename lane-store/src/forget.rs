//! Forget: one transaction takes text, salts and everything derived; a chained event and a receipt stay.
//!
//! # Flow
//! 1. The targets become a list of seqs that still have a body.
//! 2. A `forget` event names them.
//! 3. Body and salt go to NULL, their rows in text tables go, claims are released or handed to the next
//!    holder, the idempotency rows lose the hash of the body.
//! 4. The next two turns of the session get their windows made again without them, and their vectors are
//!    made again.
//! 5. The outbox holds the vectors until the engine has deleted them durably.
//! 6. After the commit the write-ahead log is emptied.
//!
//! # Guarantees
//! - All or nothing. A repeat forgets nothing twice. An apply by ids forgets exactly those.
//! - The outbox survives restarts.
//!
//! # Caveats
//! - What stays readable and what cannot be reached is said in the receipt, every time.

use std::collections::{BTreeMap, BTreeSet};

use lanekeeper_core::hooks::guard;
use lanekeeper_core::lane_client::{Caller, Idempotency};
use lanekeeper_core::time::format_rfc3339_ms;
use lanekeeper_core::wire::forget::{Erasure, ForgetRequest, ForgetResponse, Receipt};
use lanekeeper_core::{EventId, LaneError, Seq};
use sqlx::{Row, SqliteConnection};

use crate::claims;
use crate::error::statement;
use crate::idempotency::KeyUse;
use crate::index::Indexing;
use crate::log::row::{ForgetBody, Kind, TurnBody};
use crate::store::LaneStore;
use crate::writer::{NewEvent, WriteTx};

/// What is to be forgotten, resolved.
#[derive(Debug, Clone, Default)]
pub(crate) struct Targets {
    pub(crate) events: Vec<(Seq, EventId)>,
}

/// What a forget did.
#[derive(Debug, Clone, Default)]
struct Done {
    promoted: u64,
    claims: u64,
    neighbours: u64,
}

impl LaneStore {
    /// Forgets turns by ids or session. The caller is admitted already.
    pub(crate) async fn forget_turns(
        &self,
        caller: &Caller,
        request: ForgetRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<ForgetResponse, LaneError> {
        request.check()?;
        let ForgetRequest { events, session, memory, dry_run, reason } = request;
        if let Some(memory) = memory {
            return self.forget_paragraphs(caller, memory, dry_run, reason, idempotency).await;
        }
        if dry_run {
            let mut conn = self.reader().await?;
            let targets = resolve(&mut conn, events.as_deref(), session.as_deref()).await?;
            let neighbours = neighbours(&mut conn, &targets).await?.len() as u64;
            return Ok(answer(&targets, &Done { neighbours, ..Done::default() }, None));
        }
        let key = idempotency.map(|key| KeyUse::new(caller, "forget", &key, &self.keys));
        let indexing = self.indexing();
        let by = caller.principal.to_string();
        let reason = reason.unwrap_or_else(|| "unspecified".into());
        let mut response: ForgetResponse = self
            .writer()?
            .write(move |tx| {
                Box::pin(async move {
                    if let Some(key) = &key
                        && let Some(answer) = key.replay(tx).await?
                    {
                        return serde_json::from_str(&answer).map_err(LaneError::internal);
                    }
                    let targets = resolve(tx.conn(), events.as_deref(), session.as_deref()).await?;
                    let response = forget_in(tx, &indexing, &targets, &by, &reason).await?;
                    if let Some(key) = &key {
                        let json = serde_json::to_string(&response).map_err(LaneError::internal)?;
                        key.remember(tx, &json, &[]).await?;
                    }
                    Ok(response)
                })
            })
            .await?;
        self.touched();
        self.settle(&mut response);
        Ok(response)
    }

    /// Says of the surfaces what is true after the commit.
    pub(crate) fn settle(&self, response: &mut ForgetResponse) {
        if let Some(receipt) = &mut response.receipt
            && self.state.wal_holds_erased()
        {
            receipt.surfaces.insert("log_text".into(), Erasure::Pending);
            receipt.surfaces.insert("full_text".into(), Erasure::Pending);
        }
    }
}

/// Finds what still has a body. Unknown ids are not found, as a foreign one is; forgotten ones are passed over.
async fn resolve(
    conn: &mut SqliteConnection,
    events: Option<&[EventId]>,
    session: Option<&str>,
) -> Result<Targets, LaneError> {
    let mut found = BTreeMap::new();
    if let Some(ids) = events {
        for (index, id) in ids.iter().enumerate() {
            let row = sqlx::query("SELECT seq, body IS NOT NULL FROM events WHERE id = ? AND kind = 'turn'")
                .bind(id.as_uuid().as_bytes().as_slice())
                .fetch_optional(&mut *conn)
                .await
                .map_err(statement)?;
            let Some(row) = row else {
                let _ = index;
                return Err(LaneError::NotFound { what: "event" });
            };
            let seq: i64 = row.try_get(0).map_err(statement)?;
            if row.try_get::<bool, _>(1).map_err(statement)? {
                found.insert(Seq(seq.cast_unsigned()), *id);
            }
        }
    }
    if let Some(session) = session {
        let rows = sqlx::query("SELECT seq, id FROM events WHERE kind = 'turn' AND session = ? AND body IS NOT NULL")
            .bind(session)
            .fetch_all(&mut *conn)
            .await
            .map_err(statement)?;
        for row in rows {
            let seq: i64 = row.try_get(0).map_err(statement)?;
            let id: Vec<u8> = row.try_get(1).map_err(statement)?;
            let id = uuid::Uuid::from_slice(&id).map_err(LaneError::internal)?;
            found.insert(Seq(seq.cast_unsigned()), EventId::from_uuid(id));
        }
    }
    Ok(Targets { events: found.into_iter().collect() })
}

/// The whole forget inside one transaction.
async fn forget_in(
    tx: &mut WriteTx,
    indexing: &Indexing,
    targets: &Targets,
    by: &str,
    reason: &str,
) -> Result<ForgetResponse, LaneError> {
    let event = append_forget(tx, targets, by, reason).await?;
    let mut done = Done::default();
    for (seq, id) in &targets.events {
        erase_body(tx, *seq, event.seq).await?;
        let content: Option<Vec<u8>> = sqlx::query_scalar("DELETE FROM turns WHERE seq = ? RETURNING content")
            .bind(seq.0.cast_signed())
            .fetch_optional(tx.conn())
            .await
            .map_err(statement)?;
        for sql in ["DELETE FROM fts_turn WHERE rowid = ?", "DELETE FROM fts_window WHERE rowid = ?"] {
            sqlx::query(sql).bind(seq.0.cast_signed()).execute(tx.conn()).await.map_err(statement)?;
        }
        let content: Option<[u8; 32]> = content.and_then(|bytes| bytes.try_into().ok());
        if let Some(content) = content {
            done.claims += 1;
            done.promoted += u64::from(claims::release(tx, &content, *seq).await?);
        }
        outbox(tx, *id).await?;
    }
    if guard("neighbour_rewrite") {
        for (seq, session) in neighbours(tx.conn(), targets).await? {
            rewrite_neighbour(tx, indexing, seq, &session).await?;
            done.neighbours += 1;
        }
        if done.neighbours > 0 {
            crate::projection::mark::raise(tx).await?;
        }
    }
    tx.truncate_wal_after();
    let receipt = receipt(tx, &event, by, reason, targets.events.len() as u64, done.neighbours, Erasure::Pending);
    Ok(answer(targets, &done, Some(receipt)))
}

/// Appends the `forget` event of some targets.
pub(crate) async fn append_forget(
    tx: &mut WriteTx,
    targets: &Targets,
    by: &str,
    reason: &str,
) -> Result<crate::writer::Appended, LaneError> {
    let seqs: Vec<u64> = targets.events.iter().map(|(seq, _)| seq.0).collect();
    let body = ForgetBody { count: seqs.len() as u64, seqs, by: by.to_owned(), reason: reason.to_owned() };
    let body = serde_json::to_vec(&body).map_err(LaneError::internal)?;
    tx.append(NewEvent { kind: Kind::Forget, at_ms: None, principal: Some(by.to_owned()), session: None, body }).await
}

/// Takes body and salt of one row, and the hash by which an idempotency row knew the request.
pub(crate) async fn erase_body(tx: &mut WriteTx, seq: Seq, forget_seq: Seq) -> Result<(), LaneError> {
    sqlx::query("UPDATE events SET body = NULL, salt = NULL WHERE seq = ?")
        .bind(seq.0.cast_signed())
        .execute(tx.conn())
        .await
        .map_err(statement)?;
    sqlx::query("INSERT INTO purged (seq, forget_seq) VALUES (?, ?)")
        .bind(seq.0.cast_signed())
        .bind(forget_seq.0.cast_signed())
        .execute(tx.conn())
        .await
        .map_err(statement)?;
    sqlx::query("UPDATE idempotency SET body_mac = NULL WHERE id IN (SELECT id FROM idempotency_events WHERE seq = ?)")
        .bind(seq.0.cast_signed())
        .execute(tx.conn())
        .await
        .map(drop)
        .map_err(statement)
}

async fn outbox(tx: &mut WriteTx, id: EventId) -> Result<(), LaneError> {
    let now_ms = tx.now_ms();
    sqlx::query("INSERT OR IGNORE INTO purge_outbox (event_id, made_ms) VALUES (?, ?)")
        .bind(id.as_uuid().as_bytes().as_slice())
        .bind(now_ms)
        .execute(tx.conn())
        .await
        .map(drop)
        .map_err(statement)
}

/// Surviving turns whose window or context held a forgotten one: the next two of the session by seq,
/// forgotten ones counted, for they hold their places.
async fn neighbours(conn: &mut SqliteConnection, targets: &Targets) -> Result<BTreeMap<Seq, String>, LaneError> {
    let gone: BTreeSet<Seq> = targets.events.iter().map(|(seq, _)| *seq).collect();
    let mut found = BTreeMap::new();
    for (seq, _) in &targets.events {
        let rows = sqlx::query(
            "SELECT n.seq, n.session, n.body IS NOT NULL FROM events e JOIN events n
                 ON n.kind = 'turn' AND n.session = e.session AND n.seq > e.seq
             WHERE e.seq = ? ORDER BY n.seq LIMIT 2",
        )
        .bind(seq.0.cast_signed())
        .fetch_all(&mut *conn)
        .await
        .map_err(statement)?;
        for row in rows {
            let next: i64 = row.try_get(0).map_err(statement)?;
            let next = Seq(next.cast_unsigned());
            if row.try_get::<bool, _>(2).map_err(statement)? && !gone.contains(&next) {
                found.insert(next, row.try_get(1).map_err(statement)?);
            }
        }
    }
    Ok(found)
}

async fn rewrite_neighbour(tx: &mut WriteTx, indexing: &Indexing, seq: Seq, session: &str) -> Result<(), LaneError> {
    let body: Option<Vec<u8>> = sqlx::query_scalar("SELECT body FROM events WHERE seq = ?")
        .bind(seq.0.cast_signed())
        .fetch_one(tx.conn())
        .await
        .map_err(statement)?;
    let Some(body) = body.and_then(|bytes| serde_json::from_slice::<TurnBody>(&bytes).ok()) else { return Ok(()) };
    indexing.rewrite_window(tx.conn(), seq, session, &body).await?;
    // Its vectors were made with the forgotten text as context: made again, the old ones deleted first.
    claims::reopen_owned_by(tx, seq).await.map(drop)
}

pub(crate) fn receipt(
    tx: &WriteTx,
    event: &crate::writer::Appended,
    by: &str,
    reason: &str,
    count: u64,
    neighbours: u64,
    vectors: Erasure,
) -> Receipt {
    let surfaces = BTreeMap::from([
        ("log_text".to_owned(), Erasure::Erased),
        ("full_text".to_owned(), Erasure::Erased),
        ("vectors".to_owned(), vectors),
        ("vector_engine_deleted".to_owned(), Erasure::Pending),
        ("backups".to_owned(), Erasure::Unreachable),
        ("exports".to_owned(), Erasure::Unreachable),
    ]);
    Receipt {
        event_id: event.id,
        seq: event.seq,
        at: format_rfc3339_ms(tx.now_ms()),
        by: by.to_owned(),
        reason: reason.to_owned(),
        count,
        surfaces,
        stays_readable: ["seq", "id", "kind", "principal", "session", "times"].map(str::to_owned).into(),
        neighbours_rewritten: neighbours,
        cannot_reach: [
            "backups and exports made before this forget",
            "copies already recalled by a caller",
            "deleted vectors that the engine keeps on disk until it vacuums: rebuild with erase_vectors removes them",
        ]
        .map(str::to_owned)
        .into(),
    }
}

fn answer(targets: &Targets, done: &Done, receipt: Option<Receipt>) -> ForgetResponse {
    let Done { promoted, claims, neighbours } = done;
    ForgetResponse {
        events: targets.events.iter().map(|(_, id)| *id).collect(),
        counts: BTreeMap::from([
            ("turns".to_owned(), targets.events.len() as u64),
            ("claims".to_owned(), *claims),
            ("promoted".to_owned(), *promoted),
            ("neighbours".to_owned(), *neighbours),
        ]),
        receipt,
    }
}
