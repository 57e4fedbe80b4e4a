//! `GET` and `PUT /v1/lanes/{namespace}/{name}/memory`

use axum::Json as Answer;
use axum::response::{IntoResponse as _, Response};
use http::HeaderValue;
use http::header::ETAG;
use lanekeeper_core::LaneError;
use lanekeeper_core::hooks::guard;
use lanekeeper_core::lane_client::{Caller, require};
use lanekeeper_core::limits::MEMORY_BYTES;
use lanekeeper_core::scope::{Action, Decision, SHARED_OWNER};
use lanekeeper_core::wire::memory::{MemoryPage, MemorySaveRequest, MemorySaveResponse};

use crate::auth::{InLane, MemoryRead, MemoryWrite};
use crate::edge::body::Json;
use crate::edge::headers::{IdempotencyKey, IfMatch};
use crate::edge::query::Parameters;
use crate::openapi::Problems;
use crate::problem::EdgeError;

/// List curated memory, or search it literally.
#[utoipa::path(
    get,
    path = "/v1/lanes/{namespace}/{name}/memory",
    tag = "lane",
    security(("token" = [])),
    params(
        ("namespace" = String, Path, description = "The lane's namespace"),
        ("name" = String, Path, description = "The lane's name"),
        ("query" = Option<String>, Query, description = "Literal, without regard to case; empty or left out: a listing")
    ),
    responses((status = 200, description = "The files and paragraphs this caller may read", body = MemoryPage), Problems)
)]
pub(in crate::routes) async fn read_memory(
    lane: InLane<MemoryRead>,
    parameters: Parameters,
) -> Result<Answer<MemoryPage>, EdgeError> {
    let [query] = parameters.take(["query"])?;
    Ok(Answer(lane.client().memory(lane.caller(), query.as_deref().unwrap_or_default()).await?))
}

/// Replace the caller's curated file, or the shared one, as a whole.
#[utoipa::path(
    put,
    path = "/v1/lanes/{namespace}/{name}/memory",
    tag = "lane",
    security(("token" = [])),
    params(
        ("namespace" = String, Path, description = "The lane's namespace"),
        ("name" = String, Path, description = "The lane's name"),
        ("If-Match" = Option<String>, Header, description = "The version that is replaced, in double quotes; required where the file exists; `*` is refused"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters")
    ),
    request_body(content = MemorySaveRequest, example = json!({"text": "Releases go out on Thursdays.", "shared": false})),
    responses(
        (status = 200, description = "The file now; its version is also in ETag", body = MemorySaveResponse),
        (status = 412, description = "`precondition_failed`: the file has another version, named in `current`", body = crate::problem::Problem, content_type = "application/problem+json"),
        (status = 428, description = "`precondition_required`: the file exists, so If-Match is needed; its version is in `current`", body = crate::problem::Problem, content_type = "application/problem+json"),
        Problems
    )
)]
pub(in crate::routes) async fn save_memory(
    lane: InLane<MemoryWrite>,
    parameters: Parameters,
    IfMatch(if_match): IfMatch,
    key: IdempotencyKey,
    Json { value, sha256 }: Json<MemorySaveRequest>,
) -> Result<Response, EdgeError> {
    parameters.none()?;
    if value.text.len() > MEMORY_BYTES {
        return Err(LaneError::TooLarge { what: "text".into(), limit: MEMORY_BYTES }.into());
    }
    require_owner(lane.caller(), value.shared)?;
    let saved = lane.client().save_memory(lane.caller(), value, if_match, key.with_body(sha256)).await?;
    let etag = &saved.document.etag;
    let etag = (!etag.is_empty()).then(|| HeaderValue::try_from(format!("\"{etag}\"")).ok()).flatten();
    let mut response = Answer(saved).into_response();
    if let Some(etag) = etag {
        response.headers_mut().insert(ETAG, etag);
    }
    Ok(response)
}

/// The owner comes from the scope, never from the request.
fn require_owner(caller: &Caller, shared: bool) -> Result<(), LaneError> {
    if !guard("scope_deny") {
        return Ok(());
    }
    if shared {
        return require(caller.on_memory(SHARED_OWNER, Action::MemoryWrite), Action::MemoryWrite);
    }
    if caller.scope.single_private_owner(&caller.lane, caller.lane_uid, Action::MemoryWrite).is_some() {
        return Ok(());
    }
    // A scope that wants an approval says so; one that names no such path, or several, is told that.
    let own = caller.principal.owner_segment();
    match caller.on_memory(&own, Action::MemoryWrite) {
        Decision::Deny | Decision::Auto => Err(LaneError::SinglePrivateOwnerRequired),
        decision @ (Decision::Gate | Decision::Human) => require(decision, Action::MemoryWrite),
    }
}
