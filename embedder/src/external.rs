//! A client of a server that speaks the OpenAI embeddings API (`POST …/v1/embeddings`).
//!
//! What always holds: pooled vectors only, of the declared dimension, finite and scaled to length 1,
//! in the order of the inputs whatever order the server answers in; an answer is never read beyond
//! what such vectors need; no text, no token and no answer of the server goes into an error or a
//! log.
//!
//! What it deliberately does not do: retry (callers know how urgent they are), follow redirects
//! (the token is for one server), or ask the server who it is: the fingerprint is what was declared.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lanekeeper_core::encoder::{Baseline, EncodeError, Encoder, Passage, PassageVector, QueryEncoding, Work, WorkKind};
use lanekeeper_core::fingerprint::{Fingerprint, FingerprintFields};
use reqwest::Url;
use tokio::sync::Semaphore;

use crate::admission::Admission;
use crate::baseline::{Measured, Sentences};
use crate::builtin::{PASSAGES_PER_LANE, QUERIES_PER_LANE};
use crate::external_wire::{Failure, Server};

/// A chunk shorter than this that the server calls too long is not split any more.
const SPLITTABLE_CHARS: usize = 32;
/// After a failed measurement the next waits this long.
const BASELINE_PAUSE: Duration = Duration::from_secs(60);

/// What is declared about a server.
#[derive(Debug, Clone)]
pub struct ExternalConfig {
    /// Its base: `https://host:port`, with or without `/v1` or `/v1/embeddings`.
    pub url: String,
    /// What the fingerprint is computed from; also the model's name, dimension and prefixes.
    pub fields: FingerprintFields,
    /// The name in requests, if other than the model's.
    pub request_model: Option<String>,
    /// The name that the server may give in answers, if other than those two.
    pub reported_model: Option<String>,
    /// A file with the bearer token. Read at every request, so that a new one counts at once.
    pub token_file: Option<PathBuf>,
    /// Time for a question, from sending to the last byte.
    pub query_timeout: Duration,
    /// Time for a batch of passages.
    pub passages_timeout: Duration,
    /// Most texts in one request.
    pub batch_texts: usize,
    /// Most requests at a time with passages; as many again with questions.
    pub requests_at_once: usize,
}

impl ExternalConfig {
    /// The usual limits.
    #[must_use]
    pub fn new(url: impl Into<String>, fields: FingerprintFields) -> Self {
        Self {
            url: url.into(),
            fields,
            request_model: None,
            reported_model: None,
            token_file: None,
            query_timeout: Duration::from_secs(4),
            passages_timeout: Duration::from_secs(60),
            batch_texts: 32,
            requests_at_once: 4,
        }
    }
}

/// Why a client cannot be made. All are for a person to mend.
#[derive(Debug, thiserror::Error)]
pub enum ExternalError {
    /// Not an http(s) URL, or one with a password in it.
    #[error("the embedder's URL {rule}")]
    Url {
        /// The rule that was broken.
        rule: &'static str,
    },
    /// A number that has to be positive is 0.
    #[error("{field} of an embedder is at least 1")]
    Zero {
        /// Which.
        field: &'static str,
    },
    /// The TLS set-up of this process does not allow a client.
    #[error("cannot make an HTTP client")]
    Client(#[source] reqwest::Error),
}

/// The client. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ExternalEncoder {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: ExternalConfig,
    server: Server,
    fingerprint: Fingerprint,
    baseline: Measured,
    /// When the baseline was last tried.
    measured_at: Mutex<Option<Instant>>,
    questions: Lanes,
    passages: Lanes,
}

/// Who may wait, and how many requests run.
#[derive(Debug)]
struct Lanes {
    admission: Admission,
    requests: Semaphore,
}

impl Lanes {
    fn new(per_lane: usize, requests: usize) -> Self {
        Self { admission: Admission::new(per_lane), requests: Semaphore::new(requests) }
    }
}

impl ExternalEncoder {
    /// A client for what is declared; nothing is asked of the server yet. The process must have
    /// installed its rustls provider.
    pub fn new(config: ExternalConfig) -> Result<Self, ExternalError> {
        let dimension = config.fields.dimension as usize;
        for (field, value) in [
            ("the dimension", dimension),
            ("the batch size", config.batch_texts),
            ("the number of requests at once", config.requests_at_once),
        ] {
            if value == 0 {
                return Err(ExternalError::Zero { field });
            }
        }
        let server = Server {
            client: reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(Duration::from_secs(2))
                .build()
                .map_err(ExternalError::Client)?,
            url: endpoint(&config.url)?,
            model: config.request_model.clone().unwrap_or_else(|| config.fields.model.clone()),
            accepted_models: [
                Some(&config.fields.model),
                config.request_model.as_ref(),
                config.reported_model.as_ref(),
            ]
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
            token_file: config.token_file.clone(),
            dimension,
        };
        let inner = Inner {
            server,
            fingerprint: config.fields.fingerprint(),
            baseline: Measured::in_memory(),
            measured_at: Mutex::default(),
            questions: Lanes::new(QUERIES_PER_LANE, config.requests_at_once),
            passages: Lanes::new(PASSAGES_PER_LANE, config.requests_at_once),
            config,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    fn lanes(&self, kind: WorkKind) -> (&Lanes, Duration) {
        match kind {
            WorkKind::Query => (&self.inner.questions, self.inner.config.query_timeout),
            WorkKind::Projection => (&self.inner.passages, self.inner.config.passages_timeout),
        }
    }

    /// Measures the baseline in the background, once; after a failure a later success tries again.
    fn measure_baseline_once(&self) {
        if self.inner.baseline.get().is_some() || !self.inner.begins_measuring() {
            return;
        }
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move {
            let sentences = Sentences::builtin();
            let questions = sentences.questions().iter().map(|text| inner.query_input(text)).collect();
            let passages = sentences.passages().iter().map(|passage| inner.passage_input(passage)).collect();
            match (inner.vectors(questions).await, inner.vectors(passages).await) {
                (Ok(questions), Ok(passages)) => inner.baseline.set(&questions, &passages),
                (Err(failure), _) | (_, Err(failure)) => {
                    tracing::debug!(?failure, "the baseline could not be measured yet");
                }
            }
        });
    }
}

impl Inner {
    fn query_input(&self, text: &str) -> String {
        format!("{}{text}", self.config.fields.query_prefix)
    }

