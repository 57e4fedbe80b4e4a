//! `lanekeeper-embedder`: the built-in model as a server. See docs/cluster-contract.md.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use lanekeeper_core::fingerprint::{BUILTIN_MODEL, FingerprintFields};
use lanekeeper_embedder::server::{Embedder, metrics_router, router};
use lanekeeper_embedder::{BuiltinEncoder, BuiltinOptions, model_dir};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Requests that are under way at SIGTERM have this long.
const DRAIN: Duration = Duration::from_secs(20);
/// How long a model that cannot be loaded is left alone.
const AGAIN: Duration = Duration::from_secs(10);

/// The built-in model as a server.
#[derive(Debug, clap::Parser)]
#[command(name = "lanekeeper-embedder", version)]
struct Options {
    /// The model; this version serves one.
    #[arg(long, env = "LANEKEEPER_MODEL", default_value = BUILTIN_MODEL)]
    model: String,
    /// The API, in the clear: NetworkPolicies say who reaches it.
    #[arg(long, env = "LANEKEEPER_LISTEN", default_value = "[::]:7070")]
    listen: SocketAddr,
    /// Metrics.
    #[arg(long, env = "LANEKEEPER_METRICS", default_value = "[::]:9090")]
    metrics: SocketAddr,
    /// Batches computed at a time, each on one thread. Left out: one a core.
    #[arg(long, env = "LANEKEEPER_THREADS")]
    threads: Option<usize>,
}

async fn load(embedder: Arc<Embedder>, threads: Option<usize>) {
    loop {
        let opened = tokio::task::spawn_blocking(move || {
            let folder = model_dir().map_err(|error| error.to_string())?;
            let mut options = BuiltinOptions::default();
            options.threads = threads.unwrap_or(options.threads);
            BuiltinEncoder::open_with(&folder, options).map_err(|error| error.to_string())
        })
        .await;
        match opened {
            Ok(Ok(encoder)) => {
                if !embedder.provide(Arc::new(encoder)) {
                    tracing::error!("the model that was loaded is not the declared one");
                }
                if let Err(error) = embedder.warm_up().await {
                    tracing::warn!(%error, "the first passages were not encoded");
                }
                tracing::info!("ready");
                return;
            }
            Ok(Err(reason)) => tracing::error!(reason, "the model cannot be loaded; it is tried again"),
            Err(error) => tracing::error!(%error, "loading the model broke off"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn serve(address: SocketAddr, router: axum::Router, mut stop: watch::Receiver<bool>) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    tracing::info!(%address, "listening");
    axum::serve(listener, router)
        .with_graceful_shutdown(async move {
            let _ = stop.wait_for(|stop| *stop).await;
        })
        .await
        .context("serving ended")
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
    anyhow::ensure!(options.model == BUILTIN_MODEL, "--model: this version serves {BUILTIN_MODEL} only");
    let mut term = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let embedder = Embedder::new(FingerprintFields::builtin());
    let stop = watch::Sender::new(false);
    tokio::spawn(load(Arc::clone(&embedder), options.threads));
    let api = tokio::spawn(serve(options.listen, router(&embedder), stop.subscribe()));
    let metrics = tokio::spawn(serve(options.metrics, metrics_router(&embedder), stop.subscribe()));
    let mut serving = std::pin::pin!(async { tokio::try_join!(flat(api), flat(metrics)).map(drop) });
    tokio::select! {
        outcome = &mut serving => return outcome,
        _ = term.recv() => tracing::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
    }
    stop.send_replace(true);
    match tokio::time::timeout(DRAIN, serving).await {
        Ok(outcome) => outcome,
        Err(_) => {
            tracing::warn!("requests were cut off");
            Ok(())
        }
    }
}

async fn flat(task: tokio::task::JoinHandle<anyhow::Result<()>>) -> anyhow::Result<()> {
    task.await.context("serving broke off")?
}
