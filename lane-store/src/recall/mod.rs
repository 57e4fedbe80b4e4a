//! Recall in one lane: arms, pools, exact scores. Fusion is query-service's.
//!
//! # Flow
//! 1. Both text arms and the question's encoding run side by side.
//! 2. The vector arm starts when the encoding is there.
//! 3. Each arm holds 100 valid, distinct contents (filters and tombstones apply before the pool is cut).
//! 4. Every candidate of the union gets every arm's exact score.
//! 5. Candidates that only the vector arm found must reach the floor.
//!
//! What must always hold: no arm's failure fails the recall; each arm says whether it was searched, and
//! `top_k` never enters.

pub(crate) mod exact;
pub(crate) mod filter;
pub(crate) mod paragraphs;
pub(crate) mod terms;
pub(crate) mod text_arm;
pub(crate) mod vector_arm;

use std::collections::BTreeMap;
use std::sync::Arc;

use lanekeeper_core::encoder::QueryEncoding;
use lanekeeper_core::lane::Language;
use lanekeeper_core::lane_client::{Caller, StoreAnswer, StoreRecall};
use lanekeeper_core::wire::events::TurnRole;
use lanekeeper_core::wire::recall::{Arm, ArmCoverage, LaneCounts, Surface};
use lanekeeper_core::{LaneError, Seq};
use sqlx::{Row, SqliteConnection};

use self::filter::TurnFilter;
use self::terms::Terms;
use crate::error::statement;
use crate::store::LaneStore;
use crate::text::speakers::KnownSpeakers;

/// Floor where neither the lane nor the embedder gives one.
const FLOOR_DEFAULT: f32 = 0.35;
/// Terms that go into a full-text query; the rest of a long prompt counts in the exact score alone.
const MATCHED_TERMS: usize = 24;

/// One arm's pool: distinct contents in the arm's order.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Content and the event it was found by.
    pub(crate) entries: Vec<([u8; 32], Seq)>,
}

/// What both text arms and the vector arm share.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) language: Language,
    pub(crate) filter: TurnFilter,
    pub(crate) speakers: KnownSpeakers,
}

impl LaneStore {
    /// Candidates of every arm. The caller is admitted already.
    pub(crate) async fn recall_turns(&self, caller: &Caller, request: StoreRecall) -> Result<StoreAnswer, LaneError> {
        let StoreRecall { query, encoding, fingerprint, surfaces, filter, arms_off, idf_pooling, deadline_ms } =
            request;
        let settings = self.settings();
        let mut conn = self.reader().await?;
        let names = speakers(&mut conn).await?;
        let speakers = KnownSpeakers::new(&names);
        let question =
            Question { language: settings.language, filter: TurnFilter::new(&filter, &self.keys)?, speakers };
        let mut arms = BTreeMap::new();
        let searches_turns = surfaces.contains(&Surface::Turns) && question.filter.admits_turns;
        let mut answer = StoreAnswer {
            candidates: Vec::new(),
            memory: Vec::new(),
            arms: BTreeMap::new(),
            counts: self.counts(&mut conn).await?,
            floor: None,
            pooling: None,
            has_speakers: !question.speakers.is_empty(),
            speaker_in_query: question.speakers.named_in(&query).map(str::to_owned),
        };
        if surfaces.contains(&Surface::Memory) && question.filter.admits_memory && !arms_off.contains(&Arm::MemoryText)
        {
            let (memory, coverage) = self.recall_paragraphs(&mut conn, caller, &query, &question).await?;
            answer.memory = memory;
            arms.insert(Arm::MemoryText, coverage);
        } else {
            arms.insert(Arm::MemoryText, ArmCoverage::skipped("not_requested"));
        }
        if !searches_turns {
            for arm in [Arm::TurnText, Arm::WindowText, Arm::Vector] {
                arms.insert(arm, ArmCoverage::skipped("not_requested"));
            }
            answer.arms = arms;
            return Ok(answer);
        }
        let text_off = [Arm::TurnText, Arm::WindowText].map(|arm| arms_off.contains(&arm));
        let terms = Terms::of(&mut conn, &query, question.language).await?;
        drop(conn);
        let wrong_model = fingerprint != self.encoder.fingerprint();
        let (turn_pool, window_pool, found) = tokio::join!(
            self.text_arm(text_arm::TURN, &terms, &question, text_off[0]),
            self.text_arm(text_arm::WINDOW, &terms, &question, text_off[1]),
            async {
                if arms_off.contains(&Arm::Vector) {
                    return Err("not_requested".to_owned());
                }
                if wrong_model {
                    return Err("fingerprint_mismatch".to_owned());
                }
                let encoding: Arc<QueryEncoding> = encoding.await?;
                if self.clock.now_ms() >= deadline_ms {
                    return Err("deadline".to_owned());
                }
                self.vector_arm(&encoding, &question, idf_pooling).await
            }
        );
        let turn_pool = note(&mut arms, Arm::TurnText, turn_pool);
        let window_pool = note(&mut arms, Arm::WindowText, window_pool);
        let (vector, vector_pool) = match found {
            Ok((vector, pool, dangling)) => {
                answer.counts.dangling_skipped = dangling;
                answer.pooling =
                    Some(if self.encoder.has_token_states() { "idf_weighted" } else { "server" }.to_owned());
                arms.insert(Arm::Vector, ArmCoverage::searched());
                (Some(vector), pool)
            }
            Err(reason) => {
                arms.insert(Arm::Vector, ArmCoverage::skipped(reason));
                (None, Pool::default())
            }
        };
        if let Some(coverage) = arms.get_mut(&Arm::Vector) {
            let mut conn = self.reader().await?;
            coverage.roles_left_out = roles_left_out(&mut conn, &settings.projected_roles, &question.filter).await?;
            if coverage.searched && self.vectors.has_shadow() {
                coverage.reason = Some("rebuilding".into());
            }
        }
        let floor = settings
            .min_score
            .or_else(|| self.encoder.baseline().map(|baseline| baseline.p99))
            .unwrap_or(FLOOR_DEFAULT);
        answer.floor = vector.as_ref().map(|_| floor);
        let pools = exact::Pools { turn: turn_pool, window: window_pool, vector: vector_pool };
        answer.candidates = self.exact(&pools, &terms, &question, vector.as_deref(), floor).await?;
        answer.counts.folded = answer.candidates.iter().map(|candidate| u64::from(candidate.folded)).sum();
        answer.arms = arms;
        Ok(answer)
    }

