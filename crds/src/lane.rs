//! Lane: one tenant's memory. The spec, its rules, its status.
//!
//! The shortest useful one is `spec: {kind: personal, owner: bob}`; every other field has a default.
//! `kind`, `owner` and `collection` never change, because they decide whose memory it is.

#![expect(unreachable_pub, reason = "kube's derive copies each struct into a function, public as it was")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::DNS_LABEL;
use crate::DNS_SUBDOMAIN;
use crate::conditions::Condition;
use crate::models::BuiltinModel;
use crate::pod::{Labels, Resources, SecretName, ServiceAccountName, Toleration};

/// Sizes that are compared: at most 12 digits and 3 decimals, so that no comparison can overflow.
pub(crate) const SIZE: &str = r"^[1-9][0-9]{0,11}(\.[0-9]{1,3})?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$";
/// `30m`, `12h`, `30d`, `8w`; at most 99,999 of a unit, so milliseconds always fit.
const HALF_LIFE: &str = "^[1-9][0-9]{0,4}[mhdw]$";
/// A label, or `*`.
const LABEL_OR_ALL: &str = r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$";

/// What a lane is declared to be.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "lanekeeper.dev",
    version = "v1alpha1",
    kind = "Lane",
    plural = "lanes",
    shortname = "ln",
    namespaced,
    doc = "One tenant's memory: its own log, its own vectors and its own keys.",
    status = "LaneStatus",
    derive = "PartialEq",
    // 40 and not 63: with what is put before and after it, the name of the StatefulSet must stay under
    // 52 characters, or it never gets a pod. Names are capped, never cut.
    validation = Rule::new("self.metadata.name.size() <= 40")
        .message("a lane's name has at most 40 characters"),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("a lane's name is lower-case letters, digits and '-', without dots, and does not start or end with '-'"),
    printcolumn(name = "Kind", type_ = "string", json_path = ".spec.kind"),
    printcolumn(name = "Owner", type_ = "string", json_path = ".spec.owner"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Events", type_ = "integer", json_path = ".status.events"),
    printcolumn(name = "Points", type_ = "integer", json_path = ".status.points"),
    printcolumn(name = "Embedder", type_ = "string", json_path = ".status.embedder"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
// `self.x == oldSelf.x` alone is no rule on an optional field: it is skipped when the field is taken
// out, and when it is put back there is no old value. Hence `has` on both sides, on the parent.
#[x_kube(validation = Rule::new("self.kind == oldSelf.kind")
    .message("kind is immutable").field_path(".kind"))]
#[x_kube(validation = Rule::new(
    "has(self.owner) == has(oldSelf.owner) && (!has(self.owner) || self.owner == oldSelf.owner)")
    .message("owner is immutable").field_path(".owner"))]
#[x_kube(validation = Rule::new(
    "has(self.collection) == has(oldSelf.collection) && (!has(self.collection) || self.collection == oldSelf.collection)")
    .message("collection is immutable, and cannot be added or removed later").field_path(".collection"))]
#[x_kube(validation = Rule::new("(self.kind == 'personal') == has(self.owner)")
    .message("a personal lane needs an owner, a corpus lane has none").field_path(".owner"))]
#[x_kube(validation = Rule::new("self.kind == 'personal' || !has(self.reads) || self.reads.size() == 0")
    .message("a corpus lane reads no other lane: reads must be empty").field_path(".reads"))]
#[x_kube(validation = Rule::new("self.kind == 'corpus' || !has(self.readers) || self.readers.size() == 0")
    .message("nobody reads a personal lane: readers must be empty").field_path(".readers"))]
