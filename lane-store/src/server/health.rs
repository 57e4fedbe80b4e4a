//! `/healthz`, `/readyz`, `/startupz`: public, so codes alone.
//!
//! Nothing here asks the registry: probes come every few seconds, and a store that is not writing does not poll.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;

use super::App;

/// What works.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Readiness {
    /// Recall works.
    ready: bool,
    /// What is wrong, as stable codes such as `fence_unconfirmed`. A store that recalls and cannot write is ready.
    reasons: Vec<String>,
}

pub(super) fn public() -> Router<Arc<App>> {
    Router::new()
        .route("/healthz", get(|| async { StatusCode::OK }))
        .route("/readyz", get(readyz))
        .route("/startupz", get(startupz))
}

fn status(good: bool) -> StatusCode {
    if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// Whether the lane was opened: the startup probe waits for it and nothing else.
async fn startupz(State(app): State<Arc<App>>) -> (StatusCode, Json<Readiness>) {
    let (open, reasons) = match app.slot.store() {
        Ok(_) => (true, Vec::new()),
        Err(_) => (false, vec![app.slot.reason().to_owned()]),
    };
    (status(open), Json(Readiness { ready: open, reasons }))
}

async fn readyz(State(app): State<Arc<App>>) -> (StatusCode, Json<Readiness>) {
    let readiness = match app.slot.store() {
        Err(_) => Readiness { ready: false, reasons: vec![app.slot.reason().to_owned()] },
        Ok(store) => {
            let state = store.known_status().await;
            Readiness { ready: state.ready, reasons: state.reasons }
        }
    };
    (status(readiness.ready), Json(readiness))
}