    /// Counts of the lane. Every caller that may recall sees all its turns.
    pub(crate) async fn counts(&self, conn: &mut SqliteConnection) -> Result<LaneCounts, LaneError> {
        let row = sqlx::query(
            "SELECT turns, unattributed,
                 (SELECT count(*) FROM claims c JOIN claim_events e ON e.content = c.content
                  WHERE (c.state = 'RUNNING' OR c.payload_stale = 1) AND c.state = 'RUNNING')
             FROM text_stats WHERE id = 1",
        )
        .fetch_one(conn)
        .await
        .map_err(statement)?;
        let number = |index: usize| row.try_get::<i64, _>(index).map(i64::cast_unsigned).map_err(statement);
        let (events, unattributed) = (number(0)?, number(1)?);
        Ok(LaneCounts {
            events,
            searchable: events.saturating_sub(unattributed),
            pending_projection: number(2)?,
            unattributed_excluded: unattributed,
            dangling_skipped: 0,
            folded: 0,
        })
    }
}

fn note(arms: &mut BTreeMap<Arm, ArmCoverage>, arm: Arm, outcome: Result<Pool, String>) -> Pool {
    match outcome {
        Ok(pool) => {
            arms.insert(arm, ArmCoverage::searched());
            pool
        }
        Err(reason) => {
            arms.insert(arm, ArmCoverage::skipped(reason));
            Pool::default()
        }
    }
}

/// Distinct speakers, by skipping through the index: a scan would read every turn.
pub(crate) async fn speakers(conn: &mut SqliteConnection) -> Result<Vec<String>, LaneError> {
    sqlx::query_scalar(
        "WITH RECURSIVE s (name) AS (
             SELECT min(speaker) FROM turns WHERE speaker IS NOT NULL
             UNION ALL
             SELECT (SELECT min(speaker) FROM turns WHERE speaker IS NOT NULL AND speaker > s.name) FROM s WHERE s.name IS NOT NULL
             LIMIT 4096)
         SELECT name FROM s WHERE name IS NOT NULL",
    )
    .fetch_all(conn)
    .await
    .map_err(statement)
}

/// Roles that have turns this question could reach and that get no vectors.
async fn roles_left_out(
    conn: &mut SqliteConnection,
    projected: &lanekeeper_core::lane::ProjectedRoles,
    filter: &TurnFilter,
) -> Result<Vec<TurnRole>, LaneError> {
    let mut left_out = Vec::new();
    for role in [TurnRole::User, TurnRole::Assistant, TurnRole::Tool, TurnRole::System] {
        if projected.contains(&role) || !filter.admits_role(role) {
            continue;
        }
        let any: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM turns WHERE role = ?)")
            .bind(role.as_str())
            .fetch_one(&mut *conn)
            .await
            .map_err(statement)?;
        if any {
            left_out.push(role);
        }
    }
    Ok(left_out)
}

/// Takes an arm's listing into a pool of distinct contents.
pub(crate) fn distinct(found: impl IntoIterator<Item = ([u8; 32], Seq)>, is_bad: impl Fn(Seq) -> bool) -> Pool {
    let mut seen = std::collections::HashSet::new();
    let mut pool = Pool::default();
    for (content, seq) in found {
        if pool.entries.len() >= pool_size() {
            break;
        }
        if !is_bad(seq) && seen.insert(content) {
            pool.entries.push((content, seq));
        }
    }
    pool
}

/// What an arm holds. The guard's test shows that a smaller pool loses what filters would have let through.
pub(crate) fn pool_size() -> usize {
    if lanekeeper_core::hooks::guard("candidate_pool") { lanekeeper_core::limits::ARM_POOL } else { 3 }
}
