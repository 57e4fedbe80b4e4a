//! `POST /v1/lanes/{namespace}/{name}/verify`

use axum::Json as Answer;
use lanekeeper_core::wire::upkeep::VerifyReport;

use crate::auth::{InLane, Verify};
use crate::edge::body::{JsonOrDefault, Nothing};
use crate::edge::query::Parameters;
use crate::openapi::Problems;
use crate::problem::EdgeError;

/// Walk the whole log and name the first bad row. A bad log is a report, not an error.
#[utoipa::path(
    post,
    path = "/v1/lanes/{namespace}/{name}/verify",
    tag = "lane",
    security(("token" = [])),
    params(
        ("namespace" = String, Path, description = "The lane's namespace"),
        ("name" = String, Path, description = "The lane's name")
    ),
    responses((status = 200, description = "The report", body = VerifyReport), Problems)
)]
pub(in crate::routes) async fn verify(
    lane: InLane<Verify>,
    parameters: Parameters,
    JsonOrDefault(Nothing {}): JsonOrDefault<Nothing>,
) -> Result<Answer<VerifyReport>, EdgeError> {
    parameters.none()?;
    Ok(Answer(lane.client().verify(lane.caller()).await?))
}
