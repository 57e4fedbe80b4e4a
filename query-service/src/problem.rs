//! Every error a caller can see (RFC 9457 problem+json): with the status of a lane's error in core, the one place that
//! decides status codes.
//!
//! What must always hold: `code` is stable; nothing internal and no memory text stands in an answer;
//! internal causes are logged under the request id and nowhere else.
//!
//! Temporary refusals of the fence are 503 with Retry-After; those that only a person or the operator can
//! end are 409, so that clients do not retry them (decision 0032).

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use lanekeeper_core::LaneError;
use lanekeeper_core::wire::events::Head;
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::AuthError;
use crate::edge::request_id;

/// What the edge itself refuses, and what a lane answers.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EdgeError {
    #[error(transparent)]
    Auth(#[from] AuthError),
    #[error(transparent)]
    Lane(#[from] LaneError),
    #[error("there is no such route")]
    NoRoute,
    #[error("the route does not take this method")]
    MethodNotAllowed,
    #[error("the body must be {expected}")]
    UnsupportedMediaType { expected: &'static str },
    #[error("the body ended early or did not come in time")]
    BodyNotRead,
    #[error("the service is at its limit of concurrent requests")]
    Busy,
    #[error("internal error")]
    Panicked,
}

/// One field that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct FieldError {
    /// JSON path, or the name of a header or query parameter.
    #[schema(example = "turns[3].at")]
    pub(crate) field: String,
    /// The rule, in words.
    pub(crate) rule: String,
}

/// The body of every error.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// `tag:lanekeeper.dev,2026:problem/CODE`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The status in words.
    pub(crate) title: String,
    /// The HTTP status.
    pub(crate) status: u16,
    /// Stable; what programs decide by.
    pub(crate) code: String,
    /// For people.
    pub(crate) detail: String,
    /// With `invalid_field`: what to change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<FieldError>,
    /// With `too_large`: the limit, in its unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<usize>,
    /// With `precondition_failed` and `precondition_required`: the version now, without quotes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    /// With `head_mismatch`: the log's head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) head: Option<Head>,
    /// Quote it when asking for help; also in `x-request-id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<String>,
}

/// The code of an error answer, for the log and metrics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProblemCode(pub(crate) &'static str);

/// In how many seconds a request that may succeed later is worth another try.
const RETRY_AFTER_S: u32 = 1;

