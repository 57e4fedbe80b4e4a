//! Counts for Prometheus, on a port of their own. Labels are routes and codes, never a name or a text.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use lanekeeper_core::attest::Refused;
use lanekeeper_core::lane_client::LaneStatus;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;

use super::answer::ErrorCode;
use super::{App, ServerError};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    status: u16,
    code: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: String,
}

type Histograms = Family<RouteLabels, Histogram, fn() -> Histogram>;

/// What is counted while serving; the lane's own numbers are taken at each scrape.
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Histograms,
    refused: Family<ReasonLabels, Counter>,
}

fn duration_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("lanekeeper_store");
        let (requests, refused) = (Family::default(), Family::default());
        let durations: Histograms = Family::new_with_constructor(duration_histogram);
        registry.register("requests", "Requests of the store protocol answered", requests.clone());
        registry.register("request_duration_seconds", "Time to the answer's head", durations.clone());
        registry.register("attestations_refused", "Requests without a good attestation, by why", refused.clone());
        Self { registry, requests, durations, refused }
    }
}

impl Metrics {
    /// The path is one of our routes: the layer stands on routes alone.
    pub(super) fn answered(&self, route: &str, response: &Response, time: Duration) {
        let code = response.extensions().get::<ErrorCode>().map_or(String::new(), |code| code.0.clone());
        let route = route.to_owned();
        self.durations.get_or_create(&RouteLabels { route: route.clone() }).observe(time.as_secs_f64());
        self.requests.get_or_create(&RequestLabels { route, status: response.status().as_u16(), code }).inc();
    }

    pub(super) fn refused(&self, refused: Refused) {
        self.refused.get_or_create(&ReasonLabels { reason: refused.reason().to_owned() }).inc();
    }
}

fn lane(status: &LaneStatus, commits: u64) -> Registry {
    let mut registry = Registry::with_prefix("lanekeeper_store");
    let mut gauge = |name: &str, help: &str, value: u64| {
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        registry.register(name, help, gauge);
    };
    gauge("ready", "Whether recall works", status.ready.into());
    gauge("head_seq", "Place of the log's last event", status.head_seq);
    gauge("events", "Turns not forgotten", status.counts.events);
    gauge("pending_projection", "Turns whose vectors are not made yet", status.counts.pending_projection);
    gauge("purge_outbox", "Purges whose vectors are not gone yet", status.purge_outbox);
    gauge("rebuilding", "Whether vectors are being made again", status.rebuilding.into());
    gauge("group_commits", "Group commits since the lane was opened", commits);
    let reasons = Family::<ReasonLabels, Gauge>::default();
    for reason in &status.reasons {
        reasons.get_or_create(&ReasonLabels { reason: reason.clone() }).set(1);
    }
    registry.register("reasons", "What is wrong with the lane", reasons);
    registry
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let (status, commits) = match app.slot.store() {
        Ok(store) => (store.known_status().await, store.commits()),
        Err(_) => (LaneStatus { reasons: vec![app.slot.reason().to_owned()], ..LaneStatus::default() }, 0),
    };
    let (mut served, mut state) = (String::new(), String::new());
    let encoded = encode(&mut served, &app.metrics.registry).and_then(|()| encode(&mut state, &lane(&status, commits)));
    if encoded.is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    // Each registry ends with an end mark, and there must be one.
    let text = format!("{}{state}", served.strip_suffix("# EOF\n").unwrap_or(&served));
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}

/// Serves them until the task is ended.
pub(super) fn serve(listener: TcpListener, address: SocketAddr, app: &Arc<App>) -> Result<JoinHandle<()>, ServerError> {
    let failed = |source| ServerError::Listen { address, source };
    listener.set_nonblocking(true).map_err(failed)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
    let router = Router::new().route("/metrics", get(metrics)).with_state(Arc::clone(app));
    Ok(tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "metrics are not served any more");
        }
    }))
}
