//! `POST /v1/lanes/{namespace}/{name}/forget`

use axum::Json as Answer;
use lanekeeper_core::LaneError;
use lanekeeper_core::hooks::guard;
use lanekeeper_core::lane_client::{Caller, require};
use lanekeeper_core::scope::Action;
use lanekeeper_core::wire::forget::{ForgetRequest, ForgetResponse};

use crate::auth::{Forget, InLane};
use crate::edge::body::Json;
use crate::edge::headers::IdempotencyKey;
use crate::edge::query::Parameters;
use crate::openapi::Problems;
use crate::problem::EdgeError;

/// Forget events, a session or curated paragraphs, or say what would be forgotten.
#[utoipa::path(
    post,
    path = "/v1/lanes/{namespace}/{name}/forget",
    tag = "lane",
    security(("token" = [])),
    params(
        ("namespace" = String, Path, description = "The lane's namespace"),
        ("name" = String, Path, description = "The lane's name"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters")
    ),
    request_body(content = ForgetRequest, example = json!({"session": "2026-11-30", "dry_run": true})),
    responses((status = 200, description = "What is, or would be, forgotten", body = ForgetResponse), Problems)
)]
pub(in crate::routes) async fn forget(
    lane: InLane<Forget>,
    parameters: Parameters,
    key: IdempotencyKey,
    Json { value, sha256 }: Json<ForgetRequest>,
) -> Result<Answer<ForgetResponse>, EdgeError> {
    parameters.none()?;
    value.check()?;
    require_target(lane.caller(), &value)?;
    Ok(Answer(lane.client().forget(lane.caller(), value, key.with_body(sha256)).await?))
}

/// The extractor let in who may forget anything here; this is about the very thing.
fn require_target(caller: &Caller, request: &ForgetRequest) -> Result<(), LaneError> {
    let decision = match &request.memory {
        Some(memory) => caller.on_memory(&memory.owner, Action::Forget),
        None => caller.on_events(Action::Forget),
    };
    if guard("scope_deny") { require(decision, Action::Forget) } else { Ok(()) }
}
