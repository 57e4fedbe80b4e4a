//! Ranking: from the raw arm scores of several lanes to one total order. Pure: no clock, no I/O.
//!
//! What must always hold: every score is finite; the order is total (score, own lanes first, seq
//! descending, id, lane), so equal input gives equal output; nothing here knows `top_k`, so an answer
//! cut at k is a prefix of one cut later.
//!
//! How lists become one list
//! - Lanes ranked `fused` that share a fingerprint and a pooling have comparable cosines: they are one
//!   list, normalised over the union and fused once ([`fuse`]).
//! - A fused score means nothing beside that of another fingerprint, nor beside the BM25 of curated
//!   paragraphs. Such lists join by reciprocal rank ([`rrf::reciprocal`]): an item stands in one list
//!   only, so joining interleaves the lists and keeps the order within each. Scores are then
//!   reciprocal ranks; the fused score stays readable in `explain` as `within_list`. A list that found
//!   nothing does not make the others join: one list alone keeps its own scores.
//! - Lanes ranked `rrf`: their arms are the lists, and an item's score is the sum over the arms that
//!   listed it (with the bounded age factor). If every lane is ranked so, the curated list is one more
//!   arm. Beside fused lanes their items are first put in this order, then that order joins as one
//!   list: sums over three arms would otherwise always beat a list that can give 1/61 at most.

pub mod date_match;
pub mod fuse;
pub mod hops;
pub mod rrf;
pub mod steps;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use lanekeeper_core::fingerprint::Fingerprint;
use lanekeeper_core::hooks::guard;
use lanekeeper_core::ids::Seq;
use lanekeeper_core::lane::Ranking;
use lanekeeper_core::lane_client::{Candidate, MemoryCandidate, StoreAnswer};
use lanekeeper_core::wire::recall::Arm;

pub use steps::Steps;

/// What one lane found, and how it wants it ranked.
#[derive(Debug, Clone)]
pub struct Found {
    /// Index of the lane among the lanes in scope.
    pub lane: usize,
    /// The caller's own lane, not one it reads.
    pub own: bool,
    /// The lane's ranking, or the request's.
    pub ranking: Ranking,
    /// What its vectors are comparable with.
    pub fingerprint: Fingerprint,
    /// Half-life of the age term, milliseconds.
    pub half_life_ms: Option<i64>,
    /// The lane's answer.
    pub answer: StoreAnswer,
}

/// A turn or a curated paragraph.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A turn with every arm's score.
    Turn(Candidate),
    /// A paragraph.
    Memory(MemoryCandidate),
}

impl Item {
    fn seq(&self) -> Seq {
        match self {
            Self::Turn(candidate) => candidate.seq,
            Self::Memory(candidate) => candidate.paragraph.seq,
        }
    }

    fn id(&self) -> String {
        match self {
            Self::Turn(candidate) => candidate.event_id.to_string(),
            Self::Memory(candidate) => candidate.paragraph.id.clone(),
        }
    }

    /// The text, as sent.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Turn(candidate) => &candidate.text,
            Self::Memory(candidate) => &candidate.paragraph.text,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Turn(a), Self::Turn(b)) => a.event_id == b.event_id,
            (Self::Memory(a), Self::Memory(b)) => a.paragraph.id == b.paragraph.id,
            (Self::Turn(_), Self::Memory(_)) | (Self::Memory(_), Self::Turn(_)) => false,
        }
    }
}

/// An item with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// Index of the lane among the lanes in scope.
    pub lane: usize,
    /// The caller's own lane.
    pub own: bool,
    /// What was found.
    pub item: Item,
    /// Finite. Comparable within one answer only.
    pub score: f64,
    /// The named parts of the score.
    pub terms: BTreeMap<&'static str, f64>,
    /// The age term (fused) or factor (rrf) that entered; `None` where the lane has no half-life.
    pub decay: Option<f64>,
    /// The wikilink that led here.
    pub via: Option<String>,
}

/// One order over everything found.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Best first.
    pub items: Vec<Ranked>,
    /// How many lists with hits were joined by reciprocal rank; 0 or 1: none were.
    pub lists: usize,
}

