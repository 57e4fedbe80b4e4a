//! The lane that a check makes for itself, by the API server of the cluster that it runs in.
//!
//! What must always hold: only a lane with our label is ever erased, so that a name given by mistake costs nobody
//! a memory. What this is not: a client of Kubernetes. Four requests on one object need none.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use lanekeeper_core::LaneName;
use lanekeeper_core::secret::Secret;
use serde_json::{Value, json};

use crate::failure::Failure;

/// Where a pod finds its own account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Says that a lane was made by a check.
const LABEL: &str = "lanekeeper.dev/check";
const PAUSE: Duration = Duration::from_millis(500);
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// What the lane is to be.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    /// Whom it lets in.
    pub(super) account: &'a LaneName,
    /// Of its volume.
    pub(super) size: &'a str,
    /// Of its volume.
    pub(super) class: Option<&'a str>,
}

/// The API server, with this pod's own account.
#[derive(Debug)]
pub(super) struct ApiServer {
    http: reqwest::Client,
    base: String,
    token: Secret<String>,
}

impl ApiServer {
    /// As the pod's environment and its mounted account say.
    pub(super) fn of_this_pod() -> Result<Self, Failure> {
        let outside = || Failure::usage("--create works in a pod of the cluster only, with its account mounted");
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty()).ok_or_else(outside);
        let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let read = |name: &str| std::fs::read_to_string(format!("{ACCOUNT}/{name}")).map_err(|_| outside());
        let certificates = reqwest::Certificate::from_pem_bundle(read("ca.crt")?.as_bytes())
            .map_err(|error| Failure::because("cannot read the API server's certificate", &error))?;
        let http = reqwest::Client::builder()
            .tls_certs_only(certificates)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(ANSWER_WAIT)
            .build()
            .map_err(|error| Failure::because("cannot make an HTTP client", &error))?;
        let token = Secret::new(read("token")?.trim().to_owned());
        Ok(Self { http, base: format!("https://{host}:{port}/apis/lanekeeper.dev/v1alpha1"), token })
    }

    /// Makes it and waits until it is ready. One that an earlier check left is erased first.
    pub(super) async fn make(&self, lane: &LaneName, wanted: &Wanted<'_>, within: Duration) -> Result<(), Failure> {
        self.erase(lane, within).await?;
        let Wanted { account, size, class } = wanted;
        let mut storage = json!({"size": size});
        if let Some(class) = class {
            storage["storageClassName"] = json!(class);
        }
        let object = json!({
            "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Lane",
            "metadata": {"name": lane.name(), "namespace": lane.namespace(), "labels": {LABEL: "true"}},
            "spec": {
                "kind": "corpus", "storage": storage,
                "access": [{"serviceAccount": {"namespace": account.namespace(), "name": account.name()}, "role": "admin"}],
            },
        });
        let (status, body) = self.send(Method::POST, &collection(lane), "application/json", Some(&object)).await?;
        if status != StatusCode::CREATED {
            return Err(refused("make", lane, status, &body));
        }
        let deadline = Instant::now() + within;
        loop {
            let (status, body) = self.send(Method::GET, &object_path(lane), "", None).await?;
            if status != StatusCode::OK {
                return Err(refused("look at", lane, status, &body));
            }
            let conditions = body["status"]["conditions"].as_array().cloned().unwrap_or_default();
            if conditions.iter().any(|found| found["type"] == "Ready" && found["status"] == "True") {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Failure::refused(format!("lane {lane} is not ready: {}", in_words(&conditions))));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Deletes it with its memory and waits until it is gone. None there is as good.
    pub(super) async fn erase(&self, lane: &LaneName, within: Duration) -> Result<(), Failure> {
        let path = object_path(lane);
        let deadline = Instant::now() + within;
        let mut told = false;
        loop {
            let (status, body) = self.send(Method::GET, &path, "", None).await?;
            match status {
                StatusCode::NOT_FOUND => return Ok(()),
                StatusCode::OK => {}
                _ => return Err(refused("look at", lane, status, &body)),
            }
            if body["metadata"]["labels"][LABEL] != "true" {
                return Err(Failure::refused(format!("lane {lane} was not made by a check, so it is left alone")));
            }
            if !told {
                let uid = &body["metadata"]["uid"];
                let confirmed = json!({
                    "metadata": {"annotations": {lanekeeper_crds::annotations::CONFIRM_DELETE: uid}},
                    "spec": {"deletionPolicy": "Delete"},
                });
                let merge = "application/merge-patch+json";
                let (status, body) = self.send(Method::PATCH, &path, merge, Some(&confirmed)).await?;
                if !status.is_success() && status != StatusCode::NOT_FOUND {
                    return Err(refused("confirm the deletion of", lane, status, &body));
                }
                // The very one that was looked at, should another have come in its place.
                let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
                let (status, body) = self.send(Method::DELETE, &path, "application/json", Some(&options)).await?;
                if !status.is_success() && status != StatusCode::NOT_FOUND {
                    return Err(refused("delete", lane, status, &body));
                }
                told = true;
            }
            if Instant::now() >= deadline {
                let conditions = body["status"]["conditions"].as_array().cloned().unwrap_or_default();
                return Err(Failure::refused(format!("lane {lane} does not go: {}", in_words(&conditions))));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value), Failure> {
        let mut request = self.http.request(method, format!("{}{path}", self.base)).bearer_auth(self.token.expose());
        if let Some(body) = body {
            request = request.header(http::header::CONTENT_TYPE, content_type).body(body.to_string());
        }
        let broken = |error: reqwest::Error| Failure::because("cannot ask the API server", &error.without_url());
        let response = request.send().await.map_err(broken)?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(broken)?;
        Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }
}

fn collection(lane: &LaneName) -> String {
    format!("/namespaces/{}/lanes", lane.namespace())
}

fn object_path(lane: &LaneName) -> String {
    format!("/namespaces/{}/lanes/{}", lane.namespace(), lane.name())
}

fn refused(what: &str, lane: &LaneName, status: StatusCode, body: &Value) -> Failure {
    let message = body["message"].as_str().unwrap_or("without a reason");
    Failure::refused(format!("cannot {what} lane {lane}: the API server answered {}: {message}", status.as_u16()))
}

fn in_words(conditions: &[Value]) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let each = conditions.iter().filter(|found| found["status"] != "True");
    let words: Vec<String> = each
        .map(|found| format!("{} ({}: {})", text(&found["type"]), text(&found["reason"]), text(&found["message"])))
        .collect();
    if words.is_empty() { "nobody has looked at it".to_owned() } else { words.join("; ") }
}
