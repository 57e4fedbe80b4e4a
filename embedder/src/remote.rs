//! A client of our own embedder's server: token states for questions, vectors for passages.
//!
//! What always holds: what a server of another fingerprint or dimension answers is refused as
//! [`EncodeError::ModelMismatch`], whoever stands behind the address now; no text goes into an error or a log; an
//! answer is read only as far as what was asked for can need.
//!
//! What it deliberately does not do: retry (callers know how urgent they are) or follow redirects.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::encoder::{Baseline, EncodeError, Encoder, Passage, PassageVector, QueryEncoding, Work, WorkKind};
use lanekeeper_core::fingerprint::{BUILTIN_MODEL, Fingerprint};
use reqwest::{StatusCode, Url};
use serde::de::DeserializeOwned;

use crate::external::ExternalError;
use crate::remote_wire::{EMBED, EmbedAnswer, EmbedProblem, EmbedRequest, INFO, Info, PASSAGES, WireResult, WireWork};

/// For what stands around numbers in an answer, bytes.
const BYTES_AROUND: usize = 256 * 1024;
/// Tokens of one question, generously.
const TOKENS: usize = 1024;
/// Time for `GET /v1/info`.
const INFO_WAIT: Duration = Duration::from_secs(5);
/// How often a server is asked what it serves until its baseline is known, and how often after that.
const ASK_SOON: Duration = Duration::from_secs(5);
const ASK_LATER: Duration = Duration::from_secs(300);

/// What is declared about a server.
#[derive(Debug, Clone)]
pub struct RemoteConfig {
    /// Its base: `http://host:port`.
    pub url: String,
    /// What its vectors must be comparable with.
    pub fingerprint: Fingerprint,
    /// Length of a vector.
    pub dimension: usize,
    /// Model name, for payloads and coverage.
    pub model: String,
    /// Time for a question.
    pub query_timeout: Duration,
    /// Time for a batch of passages.
    pub passages_timeout: Duration,
}

impl RemoteConfig {
    /// The usual limits; our server serves the built-in model.
    #[must_use]
    pub fn new(url: impl Into<String>, fingerprint: Fingerprint, dimension: usize) -> Self {
        Self {
            url: url.into(),
            fingerprint,
            dimension,
            model: BUILTIN_MODEL.to_owned(),
            query_timeout: Duration::from_secs(4),
            passages_timeout: Duration::from_secs(60),
        }
    }
}

/// The client. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RemoteEncoder {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: RemoteConfig,
    client: reqwest::Client,
    embed: Url,
    info: Url,
    baseline: Mutex<Option<Baseline>>,
}

impl RemoteEncoder {
    /// A client for what is declared; fails only for an address that can never work. Within a runtime the server is
    /// asked for its baseline in the background. The process must have installed its rustls provider.
    pub fn new(config: RemoteConfig) -> Result<Self, ExternalError> {
        if config.dimension == 0 {
            return Err(ExternalError::Zero { field: "the dimension" });
        }
        let base = Url::parse(&config.url).map_err(|_| ExternalError::Url { rule: "is not a URL" })?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err(ExternalError::Url { rule: "must begin with http:// or https:// and name a host" });
        }
        let at = |path: &str| {
            let mut url = base.clone();
            url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
            url
        };
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(2))
            .build()
            .map_err(ExternalError::Client)?;
        let inner = Arc::new(Inner { embed: at(EMBED), info: at(INFO), client, baseline: Mutex::default(), config });
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(follow(Arc::downgrade(&inner)));
        }
        Ok(Self { inner })
    }

    /// What the server says that it serves; a server of another model is a mismatch.
    pub async fn info(&self) -> Result<Info, EncodeError> {
        self.inner.info().await
    }
}

/// Keeps the baseline known for as long as there is a client.
async fn follow(inner: Weak<Inner>) {
    loop {
        let Some(inner) = inner.upgrade() else { return };
        let known = inner.info().await.is_ok_and(|info| info.baseline.is_some());
        drop(inner);
        tokio::time::sleep(if known { ASK_LATER } else { ASK_SOON }).await;
    }
}

fn unavailable(reason: impl Into<String>) -> EncodeError {
    EncodeError::Unavailable { reason: reason.into() }
}

fn mismatch(reason: impl Into<String>) -> EncodeError {
    EncodeError::ModelMismatch { reason: reason.into() }
}

impl Inner {
    fn check(&self, fingerprint: Fingerprint) -> Result<(), EncodeError> {
        let wanted = self.config.fingerprint;
        if fingerprint == wanted {
            return Ok(());
        }
        Err(mismatch(format!(
            "the server's fingerprint is {}, the declared one {}",
            fingerprint.short(),
            wanted.short()
        )))
    }

    async fn info(&self) -> Result<Info, EncodeError> {
        let request = self.client.get(self.info.clone()).timeout(INFO_WAIT);
        let info: Info = answer(request, BYTES_AROUND).await?;
        self.check(info.fingerprint)?;
        if info.dimension as usize != self.config.dimension {
            return Err(mismatch(format!("the server's vectors have {} dimensions", info.dimension)));
        }
        if info.baseline.is_some() {
            *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = info.baseline;
        }
        Ok(info)
    }

