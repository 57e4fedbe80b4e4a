//! Lanes, an embedder and a directory that do what a test says, and remember what they were asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use lanekeeper_core::clock::ManualClock;
use lanekeeper_core::encoder::{
    Baseline, EncodeError, Encoder, Passage, PassageVector, QueryEncoding, TokenState, Work,
};
use lanekeeper_core::fingerprint::{Fingerprint, FingerprintFields};
use lanekeeper_core::ids::{EventId, Hash32, LaneName, LaneUid, Seq};
use lanekeeper_core::lane::{Access, LaneKind, LaneView, Language, Ranking, Reader, RecallSettings};
use lanekeeper_core::lane_client::{
    AppendRequest, ByteStream, Caller, Idempotency, LaneClient, LaneStatus, StoreAnswer, StoreRecall,
};
use lanekeeper_core::scope::{Role, Scope};
use lanekeeper_core::wire::events::{EventPage, Head, Projection, SaveResponse, SavedEvent, TurnRole};
use lanekeeper_core::wire::forget::{ForgetRequest, ForgetResponse};
use lanekeeper_core::wire::memory::{MemoryDocument, MemoryHistory, MemoryPage, MemorySaveRequest, MemorySaveResponse};
use lanekeeper_core::wire::recall::{Arm, ArmCoverage, LaneCounts};
use lanekeeper_core::wire::upkeep::{ImportReport, RebuildReport, RebuildRequest, VerifyReport};
use lanekeeper_core::{LaneError, Principal};
use serde_json::Value;
use tower::ServiceExt as _;

use crate::rank::Steps;
use crate::{App, Issuer, LaneDirectory, LaneHandle, Limits, MintRequest, Parts, Verifiers, mint, router};

pub(super) const NOW_MS: i64 = 1_796_000_000_000;

/// What a fake does when asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Does {
    #[default]
    Answer,
    Hang,
    Panic,
    Fail(LaneError),
}

/// A call that reached a lane.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) what: &'static str,
    pub(super) caller: Caller,
    pub(super) idempotency: Option<Idempotency>,
    pub(super) if_match: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct FakeLane {
    pub(super) does: Mutex<Does>,
    /// Found by the query `key`; any other query finds nothing.
    pub(super) answers: Mutex<BTreeMap<String, StoreAnswer>>,
    pub(super) speakers: Mutex<Option<Vec<String>>>,
    pub(super) status: Mutex<LaneStatus>,
    pub(super) calls: Mutex<Vec<Call>>,
    pub(super) imported: Mutex<Vec<u8>>,
}

impl FakeLane {
    fn note(&self, what: &'static str, caller: &Caller) {
        self.note_call(Call { what, caller: caller.clone(), idempotency: None, if_match: None });
    }

    fn note_call(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }

    pub(super) fn called(&self) -> Vec<&'static str> {
        self.calls.lock().unwrap().iter().map(|call| call.what).collect()
    }

    pub(super) fn finds(&self, query: &str, answer: StoreAnswer) {
        self.answers.lock().unwrap().insert(query.to_owned(), answer);
    }

    async fn act(&self) -> Result<(), LaneError> {
        let does = self.does.lock().unwrap().clone();
        match does {
            Does::Answer => Ok(()),
            Does::Hang => std::future::pending().await,
            Does::Panic => panic!("a fake lane was told to panic"),
            Does::Fail(error) => Err(error),
        }
    }
}

const fn head() -> Head {
    Head { seq: Seq(1), hash: Hash32::from_bytes([1; 32]) }
}

fn event_id() -> EventId {
    EventId::from_uuid(uuid::Uuid::from_u128(1))
}

#[async_trait]
impl LaneClient for FakeLane {
    async fn append(&self, caller: &Caller, request: AppendRequest) -> Result<SaveResponse, LaneError> {
        self.note_call(Call {
            what: "append",
            caller: caller.clone(),
            idempotency: request.idempotency,
            if_match: None,
        });
        self.act().await?;
        let event = SavedEvent {
            id: event_id(),
            seq: Seq(1),
            hash: Hash32::from_bytes([1; 32]),
            at: "2026-11-30T09:00:00Z".into(),
            projection: Projection::Pending,
            chunks: 1,
            duplicate_of: None,
            forgotten: false,
        };
        Ok(SaveResponse { events: request.save.turns.iter().map(|_| event.clone()).collect(), head: head() })
    }

    async fn list_events(&self, caller: &Caller, _: Seq, _: u32) -> Result<EventPage, LaneError> {
        self.note("list_events", caller);
        self.act().await?;
        Ok(EventPage { events: Vec::new(), next_after: None, head: head() })
    }

