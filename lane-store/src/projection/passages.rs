//! From a turn in the log to the passages that are encoded.

use lanekeeper_core::encoder::{Passage, context_end};
use lanekeeper_core::lane::ProjectedRoles;
use lanekeeper_core::{EventId, LaneError, Seq};
use sqlx::{Row, SqliteConnection};

use crate::context::{labelled, previous_turns};
use crate::error::statement;
use crate::log::row::TurnBody;
use crate::text::header::header;
use crate::text::windows::windows;

/// A turn that owns its content.
#[derive(Debug, Clone)]
pub(crate) struct OwnedTurn {
    pub(crate) id: EventId,
    pub(crate) at_ms: i64,
    pub(crate) body: TurnBody,
    /// The end of turns `j−2` and `j−1`, of projected roles; a forgotten one counts as empty.
    pub(crate) context: String,
}

/// Reads a turn with its context; `None` where it is forgotten.
pub(crate) async fn read(
    conn: &mut SqliteConnection,
    seq: Seq,
    roles: &ProjectedRoles,
) -> Result<Option<OwnedTurn>, LaneError> {
    let row = sqlx::query("SELECT id, at_ms, session, body FROM events WHERE seq = ? AND body IS NOT NULL")
        .bind(seq.0.cast_signed())
        .fetch_optional(&mut *conn)
        .await
        .map_err(statement)?;
    let Some(row) = row else { return Ok(None) };
    let id: Vec<u8> = row.try_get(0).map_err(statement)?;
    let session: String = row.try_get(2).map_err(statement)?;
    let body: Vec<u8> = row.try_get(3).map_err(statement)?;
    let (Ok(id), Ok(body)) = (uuid::Uuid::from_slice(&id), serde_json::from_slice::<TurnBody>(&body)) else {
        return Ok(None);
    };
    let previous = previous_turns(conn, &session, seq).await?;
    let context: Vec<String> =
        previous.iter().flatten().filter(|turn| roles.contains(&turn.role)).map(labelled).collect();
    // Cut here and not by each encoder alone: every window of this turn carries a copy of it.
    let context = context_end(&context.join(" ")).to_owned();
    Ok(Some(OwnedTurn { id: EventId::from_uuid(id), at_ms: row.try_get(1).map_err(statement)?, body, context }))
}

/// One passage a window. The first carries the speaker, unless the embedder pools by itself: there the
/// label would pull every vector to its speaker (retrieval.md §5).
pub(crate) fn passages(turn: &OwnedTurn, token_states: bool) -> Vec<Passage> {
    let OwnedTurn { id, at_ms, body, context } = turn;
    let header = header(*id, *at_ms);
    windows(&body.text)
        .into_iter()
        .enumerate()
        .map(|(n, range)| {
            let text = &body.text[range];
            let chunk = match &body.speaker {
                Some(speaker) if n == 0 && token_states => format!("{speaker}: {text}"),
                _ => text.to_owned(),
            };
            Passage {
                context: if token_states { context.clone() } else { String::new() },
                header: header.clone(),
                chunk,
            }
        })
        .collect()
}
