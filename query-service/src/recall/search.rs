//! Asking lanes: each in its own task, all under one deadline, each answer or reason kept in its place.
//!
//! Assumes nothing of a lane: one that is late, fails or panics is a reason in coverage.

use std::collections::HashMap;
use std::sync::Arc;

use lanekeeper_core::LaneError;
use lanekeeper_core::fingerprint::Fingerprint;
use lanekeeper_core::lane_client::{StoreAnswer, StoreRecall};
use lanekeeper_core::wire::recall::{Filter, Surface};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument;

use super::encoding::{self, EmbedderState, Encoding};
use crate::auth::Reached;
use crate::rank::Steps;

/// One question to some lanes.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) text: String,
    pub(super) surfaces: Vec<Surface>,
    pub(super) filter: Filter,
    pub(super) steps: Steps,
    pub(super) embedding_deadline: Instant,
    pub(super) deadline: Instant,
    pub(super) deadline_ms: i64,
}

/// What came back.
pub(super) struct Searched {
    /// For each lane, in the order asked: its answer, or a stable reason.
    pub(super) answers: Vec<Result<StoreAnswer, String>>,
    /// Of each fingerprint whose encoding was awaited.
    pub(super) embedders: Vec<EmbedderState>,
}

pub(super) async fn search(lanes: &[&Reached], question: &Question) -> Searched {
    let encodings = encodings(lanes, question);
    let mut answers: Vec<Result<StoreAnswer, String>> = lanes.iter().map(|_| Err("internal".to_owned())).collect();
    let mut tasks = JoinSet::new();
    for (index, lane) in lanes.iter().enumerate() {
        if lane.view().suspend {
            answers[index] = Err(crate::auth::SUSPENDED.to_owned());
            continue;
        }
        let fingerprint = lane.view().fingerprint;
        let request = StoreRecall {
            query: question.text.clone(),
            encoding: encodings.get(&fingerprint).map_or_else(|| encoding::none("not_asked"), Encoding::future),
            fingerprint,
            surfaces: question.surfaces.clone(),
            filter: question.filter.clone(),
            arms_off: question.steps.arms_off(),
            idf_pooling: question.steps.idf_pooling,
            deadline_ms: question.deadline_ms,
        };
        let (client, caller, deadline) = (Arc::clone(lane.client()), lane.caller().clone(), question.deadline);
        let ask = async move {
            let answer = match tokio::time::timeout_at(deadline, client.recall(&caller, request)).await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(error)) => Err(reason(&error)),
                Err(_) => Err(LaneError::Deadline.code().to_owned()),
            };
            (index, answer)
        };
        tasks.spawn(ask.in_current_span());
    }
    while let Some(joined) = tasks.join_next().await {
        match joined {
            Ok((index, answer)) => answers[index] = answer,
            // Its place keeps `internal`. The panic's message may hold memory text, so it is not repeated.
            Err(_) => tracing::error!("a lane's recall panicked"),
        }
    }
    Searched { answers, embedders: encodings.values().filter_map(Encoding::state).collect() }
}

fn encodings(lanes: &[&Reached], question: &Question) -> HashMap<Fingerprint, Encoding> {
    if !question.surfaces.contains(&Surface::Turns) || !question.steps.vector {
        return HashMap::new();
    }
    let mut groups: HashMap<Fingerprint, Vec<&Reached>> = HashMap::new();
    for lane in lanes.iter().filter(|lane| !lane.view().suspend) {
        groups.entry(lane.view().fingerprint).or_default().push(lane);
    }
    groups
        .into_iter()
        .map(|(fingerprint, group)| (fingerprint, Encoding::start(&group, &question.text, question.embedding_deadline)))
        .collect()
}

fn reason(error: &LaneError) -> String {
    if let LaneError::Internal { cause } = error {
        tracing::error!(cause, "a lane's recall failed");
    }
    error.code().to_owned()
}
