//! Listing events by seq.

use lanekeeper_core::time::format_rfc3339_ms;
use lanekeeper_core::wire::events::{EventPage, Head, ListedEvent};
use lanekeeper_core::{LaneError, Seq};

use crate::append::projection_of;
use crate::error::statement;
use crate::log::row::{COLUMNS, EventRow, Kind, TurnBody, from_sql};
use crate::store::LaneStore;

impl LaneStore {
    /// Events after `after`; curated memory's versions are listed without text (their route is
    /// `memory/history`, which knows whose they are).
    pub(crate) async fn list(&self, after: Seq, limit: u32) -> Result<EventPage, LaneError> {
        let limit = limit.clamp(1, 1000);
        let mut conn = self.reader().await?;
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
        )))
        .bind(after.0.cast_signed())
        .bind(limit)
        .fetch_all(&mut *conn)
        .await
        .map_err(statement)?;
        let mut events = Vec::with_capacity(rows.len());
        for row in &rows {
            let row = from_sql(row).map_err(LaneError::internal)?;
            events.push(self.listed(&mut conn, row).await?);
        }
        let next_after = if events.len() == limit as usize { events.last().map(|event| event.seq.0) } else { None };
        let (seq, hash) = self.head();
        Ok(EventPage { events, next_after, head: Head { seq, hash } })
    }

    async fn listed(&self, conn: &mut sqlx::SqliteConnection, row: EventRow) -> Result<ListedEvent, LaneError> {
        let EventRow {
            seq,
            id,
            at_ms,
            kind,
            principal,
            session,
            epoch: _,
            salt: _,
            body,
            commitment: _,
            prev_hash: _,
            hash,
        } = row;
        let forgettable = kind.parse::<Kind>().is_ok_and(Kind::forgettable);
        let forgotten = body.is_none() && forgettable;
        let is_turn = kind == Kind::Turn.as_str();
        let turn: Option<TurnBody> = if is_turn && !self.state.is_bad(seq) {
            body.and_then(|bytes| serde_json::from_slice(&bytes).ok())
        } else {
            None
        };
        let projection = if is_turn { projection_of(conn, seq).await? } else { None };
        let (text, role, speaker, at, metadata) = match turn {
            Some(TurnBody { text, role, speaker, at, metadata }) => (Some(text), Some(role), speaker, at, metadata),
            None => (None, None, None, None, None),
        };
        Ok(ListedEvent {
            id,
            seq,
            hash,
            kind,
            principal,
            session,
            at: at.unwrap_or_else(|| format_rfc3339_ms(at_ms)),
            role,
            speaker,
            text,
            metadata,
            projection: projection.map(|(projection, _)| projection),
            duplicate_of: projection.and_then(|(_, owner)| owner),
            forgotten,
        })
    }
}
