//! `GET /healthz` and `GET /readyz`: public, so they name reasons and numbers but no lane.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json as Answer;
use axum::extract::State;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::metrics::reason_label;

/// The process answers.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    /// `ok`
    status: &'static str,
}

/// What works.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Readiness {
    /// Whether any lane that is there can be recalled from.
    ready: bool,
    /// Lanes in the directory.
    lanes: usize,
    /// Of those, lanes that answer recall.
    lanes_ready: usize,
    /// Of those, lanes that take writes.
    lanes_writable: usize,
    /// What is wrong, as stable codes such as `fence_unconfirmed`, with the number of lanes.
    reasons: BTreeMap<String, usize>,
}

/// Whether the process is alive.
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "service",
    responses((status = 200, description = "Alive", body = Health))
)]
pub(super) async fn healthz() -> Answer<Health> {
    Answer(Health { status: "ok" })
}

/// Whether requests are worth sending here, and what is wrong with the lanes.
///
/// One lane that fails leaves the service ready: taking it out would cost all the others.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "service",
    responses(
        (status = 200, description = "Ready", body = Readiness),
        (status = 503, description = "There are lanes and none of them can be recalled from", body = Readiness)
    )
)]
pub(super) async fn readyz(State(app): State<Arc<App>>) -> (StatusCode, Answer<Readiness>) {
    let statuses = app.gate().nameless_statuses().await;
    let mut reasons = BTreeMap::new();
    for reason in statuses.iter().flat_map(|status| &status.reasons) {
        *reasons.entry(reason_label(reason)).or_insert(0) += 1;
    }
    let lanes_ready = statuses.iter().filter(|status| status.ready).count();
    let ready = statuses.is_empty() || lanes_ready > 0;
    let readiness = Readiness {
        ready,
        lanes: statuses.len(),
        lanes_ready,
        lanes_writable: statuses.iter().filter(|status| status.writable).count(),
        reasons,
    };
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, Answer(readiness))
}
