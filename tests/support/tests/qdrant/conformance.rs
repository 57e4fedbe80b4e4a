//! The suite that every engine passes, over a socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lanekeeper_core::Generation;
use lanekeeper_core::cluster::qdrant::physical;
use lanekeeper_federation::Registry;
use lanekeeper_lane_store::vectors::VectorStore;
use lanekeeper_lane_store::vectors::conformance::{Target, conformance};
use lanekeeper_lane_store::vectors::qdrant::{QdrantLimits, QdrantSettings, QdrantStore};
use lanekeeper_test_support::qdrant::{Collections, Keeper, LaneGrant, QdrantServer, mint_for_lane};
use tokio::sync::OnceCell;

use crate::stage::{API_KEY, declared, fingerprint};

/// Where a target's collections are.
#[derive(Clone)]
struct Place {
    url: String,
    api_key: Option<String>,
    /// Whether a lane's own token is used (the server must know the fence); else the API key itself.
    own_token: bool,
}

struct Remote {
    place: Place,
    alias: String,
    dir: tempfile::TempDir,
    made: OnceCell<(Arc<dyn Registry>, Keeper)>,
}

impl Remote {
    fn new(place: &Place, number: u64) -> Self {
        // A real server outlives the run: names of this run only.
        let run = uuid::Uuid::new_v4().simple().to_string();
        let alias = format!("conformance.c{number}-{}", &run[..12]);
        Self { place: place.clone(), alias, dir: tempfile::tempdir().unwrap(), made: OnceCell::new() }
    }

    async fn make(&self, dimension: usize) -> (Arc<dyn Registry>, Keeper) {
        let collections = Collections::new(&self.place.url, self.place.api_key.as_deref()).unwrap();
        let registry = declared(self.dir.path(), &self.alias).await;
        if self.place.own_token {
            collections.fence(&self.alias, 1).await.unwrap();
        }
        let keeper = Keeper::start(collections, Arc::clone(&registry), self.alias.clone(), dimension, fingerprint())
            .await
            .unwrap();
        (registry, keeper)
    }

    fn physical(&self, dimension: usize) -> [String; 3] {
        [1, 2, 3].map(|generation| {
            physical(&self.alias, u32::try_from(dimension).unwrap(), &fingerprint(), Generation(generation))
        })
    }
}

impl Target for Remote {
    async fn open(&self, dimension: usize) -> Arc<dyn VectorStore> {
        let (registry, _) = self.made.get_or_init(|| self.make(dimension)).await;
        let file = self.dir.path().join("key");
        let key = self.place.api_key.as_ref().map(|api_key| {
            if self.place.own_token {
                let physical = self.physical(dimension);
                let lifetime = Duration::from_secs(3600);
                mint_for_lane(api_key, &LaneGrant { alias: &self.alias, physical: &physical, epoch: 1, lifetime })
            } else {
                api_key.clone()
            }
        });
        let credential_file = key.map(|key| {
            std::fs::write(&file, key).unwrap();
            file
        });
        QdrantStore::connect(QdrantSettings {
            url: self.place.url.clone(),
            credential_file,
            ca_file: None,
            alias: self.alias.clone(),
            fingerprint: fingerprint(),
            dimension,
            registry: Arc::clone(registry),
            limits: QdrantLimits {
                read: Duration::from_secs(20),
                write: Duration::from_secs(20),
                operator: Duration::from_secs(20),
            },
        })
        .await
        .unwrap()
    }
}

impl Drop for Remote {
    /// Leaves nothing behind on a server that outlives the run.
    fn drop(&mut self) {
        drop(self.made.take());
        let (place, names) = (self.place.clone(), self.physical(4));
        let cleaned = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let collections = Collections::new(&place.url, place.api_key.as_deref()).unwrap();
                for name in names {
                    let _gone_already = collections.remove(&name).await;
                }
            });
        });
        let _panicked = cleaned.join();
    }
}

async fn run(place: Place) {
    let number = AtomicU64::new(0);
    conformance(|| Remote::new(&place, number.fetch_add(1, Ordering::Relaxed))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_conforms_with_a_lanes_own_token() {
    let dir = tempfile::tempdir().unwrap();
    let server = QdrantServer::start(dir.path(), Some(API_KEY)).unwrap();
    run(Place { url: server.url(), api_key: Some(API_KEY.to_owned()), own_token: true }).await;
    let seen = server.faults().take_seen();
    let writes = ["upsert", "delete", "overwrite_payload"];
    assert!(
        seen.iter().filter(|seen| writes.contains(&seen.method)).all(|seen| seen.wait == Some(true)),
        "every write is waited for"
    );
    // Nothing but the fence is left of what the suite made.
    let collections = Collections::new(&server.url(), Some(API_KEY)).unwrap();
    assert_eq!(collections.names().await.unwrap(), ["lanekeeper-fence"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_conforms_on_a_server_that_asks_for_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let server = QdrantServer::start(dir.path(), None).unwrap();
    run(Place { url: server.url(), api_key: None, own_token: false }).await;
}

/// Run with `QDRANT_URL=… cargo test --workspace --test qdrant -- --include-ignored`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "NOT RUN: needs a real server, QDRANT_URL and QDRANT_API_KEY"]
async fn the_engine_conforms_on_a_real_server() {
    let place = real_server();
    run(Place { own_token: false, ..place }).await;
}

/// With tokens of its own the server must check them: `service.jwt_rbac`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "NOT RUN: needs a real server that checks JWTs, QDRANT_URL and QDRANT_API_KEY"]
async fn the_engine_conforms_on_a_real_server_with_a_lanes_own_token() {
    let place = real_server();
    assert!(place.api_key.is_some(), "QDRANT_API_KEY: tokens are signed with it");
    run(Place { own_token: true, ..place }).await;
}

fn real_server() -> Place {
    let url = std::env::var("QDRANT_URL").expect("QDRANT_URL: the gRPC address of a server");
    let api_key = std::env::var("QDRANT_API_KEY").ok().filter(|key| !key.is_empty());
    Place { url, api_key, own_token: false }
}
