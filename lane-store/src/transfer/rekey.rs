//! New keys on the volume: what was derived under the old ones is made again.
//!
//! Keys never leave a lane's folder, so a restored lane has new ones. The file keeps a keyed check value; if
//! it is not this dedupe key's, content hashes in the ledger and hashes of bodies in the idempotency table
//! mean nothing any more.

use lanekeeper_core::LaneError;

use crate::error::statement;
use crate::rebuild::reindex;
use crate::store::LaneStore;

impl LaneStore {
    /// Once after opening: brings derived tables under the keys that are there, and has an acceptance of a
    /// head told in the log. Writes nothing where neither is due.
    pub(crate) async fn settle_keys(&self) -> Result<(), LaneError> {
        let (stored, accepted) = {
            let mut conn = self.reader().await?;
            let stored: Option<Vec<u8>> = sqlx::query_scalar("SELECT value FROM meta WHERE key = 'keys_check'")
                .fetch_optional(&mut *conn)
                .await
                .map_err(statement)?;
            let accepted = crate::transfer::accept::read(&mut conn).await?;
            (stored, accepted)
        };
        let check = self.keys.check();
        if stored.as_deref() == Some(check.as_slice()) {
            if accepted.is_some() {
                // The `restored` event is the first thing that any transaction writes.
                self.writer()?.write(|_| Box::pin(async { Ok(()) })).await?;
            }
            return Ok(());
        }
        tracing::warn!("the lane's keys are new: everything derived from the log is made again");
        let indexing = self.indexing();
        self.writer()?
            .write(move |tx| {
                Box::pin(async move {
                    // Without the old key no body can be told from another: as after a forget, a key that was
                    // used answers what it answered, and writes nothing twice.
                    sqlx::query("UPDATE idempotency SET body_mac = NULL")
                        .execute(tx.conn())
                        .await
                        .map_err(statement)?;
                    reindex(tx, indexing).await?;
                    sqlx::query("INSERT OR REPLACE INTO meta (key, value) VALUES ('keys_check', ?)")
                        .bind(check.as_slice())
                        .execute(tx.conn())
                        .await
                        .map(drop)
                        .map_err(statement)
                })
            })
            .await?;
        self.touched();
        Ok(())
    }
}
