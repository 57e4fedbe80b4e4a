//! `POST` and `GET /v1/lanes/{namespace}/{name}/events`

use std::sync::Arc;

use axum::Json as Answer;
use axum::extract::State;
use http::StatusCode;
use lanekeeper_core::Seq;
use lanekeeper_core::lane_client::AppendRequest;
use lanekeeper_core::wire::events::{EventPage, SaveRequest, SaveResponse};

use crate::app::App;
use crate::auth::{InLane, Recall, Save};
use crate::edge::body::Json;
use crate::edge::headers::IdempotencyKey;
use crate::edge::query::{Parameters, number};
use crate::openapi::Problems;
use crate::problem::EdgeError;

const PAGE_DEFAULT: u64 = 100;
const PAGE_MAX: u64 = 1000;

/// Save turns, all or none. Never waits for the embedder.
#[utoipa::path(
    post,
    path = "/v1/lanes/{namespace}/{name}/events",
    tag = "lane",
    security(("token" = [])),
    params(
        ("namespace" = String, Path, description = "The lane's namespace"),
        ("name" = String, Path, description = "The lane's name"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters; a repeat with the same body answers the same events for 7 days")
    ),
    request_body(
        content = SaveRequest,
        example = json!({"session": "2026-11-30", "turns": [{"role": "assistant", "text": "The release moves to Thursday."}]})
    ),
    responses((status = 201, description = "Saved", body = SaveResponse), Problems)
)]
pub(in crate::routes) async fn save_events(
    lane: InLane<Save>,
    State(app): State<Arc<App>>,
    parameters: Parameters,
    key: IdempotencyKey,
    Json { value, sha256 }: Json<SaveRequest>,
) -> Result<(StatusCode, Answer<SaveResponse>), EdgeError> {
    parameters.none()?;
    value.check(app.now_ms())?;
    let request = AppendRequest { save: value, idempotency: key.with_body(sha256) };
    let saved = lane.client().append(lane.caller(), request).await?;
    Ok((StatusCode::CREATED, Answer(saved)))
}

/// List events by their place in the log.
#[utoipa::path(
    get,
    path = "/v1/lanes/{namespace}/{name}/events",
    tag = "lane",
    security(("token" = [])),
    params(
        ("namespace" = String, Path, description = "The lane's namespace"),
        ("name" = String, Path, description = "The lane's name"),
        ("after" = Option<u64>, Query, description = "Events after this seq; default 0"),
        ("limit" = Option<u64>, Query, description = "1 to 1000, default 100")
    ),
    responses((status = 200, description = "A page", body = EventPage), Problems)
)]
pub(in crate::routes) async fn list_events(
    lane: InLane<Recall>,
    parameters: Parameters,
) -> Result<Answer<EventPage>, EdgeError> {
    let [after, limit] = parameters.take(["after", "limit"])?;
    // Seqs are kept as signed 64-bit numbers in the log.
    let after = number("after", after, 0, 0..=i64::MAX.unsigned_abs())?;
    let limit = number("limit", limit, PAGE_DEFAULT, 1..=PAGE_MAX)?;
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    Ok(Answer(lane.client().list_events(lane.caller(), Seq(after), limit).await?))
}
