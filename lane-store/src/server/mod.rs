//! The store as a server: one lane, HTTPS, attested requests, its record in the API server.
//!
//! # Flow
//! 1. [`Server::start`] listens at once, so that probes get an answer while the lane is being opened.
//! 2. [`lane::keep_open`] opens the lane and, where it cannot be opened, tries again and says why in `/readyz`.
//! 3. A request under `/v1/store` passes [`attested::attest`], which gives the only [`Caller`] there is.
//! 4. [`Running::stop`]: no new connection, the last answers, the lane's checkpoint, its head and its release.
//!
//! # Guarantees
//! - No handler of a lane's method runs without an attestation that was proven for that very request.
//! - What is public (`/healthz`, `/readyz`, `/startupz`) holds codes and numbers, never text of a memory.
//! - Keys and certificate are renewed in place: their files are looked at every few seconds.
//!
//! [`Caller`]: lanekeeper_core::lane_client::Caller

mod answer;
mod attested;
mod health;
mod lane;
mod metrics;
mod options;
mod routes;
mod secrets;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum_server::Handle;
use lanekeeper_core::attest::{NonceWindow, StoreIdentity};
use lanekeeper_core::clock::Clock;
use lanekeeper_core::{LaneUid, LogId};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

pub use lane::{Opener, Slot};
pub use options::{Engine, Options, parts};
pub use secrets::{Secrets, SecretsError};

/// Requests that are worked on at once; one more is told to come again.
const REQUESTS: usize = 128;
/// Nonces of 90 s: 5,000 requests a second, far over what one lane serves.
const NONCES: usize = 450_000;
/// How long a connection may take to send its first request.
const FIRST_REQUEST: Duration = Duration::from_secs(10);

/// What the server is made of.
pub(crate) struct App {
    slot: Arc<Slot>,
    secrets: Arc<Secrets>,
    identity: StoreIdentity,
    nonces: Mutex<NonceWindow>,
    permits: Semaphore,
    clock: Arc<dyn Clock>,
    metrics: metrics::Metrics,
}

/// Where a server listens, and what for.
#[derive(Debug)]
pub struct ServerSettings {
    /// The lane.
    pub lane_uid: LaneUid,
    /// Its log, as it was declared.
    pub log_id: LogId,
    /// For the store protocol and the probes, over TLS.
    pub listen: SocketAddr,
    /// For metrics, in the clear; `None`: none.
    pub metrics: Option<SocketAddr>,
    /// How long answers that are under way have at the end.
    pub drain: Duration,
}

/// Why a server does not start. A person must look.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// It.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Certificate or keys.
    #[error("the folder of secrets cannot be used")]
    Secrets(#[from] SecretsError),
}

/// A server that runs.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it gives metrics.
    pub metrics: Option<SocketAddr>,
    handle: Handle<SocketAddr>,
    serving: JoinHandle<std::io::Result<()>>,
    opening: JoinHandle<()>,
    background: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
    slot: Arc<Slot>,
    drain: Duration,
}

/// Starts listening, and opening the lane. The process must have installed its rustls provider.
pub async fn start(
    settings: ServerSettings,
    secrets: Secrets,
    opener: Arc<dyn Opener>,
    clock: Arc<dyn Clock>,
) -> Result<Running, ServerError> {
    let ServerSettings { lane_uid, log_id, listen, metrics, drain } = settings;
    let secrets = Arc::new(secrets);
    let tls = secrets.tls().await?;
    let (listener, address) = bind(listen)?;
    let metrics_listener = metrics.map(bind).transpose()?;
    let slot = Arc::new(Slot::default());
    let app = Arc::new(App {
        slot: Arc::clone(&slot),
        secrets: Arc::clone(&secrets),
        identity: StoreIdentity { lane_uid, log_id, started_at_ms: clock.now_ms() },
        nonces: Mutex::new(NonceWindow::new(NONCES)),
        permits: Semaphore::new(REQUESTS),
        clock,
        metrics: metrics::Metrics::default(),
    });
    let handle = Handle::new();
    let listening = |source| ServerError::Listen { address, source };
    let server = axum_server::from_tcp_rustls(listener, tls)
        .map_err(listening)?
        .handle(handle.clone())
        .first_request_timeout(FIRST_REQUEST);
    let router = router(&app);
    let serving = tokio::spawn(async move { server.serve(router.into_make_service()).await });
    let stop = watch::Sender::new(false);
    let mut background = vec![tokio::spawn(secrets.follow(stop.subscribe()))];
    let mut metrics_address = None;
    if let Some((listener, address)) = metrics_listener {
        metrics_address = Some(address);
        background.push(metrics::serve(listener, address, &app)?);
    }
    let opening = tokio::spawn(lane::keep_open(Arc::clone(&slot), opener, stop.subscribe()));
    tracing::info!(%address, "listening");
    Ok(Running { address, metrics: metrics_address, handle, serving, opening, background, stop, slot, drain })
}

fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServerError> {
    let failed = |source| ServerError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

fn router(app: &Arc<App>) -> Router {
    routes::attested(app).merge(health::public()).with_state(Arc::clone(app))
}

impl Running {
    /// The lane's slot: whether it is open, and its store.
    #[must_use]
    pub const fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// Ends in order: no new connection, the answers under way, then the lane: its checkpoint, its head, its
    /// release of the record.
    pub async fn stop(self) {
        let Self { handle, serving, opening, background, stop, slot, drain, address: _, metrics: _ } = self;
        slot.set_stopping();
        handle.graceful_shutdown(Some(drain));
        match serving.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "serving ended"),
            Err(error) => tracing::error!(%error, "serving broke off"),
        }
        stop.send_replace(true);
        // An open that is under way is waited for, so that it is closed in order too.
        let _ = opening.await;
        slot.close().await;
        for task in background {
            task.abort();
        }
    }
}
