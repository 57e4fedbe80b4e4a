//! FederationRecord: who may write a collection. One object a collection, all in the operator's
//! namespace, named like the collection: the API server's unique names are the lock between two
//! lanes that claim the same one.
//!
//! The operator alone writes `spec`, the lane's own store alone writes `status`. Epoch and generation
//! never fall, so a refused writer cannot become valid again by an older copy of the spec.

#![expect(unreachable_pub, reason = "kube's derive copies each struct into a function, public as it was")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::DNS_LABEL;

/// `<namespace>.<collection>`.
const FULL_COLLECTION: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\.[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const HEX_32: &str = "^[0-9a-f]{64}$";
const UUID: &str = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";

/// The declared writer of one collection.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "lanekeeper.dev",
    version = "v1alpha1",
    kind = "FederationRecord",
    plural = "federationrecords",
    namespaced,
    doc = "Who may write a collection. Made by the operator; its name is the collection's name.",
    status = "FederationRecordStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name == self.spec.collection")
        .message("the record's name must be its collection: the name is the lock"),
    printcolumn(name = "Writer", type_ = "string", json_path = ".spec.writer.name"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Epoch", type_ = "integer", json_path = ".spec.epoch"),
    printcolumn(name = "Generation", type_ = "integer", json_path = ".spec.generation"),
    printcolumn(name = "Head", type_ = "integer", json_path = ".status.head.seq"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(validation = Rule::new("self.collection == oldSelf.collection")
    .message("collection is immutable").field_path(".collection"))]
#[x_kube(validation = Rule::new("self.epoch >= oldSelf.epoch")
    .message("epoch never falls").field_path(".epoch"))]
#[x_kube(validation = Rule::new("self.generation >= oldSelf.generation")
    .message("generation never falls").field_path(".generation"))]
// Under an unchanged epoch the old writer's fence would still pass.
#[x_kube(validation = Rule::new(
    "self.epoch > oldSelf.epoch || oldSelf.mode == 'sealed' || (self.writer.uid == oldSelf.writer.uid && self.logId == oldSelf.logId)")
    .message("another writer or another log needs a higher epoch, or a sealed record").field_path(".epoch"))]
#[x_kube(validation = Rule::new("self.epoch > oldSelf.epoch || self.mode == oldSelf.mode || self.mode != 'sealed'")
    .message("sealing raises the epoch").field_path(".epoch"))]
// Vectors of two fingerprints never share a physical collection.
#[x_kube(validation = Rule::new("self.generation > oldSelf.generation || self.fingerprint == oldSelf.fingerprint")
    .message("another fingerprint needs a higher generation").field_path(".generation"))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FederationRecordSpec {
    /// `<namespace>.<collection>`, the same as the object's name.
    #[schemars(length(max = 127), regex(pattern = FULL_COLLECTION))]
    pub collection: String,
    /// The one lane that may write.
    pub writer: Writer,
    /// Whether it may write now.
    pub mode: WriterMode,
    /// Identity of the writer's log, 32 bytes in hex, made before its store first starts.
    #[schemars(length(max = 64), regex(pattern = HEX_32))]
    pub log_id: String,
    /// The embedding of the collection, in hex.
    #[schemars(length(max = 64), regex(pattern = HEX_32))]
    pub fingerprint: String,
    /// Raised by every change of writer and every accepted rollback.
    #[schemars(range(min = 0))]
    pub epoch: i64,
    /// Which physical collection; raised by hand-over, rebuild and erase.
    #[schemars(range(min = 0))]
    pub generation: i64,
    /// UIDs of the lanes that both sides let read this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), extend("x-kubernetes-list-type" = "set"))]
    pub readers: Vec<LaneUidText>,
}

/// A Lane's UID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct LaneUidText(#[schemars(length(max = 36), regex(pattern = UUID))] pub String);

/// The one declared writer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Writer {
    /// The lane's namespace.
    #[schemars(length(max = 63), regex(pattern = DNS_LABEL))]
    pub namespace: String,
    /// The lane's name.
    #[schemars(length(max = 40), regex(pattern = DNS_LABEL))]
    pub name: String,
    /// What the name was bound to.
    pub uid: LaneUidText,
}

/// Whether the writer may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WriterMode {
    /// It may.
    ReadWrite,
    /// Nobody may: a hand-over is under way, or a person sealed it.
    Sealed,
}

/// What the writer's store reports. No unknown-field refusal: a status of a newer store must not
/// make the record unreadable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FederationRecordStatus {
    /// The process that holds the log open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// The head of the log, published at most once a minute of activity and at shutdown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<PublishedHead>,
    /// The generation the store asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted_generation: Option<i64>,
    /// The generation the store has filled and flushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filled_generation: Option<i64>,
}

/// The process that holds the log open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// UID of the pod.
    #[schemars(length(max = 128))]
    pub id: String,
    /// When it took the log, milliseconds since the epoch.
    pub since_ms: i64,
    /// Whether it let go in order.
    pub released: bool,
}

/// A head the store had reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PublishedHead {
    /// Which log, hex.
    #[schemars(length(max = 64), regex(pattern = HEX_32))]
    pub log_id: String,
    /// Seq of its last event.
    #[schemars(range(min = 0))]
    pub seq: i64,
    /// Hash of that event, hex.
    #[schemars(length(max = 64), regex(pattern = HEX_32))]
    pub hash: String,
}
