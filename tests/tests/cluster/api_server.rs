//! A small model of an API server, behind a client without a socket: objects with resourceVersions, merge patches
//! with preconditions, watches, TokenReviews. What it does not know it answers with 404, as the real one would.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::sync::broadcast;

#[derive(Default)]
struct State {
    /// By path, such as `/apis/…/namespaces/sys/federationrecords/team.bob`.
    objects: BTreeMap<String, Value>,
    version: u64,
    /// Answers to TokenReviews, by token.
    reviews: BTreeMap<String, Value>,
    calls: Vec<String>,
    /// Answered to everything, while set.
    failing: Option<u16>,
    /// So many writes find that somebody else was faster.
    conflicts: u32,
}

pub(crate) struct ApiServer {
    state: Mutex<State>,
    events: broadcast::Sender<(String, Value)>,
}

pub(crate) const GROUP: &str = "/apis/lanekeeper.dev/v1alpha1";

impl ApiServer {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), events: broadcast::Sender::new(256) })
    }

    pub(crate) fn client(self: &Arc<Self>) -> kube::Client {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let server = Arc::clone(&server);
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        kube::Client::new(service, "default")
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Puts an object at a path, as somebody with kubectl would; watches see it.
    pub(crate) fn put(&self, path: &str, mut object: Value) {
        let mut state = self.state();
        state.version += 1;
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        let kind = if state.objects.insert(path.to_owned(), object.clone()).is_some() { "MODIFIED" } else { "ADDED" };
        drop(state);
        let _ = self.events.send((collection_of(path), json!({"type": kind, "object": object})));
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.state().objects.get(path).cloned()
    }

    /// What a TokenReview of this token answers.
    pub(crate) fn know_token(&self, token: &str, status: Value) {
        self.state().reviews.insert(token.to_owned(), status);
    }

    pub(crate) fn fail(&self, status: Option<u16>) {
        self.state().failing = status;
    }

    pub(crate) fn conflict(&self, times: u32) {
        self.state().conflicts = times;
    }

    /// Calls so far that begin so, such as `PATCH /apis`.
    pub(crate) fn calls(&self, begin: &str) -> usize {
        self.state().calls.iter().filter(|call| call.starts_with(begin)).count()
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let path = parts.uri.path().to_owned();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let mut state = self.state();
        state.calls.push(format!("{} {path}?{query}", parts.method));
        if let Some(status) = state.failing {
            return status_answer(status, "InternalError", "");
        }
        if path.ends_with("/tokenreviews") {
            let token = body["spec"]["token"].as_str().unwrap_or_default().to_owned();
            assert_eq!(body["spec"]["audiences"], json!(["lanekeeper"]));
            let status = state.reviews.get(&token).cloned().unwrap_or_else(|| json!({"authenticated": false}));
            return json_answer(
                201,
                &json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1",
                "metadata": {}, "spec": body["spec"], "status": status}),
            );
        }
        if query.contains("watch=") {
            drop(state);
            return self.watch(&path);
        }
        let (object_path, status_only) = match path.strip_suffix("/status") {
            Some(path) => (path.to_owned(), true),
            None => (path.clone(), false),
        };
        let name = object_path.rsplit('/').next().unwrap_or_default().to_owned();
        match parts.method {
            Method::POST => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let path = format!("{path}/{name}");
                if state.objects.contains_key(&path) {
                    return status_answer(409, "AlreadyExists", &name);
                }
                let mut object = body;
                state.version += 1;
                object["metadata"]["resourceVersion"] = json!(state.version.to_string());
                state.objects.insert(path, object.clone());
                json_answer(201, &object)
            }
            Method::PATCH => {
                if state.conflicts > 0 {
                    state.conflicts -= 1;
                    // Somebody else wrote: the object has moved on.
                    state.version += 1;
                    let version = json!(state.version.to_string());
                    if let Some(object) = state.objects.get_mut(&object_path) {
                        object["metadata"]["resourceVersion"] = version;
                        object["status"]["wantedGeneration"] = json!(9);
                    }
                    return status_answer(409, "Conflict", &name);
                }
                state.version += 1;
                let version = json!(state.version.to_string());
                let Some(object) = state.objects.get_mut(&object_path) else {
                    return status_answer(404, "NotFound", &name);
                };
                if body["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
                    return status_answer(409, "Conflict", &name);
                }
                let part = if status_only { "status" } else { "spec" };
                merge(&mut object[part], &body[part]);
                object["metadata"]["resourceVersion"] = version;
                json_answer(200, object)
            }
            Method::DELETE => match state.objects.remove(&object_path) {
                Some(object) => json_answer(200, &object),
                None => status_answer(404, "NotFound", &name),
            },
            _ => match state.objects.get(&object_path) {
                Some(object) => json_answer(200, object),
                None if is_collection(&path) => {
                    let items: Vec<&Value> =
                        state.objects.iter().filter(|(at, _)| collection_of(at) == path).map(|(_, o)| o).collect();
                    json_answer(
                        200,
                        &json!({"kind": "List", "apiVersion": "lanekeeper.dev/v1alpha1",
                            "metadata": {"resourceVersion": state.version.to_string()}, "items": items}),
                    )
                }
                None => status_answer(404, "NotFound", &name),
            },
        }
    }

    fn watch(&self, path: &str) -> Response<Body> {
        let path = path.to_owned();
        let events = futures::stream::unfold(self.events.subscribe(), |mut events| async move {
            let event = events.recv().await.ok()?;
            Some((event, events))
        });
        let frames = events.filter_map(move |(at, event)| {
            let line = (at == path).then(|| Bytes::from(format!("{event}\n")));
            async move { line.map(Ok::<_, Infallible>) }
        });
        Response::new(Body::from_stream(frames))
    }
}

/// The collection that a watch of all namespaces, or of the object's own, has as its path: of namespaced kinds that
/// are watched everywhere it is the path without the namespace.
fn collection_of(path: &str) -> String {
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    if parent.ends_with("/lanes") { format!("{GROUP}/lanes") } else { parent.to_owned() }
}

fn is_collection(path: &str) -> bool {
    ["/lanes", "/embedders", "/federationrecords"].iter().any(|end| path.ends_with(end))
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name], value);
        }
    }
}

fn json_answer(status: u16, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(serde_json::to_vec(value).unwrap()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

fn status_answer(code: u16, reason: &str, name: &str) -> Response<Body> {
    json_answer(
        code,
        &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
            "message": "SECRET-MESSAGE", "details": {"name": name, "kind": "federationrecords"}}),
    )
}
