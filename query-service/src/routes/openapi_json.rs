//! `GET /openapi.json`

use std::sync::LazyLock;

use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;

static DOCUMENT: LazyLock<Option<String>> = LazyLock::new(|| crate::openapi::document().to_json().ok());

/// This document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "service",
    responses((status = 200, description = "The OpenAPI document", body = Object, content_type = "application/json"))
)]
pub(super) async fn openapi() -> Response {
    match DOCUMENT.as_deref() {
        Some(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
