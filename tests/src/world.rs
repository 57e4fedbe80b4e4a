//! The whole product in one process, without sockets: real stores in a temporary folder, the real router.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use lanekeeper_core::clock::{Clock, SystemClock};
use lanekeeper_core::encoder::Encoder;
use lanekeeper_core::lane::{Access, LaneKind, LaneView, Language, Ranking, Reader, RecallSettings};
use lanekeeper_core::lane_client::LaneClient;
use lanekeeper_core::principal::Principal;
use lanekeeper_core::scope::Role;
use lanekeeper_core::wire::events::TurnRole;
use lanekeeper_core::{Epoch, Generation, Hash32, LaneName, LaneUid, LogId};
use lanekeeper_federation::{FileRegistry, Mode, RecordSpec, Registry, Writer};
use lanekeeper_lane_store::vectors::VectorStore;
use lanekeeper_lane_store::{LaneConfig, LaneParts, LaneSettings, LaneStore};
use lanekeeper_query_service::rank::Steps;
use lanekeeper_query_service::{App, Issuer, LaneDirectory, LaneHandle, Limits, MintRequest, Parts, Verifiers, mint};
use serde_json::{Value, json};
use tower::ServiceExt;

/// A lane to be made.
#[derive(Debug, Clone)]
pub struct LaneSpec {
    pub name: LaneName,
    pub kind: LaneKind,
    pub owner: Option<Principal>,
    pub access: Vec<Access>,
    pub reads: Vec<LaneName>,
    pub readers: Vec<Reader>,
    pub roles: Vec<TurnRole>,
    pub half_life_ms: Option<i64>,
    pub language: Language,
}

impl LaneSpec {
    /// A personal lane of `user:<owner>`.
    pub fn personal(name: &str, owner: &str) -> Self {
        Self {
            name: name.parse().unwrap(),
            kind: LaneKind::Personal,
            owner: Some(Principal::user(owner).unwrap()),
            access: vec![],
            reads: vec![],
            readers: vec![],
            roles: vec![TurnRole::Assistant],
            half_life_ms: None,
            language: Language::English,
        }
    }

    /// A corpus lane.
    pub fn corpus(name: &str) -> Self {
        Self { kind: LaneKind::Corpus, owner: None, ..Self::personal(name, "nobody") }
    }

    #[must_use]
    pub fn access(mut self, principal: &str, role: Role) -> Self {
        self.access.push(Access { principal: principal.parse().unwrap(), role, may_publish: false });
        self
    }

    #[must_use]
    pub fn publisher(mut self, principal: &str, role: Role) -> Self {
        self.access.push(Access { principal: principal.parse().unwrap(), role, may_publish: true });
        self
    }

    #[must_use]
    pub fn reads(mut self, lane: &str) -> Self {
        self.reads.push(lane.parse().unwrap());
        self
    }

    #[must_use]
    pub fn reader(mut self, lane: &str) -> Self {
        self.readers.push(Reader::Lane(lane.parse().unwrap()));
        self
    }

    #[must_use]
    pub fn roles(mut self, roles: &[TurnRole]) -> Self {
        self.roles = roles.to_vec();
        self
    }
}

/// A lane that runs.
#[derive(Debug, Clone)]
pub struct Running {
    pub store: Arc<LaneStore>,
    pub view: LaneView,
    pub client: Arc<dyn LaneClient>,
    pub folder: PathBuf,
    pub log_id: LogId,
}

#[derive(Default)]
struct Directory(Mutex<HashMap<LaneName, Arc<LaneHandle>>>);

impl LaneDirectory for Directory {
    fn lanes(&self) -> Vec<Arc<LaneHandle>> {
        self.0.lock().unwrap().values().cloned().collect()
    }
}

