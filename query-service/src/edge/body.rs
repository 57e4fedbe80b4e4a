//! JSON bodies: read whole within a limit and a time, hashed as sent, parsed strictly.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use lanekeeper_core::LaneError;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use super::headers::has_content_type;
use super::json_error;
use crate::app::{App, Limits};
use crate::problem::EdgeError;

/// A parsed body with the hash of its bytes.
#[derive(Debug)]
pub(crate) struct Json<T> {
    pub(crate) value: T,
    pub(crate) sha256: [u8; 32],
}

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Json<T> {
    type Rejection = EdgeError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, EdgeError> {
        if !has_content_type(request.headers(), &["application/json"]) {
            return Err(EdgeError::UnsupportedMediaType { expected: "application/json" });
        }
        let bytes = read(request, app.limits()).await?;
        Ok(Self { value: parse(&bytes)?, sha256: Sha256::digest(&bytes).into() })
    }
}

/// A body that may be left out.
#[derive(Debug)]
pub(crate) struct JsonOrDefault<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<App>> for JsonOrDefault<T> {
    type Rejection = EdgeError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, EdgeError> {
        let is_json = has_content_type(request.headers(), &["application/json"]);
        let bytes = read(request, app.limits()).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        if !is_json {
            return Err(EdgeError::UnsupportedMediaType { expected: "application/json, or left out" });
        }
        Ok(Self(parse(&bytes)?))
    }
}

/// The body of a route that takes none.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

async fn read(request: Request, limits: &Limits) -> Result<Bytes, EdgeError> {
    let limit = limits.body_bytes;
    let too_large = || LaneError::TooLarge { what: "the body".into(), limit };
    if announced(request.headers()).is_some_and(|length| length > limit) {
        return Err(too_large().into());
    }
    match tokio::time::timeout(limits.body_wait, collect(request.into_body(), limit)).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => Err(too_large().into()),
        Ok(Err(_)) | Err(_) => Err(EdgeError::BodyNotRead),
    }
}

fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// `None`: over the limit.
async fn collect(body: Body, limit: usize) -> Result<Option<Bytes>, axum::Error> {
    let mut stream = body.into_data_stream();
    let mut all = BytesMut::new();
    while let Some(part) = stream.next().await {
        let part = part?;
        if all.len() + part.len() > limit {
            return Ok(None);
        }
        all.extend_from_slice(&part);
    }
    Ok(Some(all.freeze()))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, LaneError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| json_error::explain(error.path(), error.inner()))?;
    deserializer.end().map_err(|_| LaneError::invalid("body", "must be one JSON value with nothing after it"))?;
    Ok(value)
}

#[cfg(test)]
pub(super) fn parse_for_test<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, LaneError> {
    parse(bytes)
}