    async fn recall(&self, caller: &Caller, request: StoreRecall) -> Result<StoreAnswer, LaneError> {
        self.note("recall", caller);
        self.act().await?;
        let mut answer = self.answers.lock().unwrap().get(&request.query).cloned().unwrap_or_else(nothing);
        let vector = match request.encoding.await {
            Ok(_) => ArmCoverage::searched(),
            Err(reason) => {
                answer.pooling = None;
                ArmCoverage::skipped(reason)
            }
        };
        answer.arms.insert(Arm::Vector, vector);
        for arm in request.arms_off {
            answer.arms.insert(arm, ArmCoverage::skipped("off"));
        }
        Ok(answer)
    }

    async fn known_speakers(&self, caller: &Caller) -> Result<Vec<String>, LaneError> {
        self.note("known_speakers", caller);
        self.speakers.lock().unwrap().clone().ok_or(LaneError::Unavailable { what: "speakers".into() })
    }

    async fn forget(
        &self,
        caller: &Caller,
        _: ForgetRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<ForgetResponse, LaneError> {
        self.note_call(Call { what: "forget", caller: caller.clone(), idempotency, if_match: None });
        self.act().await?;
        Ok(ForgetResponse { events: Vec::new(), counts: BTreeMap::new(), receipt: None })
    }

    async fn memory(&self, caller: &Caller, query: &str) -> Result<MemoryPage, LaneError> {
        self.note("memory", caller);
        self.act().await?;
        let mode = if query.is_empty() { "listing" } else { "search" };
        Ok(MemoryPage { mode: mode.into(), documents: Vec::new(), paragraphs: Vec::new() })
    }

    async fn save_memory(
        &self,
        caller: &Caller,
        request: MemorySaveRequest,
        if_match: Option<String>,
        idempotency: Option<Idempotency>,
    ) -> Result<MemorySaveResponse, LaneError> {
        self.note_call(Call { what: "save_memory", caller: caller.clone(), idempotency, if_match });
        self.act().await?;
        Ok(MemorySaveResponse {
            document: MemoryDocument { owner: "bob".into(), etag: "v1".into(), text: request.text },
            event_id: event_id(),
            seq: Seq(1),
            added: 1,
            removed: 0,
            kept_hand_edit: None,
            forgotten: false,
        })
    }

    async fn memory_history(&self, caller: &Caller) -> Result<MemoryHistory, LaneError> {
        self.note("memory_history", caller);
        self.act().await?;
        Ok(MemoryHistory { versions: Vec::new(), older_left_out: false })
    }

    async fn verify(&self, caller: &Caller) -> Result<VerifyReport, LaneError> {
        self.note("verify", caller);
        self.act().await?;
        Ok(VerifyReport {
            ok: true,
            events: 1,
            purged: 0,
            first_bad_seq: None,
            reason: None,
            signed_up_to: 1,
            signature_checked: true,
            head: Some(head()),
            log_id: "00".repeat(32),
            statement: "1 event, all good".into(),
        })
    }

    async fn rebuild(&self, caller: &Caller, _: RebuildRequest) -> Result<RebuildReport, LaneError> {
        self.note("rebuild", caller);
        self.act().await?;
        Ok(RebuildReport { turns: 1, text_rows: 1, claims: 1, generation: 2, projecting: true })
    }

    async fn export(&self, caller: &Caller) -> Result<ByteStream, LaneError> {
        self.note("export", caller);
        self.act().await?;
        Ok(Box::pin(futures::stream::iter([Ok(Bytes::from_static(b"{}\n")), Ok(Bytes::from_static(b"{}\n"))])))
    }

    async fn import(&self, caller: &Caller, mut body: ByteStream, _: bool) -> Result<ImportReport, LaneError> {
        self.note("import", caller);
        self.act().await?;
        while let Some(part) = body.next().await {
            self.imported.lock().unwrap().extend_from_slice(&part?);
        }
        Ok(ImportReport::default())
    }

    async fn backup(&self, caller: &Caller) -> Result<ByteStream, LaneError> {
        self.note("backup", caller);
        self.act().await?;
        let parts = [Ok(Bytes::from_static(b"part")), Err(LaneError::internal("the volume went away"))];
        Ok(Box::pin(futures::stream::iter(parts)))
    }

    async fn status(&self) -> LaneStatus {
        self.status.lock().unwrap().clone()
    }
}

/// An answer of every arm that found nothing.
pub(super) fn nothing() -> StoreAnswer {
    StoreAnswer {
        candidates: Vec::new(),
        memory: Vec::new(),
        arms: [Arm::TurnText, Arm::WindowText, Arm::Vector, Arm::MemoryText]
            .map(|arm| (arm, ArmCoverage::searched()))
            .into(),
        counts: LaneCounts::default(),
        floor: Some(0.3),
        pooling: Some("idf_weighted".into()),
        has_speakers: false,
        speaker_in_query: None,
    }
}

#[derive(Debug)]
pub(super) struct FakeEncoder {
    pub(super) fields: FingerprintFields,
    pub(super) token_states: bool,
    pub(super) fails: Mutex<Option<EncodeError>>,
    pub(super) hangs: Mutex<bool>,
    pub(super) asked: Mutex<Vec<String>>,
}

impl FakeEncoder {
    pub(super) fn new(model: &str, token_states: bool) -> Arc<Self> {
        let fields = FingerprintFields { model: model.into(), ..FingerprintFields::builtin() };
        Arc::new(Self {
            fields,
            token_states,
            fails: Mutex::default(),
            hangs: Mutex::default(),
            asked: Mutex::default(),
        })
    }
}

#[async_trait]
impl Encoder for FakeEncoder {
    fn fingerprint(&self) -> Fingerprint {
        self.fields.fingerprint()
    }

