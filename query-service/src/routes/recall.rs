//! `POST /v1/recall`

use std::sync::Arc;

use axum::Json as Answer;
use axum::extract::State;
use lanekeeper_core::wire::recall::{RecallRequest, RecallResponse};

use crate::app::App;
use crate::auth::InReach;
use crate::edge::body::Json;
use crate::edge::query::Parameters;
use crate::openapi::Problems;
use crate::problem::EdgeError;
use crate::recall::recall as answer;

/// Ask what is remembered. One foreign lane in `lanes` is 404 for the whole request.
#[utoipa::path(
    post,
    path = "/v1/recall",
    tag = "recall",
    security(("token" = [])),
    request_body(content = RecallRequest, example = json!({"query": "When does the release go out?", "top_k": 5})),
    responses((status = 200, description = "Hits, and what was searched", body = RecallResponse), Problems)
)]
pub(super) async fn recall(
    InReach(reach): InReach,
    State(app): State<Arc<App>>,
    parameters: Parameters,
    Json { value, sha256: _ }: Json<RecallRequest>,
) -> Result<Answer<RecallResponse>, EdgeError> {
    parameters.none()?;
    // The form before the lanes: what means nothing is 400 whoever asks.
    value.check()?;
    let lanes = reach.for_recall(value.lanes.as_deref())?;
    let response = answer(app.recall_setting(), &lanes, value).await?;
    app.metrics().recall(&response.coverage);
    Ok(Answer(response))
}
