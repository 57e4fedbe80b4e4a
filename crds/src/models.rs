//! The table of built-in models, and how an Embedder's spec becomes the fields that are hashed into
//! its fingerprint.
//!
//! Computed from the spec alone, never by asking a server. A built-in model's fields come from the
//! table, and a spec that says otherwise is refused: it would name vectors that the model does not
//! make. What an external one leaves out enters the hash as `undeclared`.

use lanekeeper_core::fingerprint::{DocumentPooling, FingerprintFields, QueryPooling};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::embedder::{EmbedderSpec, Pooling, Runtime, SpecDocumentPooling, SpecQueryPooling};

/// A model that the built-in runtime can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum BuiltinModel {
    /// all-MiniLM-L6-v2: 384 dimensions, English.
    #[serde(rename = "all-MiniLM-L6-v2")]
    AllMiniLmL6V2,
}

impl BuiltinModel {
    /// Every one there is.
    pub const ALL: [Self; 1] = [Self::AllMiniLmL6V2];

    /// The name in manifests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllMiniLmL6V2 => lanekeeper_core::fingerprint::BUILTIN_MODEL,
        }
    }

    /// By name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|model| model.name() == name)
    }

    /// All that decides what its vectors mean.
    #[must_use]
    pub fn fingerprint_fields(self) -> FingerprintFields {
        match self {
            Self::AllMiniLmL6V2 => FingerprintFields::builtin(),
        }
    }
}

/// Why a spec has no fingerprint. The person who wrote the Embedder must change the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FingerprintError {
    /// The built-in runtime has no such model.
    #[error("spec.model: {model:?} is not built in; built in are: {known}")]
    UnknownModel {
        /// As declared.
        model: String,
        /// What there is.
        known: String,
    },
    /// The spec contradicts the table.
    #[error("spec.{field}: must be {expected} for this built-in model, or be left out")]
    ContradictsTable {
        /// The field.
        field: &'static str,
        /// What the table has.
        expected: String,
    },
    /// A runtime other than the built-in one must declare the dimension.
    #[error("spec.dimension: required unless the runtime is builtin")]
    DimensionMissing,
}

impl EmbedderSpec {
    /// The fields that the fingerprint of this Embedder is the hash of.
    pub fn fingerprint_fields(&self) -> Result<FingerprintFields, FingerprintError> {
        // Destructured without `..`: a new field must decide whether it changes what a vector means.
        let Self {
            model,
            revision,
            weights_sha256,
            dimension,
            dtype,
            query_prefix,
            document_prefix,
            pooling,
            max_tokens,
            normalise,
            runtime,
            // Where and how it runs changes no vector.
            external: _,
            replicas: _,
            gpu: _,
            cache: _,
        } = self;
        let Pooling { query, document } = pooling.unwrap_or_default();
        let declared = FingerprintFields {
            model: model.clone(),
            revision: revision.clone(),
            weights_sha256: weights_sha256.clone(),
            dimension: dimension.unwrap_or_default(),
            dtype: dtype.clone(),
            query_prefix: query_prefix.clone(),
            document_prefix: document_prefix.clone(),
            document_pooling: document.map(Into::into),
            query_pooling: query.map(Into::into),
            max_tokens: *max_tokens,
            normalise: *normalise,
        };
        match runtime {
            Runtime::Builtin => filled_from_table(declared, *dimension),
            Runtime::Tei | Runtime::Llamacpp | Runtime::External => {
                dimension.ok_or(FingerprintError::DimensionMissing)?;
                Ok(declared)
            }
        }
    }
}

/// The table's row with the declared prefixes, if nothing declared contradicts it.
fn filled_from_table(
    declared: FingerprintFields,
    dimension: Option<u32>,
) -> Result<FingerprintFields, FingerprintError> {
    let FingerprintFields {
        model,
        revision,
        weights_sha256,
        dimension: _,
        dtype,
        query_prefix,
        document_prefix,
        document_pooling,
        query_pooling,
        max_tokens,
        normalise,
    } = declared;
    let Some(known) = BuiltinModel::by_name(&model) else {
        let known = BuiltinModel::ALL.map(BuiltinModel::name).join(", ");
        return Err(FingerprintError::UnknownModel { model, known });
    };
    let table = known.fingerprint_fields();
    agrees("revision", revision, table.revision.clone())?;
    agrees("weightsSha256", weights_sha256, table.weights_sha256.clone())?;
    agrees("dimension", dimension, Some(table.dimension))?;
    agrees("dtype", dtype, table.dtype.clone())?;
    agrees("pooling.document", document_pooling, table.document_pooling)?;
    agrees("pooling.query", query_pooling, table.query_pooling)?;
    agrees("maxTokens", max_tokens, table.max_tokens)?;
    agrees("normalise", normalise, table.normalise)?;
    Ok(FingerprintFields { query_prefix, document_prefix, ..table })
}

fn agrees<T: PartialEq + Serialize>(
    field: &'static str,
    declared: Option<T>,
    table: Option<T>,
) -> Result<(), FingerprintError> {
    if declared.is_none() || declared == table {
        return Ok(());
    }
    let expected = serde_json::to_string(&table).unwrap_or_else(|_| "left out".to_owned());
    Err(FingerprintError::ContradictsTable { field, expected })
}

impl From<SpecQueryPooling> for QueryPooling {
    fn from(pooling: SpecQueryPooling) -> Self {
        match pooling {
            SpecQueryPooling::IdfWeighted => Self::IdfWeighted,
            SpecQueryPooling::Server => Self::Server,
        }
    }
}

impl From<SpecDocumentPooling> for DocumentPooling {
    fn from(pooling: SpecDocumentPooling) -> Self {
        match pooling {
            SpecDocumentPooling::LateChunkMean => Self::LateChunkMean,
            SpecDocumentPooling::Server => Self::Server,
        }
    }
}
