//! Verification of the whole log: in the background after opening, on demand, and offline.

use std::path::Path;

use lanekeeper_core::wire::events::Head;
use lanekeeper_core::wire::upkeep::VerifyReport;
use lanekeeper_core::{Hash32, LaneError, LogId, Seq};
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::error::{StoreError, statement};
use crate::log::verify::{Report, Walk};
use crate::store::LaneStore;
use crate::{opening, schema};

impl LaneStore {
    /// Walks the whole log in one snapshot. A bad row makes the store read-only.
    pub(crate) async fn verify_whole(&self) -> Result<VerifyReport, LaneError> {
        let _one_at_a_time = self.upkeep_lock.lock().await;
        let mut conn = self.reader().await?;
        // One snapshot: a forget that commits during the walk must not look like damage.
        // A caller that goes away drops it, and the reader goes back to its pool without it.
        let mut snapshot = conn.begin().await.map_err(statement)?;
        let outcome = self.walk_whole(&mut snapshot).await;
        let _ = snapshot.rollback().await;
        self.state.set_verifying(None);
        let report = outcome?;
        if let Some(bad) = &report.bad {
            self.found_bad_row(bad.seq);
        }
        Ok(told(report, self.log_id, true))
    }

    async fn walk_whole(&self, conn: &mut SqliteConnection) -> Result<Report, LaneError> {
        let total: i64 =
            sqlx::query_scalar("SELECT count(*) FROM events").fetch_one(&mut *conn).await.map_err(statement)?;
        let total = total.cast_unsigned();
        self.state.set_verifying(Some((0, total)));
        let checkpoints = opening::checkpoints(conn).await?;
        let walk = Walk::whole(self.log_id, checkpoints);
        Ok(opening::walk(conn, walk, Seq(0), |done| self.state.set_verifying(Some((done, total)))).await)
    }
}

/// A walk in words.
pub(crate) fn told(report: Report, log_id: LogId, signature_checked: bool) -> VerifyReport {
    let Report { events, purged, bad, signed_up_to, head, binding } = report;
    let (ok, first_bad_seq, reason) = match bad {
        None => (true, None, None),
        Some(bad) => (false, Some(bad.seq.0), Some(bad.reason)),
    };
    let statement = match (&reason, first_bad_seq) {
        (Some(reason), Some(seq)) => format!("row {seq} does not hold: {reason}"),
        _ => {
            let lane = binding.map_or_else(String::new, |binding| format!(" of lane {}", binding.lane));
            format!("{events} rows{lane} hold ({purged} forgotten), signed up to seq {signed_up_to}")
        }
    };
    let (seq, hash): (Seq, Hash32) = head;
    VerifyReport {
        ok,
        events,
        purged,
        first_bad_seq,
        reason,
        signed_up_to: signed_up_to.0,
        signature_checked,
        head: ok.then_some(Head { seq, hash }),
        log_id: log_id.to_string(),
        statement,
    }
}

/// Verifies a database file offline, read-only. `expected` is the log's id if the caller knows it from
/// elsewhere; else the file's own is used, and the statement says so.
pub async fn verify_file(path: &Path, expected: Option<LogId>) -> Result<VerifyReport, StoreError> {
    let found = schema::version(path).await?;
    if found > schema::VERSION {
        return Err(StoreError::SchemaTooNew { found, known: schema::VERSION });
    }
    let mut conn = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .read_only(true)
        .disable_statement_logging()
        .connect()
        .await
        .map_err(StoreError::sqlite("open the log"))?;
    let stored: Option<Vec<u8>> = sqlx::query_scalar("SELECT value FROM meta WHERE key = 'log_id'")
        .fetch_optional(&mut conn)
        .await
        .map_err(StoreError::sqlite("read the log's id"))?;
    let stored = stored
        .and_then(|bytes| Hash32::from_slice(&bytes))
        .map(LogId)
        .ok_or_else(|| StoreError::Malformed { what: "log", why: "it has no id".into() })?;
    let log_id = expected.unwrap_or(stored);
    let checkpoints = opening::checkpoints(&mut conn).await?;
    let report = opening::walk(&mut conn, Walk::whole(log_id, checkpoints), Seq(0), |_| {}).await;
    let _ = conn.close().await;
    let mut told = told(report, log_id, true);
    if expected.is_none() {
        told.statement.push_str(" (against the file's own log_id)");
    }
    Ok(told)
}