    async fn embed(
        &self,
        work: Work,
        wire: WireWork,
        timeout: Duration,
        numbers: usize,
    ) -> Result<WireResult, EncodeError> {
        let body = EmbedRequest { fingerprint: self.config.fingerprint, lane: work.lane, work: wire };
        let request = self.client.post(self.embed.clone()).timeout(timeout).json(&body);
        // A number takes 4 bytes, in base64 at most 6.
        let EmbedAnswer { fingerprint, result } =
            answer(request, numbers.saturating_mul(6).saturating_add(BYTES_AROUND)).await?;
        self.check(fingerprint)?;
        Ok(result)
    }

    fn checked(&self, vector: Vec<f32>) -> Result<Vec<f32>, EncodeError> {
        if vector.len() == self.config.dimension {
            return Ok(vector);
        }
        Err(mismatch(format!("a vector has {} dimensions, {} are declared", vector.len(), self.config.dimension)))
    }
}

/// An answer of at most `limit` bytes, as JSON.
async fn answer<T: DeserializeOwned>(request: reqwest::RequestBuilder, limit: usize) -> Result<T, EncodeError> {
    let mut response = request.send().await.map_err(|error| unreachable(&error))?;
    let status = response.status();
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| unreachable(&error))? {
        if bytes.len() + piece.len() > limit {
            return Err(unavailable(format!("the server's answer is larger than {limit} bytes")));
        }
        bytes.extend_from_slice(&piece);
    }
    if status.is_success() {
        return serde_json::from_slice(&bytes).map_err(|_| unavailable("the server's answer is not of its form"));
    }
    // Only a problem of our own form is believed: a proxy may answer with the same status.
    let problem: Option<EmbedProblem> = serde_json::from_slice(&bytes).ok();
    Err(match (status, problem.as_ref().map(|problem| problem.code.as_str())) {
        (StatusCode::TOO_MANY_REQUESTS, _) => EncodeError::Overloaded,
        (_, Some("model_mismatch")) => mismatch("the server serves another fingerprint"),
        (_, Some("refused")) => EncodeError::Refused { reason: "the server refuses the input".into() },
        (status, _) => unavailable(format!("the server answers with status {}", status.as_u16())),
    })
}

/// reqwest's own message may hold the URL; its kind is enough.
fn unreachable(error: &reqwest::Error) -> EncodeError {
    unavailable(if error.is_timeout() {
        "the server does not answer in time"
    } else if error.is_connect() {
        "the server cannot be reached"
    } else {
        "the connection to the server broke"
    })
}

#[async_trait]
impl Encoder for RemoteEncoder {
    fn fingerprint(&self) -> Fingerprint {
        self.inner.config.fingerprint
    }

    fn dimension(&self) -> usize {
        self.inner.config.dimension
    }

    fn model(&self) -> &str {
        &self.inner.config.model
    }

    fn has_token_states(&self) -> bool {
        true
    }

    fn baseline(&self) -> Option<Baseline> {
        *self.inner.baseline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn encode_query(&self, work: Work, text: &str) -> Result<QueryEncoding, EncodeError> {
        let (wire, timeout) = match work.kind {
            WorkKind::Query => (WireWork::Question(text.to_owned()), self.inner.config.query_timeout),
            WorkKind::Projection => (WireWork::ProjectedQuestion(text.to_owned()), self.inner.config.passages_timeout),
        };
        let numbers = TOKENS * self.inner.config.dimension;
        let WireResult::Question(encoding) = self.inner.embed(work, wire, timeout, numbers + text.len()).await? else {
            return Err(unavailable("the server answered another question"));
        };
        let encoding = encoding.read().map_err(|error| unavailable(error.to_string()))?;
        match encoding {
            QueryEncoding::States { text, tokens } => {
                let fits = |state: &[f32]| state.len() == self.inner.config.dimension;
                if tokens.iter().all(|token| fits(&token.state)) {
                    return Ok(QueryEncoding::States { text, tokens });
                }
                Err(mismatch("the server's token states have another dimension"))
            }
            // We say that there are states, and lanes pool on that.
            QueryEncoding::Pooled(_) => Err(mismatch("the server pools by itself")),
        }
    }

    async fn encode_passages(&self, work: Work, passages: Vec<Passage>) -> Result<Vec<PassageVector>, EncodeError> {
        let mut vectors = Vec::with_capacity(passages.len());
        let mut passages = passages.into_iter();
        loop {
            let piece: Vec<_> = passages.by_ref().take(PASSAGES).map(Into::into).collect();
            if piece.is_empty() {
                return Ok(vectors);
            }
            let count = piece.len();
            let numbers = count * self.inner.config.dimension;
            let timeout = self.inner.config.passages_timeout;
            let WireResult::Passages(answer) =
                self.inner.embed(work, WireWork::Passages(piece), timeout, numbers).await?
            else {
                return Err(unavailable("the server answered another question"));
            };
            if answer.len() != count {
                return Err(unavailable("the server's answer does not have one entry a passage"));
            }
            for vector in answer {
                vectors.push(match vector.read().map_err(|error| unavailable(error.to_string()))? {
                    PassageVector::Vector(vector) => PassageVector::Vector(self.inner.checked(vector)?),
                    PassageVector::ChunkTooLong => PassageVector::ChunkTooLong,
                });
            }
        }
    }
}
