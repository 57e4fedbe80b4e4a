//! The model itself: token ids in, last hidden states out, by rten.
//!
//! What always holds: one call is one forward pass over one batch, padded on the right to its
//! longest text; a text's states do not depend on what else is in the batch. It computes and
//! blocks: only the threads of `scheduler` call it.
//!
//! What it deliberately does not do: cut, pool or normalise. It knows nothing of queries and
//! passages.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rten::{ModelOptions, NodeId, RunOptions, ThreadPool, Value};
use rten_tensor::Tensor;
use rten_tensor::prelude::*;

use crate::convert::HIDDEN;

/// Why the model cannot be loaded or run. `Load` needs another file, `Run` is a fault in here.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file is no model that this program can run.
    #[error("cannot load the model: {0}")]
    Load(String),
    /// A forward pass failed.
    #[error("the model failed: {0}")]
    Run(String),
}

/// The loaded model; shared by all threads that run it.
pub(crate) struct Model {
    model: rten::Model,
    input_ids: NodeId,
    attention_mask: NodeId,
    last_hidden_state: NodeId,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").finish_non_exhaustive()
    }
}

/// The hidden states of one batch.
#[derive(Debug)]
pub(crate) struct HiddenStates {
    values: Vec<f32>,
    tokens: usize,
}

impl HiddenStates {
    /// The states of one text's tokens, one after another.
    pub(crate) fn of(&self, text: usize, tokens: Range<usize>) -> impl Iterator<Item = &[f32]> {
        let first = text * self.tokens;
        self.values[(first + tokens.start) * HIDDEN..(first + tokens.end) * HIDDEN].chunks_exact(HIDDEN)
    }
}

/// Threads that one caller of [`Model::forward`] computes with.
#[derive(Debug, Clone)]
pub(crate) struct Threads(Arc<ThreadPool>);

impl Threads {
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(ThreadPool::with_num_threads(count)))
    }
}

impl Model {
    /// Loads a converted model.
    pub(crate) fn load(path: &Path) -> Result<Self, ModelError> {
        let model = ModelOptions::with_all_ops()
            .prepack_weights(true)
            .load_file(path)
            .map_err(|error| ModelError::Load(error.to_string()))?;
        let node = |name: &str| model.node_id(name).map_err(|error| ModelError::Load(error.to_string()));
        let (input_ids, attention_mask, last_hidden_state) =
            (node("input_ids")?, node("attention_mask")?, node("last_hidden_state")?);
        Ok(Self { model, input_ids, attention_mask, last_hidden_state })
    }

    /// One forward pass. `batch` holds token ids, special ones included; none may be empty.
    pub(crate) fn forward(&self, batch: &[&[u32]], threads: &Threads) -> Result<HiddenStates, ModelError> {
        let tokens = batch.iter().map(|ids| ids.len()).max().unwrap_or(0);
        // Id 0 is the padding token; the mask hides it.
        let mut ids = vec![0_i32; batch.len() * tokens];
        let mut mask = vec![0_i32; batch.len() * tokens];
        for (row, text) in batch.iter().enumerate() {
            for (column, &id) in text.iter().enumerate() {
                ids[row * tokens + column] = id as i32;
                mask[row * tokens + column] = 1;
            }
        }
        let shape = [batch.len(), tokens];
        let options = RunOptions::default().with_thread_pool(Some(Arc::clone(&threads.0)));
        let inputs = vec![
            (self.input_ids, Tensor::from_data(&shape, ids).into()),
            (self.attention_mask, Tensor::from_data(&shape, mask).into()),
        ];
        let [output] = self
            .model
            .run_n(inputs, [self.last_hidden_state], Some(options))
            .map_err(|error| ModelError::Run(error.to_string()))?;
        let Value::FloatTensor(states) = output else {
            return Err(ModelError::Run("the output is no tensor of floats".into()));
        };
        if states.shape() != [batch.len(), tokens, HIDDEN] {
            return Err(ModelError::Run(format!("the output has shape {:?}", states.shape())));
        }
        Ok(HiddenStates { values: states.into_data(), tokens })
    }
}
