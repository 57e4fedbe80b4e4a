//! What our own embedder's server and its client say to each other: `POST /v1/embed`, `GET /v1/info`.
//!
//! What must always hold: a request names the fingerprint it wants and an answer the one it has, so that vectors of
//! another model are never taken for ours; errors hold codes and rules, never a text that was embedded.

use lanekeeper_core::LaneUid;
use lanekeeper_core::encoder::{Baseline, Passage, PassageVector};
use lanekeeper_core::fingerprint::{Fingerprint, FingerprintFields};
#[cfg(feature = "server")]
use lanekeeper_core::wire::encoding::write_f32;
use lanekeeper_core::wire::encoding::{EncodingError, WireEncoding, read_f32};
use serde::{Deserialize, Serialize};

/// Where encodings are asked for.
pub(crate) const EMBED: &str = "/v1/embed";
/// Where a server says what it serves.
pub(crate) const INFO: &str = "/v1/info";
/// Most passages of one request.
pub(crate) const PASSAGES: usize = 64;
/// Largest request, bytes: the passages with their contexts, escaped.
#[cfg(feature = "server")]
pub(crate) const REQUEST_BYTES: usize = 4 * 1024 * 1024;

/// What a server serves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// What its vectors are comparable with.
    pub fingerprint: Fingerprint,
    /// What that is made of.
    pub fields: FingerprintFields,
    /// The model's name.
    pub model: String,
    /// Length of a vector.
    pub dimension: u32,
    /// Whether questions come as token states.
    pub token_states: bool,
    /// Cosine of unrelated pairs, once it has been measured.
    pub baseline: Option<Baseline>,
    /// Passages encoded a second, as last measured under load or at the start.
    pub vectors_per_second: Option<f32>,
}

/// `POST /v1/embed`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmbedRequest {
    /// The one that is wanted.
    pub(crate) fingerprint: Fingerprint,
    /// Whose work it is.
    pub(crate) lane: LaneUid,
    /// What to encode.
    pub(crate) work: WireWork,
}

/// What to encode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum WireWork {
    /// A question somebody waits for.
    Question(String),
    /// A question of the projector.
    ProjectedQuestion(String),
    /// Passages.
    Passages(Vec<WirePassage>),
}

/// See [`Passage`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WirePassage {
    pub(crate) context: String,
    pub(crate) header: String,
    pub(crate) chunk: String,
}

impl From<Passage> for WirePassage {
    fn from(Passage { context, header, chunk }: Passage) -> Self {
        Self { context, header, chunk }
    }
}

impl From<WirePassage> for Passage {
    fn from(WirePassage { context, header, chunk }: WirePassage) -> Self {
        Self { context, header, chunk }
    }
}

/// Answer of `POST /v1/embed`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct EmbedAnswer {
    /// The server's.
    pub(crate) fingerprint: Fingerprint,
    /// The same kind as was asked for.
    pub(crate) result: WireResult,
}

/// What was encoded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WireResult {
    Question(WireEncoding),
    /// One a passage, in order.
    Passages(Vec<WireVector>),
}

/// See [`PassageVector`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WireVector {
    /// Single precision, little endian, base64.
    Vector(String),
    ChunkTooLong,
}

impl WireVector {
    #[cfg(feature = "server")]
    pub(crate) fn write(vector: &PassageVector) -> Result<Self, EncodingError> {
        match vector {
            PassageVector::Vector(vector) => Ok(Self::Vector(write_f32(vector)?)),
            PassageVector::ChunkTooLong => Ok(Self::ChunkTooLong),
        }
    }

    pub(crate) fn read(&self) -> Result<PassageVector, EncodingError> {
        match self {
            Self::Vector(vector) => Ok(PassageVector::Vector(read_f32(vector)?)),
            Self::ChunkTooLong => Ok(PassageVector::ChunkTooLong),
        }
    }
}

/// The body of an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EmbedProblem {
    /// `overloaded`, `model_mismatch`, `refused`, `unavailable`.
    pub(crate) code: String,
    /// In words; nothing of the input.
    pub(crate) detail: String,
}
