//! The steps of opening a lane's file; see [`crate::store`].

use std::sync::Arc;

use futures::TryStreamExt;
use lanekeeper_core::error::ReadOnlyReason;
use lanekeeper_core::hooks::guard;
use lanekeeper_core::{Epoch, Hash32, LogId, Seq};
use lanekeeper_federation::{PublishedHead, Record};
use sqlx::{Row, SqliteConnection};

use crate::error::StoreError;
use crate::keys::Keys;
use crate::log::checkpoint::Checkpoint;
use crate::log::row::{BindingBody, COLUMNS, from_sql};
use crate::log::verify::{Report, Walk};
use crate::schema;
use crate::state::LaneState;
use crate::transfer::accept::{self, Accepted};
use crate::vectors::VectorStore;
use crate::volume::{Volume, sync_folder};

/// What the log says of itself.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) binding: Option<BindingBody>,
    pub(crate) epoch: Epoch,
    /// A head that a person accepted and that no event tells of yet.
    pub(crate) accepted: Option<Accepted>,
}

/// Makes or checks the file. Gives the log's id.
pub(crate) async fn file(volume: &Volume, record: Option<&Record>, keys: &Keys) -> Result<LogId, StoreError> {
    let database = volume.database();
    let exists = database.try_exists().map_err(|error| StoreError::io("look for", &database, error))?;
    // A kill between making the file and its first commit leaves an empty file, which is none.
    let fresh = !exists || std::fs::metadata(&database).is_ok_and(|meta| meta.len() == 0);
    if fresh {
        let Some(record) = record else {
            return Err(StoreError::Malformed { what: "lane", why: "a new log needs its federation record".into() });
        };
        if let Some(PublishedHead { seq, .. }) = &record.status.head {
            return Err(StoreError::FileGone { seq: seq.0 });
        }
        schema::make_file(&database)?;
        sync_folder(volume.folder())?;
    }
    schema::migrate(&database).await?;
    let mut conn = connect(&database).await?;
    let stored = log_id_in(&mut conn).await?;
    let declared = record.map(|record| record.spec.log_id);
    let log_id = match (stored, declared) {
        (Some(stored), declared) => {
            if declared.is_some_and(|declared| declared != stored) && guard("log_id") {
                return Err(StoreError::OtherLog);
            }
            stored
        }
        (None, Some(declared)) => {
            if let Some(PublishedHead { seq, .. }) = record.and_then(|record| record.status.head.as_ref()) {
                return Err(StoreError::FileGone { seq: seq.0 });
            }
            sqlx::query("INSERT INTO meta (key, value) VALUES ('log_id', ?), ('keys_check', ?)")
                .bind(declared.0.as_bytes().as_slice())
                .bind(keys.check().as_slice())
                .execute(&mut conn)
                .await
                .map_err(StoreError::sqlite("write the log's id"))?;
            if !guard("fts_secure_delete") {
                for table in ["fts_turn", "fts_window"] {
                    let sql = format!("INSERT INTO {table} ({table}, rank) VALUES ('secure-delete', 0)");
                    let _ = sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut conn).await;
                }
            }
            declared
        }
        (None, None) => {
            return Err(StoreError::Malformed {
                what: "log",
                why: "it has no id and there is no record to give one".into(),
            });
        }
    };
    sqlx::Connection::close(conn).await.map_err(StoreError::sqlite("close the log"))?;
    Ok(log_id)
}

/// The log's id, as the file has it.
pub(crate) async fn log_id_in(conn: &mut SqliteConnection) -> Result<Option<LogId>, StoreError> {
    let stored: Option<Vec<u8>> = sqlx::query_scalar("SELECT value FROM meta WHERE key = 'log_id'")
        .fetch_optional(conn)
        .await
        .map_err(StoreError::sqlite("read the log's id"))?;
    let malformed = || StoreError::Malformed { what: "log_id", why: "it is not 32 bytes".into() };
    stored.map(|bytes| Hash32::from_slice(&bytes).map(LogId).ok_or_else(malformed)).transpose()
}

