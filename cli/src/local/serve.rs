//! Listening, serving, stopping.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt as _;
use lanekeeper_core::clock::{Clock, SystemClock};
use lanekeeper_federation::FileRegistry;
use lanekeeper_query_service::rank::Steps;
use lanekeeper_query_service::{App, Limits, Parts, Verifiers, metrics_router, router};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::data::DataFolder;
use super::directory::Directory;
use super::embedders::{Embedders, GivenEmbedder};
use super::lanes::{Lanes, Refused};
use super::late_encoder::LateEncoder;
use super::supervisor::Supervisor;
use crate::failure::Failure;
use crate::output;

/// From the signal on, requests that run have this long to end.
const DRAIN: Duration = Duration::from_secs(2);
/// From the signal on, everything has this long. Under the five seconds that are promised.
const STOP: Duration = Duration::from_millis(4_500);

/// What `local` was asked for.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) manifests: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) metrics_listen: Option<SocketAddr>,
    pub(crate) allow_remote: bool,
    pub(crate) embedder: Option<GivenEmbedder>,
}

/// Serves until a signal comes.
pub(crate) async fn serve(options: Options) -> Result<(), Failure> {
    let Options { manifests, data, listen, metrics_listen, allow_remote, embedder } = options;
    let mut signals = Signals::new()?;
    let listener = bind(listen, allow_remote).await?;
    let metrics_listener = match metrics_listen {
        Some(address) => Some(bind(address, allow_remote).await?),
        None => None,
    };
    let folder = DataFolder::open(&data).map_err(|error| Failure::because("the data folder", &error))?;
    let issuer = folder.issuer().map_err(|error| Failure::because("the token key", &error))?;
    let verifiers = Verifiers::new([issuer.verifier()]).map_err(|error| Failure::because("the token key", &error))?;
    let registry =
        FileRegistry::open(folder.layout.records()).map_err(|error| Failure::because("the records", &error))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let builtin = Arc::new(LateEncoder::builtin());
    let opening = builtin.clone();
    let embedders = Embedders::new(builtin, embedder).map_err(|error| Failure::because("--embedder", &error))?;
    let directory = Arc::new(Directory::default());
    let lanes = Lanes::new(folder.layout.clone(), Arc::new(registry), embedders, clock.clone(), directory.clone());
    let refused = |Refused { code, why }| Failure::refused(format!("the lanes of {} ({code}): {why}", data.display()));
    let mut supervisor = Supervisor::start(manifests, lanes, clock.clone()).await.map_err(refused)?;
    let start = async {
        // Before the lanes, so that none of them finds it missing and waits.
        let opened = opening.open_now().await;
        supervisor.settle().await;
        opened
    };
    let opened = tokio::select! {
        opened = start => opened,
        // A start that is broken off is like a kill: nothing was promised to anybody yet.
        name = signals.next() => {
            tracing::info!(signal = name, "stopped while starting");
            return Ok(());
        }
    };
    if !opened {
        tokio::spawn(opening.keep_opening());
    }
    let app = App::new(Parts { directory, verifiers, clock, limits: Limits::default(), steps: Steps::default() });
    let (stop, stopping) = watch::channel(false);
    let (close, closing) = watch::channel(false);
    let supervising = tokio::spawn(supervisor.run(closing));
    let metrics =
        metrics_listener.map(|listener| serving(listener, metrics_router(&app), stopping.clone())).transpose()?;
    let api = serving(listener, router(&app), stopping)?;
    announce(&folder, &api, metrics.as_ref())?;

    let name = signals.next().await;
    tracing::info!(signal = name, "stopping");
    let _ = stop.send(true);
    let stopped = async {
        let serving: Vec<JoinHandle<()>> =
            [Some(api), metrics].into_iter().flatten().map(|serving| serving.task).collect();
        drain(serving).await;
        // Only now: a request that was let in still finds its lane.
        let _ = close.send(true);
        supervising.await
    };
    tokio::select! {
        outcome = tokio::time::timeout(STOP, stopped) => match outcome {
            Ok(Ok(())) => tracing::info!("stopped; every lane is closed"),
            Ok(Err(error)) => tracing::error!(%error, "the lanes were not closed in order; the next start checks them"),
            Err(_) => tracing::warn!("not everything was closed in time; the next start checks it"),
        },
        // Whoever asks twice means it.
        _ = signals.next() => tracing::warn!("stopped at once; the next start checks every lane"),
    }
    drop(folder);
    Ok(())
}

async fn drain(serving: Vec<JoinHandle<()>>) {
    let handles: Vec<_> = serving.iter().map(JoinHandle::abort_handle).collect();
    if tokio::time::timeout(DRAIN, futures::future::join_all(serving)).await.is_err() {
        tracing::warn!("requests were cut off");
        handles.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

/// Binds, if the address may be listened on.
async fn bind(address: SocketAddr, allow_remote: bool) -> Result<TcpListener, Failure> {
    check_address(address, allow_remote)?;
    TcpListener::bind(address).await.map_err(|error| Failure::refused(format!("cannot listen on {address}: {error}")))
}

fn check_address(address: SocketAddr, allow_remote: bool) -> Result<(), Failure> {
    if address.ip().is_loopback() || allow_remote {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{address} can be reached from other machines, and there is no TLS here: tokens and memory would travel in the clear. Put a proxy with TLS before a loopback address, or say --allow-remote"
    )))
}

struct Serving {
    address: SocketAddr,
    task: JoinHandle<()>,
}

fn serving(listener: TcpListener, router: Router, mut stop: watch::Receiver<bool>) -> Result<Serving, Failure> {
    let address = listener.local_addr().map_err(|error| Failure::because("the listener", &error))?;
    // Answers are small; waiting to fill a packet only costs time.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let task = tokio::spawn(async move {
        let stopped = async move {
            let _ = stop.wait_for(|stop| *stop).await;
        };
        if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await {
            tracing::error!(%error, "serving ended");
        }
    });
    Ok(Serving { address, task })
}

/// One line for programs on stdout; what people want to know on stderr.
fn announce(folder: &DataFolder, api: &Serving, metrics: Option<&Serving>) -> Result<(), Failure> {
    output::print(&format!("lanekeeper listening on http://{}\n", api.address))?;
    if let Some(metrics) = metrics {
        output::print(&format!("lanekeeper metrics on http://{}/metrics\n", metrics.address))?;
    }
    let data = folder.layout.root().display();
    tracing::info!("memory is kept in {data}");
    tracing::info!("a token: lanekeeper token --data {data} --lane NAMESPACE/NAME --principal user:NAME");
    Ok(())
}

/// The signals that end the process in order. Not SIGHUP: listening for it would undo `nohup`, and where it
/// does end the process that is a kill, which loses nothing.
struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::because("cannot listen for signals", &error));
        Ok(Self { term: listen(SignalKind::terminate())?, int: listen(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_listened_on_unless_somebody_says_otherwise() {
        for here in ["127.0.0.1:7070", "127.9.9.9:0", "[::1]:7070"] {
            assert!(check_address(here.parse().unwrap(), false).is_ok(), "{here}");
        }
        for everywhere in ["0.0.0.0:7070", "[::]:7070", "192.168.1.5:80"] {
            assert!(check_address(everywhere.parse().unwrap(), false).is_err(), "{everywhere}");
            assert!(check_address(everywhere.parse().unwrap(), true).is_ok(), "{everywhere}");
        }
    }
}
