//! Exact scores: every candidate of the union gets every arm's raw score.

use std::collections::{BTreeMap, HashMap};

use lanekeeper_core::lane_client::Candidate;
use lanekeeper_core::time::format_rfc3339_ms;
use lanekeeper_core::wire::recall::Arm;
use lanekeeper_core::{EventId, LaneError, Seq};
use sqlx::{Row, SqliteConnection};

use super::terms::{FieldStats, Terms};
use super::{Pool, Question};
use crate::claims::point_id;
use crate::error::statement;
use crate::log::row::TurnBody;
use crate::store::LaneStore;
use crate::text::bm25::{TermInRow, idf, score, term_frequencies};
use crate::text::pool::cosine;

/// The arms' pools.
#[derive(Debug)]
pub(crate) struct Pools {
    pub(crate) turn: Pool,
    pub(crate) window: Pool,
    pub(crate) vector: Pool,
}

#[derive(Debug, Clone, Copy)]
struct Chosen {
    seq: Seq,
    by_text: bool,
}

impl Pools {
    /// One event a content: where a text arm found it, the one that the window field put first; else the
    /// one the vector arm gives (the newest).
    fn union(&self) -> BTreeMap<[u8; 32], Chosen> {
        let mut chosen = BTreeMap::new();
        for (content, seq) in self.window.entries.iter().chain(&self.turn.entries) {
            chosen.entry(*content).or_insert(Chosen { seq: *seq, by_text: true });
        }
        for (content, seq) in &self.vector.entries {
            chosen.entry(*content).or_insert(Chosen { seq: *seq, by_text: false });
        }
        chosen
    }

    /// Who is listed by which arm. The places of the text arms are settled by [`rank_text_by_score`].
    fn ranks(&self) -> HashMap<[u8; 32], BTreeMap<Arm, u32>> {
        let mut ranks: HashMap<[u8; 32], BTreeMap<Arm, u32>> = HashMap::new();
        for (arm, pool) in [(Arm::TurnText, &self.turn), (Arm::WindowText, &self.window), (Arm::Vector, &self.vector)] {
            for (rank, (content, _)) in (1_u32..).zip(&pool.entries) {
                ranks.entry(*content).or_default().insert(arm, rank);
            }
        }
        ranks
    }
}

impl LaneStore {
    /// Candidates of the union, each scored by every arm that was searched.
    pub(crate) async fn exact(
        &self,
        pools: &Pools,
        terms: &Terms,
        question: &Question,
        vector: Option<&[f32]>,
        floor: f32,
    ) -> Result<Vec<Candidate>, LaneError> {
        let union = pools.union();
        if union.is_empty() {
            return Ok(Vec::new());
        }
        let ranks = pools.ranks();
        let seqs: Vec<Seq> = union.values().map(|chosen| chosen.seq).collect();
        let (text, cosines, holders) = tokio::join!(
            self.text_scores(&seqs, terms),
            self.cosines(union.keys().copied(), vector),
            self.newest_holders(union.keys().copied(), question),
        );
        let (bodies, text_scores) = text?;
        let (cosines, holders) = (cosines?, holders?);
        let mut candidates = Vec::with_capacity(union.len());
        for (content, Chosen { seq, by_text }) in union {
            let cosine = cosines.get(&content).copied();
            if !by_text && cosine.is_none_or(|cosine| cosine < f64::from(floor)) {
                continue;
            }
            // Forgotten between the arms and here, or a damaged row.
            let Some(body) = bodies.get(&seq) else { continue };
            let mut scores = BTreeMap::new();
            if let Some((turn, window)) = text_scores.get(&seq)
                && terms.turn_match.is_some()
            {
                scores.insert(Arm::TurnText, *turn);
                scores.insert(Arm::WindowText, *window);
            }
            if let Some(cosine) = cosine {
                scores.insert(Arm::Vector, cosine);
            }
            let folded = holders.get(&content).map_or(0, |(_, count)| count.saturating_sub(1));
            candidates.push(body.candidate(
                seq,
                content,
                scores,
                ranks.get(&content).cloned().unwrap_or_default(),
                folded,
            ));
        }
        rank_text_by_score(&mut candidates);
        Ok(candidates)
    }

