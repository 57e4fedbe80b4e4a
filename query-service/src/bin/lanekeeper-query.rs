//! `lanekeeper-query`: the query API in a cluster. See docs/cluster-contract.md.

use anyhow::Context as _;
use clap::Parser as _;
use lanekeeper_query_service::cluster::{Options, run};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("another rustls provider is installed already"))?;
    // Sends what is left when the program ends.
    let _traces = lanekeeper_telemetry::start("lanekeeper-query", options.otlp_endpoint.as_deref())?;
    let mut term = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let client = kube::Client::try_default().await.context("no way to the API server")?;
    let stop = async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    run(&options, client, stop).await
}