#[x_kube(validation = Rule::new(
    "self.kind == 'corpus' || !has(self.access) || self.access.all(entry, !has(entry.mayPublish) || !entry.mayPublish)")
    .message("mayPublish is for corpus lanes only").field_path(".access"))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LaneSpec {
    /// Whose memory: one person's, or shared knowledge. Immutable.
    pub kind: LaneKind,
    /// The person of a personal lane, who is its admin without being listed. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = DNS_LABEL))]
    pub owner: Option<String>,
    /// The vector collection, without the namespace. Default: the lane's name. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = DNS_LABEL))]
    pub collection: Option<String>,
    /// What makes this lane's vectors: a built-in model, or an Embedder by name.
    #[serde(default)]
    pub embedder: LaneEmbedder,
    /// The volume that holds the log.
    #[serde(default)]
    pub storage: LaneStorage,
    /// Corpus lanes that this personal lane also recalls from, if they list it in their `readers`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["namespace", "name"])
    )]
    pub reads: Vec<LaneReference>,
    /// Personal lanes that may recall from this corpus lane.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 128),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["namespace", "name"])
    )]
    pub readers: Vec<ReaderReference>,
    /// Who else may use the lane, and as what. Taking an entry out ends that principal's tokens at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub access: Vec<AccessEntry>,
    /// What gets vectors.
    #[serde(default)]
    pub projection: Projection,
    /// How recall ranks.
    #[serde(default)]
    pub recall: Recall,
    /// What happens to the memory when the Lane is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// A suspended lane answers nothing and keeps everything.
    #[serde(default)]
    pub suspend: bool,
    /// Compute resources of the store's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Taints the store's pod may live with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub tolerations: Vec<Toleration>,
    /// Labels a node must have.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: Labels,
    /// Priority of the store's pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub priority_class_name: Option<String>,
    /// Secrets for pulling the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub image_pull_secrets: Vec<SecretName>,
    /// More labels for the store's pod.
    // NetworkPolicies and Services select pods by our own labels: one set by hand could let another
    // pod speak for a lane.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = Rule::new(
        "self.all(key, !key.startsWith('lanekeeper.dev/') && !key.startsWith('app.kubernetes.io/'))")
        .message("labels under lanekeeper.dev/ and app.kubernetes.io/ are the operator's"))]
    pub pod_labels: Labels,
}

/// What a lane is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LaneKind {
    /// One person's memory.
    Personal,
    /// Shared knowledge.
    Corpus,
}

/// What makes a lane's vectors: exactly one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("has(self.model) != has(self.name)")
    .message("give exactly one of model (a built-in model) and name (an Embedder)"))]
pub struct LaneEmbedder {
    /// A built-in model; an Embedder for it is made and goes with its last lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<BuiltinModel>,
    /// The name of an Embedder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40), regex(pattern = DNS_LABEL))]
    pub name: Option<String>,
}

impl Default for LaneEmbedder {
    fn default() -> Self {
        Self { model: Some(BuiltinModel::AllMiniLmL6V2), name: None }
    }
}

/// The volume that holds the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
// A claim's class and access mode cannot be changed once it is bound: a change would be stored and
// never happen.
#[x_kube(validation = Rule::new(
    "has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)")
    .message("storageClassName is immutable").field_path(".storageClassName"))]
#[x_kube(validation = Rule::new("self.accessMode == oldSelf.accessMode")
    .message("accessMode is immutable").field_path(".accessMode"))]
pub struct LaneStorage {
    /// May grow, never shrink.
    #[serde(default = "default_size")]
    #[schemars(length(max = 20), regex(pattern = SIZE))]
    #[x_kube(validation = Rule::new("quantity(self).compareTo(quantity(oldSelf)) >= 0")
        .message("storage may grow but not shrink"))]
    pub size: String,
    /// Default: the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub storage_class_name: Option<String>,
    /// ReadWriteOncePod also keeps a second pod of the same node out.
    #[serde(default)]
    pub access_mode: AccessMode,
}

fn default_size() -> String {
    "2Gi".to_owned()
}

impl Default for LaneStorage {
    fn default() -> Self {
        Self { size: default_size(), storage_class_name: None, access_mode: AccessMode::default() }
    }
}