async fn connect(path: &std::path::Path) -> Result<SqliteConnection, StoreError> {
    sqlx::ConnectOptions::connect(&schema::writer_options(path)).await.map_err(StoreError::sqlite("open the log"))
}

/// All checkpoints, ascending.
pub(crate) async fn checkpoints(conn: &mut SqliteConnection) -> Result<Vec<Checkpoint>, StoreError> {
    let failed = || StoreError::sqlite("read the checkpoints");
    let rows = sqlx::query("SELECT seq, hash, purged, at_ms, signature FROM checkpoints ORDER BY seq")
        .fetch_all(conn)
        .await
        .map_err(failed())?;
    rows.iter()
        .map(|row| {
            let seq: i64 = row.try_get(0).map_err(failed())?;
            let hash: Vec<u8> = row.try_get(1).map_err(failed())?;
            let purged: i64 = row.try_get(2).map_err(failed())?;
            let signature: Vec<u8> = row.try_get(4).map_err(failed())?;
            let malformed = |why: &str| StoreError::Malformed { what: "checkpoint", why: why.into() };
            Ok(Checkpoint {
                seq: Seq(seq.cast_unsigned()),
                hash: Hash32::from_slice(&hash).ok_or_else(|| malformed("its hash is not 32 bytes"))?,
                purged: purged.cast_unsigned(),
                at_ms: row.try_get(3).map_err(failed())?,
                signature: signature.try_into().map_err(|_| malformed("its signature is not 64 bytes"))?,
            })
        })
        .collect()
}

/// Walks the log from `walk`'s start to its end. `progress` hears rows done.
pub(crate) async fn walk(conn: &mut SqliteConnection, mut walk: Walk, after: Seq, progress: impl Fn(u64)) -> Report {
    let sql = format!("SELECT {COLUMNS} FROM events WHERE seq > ? ORDER BY seq");
    let mut rows = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(after.0.cast_signed()).fetch(conn);
    let mut last = after;
    let mut count = 0_u64;
    loop {
        match rows.try_next().await {
            Ok(Some(row)) => {
                count += 1;
                match from_sql(&row) {
                    Ok(event) => {
                        last = event.seq;
                        walk.push(&event);
                    }
                    Err(reason) => {
                        last = row.try_get::<i64, _>(0).map_or(last.next(), |seq| Seq(seq.cast_unsigned()));
                        walk.push_unreadable(last, reason);
                    }
                }
                if count.is_multiple_of(512) {
                    progress(count);
                }
            }
            Ok(None) => break,
            Err(error) => {
                walk.push_unreadable(last.next(), format!("the file cannot be read there: {error}"));
                break;
            }
        }
    }
    walk.finish()
}

