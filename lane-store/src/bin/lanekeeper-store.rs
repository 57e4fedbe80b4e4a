//! `lanekeeper-store`: one lane's store as a server. See docs/cluster-contract.md.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use lanekeeper_core::clock::{Clock, SystemClock};
use lanekeeper_lane_store::server::{Options, Secrets, ServerSettings, parts, start};
use tokio::signal::unix::{SignalKind, signal};

/// Answers that are under way at SIGTERM have this long. The one pod of a lane is missed until the next one is up,
/// so it does not wait longer than a recall takes.
const DRAIN: Duration = Duration::from_secs(8);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("another rustls provider is installed already"))?;
    let mut term = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let client = kube::Client::try_default().await.context("no way to the API server")?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let secrets = Secrets::open(&options.secrets)?;
    let opener = parts(&options, client, Arc::clone(&clock))?;
    let settings = ServerSettings {
        lane_uid: options.lane_uid,
        log_id: options.log_id,
        listen: options.listen,
        metrics: Some(options.metrics),
        drain: DRAIN,
    };
    let running = start(settings, secrets, opener, clock).await?;
    tokio::select! {
        _ = term.recv() => tracing::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
    }
    running.stop().await;
    tracing::info!("stopped");
    Ok(())
}
