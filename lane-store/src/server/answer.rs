//! Answers: JSON, problem+json, streams.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use lanekeeper_core::LaneError;
use lanekeeper_core::lane_client::ByteStream;
use lanekeeper_core::wire::problem::Problem;
use serde::Serialize;

/// The code of an answer that is an error, for metrics.
#[derive(Debug, Clone)]
pub(super) struct ErrorCode(pub(super) String);

/// A lane's error as an answer.
#[derive(Debug)]
pub(super) struct Failure(pub(super) LaneError);

impl From<LaneError> for Failure {
    fn from(error: LaneError) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self(error) = self;
        if let LaneError::Internal { cause } = &error {
            tracing::error!(cause, "internal error");
        }
        let mut response = problem(&Problem::of(&error));
        let after = if let LaneError::Overloaded { retry_after_s } = &error {
            Some(*retry_after_s)
        } else {
            error.is_transient().then_some(1)
        };
        if let Some(seconds) = after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// A problem as an answer.
pub(super) fn problem(problem: &Problem) -> Response {
    let body = serde_json::to_vec(problem).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response.extensions_mut().insert(ErrorCode(problem.code.clone()));
    response
}

/// A value as an answer.
pub(super) fn json(value: &impl Serialize) -> Result<Response, Failure> {
    let body = serde_json::to_vec(value).map_err(LaneError::internal)?;
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Bytes as they come. An error in the middle breaks the connection, so that nobody takes a part for the whole.
pub(super) fn stream(stream: ByteStream) -> Response {
    let stream = stream.map(|part| {
        part.inspect_err(|error| {
            let cause = if let LaneError::Internal { cause } = error { cause.as_str() } else { error.code() };
            tracing::error!(cause, "a streamed answer broke off");
        })
    });
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    response
}
