//! Server-side apply of what the operator makes, and only where something differs.
//!
//! What must always hold: a field that we do not send belongs to somebody else and stays; a field that we send is
//! ours and is taken back when changed by hand; an object of our name that is not ours is left alone; nothing is
//! sent where the object already is as it should be.
//!
//! "As it should be" has two halves. Every field of the desired object has its value in the stored one (defaults
//! that the API server added do not count), and the hash of the desired object stands in its annotation, so that a
//! field that is no longer desired is noticed too.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use lanekeeper_core::cluster::label;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::error::{Error, is_missing};
use crate::quantity;

/// Who we are to the API server.
pub const FIELD_MANAGER: &str = "lanekeeper-operator";
/// Annotation: the hash of the object as it was last applied.
pub const APPLIED: &str = "lanekeeper.dev/applied";

/// What became of it.
#[derive(Debug, Clone)]
pub struct Applied<K> {
    /// As stored.
    pub object: K,
    /// Whether a write was needed.
    pub written: bool,
}

/// Whose an object is: the label and its value that only ours carry.
#[derive(Debug, Clone, Copy)]
pub struct Ownership<'a> {
    /// The label.
    pub label: &'a str,
    /// Its value.
    pub value: &'a str,
}

impl Ownership<'_> {
    /// Whether `object` carries it.
    pub fn of(&self, object: &impl Resource) -> bool {
        let labels = object.meta().labels.as_ref();
        let has = |key: &str, value: &str| labels.and_then(|all| all.get(key)).is_some_and(|found| found == value);
        has(label::MANAGED_BY, label::LANEKEEPER) && has(self.label, self.value)
    }
}

/// Makes `desired` be. `known` is the object as the cache has it; without it the API server is asked, since a cache
/// of ours by label does not show what is not ours.
pub async fn apply<K>(client: &Client, desired: K, known: Option<&K>, owner: Ownership<'_>) -> Result<Applied<K>, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
{
    let namespace = desired.namespace().unwrap_or_default();
    let name = desired.name_any();
    let object = format!("{} {namespace}/{name}", K::kind(&()));
    let api = Api::<K>::namespaced(client.clone(), &namespace);
    let asked;
    let stored = match known {
        Some(known) => Some(known),
        None => {
            asked = match api.get(&name).await {
                Ok(found) => Some(found),
                Err(error) if is_missing(&error) => None,
                Err(error) => return Err(Error::api("get", object.as_str())(error)),
            };
            asked.as_ref()
        }
    };
    if let Some(stored) = stored {
        if stored.meta().deletion_timestamp.is_some() {
            return Err(Error::Waiting { what: format!("the end of {object}") });
        }
        if !owner.of(stored) {
            // An older lane of the same name: its objects go with it, then ours are made.
            let leftover = stored.labels().get(label::MANAGED_BY).is_some_and(|value| value == label::LANEKEEPER);
            return Err(if leftover && !stored.owner_references().is_empty() {
                Error::Waiting { what: format!("the end of an older {object}") }
            } else {
                Error::NotOurs { object }
            });
        }
    }
    let sent = stamped(&desired, &object)?;
    if let Some(stored) = stored
        && is_as_desired(&sent, &json(stored, &object)?)
    {
        return Ok(Applied { object: stored.clone(), written: false });
    }
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let stored = api.patch(&name, &params, &Patch::Apply(&sent)).await.map_err(Error::api("apply", object.as_str()))?;
    Ok(Applied { object: stored, written: true })
}

fn json(object: &impl Serialize, name: &str) -> Result<Value, Error> {
    serde_json::to_value(object)
        .map_err(|error| Error::Malformed { object: name.to_owned(), reason: error.to_string() })
}

/// The desired object with its hash.
fn stamped<K: Resource<DynamicType = ()> + Clone + Serialize>(desired: &K, name: &str) -> Result<Value, Error> {
    let mut desired = desired.clone();
    if let Some(annotations) = &mut desired.meta_mut().annotations {
        annotations.remove(APPLIED);
    }
    let hash = hex(&Sha256::digest(json(&desired, name)?.to_string().as_bytes())[..16]);
    desired.meta_mut().annotations.get_or_insert_with(BTreeMap::new).insert(APPLIED.to_owned(), hash);
    json(&desired, name)
}

/// Lower-case hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether every field of `desired` has its value in `stored`.
#[must_use]
pub fn is_as_desired(desired: &Value, stored: &Value) -> bool {
    match (desired, stored) {
        // Nothing and an empty thing are stored alike.
        (Value::Null, _) => true,
        (Value::Object(desired), _) if desired.is_empty() => true,
        (Value::Array(desired), Value::Null) => desired.is_empty(),
        (Value::Object(desired), Value::Object(stored)) => {
            desired.iter().all(|(name, value)| is_as_desired(value, stored.get(name).unwrap_or(&Value::Null)))
        }
        (Value::Array(desired), Value::Array(stored)) => {
            desired.len() == stored.len() && desired.iter().zip(stored).all(|(one, other)| is_as_desired(one, other))
        }
        // The API server writes 1024Mi as 1Gi.
        (Value::String(desired), Value::String(stored)) => {
            desired == stored || quantity::parse(desired).is_some_and(|value| quantity::parse(stored) == Some(value))
        }
        (Value::Bool(false), Value::Null) => true,
        (desired, stored) => desired == stored,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_server_added_is_no_difference_and_what_somebody_changed_is() {
        let desired =
            json!({"spec": {"replicas": 1, "containers": [{"name": "a", "args": ["x"]}], "memory": "1024Mi"}});
        let same = json!({"spec": {"replicas": 1, "memory": "1Gi", "clusterIP": "10.0.0.1",
            "containers": [{"name": "a", "args": ["x"], "terminationMessagePath": "/dev/log"}]}, "status": {}});
        assert!(is_as_desired(&desired, &same));
        for (path, value) in [
            ("/spec/replicas", json!(0)),
            ("/spec/memory", json!("2Gi")),
            ("/spec/containers/0/args", json!(["x", "y"])),
            ("/spec/containers/0/args/0", json!("z")),
            ("/spec/containers", json!([])),
        ] {
            let mut changed = same.clone();
            *changed.pointer_mut(path).unwrap() = value;
            assert!(!is_as_desired(&desired, &changed), "{path}");
        }
        assert!(is_as_desired(&json!({"a": {}, "b": [], "c": false}), &json!({})));
        assert!(!is_as_desired(&json!({"c": true}), &json!({})));
    }
}