/// How many may mount the volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AccessMode {
    /// One node.
    #[default]
    ReadWriteOnce,
    /// One pod.
    ReadWriteOncePod,
}

/// Another lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LaneReference {
    /// Its namespace.
    #[schemars(length(max = 63), regex(pattern = DNS_LABEL))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 40), regex(pattern = DNS_LABEL))]
    pub name: String,
}

/// A lane, or every lane of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReaderReference {
    /// Its namespace.
    #[schemars(length(max = 63), regex(pattern = DNS_LABEL))]
    pub namespace: String,
    /// Its name, or `*` for every lane of the namespace.
    #[schemars(length(max = 40), regex(pattern = LABEL_OR_ALL))]
    pub name: String,
}

/// Who may use the lane, and as what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("has(self.user) != has(self.serviceAccount)")
    .message("give exactly one of user and serviceAccount"))]
pub struct AccessEntry {
    /// A person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = DNS_LABEL))]
    pub user: Option<String>,
    /// A workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountName>,
    /// What it may do; each role includes the ones before it.
    pub role: Role,
    /// On a corpus lane: may save here although it also has access to a personal lane. Without it such
    /// a save needs an approval, so that nothing private is published by accident.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_publish: bool,
}

/// What a principal may do with a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Recall, read curated memory, verify.
    Reader,
    /// And save.
    Writer,
    /// And write curated memory, forget.
    Curator,
    /// Everything.
    Admin,
}

/// What gets vectors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Projection {
    /// Turns of these roles. Others are found by text only, and coverage says so.
    #[serde(default = "default_roles")]
    #[schemars(length(min = 1, max = 4), extend("x-kubernetes-list-type" = "set"))]
    pub roles: Vec<TurnRole>,
}

fn default_roles() -> Vec<TurnRole> {
    vec![TurnRole::Assistant]
}

impl Default for Projection {
    fn default() -> Self {
        Self { roles: default_roles() }
    }
}

/// Who said a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TurnRole {
    /// The person.
    User,
    /// The agent.
    Assistant,
    /// A tool's output.
    Tool,
    /// Instructions.
    System,
}

/// How recall ranks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Recall {
    /// How the arms' lists become one.
    #[serde(default)]
    pub ranking: Ranking,
    /// Cosine under which a hit that only the vector arm found is dropped. Default: measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1.0, max = 1.0))]
    pub min_score: Option<f64>,
    /// Age at which the age term has halved, such as `12h` or `30d`. Default: age does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 6), regex(pattern = HALF_LIFE))]
    pub half_life: Option<String>,
    /// Stop words and stemmer; `none` for code.
    #[serde(default)]
    pub language: Language,
}

/// How the arms' lists become one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ranking {
    /// Sums of normalised scores.
    #[default]
    Fused,
    /// Reciprocal rank fusion.
    Rrf,
}

/// Stop words and stemmer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// English.
    #[default]
    English,
    /// German.
    German,
    /// French.
    French,
    /// Spanish.
    Spanish,
    /// Neither stop words nor stemmer.
    None,
}

/// What happens to the memory when the Lane is deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// It is kept; a lane of that name and owner may adopt it.
    #[default]
    Retain,
    /// It is erased, if the Lane carries `lanekeeper.dev/confirm-delete: <its uid>`.
    Delete,
}

/// What is known of a lane. No unknown-field refusal: a status written by a newer operator must not
/// make the Lane unreadable to an older one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LaneStatus {
    /// The spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, FenceHeld, FenceEnforced, VolumeReady, CollectionReady, EmbedderReady, StoreReady, ReadsResolved;
    /// VolumeConflict only where there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Events in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<i64>,
    /// Points in the vector collection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points: Option<i64>,
    /// The Embedder that is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedder: Option<String>,
    /// Its fingerprint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// `<namespace>.<collection>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
}