    async fn text_scores(
        &self,
        seqs: &[Seq],
        terms: &Terms,
    ) -> Result<(HashMap<Seq, StoredTurn>, HashMap<Seq, (f64, f64)>), LaneError> {
        let json = serde_json::to_string(seqs).map_err(LaneError::internal)?;
        let mut conn = self.reader().await?;
        let bodies = bodies(&mut conn, &json).await?;
        let mut scores = HashMap::new();
        if !terms.tokens.is_empty() {
            let turn = field_scores(
                &mut conn,
                "SELECT f.rowid, f.tokens FROM json_each(?) j CROSS JOIN fts_turn f ON f.rowid = j.value",
                &json,
                terms,
                &terms.turn,
            )
            .await?;
            let window = field_scores(
                &mut conn,
                "SELECT f.rowid, f.tokens FROM json_each(?) j CROSS JOIN fts_window f ON f.rowid = j.value",
                &json,
                terms,
                &terms.window,
            )
            .await?;
            for (seq, turn) in turn {
                scores.insert(seq, (turn, window.get(&seq).copied().unwrap_or(0.0)));
            }
        }
        Ok((bodies, scores))
    }

    /// Cosine of each content's best chunk. A failing engine gives none: the arm's coverage has said so.
    async fn cosines(
        &self,
        contents: impl Iterator<Item = [u8; 32]>,
        vector: Option<&[f32]>,
    ) -> Result<HashMap<[u8; 32], f64>, LaneError> {
        let Some(vector) = vector else { return Ok(HashMap::new()) };
        let hex: Vec<String> =
            contents.map(|content| lanekeeper_core::Hash32::from_bytes(content).to_string()).collect();
        let json = serde_json::to_string(&hex).map_err(LaneError::internal)?;
        let mut conn = self.reader().await?;
        let rows = sqlx::query(
            "SELECT c.content, e.id, max(c.points, 1) FROM json_each(?) j CROSS JOIN claims c ON c.content = unhex(j.value)
             CROSS JOIN events e ON e.seq = c.owner_seq WHERE c.fingerprint = ?",
        )
        .bind(json)
        .bind(self.encoder.fingerprint().to_string())
        .fetch_all(&mut *conn)
        .await
        .map_err(statement)?;
        drop(conn);
        let mut points: HashMap<uuid::Uuid, [u8; 32]> = HashMap::new();
        for row in rows {
            let content: Vec<u8> = row.try_get(0).map_err(statement)?;
            let id: Vec<u8> = row.try_get(1).map_err(statement)?;
            let count: u32 = row.try_get(2).map_err(statement)?;
            let (Ok(content), Ok(id)) = (<[u8; 32]>::try_from(content), uuid::Uuid::from_slice(&id)) else { continue };
            for n in 0..count {
                points.insert(point_id(EventId::from_uuid(id), n), content);
            }
        }
        let stored = match self.vectors.vectors(points.keys().copied().collect()).await {
            Ok(stored) => stored,
            Err(error) => {
                tracing::warn!(%error, "stored vectors were not read");
                return Ok(HashMap::new());
            }
        };
        let mut best: HashMap<[u8; 32], f64> = HashMap::new();
        for (id, stored) in stored {
            if let Some(content) = points.get(&id) {
                let score = cosine(vector, &stored);
                best.entry(*content).and_modify(|known| *known = known.max(score)).or_insert(score);
            }
        }
        Ok(best)
    }
}

