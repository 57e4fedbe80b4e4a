//! `GET /v1/lanes`

use axum::Json as Answer;
use futures::future::join_all;
use lanekeeper_core::scope::{Action, Decision, Role};
use lanekeeper_core::wire::lanes::{LaneList, LaneSummary};

use crate::auth::{InReach, Reached, SUSPENDED, lane_status};
use crate::edge::query::Parameters;
use crate::openapi::Problems;
use crate::problem::EdgeError;

/// The lanes this token reaches, and how they are.
#[utoipa::path(
    get,
    path = "/v1/lanes",
    tag = "recall",
    security(("token" = [])),
    responses((status = 200, description = "By name", body = LaneList), Problems)
)]
pub(super) async fn list_lanes(InReach(reach): InReach, parameters: Parameters) -> Result<Answer<LaneList>, EdgeError> {
    parameters.none()?;
    let seen = reach.lanes().iter().filter(|lane| lane.caller().on_events(Action::Recall) == Decision::Auto);
    let mut lanes = join_all(seen.map(summary)).await;
    lanes.sort_by(|a, b| a.lane.cmp(&b.lane));
    Ok(Answer(LaneList { lanes }))
}

async fn summary(reached: &Reached) -> LaneSummary {
    let view = reached.view();
    let status = if view.suspend { None } else { Some(lane_status(reached.client().status()).await) };
    let (ready, writable, reasons) = match &status {
        Some(status) => (status.ready, status.writable, status.reasons.clone()),
        None => (false, false, vec![SUSPENDED.to_owned()]),
    };
    // A lane that did not answer has no numbers, which is not the same as zero.
    let counted = status.filter(|status| status.ready);
    LaneSummary {
        lane: view.name.clone(),
        uid: view.uid,
        kind: view.kind,
        relation: reached.relation(),
        role: reached.role().map(role_name),
        ready,
        writable,
        reasons,
        head_seq: counted.as_ref().map(|status| status.head_seq),
        counts: counted.map(|status| status.counts),
        ranking: view.recall.ranking,
        embedder: format!("{} {}", reached.encoder().model(), view.fingerprint.short()),
    }
}

fn role_name(role: Role) -> String {
    match role {
        Role::Reader => "reader",
        Role::Writer => "writer",
        Role::Curator => "curator",
        Role::Admin => "admin",
    }
    .to_owned()
}
