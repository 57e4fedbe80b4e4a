//! Curated paragraphs in recall: text only, scored over what this caller may read and nothing else.

use lanekeeper_core::lane_client::{Caller, MemoryCandidate};
use lanekeeper_core::limits::ARM_POOL;
use lanekeeper_core::scope::{Action, Decision};
use lanekeeper_core::time::format_rfc3339_ms;
use lanekeeper_core::wire::memory::Paragraph;
use lanekeeper_core::wire::recall::ArmCoverage;
use lanekeeper_core::{EventId, LaneError, Seq};
use sqlx::{Row, SqliteConnection};

use super::Question;
use crate::error::statement;
use crate::store::LaneStore;
use crate::text::analyze::query_terms;
use crate::text::bm25::{TermInRow, idf, score, term_frequencies};

/// A paragraph with its tokens.
#[derive(Debug)]
pub(crate) struct StoredParagraph {
    pub(crate) paragraph: Paragraph,
    pub(crate) at_ms: i64,
    pub(crate) tokens: String,
}

/// Paragraphs of the owners whose memory this caller may read, by owner and position.
pub(crate) async fn readable(conn: &mut SqliteConnection, caller: &Caller) -> Result<Vec<StoredParagraph>, LaneError> {
    let owners: Vec<String> = sqlx::query_scalar("SELECT owner FROM memory_files ORDER BY owner")
        .fetch_all(&mut *conn)
        .await
        .map_err(statement)?;
    let owners: Vec<String> =
        owners.into_iter().filter(|owner| caller.on_memory(owner, Action::MemoryRead) == Decision::Auto).collect();
    let json = serde_json::to_string(&owners).map_err(LaneError::internal)?;
    let rows = sqlx::query(
        "SELECT para_id, owner, position, event_seq, event_id, at_ms, tokens, text FROM memory_paragraphs
         WHERE owner IN (SELECT value FROM json_each(?)) ORDER BY owner, position",
    )
    .bind(json)
    .fetch_all(conn)
    .await
    .map_err(statement)?;
    rows.iter()
        .map(|row| {
            let seq: i64 = row.try_get(3).map_err(statement)?;
            let id: Vec<u8> = row.try_get(4).map_err(statement)?;
            let at_ms: i64 = row.try_get(5).map_err(statement)?;
            Ok(StoredParagraph {
                paragraph: Paragraph {
                    id: row.try_get(0).map_err(statement)?,
                    owner: row.try_get(1).map_err(statement)?,
                    position: row.try_get(2).map_err(statement)?,
                    text: row.try_get(7).map_err(statement)?,
                    event_id: EventId::from_uuid(uuid::Uuid::from_slice(&id).map_err(LaneError::internal)?),
                    seq: Seq(seq.cast_unsigned()),
                    at: format_rfc3339_ms(at_ms),
                },
                at_ms,
                tokens: row.try_get(6).map_err(statement)?,
            })
        })
        .collect()
}

impl LaneStore {
    pub(crate) async fn recall_paragraphs(
        &self,
        conn: &mut SqliteConnection,
        caller: &Caller,
        query: &str,
        question: &Question,
    ) -> Result<(Vec<MemoryCandidate>, ArmCoverage), LaneError> {
        let terms = query_terms(query, question.language);
        if !terms.searchable() {
            return Ok((Vec::new(), ArmCoverage::skipped("no_searchable_terms")));
        }
        // As on disk; where the disk gives no answer, as last written.
        let mut paragraphs = match self.visible_memory(conn, caller).await {
            Ok(visible) => visible.paragraphs,
            Err(_) => readable(conn, caller).await?,
        };
        paragraphs.retain(|stored| question.filter.admits_time(stored.at_ms));
        let tokens: Vec<&str> = terms.terms.iter().map(|term| term.token.as_str()).collect();
        let counted: Vec<(Vec<u32>, u32)> = paragraphs
            .iter()
            .map(|stored| term_frequencies(stored.tokens.split(' ').filter(|t| !t.is_empty()), &tokens))
            .collect();
        let rows = paragraphs.len() as u64;
        let idfs: Vec<f64> = (0..tokens.len())
            .map(|term| idf(counted.iter().filter(|(tf, _)| tf[term] > 0).count() as u64, rows))
            .collect();
        let total: u64 = counted.iter().map(|(_, length)| u64::from(*length)).sum();
        #[expect(clippy::cast_precision_loss, reason = "an average of lengths")]
        let average = total as f64 / (rows.max(1)) as f64;
        let mut found: Vec<(f64, Paragraph)> = paragraphs
            .into_iter()
            .zip(counted)
            .map(|(stored, (tf, length))| {
                let terms = idfs.iter().zip(tf).map(|(idf, tf)| TermInRow { idf: *idf, tf });
                (score(terms, length, average), stored.paragraph)
            })
            .filter(|(score, _)| *score > 0.0)
            .collect();
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.seq.cmp(&a.1.seq)).then(a.1.id.cmp(&b.1.id)));
        found.truncate(ARM_POOL);
        let candidates =
            (1_u32..).zip(found).map(|(rank, (score, paragraph))| MemoryCandidate { paragraph, score, rank }).collect();
        // That curated memory is searched by text alone is no gap of this arm: the edge says it once.
        Ok((candidates, ArmCoverage::searched()))
    }
}
