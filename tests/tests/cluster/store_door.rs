//! The store's door: what is not attested for this very request, lane, log and moment is 401, changes nothing and
//! says nothing.

use lanekeeper_core::attest::{HEADER, LaneKey, Request, Statement, sign};
use lanekeeper_core::lane_client::LaneClient as _;
use lanekeeper_core::scope::{EffectiveScope, Role, Scope};
use lanekeeper_core::wire::store::{AppendBody, path};
use lanekeeper_core::{Hash32, LaneUid, LogId, Seq};
use lanekeeper_lane_store::testing::{save, turn};
use sha2::{Digest as _, Sha256};

use super::stage::{MASTER, Served, VERSION};

/// A request as query-service would send it, to be changed.
#[derive(Clone)]
struct Forged {
    key: LaneKey,
    statement: Statement,
    method: reqwest::Method,
    path: String,
    body: Vec<u8>,
    idempotency_key: Option<String>,
}

fn now_ms() -> i64 {
    use lanekeeper_core::clock::Clock as _;
    lanekeeper_core::clock::SystemClock.now_ms()
}

impl Forged {
    fn good(served: &Served, text: &str) -> Self {
        let stage = &served.stage;
        let caller = stage.bob();
        let body = AppendBody { save: save("s", &[text]).save, body_sha256: Some(Hash32::from_bytes([3; 32])) };
        Self {
            key: LaneKey::derive(&MASTER, stage.uid, VERSION),
            statement: Statement {
                v: 1,
                key_version: VERSION,
                lane_uid: stage.uid,
                log_id: stage.log_id,
                principal: Some(caller.principal),
                reading_lane: None,
                scope: Some(caller.scope),
                deadline_ms: now_ms() + 10_000,
                issued_at_ms: now_ms(),
                nonce: uuid::Uuid::new_v4(),
            },
            method: reqwest::Method::POST,
            path: path::APPEND.into(),
            body: serde_json::to_vec(&body).unwrap(),
            idempotency_key: Some("key-1".into()),
        }
    }

    fn header(&self) -> String {
        let request = Request {
            method: self.method.as_str(),
            path_and_query: &self.path,
            body_sha256: &Sha256::digest(&self.body).into(),
            idempotency_key: self.idempotency_key.as_deref().map(str::as_bytes),
            if_match: None,
        };
        sign(&self.key, &self.statement, &request).unwrap()
    }

    async fn send(&self, served: &Served, headers: &[&str]) -> (u16, serde_json::Value) {
        let mut builder = served
            .stranger()
            .request(self.method.clone(), format!("{}{}", served.base(), self.path))
            .body(self.body.clone());
        for header in headers {
            builder = builder.header(HEADER, *header);
        }
        if let Some(key) = &self.idempotency_key {
            builder = builder.header("idempotency-key", key);
        }
        let answer = builder.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }
}

