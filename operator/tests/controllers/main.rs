//! The controllers against an API server in memory: what is written, in which order, and what is not.

mod claims;
mod ends;
mod making;
mod server;
mod waiting;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use clap::Parser as _;
use k8s_openapi::jiff::Timestamp;
use lanekeeper_core::Epoch;
use lanekeeper_operator::Config;
use lanekeeper_operator::ask::Ask;
use lanekeeper_operator::context::Context;
use lanekeeper_operator::controller::{self, Controller, Next};
use lanekeeper_operator::error::Error;
use lanekeeper_operator::gate::{Gate, Term, Watches};
use lanekeeper_operator::keys::system::ensure;
use lanekeeper_operator::qdrant::{Collections, Connect, Fault, Qdrant};
use lanekeeper_operator::queue::Key;
use serde_json::{Value, json};
use tokio::time::Instant;

use server::Server;

pub(crate) const LANES: &str = "/apis/lanekeeper.dev/v1alpha1/namespaces/team/lanes";
pub(crate) const RECORDS: &str = "/apis/lanekeeper.dev/v1alpha1/namespaces/sys/federationrecords";
pub(crate) const VOLUMES: &str = "/api/v1/namespaces/team/persistentvolumeclaims";
pub(crate) const SETS: &str = "/apis/apps/v1/namespaces/team/statefulsets";

/// An operator on a server in memory.
pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) term: Term,
    pub(crate) qdrant: FakeQdrant,
    arguments: Vec<String>,
    gate: Gate,
}

impl Stage {
    pub(crate) async fn new(arguments: &[&str]) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = Server::default();
        let gate = Gate { term: Term::default(), watches: Watches::default() };
        gate.term.until(Instant::now() + Duration::from_secs(1_000_000));
        for namespace in ["team", "sys"] {
            server.put(&format!("/api/v1/namespaces/{namespace}"), json!({"metadata": {"name": namespace}}));
        }
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let stage = Self { server, term: gate.term.clone(), qdrant: FakeQdrant::default(), arguments, gate };
        ensure(&stage.server.client(&stage.gate), "sys", Timestamp::now()).await.unwrap();
        stage.server.writes();
        stage
    }

    /// A context that has seen all there is by now.
    pub(crate) async fn context(&self) -> Context {
        let base = ["lanekeeper-operator", "--image=lanekeeper:1", "--system-namespace=sys"];
        let config = Config::parse_from(base.iter().copied().chain(self.arguments.iter().map(String::as_str)));
        let client = self.server.client(&self.gate);
        let qdrant = config.qdrant_url.clone().map(|url| {
            let fake = self.qdrant.clone();
            let connect: Connect = Box::new(move |_, _| Ok(Arc::new(fake.clone())));
            Qdrant::new(url, config.qdrant_secret.clone(), connect)
        });
        let context = Context::new(config, client, self.gate.watches.clone(), qdrant, Ask::default());
        assert!(context.caches.set(self.server.caches()).is_ok());
        let sent = self.term.is_on();
        if sent {
            let (keys, _) = ensure(&context.client, "sys", Timestamp::now()).await.unwrap();
            context.set_keys(keys);
        }
        context
    }

    pub(crate) async fn lane(&self, name: &str) -> Result<Next, Error> {
        controller::lane::reconcile(&self.context().await, &Key::namespaced("team", name)).await
    }

    pub(crate) async fn record(&self, name: &str) -> Result<Next, Error> {
        controller::record::reconcile(&self.context().await, &Key::namespaced("sys", name)).await
    }

    pub(crate) async fn embedder(&self, name: &str) -> Result<Next, Error> {
        controller::embedder::reconcile(&self.context().await, &Key::cluster(name)).await
    }

    /// Reconciles a lane until nothing is written any more. Panics if that takes long.
    pub(crate) async fn settle(&self, name: &str) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..5 {
            let _ = self.lane(name).await.unwrap();
            let writes = self.server.writes();
            if writes.is_empty() {
                return all;
            }
            all.extend(writes);
        }
        panic!("it never comes to rest: {all:?}");
    }

    pub(crate) fn declare(&self, name: &str, spec: Value) -> Value {
        self.server.put(
            &format!("{LANES}/{name}"),
            json!({
                "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Lane", "metadata": {"name": name}, "spec": spec,
            }),
        )
    }

    pub(crate) fn condition(&self, name: &str, kind: &str) -> Option<(String, String, String)> {
        let lane = self.server.get(&format!("{LANES}/{name}"))?;
        let found = lane["status"]["conditions"].as_array()?.iter().find(|found| found["type"] == kind)?.clone();
        let text = |field: &str| found[field].as_str().unwrap().to_owned();
        Some((text("status"), text("reason"), text("message")))
    }
}

