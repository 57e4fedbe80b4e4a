//! `/readyz`, `/healthz` and `/metrics`.
//!
//! Ready: every cache has listed what there is. Alive: every watch was started anew within the time in which it must
//! be, so none hangs. That the API server is away makes neither false: a restart would not bring it back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use lanekeeper_core::cluster::path;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::gate::Watches;

/// A watch lasts 290 s at most and is then started anew; failed starts are tried again within 30 s.
pub const WATCH_HANGS: Duration = Duration::from_secs(900);

/// What the probes ask.
pub trait Health: Send + Sync + 'static {
    /// Whether all caches have listed.
    fn is_synced(&self) -> bool;
    /// When each watch was started.
    fn watches(&self) -> &Watches;
    /// For Prometheus.
    fn metrics(&self) -> String;
}

/// The probes' routes.
pub fn probes<H: Health>(health: Arc<H>) -> Router {
    Router::new().route(path::READYZ, get(ready::<H>)).route(path::HEALTHZ, get(alive::<H>)).with_state(health)
}

/// The metrics' route.
pub fn metrics<H: Health>(health: Arc<H>) -> Router {
    async fn serve<H: Health>(State(health): State<Arc<H>>) -> ([(&'static str, &'static str); 1], String) {
        ([("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")], health.metrics())
    }
    Router::new().route("/metrics", get(serve::<H>)).with_state(health)
}

async fn ready<H: Health>(State(health): State<Arc<H>>) -> (StatusCode, &'static str) {
    if health.is_synced() {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "caches are being filled")
    }
}

async fn alive<H: Health>(State(health): State<Arc<H>>) -> (StatusCode, String) {
    match health.watches().oldest() {
        Some((path, age)) if age > WATCH_HANGS => {
            tracing::error!(path, seconds = age.as_secs(), "a watch hangs");
            (StatusCode::SERVICE_UNAVAILABLE, format!("the watch of {path} hangs"))
        }
        Some(_) | None => (StatusCode::OK, "alive".to_owned()),
    }
}

/// Serves `router` until told to stop.
pub async fn serve(address: SocketAddr, router: Router, stop: CancellationToken) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    axum::serve(listener, router).with_graceful_shutdown(async move { stop.cancelled().await }).await
}