async fn events(served: &Served) -> usize {
    served.store().list_events(&served.stage.bob(), Seq(0), 100).await.unwrap().events.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_was_attested_for_this_very_request_is_let_in() {
    let mut served = Served::new("team/bob").await;
    let good = Forged::good(&served, "hello");
    let refused = |answer: (u16, serde_json::Value), what: &str| {
        assert_eq!((answer.0, answer.1["code"].as_str()), (401, Some("attestation_refused")), "{what}");
        // Nothing tells which check failed.
        assert_eq!(answer.1["detail"], "the attestation is refused", "{what}");
    };
    // Nothing at all, two, and garbage.
    refused(good.send(&served, &[]).await, "none");
    refused(good.send(&served, &[&good.header(), &good.header()]).await, "two");
    refused(good.send(&served, &["v1.e30.e30"]).await, "garbage");
    type Change = fn(&mut Forged);
    let altered: [(&str, Change); 4] = [
        ("body", |f| f.body.push(b' ')),
        ("path", |f| f.path = path::FORGET.into()),
        ("query", |f| f.path.push_str("?x=1")),
        ("idempotency key", |f| f.idempotency_key = Some("key-2".into())),
    ];
    for (what, change) in altered {
        let mut changed = good.clone();
        change(&mut changed);
        refused(changed.send(&served, &[&good.header()]).await, what);
    }
    let mut without = good.clone();
    without.idempotency_key = None;
    refused(without.send(&served, &[&good.header()]).await, "without its idempotency key");
    let forged: [(&str, Change); 7] = [
        ("another master", |f| f.key = LaneKey::derive(&[1; 32], f.statement.lane_uid, VERSION)),
        ("another version", |f| f.statement.key_version = VERSION + 1),
        ("another lane", |f| f.statement.lane_uid = LaneUid::from_uuid(uuid::Uuid::from_u128(9))),
        ("another log", |f| f.statement.log_id = LogId(Hash32::from_bytes([9; 32]))),
        ("stale", |f| f.statement.issued_at_ms -= 31_000),
        ("from the future", |f| f.statement.issued_at_ms += 31_000),
        ("late", |f| f.statement.deadline_ms = f.statement.issued_at_ms - 1),
    ];
    for (what, change) in forged {
        let mut changed = good.clone();
        change(&mut changed);
        refused(changed.send(&served, &[&changed.header()]).await, what);
    }
    // Of another lane, made with that lane's own key.
    let other = LaneUid::from_uuid(uuid::Uuid::from_u128(9));
    let mut elsewhere = good.clone();
    elsewhere.statement.lane_uid = other;
    elsewhere.key = LaneKey::derive(&MASTER, other, VERSION);
    refused(elsewhere.send(&served, &[&elsewhere.header()]).await, "another lane with its own key");
    assert_eq!(events(&served).await, 0, "nothing was written");

    // None of the refused used up the Idempotency-Key, and none the nonce.
    let header = good.header();
    assert_eq!(good.send(&served, &[&header]).await.0, 200);
    refused(good.send(&served, &[&header]).await, "replayed");
    assert_eq!(events(&served).await, 2, "opened, hello");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_captured_request_does_not_pass_a_restart() {
    let mut served = Served::new("team/bob").await;
    let captured = Forged::good(&served, "hello");
    let address = served.address();
    served.stop().await;
    served.start(address).await;
    assert_eq!(captured.send(&served, &[&captured.header()]).await.0, 401);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_statement_says_who_asks_and_nothing_else_does() {
    let mut served = Served::new("team/bob").await;
    let stage = &served.stage;
    // A reader, whatever its body says.
    let mut reader = Forged::good(&served, "hello");
    let eve = stage.caller("user:eve", Role::Reader);
    reader.statement.principal = Some(eve.principal);
    reader.statement.scope = Some(eve.scope);
    let answer = reader.send(&served, &[&reader.header()]).await;
    assert_eq!((answer.0, answer.1["code"].as_str()), (403, Some("gate_required")));
    // Nobody: query-service itself may ask for the state and no more.
    let mut nobody = Forged::good(&served, "hello");
    (nobody.statement.principal, nobody.statement.scope) = (None, None);
    assert_eq!(nobody.send(&served, &[&nobody.header()]).await.0, 404);
    nobody.statement.nonce = uuid::Uuid::new_v4();
    (nobody.method, nobody.path, nobody.body) = (reqwest::Method::GET, path::STATUS.into(), vec![]);
    nobody.idempotency_key = None;
    let answer = nobody.send(&served, &[&nobody.header()]).await;
    assert_eq!((answer.0, answer.1["ready"].as_bool()), (200, Some(true)));
    // A scope for another lane allows nothing here.
    let mut foreign = Forged::good(&served, "hello");
    let uid = LaneUid::from_uuid(uuid::Uuid::from_u128(9));
    let principal = stage.bob().principal;
    let granted = Scope::of_role(&stage.lane, uid, &principal, Role::Admin).unwrap();
    foreign.statement.scope = Some(EffectiveScope { granted, narrowed: None });
    assert_eq!(foreign.send(&served, &[&foreign.header()]).await.0, 404);
    // A personal lane is read through no other lane.
    let mut reading = Forged::good(&served, "hello");
    reading.statement.reading_lane = Some(uid);
    assert_eq!(reading.send(&served, &[&reading.header()]).await.0, 404);
    assert_eq!(events(&served).await, 0);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_not_of_the_protocol_is_named_and_not_quoted() {
    let mut served = Served::new("team/bob").await;
    let mut bad = Forged::good(&served, "hello");
    let mut body = serde_json::json!({"save": {"session": "s", "turns": [turn("SECRET-TEXT")]}, "body_sha256": 5});
    body["save"]["turns"][0]["role"] = serde_json::json!("SECRET-ROLE");
    bad.body = serde_json::to_vec(&body).unwrap();
    let (status, answer) = bad.send(&served, &[&bad.header()]).await;
    assert_eq!((status, answer["code"].as_str()), (400, Some("invalid_field")));
    assert!(!answer.to_string().contains("SECRET"), "{answer}");
    // No route is no route for everybody, attested or not.
    let mut nowhere = Forged::good(&served, "hello");
    nowhere.path = "/v1/store/moon".into();
    assert_eq!(nowhere.send(&served, &[]).await.0, 404);
    served.stop().await;
}