/// Ranks all that the lanes found.
#[must_use]
pub fn rank(found: Vec<Found>, query: &str, steps: &Steps, now_ms: i64) -> Outcome {
    let mut memory = Vec::new();
    let mut fused_groups: BTreeMap<(Fingerprint, Option<String>), Vec<Found>> = BTreeMap::new();
    let mut by_rank = Vec::new();
    for mut lane in found {
        for candidate in std::mem::take(&mut lane.answer.memory) {
            memory.push(paragraph(lane.lane, lane.own, candidate));
        }
        let method = if steps.score_fusion { lane.ranking } else { Ranking::Rrf };
        match method {
            Ranking::Fused => {
                let key = (lane.fingerprint, lane.answer.pooling.clone());
                fused_groups.entry(key).or_default().push(lane);
            }
            Ranking::Rrf => by_rank.push(lane),
        }
    }
    memory.sort_by(total_order);
    let all_by_rank = fused_groups.is_empty();
    let mut lists: Vec<Vec<Ranked>> =
        fused_groups.into_values().map(|group| fuse::fuse(group, query, steps, now_ms)).collect();
    let mut pool = rrf::pool(by_rank, steps, now_ms);
    if all_by_rank {
        pool.extend(reciprocal_scores(memory));
        pool.sort_by(total_order);
        return Outcome { items: pool, lists: 1 };
    }
    lists.push(pool);
    lists.push(memory);
    join(lists)
}

fn paragraph(lane: usize, own: bool, candidate: MemoryCandidate) -> Ranked {
    let score = finite(candidate.score);
    Ranked {
        lane,
        own,
        item: Item::Memory(candidate),
        score,
        terms: BTreeMap::from([("memory_text", score)]),
        decay: None,
        via: None,
    }
}

fn join(lists: Vec<Vec<Ranked>>) -> Outcome {
    let mut lists: Vec<Vec<Ranked>> = lists.into_iter().filter(|list| !list.is_empty()).collect();
    let count = lists.len();
    if count <= 1 {
        return Outcome { items: lists.pop().unwrap_or_default(), lists: count };
    }
    let mut items: Vec<Ranked> = lists.into_iter().flat_map(reciprocal_scores).collect();
    items.sort_by(total_order);
    Outcome { items, lists: count }
}

/// Replaces each score of an ordered list by the reciprocal of its place.
fn reciprocal_scores(list: Vec<Ranked>) -> Vec<Ranked> {
    list.into_iter()
        .enumerate()
        .map(|(place, mut ranked)| {
            ranked.terms.insert("within_list", ranked.score);
            ranked.score = rrf::reciprocal(place);
            ranked
        })
        .collect()
}

/// Score descending, own lanes first, the newer first, then id and lane: no two items are equal.
pub(crate) fn total_order(a: &Ranked, b: &Ranked) -> Ordering {
    b.score
        .total_cmp(&a.score)
        .then_with(|| b.own.cmp(&a.own))
        .then_with(|| b.item.seq().cmp(&a.item.seq()))
        .then_with(|| a.item.id().cmp(&b.item.id()))
        .then_with(|| a.lane.cmp(&b.lane))
}

/// A number that can be ordered: what is not finite counts as 0, and -0 as 0.
pub(crate) fn finite(value: f64) -> f64 {
    if value.is_finite() { value + 0.0 } else { 0.0 }
}

/// The score an arm gave, if it gave a usable one.
fn arm_score(candidate: &Candidate, arm: Arm) -> Option<f64> {
    candidate.scores.get(&arm).copied().filter(|score| score.is_finite())
}

/// Whether a candidate may leave its lane: a term that is no stop word matched, or its cosine reaches
/// the floor. The store drops the rest already; a lane that does not must not reach the answer.
fn passes_gate(candidate: &Candidate, floor: Option<f32>) -> bool {
    let text = [Arm::TurnText, Arm::WindowText]
        .into_iter()
        .any(|arm| candidate.ranks.contains_key(&arm) || arm_score(candidate, arm).is_some_and(|score| score > 0.0));
    let vector = arm_score(candidate, Arm::Vector).is_some_and(|cosine| {
        floor.map_or_else(|| candidate.ranks.contains_key(&Arm::Vector), |f| cosine >= f64::from(f))
    });
    text || vector || !guard("lane_gate")
}

/// `.5^(age/half-life)`; age is never under 0, so a time ahead of the clock counts as now.
fn age_factor(at_ms: i64, now_ms: i64, half_life_ms: Option<i64>) -> Option<f64> {
    let half_life = half_life_ms.filter(|half_life| *half_life > 0)?;
    let age = now_ms.saturating_sub(at_ms).max(0);
    #[expect(clippy::cast_precision_loss, reason = "ages in milliseconds lie far under 2^53")]
    let halvings = age as f64 / half_life as f64;
    Some(0.5_f64.powf(halvings))
}

#[cfg(test)]
pub(crate) mod tests;
