//! From a ranked item to the hit on the wire.

use std::collections::BTreeMap;

use lanekeeper_core::lane_client::{Candidate, MemoryCandidate};
use lanekeeper_core::wire::recall::{Arm, ArmScore, Hit, Surface};

use crate::auth::Reached;
use crate::rank::{Item, Ranked};

/// With `explain` every arm's score and rank and the terms of the score, else the ranks alone.
pub(super) fn hit(ranked: Ranked, lanes: &[Reached], explain: bool) -> Hit {
    let Ranked { lane, own: _, item, score, terms, decay, via } = ranked;
    let lane = lanes[lane].view().name.clone();
    let terms = explain.then(|| terms.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
    match item {
        Item::Turn(candidate) => {
            let Candidate {
                event_id,
                seq,
                at_ms: _,
                at,
                role,
                speaker,
                session,
                principal,
                text,
                metadata,
                content: _,
                scores,
                ranks,
                folded,
            } = candidate;
            Hit {
                lane,
                surface: Surface::Turns,
                id: event_id.to_string(),
                event_id,
                seq,
                at,
                role: Some(role),
                speaker,
                session: Some(session),
                owner: None,
                principal,
                text,
                score,
                arms: arms(&scores, &ranks, explain),
                terms,
                decay,
                metadata,
                via,
                folded,
            }
        }
        Item::Memory(MemoryCandidate { paragraph, score: arm_score, rank }) => {
            let scores = BTreeMap::from([(Arm::MemoryText, arm_score)]);
            let ranks = BTreeMap::from([(Arm::MemoryText, rank)]);
            Hit {
                lane,
                surface: Surface::Memory,
                id: paragraph.id,
                event_id: paragraph.event_id,
                seq: paragraph.seq,
                at: paragraph.at,
                role: None,
                speaker: None,
                session: None,
                owner: Some(paragraph.owner),
                principal: None,
                text: paragraph.text,
                score,
                arms: arms(&scores, &ranks, explain),
                terms,
                decay,
                metadata: None,
                via,
                folded: 0,
            }
        }
    }
}

fn arms(scores: &BTreeMap<Arm, f64>, ranks: &BTreeMap<Arm, u32>, explain: bool) -> BTreeMap<Arm, ArmScore> {
    let mut arms: BTreeMap<Arm, ArmScore> =
        ranks.iter().map(|(arm, rank)| (*arm, ArmScore { score: None, rank: Some(*rank) })).collect();
    if explain {
        // JSON has no NaN: a score that is no number is no score.
        for (arm, score) in scores.iter().filter(|(_, score)| score.is_finite()) {
            arms.entry(*arm).or_insert(ArmScore { score: None, rank: None }).score = Some(*score);
        }
    }
    arms
}
