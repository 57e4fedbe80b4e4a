//! Heals the vectors: what COMPLETE claims say must be there is compared with what is.
//!
//! At open and hourly. A folder that was deleted, or an older copy that was put back, is made whole again
//! from the log: missing points send their claim back to RUNNING, strays are deleted.

use std::collections::{HashMap, HashSet};

use lanekeeper_core::{EventId, LaneError};
use sqlx::Row;

use crate::claims::{point_id, token};
use crate::error::statement;
use crate::store::LaneStore;

impl LaneStore {
    /// Compares the collection with the ledger. Gives how many claims were reopened and strays deleted.
    pub(crate) async fn heal_vectors(&self) -> Result<(u64, u64), LaneError> {
        let engine = |error: crate::vectors::VectorError| LaneError::Unavailable {
            what: format!("the vector engine ({error})"),
        };
        if self.has_older_vectors().await? {
            return self.remake_vectors().await;
        }
        let mut conn = self.reader().await?;
        let rows = sqlx::query(
            "SELECT c.content, e.id, c.points FROM claims c JOIN events e ON e.seq = c.owner_seq
             WHERE c.state = 'COMPLETE' AND c.fingerprint = ?",
        )
        .bind(self.encoder.fingerprint().to_string())
        .fetch_all(&mut *conn)
        .await
        .map_err(statement)?;
        let running: Vec<Vec<u8>> = sqlx::query_scalar(
            "SELECT e.id FROM claims c JOIN events e ON e.seq = c.owner_seq WHERE c.state = 'RUNNING'",
        )
        .fetch_all(&mut *conn)
        .await
        .map_err(statement)?;
        drop(conn);
        let mut expected: HashMap<uuid::Uuid, Vec<u8>> = HashMap::new();
        for row in &rows {
            let content: Vec<u8> = row.try_get(0).map_err(statement)?;
            let id: Vec<u8> = row.try_get(1).map_err(statement)?;
            let points: u32 = row.try_get(2).map_err(statement)?;
            let id = EventId::from_uuid(uuid::Uuid::from_slice(&id).map_err(LaneError::internal)?);
            for n in 0..points {
                expected.insert(point_id(id, n), content.clone());
            }
        }
        let present: HashSet<uuid::Uuid> = self.vectors.all_ids().await.map_err(engine)?.into_iter().collect();
        let missing: HashSet<Vec<u8>> =
            expected.iter().filter(|(id, _)| !present.contains(id)).map(|(_, content)| content.clone()).collect();
        // Points of a claim under way are not strays: a generous number of its possible ids is spared.
        let mut strays: HashSet<uuid::Uuid> = present.into_iter().filter(|id| !expected.contains_key(id)).collect();
        if !strays.is_empty() {
            for id in running {
                let id = EventId::from_uuid(uuid::Uuid::from_slice(&id).map_err(LaneError::internal)?);
                for n in 0..4096 {
                    if !strays.remove(&point_id(id, n)) {
                        break;
                    }
                }
            }
        }
        let reopened = missing.len() as u64;
        let deleted = strays.len() as u64;
        if !strays.is_empty() {
            self.vectors.delete(strays.into_iter().collect()).await.map_err(engine)?;
            self.vectors.flush().await.map_err(engine)?;
        }
        if !missing.is_empty() {
            tracing::warn!(claims = reopened, "vectors are missing and will be made again");
            self.writer()?
                .write(move |tx| {
                    Box::pin(async move {
                        for content in missing {
                            sqlx::query("UPDATE claims SET state = 'RUNNING', token = ? WHERE content = ?")
                                .bind(token()?.as_slice())
                                .bind(content)
                                .execute(tx.conn())
                                .await
                                .map_err(statement)?;
                        }
                        Ok(())
                    })
                })
                .await?;
            self.touched();
        }
        Ok((reopened, deleted))
    }

    /// Every vector made again into a shadow: the folder is an older copy, and ids alone do not show which of
    /// its vectors were made with text that has been forgotten since.
    async fn remake_vectors(&self) -> Result<(u64, u64), LaneError> {
        tracing::warn!("the vector folder is an older copy; every vector is made again");
        self.vectors
            .begin_shadow()
            .await
            .map_err(|error| LaneError::Unavailable { what: format!("the vector engine ({error})") })?;
        let reopened = self
            .writer()?
            .write(|tx| {
                Box::pin(async move {
                    sqlx::query("UPDATE claims SET state = 'RUNNING', token = randomblob(16), attempts = 0")
                        .execute(tx.conn())
                        .await
                        .map(|done| done.rows_affected())
                        .map_err(statement)
                })
            })
            .await?;
        self.touched();
        Ok((reopened, 0))
    }
}
