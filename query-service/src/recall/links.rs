//! Following the `[[wikilinks]]` of the hits, each as one more question inside the hit's own lane.
//!
//! Links are taken from the first `top_k` hits, in their order, until the budget is spent; one level deep.
//! What they find is joined by [`crate::rank::hops`].

use std::collections::HashSet;

use futures::future::join_all;
use lanekeeper_core::lane::Ranking;
use lanekeeper_core::wire::recall::Surface;
use tokio::time::Instant;

use super::search::{Question, search};
use super::{Setting, found};
use crate::auth::Reached;
use crate::rank::hops::{Linked, wikilinks};
use crate::rank::{self, Ranked};

/// How far to go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    pub(super) top_k: usize,
    pub(super) budget: u32,
}

/// What came of it.
pub(super) struct Followed {
    pub(super) linked: Vec<Linked>,
    /// Lane (by index) and reason of each link that was not asked, or not wholly.
    pub(super) failed: Vec<FailedLink>,
}

/// A link that was not asked by every arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FailedLink {
    pub(super) lane: lanekeeper_core::LaneName,
    pub(super) reason: String,
}

struct Link {
    parent: usize,
    lane: usize,
    target: String,
}

pub(super) async fn follow(
    lanes: &[Reached],
    hits: &[Ranked],
    reach: Reach,
    question: &Question,
    setting: Setting<'_>,
    ranking: Option<Ranking>,
) -> Followed {
    let links = links(hits, reach);
    let now_ms = setting.clock.now_ms();
    let asked = join_all(links.iter().map(|link| async {
        let question = Question {
            text: link.target.clone(),
            embedding_deadline: question.deadline.min(Instant::now() + setting.budgets.embedding),
            ..question.clone()
        };
        search(&[&lanes[link.lane]], &question).await
    }))
    .await;
    let mut followed = Followed { linked: Vec::new(), failed: Vec::new() };
    for (link, searched) in links.into_iter().zip(asked) {
        let lane = &lanes[link.lane];
        let name = || lane.view().name.clone();
        for answer in searched.answers {
            match answer {
                Ok(answer) => {
                    let missing = super::coverage::first_gap(&answer, question.surfaces.contains(&Surface::Turns));
                    followed.failed.extend(missing.map(|reason| FailedLink { lane: name(), reason }));
                    let found = found(link.lane, lane, ranking, answer);
                    let items = rank::rank(vec![found], &link.target, &setting.steps, now_ms).items;
                    followed.linked.push(Linked { parent: link.parent, target: link.target.clone(), items });
                }
                Err(reason) => followed.failed.push(FailedLink { lane: name(), reason }),
            }
        }
    }
    followed
}

fn links(hits: &[Ranked], reach: Reach) -> Vec<Link> {
    let mut seen = HashSet::new();
    hits.iter()
        .take(reach.top_k)
        .enumerate()
        .flat_map(|(parent, hit)| {
            wikilinks(hit.item.text()).into_iter().map(move |target| Link { parent, lane: hit.lane, target })
        })
        .filter(|link| seen.insert((link.lane, link.target.to_lowercase())))
        .take(usize::try_from(reach.budget).unwrap_or(usize::MAX))
        .collect()
}