/// Ranks of the text arms by exact score: FTS5's own order, with other constants and a clamped idf, only
/// chose who is in the pool. Ties: the newer turn first.
fn rank_text_by_score(candidates: &mut [Candidate]) {
    for arm in [Arm::TurnText, Arm::WindowText] {
        let score = |candidate: &Candidate| candidate.scores.get(&arm).copied().unwrap_or(0.0);
        let mut listed: Vec<&mut Candidate> =
            candidates.iter_mut().filter(|candidate| candidate.ranks.contains_key(&arm)).collect();
        listed.sort_by(|a, b| score(b).total_cmp(&score(a)).then(b.seq.cmp(&a.seq)));
        for (rank, candidate) in (1_u32..).zip(listed) {
            candidate.ranks.insert(arm, rank);
        }
    }
}

/// A turn's row and body.
#[derive(Debug)]
struct StoredTurn {
    id: EventId,
    at_ms: i64,
    session: String,
    principal: Option<String>,
    body: TurnBody,
}

impl StoredTurn {
    fn candidate(
        &self,
        seq: Seq,
        content: [u8; 32],
        scores: BTreeMap<Arm, f64>,
        ranks: BTreeMap<Arm, u32>,
        folded: u32,
    ) -> Candidate {
        let Self { id, at_ms, session, principal, body } = self;
        let TurnBody { text, role, speaker, at, metadata } = body;
        Candidate {
            event_id: *id,
            seq,
            at_ms: *at_ms,
            at: at.clone().unwrap_or_else(|| format_rfc3339_ms(*at_ms)),
            role: *role,
            speaker: speaker.clone(),
            session: session.clone(),
            principal: principal.clone(),
            text: text.clone(),
            metadata: metadata.clone(),
            content,
            scores,
            ranks,
            folded,
        }
    }
}

async fn bodies(conn: &mut SqliteConnection, json: &str) -> Result<HashMap<Seq, StoredTurn>, LaneError> {
    let rows = sqlx::query(
        "SELECT e.seq, e.id, e.at_ms, e.session, e.principal, e.body FROM json_each(?) j CROSS JOIN events e ON e.seq = j.value
         WHERE e.body IS NOT NULL AND e.kind = 'turn'",
    )
    .bind(json)
    .fetch_all(conn)
    .await
    .map_err(statement)?;
    let mut bodies = HashMap::with_capacity(rows.len());
    for row in rows {
        let seq: i64 = row.try_get(0).map_err(statement)?;
        let id: Vec<u8> = row.try_get(1).map_err(statement)?;
        let body: Vec<u8> = row.try_get(5).map_err(statement)?;
        let (Ok(id), Ok(body)) = (uuid::Uuid::from_slice(&id), serde_json::from_slice(&body)) else { continue };
        bodies.insert(
            Seq(seq.cast_unsigned()),
            StoredTurn {
                id: EventId::from_uuid(id),
                at_ms: row.try_get(2).map_err(statement)?,
                session: row.try_get(3).map_err(statement)?,
                principal: row.try_get(4).map_err(statement)?,
                body,
            },
        );
    }
    Ok(bodies)
}

async fn field_scores(
    conn: &mut SqliteConnection,
    sql: &'static str,
    json: &str,
    terms: &Terms,
    stats: &FieldStats,
) -> Result<HashMap<Seq, f64>, LaneError> {
    let tokens: Vec<&str> = terms.tokens.iter().map(String::as_str).collect();
    let idfs: Vec<f64> =
        tokens.iter().map(|token| idf(stats.df.get(*token).copied().unwrap_or(0), terms.rows)).collect();
    let rows = sqlx::query(sql).bind(json).fetch_all(conn).await.map_err(statement)?;
    let mut scores = HashMap::with_capacity(rows.len());
    for row in rows {
        let seq: i64 = row.try_get(0).map_err(statement)?;
        let text: String = row.try_get(1).map_err(statement)?;
        let (tf, length) = term_frequencies(text.split(' ').filter(|token| !token.is_empty()), &tokens);
        let terms = idfs.iter().zip(tf).map(|(idf, tf)| TermInRow { idf: *idf, tf });
        scores.insert(Seq(seq.cast_unsigned()), score(terms, length, stats.average));
    }
    Ok(scores)
}
