//! Types of status conditions, and the reasons that other documents name. Whoever computes a status
//! takes the words from here, so that a reader can rely on them.

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// The lane takes saves and answers recalls.
pub const READY: &str = "Ready";
/// The federation record names this lane as the one writer, and its store as the holder.
pub const FENCE_HELD: &str = "FenceHeld";
/// The volume is there, bound, and this lane's.
pub const VOLUME_READY: &str = "VolumeReady";
/// There is a place for the lane's vectors.
pub const COLLECTION_READY: &str = "CollectionReady";
/// The lane's store runs and is ready.
pub const STORE_READY: &str = "StoreReady";
/// The lane's embedder answers and reports the fingerprint that was declared.
pub const EMBEDDER_READY: &str = "EmbedderReady";
/// Every entry of `reads` resolves: the target exists, is a corpus lane and lists this lane.
pub const READS_RESOLVED: &str = "ReadsResolved";
/// The vector store itself refuses a writer with a wrong token or epoch.
pub const FENCE_ENFORCED: &str = "FenceEnforced";
/// The volume is bound to another lane or another owner.
pub const VOLUME_CONFLICT: &str = "VolumeConflict";
/// No lane uses the Embedder.
pub const IDLE: &str = "Idle";

/// Reason of `EmbedderReady=False`: the server reports another model than the spec declares.
pub const REASON_MODEL_MISMATCH: &str = "ModelMismatch";
/// Reason of `FenceEnforced=False`: the vector store does not check tokens.
pub const REASON_QDRANT_AUTH_OFF: &str = "QdrantAuthOff";
