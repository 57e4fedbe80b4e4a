//! A whole lane store with its vectors on the server: what its callers see of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_core::Generation;
use lanekeeper_core::cluster::qdrant::physical;
use lanekeeper_core::encoder::Encoder;
use lanekeeper_core::lane_client::{LaneClient, StoreAnswer};
use lanekeeper_core::testing::HashEncoder;
use lanekeeper_core::wire::recall::{Arm, Filter};
use lanekeeper_core::wire::upkeep::RebuildRequest;
use lanekeeper_federation::Registry;
use lanekeeper_lane_store::LaneStore;
use lanekeeper_lane_store::testing::Stage as Lane;
use lanekeeper_lane_store::vectors::VectorStore;
use lanekeeper_lane_store::vectors::qdrant::{QdrantLimits, QdrantSettings, QdrantStore};
use lanekeeper_test_support::qdrant::{Collections, Keeper, LaneGrant, QdrantServer, mint_for_lane};

use crate::stage::{ALIAS, API_KEY};

struct World {
    store: Arc<LaneStore>,
    vectors: Arc<QdrantStore>,
    keeper: Option<Keeper>,
    server: QdrantServer,
    lane: Lane,
    // Last: the others write to it until they have ended.
    dir: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = QdrantServer::start(&dir.path().join("server"), Some(API_KEY)).unwrap();
        let lane = Lane::at(dir.path(), "team/bob", Arc::new(HashEncoder::new())).await;
        let encoder = Arc::clone(&lane.encoder);
        let registry: Arc<dyn Registry> = lane.registry.clone();
        let keeper = keep(&server, API_KEY, &registry, encoder.as_ref()).await;
        grant(dir.path(), API_KEY, encoder.as_ref());
        let vectors = QdrantStore::connect(QdrantSettings {
            url: server.url(),
            credential_file: Some(key_file(dir.path())),
            ca_file: None,
            alias: ALIAS.to_owned(),
            fingerprint: encoder.fingerprint(),
            dimension: encoder.dimension(),
            registry,
            limits: QdrantLimits::default(),
        })
        .await
        .unwrap();
        let mut parts = lane.parts();
        parts.vectors = Some(vectors.clone());
        let store = LaneStore::open(lane.config(), parts).await.unwrap();
        Self { store, vectors, keeper: Some(keeper), server, lane, dir }
    }

    async fn ask(&self, query: &str) -> StoreAnswer {
        self.store.ask(&self.lane.bob(), query, Filter::default()).await.expect("a recall never fails for the vectors")
    }

    async fn reason(&self) -> Option<String> {
        let answer = self.ask("deck wash pump").await;
        assert!(!answer.candidates.is_empty(), "found by text all the same");
        let vector = &answer.arms[&Arm::Vector];
        assert_eq!(vector.searched, vector.reason.is_none());
        vector.reason.clone()
    }
}

fn key_file(dir: &Path) -> PathBuf {
    dir.join("qdrant.jwt")
}

fn physical_of(encoder: &dyn Encoder, generation: u64) -> String {
    physical(ALIAS, u32::try_from(encoder.dimension()).unwrap(), &encoder.fingerprint(), Generation(generation))
}

fn grant(dir: &Path, api_key: &str, encoder: &dyn Encoder) {
    let physical = [1, 2].map(|generation| physical_of(encoder, generation));
    let grant = LaneGrant { alias: ALIAS, physical: &physical, epoch: 1, lifetime: Duration::from_secs(3600) };
    let new = dir.join("qdrant.jwt.new");
    std::fs::write(&new, mint_for_lane(api_key, &grant)).unwrap();
    std::fs::rename(new, key_file(dir)).unwrap();
}

async fn keep(server: &QdrantServer, api_key: &str, registry: &Arc<dyn Registry>, encoder: &dyn Encoder) -> Keeper {
    let collections = Collections::new(&server.url(), Some(api_key)).unwrap();
    collections.fence(ALIAS, 1).await.unwrap();
    Keeper::start(collections, Arc::clone(registry), ALIAS.to_owned(), encoder.dimension(), encoder.fingerprint())
        .await
        .unwrap()
}

