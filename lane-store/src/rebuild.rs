//! Rebuild: every projection made again from the log.
//!
//! # Flow
//! 1. In one transaction: text rows, claims and ledger are emptied and made again from the log, in order,
//!    by the very code that an append uses.
//! 2. The vector engine begins a shadow; the projector fills it from the reopened claims while the old
//!    vectors are searched.
//! 3. With no claim open the shadow is swapped in and the old collection is removed from disk.
//!
//! A kill in step 1 leaves everything as it was; in step 2 the shadow is gone on with.

use lanekeeper_core::wire::upkeep::{RebuildReport, RebuildRequest};
use lanekeeper_core::{EventId, LaneError, Seq};
use sqlx::Row;

use crate::error::statement;
use crate::index::{IndexedTurn, Indexing};
use crate::log::row::TurnBody;
use crate::store::LaneStore;
use crate::transfer::origins;
use crate::writer::WriteTx;

impl LaneStore {
    pub(crate) async fn rebuild_all(&self, request: RebuildRequest) -> Result<RebuildReport, LaneError> {
        // Both ways the collection is made anew on disk; the flag is the caller's word for why.
        let RebuildRequest { erase_vectors: _ } = request;
        let _one_at_a_time = self.upkeep_lock.lock().await;
        if self.vectors.has_shadow() {
            return Err(LaneError::Conflict { code: "rebuild_running", detail: "a rebuild is under way".into() });
        }
        let generation = self
            .vectors
            .begin_shadow()
            .await
            .map_err(|error| LaneError::Unavailable { what: format!("the vector engine ({error})") })?;
        let indexing = self.indexing();
        let (turns, claims) = self.writer()?.write(move |tx| Box::pin(reindex(tx, indexing))).await?;
        self.touched();
        self.heal_memory().await?;
        Ok(RebuildReport { turns, text_rows: turns * 2, claims, generation: generation.0, projecting: claims > 0 })
    }
}

/// Everything derived, made again in one transaction.
pub(crate) async fn reindex(tx: &mut WriteTx, indexing: Indexing) -> Result<(u64, u64), LaneError> {
    for sql in [
        "DELETE FROM claim_events",
        "DELETE FROM claims",
        "DELETE FROM fts_turn",
        "DELETE FROM fts_window",
        "DELETE FROM turns",
    ] {
        sqlx::query(sql).execute(tx.conn()).await.map_err(statement)?;
    }
    let mut after = Seq(0);
    let mut turns = 0;
    loop {
        let rows = sqlx::query(
            "SELECT seq, id, at_ms, principal, session, body FROM events
             WHERE seq > ? AND kind = 'turn' AND body IS NOT NULL ORDER BY seq LIMIT 500",
        )
        .bind(after.0.cast_signed())
        .fetch_all(tx.conn())
        .await
        .map_err(statement)?;
        if rows.is_empty() {
            break;
        }
        for row in &rows {
            let seq: i64 = row.try_get(0).map_err(statement)?;
            after = Seq(seq.cast_unsigned());
            let id: Vec<u8> = row.try_get(1).map_err(statement)?;
            let principal: Option<String> = row.try_get(3).map_err(statement)?;
            let session: String = row.try_get(4).map_err(statement)?;
            let body: Vec<u8> = row.try_get(5).map_err(statement)?;
            // A damaged row is passed over: the rest of the lane is still worth finding.
            let Ok(body) = serde_json::from_slice::<TurnBody>(&body) else { continue };
            let turn = IndexedTurn {
                seq: after,
                id: EventId::from_uuid(uuid::Uuid::from_slice(&id).map_err(LaneError::internal)?),
                at_ms: row.try_get(2).map_err(statement)?,
                principal: principal.as_deref(),
                session: &session,
                body: &body,
            };
            indexing.add(tx, &turn).await?;
            turns += 1;
        }
    }
    origins::rebuild(tx).await?;
    let claims: i64 =
        sqlx::query_scalar("SELECT count(*) FROM claims").fetch_one(tx.conn()).await.map_err(statement)?;
    crate::memory::reindex_memory(tx, indexing.language).await?;
    tx.truncate_wal_after();
    Ok((turns, claims.cast_unsigned()))
}
