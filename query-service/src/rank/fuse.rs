//! Score fusion: the pipeline P3 that was measured best (decision 0030).
//!
//! S = 1.5 v̂ + 1.0 B̂w + .25 B̂o + .25 ŝ + 1.0 D + .2 SPK − .2 ASK (+ .05 · .5^(age/half-life))
//!
//! v̂ is the cosine, min-max over the candidates that have one (1 if all are equal); a candidate without
//! vectors counts as the lowest, 0. B̂w and B̂o are BM25 of the window field and of the turn's own,
//! divided by their maximum. ŝ is the best of 1.5 v̂ + B̂w + .25 B̂o in the candidate's session, divided
//! by the maximum over sessions. D is [`super::date_match`]. SPK: said by the one known speaker whose name
//! stands in the question. ASK: the text ends in a question mark; it and SPK only in lanes with speakers.
//! Sums, not products: nothing multiplies a fused score, age included.
//!
//! All lanes of one call have one fingerprint and one pooling, so their cosines are comparable; BM25 is
//! each lane's own, as in a collection searched alone.

use std::collections::{BTreeMap, HashMap};

use lanekeeper_core::lane_client::Candidate;
use lanekeeper_core::wire::recall::Arm;

use super::date_match::Dates;
use super::{Found, Item, Ranked, Steps, age_factor, arm_score, finite, passes_gate, total_order};

const SESSION: f64 = 0.25;
const DATE: f64 = 1.0;
const SPEAKER: f64 = 0.2;
const QUESTION: f64 = -0.2;
const DECAY: f64 = 0.05;

/// Weights of vector, window text and turn text. Without the window field the pipeline is P1, which was
/// measured with equal weights.
const fn weights(steps: &Steps) -> (f64, f64, f64) {
    if steps.window_text { (1.5, 1.0, 0.25) } else { (1.0, 0.0, 1.0) }
}

/// The name of an arm's term in `explain`.
pub(super) const fn term_name(arm: Arm) -> &'static str {
    match arm {
        Arm::Vector => "vector",
        Arm::WindowText => "window_text",
        Arm::TurnText => "turn_text",
        Arm::MemoryText => "memory_text",
    }
}

/// The one speaker named in the question, if exactly one is.
#[derive(Clone)]
struct Speakers(Option<String>);

/// A candidate with the facts of its lane.
struct Entry {
    lane: usize,
    own: bool,
    half_life_ms: Option<i64>,
    /// Only where the lane has speakers.
    speakers: Option<Speakers>,
    candidate: Candidate,
}

/// Fuses the turns of the lanes of one fingerprint and pooling.
#[must_use]
pub fn fuse(group: Vec<Found>, query: &str, steps: &Steps, now_ms: i64) -> Vec<Ranked> {
    let entries = entries(group);
    let dates = if steps.date { Dates::read(query) } else { Dates::default() };
    let base = base_terms(&entries, steps);
    let sessions = session_scores(&entries, &base);
    let mut items: Vec<Ranked> = entries
        .into_iter()
        .zip(base)
        .map(|(entry, mut terms)| {
            if steps.session {
                let best = sessions.get(&(entry.lane, entry.candidate.session.clone())).copied();
                terms.insert("session", SESSION * best.unwrap_or(0.0));
            }
            if !dates.is_empty() {
                terms.insert("date", DATE * dates.score(entry.candidate.at_ms));
            }
            if let Some(Speakers(named)) = &entry.speakers {
                if steps.speaker && is_said_by(&entry.candidate, named.as_deref()) {
                    terms.insert("speaker", SPEAKER);
                }
                if steps.question && asks(&entry.candidate.text) {
                    terms.insert("question", QUESTION);
                }
            }
            let half_life = entry.half_life_ms.filter(|_| steps.decay);
            let decay = age_factor(entry.candidate.at_ms, now_ms, half_life).map(|factor| DECAY * factor);
            if let Some(decay) = decay {
                terms.insert("decay", decay);
            }
            Ranked {
                lane: entry.lane,
                own: entry.own,
                score: finite(terms.values().sum()),
                item: Item::Turn(entry.candidate),
                terms,
                decay,
                via: None,
            }
        })
        .collect();
    items.sort_by(total_order);
    items
}

