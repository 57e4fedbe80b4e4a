//! An encoder for tests of the parts around it: no model, the same contract, and a switch for every
//! way in which an embedder can fail.
//!
//! What always holds: the same text gives the same states in every process; texts that share words
//! are alike and others are not; a word of the context leaves its mark on the chunk's vector, so that
//! a test notices a context that should be gone.
//!
//! What it deliberately does not do: understand anything. Measurements of quality need the model.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::encoder::{
    Baseline, EncodeError, Encoder, Passage, PassageVector, QueryEncoding, TokenState, Work,
};
use lanekeeper_core::fingerprint::{DocumentPooling, Fingerprint, FingerprintFields, QueryPooling};
use lanekeeper_core::limits::MODEL_TOKENS;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::baseline::{Sentences, measure};
use crate::baseline_sentences::STOP_WORDS;
use crate::pooling;

/// Length of its vectors.
pub const HASH_DIMENSION: usize = 384;
/// How strongly all words of a text colour the state of each.
const SURROUNDINGS: f32 = 0.25;

/// How the encoder behaves from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Answers.
    Ready,
    /// Answers after a while.
    Slow(Duration),
    /// Answers when the mode changes, and as the new mode says.
    Held,
    /// [`EncodeError::Overloaded`].
    Overloaded,
    /// [`EncodeError::Unavailable`].
    Unavailable,
    /// [`EncodeError::ModelMismatch`].
    ModelMismatch,
    /// [`EncodeError::Refused`].
    Refused,
}

/// Words as tokens, hashes as states. Clones share mode and counters.
#[derive(Debug, Clone)]
pub struct HashEncoder {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    fields: FingerprintFields,
    has_token_states: bool,
    baseline: Option<Baseline>,
    mode: watch::Sender<Mode>,
    queries: AtomicUsize,
    passages: AtomicUsize,
}

impl HashEncoder {
    /// With token states, as the built-in model has them.
    #[must_use]
    pub fn new() -> Self {
        Self::with_fields(|_| ())
    }

    /// With pooled vectors only, as an external server.
    #[must_use]
    pub fn pooled() -> Self {
        Self::with_fields(|fields| {
            fields.document_pooling = Some(DocumentPooling::Server);
            fields.query_pooling = Some(QueryPooling::Server);
        })
    }

    /// With fingerprint fields changed, for tests that need several fingerprints. The pooling
    /// decides whether there are token states.
    #[must_use]
    pub fn with_fields(change: impl FnOnce(&mut FingerprintFields)) -> Self {
        let mut fields = FingerprintFields {
            model: "hashed-words".into(),
            revision: Some("1".into()),
            weights_sha256: None,
            dimension: HASH_DIMENSION as u32,
            dtype: Some("f32".into()),
            query_prefix: String::new(),
            document_prefix: String::new(),
            document_pooling: Some(DocumentPooling::LateChunkMean),
            query_pooling: Some(QueryPooling::IdfWeighted),
            max_tokens: Some(MODEL_TOKENS as u32),
            normalise: Some(true),
        };
        change(&mut fields);
        let has_token_states = fields.query_pooling == Some(QueryPooling::IdfWeighted);
        Self {
            inner: Arc::new(Inner {
                baseline: measured(has_token_states),
                fields,
                has_token_states,
                mode: watch::Sender::new(Mode::Ready),
                queries: AtomicUsize::new(0),
                passages: AtomicUsize::new(0),
            }),
        }
    }

    /// Behaves like this from now on.
    pub fn set_mode(&self, mode: Mode) {
        self.inner.mode.send_replace(mode);
    }

    /// Questions answered so far.
    #[must_use]
    pub fn queries(&self) -> usize {
        self.inner.queries.load(Ordering::SeqCst)
    }

    /// Passages answered so far.
    #[must_use]
    pub fn passages(&self) -> usize {
        self.inner.passages.load(Ordering::SeqCst)
    }

    async fn obey(&self) -> Result<(), EncodeError> {
        let mut modes = self.inner.mode.subscribe();
        // The sender lives as long as this encoder.
        let mode = *modes.wait_for(|mode| *mode != Mode::Held).await.map_err(|_| EncodeError::Overloaded)?;
        let reason = || "so the test wants it".to_owned();
        match mode {
            Mode::Ready | Mode::Held => Ok(()),
            Mode::Slow(pause) => {
                tokio::time::sleep(pause).await;
                Ok(())
            }
            Mode::Overloaded => Err(EncodeError::Overloaded),
            Mode::Unavailable => Err(EncodeError::Unavailable { reason: reason() }),
            Mode::ModelMismatch => Err(EncodeError::ModelMismatch { reason: reason() }),
            Mode::Refused => Err(EncodeError::Refused { reason: reason() }),
        }
    }
}

