//! The claim ledger: equal content gets vectors once, under its lowest surviving event.
//!
//! What must always hold: a claim row commits with the event; every holder stands in `claim_events`; a
//! claim is COMPLETE only after the engine made its points durable; a new token ends every attempt that
//! was under way, so a projector that finishes late changes nothing.

use lanekeeper_core::fingerprint::Fingerprint;
use lanekeeper_core::hooks::guard;
use lanekeeper_core::{EventId, LaneError, Seq};
use sqlx::{Row, SqliteConnection};

use crate::error::statement;
use crate::writer::WriteTx;

/// The projection task.
pub(crate) const TASK: &str = "t0";
/// Its version: raised when the same text would give other points.
pub(crate) const TASK_VERSION: i64 = 1;
/// The version of header and context, carried in payloads.
pub(crate) const PROMPT_VERSION: i64 = 1;

/// How often an input that the embedder refuses is tried before it waits for upkeep.
const MOST_ATTEMPTS: i64 = 3;

/// A fresh claim token.
pub(crate) fn token() -> Result<[u8; 16], LaneError> {
    let mut token = [0_u8; 16];
    getrandom::fill(&mut token).map_err(LaneError::internal)?;
    Ok(token)
}

/// The UUIDv5 namespace of point ids.
const POINTS: uuid::Uuid = uuid::Uuid::from_u128(0x6c61_6e65_6b65_6570_6572_2f70_6f69_6e74);

/// The id of the `n`th point of an event: the same after every crash and rebuild.
pub(crate) fn point_id(event: EventId, n: u32) -> uuid::Uuid {
    uuid::Uuid::new_v5(&POINTS, format!("{TASK}:{event}:{n}").as_bytes())
}

/// Claims content for an event. Gives the owner's seq where another event owns it already.
pub(crate) async fn claim(
    tx: &mut WriteTx,
    content: &[u8; 32],
    fingerprint: Fingerprint,
    seq: Seq,
) -> Result<Option<Seq>, LaneError> {
    let fresh = sqlx::query(
        "INSERT INTO claims (content, task, task_version, fingerprint, state, token, owner_seq)
         VALUES (?, ?, ?, ?, 'RUNNING', ?, ?) ON CONFLICT DO NOTHING",
    )
    .bind(content.as_slice())
    .bind(TASK)
    .bind(TASK_VERSION)
    .bind(fingerprint.to_string())
    .bind(token()?.as_slice())
    .bind(seq.0.cast_signed())
    .execute(tx.conn())
    .await
    .map_err(statement)?
    .rows_affected()
        == 1;
    sqlx::query("INSERT INTO claim_events (content, seq) VALUES (?, ?)")
        .bind(content.as_slice())
        .bind(seq.0.cast_signed())
        .execute(tx.conn())
        .await
        .map_err(statement)?;
    if fresh {
        return Ok(None);
    }
    // The owner's points list sessions, roles and speakers of every holder, for filters: now out of date.
    let owner: i64 = sqlx::query_scalar(
        "UPDATE claims SET payload_stale = 1 WHERE content = ? AND task = ? AND task_version = ? AND fingerprint = ?
         RETURNING owner_seq",
    )
    .bind(content.as_slice())
    .bind(TASK)
    .bind(TASK_VERSION)
    .bind(fingerprint.to_string())
    .fetch_one(tx.conn())
    .await
    .map_err(statement)?;
    Ok(Some(Seq(owner.cast_unsigned())))
}

/// A claim whose points or payloads have to be made.
#[derive(Debug, Clone)]
pub(crate) struct OpenClaim {
    pub(crate) content: [u8; 32],
    pub(crate) owner: Seq,
    pub(crate) token: [u8; 16],
    pub(crate) points: u32,
    /// False: only the payload of existing points is out of date.
    pub(crate) running: bool,
}

/// Open claims by seq, those tried least first.
pub(crate) async fn open(
    conn: &mut SqliteConnection,
    fingerprint: Fingerprint,
    limit: u32,
) -> Result<Vec<OpenClaim>, LaneError> {
    let rows = sqlx::query(
        "SELECT content, owner_seq, token, points, state = 'RUNNING' FROM claims
         WHERE (state = 'RUNNING' OR payload_stale = 1) AND fingerprint = ? AND attempts < ?
         ORDER BY attempts, owner_seq LIMIT ?",
    )
    .bind(fingerprint.to_string())
    .bind(MOST_ATTEMPTS)
    .bind(limit)
    .fetch_all(conn)
    .await
    .map_err(statement)?;
    rows.iter()
        .map(|row| {
            let content: Vec<u8> = row.try_get(0).map_err(statement)?;
            let owner: i64 = row.try_get(1).map_err(statement)?;
            let token: Vec<u8> = row.try_get(2).map_err(statement)?;
            Ok(OpenClaim {
                content: content.try_into().map_err(|_| LaneError::internal("a claim's content is not 32 bytes"))?,
                owner: Seq(owner.cast_unsigned()),
                token: token.try_into().map_err(|_| LaneError::internal("a claim's token is not 16 bytes"))?,
                points: row.try_get(3).map_err(statement)?,
                running: row.try_get(4).map_err(statement)?,
            })
        })
        .collect()
}

