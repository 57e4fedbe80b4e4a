//! A store on the deterministic encoder, for the tests beside this folder.
#![allow(dead_code)]

use std::path::Path;
use std::sync::Arc;

use lanekeeper_core::testing::HashEncoder;
use lanekeeper_lane_store::testing::Stage;

/// A lane in a fresh folder.
pub(crate) async fn stage() -> Stage {
    Stage::new(Arc::new(HashEncoder::new())).await
}

/// Runs a statement on a closed store's file, as somebody with an editor would.
pub(crate) async fn sql(path: &Path, statement: &str) {
    use sqlx::{ConnectOptions, Connection};
    let mut conn = sqlx::sqlite::SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned())).execute(&mut conn).await.unwrap();
    sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}
