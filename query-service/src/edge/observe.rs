//! One span, one line and one count a request: id, method, route template, status, code, duration.
//!
//! The path as sent, the query string, headers and bodies are never recorded: they hold names and memory.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method};
use lanekeeper_core::hooks::guard;
use tokio::time::Instant;
use tracing::Instrument;

use super::request_id;
use crate::app::App;
use crate::problem::ProblemCode;

pub(crate) async fn observe(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id::of(request.headers());
    // Both are of a closed set, so they are fit to be labels and log fields: a path or a query as sent may
    // hold a question's own words.
    let method = method_name(request.method());
    let route =
        request.extensions().get::<MatchedPath>().map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    let route = if guard("log_redaction") { route } else { request.uri().to_string() };
    let span = tracing::info_span!("request", request_id = %id, method, route);
    let mut response = request_id::scope(id.clone(), next.run(request)).instrument(span.clone()).await;
    let seconds = started.elapsed().as_secs_f64();
    let status = response.status().as_u16();
    let code = response.extensions().get::<ProblemCode>().map_or("", |code| code.0);
    span.in_scope(|| tracing::info!(status, code, duration_ms = seconds * 1000.0, "request finished"));
    app.metrics().request(method, &route, status, seconds);
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::try_from(id) {
        headers.insert(request_id::HEADER, id);
    }
    // Answers hold memory: no cache keeps them, no browser guesses their type.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A method of the API, or `other`: the caller's own words must not become a label.
fn method_name(method: &Method) -> &'static str {
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::PATCH]
        .iter()
        .zip(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
        .find_map(|(known, name)| (known == method).then_some(name))
        .unwrap_or("other")
}
