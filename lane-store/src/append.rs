//! Saving turns: all or nothing, once per Idempotency-Key, acknowledged after the durable commit.

use lanekeeper_core::hooks::guard;
use lanekeeper_core::lane_client::{AppendRequest, Caller};
use lanekeeper_core::time::{format_rfc3339_ms, parse_rfc3339_ms};
use lanekeeper_core::wire::events::{Head, Projection, SaveRequest, SaveResponse, SavedEvent, Turn};
use lanekeeper_core::{EventId, Hash32, LaneError, Seq};
use serde::{Deserialize, Serialize};
use sqlx::{Row, SqliteConnection};

use crate::error::statement;
use crate::idempotency::KeyUse;
use crate::index::{Indexed, IndexedTurn, Indexing};
use crate::log::row::{Kind, TurnBody};
use crate::store::LaneStore;
use crate::writer::{NewEvent, WriteTx};

/// What an idempotency row keeps of a save: ids and places, never text.
#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    events: Vec<RememberedEvent>,
    head: Head,
}

#[derive(Debug, Serialize, Deserialize)]
struct RememberedEvent {
    id: EventId,
    seq: Seq,
    hash: Hash32,
    at: String,
    chunks: u32,
    projected: bool,
    duplicate_of: Option<EventId>,
}

impl LaneStore {
    /// Appends turns. The caller is admitted already.
    pub(crate) async fn append_turns(
        &self,
        caller: &Caller,
        request: AppendRequest,
    ) -> Result<SaveResponse, LaneError> {
        let AppendRequest { save, idempotency } = request;
        save.check(self.clock.now_ms())?;
        let key = idempotency.map(|key| KeyUse::new(caller, "events", &key, &self.keys));
        let indexing = self.indexing();
        let principal = caller.principal.to_string();
        let answer = self
            .writer()?
            .write(move |tx| Box::pin(async move { append_in(tx, &indexing, &principal, &save, key.as_ref()).await }))
            .await;
        if answer.is_ok() {
            self.touched();
        }
        answer
    }
}

async fn append_in(
    tx: &mut WriteTx,
    indexing: &Indexing,
    principal: &str,
    save: &SaveRequest,
    key: Option<&KeyUse>,
) -> Result<SaveResponse, LaneError> {
    let SaveRequest { session, turns, expected_head } = save;
    if let Some(key) = key
        && let Some(answer) = key.replay(tx).await?
    {
        let remembered: Remembered = serde_json::from_str(&answer).map_err(LaneError::internal)?;
        return replayed(tx.conn(), remembered).await;
    }
    if let Some(Head { seq, hash }) = expected_head {
        let (actual_seq, actual_hash) = tx.head();
        if (*seq, *hash) != (actual_seq, actual_hash) && guard("head_pin") {
            return Err(LaneError::HeadMismatch { actual_seq, actual_hash });
        }
    }
    let mut events = Vec::with_capacity(turns.len());
    for (index, turn) in turns.iter().enumerate() {
        events.push(append_turn(tx, indexing, Some(principal), session, turn, &format!("turns[{index}]")).await?);
    }
    let (seq, hash) = tx.head();
    let head = Head { seq, hash };
    if let Some(key) = key {
        let seqs: Vec<Seq> = events.iter().map(|event| event.seq).collect();
        let json = serde_json::to_string(&Remembered { events, head }).map_err(LaneError::internal)?;
        key.remember(tx, &json, &seqs).await?;
        let remembered = serde_json::from_str(&json).map_err(LaneError::internal)?;
        return Ok(fresh(remembered));
    }
    Ok(fresh(Remembered { events, head }))
}

/// Appends and indexes one turn.
async fn append_turn(
    tx: &mut WriteTx,
    indexing: &Indexing,
    principal: Option<&str>,
    session: &str,
    turn: &Turn,
    path: &str,
) -> Result<RememberedEvent, LaneError> {
    let (id, seq, hash, at_ms, indexed) = append_one(tx, indexing, principal, session, turn, None, path).await?;
    let duplicate_of = match indexed.duplicate_of {
        Some(owner) => event_id(tx.conn(), owner).await?,
        None => None,
    };
    Ok(RememberedEvent {
        id,
        seq,
        hash,
        at: turn.at.clone().unwrap_or_else(|| format_rfc3339_ms(at_ms)),
        chunks: indexed.chunks,
        projected: indexed.projected,
        duplicate_of,
    })
}

