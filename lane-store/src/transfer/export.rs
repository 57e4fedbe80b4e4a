//! Export: a stream of JSON Lines with every surviving turn, its text and times as they were sent.
//!
//! # Guarantees
//! - Memory is constant: the log is read in pages by seq, up to the head at the start, and no read
//!   transaction stays open between pages, however slow the reader is.
//! - A row that does not hold (its hash or its commitment) is never handed out as genuine: it is left out
//!   and counted in the end line.
//! - The end line counts, hashes and signs what came before it, so a file that was cut or changed is known.
//!
//! # Caveats
//! - Curated memory is not in it: an export is an act on the lane's events, and the files belong to owners
//!   whom the exporter's scope need not cover. The header says so.
//! - A turn forgotten while the export runs is in it if its page was read before.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use ed25519_dalek::SigningKey;
use futures::stream;
use lanekeeper_core::lane_client::ByteStream;
use lanekeeper_core::time::format_rfc3339_ms;
use lanekeeper_core::wire::events::Head;
use lanekeeper_core::{Hash32, LaneError, LogId, Seq};
use sha2::{Digest, Sha256};
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{AssertSqlSafe, Row};

use super::lines::{EndLine, Header, Origin, TurnLine, VERSION};
use crate::error::statement;
use crate::log::row::{COLUMNS, TurnBody, commitment, from_sql};
use crate::state::LaneState;
use crate::store::{LaneStore, acquire};

/// Rows of one page. A row is at most about 1 MiB.
const PAGE: u32 = 32;

/// An export under way.
struct Export {
    pool: SqlitePool,
    state: Arc<LaneState>,
    signing: SigningKey,
    hasher: Sha256,
    after: Seq,
    until: Seq,
    turns: u64,
    damaged: u64,
    ready: VecDeque<Bytes>,
    ended: bool,
}

impl LaneStore {
    /// Streams the lane's turns. The caller is admitted already.
    pub(crate) async fn export_lines(&self) -> Result<ByteStream, LaneError> {
        let (seq, hash) = self.head();
        let unattributed: i64 = {
            let mut conn = self.reader().await?;
            sqlx::query_scalar("SELECT unattributed FROM text_stats").fetch_one(&mut *conn).await.map_err(statement)?
        };
        let mut export = Export {
            pool: self.pool.clone(),
            state: self.state.clone(),
            signing: self.keys.signing(),
            hasher: Sha256::new(),
            after: Seq(0),
            until: seq,
            turns: 0,
            damaged: 0,
            ready: VecDeque::new(),
            ended: false,
        };
        export.line(&Header {
            lanekeeper_export: VERSION,
            log_id: self.log_id,
            lane: self.config.lane.clone(),
            kind: self.config.kind,
            exported_at: Some(format_rfc3339_ms(self.clock.now_ms())),
            head: Some(Head { seq, hash }),
            unattributed: unattributed > 0,
            curated_memory: Some("not_included".into()),
        })?;
        Ok(Box::pin(stream::try_unfold(export, |mut export| async move {
            Ok(export.next().await?.map(|bytes| (bytes, export)))
        })))
    }
}

impl Export {
    async fn next(&mut self) -> Result<Option<Bytes>, LaneError> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Ok(Some(bytes));
            }
            if self.ended {
                return Ok(None);
            }
            self.page().await?;
        }
    }

    fn line(&mut self, line: &impl serde::Serialize) -> Result<(), LaneError> {
        let mut json = serde_json::to_vec(line).map_err(LaneError::internal)?;
        json.push(b'\n');
        self.hasher.update(&json);
        self.ready.push_back(json.into());
        Ok(())
    }

    async fn page(&mut self) -> Result<(), LaneError> {
        let rows = {
            let mut conn = acquire(&self.pool).await?;
            sqlx::query(AssertSqlSafe(format!(
                "SELECT {COLUMNS}, (SELECT origin_log FROM origins o WHERE o.seq = events.seq),
                     (SELECT origin_id FROM origins o WHERE o.seq = events.seq)
                 FROM events WHERE seq > ? AND seq <= ? AND kind = 'turn' AND body IS NOT NULL ORDER BY seq LIMIT {PAGE}"
            )))
            .bind(self.after.0.cast_signed())
            .bind(self.until.0.cast_signed())
            .fetch_all(&mut *conn)
            .await
            .map_err(statement)?
        };
        let Some(last) = rows.last() else {
            let end = EndLine::sign(
                &self.signing,
                self.turns,
                self.damaged,
                Hash32::from_bytes(self.hasher.clone().finalize().into()),
            );
            self.ended = true;
            return self.line(&end);
        };
        let last: i64 = last.try_get(0).map_err(statement)?;
        self.after = Seq(last.cast_unsigned());
        for row in &rows {
            match self.turn(row) {
                Some(line) => {
                    self.line(&line)?;
                    self.turns += 1;
                }
                None => self.damaged += 1,
            }
        }
        Ok(())
    }

    /// A row as a line; `None` if the row does not hold.
    fn turn(&self, sql: &SqliteRow) -> Option<TurnLine> {
        let row = from_sql(sql).ok()?;
        let (salt, body) = row.salt.as_deref().zip(row.body.as_deref())?;
        let holds = row.computed_hash() == row.hash && commitment(salt, body) == row.commitment;
        if !holds || self.state.is_bad(row.seq) {
            return None;
        }
        let TurnBody { text, role, speaker, at, metadata } = serde_json::from_slice(body).ok()?;
        let origin_log: Option<String> = sql.try_get(12).ok()?;
        let origin_id: Option<String> = sql.try_get(13).ok()?;
        let origin = match origin_log.zip(origin_id) {
            Some((log_id, id)) => Some(Origin { log_id: log_id.parse::<LogId>().ok()?, id }),
            None => None,
        };
        Some(TurnLine {
            id: row.id,
            session: row.session?,
            role,
            text,
            speaker,
            at,
            at_ms: row.at_ms,
            principal: row.principal,
            metadata,
            origin,
        })
    }
}
