//! A stage for tests: a lane in a temporary folder with its file registry. Never in a product build.
//!
//! Panics are fine here: a stage that cannot be set up is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lanekeeper_core::clock::{Clock, SystemClock};
use lanekeeper_core::encoder::{Encoder, QueryEncoding, Work, WorkKind};
use lanekeeper_core::lane::{LaneKind, Language};
use lanekeeper_core::lane_client::{AppendRequest, Caller, Idempotency, LaneClient, StoreAnswer, StoreRecall};
use lanekeeper_core::principal::Principal;
use lanekeeper_core::scope::{EffectiveScope, Role, Scope};
use lanekeeper_core::wire::events::{SaveRequest, SaveResponse, Turn, TurnRole};
use lanekeeper_core::wire::recall::{Filter, Surface};
use lanekeeper_core::{Epoch, Generation, Hash32, LaneError, LaneName, LaneUid, LogId};
use lanekeeper_federation::{FileRegistry, Mode, RecordSpec, Registry, Writer};

use crate::error::StoreError;
use crate::store::{LaneConfig, LaneParts, LaneSettings, LaneStore};

/// One lane's surroundings.
#[derive(Debug)]
pub struct Stage {
    pub folder: PathBuf,
    pub registry: Arc<FileRegistry>,
    pub encoder: Arc<dyn Encoder>,
    pub clock: Arc<dyn Clock>,
    pub lane: LaneName,
    pub uid: LaneUid,
    pub kind: LaneKind,
    pub log_id: LogId,
    pub adopt: Option<LaneUid>,
    pub roles: Vec<TurnRole>,
    _temp: Option<tempfile::TempDir>,
}

impl Stage {
    /// A lane in a fresh folder, declared in a fresh registry.
    pub async fn new(encoder: Arc<dyn Encoder>) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let mut stage = Self::at(temp.path(), "team/acme", encoder).await;
        stage._temp = Some(temp);
        stage
    }

    /// A lane under `root`; several may share one.
    pub async fn at(root: &Path, lane: &str, encoder: Arc<dyn Encoder>) -> Self {
        let registry = Arc::new(FileRegistry::open(root.join("records")).unwrap());
        let lane: LaneName = lane.parse().unwrap();
        let mut log_id = [0_u8; 32];
        getrandom::fill(&mut log_id).unwrap();
        let uid = LaneUid::from_uuid(uuid::Uuid::new_v4());
        let stage = Self {
            folder: root.join(format!("{}.{}", lane.namespace(), lane.name())),
            registry,
            encoder,
            clock: Arc::new(SystemClock),
            lane,
            uid,
            kind: LaneKind::Personal,
            log_id: LogId(Hash32::from_bytes(log_id)),
            adopt: None,
            roles: vec![TurnRole::Assistant],
            _temp: None,
        };
        stage.registry.declare(stage.spec()).await.unwrap();
        stage
    }

    /// The lane that a stage before this one left under `root`.
    pub async fn resume(root: &Path, lane: &str, encoder: Arc<dyn Encoder>) -> Self {
        let registry = Arc::new(FileRegistry::open(root.join("records")).unwrap());
        let lane: LaneName = lane.parse().unwrap();
        let record = registry.read(&format!("{}.{}", lane.namespace(), lane.name())).await.unwrap();
        Self {
            folder: root.join(format!("{}.{}", lane.namespace(), lane.name())),
            registry,
            encoder,
            clock: Arc::new(SystemClock),
            lane,
            uid: record.spec.writer.uid,
            kind: LaneKind::Personal,
            log_id: record.spec.log_id,
            adopt: None,
            roles: vec![TurnRole::Assistant],
            _temp: None,
        }
    }

    pub fn collection(&self) -> String {
        format!("{}.{}", self.lane.namespace(), self.lane.name())
    }

    pub fn spec(&self) -> RecordSpec {
        RecordSpec {
            collection: self.collection(),
            writer: Writer { namespace: self.lane.namespace().into(), name: self.lane.name().into(), uid: self.uid },
            mode: Mode::ReadWrite,
            log_id: self.log_id,
            fingerprint: self.encoder.fingerprint(),
            epoch: Epoch(1),
            generation: Generation(1),
            readers: vec![],
        }
    }

    pub fn config(&self) -> LaneConfig {
        LaneConfig {
            folder: self.folder.clone(),
            lane: self.lane.clone(),
            uid: self.uid,
            kind: self.kind,
            collection: self.collection(),
            adopt: self.adopt,
            settings: LaneSettings {
                language: Language::English,
                projected_roles: self.roles.iter().copied().collect(),
                min_score: None,
            },
        }
    }

    pub fn parts(&self) -> LaneParts {
        LaneParts {
            registry: self.registry.clone(),
            encoder: self.encoder.clone(),
            vectors: None,
            clock: self.clock.clone(),
        }
    }

    pub async fn try_open(&self) -> Result<Arc<LaneStore>, StoreError> {
        LaneStore::open(self.config(), self.parts()).await
    }

    pub async fn open(&self) -> Arc<LaneStore> {
        self.try_open().await.unwrap()
    }

    /// `user:bob` as admin.
    pub fn bob(&self) -> Caller {
        self.caller("user:bob", Role::Admin)
    }

    pub fn caller(&self, principal: &str, role: Role) -> Caller {
        let principal: Principal = principal.parse().unwrap();
        let granted = Scope::of_role(&self.lane, self.uid, &principal, role).unwrap();
        Caller {
            principal,
            lane: self.lane.clone(),
            lane_uid: self.uid,
            scope: EffectiveScope { granted, narrowed: None },
            reading_lane: None,
        }
    }

    /// Every byte of every file of the lane.
    pub fn all_bytes(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.push((path.clone(), std::fs::read(&path).unwrap_or_default()));
                }
            }
        }
        found
    }
}

