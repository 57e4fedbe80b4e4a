//! The operator's program.

use clap::Parser as _;
use lanekeeper_operator::{Config, run};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Before anything makes a connection: there is one provider in the process.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        anyhow::bail!("another TLS provider is installed");
    }
    let config = Config::parse();
    let _traces = lanekeeper_telemetry::start("lanekeeper-operator", config.otlp_endpoint.as_deref())?;
    let shutdown = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let told = shutdown.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop");
        told.cancel();
    });
    run(config, shutdown).await
}
