//! A caller of the query service: a ServiceAccount's token for the audience `lanekeeper`, over TLS that trusts
//! our CA alone.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use kube::api::{ListParams, PostParams};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::chart::SYSTEM;
use crate::forward::{self, Forward};
use crate::world::World;

const QUERY: &str = "lanekeeper-query";
/// The service promises an answer within 8 s.
const PATIENCE: Duration = Duration::from_secs(20);

/// One principal at one address of the query service.
pub(crate) struct Caller {
    http: reqwest::Client,
    base: String,
    token: String,
    _forward: Option<Forward>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
}

impl Answer {
    /// The body, if the status is this one.
    pub(crate) fn expect(self, status: u16) -> Result<Value> {
        ensure!(self.status.as_u16() == status, "{} instead of {status}: {}", self.status, self.body);
        Ok(self.body)
    }
}

impl World {
    /// A caller through the Service.
    pub(crate) async fn caller(&self, namespace: &str, account: &str) -> Result<Caller> {
        let service = self.system::<Service>().get(QUERY).await.context("the query service's Service")?;
        let address = service.spec.and_then(|spec| spec.cluster_ip).context("it has no address")?;
        if self.node.is_some() {
            let address = SocketAddr::new(address.parse().context("its address")?, 443);
            return self.caller_at(namespace, account, address, None).await;
        }
        let pod = self.query_pods().await?.into_iter().next().context("no query replica is there")?;
        let name = pod.metadata.name.context("a pod without a name")?;
        let forward = forward::open(self.system(), name, 8443).await?;
        self.caller_at(namespace, account, forward.address, Some(forward)).await
    }

    /// One caller a replica, each of which it reaches directly.
    pub(crate) async fn callers_of_replicas(&self, namespace: &str, account: &str) -> Result<Vec<Caller>> {
        let mut callers = Vec::new();
        for pod in self.query_pods().await? {
            let name = pod.metadata.name.context("a pod without a name")?;
            if self.node.is_some() {
                let address = pod.status.and_then(|status| status.pod_ip).context("a pod without an address")?;
                let address = SocketAddr::new(address.parse()?, 8443);
                callers.push(self.caller_at(namespace, account, address, None).await?);
            } else {
                let forward = forward::open(self.system(), name, 8443).await?;
                callers.push(self.caller_at(namespace, account, forward.address, Some(forward)).await?);
            }
        }
        Ok(callers)
    }

    async fn query_pods(&self) -> Result<Vec<Pod>> {
        let selector = ListParams::default().labels("app.kubernetes.io/name=lanekeeper-query");
        let pods = self.system::<Pod>().list(&selector).await?.items;
        Ok(pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect())
    }

    async fn caller_at(
        &self,
        namespace: &str,
        account: &str,
        address: SocketAddr,
        forward: Option<Forward>,
    ) -> Result<Caller> {
        self.account(namespace, account).await?;
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: vec!["lanekeeper".to_owned()],
                expiration_seconds: Some(3600),
                bound_object_ref: None,
            },
            ..TokenRequest::default()
        };
        let answer = self
            .api::<ServiceAccount>(namespace)
            .create_token_request(account, &PostParams::default(), &request)
            .await?;
        let token = answer.status.context("no token came back")?.token;
        let ca = self.system::<ConfigMap>().get("lanekeeper-ca").await.context("the CA's ConfigMap")?;
        let ca = ca.data.and_then(|data| data.get("ca.crt").cloned()).context("it has no ca.crt")?;
        let host = format!("{QUERY}.{SYSTEM}.svc");
        Caller::new(&host, address, &ca, token, forward)
    }
}

impl Caller {
    /// Speaks to `address` as `host`, whose certificate `ca` (PEM) has signed.
    pub(crate) fn new(
        host: &str,
        address: SocketAddr,
        ca: &str,
        token: String,
        forward: Option<Forward>,
    ) -> Result<Self> {
        let http = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(ca.as_bytes()).context("the CA's certificate")?])
            .resolve(host, address)
            .no_proxy()
            .timeout(PATIENCE)
            .build()
            .context("make an HTTP client")?;
        // The resolver answers with the address and its port; the URL's port must not contradict it.
        Ok(Self { http, base: format!("https://{host}:{}", address.port()), token, _forward: forward })
    }

    /// One request. An error is one of the connection; a refusal is an answer.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Answer> {
        let mut request = self.http.request(method, format!("{}{path}", self.base)).bearer_auth(&self.token);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await?;
        let status = response.status();
        let bytes = response.bytes().await?;
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap_or(Value::Null) };
        Ok(Answer { status, body })
    }

    /// Saves texts of the assistant in one session, under a key of its own.
    pub(crate) async fn save(&self, lane: &str, session: &str, texts: &[&str]) -> Result<Answer> {
        self.save_under(lane, session, texts, &uuid::Uuid::now_v7().to_string()).await
    }

    /// [`Caller::save`] under a given Idempotency-Key.
    pub(crate) async fn save_under(&self, lane: &str, session: &str, texts: &[&str], key: &str) -> Result<Answer> {
        let turns: Vec<Value> = texts.iter().map(|text| json!({"role": "assistant", "text": text})).collect();
        let body = json!({"session": session, "turns": turns});
        self.send(Method::POST, &format!("/v1/lanes/{lane}/events"), Some(key), Some(&body)).await
    }

    /// Recalls; `more` are further fields of the request.
    pub(crate) async fn recall(&self, query: &str, more: Value) -> Result<Answer> {
        let body = crate::lanes::with(json!({"query": query}), more);
        self.send(Method::POST, "/v1/recall", None, Some(&body)).await
    }

    /// Verifies the whole chain and fails if it does not hold.
    pub(crate) async fn verified(&self, lane: &str) -> Result<Value> {
        let report = self.send(Method::POST, &format!("/v1/lanes/{lane}/verify"), None, Some(&json!({}))).await?;
        let report = report.expect(200)?;
        ensure!(report["ok"] == true, "the chain of {lane} does not hold: {report}");
        Ok(report)
    }

    /// Every event of a lane, by its place in the log.
    pub(crate) async fn events(&self, lane: &str) -> Result<Vec<Value>> {
        let (mut events, mut after) = (Vec::new(), 0_u64);
        loop {
            let path = format!("/v1/lanes/{lane}/events?after={after}&limit=500");
            let page = self.send(Method::GET, &path, None, None).await?.expect(200)?;
            let Some(found) = page["events"].as_array() else { bail!("a page without events: {page}") };
            events.extend(found.iter().cloned());
            match page["next_after"].as_u64() {
                Some(next) => after = next,
                None => return Ok(events),
            }
        }
    }
}

/// Texts of an answer's hits.
pub(crate) fn texts(answer: &Value) -> Vec<String> {
    let hits = answer["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
    hits.iter().filter_map(|hit| hit["text"].as_str().map(str::to_owned)).collect()
}