    /// `header ␠ chunk`: without token states a context would be part of what is pooled.
    fn passage_input(&self, passage: &Passage) -> String {
        let Passage { context: _, header, chunk } = passage;
        let blank = if header.is_empty() { "" } else { " " };
        format!("{}{header}{blank}{chunk}", self.config.fields.document_prefix)
    }

    /// Whether this caller is the one to measure now.
    fn begins_measuring(&self) -> bool {
        let mut at = self.measured_at.lock().unwrap_or_else(PoisonError::into_inner);
        if at.is_some_and(|at| at.elapsed() < BASELINE_PAUSE) {
            return false;
        }
        *at = Some(Instant::now());
        true
    }

    /// For the baseline: all or nothing, request by request.
    async fn vectors(&self, inputs: Vec<String>) -> Result<Vec<Vec<f32>>, Failure> {
        let mut vectors = Vec::with_capacity(inputs.len());
        for piece in inputs.chunks(self.config.batch_texts) {
            vectors.extend(self.server.embed(piece, self.config.passages_timeout).await?);
        }
        Ok(vectors)
    }
}

/// Where to post: the base with whatever of `/v1/embeddings` is missing.
fn endpoint(base: &str) -> Result<Url, ExternalError> {
    let mut url = Url::parse(base).map_err(|_| ExternalError::Url { rule: "is not a URL" })?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(ExternalError::Url { rule: "must begin with http:// or https:// and name a host" });
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(ExternalError::Url { rule: "must not hold a password; use the token file" });
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(ExternalError::Url { rule: "must not have a query or a fragment" });
    }
    let path = url.path().trim_end_matches('/').to_owned();
    if path.ends_with("/embeddings") {
        url.set_path(&path);
    } else if path.ends_with("/v1") {
        url.set_path(&format!("{path}/embeddings"));
    } else {
        url.set_path(&format!("{path}/v1/embeddings"));
    }
    Ok(url)
}

#[async_trait]
impl Encoder for ExternalEncoder {
    fn fingerprint(&self) -> Fingerprint {
        self.inner.fingerprint
    }

    fn dimension(&self) -> usize {
        self.inner.server.dimension
    }

    fn model(&self) -> &str {
        &self.inner.config.fields.model
    }

    fn has_token_states(&self) -> bool {
        false
    }

    fn baseline(&self) -> Option<Baseline> {
        self.inner.baseline.get()
    }

    async fn encode_query(&self, work: Work, text: &str) -> Result<QueryEncoding, EncodeError> {
        let (lanes, timeout) = self.lanes(work.kind);
        let _admitted = lanes.admission.admit(work.lane, 1)?;
        let input = self.inner.query_input(text);
        let vector = {
            let _running = lanes.requests.acquire().await.map_err(|_| stopped())?;
            self.inner.server.embed(&[input], timeout).await?.pop()
        };
        self.measure_baseline_once();
        vector.map(QueryEncoding::Pooled).ok_or_else(stopped)
    }

    async fn encode_passages(&self, work: Work, passages: Vec<Passage>) -> Result<Vec<PassageVector>, EncodeError> {
        let (lanes, timeout) = self.lanes(work.kind);
        let mut vectors = Vec::with_capacity(passages.len());
        for piece in passages.chunks(self.inner.config.batch_texts) {
            // Admitted piece by piece, and in line with the other lanes for each: a long call gets
            // no more than its turn.
            let _admitted = lanes.admission.admit(work.lane, piece.len())?;
            let _running = lanes.requests.acquire().await.map_err(|_| stopped())?;
            let inputs: Vec<String> = piece.iter().map(|passage| self.inner.passage_input(passage)).collect();
            let mut results: Vec<Option<PassageVector>> = vec![None; piece.len()];
            // Halved when the server refuses it: until what it refuses is one text.
            let whole = 0..piece.len();
            let mut ranges = vec![whole];
            while let Some(range) = ranges.pop() {
                match self.inner.server.embed(&inputs[range.clone()], timeout).await {
                    Ok(answer) => {
                        for (slot, vector) in results[range].iter_mut().zip(answer) {
                            *slot = Some(PassageVector::Vector(vector));
                        }
                    }
                    Err(Failure::Input(_) | Failure::TooLarge) if range.len() > 1 => {
                        let middle = range.start + range.len() / 2;
                        ranges.extend([middle..range.end, range.start..middle]);
                    }
                    Err(Failure::TooLarge) if piece[range.start].chunk.chars().count() > SPLITTABLE_CHARS => {
                        results[range.start] = Some(PassageVector::ChunkTooLong);
                    }
                    Err(failure) => return Err(failure.into()),
                }
            }
            for result in results {
                vectors.push(result.ok_or_else(stopped)?);
            }
        }
        if !vectors.is_empty() {
            self.measure_baseline_once();
        }
        Ok(vectors)
    }
}

fn stopped() -> EncodeError {
    EncodeError::Unavailable { reason: "the request ended without an answer".into() }
}

#[cfg(test)]
#[path = "external_tests.rs"]
mod tests;