/// See the module's head.
pub struct World {
    pub root: PathBuf,
    pub router: Router,
    pub app: Arc<App>,
    pub registry: Arc<FileRegistry>,
    pub lanes: HashMap<LaneName, Running>,
    pub encoder: Arc<dyn Encoder>,
    pub clock: Arc<dyn Clock>,
    directory: Arc<Directory>,
    issuer: Issuer,
    _temp: tempfile::TempDir,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: http::HeaderMap,
    pub bytes: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// Asserts the status and gives the body.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", String::from_utf8_lossy(&self.bytes));
        if self.bytes.is_empty() { Value::Null } else { self.json() }
    }

    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl World {
    /// Lanes on the given encoder, with all ranking steps and the documented limits.
    pub async fn new(encoder: Arc<dyn Encoder>, lanes: Vec<LaneSpec>) -> Self {
        Self::with(encoder, lanes, Steps::all(), Limits::default()).await
    }

    pub async fn with(encoder: Arc<dyn Encoder>, lanes: Vec<LaneSpec>, steps: Steps, limits: Limits) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().to_owned();
        let registry = Arc::new(FileRegistry::open(root.join("records")).unwrap());
        let directory = Arc::new(Directory::default());
        let issuer = Issuer::from_seed("lanekeeper-local", &[7; 32]);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let app = App::new(Parts {
            directory: directory.clone(),
            verifiers: Verifiers::new([issuer.verifier()]).unwrap(),
            clock: clock.clone(),
            limits,
            steps,
        });
        let router = lanekeeper_query_service::router(&app);
        let mut world =
            Self { root, router, app, registry, lanes: HashMap::new(), encoder, clock, directory, issuer, _temp: temp };
        for lane in lanes {
            world.add(lane, None).await;
        }
        world.resolve_readers().await;
        world
    }

    /// The same lanes behind another router: other steps, for measuring.
    pub fn router_with(&self, steps: Steps) -> Router {
        lanekeeper_query_service::router(&App::new(Parts {
            directory: self.directory.clone(),
            verifiers: Verifiers::new([self.issuer.verifier()]).unwrap(),
            clock: self.clock.clone(),
            limits: Limits::default(),
            steps,
        }))
    }

    /// Opens a lane. A name that is there already gets a new UID, as a re-created Lane does.
    pub async fn add(&mut self, spec: LaneSpec, vectors: Option<Arc<dyn VectorStore>>) -> Running {
        let LaneSpec { name, kind, owner, access, reads, readers, roles, half_life_ms, language } = spec;
        let uid = LaneUid::from_uuid(uuid::Uuid::new_v4());
        let log_id = LogId(Hash32::from_bytes(rand::random()));
        let collection = format!("{}.{}", name.namespace(), name.name());
        if let Some(old) = self.lanes.remove(&name) {
            old.store.close().await;
            self.registry.remove(&collection).await.unwrap();
        }
        let view = LaneView {
            name: name.clone(),
            uid,
            kind,
            owner,
            collection: collection.clone(),
            fingerprint: self.encoder.fingerprint(),
            access,
            reads,
            readers,
            projected_roles: roles.iter().copied().collect(),
            recall: RecallSettings { ranking: Ranking::Fused, min_score: None, half_life_ms, language },
            suspend: false,
        };
        self.registry
            .declare(RecordSpec {
                collection: collection.clone(),
                writer: Writer { namespace: name.namespace().into(), name: name.name().into(), uid },
                mode: Mode::ReadWrite,
                log_id,
                fingerprint: self.encoder.fingerprint(),
                epoch: Epoch(1),
                generation: Generation(1),
                readers: vec![],
            })
            .await
            .unwrap();
        let folder = self.root.join("lanes").join(format!("{collection}.{uid}"));
        let config = LaneConfig {
            folder: folder.clone(),
            lane: name.clone(),
            uid,
            kind,
            collection,
            adopt: None,
            settings: LaneSettings { language, projected_roles: view.projected_roles.clone(), min_score: None },
        };
        let store = self.open(config, vectors).await;
        let running = Running { client: store.clone(), store, view, folder, log_id };
        self.put(running.clone());
        running
    }

    async fn open(&self, config: LaneConfig, vectors: Option<Arc<dyn VectorStore>>) -> Arc<LaneStore> {
        let parts = LaneParts {
            registry: self.registry.clone(),
            encoder: self.encoder.clone(),
            vectors,
            clock: self.clock.clone(),
        };
        LaneStore::open(config, parts).await.unwrap()
    }

    /// Puts a lane into the directory as it is in `running` (a changed view, a client that fails).
    pub fn put(&mut self, running: Running) {
        let handle =
            LaneHandle { view: running.view.clone(), client: running.client.clone(), encoder: self.encoder.clone() };
        self.directory.0.lock().unwrap().insert(running.view.name.clone(), Arc::new(handle));
        self.lanes.insert(running.view.name.clone(), running);
    }

    /// Takes a lane out of the directory, as a deleted Lane.
    pub async fn remove(&mut self, name: &str) {
        let name: LaneName = name.parse().unwrap();
        self.directory.0.lock().unwrap().remove(&name);
        if let Some(lane) = self.lanes.remove(&name) {
            lane.store.close().await;
            self.registry.remove(&lane.view.collection).await.unwrap();
        }
    }

    /// Writes into each corpus record the lanes that may read it, as the local program does.
    pub async fn resolve_readers(&self) {
        for target in self.lanes.values() {
            let readers: Vec<LaneUid> = self
                .lanes
                .values()
                .filter(|lane| target.view.consents_to(&lane.view))
                .map(|lane| lane.view.uid)
                .collect();
            self.registry
                .change_spec(&target.view.collection, Box::new(move |spec| spec.readers.clone_from(&readers)))
                .await
                .unwrap();
        }
    }

    pub fn lane(&self, name: &str) -> &Running {
        &self.lanes[&name.parse::<LaneName>().unwrap()]
    }

    /// A token of an hour.
    pub fn token(&self, lane: &str, principal: &str) -> String {
        self.token_from(lane, principal, self.clock.now_ms(), 3600)
    }

    pub fn token_from(&self, lane: &str, principal: &str, now_ms: i64, lifetime_s: i64) -> String {
        let request = MintRequest {
            principal: principal.parse().unwrap(),
            lane: self.lane(lane).view.uid,
            now_ms,
            lifetime_s,
            scope: None,
        };
        mint(&self.issuer, &request).unwrap().expose().clone()
    }

    /// One request.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Answer {
        call(&self.router, method, path, token, headers, body).await
    }

    pub async fn post(&self, path: &str, token: &str, body: Value) -> Answer {
        self.call(Method::POST, path, Some(token), &[], body.to_string().into_bytes()).await
    }

    pub async fn get(&self, path: &str, token: &str) -> Answer {
        self.call(Method::GET, path, Some(token), &[], vec![]).await
    }

    /// Saves assistant turns.
    pub async fn save(&self, lane: &str, token: &str, session: &str, texts: &[&str]) -> Answer {
        let turns: Vec<Value> = texts.iter().map(|text| json!({"role": "assistant", "text": text})).collect();
        self.post(&format!("/v1/lanes/{lane}/events"), token, json!({"session": session, "turns": turns})).await
    }

    pub async fn recall(&self, token: &str, body: Value) -> Answer {
        self.post("/v1/recall", token, body).await
    }

    /// Texts of the hits.
    pub async fn texts(&self, token: &str, query: &str) -> Vec<String> {
        let answer = self.recall(token, json!({"query": query, "top_k": 50})).await.expect(200);
        answer["hits"].as_array().unwrap().iter().map(|hit| hit["text"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until every lane has made its vectors and emptied its outbox.
    pub async fn settle(&self) {
        for lane in self.lanes.values() {
            let deadline = Instant::now() + Duration::from_secs(1500);
            loop {
                let status = lane.store.status().await;
                if status.counts.pending_projection == 0 && status.purge_outbox == 0 && !status.rebuilding {
                    break;
                }
                assert!(Instant::now() < deadline, "not settled: {status:?}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// Drops every handle of the lanes, so that their locks are free.
    pub fn forget_handles(&mut self) {
        self.directory.0.lock().unwrap().clear();
        self.lanes.clear();
    }

    pub async fn close(&self) {
        for lane in self.lanes.values() {
            lane.store.close().await;
        }
    }
}

/// One request to a router.
pub async fn call(
    router: &Router,
    method: Method,
    path: &str,
    token: Option<&str>,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    if !body.is_empty() && !headers.iter().any(|(name, _)| *name == "content-type") {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = router.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes().to_vec();
    Answer { status: parts.status, headers: parts.headers, bytes }
}
