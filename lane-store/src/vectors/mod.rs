//! Vectors of one lane: a question to an engine, answered in process or over gRPC.
//!
//! (Written by the lead as the contract between the store and the engines; the engines stand in files of
//! their own beside it.)
//!
//! What must always hold: an upsert is readable when it returns and durable after [`VectorStore::flush`];
//! nothing here decides whose vectors are searched: an engine holds one lane's collection and no other.

use std::collections::HashMap;

use async_trait::async_trait;
use lanekeeper_core::{EventId, Generation};
use uuid::Uuid;

/// What an engine stores with a vector. Holds no text; speakers are keyed hashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// The event that owns the content.
    pub event_id: EventId,
    /// Which chunk of it.
    pub n: u32,
    /// `t0`.
    pub projection_task: String,
    /// See `claims`.
    pub task_version: i64,
    /// See `claims`.
    pub prompt_version: i64,
    /// Model name.
    pub embed_model: String,
    /// Length of the vector.
    pub dim: u32,
    /// Sessions of every holder.
    pub sessions: Vec<String>,
    /// Roles of every holder.
    pub roles: Vec<String>,
    /// Hashed speakers of every holder.
    pub speakers: Vec<String>,
    /// Times of every holder, milliseconds since the epoch.
    pub at_ms: Vec<i64>,
}

/// A vector with its id.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// UUIDv5 of `t0:<event_id>:<n>`.
    pub id: Uuid,
    /// Finite, of the collection's dimension.
    pub vector: Vec<f32>,
    /// See [`Payload`].
    pub payload: Payload,
}

/// Applied inside the engine, before the pool is cut. Values of one list are alternatives; empty: any.
/// A point passes if each list shares a value with it (the store re-checks each holder in SQL).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VectorFilter {
    /// Literal sessions.
    pub sessions: Vec<String>,
    /// Role names.
    pub roles: Vec<String>,
    /// Hashed speakers.
    pub speakers: Vec<String>,
    /// Inclusive.
    pub at_gte_ms: Option<i64>,
    /// Exclusive.
    pub at_lt_ms: Option<i64>,
}

/// A point found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Its id.
    pub id: Uuid,
    /// The event that owns it.
    pub event_id: EventId,
    /// Cosine.
    pub score: f32,
}

/// Why an engine gives no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VectorError {
    /// Not there, refusing, or restarting. Retry; recall goes on by text.
    #[error("the vector engine is not available: {0}")]
    Unavailable(String),
    /// A vector of another length. A fault of ours: nothing was written.
    #[error("a vector has {actual} dimensions, not {expected}")]
    Dimension {
        /// The collection's.
        expected: usize,
        /// The vector's.
        actual: usize,
    },
    /// A number that is infinite or none. Nothing was written.
    #[error("a vector holds a number that is not finite")]
    NotFinite,
    /// The server refuses the lane's key: not renewed yet, or another writer took over. Retry: the key's file
    /// is read again; recall goes on by text.
    #[error("the vector engine refuses the lane's key: {0}")]
    Refused(String),
    /// The collection is not there, or not yet. Retry: whoever makes collections is at it; recall goes on by
    /// text.
    #[error("collection_missing: {0}")]
    CollectionMissing(String),
    /// The engine's files cannot be used, or it refused a request of ours as invalid. A person must look.
    #[error("the vector engine's files: {0}")]
    Storage(String),
}

impl VectorError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Refused(_) | Self::CollectionMissing(_) => true,
            Self::Dimension { .. } | Self::NotFinite | Self::Storage(_) => false,
        }
    }

    /// A stable word for coverage, metrics and conditions.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "vector_engine_unavailable",
            Self::Refused(_) => "vector_engine_refused",
            Self::CollectionMissing(_) => "collection_missing",
            Self::Dimension { .. } | Self::NotFinite | Self::Storage(_) => "vector_engine_failed",
        }
    }
}

/// One lane's collection.
#[async_trait]
pub trait VectorStore: Send + Sync + std::fmt::Debug {
    /// The dimension of the collection.
    fn dimension(&self) -> usize;
    /// The generation that is searched.
    fn generation(&self) -> Generation;
    /// Writes points, replacing those of the same id. All or none of one call.
    async fn upsert(&self, points: Vec<Point>) -> Result<(), VectorError>;
    /// Replaces the payload of points that exist; missing ids are passed over.
    async fn set_payload(&self, ids: Vec<Uuid>, payload: Payload) -> Result<(), VectorError>;
    /// Deletes points by id; missing ids are passed over.
    async fn delete(&self, ids: Vec<Uuid>) -> Result<(), VectorError>;
    /// Deletes every point of an event.
    async fn delete_event(&self, event_id: EventId) -> Result<(), VectorError>;
    /// Best first; ties by id, so that pages are stable.
    async fn search(
        &self,
        vector: Vec<f32>,
        filter: VectorFilter,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<Found>, VectorError>;
    /// Stored vectors of events, for exact scores. Events without points have no entry.
    async fn vectors_of(&self, events: Vec<EventId>) -> Result<HashMap<EventId, Vec<Vec<f32>>>, VectorError>;
    /// Stored vectors by point id (cheaper than by event); missing ids have no entry.
    async fn vectors(&self, ids: Vec<Uuid>) -> Result<HashMap<Uuid, Vec<f32>>, VectorError>;
    /// Of these ids, those that exist.
    async fn existing(&self, ids: Vec<Uuid>) -> Result<Vec<Uuid>, VectorError>;
    /// All ids, for healing: strays are deleted.
    async fn all_ids(&self) -> Result<Vec<Uuid>, VectorError>;
    /// Exact number of points.
    async fn count(&self) -> Result<u64, VectorError>;
    /// Makes all that was written durable.
    async fn flush(&self) -> Result<(), VectorError>;
    /// Makes all durable and lets go of the engine's files; every later call answers `Unavailable`.
    async fn close(&self) -> Result<(), VectorError> {
        self.flush().await
    }
    /// Begins an empty shadow of the next generation beside the one that is searched (or goes on with the
    /// one that is there, also after a restart). From here on upserts, payloads and deletes go to both;
    /// `existing`, `all_ids` and `count` speak of the shadow; `search` and `vectors` of the searched one.
    async fn begin_shadow(&self) -> Result<Generation, VectorError>;
    /// Whether there is a shadow.
    fn has_shadow(&self) -> bool;
    /// Flushes the shadow, makes it the one that is searched (atomically, durably) and removes the old one
    /// from disk.
    async fn swap_shadow(&self) -> Result<Generation, VectorError>;
}

mod fields;
mod points;

#[cfg(feature = "qdrant")]
pub mod qdrant;

#[cfg(feature = "edge")]
mod edge;
#[cfg(feature = "edge")]
pub use edge::open as open_edge;

#[cfg(any(test, feature = "test-support"))]
pub mod conformance;
