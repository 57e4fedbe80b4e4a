//! The whole query service in a cluster's shape: lanes found by watches, a ServiceAccount known by TokenReview, a
//! real store behind TLS and attestation, and a replica that leaves without failing a request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use base64::Engine as _;
use clap::Parser as _;
use lanekeeper_core::clock::SystemClock;
use lanekeeper_core::cluster::{lane_host, query_dns_names};
use lanekeeper_core::testing::HashEncoder;
use lanekeeper_query_service::LaneDirectory as _;
use lanekeeper_query_service::cluster::{Master, Options, Running, StoreHttp, StoreLink, start_with};
use serde_json::{Value, json};

use super::api_server::{ApiServer, GROUP};
use super::stage::{Served, until};

/// The store's port is fixed, so each test has an address of its own.
fn loopback(n: u8) -> SocketAddr {
    format!("127.{}.{}.{n}:7443", 64 + std::process::id() % 64, 1 + std::process::id() / 64 % 200).parse().unwrap()
}

struct World {
    server: Arc<ApiServer>,
    served: Served,
    replicas: Vec<Running>,
}

/// A JWT in form; only the API server's word counts.
fn token(subject: &str) -> String {
    let part = |value: Value| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.{}", part(json!({"alg": "RS256"})), part(json!({"iss": "https://k8s", "sub": subject})), "sig")
}

fn account(uid: &str) -> Value {
    json!({"authenticated": true, "audiences": ["lanekeeper"],
        "user": {"username": "system:serviceaccount:team:agent", "uid": uid}})
}

impl World {
    async fn new(n: u8) -> Self {
        let served = Served::with("team/bob", loopback(n), Arc::new(HashEncoder::new())).await;
        let server = ApiServer::new();
        let world = Self { server, served, replicas: vec![] };
        world.put_lane(json!([{"serviceAccount": {"namespace": "team", "name": "agent"}, "role": "writer"}]));
        world.put_record(&world.served.stage.uid.to_string());
        world
    }

    fn put_lane(&self, access: Value) {
        self.server.put(
            &format!("{GROUP}/namespaces/team/lanes/bob"),
            json!({"apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Lane",
                "metadata": {"namespace": "team", "name": "bob", "uid": self.served.stage.uid},
                "spec": {"kind": "personal", "owner": "bob", "access": access}}),
        );
    }

    fn put_record(&self, writer: &str) {
        let stage = &self.served.stage;
        self.server.put(
            &format!("{GROUP}/namespaces/sys/federationrecords/team.bob"),
            json!({"apiVersion": "lanekeeper.dev/v1alpha1", "kind": "FederationRecord",
                "metadata": {"namespace": "sys", "name": "team.bob"},
                "spec": {"collection": "team.bob", "writer": {"namespace": "team", "name": "bob", "uid": writer},
                    "mode": "read-write", "logId": stage.log_id, "fingerprint": stage.encoder.fingerprint(),
                    "epoch": 1, "generation": 1}}),
        );
    }

    /// One more replica, ready.
    async fn replica(&mut self) {
        let folder = self.served.temp.path().join("query");
        let _ = std::fs::create_dir(&folder);
        self.served.ca.write(&folder, query_dns_names("sys"));
        let master = self.served.temp.path().join("master");
        let options = Options::try_parse_from([
            "lanekeeper-query",
            "--system-namespace=sys",
            "--listen=127.0.0.1:0",
            "--probes=127.0.0.1:0",
            "--metrics=127.0.0.1:0",
            "--drain-delay-seconds=1",
            &format!("--tls={}", folder.display()),
            &format!("--master={}", master.display()),
        ])
        .unwrap();
        let name = (lane_host(&self.served.stage.lane), self.served.address());
        let http = StoreHttp::resolving(folder.join("ca.crt"), vec![name]).unwrap();
        let clock = Arc::new(SystemClock);
        let link = Arc::new(StoreLink::new(http, Master::open(&master).unwrap(), clock.clone()));
        let verifiers = options.verifiers().unwrap();
        let running = start_with(&options, self.server.client(), verifiers, link, clock).await.unwrap();
        let probe = format!("http://{}/readyz", running.probes);
        until("the replica is ready", async || {
            let lanes = running.directory().lanes();
            reqwest::get(&probe).await.unwrap().status().is_success() && !lanes.is_empty()
        })
        .await;
        self.replicas.push(running);
    }

    fn client(&self) -> reqwest::Client {
        let pem = std::fs::read(self.served.temp.path().join("query/ca.crt")).unwrap();
        reqwest::Client::builder()
            .tls_certs_only(reqwest::Certificate::from_pem_bundle(&pem).unwrap())
            .resolve("lanekeeper-query.sys.svc", self.replicas[0].address)
            .no_proxy()
            .build()
            .unwrap()
    }

    fn url(&self, replica: usize, path: &str) -> String {
        format!("https://lanekeeper-query.sys.svc:{}{path}", self.replicas[replica].address.port())
    }

