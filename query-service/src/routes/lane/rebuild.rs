//! `POST /v1/lanes/{namespace}/{name}/rebuild`

use axum::Json as Answer;
use lanekeeper_core::wire::upkeep::{RebuildReport, RebuildRequest};

use crate::auth::{InLane, Rebuild};
use crate::edge::body::JsonOrDefault;
use crate::edge::query::Parameters;
use crate::openapi::Problems;
use crate::problem::EdgeError;

/// Make every projection again from the log.
#[utoipa::path(
    post,
    path = "/v1/lanes/{namespace}/{name}/rebuild",
    tag = "lane",
    security(("token" = [])),
    params(
        ("namespace" = String, Path, description = "The lane's namespace"),
        ("name" = String, Path, description = "The lane's name")
    ),
    request_body(content = Option<RebuildRequest>, example = json!({"erase_vectors": false})),
    responses((status = 200, description = "What was made", body = RebuildReport), Problems)
)]
pub(in crate::routes) async fn rebuild(
    lane: InLane<Rebuild>,
    parameters: Parameters,
    JsonOrDefault(request): JsonOrDefault<RebuildRequest>,
) -> Result<Answer<RebuildReport>, EdgeError> {
    parameters.none()?;
    Ok(Answer(lane.client().rebuild(lane.caller(), request).await?))
}
