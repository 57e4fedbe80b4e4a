//! Recall: cut the question, have it encoded once per fingerprint, ask every lane in scope, rank, follow
//! links, say what was searched.
//!
//! What must always hold: the lanes come from [`crate::auth`] and no other place; `top_k` cuts an order
//! that does not depend on it; whatever was not searched is named in `coverage`; an answer comes within
//! the budget. A lane that fails costs its own hits and never those of the others.

mod coverage;
mod cut;
mod encoding;
mod hit;
mod links;
mod prompt;
mod search;
mod statement;

use std::time::Duration;

use lanekeeper_core::LaneError;
use lanekeeper_core::clock::Clock;
use lanekeeper_core::lane::Ranking;
use lanekeeper_core::lane_client::StoreAnswer;
use lanekeeper_core::limits;
use lanekeeper_core::wire::recall::{Coverage, Format, LaneCoverage, RecallRequest, RecallResponse, Relation, Surface};
use tokio::time::Instant;

use crate::auth::Reached;
use crate::rank::{self, Found, Steps};
use search::{Question, Searched};

/// How long a recall may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// For the question's embedding; then text only.
    pub embedding: Duration,
    /// In all.
    pub recall: Duration,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            embedding: Duration::from_millis(limits::EMBED_BUDGET_MS),
            recall: Duration::from_millis(limits::RECALL_BUDGET_MS),
        }
    }
}

/// What a recall needs beside the lanes and the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) clock: &'a dyn Clock,
    pub(crate) budgets: Budgets,
    pub(crate) steps: Steps,
}

/// Answers a recall over the lanes in scope.
pub(crate) async fn recall(
    setting: Setting<'_>,
    lanes: &[Reached],
    request: RecallRequest,
) -> Result<RecallResponse, LaneError> {
    let (top_k, hop_budget) = request.check()?;
    let top_k = usize::try_from(top_k).unwrap_or(usize::MAX);
    let now_ms = setting.clock.now_ms();
    let started = Instant::now();
    let (text, query_cut) = cut::cut(&request.query);
    let question = Question {
        text,
        surfaces: request.surfaces.unwrap_or_else(|| vec![Surface::Turns, Surface::Memory]),
        filter: request.filter,
        steps: setting.steps,
        embedding_deadline: started + setting.budgets.embedding,
        deadline: started + setting.budgets.recall,
        deadline_ms: now_ms.saturating_add(i64::try_from(setting.budgets.recall.as_millis()).unwrap_or(i64::MAX)),
    };
    let all: Vec<&Reached> = lanes.iter().collect();
    let Searched { mut answers, embedders } = search::search(&all, &question).await;

    let found = answers
        .iter_mut()
        .enumerate()
        .filter_map(|(index, answer)| {
            Some(found(index, &lanes[index], request.ranking, without_hits(answer.as_mut().ok()?)))
        })
        .collect();
    let outcome = rank::rank(found, &question.text, &setting.steps, now_ms);
    let lists = outcome.lists;
    let mut items = outcome.items;
    let mut failed_links = Vec::new();
    if hop_budget > 0 {
        let followed = links::follow(
            lanes,
            &items,
            links::Reach { top_k, budget: hop_budget },
            &question,
            setting,
            request.ranking,
        )
        .await;
        items = rank::hops::join(items, followed.linked);
        failed_links = followed.failed;
    }
    items.truncate(top_k);

    let states: Vec<coverage::LaneState<'_>> = lanes
        .iter()
        .zip(&answers)
        .map(|(lane, answer)| coverage::LaneState {
            lane: &lane.view().name,
            relation: lane.relation(),
            answer: answer.as_ref(),
        })
        .collect();
    let coverage = coverage::state(&states, &question.surfaces, &embedders, query_cut, &failed_links);
    let ranking = statement::state(&statement::Facts {
        coverage: &coverage,
        rankings: lanes.iter().map(|lane| request.ranking.unwrap_or(lane.view().recall.ranking)).collect(),
        ages: lanes.iter().any(|lane| lane.view().recall.half_life_ms.is_some()),
        steps: setting.steps,
        lists,
        links: hop_budget > 0,
        embedders: &embedders,
    });
    let hits: Vec<_> = items.into_iter().map(|item| hit::hit(item, lanes, request.explain)).collect();
    let prompt = match request.format.unwrap_or(Format::Json) {
        Format::Json => None,
        Format::Prompt => {
            let own = |lane: &_| {
                lanes.iter().any(|reached| &reached.view().name == lane && reached.relation() == Relation::Own)
            };
            Some(prompt::render(&hits, own)?)
        }
    };
    Ok(RecallResponse { hits, coverage, ranking, recall_id: uuid::Uuid::now_v7().to_string(), prompt })
}

/// The hits move into the ranking; what is left of the answer states the coverage.
fn without_hits(answer: &mut StoreAnswer) -> StoreAnswer {
    let candidates = std::mem::take(&mut answer.candidates);
    let memory = std::mem::take(&mut answer.memory);
    StoreAnswer { candidates, memory, ..answer.clone() }
}

fn found(index: usize, lane: &Reached, ranking: Option<Ranking>, answer: StoreAnswer) -> Found {
    let view = lane.view();
    Found {
        lane: index,
        own: lane.relation() == Relation::Own,
        ranking: ranking.unwrap_or(view.recall.ranking),
        fingerprint: view.fingerprint,
        half_life_ms: view.recall.half_life_ms,
        answer,
    }
}

/// Every arm that was asked for and not searched, for metrics.
pub(crate) fn arms_not_searched(coverage: &Coverage) -> impl Iterator<Item = (&'static str, &str)> {
    coverage.lanes.iter().flat_map(|LaneCoverage { arms, .. }| {
        arms.iter()
            .filter(|(_, arm)| !arm.searched)
            .map(|(arm, state)| (coverage::arm_name(*arm), state.reason.as_deref().unwrap_or("unknown")))
    })
}
