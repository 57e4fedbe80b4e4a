//! Idempotency-Keys: one request, one outcome, for 7 days and across restarts.
//!
//! What must always hold: the row commits with the event it stands for; it keeps a keyed hash of the body
//! and ids, never text; a key belongs to one principal and one route.

use lanekeeper_core::hooks::guard;
use lanekeeper_core::lane_client::{Caller, Idempotency};
use lanekeeper_core::{LaneError, Seq, limits};
use sqlx::Row;

use crate::error::statement;
use crate::keys::Keys;
use crate::writer::WriteTx;

/// A key as one principal uses it on one route.
#[derive(Debug, Clone)]
pub(crate) struct KeyUse {
    principal: String,
    route: &'static str,
    key: String,
    body_mac: [u8; 32],
}

impl KeyUse {
    pub(crate) fn new(caller: &Caller, route: &'static str, idempotency: &Idempotency, keys: &Keys) -> Self {
        let Idempotency { key, body_sha256 } = idempotency;
        let principal = if guard("idempotency_principal") { caller.principal.to_string() } else { String::new() };
        Self { principal, route, key: key.clone(), body_mac: keys.body(body_sha256) }
    }

    /// The remembered answer, if this key was used before; a conflict if with another body. Once an event
    /// of the answer is forgotten, any body gets that answer: the hash that told bodies apart is gone too.
    pub(crate) async fn replay(&self, tx: &mut WriteTx) -> Result<Option<String>, LaneError> {
        let Self { principal, route, key, body_mac } = self;
        let oldest = tx.now_ms() - limits::IDEMPOTENCY_MS;
        let row = sqlx::query(
            "SELECT body_mac, answer, created_ms, id FROM idempotency WHERE principal = ? AND route = ? AND key = ?",
        )
        .bind(principal)
        .bind(route)
        .bind(key)
        .fetch_optional(tx.conn())
        .await
        .map_err(statement)?;
        let Some(row) = row else { return Ok(None) };
        let created_ms: i64 = row.try_get(2).map_err(statement)?;
        if created_ms < oldest {
            let id: i64 = row.try_get(3).map_err(statement)?;
            sqlx::query("DELETE FROM idempotency WHERE id = ?").bind(id).execute(tx.conn()).await.map_err(statement)?;
            return Ok(None);
        }
        let stored: Option<Vec<u8>> = row.try_get(0).map_err(statement)?;
        match stored {
            Some(mac) if mac != body_mac => Err(LaneError::IdempotencyConflict),
            Some(_) | None => row.try_get(1).map(Some).map_err(statement),
        }
    }

    /// Remembers an answer and the events it names.
    pub(crate) async fn remember(&self, tx: &mut WriteTx, answer: &str, seqs: &[Seq]) -> Result<(), LaneError> {
        let Self { principal, route, key, body_mac } = self;
        let now_ms = tx.now_ms();
        let id = sqlx::query(
            "INSERT INTO idempotency (principal, route, key, body_mac, answer, created_ms) VALUES (?, ?, ?, ?, ?, ?)",
        )
        .bind(principal)
        .bind(route)
        .bind(key)
        .bind(body_mac.as_slice())
        .bind(answer)
        .bind(now_ms)
        .execute(tx.conn())
        .await
        .map_err(statement)?
        .last_insert_rowid();
        for seq in seqs {
            sqlx::query("INSERT INTO idempotency_events (seq, id) VALUES (?, ?)")
                .bind(seq.0.cast_signed())
                .bind(id)
                .execute(tx.conn())
                .await
                .map_err(statement)?;
        }
        Ok(())
    }
}

/// Drops rows older than 7 days.
pub(crate) async fn expire(tx: &mut WriteTx) -> Result<u64, LaneError> {
    let oldest = tx.now_ms() - limits::IDEMPOTENCY_MS;
    sqlx::query("DELETE FROM idempotency WHERE created_ms < ?")
        .bind(oldest)
        .execute(tx.conn())
        .await
        .map(|done| done.rows_affected())
        .map_err(statement)
}
