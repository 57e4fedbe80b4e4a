//! An API server in memory: objects by path, merge and apply patches, preconditions, finalizers, and the garbage
//! collector of owned objects. Every write that changed something is noted, in order.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::{Body, ClientBuilder};
use kube::runtime::reflector::{self, Lookup, Store};
use kube::runtime::watcher::Event;
use lanekeeper_operator::context::Caches;
use lanekeeper_operator::gate::Gate;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    version: u64,
    /// `METHOD path`, of writes that changed something.
    writes: Vec<String>,
    /// Writes that were sent, whatever came of them.
    sent: usize,
    /// Paths whose writes are refused, and with what.
    refusals: Vec<(String, u16, String)>,
}

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Server(Arc<Mutex<State>>);

type Answer = (StatusCode, Value);

impl Server {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// A client behind the gate.
    pub(crate) fn client(&self, gate: &Gate) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let query = parts.uri.query().unwrap_or_default().to_owned();
                let kind = parts.headers.get("content-type").map_or("", |value| value.to_str().unwrap()).to_owned();
                let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let (status, answer) = server.answer(&parts.method, parts.uri.path(), &query, &kind, body);
                let answer = Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        ClientBuilder::new(service, "default").with_layer(gate).build()
    }

    fn answer(&self, method: &Method, path: &str, query: &str, kind: &str, body: Value) -> Answer {
        let mut state = self.state();
        let target = path.strip_suffix("/status").unwrap_or(path).to_owned();
        if method != Method::GET {
            state.sent += 1;
            let refusal = state.refusals.iter().find(|(refused, ..)| target.contains(refused.as_str()));
            if let Some((_, code, message)) = refusal {
                return failure(*code, "Forbidden", message);
            }
        }
        let before = state.objects.get(&target).cloned();
        let answer = match method.as_str() {
            "GET" => match before {
                Some(found) => return (StatusCode::OK, found),
                None if is_list(&target) => return (StatusCode::OK, state.list(&target, query)),
                None => return failure(404, "NotFound", &target),
            },
            "POST" => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                let path = format!("{target}/{name}");
                if state.objects.contains_key(&path) {
                    return failure(409, "AlreadyExists", &path);
                }
                state.put(&path, body)
            }
            "PATCH" => match (kind, before) {
                ("application/apply-patch+yaml", before) => {
                    let mut merged = before.clone().unwrap_or_else(|| json!({}));
                    merge(&mut merged, &body, false);
                    if before.as_ref() == Some(&merged) {
                        return (StatusCode::OK, merged);
                    }
                    state.put(&target, merged)
                }
                (_, None) => return failure(404, "NotFound", &target),
                (_, Some(before)) => {
                    for field in ["resourceVersion", "uid"] {
                        let wanted = &body["metadata"][field];
                        if !wanted.is_null() && *wanted != before["metadata"][field] {
                            return failure(409, "Conflict", field);
                        }
                    }
                    let mut merged = before.clone();
                    merge(&mut merged, &body, true);
                    if merged == before {
                        return (StatusCode::OK, merged);
                    }
                    state.put(&target, merged)
                }
            },
            "DELETE" => {
                let Some(before) = before else { return failure(404, "NotFound", &target) };
                for field in ["resourceVersion", "uid"] {
                    let wanted = &body["preconditions"][field];
                    if !wanted.is_null() && *wanted != before["metadata"][field] {
                        return failure(409, "Conflict", field);
                    }
                }
                state.delete(&target);
                (StatusCode::OK, before)
            }
            other => panic!("{other} {path}"),
        };
        state.writes.push(format!("{method} {path}"));
        state.collect();
        answer
    }

    /// Puts an object there, as somebody else would.
    pub(crate) fn put(&self, path: &str, object: Value) -> Value {
        self.state().put(path, object).1
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.state().objects.get(path).cloned()
    }

    /// Changes an object by hand.
    pub(crate) fn change(&self, path: &str, patch: Value) {
        let mut state = self.state();
        let mut object = state.objects.get(path).unwrap_or_else(|| panic!("no {path}")).clone();
        merge(&mut object, &patch, true);
        state.put(path, object);
    }

    pub(crate) fn delete(&self, path: &str) {
        let mut state = self.state();
        state.delete(path);
        state.collect();
    }

    pub(crate) fn refuse(&self, path: &str, code: u16, message: &str) {
        self.state().refusals.push((path.to_owned(), code, message.to_owned()));
    }

    /// The writes since the last call, without Events.
    pub(crate) fn writes(&self) -> Vec<String> {
        let all = std::mem::take(&mut self.state().writes);
        all.into_iter().filter(|write| !write.contains("events.k8s.io")).collect()
    }

    pub(crate) fn sent(&self) -> usize {
        self.state().sent
    }

    /// Reasons of the Events there are.
    pub(crate) fn events(&self) -> Vec<String> {
        let state = self.state();
        let events = state.objects.iter().filter(|(path, _)| path.contains("/events.k8s.io/"));
        events.map(|(_, event)| event["reason"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn paths(&self, part: &str) -> Vec<String> {
        self.state().objects.keys().filter(|path| path.contains(part)).cloned().collect()
    }

    fn all<K: DeserializeOwned>(&self, plural: &str) -> Vec<K> {
        let state = self.state();
        let found = state.objects.iter().filter(|(path, _)| plural_of(path) == Some(plural));
        found.map(|(_, object)| serde_json::from_value(object.clone()).unwrap()).collect()
    }

    /// Caches as the watches would have filled them by now.
    pub(crate) fn caches(&self) -> Caches {
        Caches {
            lanes: store(self.all("lanes")),
            embedders: store(self.all("embedders")),
            records: store(self.all("federationrecords")),
            stateful_sets: store(self.all("statefulsets")),
            deployments: store(self.all("deployments")),
            services: store(self.all("services")),
            service_accounts: store(self.all("serviceaccounts")),
            volumes: store(self.all("persistentvolumeclaims")),
            roles: store(self.all("roles")),
            role_bindings: store(self.all("rolebindings")),
            policies: Some(store(self.all("networkpolicies"))),
            pods: store(self.all("pods")),
            secrets: store(self.all("secrets")),
            system_secrets: store(Vec::new()),
            namespaces: store(self.all("namespaces")),
        }
    }
}

fn store<K: Lookup<DynamicType = ()> + Clone + 'static>(objects: Vec<K>) -> Store<K> {
    let (store, mut writer) = reflector::store();
    writer.apply_watcher_event(&Event::Init);
    for object in objects {
        writer.apply_watcher_event(&Event::InitApply(object));
    }
    writer.apply_watcher_event(&Event::InitDone);
    store
}

impl State {
    fn put(&mut self, path: &str, mut object: Value) -> Answer {
        self.version += 1;
        let parts: Vec<&str> = path.split('/').collect();
        let old = self.objects.get(path);
        let meta = object["metadata"].as_object_mut().unwrap();
        if parts.len() > 4
            && let Some(at) = parts.iter().position(|part| *part == "namespaces")
            && at + 2 < parts.len()
        {
            meta.entry("namespace").or_insert_with(|| json!(parts[at + 1]));
        }
        meta.insert("resourceVersion".into(), json!(self.version.to_string()));
        meta.entry("uid").or_insert_with(|| json!(format!("0193a1b2-0000-7000-8000-{:012}", self.version)));
        meta.entry("creationTimestamp").or_insert_with(|| json!("2026-12-01T00:00:00Z"));
        let changed = old.is_none_or(|old| old["spec"] != object["spec"]);
        let generation = old.map_or(0, |old| old["metadata"]["generation"].as_i64().unwrap_or(0));
        object["metadata"]["generation"] = json!(generation + i64::from(changed));
        let ends = !object["metadata"]["deletionTimestamp"].is_null();
        let held = object["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        if ends && !held {
            self.objects.remove(path);
        } else {
            self.objects.insert(path.to_owned(), object.clone());
        }
        (StatusCode::OK, object)
    }

    fn delete(&mut self, path: &str) {
        let Some(mut object) = self.objects.get(path).cloned() else { return };
        if object["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty()) {
            object["metadata"]["deletionTimestamp"] = json!("2026-12-01T00:00:00Z");
            self.put(path, object);
        } else {
            self.objects.remove(path);
        }
    }

    /// The garbage collector: what is owned goes with its owner.
    fn collect(&mut self) {
        let uids: Vec<Value> = self.objects.values().map(|object| object["metadata"]["uid"].clone()).collect();
        self.objects.retain(|_, object| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_none_or(|owners| owners.iter().all(|owner| uids.contains(&owner["uid"])))
        });
    }

    fn list(&self, path: &str, query: &str) -> Value {
        let prefix = format!("{path}/");
        let decoded = query.replace("%3D", "=").replace("%2C", ",");
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter(|(found, _)| found.starts_with(&prefix))
            .map(|(_, object)| object)
            // The one selector that is used: Events about an object.
            .filter(|object| {
                let about = object["involvedObject"]["name"].as_str();
                about.is_none_or(|name| decoded.contains(&format!("involvedObject.name={name},")))
            })
            .collect();
        json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})
    }
}

/// The kind of an object's path.
fn plural_of(path: &str) -> Option<&str> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let rest = if parts[0] == "api" { &parts[2..] } else { &parts[3..] };
    match rest {
        ["namespaces", _] => Some("namespaces"),
        ["namespaces", _, plural, _] | [plural, _] => Some(plural),
        _ => None,
    }
}

fn is_list(path: &str) -> bool {
    plural_of(path).is_none()
}

fn failure(code: u16, reason: &str, message: &str) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": reason, "message": message});
    (StatusCode::from_u16(code).unwrap(), status)
}

fn merge(target: &mut Value, patch: &Value, nulls_remove: bool) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (name, value) in patch {
                if value.is_null() && nulls_remove {
                    target.remove(name);
                } else if value.is_object() {
                    merge(target.entry(name.clone()).or_insert_with(|| json!({})), value, nulls_remove);
                } else {
                    target.insert(name.clone(), value.clone());
                }
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}