impl EdgeError {
    fn code(&self) -> &'static str {
        match self {
            Self::Auth(error) => error.code(),
            Self::Lane(error) => error.code(),
            Self::NoRoute => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::UnsupportedMediaType { .. } => "unsupported_media_type",
            Self::BodyNotRead => "body_not_read",
            Self::Busy => "overloaded",
            Self::Panicked => "internal",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Auth(_) => StatusCode::UNAUTHORIZED,
            Self::Lane(error) => lane_status(error),
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::UnsupportedMediaType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::BodyNotRead => StatusCode::REQUEST_TIMEOUT,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn retry_after(&self) -> Option<u32> {
        match self {
            Self::Lane(LaneError::Overloaded { retry_after_s }) => Some(*retry_after_s),
            Self::Lane(error) if error.is_transient() => Some(RETRY_AFTER_S),
            Self::Busy => Some(RETRY_AFTER_S),
            Self::Lane(_)
            | Self::Auth(_)
            | Self::NoRoute
            | Self::MethodNotAllowed
            | Self::UnsupportedMediaType { .. }
            | Self::BodyNotRead
            | Self::Panicked => None,
        }
    }
}

/// What becomes of a lane's error; the same on the store protocol.
fn lane_status(error: &LaneError) -> StatusCode {
    StatusCode::from_u16(lanekeeper_core::wire::problem::status(error)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

impl From<&EdgeError> for Problem {
    fn from(error: &EdgeError) -> Self {
        let (status, code) = (error.status(), error.code());
        let mut problem = Self {
            kind: format!("tag:lanekeeper.dev,2026:problem/{code}"),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            code: code.to_owned(),
            detail: error.to_string(),
            errors: Vec::new(),
            limit: None,
            current: None,
            head: None,
            request_id: request_id::current(),
        };
        if let EdgeError::Lane(error) = error {
            problem.add_members(error);
        }
        problem
    }
}

impl Problem {
    fn add_members(&mut self, error: &LaneError) {
        match error {
            LaneError::Invalid { field, rule } => {
                self.errors.push(FieldError { field: field.clone(), rule: rule.clone() });
            }
            LaneError::TooLarge { limit, .. } => self.limit = Some(*limit),
            LaneError::PreconditionFailed { current } | LaneError::PreconditionRequired { current } => {
                self.current = Some(current.clone());
            }
            LaneError::HeadMismatch { actual_seq, actual_hash } => {
                self.head = Some(Head { seq: *actual_seq, hash: *actual_hash });
            }
            LaneError::NotFound { .. }
            | LaneError::GateRequired { .. }
            | LaneError::HumanRequired { .. }
            | LaneError::SinglePrivateOwnerRequired
            | LaneError::IdempotencyConflict
            | LaneError::IdempotencyInFlight
            | LaneError::Fence { .. }
            | LaneError::ReadOnly(_)
            | LaneError::CommitUnknown
            | LaneError::DiskFull
            | LaneError::Overloaded { .. }
            | LaneError::Conflict { .. }
            | LaneError::Unavailable { .. }
            | LaneError::Deadline
            | LaneError::Internal { .. } => {}
        }
    }
}

impl IntoResponse for EdgeError {
    fn into_response(self) -> Response {
        if let Self::Lane(LaneError::Internal { cause }) = &self {
            tracing::error!(cause, "internal error");
        }
        let problem = Problem::from(&self);
        let body = serde_json::to_vec(&problem).unwrap_or_else(|_| b"{}".to_vec());
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status();
        response.extensions_mut().insert(ProblemCode(self.code()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Self::Auth(error) = self {
            headers.insert(WWW_AUTHENTICATE, challenge(error));
        }
        response
    }
}

/// RFC 6750: without credentials no error is named.
const fn challenge(error: AuthError) -> HeaderValue {
    match error {
        AuthError::Missing => HeaderValue::from_static("Bearer realm=\"lanekeeper\""),
        AuthError::Invalid | AuthError::Expired => {
            HeaderValue::from_static("Bearer realm=\"lanekeeper\", error=\"invalid_token\"")
        }
    }
}

/// The router's answer to a path it does not know.
pub(crate) async fn no_route() -> EdgeError {
    EdgeError::NoRoute
}

/// The router's answer to a method a path does not take; it adds the Allow header itself.
pub(crate) async fn method_not_allowed() -> EdgeError {
    EdgeError::MethodNotAllowed
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use http_body_util::BodyExt as _;
    use lanekeeper_core::error::{FenceReason, ReadOnlyReason};
    use lanekeeper_core::ids::{Hash32, Seq};
    use lanekeeper_core::scope::Action;

    use super::*;

    fn every_error() -> Vec<EdgeError> {
        let fence = |reason| LaneError::Fence { reason, detail: "why".into() };
        let lane = [
            LaneError::invalid("turns[3].at", "must be a time"),
            LaneError::NotFound { what: "lane" },
            LaneError::GateRequired { action: Action::Forget },
            LaneError::HumanRequired { action: Action::Import },
            LaneError::SinglePrivateOwnerRequired,
            LaneError::HeadMismatch { actual_seq: Seq(4), actual_hash: Hash32::from_bytes([1; 32]) },
            LaneError::IdempotencyConflict,
            LaneError::IdempotencyInFlight,
            LaneError::PreconditionFailed { current: "v2".into() },
            LaneError::PreconditionRequired { current: "v2".into() },
            fence(FenceReason::Unconfirmed),
            fence(FenceReason::OtherWriter),
            LaneError::ReadOnly(ReadOnlyReason::Fork),
            LaneError::CommitUnknown,
            LaneError::DiskFull,
            LaneError::Overloaded { retry_after_s: 7 },
            LaneError::TooLarge { what: "the body".into(), limit: 1_048_576 },
            LaneError::Conflict { code: "lane_suspended", detail: "the lane is suspended".into() },
            LaneError::Unavailable { what: "the lane".into() },
            LaneError::Deadline,
            LaneError::internal("SECRET-CAUSE"),
        ];
        let mut all: Vec<EdgeError> = lane.into_iter().map(EdgeError::Lane).collect();
        all.extend([AuthError::Missing, AuthError::Invalid, AuthError::Expired].map(EdgeError::Auth));
        all.extend([
            EdgeError::NoRoute,
            EdgeError::MethodNotAllowed,
            EdgeError::UnsupportedMediaType { expected: "application/json" },
            EdgeError::BodyNotRead,
            EdgeError::Busy,
            EdgeError::Panicked,
        ]);
        all
    }

    #[tokio::test]
    async fn every_error_has_its_status_headers_and_body() {
        let mut seen = BTreeMap::new();
        for (index, error) in every_error().into_iter().enumerate() {
            let response = error.into_response();
            let header =
                |name: http::HeaderName| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(header(CONTENT_TYPE).as_deref(), Some("application/problem+json"));
            let headers = (header(RETRY_AFTER), header(WWW_AUTHENTICATE));
            assert_eq!(response.status() == StatusCode::UNAUTHORIZED, headers.1.is_some());
            let status = response.status();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert!(!body.to_string().contains("SECRET-CAUSE"));
            assert_eq!(body["status"], status.as_u16());
            seen.insert(index, (headers.0, headers.1, body));
        }
        insta::assert_json_snapshot!("problems", seen);
    }
}