/// Verifies from the last checkpoint and compares with the published head.
pub(crate) async fn check(
    conn: &mut SqliteConnection,
    log_id: LogId,
    record: Option<&Record>,
    state: &LaneState,
) -> Result<Opened, StoreError> {
    let bound = last_binding(conn).await?;
    let checkpoints = checkpoints(conn).await?;
    let last = checkpoints.last().filter(|checkpoint| {
        bound.as_ref().is_some_and(|(seq, body)| *seq <= checkpoint.seq && checkpoint.is_signed_by(body.public_key))
    });
    let signed_row = match last {
        Some(checkpoint) => row_at(conn, checkpoint.seq).await?.filter(|(hash, _)| *hash == checkpoint.hash),
        None => None,
    };
    let (start, from) = match (last, signed_row) {
        (Some(checkpoint), Some((hash, epoch))) => {
            let binding = bound.clone().map(|(_, body)| body);
            (Walk::from(checkpoint.seq, hash, epoch, binding, Vec::new()), checkpoint.seq)
        }
        // No checkpoint to trust, or one that does not hold: the whole log, which names the bad row.
        _ => (Walk::whole(log_id, checkpoints), Seq(0)),
    };
    let report = walk(conn, start, from, |_| {}).await;
    if let Some(bad) = &report.bad {
        tracing::error!(seq = bad.seq.0, reason = %bad.reason, "the log does not hold");
        state.set_read_only(ReadOnlyReason::BadRow(bad.seq));
    }
    if let Some(head) = record.and_then(|record| record.status.head.as_ref()) {
        let PublishedHead { log_id: published, seq, hash } = head;
        let found = row_at(conn, *seq).await?;
        match found {
            _ if !guard("published_head") => {}
            _ if *published != log_id => state.set_read_only(ReadOnlyReason::Fork),
            None => state.set_read_only(ReadOnlyReason::Rollback),
            Some((found, _)) if found != *hash => state.set_read_only(ReadOnlyReason::Fork),
            Some(_) => {}
        }
    }
    let epoch = row_at(conn, report.head.0).await?.map_or(Epoch(1), |(_, epoch)| epoch);
    // A binding after the checkpoint counts too, so the log is asked and not the walk.
    let accepted = accept::read(conn).await?;
    Ok(Opened { binding: report.binding.or(bound.map(|(_, body)| body)), epoch, accepted })
}

pub(crate) async fn row_at(conn: &mut SqliteConnection, seq: Seq) -> Result<Option<(Hash32, Epoch)>, StoreError> {
    let row = sqlx::query("SELECT hash, epoch FROM events WHERE seq = ?")
        .bind(seq.0.cast_signed())
        .fetch_optional(conn)
        .await
        .map_err(StoreError::sqlite("read a row of the log"))?;
    Ok(row.and_then(|row| {
        let hash: Vec<u8> = row.try_get(0).ok()?;
        let epoch: i64 = row.try_get(1).ok()?;
        Some((Hash32::from_slice(&hash)?, Epoch(epoch.cast_unsigned())))
    }))
}

/// The newest `opened`, `adopted` or `restored` event.
pub(crate) async fn last_binding(conn: &mut SqliteConnection) -> Result<Option<(Seq, BindingBody)>, StoreError> {
    let row = sqlx::query(
        "SELECT seq, body FROM events WHERE kind <> 'turn' AND kind IN ('opened', 'adopted', 'restored')
         ORDER BY seq DESC LIMIT 1",
    )
    .fetch_optional(conn)
    .await
    .map_err(StoreError::sqlite("read the log's binding"))?;
    let Some(row) = row else { return Ok(None) };
    let failed = || StoreError::sqlite("read the log's binding");
    let seq: i64 = row.try_get(0).map_err(failed())?;
    let body: Option<Vec<u8>> = row.try_get(1).map_err(failed())?;
    let body = body.and_then(|bytes| serde_json::from_slice(&bytes).ok()).ok_or_else(|| StoreError::Malformed {
        what: "binding",
        why: format!("the event at seq {seq} cannot be read"),
    })?;
    Ok(Some((Seq(seq.cast_unsigned()), body)))
}

/// The in-process vector engine in the lane's folder.
#[cfg(feature = "edge")]
pub(crate) async fn engine(
    volume: &Volume,
    dimension: usize,
    _record: Option<&Record>,
) -> Result<Arc<dyn VectorStore>, StoreError> {
    crate::vectors::open_edge(&volume.vectors(), dimension)
        .await
        .map_err(|error| StoreError::Vectors(error.to_string()))
}

/// Without the engine in the build a lane needs one that is handed in.
#[cfg(not(feature = "edge"))]
pub(crate) async fn engine(_: &Volume, _: usize, _: Option<&Record>) -> Result<Arc<dyn VectorStore>, StoreError> {
    Err(StoreError::Vectors("this build has no in-process engine".into()))
}