pub(crate) fn personal(owner: &str) -> Value {
    json!({"kind": "personal", "owner": owner})
}

/// One lane by the worker, with its waits and metrics.
pub(crate) async fn work(context: &Context, name: &str) {
    controller::work(context, Controller::Lane, &Key::namespaced("team", name)).await;
}

/// Qdrant's API key.
pub(crate) const KEY: &str = "secret";

/// Qdrant in memory, that can be away or check nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeQdrant(pub(crate) Arc<Mutex<QdrantState>>);

#[derive(Debug, Default)]
pub(crate) struct QdrantState {
    pub(crate) away: bool,
    pub(crate) lax: bool,
    pub(crate) collections: BTreeMap<String, u32>,
    pub(crate) aliases: BTreeMap<String, String>,
    pub(crate) fences: BTreeMap<String, Epoch>,
}

impl FakeQdrant {
    fn state(&self) -> Result<std::sync::MutexGuard<'_, QdrantState>, Fault> {
        let state = self.0.lock().unwrap();
        if state.away { Err(Fault::Unreachable("away".into())) } else { Ok(state) }
    }
}

#[async_trait]
impl Collections for FakeQdrant {
    async fn make(&self, name: &str, dimension: u32) -> Result<(), Fault> {
        self.state()?.collections.insert(name.to_owned(), dimension);
        Ok(())
    }
    async fn alias(&self, alias: &str) -> Result<Option<String>, Fault> {
        Ok(self.state()?.aliases.get(alias).cloned())
    }
    async fn point_alias(&self, alias: &str, collection: &str) -> Result<(), Fault> {
        self.state()?.aliases.insert(alias.to_owned(), collection.to_owned());
        Ok(())
    }
    async fn drop_alias(&self, alias: &str) -> Result<(), Fault> {
        self.state()?.aliases.remove(alias);
        Ok(())
    }
    async fn names(&self, prefix: &str) -> Result<Vec<String>, Fault> {
        Ok(self.state()?.collections.keys().filter(|name| name.starts_with(prefix)).cloned().collect())
    }
    async fn drop_collection(&self, name: &str) -> Result<(), Fault> {
        self.state()?.collections.remove(name);
        Ok(())
    }
    async fn set_fence(&self, collection: &str, epoch: Epoch) -> Result<(), Fault> {
        self.state()?.fences.insert(collection.to_owned(), epoch);
        Ok(())
    }
    async fn drop_fence(&self, collection: &str) -> Result<(), Fault> {
        self.state()?.fences.remove(collection);
        Ok(())
    }
    async fn count(&self, _: &str) -> Result<u64, Fault> {
        self.state().map(|_| 0)
    }
    async fn admits(&self, token: Option<&str>, name: &str) -> Result<bool, Fault> {
        // What a server that checks tokens says.
        use base64::Engine as _;
        use hmac::{KeyInit as _, Mac as _};
        let state = self.state()?;
        let claims = token.and_then(|token| {
            let decode = |part: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap();
            let (signed, mac) = token.rsplit_once('.')?;
            let mut expected = hmac::Hmac::<sha2::Sha256>::new_from_slice(KEY.as_bytes()).unwrap();
            expected.update(signed.as_bytes());
            expected.verify_slice(&decode(mac)).ok()?;
            serde_json::from_slice::<Value>(&decode(signed.split('.').nth(1)?)).ok()
        });
        let opened = claims.is_some_and(|claims| {
            let named = claims["access"].as_array().unwrap().iter().any(|entry| entry["collection"] == name);
            let value = claims["value_exists"]["matches"][0]["value"].as_str().unwrap().to_owned();
            let fence = state.fences.iter().any(|(collection, epoch)| value == format!("{collection}#{epoch}"));
            named && fence
        });
        Ok(opened || state.lax)
    }
}
