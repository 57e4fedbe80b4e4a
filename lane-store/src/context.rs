//! The turns before a turn, read from the committed log: so a projection does not depend on the order in
//! which it is made, and a rebuild equals the live one.

use lanekeeper_core::{LaneError, Seq};
use sqlx::{Row, SqliteConnection};

use crate::error::statement;
use crate::log::row::TurnBody;

/// Turns `j−2` and `j−1` of a session, by seq and no further back. A forgotten one holds its place as
/// `None`; so does one that does not exist.
pub(crate) async fn previous_turns(
    conn: &mut SqliteConnection,
    session: &str,
    seq: Seq,
) -> Result<[Option<TurnBody>; 2], LaneError> {
    let rows = sqlx::query(
        "SELECT body FROM events WHERE kind = 'turn' AND session = ? AND seq < ? ORDER BY seq DESC LIMIT 2",
    )
    .bind(session)
    .bind(seq.0.cast_signed())
    .fetch_all(conn)
    .await
    .map_err(statement)?;
    let mut turns = [None, None];
    for (place, row) in rows.iter().enumerate() {
        let body: Option<Vec<u8>> = row.try_get(0).map_err(statement)?;
        // A body that cannot be read is a damaged row: verification names it, here it counts as empty.
        turns[1 - place] = body.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    }
    Ok(turns)
}

/// A turn as context, first chunk and text fields read it.
pub(crate) fn labelled(body: &TurnBody) -> String {
    match &body.speaker {
        Some(speaker) => format!("{speaker}: {}", body.text),
        None => body.text.clone(),
    }
}

/// The text of the window field: the turn with the two before it.
pub(crate) fn window_text(previous: &[Option<TurnBody>; 2], body: &TurnBody) -> String {
    let mut text = String::new();
    for turn in previous.iter().flatten() {
        text.push_str(&labelled(turn));
        text.push(' ');
    }
    text.push_str(&labelled(body));
    text
}
