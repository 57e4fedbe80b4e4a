//! Listening and stopping.
//!
//! # Flow of stopping
//! 1. `/readyz` says no, and every answer asks its client to open a new connection next time.
//! 2. For the drain delay requests are served as before: it takes that long until no proxy and no client sends here.
//! 3. Listening ends; answers under way have their time. So no request fails while replicas roll.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use axum_server::Handle;
use http::header::CONNECTION;
use http::{HeaderValue, StatusCode};
use kube::Client;
use lanekeeper_core::clock::{Clock, SystemClock};
use tokio::task::JoinHandle;

use super::attesting::{Master, MasterError};
use super::directory::{ClusterDirectory, Surroundings};
use super::metrics;
use super::options::Options;
use super::remote_lane::StoreLink;
use super::store_http::{StoreHttp, StoreHttpError};
use super::tls::Certificate;
use super::token_review::KubeReviewer;
use crate::app::{App, Limits, Parts};
use crate::auth::Verifiers;
use crate::rank::Steps;
use crate::routes::router;

/// Answers under way have this long once listening has ended. With the drain delay under the 30 s that a pod has.
const DRAIN: Duration = Duration::from_secs(20);
/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(5);
/// How long a connection may take to send its first request.
const FIRST_REQUEST: Duration = Duration::from_secs(10);

