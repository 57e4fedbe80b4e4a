//! The question's terms with what the lane knows of them.

use std::collections::HashMap;

use lanekeeper_core::LaneError;
use lanekeeper_core::lane::Language;
use sqlx::{Row, SqliteConnection};

use super::MATCHED_TERMS;
use crate::error::statement;
use crate::text::analyze::{match_expression, query_terms};

/// How often terms occur in one text field.
#[derive(Debug, Clone, Default)]
pub(crate) struct FieldStats {
    /// Rows that hold a term.
    pub(crate) df: HashMap<String, u64>,
    /// Average length, tokens.
    pub(crate) average: f64,
}

/// The terms of one question in one lane.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// All distinct terms.
    pub(crate) tokens: Vec<String>,
    /// FTS5 queries of the turn and the window field; `None`: nothing to search for.
    pub(crate) turn_match: Option<String>,
    pub(crate) window_match: Option<String>,
    /// Rows in all.
    pub(crate) rows: u64,
    pub(crate) turn: FieldStats,
    pub(crate) window: FieldStats,
}

impl Terms {
    pub(crate) async fn of(conn: &mut SqliteConnection, query: &str, language: Language) -> Result<Self, LaneError> {
        let terms = query_terms(query, language);
        let tokens: Vec<String> = terms.terms.iter().map(|term| term.token.clone()).collect();
        let row = sqlx::query("SELECT turns, turn_sum, window_sum FROM text_stats WHERE id = 1")
            .fetch_one(&mut *conn)
            .await
            .map_err(statement)?;
        let number = |index: usize| row.try_get::<i64, _>(index).map(i64::cast_unsigned).map_err(statement);
        let rows = number(0)?;
        let (turn_sum, window_sum) = (number(1)?, number(2)?);
        #[expect(clippy::cast_precision_loss, reason = "an average of lengths")]
        let average = |sum: u64| if rows == 0 { 0.0 } else { sum as f64 / rows as f64 };
        let turn = FieldStats { df: turn_df(conn, &tokens).await?, average: average(turn_sum) };
        let window = FieldStats { df: window_df(conn, &tokens).await?, average: average(window_sum) };
        let expression = |stats: &FieldStats| {
            let mut terms = terms.clone();
            terms.keep_rarest(MATCHED_TERMS, |term| stats.df.get(term).copied().unwrap_or(0));
            match_expression(&terms.terms)
        };
        let (turn_match, window_match) = (expression(&turn), expression(&window));
        Ok(Self { tokens, turn_match, window_match, rows, turn, window })
    }
}

/// Rows of the turn field that hold each token; one seek in the term index a token.
pub(crate) async fn turn_df(conn: &mut SqliteConnection, tokens: &[String]) -> Result<HashMap<String, u64>, LaneError> {
    df(conn, "SELECT v.term, v.doc FROM json_each(?) j CROSS JOIN fts_turn_terms v ON v.term = j.value", tokens).await
}

async fn window_df(conn: &mut SqliteConnection, tokens: &[String]) -> Result<HashMap<String, u64>, LaneError> {
    df(conn, "SELECT v.term, v.doc FROM json_each(?) j CROSS JOIN fts_window_terms v ON v.term = j.value", tokens).await
}

async fn df(
    conn: &mut SqliteConnection,
    sql: &'static str,
    tokens: &[String],
) -> Result<HashMap<String, u64>, LaneError> {
    if tokens.is_empty() {
        return Ok(HashMap::new());
    }
    let json = serde_json::to_string(tokens).map_err(LaneError::internal)?;
    let rows = sqlx::query(sql).bind(json).fetch_all(conn).await.map_err(statement)?;
    rows.iter()
        .map(|row| {
            let term: String = row.try_get(0).map_err(statement)?;
            let doc: i64 = row.try_get(1).map_err(statement)?;
            Ok((term, doc.cast_unsigned()))
        })
        .collect()
}
