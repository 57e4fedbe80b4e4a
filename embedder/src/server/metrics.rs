//! Counts for Prometheus. Labels are kinds and codes.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use lanekeeper_core::encoder::EncodeError;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::Embedder;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkLabels {
    work: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    work: &'static str,
}

type Histograms = Family<KindLabels, Histogram, fn() -> Histogram>;

pub(super) struct Metrics {
    registry: Registry,
    requests: Family<WorkLabels, Counter>,
    durations: Histograms,
    passages: Counter,
}

fn duration_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.002, 2.0, 15))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("lanekeeper_embedder");
        let (requests, passages) = (Family::default(), Counter::default());
        let durations: Histograms = Family::new_with_constructor(duration_histogram);
        registry.register("requests", "Requests, by work and outcome", requests.clone());
        registry.register("request_duration_seconds", "Time of encoding, waiting included", durations.clone());
        registry.register("passages", "Passages encoded", passages.clone());
        Self { registry, requests, durations, passages }
    }
}

impl Metrics {
    pub(super) fn encoded(&self, work: &'static str, error: Option<&EncodeError>, time: Duration) {
        let outcome = match error {
            None => "ok",
            Some(EncodeError::Overloaded) => "overloaded",
            Some(EncodeError::Unavailable { .. }) => "unavailable",
            Some(EncodeError::ModelMismatch { .. }) => "model_mismatch",
            Some(EncodeError::Refused { .. }) => "refused",
        };
        self.requests.get_or_create(&WorkLabels { work, outcome }).inc();
        self.durations.get_or_create(&KindLabels { work }).observe(time.as_secs_f64());
    }

    pub(super) fn passages(&self, count: usize) {
        self.passages.inc_by(count as u64);
    }
}

pub(super) async fn serve(State(embedder): State<Arc<Embedder>>) -> Response {
    let mut text = String::new();
    if encode(&mut text, &embedder.metrics.registry).is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}
