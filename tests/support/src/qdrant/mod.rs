//! A server of Qdrant's own services, for tests: gRPC as `qdrant-client` declares it, and the part of REST that
//! an operator needs, over Qdrant's in-process engine.
//!
//! **This is a test part.** It stands in where the real server cannot be had. What it does it does as Qdrant
//! documents it: collections, aliases, payload indexes, points, and the check of keys and JWTs, `value_exists`
//! included, by names *before* aliases are resolved. What it does not have (replicas, snapshots, batches,
//! groups, recommendations, several or sparse vectors, graphs) answers `Unimplemented`, never an empty success.
//! Unlike Qdrant it flushes at every write: the in-process engine does not replay its log after a crash.
//!
//! `QDRANT_URL` points the suites that use it at a real server instead.

mod auth;
mod collections;
mod convert;
mod faults;
mod keeper;
mod points;
mod rest;
mod service;
mod storage;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use qdrant_client::qdrant::collections_server::CollectionsServer;
use qdrant_client::qdrant::points_server::PointsServer;
use qdrant_client::qdrant::qdrant_server::QdrantServer as HealthServer;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;

pub use self::auth::{LaneGrant, mint, mint_for_lane};
pub use self::faults::{Faults, Garble, Seen};
pub use self::keeper::{Collections, Keeper};
use self::service::Service;
use self::storage::Storage;

/// Qdrant's default is 32 MiB a request.
const MOST_REQUEST_BYTES: usize = 32 * 1024 * 1024;

/// Serves until it is dropped or killed.
#[derive(Debug)]
pub struct QdrantServer {
    service: Arc<Service>,
    grpc: SocketAddr,
    rest: SocketAddr,
    running: Option<tokio::runtime::Runtime>,
}

impl QdrantServer {
    /// Serves `dir` on two free ports of the loopback interface. `api_key`: asked of every request; `None`: no
    /// request is asked for one, as with a Qdrant without a key.
    pub fn start(dir: &Path, api_key: Option<&str>) -> anyhow::Result<Self> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_at(dir.to_owned(), api_key.map(str::to_owned), any, any)
    }

    /// Serves `dir` on the given addresses.
    pub fn start_at(dir: PathBuf, api_key: Option<String>, grpc: SocketAddr, rest: SocketAddr) -> anyhow::Result<Self> {
        let storage = Storage::open(dir).context("open the storage")?;
        let service = Arc::new(Service::new(storage, api_key));
        let mut server = Self { service, grpc, rest, running: None };
        server.restart()?;
        Ok(server)
    }

    /// Its gRPC address as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.grpc)
    }

    /// Its REST address as a URL.
    #[must_use]
    pub fn rest_url(&self) -> String {
        format!("http://{}", self.rest)
    }

    /// What it is made to do wrong, and what it was asked.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        self.service.faults()
    }

    /// From here on another key is asked for (a real server needs a restart for it). JWTs signed under the old
    /// one are refused.
    pub fn set_api_key(&self, api_key: Option<&str>) {
        self.service.set_api_key(api_key.map(str::to_owned));
    }

    /// Ends at once: connections break, nothing is answered. What was acknowledged is kept.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.running.take() {
            // On a thread of its own: a runtime may not be waited for inside another one, and tests are.
            let ended = std::thread::spawn(move || runtime.shutdown_timeout(Duration::from_secs(5)));
            if ended.join().is_err() {
                tracing::warn!("the test server's runtime did not end in order");
            }
        }
    }

    /// Serves again, at the same addresses.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.kill();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("test-qdrant")
            .enable_all()
            .build()
            .context("make a runtime")?;
        let inside = runtime.enter();
        let grpc = listen(self.grpc).context("bind the gRPC port")?;
        let rest = listen(self.rest).context("bind the REST port")?;
        self.grpc = grpc.local_addr()?;
        self.rest = rest.local_addr()?;
        let service = Arc::clone(&self.service);
        let points = PointsServer::from_arc(Arc::clone(&service)).max_decoding_message_size(MOST_REQUEST_BYTES);
        let collections = CollectionsServer::from_arc(Arc::clone(&service));
        let health = HealthServer::from_arc(Arc::clone(&service));
        runtime.spawn(
            tonic::transport::Server::builder()
                .add_service(points)
                .add_service(collections)
                .add_service(health)
                .serve_with_incoming(TcpIncoming::from(grpc).with_nodelay(Some(true))),
        );
        runtime.spawn(async move { axum::serve(rest, rest::router(service)).await });
        drop(inside);
        self.running = Some(runtime);
        Ok(())
    }

    /// Waits until the process is told to end (SIGINT or SIGTERM).
    pub fn wait(&self) -> anyhow::Result<()> {
        let runtime = self.running.as_ref().context("it is not running")?;
        runtime.block_on(async {
            let mut end = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
            tokio::select! {
                _ = end.recv() => Ok(()),
                ended = tokio::signal::ctrl_c() => ended.map_err(Into::into),
            }
        })
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

impl Drop for QdrantServer {
    fn drop(&mut self) {
        self.kill();
    }
}
