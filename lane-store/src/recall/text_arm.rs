//! A text arm: FTS5 finds and orders candidates; filters apply before the pool is cut.

use futures::TryStreamExt;
use lanekeeper_core::limits::ARM_PAGES;
use lanekeeper_core::wire::recall::Arm;
use lanekeeper_core::{LaneError, Seq};
use sqlx::Row;

use super::filter::conditions;
use super::terms::Terms;
use super::{Pool, Question, distinct, pool_size};
use crate::error::statement;
use crate::store::LaneStore;

/// One of the two text fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    arm: Arm,
    sql: &'static str,
}

/// The turn itself.
pub(crate) const TURN: Field = Field {
    arm: Arm::TurnText,
    sql: concat!(
        "SELECT t.content, t.seq FROM fts_turn JOIN turns t ON t.seq = fts_turn.rowid WHERE fts_turn MATCH ?1",
        conditions!(),
        "ORDER BY bm25(fts_turn), t.seq DESC LIMIT ?7"
    ),
};

/// The turn with the two before it.
pub(crate) const WINDOW: Field = Field {
    arm: Arm::WindowText,
    sql: concat!(
        "SELECT t.content, t.seq FROM fts_window JOIN turns t ON t.seq = fts_window.rowid WHERE fts_window MATCH ?1",
        conditions!(),
        "ORDER BY bm25(fts_window), t.seq DESC LIMIT ?7"
    ),
};

impl LaneStore {
    /// The pool of one field, or why it was not searched.
    pub(crate) async fn text_arm(
        &self,
        field: Field,
        terms: &Terms,
        question: &Question,
        off: bool,
    ) -> Result<Pool, String> {
        if off {
            return Err("not_requested".into());
        }
        let expression = match field.arm {
            Arm::TurnText => &terms.turn_match,
            Arm::WindowText => &terms.window_match,
            Arm::Vector | Arm::MemoryText => return Err("not_requested".into()),
        };
        let Some(expression) = expression else { return Err("no_searchable_terms".into()) };
        self.text_pool(field.sql, expression, question).await.map_err(|error| {
            tracing::warn!(arm = ?field.arm, code = error.code(), "a text arm failed");
            "text_unavailable".into()
        })
    }

    async fn text_pool(&self, sql: &'static str, expression: &str, question: &Question) -> Result<Pool, LaneError> {
        let mut conn = self.reader().await?;
        let most = i64::try_from(pool_size() * ARM_PAGES).unwrap_or(i64::MAX);
        let query = question.filter.bind(sqlx::query(sql).bind(expression)).bind(most);
        let mut rows = query.fetch(&mut *conn);
        let mut found = Vec::new();
        let mut contents = std::collections::HashSet::new();
        // Rows come in order, so reading stops as soon as the pool is full.
        while contents.len() < pool_size() {
            let Some(row) = rows.try_next().await.map_err(statement)? else { break };
            let content: Vec<u8> = row.try_get(0).map_err(statement)?;
            let seq: i64 = row.try_get(1).map_err(statement)?;
            let Ok(content) = <[u8; 32]>::try_from(content) else { continue };
            let seq = Seq(seq.cast_unsigned());
            if !self.state.is_bad(seq) {
                contents.insert(content);
            }
            found.push((content, seq));
        }
        Ok(distinct(found, |seq| self.state.is_bad(seq)))
    }
}
