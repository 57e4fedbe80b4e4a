//! The database: how it is opened, and its migrations.
//!
//! What must always hold: every connection has WAL, `synchronous=FULL` and `secure_delete=ON`; readers
//! cannot write; a file of a newer schema is left exactly as it was.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use lanekeeper_core::hooks::guard;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::error::StoreError;
use crate::volume::private_file;

/// One step a version, in order; version N is step N-1. A released step is never edited.
const STEPS: [&str; 1] = [include_str!("schema/0001_first.sql")];

/// The version this program writes.
pub(crate) const VERSION: i64 = STEPS.len() as i64;

/// How the one writer opens the file.
pub(crate) fn writer_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .pragma("secure_delete", if guard("secure_delete") { "ON" } else { "OFF" })
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(10))
        // The log is never stolen from: a checkpoint of the WAL is made by the writer's own commits.
        .statement_cache_capacity(128)
        .disable_statement_logging()
}

/// A few connections that can only read.
pub(crate) fn reader_pool(path: &Path) -> SqlitePool {
    let options = writer_options(path).pragma("query_only", "ON");
    SqlitePoolOptions::new()
        .min_connections(0)
        .max_connections(4)
        .idle_timeout(Duration::from_secs(60))
        .acquire_timeout(Duration::from_secs(8))
        .test_before_acquire(false)
        .connect_lazy_with(options)
}

/// Makes the file (0600) if there is none.
pub(crate) fn make_file(path: &Path) -> Result<(), StoreError> {
    private_file(path, OpenOptions::new().create(true).truncate(false).write(true)).map(drop)
}

/// The schema's version in a file, read without writing to it.
pub(crate) async fn version(path: &Path) -> Result<i64, StoreError> {
    let mut conn = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .read_only(true)
        .busy_timeout(Duration::from_secs(10))
        .disable_statement_logging()
        .connect()
        .await
        .map_err(StoreError::sqlite("open the database"))?;
    let version = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut conn)
        .await
        .map_err(StoreError::sqlite("read the schema's version"));
    let _ = conn.close().await;
    version
}

/// Brings the file to this program's version, or refuses a newer one untouched.
pub(crate) async fn migrate(path: &Path) -> Result<(), StoreError> {
    let found = version(path).await?;
    if found > VERSION {
        return Err(StoreError::SchemaTooNew { found, known: VERSION });
    }
    let mut conn = writer_options(path).connect().await.map_err(StoreError::sqlite("open the database"))?;
    for (index, step) in STEPS.iter().enumerate().skip(usize::try_from(found).unwrap_or(0)) {
        apply(&mut conn, step, index + 1).await?;
    }
    conn.close().await.map_err(StoreError::sqlite("close the database"))
}

/// One step and its version number in one transaction: a kill in between leaves the step undone.
async fn apply(conn: &mut SqliteConnection, step: &'static str, version: usize) -> Result<(), StoreError> {
    let failed = StoreError::sqlite("migrate the database");
    let run = async {
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut *conn).await?;
        sqlx::raw_sql(step).execute(&mut *conn).await?;
        let _ = lanekeeper_core::hooks::fault("in_migration");
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("PRAGMA user_version = {version}"))).execute(&mut *conn).await?;
        sqlx::raw_sql("COMMIT").execute(&mut *conn).await
    };
    run.await.map(drop).map_err(failed)
}
