//! Counts for Prometheus in a cluster: what was served, and how the directory is. Each lane's own numbers are at its
//! store: asking all of them at each scrape would wake what is idle.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::directory::ClusterDirectory;
use crate::app::App;
use crate::directory::LaneDirectory as _;

#[derive(Clone)]
struct Sources {
    app: Arc<App>,
    directory: Arc<ClusterDirectory>,
}

fn directory(directory: &ClusterDirectory) -> Registry {
    let mut registry = Registry::with_prefix("lanekeeper");
    let mut gauge = |name: &str, help: &str, value: i64| {
        let gauge = Gauge::<i64>::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    gauge("lanes", "Lanes in the directory", count(directory.lanes().len()));
    gauge(
        "stores_cut_off",
        "Lanes whose store did not answer and is not asked at the moment",
        count(directory.cut_off()),
    );
    gauge("watch_failing_seconds", "For how long a watch has failed", directory.failing_ms() / 1000);
    registry
}

async fn metrics(State(Sources { app, directory: lanes }): State<Sources>) -> Response {
    let mut state = String::new();
    let encoded = app.metrics().served().and_then(|served| encode(&mut state, &directory(&lanes)).map(|()| served));
    let Ok(served) = encoded else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    // Each registry ends with an end mark, and there must be one.
    let text = format!("{}{state}", served.strip_suffix("# EOF\n").unwrap_or(&served));
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}

pub(super) fn router(app: Arc<App>, directory: Arc<ClusterDirectory>) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(Sources { app, directory })
}
