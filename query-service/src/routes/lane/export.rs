//! `GET /v1/lanes/{namespace}/{name}/export`

use axum::response::Response;

use super::download;
use crate::auth::{Export, InLane};
use crate::edge::query::Parameters;
use crate::openapi::Problems;
use crate::problem::EdgeError;

/// The lane as JSON Lines: a header, then turns with original text and times.
#[utoipa::path(
    get,
    path = "/v1/lanes/{namespace}/{name}/export",
    tag = "lane",
    security(("token" = [])),
    params(
        ("namespace" = String, Path, description = "The lane's namespace"),
        ("name" = String, Path, description = "The lane's name")
    ),
    responses((status = 200, description = "JSON Lines", body = String, content_type = "application/x-ndjson"), Problems)
)]
pub(in crate::routes) async fn export(lane: InLane<Export>, parameters: Parameters) -> Result<Response, EdgeError> {
    parameters.none()?;
    let stream = lane.client().export(lane.caller()).await?;
    Ok(download(stream, "application/x-ndjson", "attachment; filename=\"lane.jsonl\""))
}