/// Marks a claim COMPLETE if nothing changed under it: the same token, the same owner, not forgotten.
/// `false`: the points just made are not wanted any more.
pub(crate) async fn complete(tx: &mut WriteTx, claim: &OpenClaim, points: u32) -> Result<bool, LaneError> {
    if !guard("tombstone_recheck") {
        sqlx::query("UPDATE claims SET state = 'COMPLETE', points = ?, payload_stale = 0 WHERE content = ?")
            .bind(points)
            .bind(claim.content.as_slice())
            .execute(tx.conn())
            .await
            .map_err(statement)?;
        return Ok(true);
    }
    let changed = sqlx::query(
        "UPDATE claims SET state = 'COMPLETE', points = ?, attempts = 0,
             payload_stale = CASE WHEN (SELECT count(*) FROM claim_events e WHERE e.content = claims.content) > 1 THEN 1 ELSE 0 END
         WHERE content = ? AND token = ? AND owner_seq = ? AND state = 'RUNNING'
           AND NOT EXISTS (SELECT 1 FROM purged WHERE seq = ?)",
    )
    .bind(points)
    .bind(claim.content.as_slice())
    .bind(claim.token.as_slice())
    .bind(claim.owner.0.cast_signed())
    .bind(claim.owner.0.cast_signed())
    .execute(tx.conn())
    .await
    .map_err(statement)?
    .rows_affected();
    Ok(changed == 1)
}

/// Takes an event out of its claim. The next holder becomes owner and is projected anew; without one the
/// claim goes. Gives whether a next holder was promoted.
pub(crate) async fn release(tx: &mut WriteTx, content: &[u8; 32], seq: Seq) -> Result<bool, LaneError> {
    sqlx::query("DELETE FROM claim_events WHERE content = ? AND seq = ?")
        .bind(content.as_slice())
        .bind(seq.0.cast_signed())
        .execute(tx.conn())
        .await
        .map_err(statement)?;
    let next: Option<i64> = sqlx::query_scalar("SELECT min(seq) FROM claim_events WHERE content = ?")
        .bind(content.as_slice())
        .fetch_one(tx.conn())
        .await
        .map_err(statement)?;
    let Some(next) = next else {
        sqlx::query("DELETE FROM claims WHERE content = ?")
            .bind(content.as_slice())
            .execute(tx.conn())
            .await
            .map_err(statement)?;
        return Ok(false);
    };
    let promoted = sqlx::query(
        "UPDATE claims SET owner_seq = ?, state = 'RUNNING', token = ?, attempts = 0 WHERE content = ? AND owner_seq = ?",
    )
    .bind(next)
    .bind(token()?.as_slice())
    .bind(content.as_slice())
    .bind(seq.0.cast_signed())
    .execute(tx.conn())
    .await
    .map_err(statement)?
    .rows_affected();
    if promoted == 0 {
        sqlx::query("UPDATE claims SET payload_stale = 1 WHERE content = ?")
            .bind(content.as_slice())
            .execute(tx.conn())
            .await
            .map_err(statement)?;
    }
    Ok(promoted > 0)
}

/// Has the claim owned by an event projected again (its context changed). Gives whether it owns one.
pub(crate) async fn reopen_owned_by(tx: &mut WriteTx, seq: Seq) -> Result<bool, LaneError> {
    sqlx::query("UPDATE claims SET state = 'RUNNING', token = ?, attempts = 0 WHERE owner_seq = ?")
        .bind(token()?.as_slice())
        .bind(seq.0.cast_signed())
        .execute(tx.conn())
        .await
        .map(|done| done.rows_affected() > 0)
        .map_err(statement)
}

/// Counts a refusal of the embedder.
pub(crate) async fn refused(tx: &mut WriteTx, content: [u8; 32]) -> Result<(), LaneError> {
    sqlx::query("UPDATE claims SET attempts = attempts + 1 WHERE content = ?")
        .bind(content.as_slice())
        .execute(tx.conn())
        .await
        .map(drop)
        .map_err(statement)
}

/// Lets refused inputs be tried again.
pub(crate) async fn retry_refused(tx: &mut WriteTx) -> Result<(), LaneError> {
    sqlx::query("UPDATE claims SET attempts = 0 WHERE attempts > 0")
        .execute(tx.conn())
        .await
        .map(drop)
        .map_err(statement)
}
