//! `POST /v1/lanes/{namespace}/{name}/import`

use std::sync::Arc;

use axum::Json as Answer;
use axum::extract::{Request, State};
use lanekeeper_core::scope::Action;
use lanekeeper_core::wire::upkeep::ImportReport;
use lanekeeper_core::{LaneError, Principal};

use crate::app::App;
use crate::auth::{Import, InLane};
use crate::edge::headers::has_content_type;
use crate::edge::lines;
use crate::edge::query::{Parameters, flag};
use crate::openapi::Problems;
use crate::problem::EdgeError;

const TYPES: [&str; 3] = ["application/x-ndjson", "application/jsonl", "application/octet-stream"];

/// Read JSON Lines as the export writes them. The body as a whole has no limit; each line has 1 MiB.
#[utoipa::path(
    post,
    path = "/v1/lanes/{namespace}/{name}/import",
    tag = "lane",
    security(("token" = [])),
    params(
        ("namespace" = String, Path, description = "The lane's namespace"),
        ("name" = String, Path, description = "The lane's name"),
        ("force_personal" = Option<bool>, Query, description = "Let a corpus lane take what was exported from a personal lane; for persons only")
    ),
    request_body(
        content = String,
        content_type = "application/x-ndjson",
        description = "JSON Lines, streamed. No limit as a whole; 1 MiB a line."
    ),
    responses((status = 200, description = "What was read, row by row where refused", body = ImportReport), Problems)
)]
pub(in crate::routes) async fn import(
    lane: InLane<Import>,
    State(app): State<Arc<App>>,
    parameters: Parameters,
    request: Request,
) -> Result<Answer<ImportReport>, EdgeError> {
    let [force_personal] = parameters.take(["force_personal"])?;
    let force_personal = flag("force_personal", force_personal)?;
    if force_personal && !is_person(&lane.caller().principal) {
        return Err(LaneError::HumanRequired { action: Action::Import }.into());
    }
    if !has_content_type(request.headers(), &TYPES) {
        return Err(EdgeError::UnsupportedMediaType { expected: "application/x-ndjson" });
    }
    let stream = lines::stream(request.into_body(), app.limits());
    Ok(Answer(lane.client().import(lane.caller(), stream, force_personal).await?))
}

const fn is_person(principal: &Principal) -> bool {
    match principal {
        Principal::User(_) => true,
        Principal::ServiceAccount { .. } => false,
    }
}
