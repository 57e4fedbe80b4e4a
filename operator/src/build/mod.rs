//! From what is declared and known to the objects that should be. Pure: no client, no clock, no chance.
//!
//! What must always hold: the same input gives the same object, byte for byte; names and labels come from
//! `lanekeeper_core::cluster`; a pod asks for no right that it does not use.

pub mod embedder;
pub mod network_policy;
pub mod record;
pub mod role;
pub mod secret;
pub mod service;
pub mod stateful_set;
#[cfg(test)]
pub(crate) mod tests;
pub mod volume;

use std::collections::BTreeMap;

use lanekeeper_core::cluster::{self, label};
use lanekeeper_core::fingerprint::{Fingerprint, FingerprintFields};
use lanekeeper_core::{LaneName, LaneUid, LogId};
use lanekeeper_crds::pod::{Labels, Toleration};
use lanekeeper_crds::{Lane, annotations};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::config::Config;
use crate::error::Error;

/// Who runs every program of ours.
pub const USER: i64 = 65532;

/// Labels as Kubernetes types hold them.
pub type LabelMap = BTreeMap<String, String>;

/// A lane whose place is known: what all of its objects are made from.
#[derive(Debug, Clone)]
pub struct LanePlan<'a> {
    /// As declared.
    pub lane: &'a Lane,
    /// `namespace/name`.
    pub name: LaneName,
    /// What the name is bound to.
    pub uid: LaneUid,
    /// What the operator was told.
    pub config: &'a Config,
    /// `<namespace>.<collection>`.
    pub collection: String,
    /// What makes its vectors.
    pub embedder: EmbedderTarget,
    /// The identity of its log.
    pub log_id: LogId,
    /// The UID of the lane whose log was adopted.
    pub adopted: Option<LaneUid>,
    /// The last published seq; 0 if there is none.
    pub head_seq: i64,
}

/// The embedder of a lane, as its store and its policies need it.
#[derive(Debug, Clone)]
pub struct EmbedderTarget {
    /// The Embedder's name.
    pub name: String,
    /// Where it is asked.
    pub url: String,
    /// Whether it is our own server, which gives token states.
    pub is_ours: bool,
    /// Whether it runs in the system namespace.
    pub is_in_cluster: bool,
    /// What its vectors mean.
    pub fields: FingerprintFields,
}

impl EmbedderTarget {
    /// The hash of the fields.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fields.fingerprint()
    }
}

impl LanePlan<'_> {
    /// Labels of every object of the lane.
    #[must_use]
    pub fn labels(&self) -> LabelMap {
        lane_labels(&self.name, self.uid)
    }

    /// The namespace of the lane.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.name.namespace()
    }

    /// What the objects in it are called.
    #[must_use]
    pub fn object(&self) -> String {
        cluster::lane_object(self.name.name())
    }

    /// Metadata of an object that goes with the Lane.
    #[must_use]
    pub fn owned_metadata(&self) -> Value {
        json!({
            "name": self.object(),
            "namespace": self.namespace(),
            "labels": self.labels(),
            "ownerReferences": [owner("Lane", self.name.name(), &self.uid.to_string())],
        })
    }
}

/// Labels of every object of a lane.
#[must_use]
pub fn lane_labels(name: &LaneName, uid: LaneUid) -> LabelMap {
    [
        (label::NAME, label::STORE.to_owned()),
        (label::MANAGED_BY, label::LANEKEEPER.to_owned()),
        (label::LANE, name.name().to_owned()),
        (label::LANE_UID, uid.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// A reference to the object that an object goes with.
#[must_use]
pub fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": lanekeeper_crds::API_VERSION, "kind": kind, "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// The typed object. An error is a fault of ours, and the snapshots would show it.
pub(crate) fn typed<K: DeserializeOwned>(value: Value) -> Result<K, Error> {
    let object = format!("{} {}", value["kind"].as_str().unwrap_or("object"), value["metadata"]["name"]);
    serde_json::from_value(value).map_err(|error| Error::Malformed { object, reason: error.to_string() })
}

pub(crate) fn label_values(labels: &Labels) -> LabelMap {
    labels.iter().map(|(key, value)| (key.clone(), value.0.clone())).collect()
}

pub(crate) fn tolerations(tolerations: &[Toleration]) -> Result<Value, Error> {
    serde_json::to_value(tolerations)
        .map_err(|error| Error::Malformed { object: "tolerations".to_owned(), reason: error.to_string() })
}

/// The pod security standard `restricted`.
pub(crate) fn pod_security() -> Value {
    json!({
        "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
    })
}

pub(crate) fn container_security() -> Value {
    json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
        "capabilities": {"drop": ["ALL"]},
    })
}

/// The lane's owner as volumes are stamped with it; empty on a corpus lane.
#[must_use]
pub fn owner_stamp(lane: &Lane) -> String {
    lane.spec.owner.clone().unwrap_or_default()
}

/// The UID that the Lane asks to adopt.
#[must_use]
pub fn asked_to_adopt(lane: &Lane) -> Option<LaneUid> {
    lane.metadata.annotations.as_ref()?.get(annotations::ADOPT)?.parse().ok()
}