    async fn post(&self, path: &str, token: &str, body: Value) -> (u16, Value) {
        let request = self.client().post(self.url(0, path)).bearer_auth(token).json(&body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }

    async fn save(&self, token: &str, text: &str) -> (u16, Value) {
        let body = json!({"session": "s", "turns": [{"role": "assistant", "text": text}]});
        self.post("/v1/lanes/team/bob/events", token, body).await
    }

    async fn stop(mut self) {
        for replica in self.replicas {
            replica.stop().await;
        }
        self.served.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_saves_and_recalls_and_its_access_counts_as_it_is_now() {
    let mut world = World::new(1).await;
    world.replica().await;
    let agent = token("agent");
    // The API server does not know it yet, and says so at once; a refusal is remembered for 5 s, so another token.
    assert_eq!(world.save(&token("stranger"), "hello").await.0, 401);
    world.server.know_token(&agent, account("uid-1"));
    let (status, answer) = world.save(&agent, "The release moves to Thursday.").await;
    assert_eq!(status, 201, "{answer}");
    let (status, answer) = world.post("/v1/recall", &agent, json!({"query": "when is the release"})).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["hits"][0]["text"], "The release moves to Thursday.");
    // The deterministic encoder has no Embedder in the cluster: text answered, and coverage says what did not.
    assert_eq!(answer["coverage"]["complete_corpus"], false);
    assert_eq!(world.server.calls("POST /apis/authentication.k8s.io"), 2, "one review a token");
    // Removing access ends it, without a restart and before the review is forgotten.
    world.put_lane(json!([]));
    until("access is gone", async || world.save(&agent, "again").await.0 == 404).await;
    // A name that was made anew: the grant is its first user's until it is given again.
    let grant = json!([{"serviceAccount": {"namespace": "team", "name": "agent"}, "role": "writer"}]);
    world.put_lane(grant.clone());
    until("access is back", async || world.save(&agent, "again").await.0 == 201).await;
    let renewed = token("agent-made-anew");
    world.server.know_token(&renewed, account("uid-2"));
    assert_eq!(world.save(&renewed, "not mine").await.0, 404);
    world.put_lane(json!([]));
    until("access is gone", async || world.save(&agent, "again").await.0 == 404).await;
    world.put_lane(grant);
    until("the new account is admitted", async || world.save(&renewed, "mine now").await.0 == 201).await;
    // The record names another writer: no store is asked, and the lane says why.
    world.put_record(&uuid::Uuid::nil().to_string());
    until("the store is not asked", async || world.save(&renewed, "x").await.0 == 503).await;
    let list = world.client().get(world.url(0, "/v1/lanes")).bearer_auth(&renewed).send().await.unwrap();
    assert_eq!(list.json::<Value>().await.unwrap()["lanes"][0]["reasons"], json!(["collection_taken"]));
    // A Lane that cannot be read is closed.
    let path = format!("{GROUP}/namespaces/team/lanes/bob");
    let mut lane = world.server.get(&path).unwrap();
    lane["spec"] = json!({"kind": "maybe"});
    world.server.put(&path, lane);
    until("the lane is closed", async || world.save(&renewed, "x").await.0 == 404).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_away_refuses_nobody_for_good() {
    let mut world = World::new(2).await;
    world.replica().await;
    let agent = token("agent");
    world.server.know_token(&agent, account("uid-1"));
    world.server.fail(Some(503));
    let (status, answer) = world.save(&agent, "hello").await;
    assert_eq!((status, answer["code"].as_str()), (503, Some("unavailable")));
    world.server.fail(None);
    assert_eq!(world.save(&agent, "hello").await.0, 201, "errors are not remembered");
    world.server.fail(Some(503));
    assert_eq!(world.save(&agent, "hello again").await.0, 201, "what was known counts for its time");
    world.server.fail(None);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_a_replica_leaves() {
    let mut world = World::new(3).await;
    world.replica().await;
    let agent = token("agent");
    world.server.know_token(&agent, account("uid-1"));
    let probe = format!("http://{}/readyz", world.replicas[0].probes);
    let (url, client) = (world.url(0, "/v1/recall"), world.client());
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    // Clients that keep their connections, as a proxy does: until they are told that the replica leaves.
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (client, url, agent, stop, sent) =
                (client.clone(), url.clone(), agent.clone(), Arc::clone(&stop), Arc::clone(&sent));
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let request = client.post(&url).bearer_auth(&agent).json(&json!({"query": "x"}));
                    let status = request.send().await.expect("a request failed").status();
                    assert_eq!(status.as_u16(), 200);
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    until("requests are under way", async || sent.load(Ordering::SeqCst) > 20).await;
    let leaving = world.replicas.remove(0);
    let leaving = tokio::spawn(leaving.stop());
    until("it is not ready", async || reqwest::get(&probe).await.is_ok_and(|answer| answer.status() == 503)).await;
    let before = sent.load(Ordering::SeqCst);
    until("it still serves", async || sent.load(Ordering::SeqCst) > before + 20).await;
    stop.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    leaving.await.unwrap();
    world.stop().await;
}