    fn dimension(&self) -> usize {
        2
    }

    fn model(&self) -> &str {
        &self.fields.model
    }

    fn has_token_states(&self) -> bool {
        self.token_states
    }

    fn baseline(&self) -> Option<Baseline> {
        None
    }

    async fn encode_query(&self, _: Work, text: &str) -> Result<QueryEncoding, EncodeError> {
        self.asked.lock().unwrap().push(text.to_owned());
        if *self.hangs.lock().unwrap() {
            std::future::pending::<()>().await;
        }
        if let Some(error) = self.fails.lock().unwrap().clone() {
            return Err(error);
        }
        Ok(if self.token_states {
            QueryEncoding::States {
                text: text.to_owned(),
                tokens: vec![TokenState { start: 0, end: 1, state: vec![1.0, 0.0] }],
            }
        } else {
            QueryEncoding::Pooled(vec![1.0, 0.0])
        })
    }

    async fn encode_passages(&self, _: Work, _: Vec<Passage>) -> Result<Vec<PassageVector>, EncodeError> {
        Err(EncodeError::Unavailable { reason: "not in this test".into() })
    }
}

#[derive(Default)]
pub(super) struct FakeDirectory(pub(super) Mutex<Vec<Arc<LaneHandle>>>);

impl LaneDirectory for FakeDirectory {
    fn lanes(&self) -> Vec<Arc<LaneHandle>> {
        self.0.lock().unwrap().clone()
    }
}

pub(super) fn uid(number: u128) -> LaneUid {
    LaneUid::from_uuid(uuid::Uuid::from_u128(number))
}

pub(super) fn principal(text: &str) -> Principal {
    text.parse().unwrap()
}

pub(super) fn access(who: &str, role: Role) -> Access {
    Access { principal: principal(who), role, may_publish: false }
}

pub(super) fn view(name: &str, number: u128, kind: LaneKind, owner: Option<&str>) -> LaneView {
    LaneView {
        name: name.parse().unwrap(),
        uid: uid(number),
        kind,
        owner: owner.map(principal),
        collection: name.replace('/', "."),
        fingerprint: FingerprintFields { model: "fake".into(), ..FingerprintFields::builtin() }.fingerprint(),
        access: Vec::new(),
        reads: Vec::new(),
        readers: Vec::new(),
        projected_roles: [TurnRole::Assistant].into(),
        recall: RecallSettings {
            ranking: Ranking::Fused,
            min_score: None,
            half_life_ms: None,
            language: Language::English,
        },
        suspend: false,
    }
}

/// Bob's lane reads the handbook; eve's lane has nothing to do with either.
pub(super) struct World {
    pub(super) directory: Arc<FakeDirectory>,
    pub(super) encoder: Arc<FakeEncoder>,
    pub(super) bob: Arc<FakeLane>,
    pub(super) eve: Arc<FakeLane>,
    pub(super) handbook: Arc<FakeLane>,
    pub(super) clock: ManualClock,
    pub(super) limits: Limits,
    pub(super) steps: Steps,
    issuer: Issuer,
}

pub(super) const BOB: u128 = 1;
pub(super) const EVE: u128 = 2;
pub(super) const HANDBOOK: u128 = 3;

impl World {
    pub(super) fn new() -> Self {
        let encoder = FakeEncoder::new("fake", true);
        let lanes = [(); 3].map(|()| Arc::new(FakeLane::default()));
        for lane in &lanes {
            *lane.status.lock().unwrap() = LaneStatus { ready: true, writable: true, ..LaneStatus::default() };
        }
        let [bob, eve, handbook] = lanes;
        let mut bob_view = view("team/bob", BOB, LaneKind::Personal, Some("user:bob"));
        bob_view.reads = vec!["team/handbook".parse().unwrap()];
        bob_view.access = vec![access("sa:team/agent", Role::Writer)];
        let eve_view = view("team/eve", EVE, LaneKind::Personal, Some("user:eve"));
        let mut handbook_view = view("team/handbook", HANDBOOK, LaneKind::Corpus, None);
        handbook_view.readers = vec![Reader::Lane("team/bob".parse().unwrap())];
        handbook_view.access = vec![access("user:ann", Role::Admin)];
        let world = Self {
            directory: Arc::default(),
            encoder,
            bob,
            eve,
            handbook,
            clock: ManualClock::new(NOW_MS),
            limits: Limits::default(),
            steps: Steps::all(),
            issuer: Issuer::from_seed("test", &[7; 32]),
        };
        world.put(bob_view, &world.bob);
        world.put(eve_view, &world.eve);
        world.put(handbook_view, &world.handbook);
        world
    }

