//! What is derived from one turn in the append's own transaction: its row, its full text, its claim.
//!
//! Used by append, import and rebuild alike, so that a rebuild equals the live store.

use lanekeeper_core::fingerprint::Fingerprint;
use lanekeeper_core::lane::{Language, ProjectedRoles};
use lanekeeper_core::{EventId, LaneError, Seq};
use sqlx::SqliteConnection;

use crate::claims;
use crate::context::{labelled, previous_turns, window_text};
use crate::error::statement;
use crate::keys::Keys;
use crate::log::row::TurnBody;
use crate::text::analyze::document_tokens;
use crate::text::windows::windows;
use crate::writer::WriteTx;

/// How a lane's turns are indexed.
#[derive(Debug, Clone)]
pub(crate) struct Indexing {
    pub(crate) keys: Keys,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) language: Language,
    pub(crate) projected_roles: ProjectedRoles,
}

/// A turn that stands in the log.
#[derive(Debug)]
pub(crate) struct IndexedTurn<'a> {
    pub(crate) seq: Seq,
    pub(crate) id: EventId,
    pub(crate) at_ms: i64,
    pub(crate) principal: Option<&'a str>,
    pub(crate) session: &'a str,
    pub(crate) body: &'a TurnBody,
}

/// What became of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Indexed {
    pub(crate) chunks: u32,
    /// Whether its role gets vectors in this lane.
    pub(crate) projected: bool,
    /// The event that owns the same content.
    pub(crate) duplicate_of: Option<Seq>,
}

/// Chunks of a turn before any is split for the model's sake.
pub(crate) fn chunk_count(text: &str) -> u32 {
    u32::try_from(windows(text).len()).unwrap_or(u32::MAX)
}

impl Indexing {
    /// The ledger's key for a text.
    pub(crate) fn content(&self, text: &str) -> Result<[u8; 32], LaneError> {
        if lanekeeper_core::hooks::guard("dedupe") {
            return Ok(self.keys.content(text));
        }
        let mut random = [0_u8; 32];
        getrandom::fill(&mut random).map_err(LaneError::internal)?;
        Ok(random)
    }

    /// Writes all that is derived from a turn.
    pub(crate) async fn add(&self, tx: &mut WriteTx, turn: &IndexedTurn<'_>) -> Result<Indexed, LaneError> {
        let IndexedTurn { seq, id, at_ms, principal, session, body } = turn;
        let content = self.content(&body.text)?;
        let previous = previous_turns(tx.conn(), session, *seq).await?;
        let turn_tokens = document_tokens(&labelled(body), self.language);
        let window_tokens = document_tokens(&window_text(&previous, body), self.language);
        let chunks = chunk_count(&body.text);
        sqlx::query(
            "INSERT INTO turns (seq, event_id, session, role, speaker, principal, at_ms, content, turn_len, window_len, chunks)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(seq.0.cast_signed())
        .bind(id.as_uuid().as_bytes().as_slice())
        .bind(session)
        .bind(body.role.as_str())
        .bind(body.speaker.as_deref())
        .bind(principal)
        .bind(at_ms)
        .bind(content.as_slice())
        .bind(i64::try_from(turn_tokens.len()).unwrap_or(i64::MAX))
        .bind(i64::try_from(window_tokens.len()).unwrap_or(i64::MAX))
        .bind(chunks)
        .execute(tx.conn())
        .await
        .map_err(statement)?;
        sqlx::query("INSERT INTO fts_turn (rowid, tokens) VALUES (?, ?)")
            .bind(seq.0.cast_signed())
            .bind(turn_tokens.join(" "))
            .execute(tx.conn())
            .await
            .map_err(statement)?;
        sqlx::query("INSERT INTO fts_window (rowid, tokens) VALUES (?, ?)")
            .bind(seq.0.cast_signed())
            .bind(window_tokens.join(" "))
            .execute(tx.conn())
            .await
            .map_err(statement)?;
        let projected = self.projected_roles.contains(&body.role);
        let duplicate_of = if projected { claims::claim(tx, &content, self.fingerprint, *seq).await? } else { None };
        Ok(Indexed { chunks, projected, duplicate_of })
    }

    /// Makes the window field of a surviving turn again, after a turn before it was forgotten.
    pub(crate) async fn rewrite_window(
        &self,
        conn: &mut SqliteConnection,
        seq: Seq,
        session: &str,
        body: &TurnBody,
    ) -> Result<(), LaneError> {
        let previous = previous_turns(conn, session, seq).await?;
        let tokens = document_tokens(&window_text(&previous, body), self.language);
        sqlx::query("DELETE FROM fts_window WHERE rowid = ?")
            .bind(seq.0.cast_signed())
            .execute(&mut *conn)
            .await
            .map_err(statement)?;
        sqlx::query("INSERT INTO fts_window (rowid, tokens) VALUES (?, ?)")
            .bind(seq.0.cast_signed())
            .bind(tokens.join(" "))
            .execute(&mut *conn)
            .await
            .map_err(statement)?;
        sqlx::query("UPDATE turns SET window_len = ? WHERE seq = ?")
            .bind(i64::try_from(tokens.len()).unwrap_or(i64::MAX))
            .bind(seq.0.cast_signed())
            .execute(conn)
            .await
            .map(drop)
            .map_err(statement)
    }
}
