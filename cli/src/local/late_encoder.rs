//! An encoder that may come later: the built-in model whose weights are not fetched yet, or one that nobody
//! here can run.
//!
//! What must always hold: it answers for what is declared from the first moment (fingerprint, dimension,
//! model), so that lanes open, save and recall by text; until there is a model every encoding is
//! `Unavailable`, and once there is one it stays.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::encoder::{Baseline, EncodeError, Encoder, Passage, PassageVector, QueryEncoding, Work};
use lanekeeper_core::fingerprint::{Fingerprint, FingerprintFields, QueryPooling};
use lanekeeper_embedder::{BuiltinEncoder, builtin_available, model_dir};

/// How often a missing model is looked for.
const LOOK: Duration = Duration::from_secs(2);
/// After a model that is there could not be opened: it is some hundred megabytes to check.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// See the module's head.
#[derive(Debug)]
pub(crate) struct LateEncoder {
    fields: FingerprintFields,
    fingerprint: Fingerprint,
    /// Said until there is a model.
    missing: String,
    model: OnceLock<Arc<dyn Encoder>>,
}

impl LateEncoder {
    /// Nothing is opened yet.
    pub(crate) fn new(fields: FingerprintFields, missing: impl Into<String>) -> Self {
        Self { fingerprint: fields.fingerprint(), fields, missing: missing.into(), model: OnceLock::new() }
    }

    /// The built-in model.
    pub(crate) fn builtin() -> Self {
        Self::new(FingerprintFields::builtin(), "the built-in model is not fetched")
    }

    fn model_now(&self) -> Result<&Arc<dyn Encoder>, EncodeError> {
        self.model.get().ok_or_else(|| EncodeError::Unavailable { reason: self.missing.clone() })
    }

    /// Hands in the model. One of another fingerprint is not taken.
    pub(crate) fn provide(&self, model: Arc<dyn Encoder>) -> bool {
        model.fingerprint() == self.fingerprint && self.model.set(model).is_ok()
    }

    /// Tries to open the built-in model once. Whether there is one now.
    pub(crate) async fn open_now(&self) -> bool {
        match tokio::task::spawn_blocking(open_builtin).await {
            Ok(Ok(model)) => {
                if !self.provide(model) {
                    tracing::error!("the model that was opened is not the declared one");
                }
                true
            }
            Ok(Err(reason)) => {
                tracing::warn!(
                    reason,
                    "no embedding model: saves and recall by text go on, vectors wait. `lanekeeper model fetch` gets it; no restart is needed"
                );
                false
            }
            // The runtime ends.
            Err(_) => true,
        }
    }

    /// Opens the built-in model as soon as it has been fetched. Ends when it is open.
    pub(crate) async fn keep_opening(self: Arc<Self>) {
        // Files that are there and cannot be used: checking them is work, and a person has to do something.
        let mut pause = if builtin_available() { LOOK_AGAIN } else { LOOK };
        loop {
            tokio::time::sleep(pause).await;
            if !builtin_available() {
                pause = LOOK;
                continue;
            }
            if self.open_now().await {
                return;
            }
            pause = LOOK_AGAIN;
        }
    }
}

fn open_builtin() -> Result<Arc<dyn Encoder>, String> {
    let folder = model_dir().map_err(|error| crate::failure::chain(&error))?;
    match BuiltinEncoder::open(&folder) {
        Ok(encoder) => Ok(Arc::new(encoder)),
        Err(error) => Err(crate::failure::chain(&error)),
    }
}

#[async_trait]
impl Encoder for LateEncoder {
    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    fn dimension(&self) -> usize {
        self.fields.dimension as usize
    }

    fn model(&self) -> &str {
        &self.fields.model
    }

    fn has_token_states(&self) -> bool {
        self.fields.query_pooling == Some(QueryPooling::IdfWeighted)
    }

    fn baseline(&self) -> Option<Baseline> {
        self.model.get().and_then(|model| model.baseline())
    }

    async fn encode_query(&self, work: Work, text: &str) -> Result<QueryEncoding, EncodeError> {
        self.model_now()?.encode_query(work, text).await
    }

    async fn encode_passages(&self, work: Work, passages: Vec<Passage>) -> Result<Vec<PassageVector>, EncodeError> {
        self.model_now()?.encode_passages(work, passages).await
    }
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::LaneUid;
    use lanekeeper_core::encoder::WorkKind;

    use super::*;

    #[derive(Debug)]
    struct Fixed(FingerprintFields);

    #[async_trait]
    impl Encoder for Fixed {
        fn fingerprint(&self) -> Fingerprint {
            self.0.fingerprint()
        }
        fn dimension(&self) -> usize {
            384
        }
        fn model(&self) -> &str {
            "fixed"
        }
        fn has_token_states(&self) -> bool {
            true
        }
        fn baseline(&self) -> Option<Baseline> {
            None
        }
        async fn encode_query(&self, _: Work, _: &str) -> Result<QueryEncoding, EncodeError> {
            Ok(QueryEncoding::Pooled(vec![1.0]))
        }
        async fn encode_passages(&self, _: Work, passages: Vec<Passage>) -> Result<Vec<PassageVector>, EncodeError> {
            Ok(passages.iter().map(|_| PassageVector::Vector(vec![1.0])).collect())
        }
    }

    #[tokio::test]
    async fn it_answers_for_what_is_declared_and_encodes_once_there_is_a_model() {
        let late = LateEncoder::builtin();
        assert_eq!(late.fingerprint(), FingerprintFields::builtin().fingerprint());
        assert_eq!((late.dimension(), late.has_token_states()), (384, true));
        let work = Work { lane: LaneUid::from_uuid(uuid::Uuid::nil()), kind: WorkKind::Query };
        assert!(matches!(late.encode_query(work, "x").await, Err(EncodeError::Unavailable { .. })));
        assert!(matches!(late.encode_passages(work, Vec::new()).await, Err(EncodeError::Unavailable { .. })));
        let other = FingerprintFields { dimension: 385, ..FingerprintFields::builtin() };
        assert!(!late.provide(Arc::new(Fixed(other))), "a model of another fingerprint was taken");
        assert!(late.provide(Arc::new(Fixed(FingerprintFields::builtin()))));
        assert!(late.encode_query(work, "x").await.is_ok());
    }
}
