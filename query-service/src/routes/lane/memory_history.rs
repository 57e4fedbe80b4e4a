//! `GET /v1/lanes/{namespace}/{name}/memory/history`

use axum::Json as Answer;
use lanekeeper_core::wire::memory::MemoryHistory;

use crate::auth::{InLane, MemoryRead};
use crate::edge::query::Parameters;
use crate::openapi::Problems;
use crate::problem::EdgeError;

/// Versions of the curated files this caller may read, newest first.
#[utoipa::path(
    get,
    path = "/v1/lanes/{namespace}/{name}/memory/history",
    tag = "lane",
    security(("token" = [])),
    params(
        ("namespace" = String, Path, description = "The lane's namespace"),
        ("name" = String, Path, description = "The lane's name")
    ),
    responses((status = 200, description = "The versions", body = MemoryHistory), Problems)
)]
pub(in crate::routes) async fn memory_history(
    lane: InLane<MemoryRead>,
    parameters: Parameters,
) -> Result<Answer<MemoryHistory>, EdgeError> {
    parameters.none()?;
    Ok(Answer(lane.client().memory_history(lane.caller()).await?))
}
