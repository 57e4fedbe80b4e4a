//! Counts and times for Prometheus, served by a router of its own on another port.
//!
//! What must always hold: a label is a route template, a method, a status, an arm or a stable reason code;
//! never a lane, a principal, a session or any text of a tenant.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use lanekeeper_core::lane_client::LaneStatus;
use lanekeeper_core::wire::recall::Coverage;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::app::App;
use crate::recall::arms_not_searched;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ArmLabels {
    arm: &'static str,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CompleteLabels {
    complete: bool,
}

type Histograms = Family<RouteLabels, Histogram, fn() -> Histogram>;

/// What is counted while serving. What lanes are in is asked at each scrape.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Histograms,
    shed: Counter,
    recalls: Family<CompleteLabels, Counter>,
    arms: Family<ArmLabels, Counter>,
}

fn duration_histogram() -> Histogram {
    // 1 ms to 16 s: a recall's own budget is 8 s.
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("lanekeeper");
        let requests = Family::default();
        let durations: Histograms = Family::new_with_constructor(duration_histogram);
        let (shed, recalls, arms) = (Counter::default(), Family::default(), Family::default());
        registry.register("requests", "Requests answered", requests.clone());
        registry.register("request_duration_seconds", "Time to the answer's head", durations.clone());
        registry.register("requests_shed", "Requests refused at the limit of concurrent ones", shed.clone());
        registry.register("recalls", "Recalls answered, by whether everything in scope was searched", recalls.clone());
        registry.register("recall_arms_not_searched", "Arms of lanes that a recall did not search", arms.clone());
        Self { registry, requests, durations, shed, recalls, arms }
    }
}

/// A reason as a label: stable codes pass, anything else has one name.
pub(crate) fn reason_label(reason: &str) -> String {
    let is_code = (1..=48).contains(&reason.len())
        && reason.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if is_code { reason.to_owned() } else { "other".to_owned() }
}

impl Metrics {
    /// What was counted, in the text form, with its end mark.
    #[cfg(feature = "cluster")]
    pub(crate) fn served(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    pub(crate) fn request(&self, method: &'static str, route: &str, status: u16, seconds: f64) {
        let route = route.to_owned();
        self.durations.get_or_create(&RouteLabels { route: route.clone() }).observe(seconds);
        self.requests.get_or_create(&RequestLabels { method, route, status }).inc();
    }

    pub(crate) fn shed(&self) {
        self.shed.inc();
    }

    pub(crate) fn recall(&self, coverage: &Coverage) {
        self.recalls.get_or_create(&CompleteLabels { complete: coverage.complete_corpus }).inc();
        for (arm, reason) in arms_not_searched(coverage) {
            self.arms.get_or_create(&ArmLabels { arm, reason: reason_label(reason) }).inc();
        }
    }
}

/// The state of all lanes together, as a registry that lives for one scrape.
fn lanes(statuses: &[LaneStatus]) -> Registry {
    let mut registry = Registry::with_prefix("lanekeeper");
    let mut gauge = |name: &str, help: &str, value: u64| {
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        registry.register(name, help, gauge);
    };
    let count = |wanted: fn(&LaneStatus) -> bool| statuses.iter().filter(|status| wanted(status)).count() as u64;
    let sum = |of: fn(&LaneStatus) -> u64| statuses.iter().map(of).fold(0, u64::saturating_add);
    gauge("lanes", "Lanes in the directory", statuses.len() as u64);
    gauge("lanes_ready", "Lanes that answer recall", count(|status| status.ready));
    gauge("lanes_writable", "Lanes that take writes", count(|status| status.writable));
    gauge("lanes_rebuilding", "Lanes whose vectors are being made again", count(|status| status.rebuilding));
    gauge("events", "Turns not forgotten, all lanes", sum(|status| status.counts.events));
    gauge(
        "pending_projection",
        "Turns whose vectors are not made yet, all lanes",
        sum(|status| status.counts.pending_projection),
    );
    gauge("purge_outbox", "Purges whose vectors are not gone yet, all lanes", sum(|status| status.purge_outbox));
    let reasons = Family::<ReasonLabels, Gauge>::default();
    for reason in statuses.iter().flat_map(|status| &status.reasons) {
        reasons.get_or_create(&ReasonLabels { reason: reason_label(reason) }).inc();
    }
    registry.register("lane_reasons", "Lanes with something wrong, by what", reasons);
    registry
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let statuses = app.gate().nameless_statuses().await;
    let (mut served, mut state) = (String::new(), String::new());
    let encoded = encode(&mut served, &app.metrics().registry).and_then(|()| encode(&mut state, &lanes(&statuses)));
    if encoded.is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    // Each registry ends with an end mark, and there must be one.
    let text = format!("{}{state}", served.strip_suffix("# EOF\n").unwrap_or(&served));
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}

/// `GET /metrics`, to be served on a port of its own: it is not behind a credential.
pub fn metrics_router(app: &Arc<App>) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(Arc::clone(app))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codes_become_labels() {
        assert_eq!(reason_label("embedder_unavailable"), "embedder_unavailable");
        for other in ["", "team/bob is down", "Ärger", &"x".repeat(49)] {
            assert_eq!(reason_label(other), "other");
        }
    }
}
