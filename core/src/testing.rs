//! A deterministic encoder for tests, so that stores and APIs are tested without the model. Behind the
//! feature `test-support`; never in a product build.
//!
//! Texts that share words have similar vectors; the context shifts a vector a little, as with the real one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use async_trait::async_trait;
use sha2::{Digest, Sha256};

use crate::encoder::{
    Baseline, CONTEXT_BYTES, EncodeError, Encoder, Passage, PassageVector, QueryEncoding, TokenState, Work,
};
use crate::fingerprint::{Fingerprint, FingerprintFields};

const DIMENSION: usize = 64;
const MAX_WORDS: usize = 200;

/// How the encoder behaves from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers.
    Works,
    /// Answers that it is down.
    Down,
    /// Answers that its queue is full.
    Overloaded,
    /// Does not answer until it behaves otherwise.
    Hangs,
}

/// See the module's head. Clones share their behaviour.
#[derive(Debug, Clone, Default)]
pub struct HashEncoder {
    behaviour: Arc<AtomicU64>,
    passages: Arc<AtomicUsize>,
    waiting: Arc<Mutex<Vec<Waker>>>,
    pooled: bool,
}

impl HashEncoder {
    /// One that works and gives token states.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that pools by itself, as an external server does.
    #[must_use]
    pub fn pooled() -> Self {
        Self { pooled: true, ..Self::default() }
    }

    /// Changes how it behaves.
    pub fn behave(&self, behaviour: Behaviour) {
        let value = match behaviour {
            Behaviour::Works => 0,
            Behaviour::Down => 1,
            Behaviour::Overloaded => 2,
            Behaviour::Hangs => 3,
        };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.behaviour.store(value, Ordering::SeqCst);
        waiting.drain(..).for_each(Waker::wake);
    }

    /// Whether somebody waits for an encoder that hangs.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        !self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Passages encoded so far.
    #[must_use]
    pub fn passages_encoded(&self) -> usize {
        self.passages.load(Ordering::SeqCst)
    }

    async fn obey(&self) -> Result<(), EncodeError> {
        match self.behaviour.load(Ordering::SeqCst) {
            1 => Err(EncodeError::Unavailable { reason: "a test switched it off".into() }),
            2 => Err(EncodeError::Overloaded),
            3 => {
                std::future::poll_fn(|context| {
                    let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                    if self.behaviour.load(Ordering::SeqCst) == 3 {
                        waiting.push(context.waker().clone());
                        return Poll::Pending;
                    }
                    Poll::Ready(())
                })
                .await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Words with their byte ranges.
fn words(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut start = None;
    for (at, character) in text.char_indices() {
        match (character.is_alphanumeric(), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                found.push((from, at));
                start = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }
    if let Some(from) = start {
        found.push((from, text.len()));
    }
    found
}

fn state(word: &str) -> Vec<f32> {
    let mut values = Vec::with_capacity(DIMENSION);
    for block in 0_u8..2 {
        let mut hasher = Sha256::new();
        hasher.update([block]);
        hasher.update(word.to_lowercase().as_bytes());
        values.extend(hasher.finalize().iter().map(|byte| f32::from(*byte) / 127.5 - 1.0));
    }
    values
}

fn add_mean(sum: &mut [f32], text: &str, weight: f32) {
    let words = words(text);
    let share = weight / f32::from(u16::try_from(words.len().max(1)).unwrap_or(u16::MAX));
    for (start, end) in &words {
        for (place, value) in sum.iter_mut().zip(state(&text[*start..*end])) {
            *place += share * value;
        }
    }
}

fn normalised(mut vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|value| *value /= length);
    } else {
        vector[0] = 1.0;
    }
    vector
}

#[async_trait]
impl Encoder for HashEncoder {
    fn fingerprint(&self) -> Fingerprint {
        let mut fields = FingerprintFields::builtin();
        fields.model = if self.pooled { "hash-pooled" } else { "hash" }.into();
        fields.dimension = 64;
        fields.fingerprint()
    }

    fn dimension(&self) -> usize {
        DIMENSION
    }

    fn model(&self) -> &str {
        if self.pooled { "hash-pooled" } else { "hash" }
    }

    fn has_token_states(&self) -> bool {
        !self.pooled
    }

    fn baseline(&self) -> Option<Baseline> {
        None
    }

    async fn encode_query(&self, _work: Work, text: &str) -> Result<QueryEncoding, EncodeError> {
        self.obey().await?;
        if self.pooled {
            let mut sum = vec![0.0; DIMENSION];
            add_mean(&mut sum, text, 1.0);
            return Ok(QueryEncoding::Pooled(normalised(sum)));
        }
        let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let tokens = words(text)
            .into_iter()
            .take(MAX_WORDS)
            .map(|(start, end)| TokenState { start: offset(start), end: offset(end), state: state(&text[start..end]) })
            .collect();
        Ok(QueryEncoding::States { text: text.to_owned(), tokens })
    }

    async fn encode_passages(&self, _work: Work, passages: Vec<Passage>) -> Result<Vec<PassageVector>, EncodeError> {
        self.obey().await?;
        self.passages.fetch_add(passages.len(), Ordering::SeqCst);
        Ok(passages
            .iter()
            .map(|Passage { context, header: _, chunk }| {
                assert!(context.len() <= CONTEXT_BYTES, "a context of {} bytes", context.len());
                if words(chunk).len() > MAX_WORDS {
                    return PassageVector::ChunkTooLong;
                }
                let mut sum = vec![0.0; DIMENSION];
                add_mean(&mut sum, chunk, 1.0);
                add_mean(&mut sum, context, 0.2);
                PassageVector::Vector(normalised(sum))
            })
            .collect())
    }
}