const TEXT: &str = "the deck wash pump draws four amperes";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_key_leaves_recall_by_text_and_coverage_says_so() {
    let world = World::new().await;
    let bob = world.lane.bob();
    world.store.put(&bob, "s", &[TEXT]).await;
    world.store.settle_down().await;
    assert_eq!(world.reason().await, None);
    assert_eq!(world.vectors.count().await.unwrap(), 1);
    world.server.set_api_key(Some("the-next-key"));
    assert_eq!(world.reason().await.as_deref(), Some("vector_engine_refused"));
    world.store.put(&bob, "s", &["saves go on while the key is refused"]).await;
    assert!(world.ask("saves go on").await.counts.pending_projection > 0);
    grant(world.dir.path(), "the-next-key", world.lane.encoder.as_ref());
    assert_eq!(world.reason().await, None, "the same store, not opened again");
    world.store.settle_down().await;
    assert_eq!(world.vectors.count().await.unwrap(), 2);
    world.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_delays_vectors_and_loses_none() {
    let mut world = World::new().await;
    let bob = world.lane.bob();
    world.store.put(&bob, "s", &[TEXT]).await;
    world.store.settle_down().await;
    world.server.kill();
    assert_eq!(world.reason().await.as_deref(), Some("vector_engine_unavailable"));
    for number in 0..5 {
        world.store.put(&bob, "s", &[&format!("written while the server is away {number}")]).await;
    }
    world.server.restart().unwrap();
    world.store.settle_down().await;
    assert_eq!(world.reason().await, None);
    assert_eq!(world.vectors.count().await.unwrap(), 6);
    world.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_fills_the_next_collection_and_the_old_one_goes() {
    let mut world = World::new().await;
    let bob = world.lane.bob();
    world.store.put(&bob, "s", &[TEXT, "the bilge alarm is tested on Mondays"]).await;
    world.store.settle_down().await;
    let report = world.store.rebuild(&bob, RebuildRequest::default()).await.unwrap();
    assert_eq!(report.generation, 2);
    world.store.settle_down().await;
    assert_eq!((world.vectors.generation(), world.vectors.has_shadow()), (Generation(2), false));
    assert_eq!((world.vectors.count().await.unwrap(), world.reason().await), (2, None));
    let collections = Collections::new(&world.server.url(), Some(API_KEY)).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while collections.names().await.unwrap().contains(&physical_of(world.lane.encoder.as_ref(), 1)) {
        assert!(std::time::Instant::now() < deadline, "the old collection goes");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Without anybody who makes collections a rebuild is refused, nothing is lost, and it may be asked again.
    world.keeper.take();
    assert!(world.store.rebuild(&bob, RebuildRequest::default()).await.is_err());
    assert_eq!((world.vectors.has_shadow(), world.reason().await), (false, None));
    world.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vectors_that_the_server_lost_are_made_again_at_the_next_start() {
    let world = World::new().await;
    let bob = world.lane.bob();
    world.store.put(&bob, "s", &[TEXT, "the bilge alarm is tested on Mondays"]).await;
    world.store.settle_down().await;
    world.store.close().await;
    let ids = world.vectors.all_ids().await.unwrap();
    world.vectors.delete(ids).await.unwrap();
    // And one that no claim knows.
    world
        .vectors
        .upsert(vec![lanekeeper_lane_store::vectors::Point {
            vector: vec![1.0; world.lane.encoder.dimension()],
            ..crate::stage::point(77)
        }])
        .await
        .unwrap();
    drop(world.store);
    let mut parts = world.lane.parts();
    parts.vectors = Some(world.vectors.clone());
    let store = LaneStore::open(world.lane.config(), parts).await.unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let ids = world.vectors.all_ids().await.unwrap();
        if ids.len() == 2 && !ids.contains(&uuid::Uuid::from_u128(77)) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{ids:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    store.close().await;
}
