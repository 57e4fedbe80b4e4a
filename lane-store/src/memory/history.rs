//! Versions of the files a caller may read, newest first.

use futures::TryStreamExt;
use lanekeeper_core::LaneError;
use lanekeeper_core::lane_client::Caller;
use lanekeeper_core::time::format_rfc3339_ms;
use lanekeeper_core::wire::memory::{MemoryHistory, MemoryVersion};
use sqlx::Row;

use super::may_read;
use super::rows::{event_id, parse_body, seq};
use crate::error::statement;
use crate::store::LaneStore;

/// Texts of one answer, bytes: older versions are left out, and the answer says so.
const ANSWER_BYTES: usize = 8 * 1024 * 1024;

impl LaneStore {
    /// The caller is admitted to the lane already.
    pub(crate) async fn history(&self, caller: &Caller) -> Result<MemoryHistory, LaneError> {
        let mut conn = self.reader().await?;
        let owners: Vec<String> = sqlx::query_scalar("SELECT DISTINCT owner FROM memory_versions")
            .fetch_all(&mut *conn)
            .await
            .map_err(statement)?;
        let owners: Vec<String> = owners.into_iter().filter(|owner| may_read(caller, owner)).collect();
        let json = serde_json::to_string(&owners).map_err(LaneError::internal)?;
        let mut rows = sqlx::query(
            "SELECT v.seq, e.id, v.owner, v.cause, e.principal, e.at_ms, e.body
             FROM memory_versions v JOIN events e ON e.seq = v.seq
             WHERE v.owner IN (SELECT value FROM json_each(?)) ORDER BY v.seq DESC",
        )
        .bind(json)
        .fetch(&mut *conn);
        let mut versions = Vec::new();
        let mut bytes = 0_usize;
        while let Some(row) = rows.try_next().await.map_err(statement)? {
            let place: i64 = row.try_get(0).map_err(statement)?;
            let id: Vec<u8> = row.try_get(1).map_err(statement)?;
            let at_ms: i64 = row.try_get(5).map_err(statement)?;
            let body: Option<Vec<u8>> = row.try_get(6).map_err(statement)?;
            let text = match body {
                Some(body) if !self.state.is_bad(seq(place)) => Some(parse_body(&body)?.text),
                Some(_) | None => None,
            };
            bytes += text.as_ref().map_or(0, String::len);
            if bytes > ANSWER_BYTES && !versions.is_empty() {
                return Ok(MemoryHistory { versions, older_left_out: true });
            }
            versions.push(MemoryVersion {
                event_id: event_id(&id)?,
                seq: seq(place),
                owner: row.try_get(2).map_err(statement)?,
                cause: row.try_get(3).map_err(statement)?,
                principal: row.try_get(4).map_err(statement)?,
                at: format_rfc3339_ms(at_ms),
                text,
            });
        }
        Ok(MemoryHistory { versions, older_left_out: false })
    }
}
