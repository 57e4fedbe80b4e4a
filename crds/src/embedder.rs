//! Embedder: what turns text into vectors, shared by every lane that names it. Cluster-scoped.
//!
//! All that decides what a vector means is declared here and immutable: a new model is a new Embedder,
//! so that vectors of two models never lie in one collection unnoticed.

#![expect(unreachable_pub, reason = "kube's derive copies each struct into a function, public as it was")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::DNS_SUBDOMAIN;
use crate::conditions::Condition;
use crate::lane::SIZE;
use crate::pod::{Labels, Toleration};

const HEX_32: &str = "^[0-9a-f]{64}$";
/// Scheme, host and path; no blanks, and no `@`, so that no password stands in a spec.
const URL: &str = r"^https?://[^\s/@?#]+(/[^\s@?#]*)?$";

/// What an embedder is declared to be.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "lanekeeper.dev",
    version = "v1alpha1",
    kind = "Embedder",
    plural = "embedders",
    doc = "What turns text into vectors, shared by the lanes that name it.",
    status = "EmbedderStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 40")
        .message("an embedder's name has at most 40 characters"),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("an embedder's name is lower-case letters, digits and '-', without dots, and does not start or end with '-'"),
    printcolumn(name = "Model", type_ = "string", json_path = ".spec.model"),
    printcolumn(name = "Runtime", type_ = "string", json_path = ".spec.runtime"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Lanes", type_ = "integer", json_path = ".status.consumers"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(validation = Rule::new("self.model == oldSelf.model")
    .message("model is immutable: a new model is a new Embedder").field_path(".model"))]
#[x_kube(validation = Rule::new("has(self.revision) == has(oldSelf.revision) && (!has(self.revision) || self.revision == oldSelf.revision)")
    .message("revision is immutable").field_path(".revision"))]
#[x_kube(validation = Rule::new("has(self.weightsSha256) == has(oldSelf.weightsSha256) && (!has(self.weightsSha256) || self.weightsSha256 == oldSelf.weightsSha256)")
    .message("weightsSha256 is immutable").field_path(".weightsSha256"))]
#[x_kube(validation = Rule::new("has(self.dimension) == has(oldSelf.dimension) && (!has(self.dimension) || self.dimension == oldSelf.dimension)")
    .message("dimension is immutable").field_path(".dimension"))]
#[x_kube(validation = Rule::new("has(self.dtype) == has(oldSelf.dtype) && (!has(self.dtype) || self.dtype == oldSelf.dtype)")
    .message("dtype is immutable").field_path(".dtype"))]
#[x_kube(validation = Rule::new("self.queryPrefix == oldSelf.queryPrefix")
    .message("queryPrefix is immutable").field_path(".queryPrefix"))]
#[x_kube(validation = Rule::new("self.documentPrefix == oldSelf.documentPrefix")
    .message("documentPrefix is immutable").field_path(".documentPrefix"))]
#[x_kube(validation = Rule::new("has(self.pooling) == has(oldSelf.pooling) && (!has(self.pooling) || self.pooling == oldSelf.pooling)")
    .message("pooling is immutable").field_path(".pooling"))]
#[x_kube(validation = Rule::new("has(self.maxTokens) == has(oldSelf.maxTokens) && (!has(self.maxTokens) || self.maxTokens == oldSelf.maxTokens)")
    .message("maxTokens is immutable").field_path(".maxTokens"))]
#[x_kube(validation = Rule::new("has(self.normalise) == has(oldSelf.normalise) && (!has(self.normalise) || self.normalise == oldSelf.normalise)")
    .message("normalise is immutable").field_path(".normalise"))]
// A built-in model's fingerprint is filled from a table, another runtime's is not: moving between the
// two would change the fingerprint although no field of it changed.
#[x_kube(validation = Rule::new("(self.runtime == 'builtin') == (oldSelf.runtime == 'builtin')")
    .message("runtime cannot change from or to builtin").field_path(".runtime"))]
#[x_kube(validation = Rule::new("self.runtime == 'builtin' || has(self.dimension)")
    .message("dimension is required unless the runtime is builtin").field_path(".dimension"))]
#[x_kube(validation = Rule::new("(self.runtime == 'external') == has(self.external)")
    .message("external is required for runtime external, and only there").field_path(".external"))]