impl Default for HashEncoder {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Encoder for HashEncoder {
    fn fingerprint(&self) -> Fingerprint {
        self.inner.fields.fingerprint()
    }

    fn dimension(&self) -> usize {
        HASH_DIMENSION
    }

    fn model(&self) -> &str {
        &self.inner.fields.model
    }

    fn has_token_states(&self) -> bool {
        self.inner.has_token_states
    }

    fn baseline(&self) -> Option<Baseline> {
        self.inner.baseline
    }

    async fn encode_query(&self, _: Work, text: &str) -> Result<QueryEncoding, EncodeError> {
        self.obey().await?;
        self.inner.queries.fetch_add(1, Ordering::SeqCst);
        Ok(query(text, self.inner.has_token_states))
    }

    async fn encode_passages(&self, _: Work, passages: Vec<Passage>) -> Result<Vec<PassageVector>, EncodeError> {
        self.obey().await?;
        self.inner.passages.fetch_add(passages.len(), Ordering::SeqCst);
        Ok(passages.iter().map(|one| passage(one, self.inner.has_token_states)).collect())
    }
}

fn measured(has_token_states: bool) -> Option<Baseline> {
    let sentences = Sentences::builtin();
    let questions: Vec<_> = sentences
        .questions()
        .iter()
        .filter_map(|text| sentences.pool_question(&query(text, has_token_states)))
        .collect();
    let passages: Vec<_> = sentences
        .passages()
        .iter()
        .filter_map(|one| match passage(one, has_token_states) {
            PassageVector::Vector(vector) => Some(vector),
            PassageVector::ChunkTooLong => None,
        })
        .collect();
    measure(&questions, &passages)
}

fn query(text: &str, has_token_states: bool) -> QueryEncoding {
    let words: Vec<_> = words(text).into_iter().take(MODEL_TOKENS - 2).collect();
    let tokens = states(text, &words);
    if has_token_states {
        QueryEncoding::States { text: text.to_owned(), tokens }
    } else {
        QueryEncoding::Pooled(pooled(text, &tokens))
    }
}

fn passage(passage: &Passage, has_token_states: bool) -> PassageVector {
    let Passage { context, header, chunk } = passage;
    let mut text = String::new();
    for part in [context.as_str(), header].into_iter().skip(usize::from(!has_token_states)) {
        text.push_str(part);
        if !part.is_empty() {
            text.push(' ');
        }
    }
    let header_start = text.len() - if header.is_empty() { 0 } else { header.len() + 1 };
    let chunk_start = if has_token_states { text.len() } else { 0 };
    text.push_str(chunk);
    let words = words(&text);
    let surplus = words.len().saturating_sub(MODEL_TOKENS - 2);
    let own = words.iter().filter(|&&(start, _)| start >= header_start).count();
    if own > MODEL_TOKENS - 2 {
        return PassageVector::ChunkTooLong;
    }
    let tokens = states(&text, &words[surplus..]);
    let chunk_tokens: Vec<_> = tokens.into_iter().filter(|token| token.start as usize >= chunk_start).collect();
    PassageVector::Vector(pooled(chunk, &chunk_tokens))
}

/// The mean, of length 1; a text without words is one word.
fn pooled(text: &str, tokens: &[TokenState]) -> Vec<f32> {
    let mut sum = if tokens.is_empty() { word_vector(text) } else { vec![0.0; HASH_DIMENSION] };
    for token in tokens {
        for (total, value) in sum.iter_mut().zip(&token.state) {
            *total += value;
        }
    }
    pooling::normalise(&mut sum);
    sum
}

/// Runs of letters and digits; ideographs one by one, as the built-in model has them.
fn words(text: &str) -> Vec<(usize, usize)> {
    let mut words: Vec<(usize, usize)> = Vec::new();
    let mut open = false;
    for (start, c) in text.char_indices() {
        let end = start + c.len_utf8();
        let alone = matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}');
        match words.last_mut() {
            Some(word) if open && !alone && c.is_alphanumeric() => word.1 = end,
            _ if c.is_alphanumeric() => words.push((start, end)),
            _ => {}
        }
        open = c.is_alphanumeric() && !alone;
    }
    words
}

fn states(text: &str, words: &[(usize, usize)]) -> Vec<TokenState> {
    let vectors: Vec<Vec<f32>> = words.iter().map(|&(start, end)| word_vector(&text[start..end])).collect();
    let mut surroundings = vec![0.0_f32; HASH_DIMENSION];
    for vector in &vectors {
        for (total, value) in surroundings.iter_mut().zip(vector) {
            *total += value * SURROUNDINGS / vectors.len() as f32;
        }
    }
    words
        .iter()
        .zip(vectors)
        .map(|(&(start, end), vector)| TokenState {
            start: start as u32,
            end: end as u32,
            state: vector.iter().zip(&surroundings).map(|(own, around)| own + around).collect(),
        })
        .collect()
}

