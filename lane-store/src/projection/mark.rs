//! A mark by which an older copy of the vector folder is known for one.
//!
//! Healing compares point ids. After a forget the neighbours' vectors are made again under the same ids, so
//! an older folder put back would look whole and hold vectors that were made with the forgotten text. Each
//! such forget raises a number in the log's file; once nothing is open the number is written into the
//! folder, then into the file as settled. A folder whose number is under the settled one is an older copy.

use std::path::Path;

use lanekeeper_core::LaneError;
use sqlx::SqliteConnection;

use crate::error::statement;
use crate::store::LaneStore;
use crate::volume::replace_file;
use crate::writer::WriteTx;

const RAISED: &str = "vectors_mark";
const SETTLED: &str = "vectors_settled";

async fn number(conn: &mut SqliteConnection, key: &'static str) -> Result<i64, LaneError> {
    let value: Option<i64> = sqlx::query_scalar("SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?")
        .bind(key)
        .fetch_optional(conn)
        .await
        .map_err(statement)?;
    Ok(value.unwrap_or(0))
}

async fn set(conn: &mut SqliteConnection, key: &'static str, value: i64) -> Result<(), LaneError> {
    sqlx::query("INSERT INTO meta (key, value) VALUES (?, CAST(? AS TEXT)) ON CONFLICT (key) DO UPDATE SET value = excluded.value")
        .bind(key)
        .bind(value)
        .execute(conn)
        .await
        .map(drop)
        .map_err(statement)
}

/// Raises the mark: from here on folders that are settled under a lower one are out of date.
pub(crate) async fn raise(tx: &mut WriteTx) -> Result<(), LaneError> {
    let next = number(tx.conn(), RAISED).await? + 1;
    set(tx.conn(), RAISED, next).await
}

/// The folder's own mark; 0 where there is none or it cannot be read.
fn in_folder(folder: &Path) -> i64 {
    std::fs::read_to_string(folder.join("mark")).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

impl LaneStore {
    /// With nothing open the folder is up to date: says so in the folder first, then in the file.
    pub(crate) async fn settle_mark(&self) -> Result<(), LaneError> {
        let mut conn = self.reader().await?;
        let (raised, settled) = (number(&mut conn, RAISED).await?, number(&mut conn, SETTLED).await?);
        drop(conn);
        let folder = self.volume.vectors();
        if raised == 0 || !folder.is_dir() {
            return Ok(());
        }
        // A folder that was made anew has no mark, whatever the file says.
        if in_folder(&folder) < raised {
            replace_file(&folder.join("mark"), raised.to_string().as_bytes())?;
        }
        if settled >= raised {
            return Ok(());
        }
        self.writer()?.write(move |tx| Box::pin(async move { set(tx.conn(), SETTLED, raised).await })).await
    }

    /// Whether the vector folder is an older copy of itself.
    pub(crate) async fn has_older_vectors(&self) -> Result<bool, LaneError> {
        let mut conn = self.reader().await?;
        let settled = number(&mut conn, SETTLED).await?;
        let folder = self.volume.vectors();
        if settled == 0 || !folder.is_dir() {
            return Ok(false);
        }
        Ok(in_folder(&folder) < settled)
    }
}
