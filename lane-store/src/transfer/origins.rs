//! Where imported turns come from: the table that makes an import idempotent, and the `imported` event
//! that keeps the same in the log.
//!
//! What must always hold: a row outlives a forget of its event, so that importing the same file again does
//! not bring back what was forgotten; the table can be made again from the log.

use lanekeeper_core::{EventId, LaneError, LogId, Seq};
use sqlx::{Row as _, SqliteConnection};

use super::lines::Row;
use crate::error::statement;
use crate::log::row::ImportedBody;
use crate::writer::WriteTx;

/// Whether a turn is here already: imported before (and perhaps forgotten since), or written here first.
pub(super) async fn is_known(conn: &mut SqliteConnection, own: LogId, row: &Row) -> Result<bool, LaneError> {
    let Row { origin_log, origin_id, principal: _, session: _, turn: _, at_ms: _ } = row;
    let imported: bool =
        sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM origins WHERE origin_log = ? AND origin_id = ?)")
            .bind(origin_log.to_string())
            .bind(origin_id)
            .fetch_one(&mut *conn)
            .await
            .map_err(statement)?;
    if imported || *origin_log != own {
        return Ok(imported);
    }
    let Ok(id) = origin_id.parse::<EventId>() else { return Ok(false) };
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM events WHERE id = ?)")
        .bind(id.as_uuid().as_bytes().as_slice())
        .fetch_one(conn)
        .await
        .map_err(statement)
}

/// Remembers where an event comes from.
pub(super) async fn remember(tx: &mut WriteTx, log_id: LogId, id: &str, seq: Seq) -> Result<(), LaneError> {
    sqlx::query("INSERT INTO origins (origin_log, origin_id, seq) VALUES (?, ?, ?)")
        .bind(log_id.to_string())
        .bind(id)
        .bind(seq.0.cast_signed())
        .execute(tx.conn())
        .await
        .map(drop)
        .map_err(statement)
}

/// Makes the table again from the `imported` events.
pub(crate) async fn rebuild(tx: &mut WriteTx) -> Result<(), LaneError> {
    sqlx::query("DELETE FROM origins").execute(tx.conn()).await.map_err(statement)?;
    let mut after = 0_i64;
    loop {
        let row = sqlx::query(
            "SELECT seq, body FROM events WHERE seq > ? AND kind <> 'turn' AND kind = 'imported' ORDER BY seq LIMIT 1",
        )
        .bind(after)
        .fetch_optional(tx.conn())
        .await
        .map_err(statement)?;
        let Some(row) = row else { return Ok(()) };
        after = row.try_get(0).map_err(statement)?;
        let body: Option<Vec<u8>> = row.try_get(1).map_err(statement)?;
        // A damaged row is passed over, as everywhere in a rebuild.
        let Some(body) = body.and_then(|bytes| serde_json::from_slice::<ImportedBody>(&bytes).ok()) else { continue };
        for imported in body.rows {
            remember(tx, imported.log_id.unwrap_or(body.log_id), &imported.id, Seq(imported.seq)).await?;
        }
    }
}