// An external server gives finished vectors: it pools, whatever the spec would like.
#[x_kube(validation = Rule::new("self.runtime != 'external' || !has(self.pooling) || ((!has(self.pooling.query) || self.pooling.query == 'server') && (!has(self.pooling.document) || self.pooling.document == 'server'))")
    .message("an external server pools by itself: pooling can only be server").field_path(".pooling"))]
#[x_kube(validation = Rule::new("self.runtime != 'external' || (!has(self.replicas) && !has(self.gpu) && !has(self.cache))")
    .message("replicas, gpu and cache are for embedders that run here, not for an external one"))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EmbedderSpec {
    /// The model. For runtime builtin one of the built-in ones. Immutable.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9][-A-Za-z0-9_./:]*$"))]
    pub model: String,
    /// Revision of the model. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub revision: Option<String>,
    /// SHA-256 of the weights, hex. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = HEX_32))]
    pub weights_sha256: Option<String>,
    /// Length of a vector. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_536))]
    pub dimension: Option<u32>,
    /// Number type of the computation, such as f32. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = "^[a-z0-9][-a-z0-9_]*$"))]
    pub dtype: Option<String>,
    /// Put before a question. Immutable.
    #[serde(default)]
    #[schemars(length(max = 512))]
    pub query_prefix: String,
    /// Put before a document. Immutable.
    #[serde(default)]
    #[schemars(length(max = 512))]
    pub document_prefix: String,
    /// How token states become one vector. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooling: Option<Pooling>,
    /// Most tokens read of one text. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_tokens: Option<u32>,
    /// Whether vectors have length 1. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalise: Option<bool>,
    /// What runs the model.
    #[serde(default)]
    pub runtime: Runtime,
    /// Where an external server is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// How many pods. Left out: one at first, then whatever scales it decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 64))]
    pub replicas: Option<u32>,
    /// Left out: it runs on the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
    /// A volume for the weights. Left out: fetched again by each new pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
}

/// What runs the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// Our own.
    #[default]
    Builtin,
    /// text-embeddings-inference.
    Tei,
    /// llama.cpp.
    Llamacpp,
    /// A server that somebody else runs, with the OpenAI-compatible API.
    External,
}

/// How token states become one vector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pooling {
    /// Of a question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<SpecQueryPooling>,
    /// Of a document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<SpecDocumentPooling>,
}

/// How a question becomes one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpecQueryPooling {
    /// Weighted by the idf of the lane searched.
    IdfWeighted,
    /// Whatever the server does.
    Server,
}

/// How a document becomes one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpecDocumentPooling {
    /// Mean over the chunk's own tokens, with the turns before as context.
    LateChunkMean,
    /// Whatever the server does.
    Server,
}

/// A server that somebody else runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct External {
    /// Base URL of the OpenAI-compatible API; `/embeddings` is put behind it.
    #[schemars(length(max = 2048), regex(pattern = URL))]
    pub url: String,
    /// Where the key is. Never made, changed or deleted by us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_secret: Option<SecretKey>,
}

/// One key of a Secret in the system namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretKey {
    /// The Secret.
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub name: String,
    /// The key in it.
    #[schemars(length(max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// GPUs of one pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Gpu {
    /// The extended resource.
    #[serde(default = "default_gpu_resource")]
    #[schemars(
        length(max = 317),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub resource_name: String,
    /// How many.
    #[serde(default = "default_gpu_count")]
    #[schemars(range(min = 1, max = 64))]
    pub count: u32,
    /// Labels a node must have.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: Labels,
    /// Taints the pod may live with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub tolerations: Vec<Toleration>,
    /// Such as `nvidia`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub runtime_class_name: Option<String>,
}

fn default_gpu_resource() -> String {
    "nvidia.com/gpu".to_owned()
}

const fn default_gpu_count() -> u32 {
    1
}

/// A volume for the weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cache {
    /// Its size.
    #[serde(default = "default_cache_size")]
    #[schemars(length(max = 20), regex(pattern = SIZE))]
    pub size: String,
    /// Default: the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub storage_class_name: Option<String>,
}

fn default_cache_size() -> String {
    "2Gi".to_owned()
}

/// What is known of an embedder. Tolerant of unknown fields, like every status.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmbedderStatus {
    /// The spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Idle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Where it is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Cosine under which 99 of 100 pairs of unrelated texts lie, as the server measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<f64>,
    /// Vectors in a second, measured by the test embedding when it became ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vectors_per_second: Option<i64>,
    /// How many lanes use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumers: Option<i64>,
    /// The first ten of them, `namespace/name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub first_consumers: Vec<String>,
}
