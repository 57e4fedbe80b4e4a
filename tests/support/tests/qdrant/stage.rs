//! A lane's record, its collections on a server, and its engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_core::cluster::qdrant::physical;
use lanekeeper_core::fingerprint::Fingerprint;
use lanekeeper_core::{Epoch, EventId, Generation, Hash32, LaneUid, LogId};
use lanekeeper_federation::{FileRegistry, Mode, RecordSpec, Registry, Writer};
use lanekeeper_lane_store::vectors::qdrant::{QdrantLimits, QdrantSettings, QdrantStore};
use lanekeeper_lane_store::vectors::{Payload, Point};
use lanekeeper_test_support::qdrant::{Collections, Keeper, LaneGrant, QdrantServer, mint_for_lane};
use uuid::Uuid;

pub(crate) const API_KEY: &str = "the-api-key-of-the-test-server";
pub(crate) const DIMENSION: usize = 4;

pub(crate) fn fingerprint() -> Fingerprint {
    "ab".repeat(32).parse().unwrap()
}

/// A registry with the record of one lane in it.
pub(crate) async fn declared(dir: &Path, alias: &str) -> Arc<dyn Registry> {
    let registry: Arc<dyn Registry> = Arc::new(FileRegistry::open(dir.join("registry")).unwrap());
    let (namespace, name) = alias.split_once('.').unwrap();
    registry
        .declare(RecordSpec {
            collection: alias.to_owned(),
            writer: Writer {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: LaneUid::from_uuid(Uuid::from_u128(1)),
            },
            mode: Mode::ReadWrite,
            log_id: LogId(Hash32::from_bytes([1; 32])),
            fingerprint: fingerprint(),
            epoch: Epoch(1),
            generation: Generation(1),
            readers: Vec::new(),
        })
        .await
        .unwrap();
    registry
}

/// A server with one lane on it, as the operator leaves it.
pub(crate) struct Stage {
    pub(crate) keeper: Option<Keeper>,
    pub(crate) server: QdrantServer,
    pub(crate) collections: Collections,
    pub(crate) registry: Arc<dyn Registry>,
    // Last: the server writes to it until it has ended.
    pub(crate) dir: tempfile::TempDir,
}

pub(crate) const ALIAS: &str = "team.bob";

impl Stage {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = QdrantServer::start(&dir.path().join("server"), Some(API_KEY)).unwrap();
        let collections = Collections::new(&server.url(), Some(API_KEY)).unwrap();
        let registry = declared(dir.path(), ALIAS).await;
        collections.fence(ALIAS, 1).await.unwrap();
        let keeper =
            Keeper::start(collections.clone(), Arc::clone(&registry), ALIAS.to_owned(), DIMENSION, fingerprint())
                .await
                .unwrap();
        let stage = Self { keeper: Some(keeper), server, collections, registry, dir };
        stage.grant(1);
        stage
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.dir.path().join("qdrant.jwt")
    }

    pub(crate) fn physical(&self, generation: u64) -> String {
        physical(ALIAS, 4, &fingerprint(), Generation(generation))
    }

    /// Renews the lane's key, as a Secret is: by exchanging the file.
    pub(crate) fn grant(&self, epoch: u64) {
        let physical = [self.physical(1), self.physical(2)];
        let lifetime = Duration::from_secs(3600);
        self.write_key(&mint_for_lane(API_KEY, &LaneGrant { alias: ALIAS, physical: &physical, epoch, lifetime }));
    }

    pub(crate) fn write_key(&self, key: &str) {
        let new = self.dir.path().join("qdrant.jwt.new");
        std::fs::write(&new, key).unwrap();
        std::fs::rename(new, self.key_file()).unwrap();
    }

    pub(crate) fn settings(&self) -> QdrantSettings {
        QdrantSettings {
            url: self.server.url(),
            credential_file: Some(self.key_file()),
            ca_file: None,
            alias: ALIAS.to_owned(),
            fingerprint: fingerprint(),
            dimension: DIMENSION,
            registry: Arc::clone(&self.registry),
            limits: QdrantLimits {
                read: Duration::from_secs(20),
                write: Duration::from_secs(20),
                operator: Duration::from_secs(20),
            },
        }
    }

    pub(crate) async fn open(&self) -> Arc<QdrantStore> {
        QdrantStore::connect(self.settings()).await.unwrap()
    }
}

pub(crate) fn point(number: u128) -> Point {
    let event_id = EventId::from_uuid(Uuid::from_u128(number));
    Point {
        id: Uuid::from_u128(number),
        vector: vec![1.0, 0.0, 0.0, 0.0],
        payload: Payload {
            event_id,
            n: 0,
            projection_task: "t0".into(),
            task_version: 1,
            prompt_version: 0,
            embed_model: "m".into(),
            dim: 4,
            sessions: vec!["s".into()],
            roles: vec!["assistant".into()],
            speakers: Vec::new(),
            at_ms: vec![1],
        },
    }
}
