//! `/v1/lanes/{namespace}/{name}/…`

pub(super) mod backup;
pub(super) mod events;
pub(super) mod export;
pub(super) mod forget;
pub(super) mod import;
pub(super) mod memory;
pub(super) mod memory_history;
pub(super) mod rebuild;
pub(super) mod verify;

use axum::body::Body;
use axum::response::Response;
use futures::StreamExt as _;
use http::HeaderValue;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use lanekeeper_core::LaneError;
use lanekeeper_core::lane_client::ByteStream;

/// A streamed answer. An error in the middle breaks the connection, so that nobody takes a part for the whole.
fn download(stream: ByteStream, content_type: &'static str, disposition: &'static str) -> Response {
    let stream = stream.map(|part| {
        part.inspect_err(|error| {
            let cause = if let LaneError::Internal { cause } = error { cause.as_str() } else { error.code() };
            tracing::error!(cause, "a streamed answer broke off");
        })
    });
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CONTENT_DISPOSITION, HeaderValue::from_static(disposition));
    response
}
