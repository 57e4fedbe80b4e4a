//! What the rest asks of an embedder. Two levels: token states (the built-in model), from which
//! a lane pools with its own idf; and pooled vectors only (external servers).

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;
use crate::ids::LaneUid;

/// One token of an encoded text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenState {
    /// Byte range in the encoded text.
    pub start: u32,
    /// Byte range in the encoded text, end exclusive.
    pub end: u32,
    /// Last hidden state; `dimension` long, not normalised.
    pub state: Vec<f32>,
}

/// An encoded question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum QueryEncoding {
    /// One state a token of the text (special tokens left out); the lane pools.
    States {
        /// The text the offsets refer to (prefix included).
        text: String,
        /// At most `max_tokens`.
        tokens: Vec<TokenState>,
    },
    /// One vector, as the server pooled it.
    Pooled(Vec<f32>),
}

/// Most bytes of a [`Passage`]'s context; its end is kept. The built-in model reads at most 254 tokens,
/// some 1,200 characters, and the turns before may be a megabyte each.
pub const CONTEXT_BYTES: usize = 4096;

/// The end of a context, at most [`CONTEXT_BYTES`] of it.
#[must_use]
pub fn context_end(context: &str) -> &str {
    &context[context.ceil_char_boundary(context.len().saturating_sub(CONTEXT_BYTES))..]
}

/// One chunk to be embedded with what stood before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// Turns before, may be empty, at most [`CONTEXT_BYTES`]; cut from the left until all fits. Ignored
    /// without token states.
    pub context: String,
    /// `[log <id> <date>]`.
    pub header: String,
    /// The chunk itself; never cut.
    pub chunk: String,
}

/// The outcome for one [`Passage`].
#[derive(Debug, Clone, PartialEq)]
pub enum PassageVector {
    /// Normalised, `dimension` long.
    Vector(Vec<f32>),
    /// Header and chunk alone exceed the model's tokens: split the chunk and ask again.
    ChunkTooLong,
}

/// Whose work it is: each lane has its own bounded queue, served in turn; questions go before
/// projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Work {
    /// The lane.
    pub lane: LaneUid,
    /// Why it is asked.
    pub kind: WorkKind,
}

/// Why an encoding is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// A caller waits.
    Query,
    /// The projector fills in vectors.
    Projection,
}

/// Why there is no encoding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The queue is full. Recall goes on by text, the projector retries.
    #[error("the embedder is overloaded")]
    Overloaded,
    /// The embedder does not answer. Retry later.
    #[error("the embedder is not available: {reason}")]
    Unavailable {
        /// In words.
        reason: String,
    },
    /// The server reports a model or dimension other than declared. Projection stops.
    #[error("the embedder serves another model: {reason}")]
    ModelMismatch {
        /// In words.
        reason: String,
    },
    /// The server answers this one input with an error: retrying will not help.
    #[error("the embedder refuses the input: {reason}")]
    Refused {
        /// In words.
        reason: String,
    },
}

/// Cosine of unrelated pairs under a pooling, measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Mean cosine of unrelated pairs.
    pub mean: f32,
    /// Its 99th percentile: the floor below which a vector hit proves nothing.
    pub p99: f32,
    /// Pairs measured.
    pub pairs: u32,
}

/// One embedder: the built-in model in this process or a client of a server.
#[async_trait]
pub trait Encoder: Send + Sync + std::fmt::Debug {
    /// What the vectors are comparable with.
    fn fingerprint(&self) -> Fingerprint;
    /// Length of a vector.
    fn dimension(&self) -> usize;
    /// Model name, for payloads and `coverage`.
    fn model(&self) -> &str;
    /// Whether questions come as token states.
    fn has_token_states(&self) -> bool;
    /// The measured baseline, if there is one yet.
    fn baseline(&self) -> Option<Baseline>;
    /// Encodes a question.
    async fn encode_query(&self, work: Work, text: &str) -> Result<QueryEncoding, EncodeError>;
    /// Encodes passages; the answer has one entry for each, in order.
    async fn encode_passages(&self, work: Work, passages: Vec<Passage>) -> Result<Vec<PassageVector>, EncodeError>;
}