/// The append of one turn, as saves and imports share it. `origin_at_ms` is the time of a turn that came
/// from elsewhere and was sent without one.
pub(crate) async fn append_one(
    tx: &mut WriteTx,
    indexing: &Indexing,
    principal: Option<&str>,
    session: &str,
    turn: &Turn,
    origin_at_ms: Option<i64>,
    path: &str,
) -> Result<(EventId, Seq, Hash32, i64, Indexed), LaneError> {
    let at_ms = turn
        .at
        .as_deref()
        .map(parse_rfc3339_ms)
        .transpose()
        .map_err(|error| LaneError::invalid(format!("{path}.at"), error.rule))?;
    let body = TurnBody::of(turn);
    let json = serde_json::to_vec(&body).map_err(LaneError::internal)?;
    let appended = tx
        .append(NewEvent {
            kind: Kind::Turn,
            at_ms: at_ms.or(origin_at_ms),
            principal: principal.map(str::to_owned),
            session: Some(session.to_owned()),
            body: json,
        })
        .await?;
    let turn =
        IndexedTurn { seq: appended.seq, id: appended.id, at_ms: appended.at_ms, principal, session, body: &body };
    let indexed = indexing.add(tx, &turn).await?;
    Ok((appended.id, appended.seq, appended.hash, appended.at_ms, indexed))
}

fn fresh(remembered: Remembered) -> SaveResponse {
    let Remembered { events, head } = remembered;
    let events = events
        .into_iter()
        .map(|event| {
            let RememberedEvent { id, seq, hash, at, chunks, projected, duplicate_of } = event;
            let projection = match (projected, duplicate_of) {
                (false, _) => Projection::Skipped,
                (true, Some(_)) => Projection::Duplicate,
                (true, None) => Projection::Pending,
            };
            SavedEvent { id, seq, hash, at, projection, chunks, duplicate_of, forgotten: false }
        })
        .collect();
    SaveResponse { events, head }
}

/// The same events and head; `projection` as it is now; forgotten ones marked.
async fn replayed(conn: &mut SqliteConnection, remembered: Remembered) -> Result<SaveResponse, LaneError> {
    let Remembered { events, head } = remembered;
    let mut answered = Vec::with_capacity(events.len());
    for event in events {
        let RememberedEvent { id, seq, hash, at, chunks, projected: _, duplicate_of: _ } = event;
        let now = projection_of(conn, seq).await?;
        let forgotten = now.is_none();
        let (projection, duplicate_of) = now.unwrap_or((Projection::Skipped, None));
        answered.push(SavedEvent { id, seq, hash, at, projection, chunks, duplicate_of, forgotten });
    }
    Ok(SaveResponse { events: answered, head })
}

/// Where a turn's vectors are now; `None` where it was forgotten.
pub(crate) async fn projection_of(
    conn: &mut SqliteConnection,
    seq: Seq,
) -> Result<Option<(Projection, Option<EventId>)>, LaneError> {
    let row = sqlx::query(
        "SELECT c.state, c.owner_seq FROM turns t
         LEFT JOIN claim_events e ON e.content = t.content AND e.seq = t.seq
         LEFT JOIN claims c ON c.content = e.content
         WHERE t.seq = ?",
    )
    .bind(seq.0.cast_signed())
    .fetch_optional(&mut *conn)
    .await
    .map_err(statement)?;
    let Some(row) = row else { return Ok(None) };
    let state: Option<String> = row.try_get(0).map_err(statement)?;
    let owner: Option<i64> = row.try_get(1).map_err(statement)?;
    let owner = owner.map(|owner| Seq(owner.cast_unsigned()));
    Ok(Some(match (state.as_deref(), owner) {
        (Some(_), Some(owner)) if owner != seq => (Projection::Duplicate, event_id(conn, owner).await?),
        (Some("COMPLETE"), Some(_)) => (Projection::Complete, None),
        (Some(_), _) => (Projection::Pending, None),
        (None, _) => (Projection::Skipped, None),
    }))
}

pub(crate) async fn event_id(conn: &mut SqliteConnection, seq: Seq) -> Result<Option<EventId>, LaneError> {
    let id: Option<Vec<u8>> = sqlx::query_scalar("SELECT id FROM events WHERE seq = ?")
        .bind(seq.0.cast_signed())
        .fetch_optional(conn)
        .await
        .map_err(statement)?;
    Ok(id.and_then(|bytes| uuid::Uuid::from_slice(&bytes).ok()).map(EventId::from_uuid))
}