/// Why the service does not start. A person must look.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// It.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// In the clear only on loopback.
    #[error("--insecure-http is for loopback addresses only, and {address} is none")]
    Insecure {
        /// The address.
        address: SocketAddr,
    },
    /// The service's own certificate.
    #[error("tls.crt and tls.key of {folder} cannot be used")]
    Certificate {
        /// Their folder.
        folder: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The CA of stores.
    #[error("the CA of stores")]
    StoreHttp(#[from] StoreHttpError),
    /// The master key.
    #[error("the master key")]
    Master(#[from] MasterError),
}

/// Whether this replica wants requests.
#[derive(Debug)]
struct Readiness {
    directory: Arc<ClusterDirectory>,
    draining: AtomicBool,
}

impl Readiness {
    fn status(&self) -> StatusCode {
        let ready = self.directory.is_synced() && !self.draining.load(Ordering::SeqCst);
        if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
    }
}

/// A service that runs.
#[derive(Debug)]
pub struct Running {
    /// The API's address.
    pub address: SocketAddr,
    /// The probes'.
    pub probes: SocketAddr,
    /// The metrics'.
    pub metrics: SocketAddr,
    directory: Arc<ClusterDirectory>,
    readiness: Arc<Readiness>,
    handle: Handle<SocketAddr>,
    api: JoinHandle<std::io::Result<()>>,
    background: Vec<JoinHandle<()>>,
    drain_delay: Duration,
}

/// Starts everything. The process must have installed its rustls provider.
pub async fn start(options: &Options, client: Client, verifiers: Verifiers) -> Result<Running, ClusterError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let http = StoreHttp::open(options.tls.join("ca.crt"))?;
    let link = Arc::new(StoreLink::new(http, Master::open(&options.master)?, Arc::clone(&clock)));
    start_with(options, client, verifiers, link, clock).await
}

/// [`start`] with a given way to the stores and a given clock.
pub async fn start_with(
    options: &Options,
    client: Client,
    verifiers: Verifiers,
    link: Arc<StoreLink>,
    clock: Arc<dyn Clock>,
) -> Result<Running, ClusterError> {
    let certificate = if options.insecure_http {
        if !options.listen.ip().is_loopback() {
            return Err(ClusterError::Insecure { address: options.listen });
        }
        None
    } else {
        let failed = |source| ClusterError::Certificate { folder: options.tls.display().to_string(), source };
        Some(Arc::new(Certificate::open(&options.tls).await.map_err(failed)?))
    };
    let (api_listener, address) = bind(options.listen)?;
    let (probes_listener, probes) = bind(options.probes)?;
    let (metrics_listener, metrics_address) = bind(options.metrics)?;
    let directory = ClusterDirectory::start(
        client.clone(),
        Surroundings {
            system_namespace: options.system_namespace.clone(),
            embedder_tokens: options.embedder_tokens.clone(),
            link: Arc::clone(&link),
            clock: Arc::clone(&clock),
        },
    );
    let app = App::new(Parts {
        directory: Arc::clone(&directory) as _,
        verifiers: verifiers.with_reviewer(Arc::new(KubeReviewer::new(client, Arc::clone(&clock)))),
        clock,
        limits: Limits { concurrent_requests: options.concurrent_requests, ..Limits::default() },
        steps: Steps::default(),
    });
    let readiness = Arc::new(Readiness { directory: Arc::clone(&directory), draining: AtomicBool::new(false) });
    let handle = Handle::new();
    let api = serve_api(api_listener, address, &app, &readiness, certificate.as_deref(), handle.clone())?;
    let background = vec![
        serve_plain(probes_listener, probes, probes_router(&readiness))?,
        serve_plain(metrics_listener, metrics_address, metrics::router(app, Arc::clone(&directory)))?,
        tokio::spawn(follow_files(link, certificate)),
    ];
    tracing::info!(%address, "listening");
    Ok(Running {
        address,
        probes,
        metrics: metrics_address,
        directory,
        readiness,
        handle,
        api,
        background,
        drain_delay: options.drain_delay(),
    })
}

fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ClusterError> {
    let failed = |source| ClusterError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// The API. Its own `/readyz` asks every lane, and anybody may call it: here it is the replica's.
fn api_router(app: &Arc<App>, readiness: &Arc<Readiness>) -> Router {
    probes_router(readiness)
        .fallback_service(router(app))
        .layer(from_fn_with_state(Arc::clone(readiness), ask_to_leave))
}

fn probes_router(readiness: &Arc<Readiness>) -> Router {
    let readyz = |State(readiness): State<Arc<Readiness>>| async move { readiness.status() };
    Router::new()
        .route("/healthz", get(|| async { StatusCode::OK }))
        .route("/readyz", get(readyz))
        .with_state(Arc::clone(readiness))
}

/// While this replica leaves, each connection is used for one more request at most.
async fn ask_to_leave(State(readiness): State<Arc<Readiness>>, request: Request, next: Next) -> Response {
    let http1 = request.version() <= http::Version::HTTP_11;
    let mut response = next.run(request).await;
    if http1 && readiness.draining.load(Ordering::SeqCst) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn serve_api(
    listener: TcpListener,
    address: SocketAddr,
    app: &Arc<App>,
    readiness: &Arc<Readiness>,
    certificate: Option<&Certificate>,
    handle: Handle<SocketAddr>,
) -> Result<JoinHandle<std::io::Result<()>>, ClusterError> {
    let failed = |source| ClusterError::Listen { address, source };
    let service = api_router(app, readiness).into_make_service();
    Ok(match certificate {
        Some(certificate) => {
            let server = axum_server::from_tcp_rustls(listener, certificate.config()).map_err(failed)?;
            let server = server.handle(handle).first_request_timeout(FIRST_REQUEST);
            tokio::spawn(async move { server.serve(service).await })
        }
        None => {
            let server = axum_server::from_tcp(listener).map_err(failed)?;
            let server = server.handle(handle).first_request_timeout(FIRST_REQUEST);
            tokio::spawn(async move { server.serve(service).await })
        }
    })
}

fn serve_plain(listener: TcpListener, address: SocketAddr, router: Router) -> Result<JoinHandle<()>, ClusterError> {
    let listener =
        tokio::net::TcpListener::from_std(listener).map_err(|source| ClusterError::Listen { address, source })?;
    Ok(tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "serving ended");
        }
    }))
}

async fn follow_files(link: Arc<StoreLink>, certificate: Option<Arc<Certificate>>) {
    loop {
        tokio::time::sleep(LOOK).await;
        link.look();
        if let Some(certificate) = &certificate {
            certificate.look().await;
        }
    }
}

impl Running {
    /// The lanes as they are now.
    #[must_use]
    pub const fn directory(&self) -> &Arc<ClusterDirectory> {
        &self.directory
    }

    /// Stops in order; see the module's head.
    pub async fn stop(self) {
        let Self { readiness, handle, api, background, drain_delay, .. } = self;
        readiness.draining.store(true, Ordering::SeqCst);
        tokio::time::sleep(drain_delay).await;
        handle.graceful_shutdown(Some(DRAIN));
        match api.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "serving ended"),
            Err(error) => tracing::error!(%error, "serving broke off"),
        }
        for task in background {
            task.abort();
        }
    }
}

/// Serves until a signal comes.
pub async fn run(options: &Options, client: Client, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let running = start(options, client, options.verifiers()?).await?;
    stop.await;
    tracing::info!("stopping");
    running.stop().await;
    tracing::info!("stopped");
    Ok(())
}