    /// Adds a lane, or replaces the one of its name.
    pub(super) fn put(&self, view: LaneView, client: &Arc<FakeLane>) {
        let encoder: Arc<dyn Encoder> = Arc::clone(&self.encoder) as _;
        self.put_with(view, client, encoder);
    }

    pub(super) fn put_with(&self, view: LaneView, client: &Arc<FakeLane>, encoder: Arc<dyn Encoder>) {
        let client: Arc<dyn LaneClient> = Arc::clone(client) as _;
        let mut lanes = self.directory.0.lock().unwrap();
        lanes.retain(|lane| lane.view.name != view.name);
        lanes.push(Arc::new(LaneHandle { view, client, encoder }));
    }

    pub(super) fn change(&self, name: &str, change: impl FnOnce(&mut LaneView)) {
        let name: LaneName = name.parse().unwrap();
        let mut lanes = self.directory.0.lock().unwrap();
        let lane = lanes.iter_mut().find(|lane| lane.view.name == name).unwrap();
        let mut view = lane.view.clone();
        change(&mut view);
        *lane = Arc::new(LaneHandle { view, client: Arc::clone(&lane.client), encoder: Arc::clone(&lane.encoder) });
    }

    pub(super) fn remove(&self, name: &str) {
        let name: LaneName = name.parse().unwrap();
        self.directory.0.lock().unwrap().retain(|lane| lane.view.name != name);
    }

    pub(super) fn app(&self) -> Arc<App> {
        App::new(Parts {
            directory: Arc::clone(&self.directory) as _,
            verifiers: Verifiers::new([self.issuer.verifier()]).unwrap(),
            clock: Arc::new(self.clock.clone()),
            limits: self.limits,
            steps: self.steps,
        })
    }

    pub(super) fn token(&self, who: &str, lane: u128) -> String {
        self.token_with(who, lane, NOW_MS, None)
    }

    pub(super) fn token_with(&self, who: &str, lane: u128, now_ms: i64, scope: Option<Scope>) -> String {
        let request = MintRequest { principal: principal(who), lane: uid(lane), now_ms, lifetime_s: 3600, scope };
        mint(&self.issuer, &request).unwrap().expose().clone()
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Answer {
        answer(router(&self.app()).oneshot(request).await.unwrap()).await
    }

    /// A JSON request with a token.
    pub(super) async fn ask(&self, method: &str, path: &str, token: &str, body: Option<Value>) -> Answer {
        self.send(request(method, path, Some(token), body)).await
    }
}

pub(super) fn request(method: &str, path: &str, token: Option<&str>, body: Option<Value>) -> Request<Body> {
    let mut builder = Request::builder().method(method).uri(path);
    if let Some(token) = token {
        builder = builder.header("authorization", format!("Bearer {token}"));
    }
    match body {
        Some(body) => builder.header("content-type", "application/json").body(Body::from(body.to_string())),
        None => builder.body(Body::empty()),
    }
    .unwrap()
}

/// An answer, read to its end.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: http::HeaderMap,
    pub(super) text: String,
    /// False where the body broke off.
    pub(super) whole: bool,
}

pub(super) async fn answer(response: axum::response::Response) -> Answer {
    let (parts, body) = response.into_parts();
    let (text, whole) = match body.collect().await {
        Ok(body) => (String::from_utf8(body.to_bytes().to_vec()).unwrap(), true),
        Err(_) => (String::new(), false),
    };
    Answer { status: parts.status, headers: parts.headers, text, whole }
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    pub(super) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}
