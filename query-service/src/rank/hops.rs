//! Joining what the wikilinks of the hits led to.
//!
//! A hit found through a link follows the hit that holds the link: with the parent in place r (from 0)
//! and the hit in place i of the link's own list, its score is 1/(60 + (r + i + 1) + 1), the share of
//! the place it would have i + 1 places after its parent. So a parent always stands before what it led
//! to, the first find ties with the parent's next neighbour, and what is appended for later parents never moves
//! anything that stands before them: the answer for a smaller `top_k` stays a prefix.
//!
//! Every item is scored by its place here, also where no link was found, so that the same item has the
//! same score whatever `top_k` is.

use super::{Ranked, rrf, total_order};

/// What one link led to.
#[derive(Debug, Clone)]
pub struct Linked {
    /// Place of the hit that holds the link, from 0.
    pub parent: usize,
    /// The link's target.
    pub target: String,
    /// What was found, best first.
    pub items: Vec<Ranked>,
}

/// Joins; an item that is found twice keeps its best place, and `via` only if a link gave it that place.
#[must_use]
pub fn join(main: Vec<Ranked>, linked: Vec<Linked>) -> Vec<Ranked> {
    let mut items: Vec<Ranked> = main
        .into_iter()
        .enumerate()
        .map(|(place, mut ranked)| {
            ranked.terms.insert("before_links", ranked.score);
            ranked.score = rrf::reciprocal(place);
            ranked
        })
        .collect();
    for Linked { parent, target, items: found } in linked {
        for (place, mut ranked) in found.into_iter().enumerate() {
            ranked.terms.insert("before_links", ranked.score);
            ranked.score = rrf::reciprocal(parent + place + 1);
            ranked.via = Some(target.clone());
            match items.iter_mut().find(|other| other.lane == ranked.lane && other.item.is_same(&ranked.item)) {
                Some(other) if other.score >= ranked.score => {}
                Some(other) => *other = ranked,
                None => items.push(ranked),
            }
        }
    }
    items.sort_by(total_order);
    items
}

/// Targets of `[[target]]`, `[[target|shown]]` and `[[target#part]]`, in order, without repeats.
#[must_use]
pub fn wikilinks(text: &str) -> Vec<String> {
    const LONGEST: usize = 256;
    let mut targets: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find("[[") {
        let inner = &rest[open + 2..];
        let Some(close) = inner.find("]]") else { break };
        // `[[a [[b]]`: the innermost opening counts.
        let inner_start = inner[..close].rfind("[[").map_or(0, |nested| nested + 2);
        let link = &inner[inner_start..close];
        let target = link.split(['|', '#']).next().unwrap_or_default().trim();
        let good = !target.is_empty() && target.chars().count() <= LONGEST && !target.contains(['\n', '\r']);
        if good && !targets.iter().any(|known| known == target) {
            targets.push(target.to_owned());
        }
        rest = &inner[close + 2..];
    }
    targets
}
