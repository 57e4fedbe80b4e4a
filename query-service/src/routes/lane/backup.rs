//! `GET /v1/lanes/{namespace}/{name}/backup`

use axum::response::Response;

use super::download;
use crate::auth::{Backup, InLane};
use crate::edge::query::Parameters;
use crate::openapi::Problems;
use crate::problem::EdgeError;

/// A backup of the lane's log and curated memory, for `lanekeeper restore`.
#[utoipa::path(
    get,
    path = "/v1/lanes/{namespace}/{name}/backup",
    tag = "lane",
    security(("token" = [])),
    params(
        ("namespace" = String, Path, description = "The lane's namespace"),
        ("name" = String, Path, description = "The lane's name")
    ),
    responses((status = 200, description = "The archive", body = String, content_type = "application/octet-stream"), Problems)
)]
pub(in crate::routes) async fn backup(lane: InLane<Backup>, parameters: Parameters) -> Result<Response, EdgeError> {
    parameters.none()?;
    let stream = lane.client().backup(lane.caller()).await?;
    Ok(download(stream, "application/octet-stream", "attachment; filename=\"lane.backup\""))
}