fn entries(group: Vec<Found>) -> Vec<Entry> {
    let mut entries = Vec::new();
    for lane in group {
        let speakers = lane.answer.has_speakers.then_some(Speakers(lane.answer.speaker_in_query));
        for candidate in lane.answer.candidates {
            if passes_gate(&candidate, lane.answer.floor) {
                entries.push(Entry {
                    lane: lane.lane,
                    own: lane.own,
                    half_life_ms: lane.half_life_ms,
                    speakers: speakers.clone(),
                    candidate,
                });
            }
        }
    }
    entries
}

/// The normalised arms, each with its weight.
fn base_terms(entries: &[Entry], steps: &Steps) -> Vec<BTreeMap<&'static str, f64>> {
    let (vector_weight, window_weight, turn_weight) = weights(steps);
    let cosines = || entries.iter().filter_map(|entry| arm_score(&entry.candidate, Arm::Vector));
    let lowest = cosines().fold(f64::INFINITY, f64::min);
    let highest = cosines().fold(f64::NEG_INFINITY, f64::max);
    let text_max = |arm: Arm| entries.iter().map(|entry| text_score(&entry.candidate, arm)).fold(0.0, f64::max);
    let window_max = text_max(Arm::WindowText);
    let turn_max = text_max(Arm::TurnText);
    let share = |score: f64, max: f64| if max > 0.0 { score / max } else { 0.0 };
    entries
        .iter()
        .map(|entry| {
            let mut terms = BTreeMap::new();
            if steps.vector && lowest <= highest {
                let normalised = arm_score(&entry.candidate, Arm::Vector)
                    .map_or(0.0, |cosine| if highest > lowest { (cosine - lowest) / (highest - lowest) } else { 1.0 });
                terms.insert(term_name(Arm::Vector), vector_weight * finite(normalised));
            }
            if steps.window_text {
                let score = share(text_score(&entry.candidate, Arm::WindowText), window_max);
                terms.insert(term_name(Arm::WindowText), window_weight * score);
            }
            if steps.turn_text {
                let score = share(text_score(&entry.candidate, Arm::TurnText), turn_max);
                terms.insert(term_name(Arm::TurnText), turn_weight * score);
            }
            terms
        })
        .collect()
}

/// BM25 is never under 0; a value that is, or that is no number, counts as no match.
fn text_score(candidate: &Candidate, arm: Arm) -> f64 {
    arm_score(candidate, arm).unwrap_or(0.0).max(0.0)
}

/// The best base score of each session, divided by the maximum. Sessions of two lanes are two.
fn session_scores(entries: &[Entry], base: &[BTreeMap<&'static str, f64>]) -> HashMap<(usize, String), f64> {
    let mut best: HashMap<(usize, String), f64> = HashMap::new();
    for (entry, terms) in entries.iter().zip(base) {
        let score: f64 = terms.values().sum();
        let slot = best.entry((entry.lane, entry.candidate.session.clone())).or_insert(0.0);
        *slot = slot.max(score);
    }
    let max = best.values().copied().fold(0.0, f64::max);
    if max > 0.0 {
        best.values_mut().for_each(|score| *score /= max);
    }
    best
}

fn is_said_by(candidate: &Candidate, named: Option<&str>) -> bool {
    match (candidate.speaker.as_deref(), named) {
        (Some(speaker), Some(named)) => speaker.trim().to_lowercase() == named.trim().to_lowercase(),
        _ => false,
    }
}

fn asks(text: &str) -> bool {
    text.trim_end().ends_with(['?', '？'])
}