/// A tmpfs of its own that can be filled.
#[derive(Debug)]
pub struct SmallVolume(tempfile::TempDir);

impl SmallVolume {
    /// `size` as mount takes it, such as `64m`. `None` where nothing may be mounted.
    pub fn mount(size: &str) -> Option<Self> {
        use nix::mount::{MsFlags, mount};
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        mount(Some("tmpfs"), dir.path(), Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))
            .ok()
            .map(|()| Self(dir))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file until nothing more fits; removing it makes room again.
    pub fn fill(&self) -> PathBuf {
        use std::io::Write;
        let ballast = self.path().join("ballast");
        let mut file = std::fs::File::create(&ballast).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        ballast
    }
}

impl Drop for SmallVolume {
    fn drop(&mut self) {
        let _busy = nix::mount::umount(self.path());
    }
}

/// One assistant turn.
pub fn turn(text: &str) -> Turn {
    Turn { role: TurnRole::Assistant, text: text.into(), speaker: None, at: None, metadata: None }
}

/// A save of assistant turns.
pub fn save(session: &str, texts: &[&str]) -> AppendRequest {
    let turns = texts.iter().map(|text| turn(text)).collect();
    AppendRequest { save: SaveRequest { session: session.into(), turns, expected_head: None }, idempotency: None }
}

/// A save under a key whose body is its JSON.
pub fn keyed(mut request: AppendRequest, key: &str) -> AppendRequest {
    use sha2::Digest;
    let body = serde_json::to_vec(&request.save).unwrap();
    request.idempotency = Some(Idempotency { key: key.into(), body_sha256: sha2::Sha256::digest(body).into() });
    request
}

impl LaneStore {
    /// Appends and unwraps.
    pub async fn put(&self, caller: &Caller, session: &str, texts: &[&str]) -> SaveResponse {
        self.append(caller, save(session, texts)).await.unwrap()
    }

    /// Waits until nothing is pending: no open claim, no outbox row, no erased page in the write-ahead log.
    pub async fn settle_down(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let status = self.status().await;
            let stale: i64 = {
                let mut conn = self.reader().await.unwrap();
                sqlx::query_scalar("SELECT count(*) FROM claims WHERE state = 'RUNNING' OR payload_stale = 1")
                    .fetch_one(&mut *conn)
                    .await
                    .unwrap()
            };
            if stale == 0 && status.purge_outbox == 0 && !self.state.wal_holds_erased() && !status.rebuilding {
                return;
            }
            assert!(Instant::now() < deadline, "not settled: {status:?}, {stale} claims open");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// A recall as query-service asks it.
    pub async fn ask(&self, caller: &Caller, query: &str, filter: Filter) -> Result<StoreAnswer, LaneError> {
        let encoder = self.encoder.clone();
        let work = Work { lane: self.config.uid, kind: WorkKind::Query };
        let text = query.to_owned();
        self.recall(
            caller,
            StoreRecall {
                query: query.to_owned(),
                encoding: Box::pin(async move {
                    let encoded: Result<QueryEncoding, _> = encoder.encode_query(work, &text).await;
                    encoded.map(Arc::new).map_err(|_| "embedder_unavailable".to_owned())
                }),
                fingerprint: self.encoder.fingerprint(),
                surfaces: vec![Surface::Turns, Surface::Memory],
                filter,
                arms_off: vec![],
                idf_pooling: true,
                deadline_ms: i64::MAX,
            },
        )
        .await
    }
}
