//! Reciprocal rank fusion, the usual form: 1/(60 + rank + 1) with the first rank 0.
//!
//! Kept beside [`super::fuse`] as the plain method, and as the way to join lists whose scores are not
//! comparable. Age multiplies here, within bounds: ranks 1 and 60 differ only twofold, so a factor that
//! could reach 0 would outweigh the whole ranking.

use std::collections::BTreeMap;

use lanekeeper_core::wire::recall::Arm;

use super::{Found, Item, Ranked, Steps, age_factor, passes_gate, total_order};

/// The usual constant.
const K: f64 = 60.0;
/// What the age factor can take away at most is 1 - this.
const DECAY_FLOOR: f64 = 0.8;

/// The share of one list in an item's score; `rank` counts from 0.
#[must_use]
pub fn reciprocal(rank: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "ranks are far under 2^53")]
    let rank = rank as f64;
    1.0 / (K + rank + 1.0)
}

/// Each arm of each lane is a list; an item's score is the sum over the arms that listed it.
#[must_use]
pub fn pool(found: Vec<Found>, steps: &Steps, now_ms: i64) -> Vec<Ranked> {
    let off = steps.arms_off();
    let mut items = Vec::new();
    for lane in found {
        let half_life = lane.half_life_ms.filter(|_| steps.decay);
        for candidate in lane.answer.candidates {
            if !passes_gate(&candidate, lane.answer.floor) {
                continue;
            }
            let terms: BTreeMap<&'static str, f64> = [Arm::Vector, Arm::WindowText, Arm::TurnText]
                .into_iter()
                .filter(|arm| !off.contains(arm))
                .filter_map(|arm| {
                    let rank = usize::try_from(*candidate.ranks.get(&arm)?).ok()?;
                    Some((super::fuse::term_name(arm), reciprocal(rank.saturating_sub(1))))
                })
                .collect();
            let decay =
                age_factor(candidate.at_ms, now_ms, half_life).map(|factor| DECAY_FLOOR + (1.0 - DECAY_FLOOR) * factor);
            let score = terms.values().sum::<f64>() * decay.unwrap_or(1.0);
            items.push(Ranked {
                lane: lane.lane,
                own: lane.own,
                item: Item::Turn(candidate),
                score,
                terms,
                decay,
                via: None,
            });
        }
    }
    items.sort_by(total_order);
    items
}