/// 384 numbers between −1 and 1 from the word in lower case; short ones for function words, which
/// would else make all texts of a language alike.
fn word_vector(word: &str) -> Vec<f32> {
    let word = word.to_lowercase();
    let length = if STOP_WORDS.contains(&word.as_str()) { 0.2 } else { 1.0 };
    (0_u8..)
        .flat_map(|block| Sha256::new().chain_update([block]).chain_update(word.as_bytes()).finalize())
        .take(HASH_DIMENSION)
        .map(|byte| length * (f32::from(byte) - 127.5) / 127.5)
        .collect()
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::encoder::WorkKind;

    use super::*;

    fn work() -> Work {
        Work { lane: "00000000-0000-4000-8000-000000000001".parse().unwrap(), kind: WorkKind::Query }
    }

    async fn vector(encoder: &HashEncoder, context: &str, chunk: &str) -> Vec<f32> {
        let passage = Passage { context: context.into(), header: "[log]".into(), chunk: chunk.into() };
        match encoder.encode_passages(work(), vec![passage]).await.unwrap().remove(0) {
            PassageVector::Vector(vector) => vector,
            PassageVector::ChunkTooLong => panic!("too long"),
        }
    }

    #[tokio::test]
    async fn shared_words_make_texts_alike_and_context_leaves_a_mark() {
        for encoder in [HashEncoder::new(), HashEncoder::pooled()] {
            let fox = vector(&encoder, "", "The quick brown fox").await;
            let other_fox = vector(&encoder, "", "a quick red fox").await;
            let tax = vector(&encoder, "", "Invoices are due in March").await;
            assert!(pooling::dot(&fox, &other_fox) > 0.4);
            assert!(pooling::dot(&fox, &tax) < 0.3);
            assert!((pooling::dot(&fox, &fox) - 1.0).abs() < 1e-5);
            let in_context = vector(&encoder, "walrus", "The quick brown fox").await;
            assert_eq!(in_context != fox, encoder.has_token_states());
            let p99 = encoder.baseline().unwrap().p99;
            assert!((0.0..0.4).contains(&p99), "{p99}");
        }
        assert_ne!(HashEncoder::new().fingerprint(), HashEncoder::pooled().fingerprint());
    }

    #[tokio::test]
    async fn tokens_are_words_with_byte_offsets() {
        let text = "Größe: über 5 GPU节点!";
        let QueryEncoding::States { text: of, tokens } = HashEncoder::new().encode_query(work(), text).await.unwrap()
        else {
            panic!("pooled")
        };
        let words: Vec<_> = tokens.iter().map(|token| &of[token.start as usize..token.end as usize]).collect();
        assert_eq!(words, ["Größe", "über", "5", "GPU", "节", "点"]);
    }

    #[tokio::test]
    async fn the_mode_decides() {
        let encoder = HashEncoder::new();
        let ask = || encoder.encode_query(work(), "x");
        encoder.set_mode(Mode::Overloaded);
        assert_eq!(ask().await.unwrap_err(), EncodeError::Overloaded);
        encoder.set_mode(Mode::Unavailable);
        assert!(matches!(ask().await, Err(EncodeError::Unavailable { .. })));
        encoder.set_mode(Mode::ModelMismatch);
        assert!(matches!(ask().await, Err(EncodeError::ModelMismatch { .. })));
        encoder.set_mode(Mode::Refused);
        assert!(matches!(ask().await, Err(EncodeError::Refused { .. })));
        assert_eq!(encoder.queries(), 0);
        encoder.set_mode(Mode::Held);
        let held = tokio::spawn({
            let encoder = encoder.clone();
            async move { encoder.encode_query(work(), "x").await }
        });
        tokio::task::yield_now().await;
        assert_eq!(encoder.queries(), 0);
        encoder.set_mode(Mode::Slow(Duration::from_millis(1)));
        held.await.unwrap().unwrap();
        assert_eq!(encoder.queries(), 1);
    }

    #[tokio::test]
    async fn a_chunk_of_too_many_words_is_to_be_split() {
        let encoder = HashEncoder::new();
        let long = |count| Passage { context: "c ".repeat(500), header: "h".into(), chunk: "w ".repeat(count) };
        let answers = encoder.encode_passages(work(), vec![long(253), long(254)]).await.unwrap();
        assert!(matches!(answers[0], PassageVector::Vector(_)));
        assert_eq!(answers[1], PassageVector::ChunkTooLong);
    }
}
