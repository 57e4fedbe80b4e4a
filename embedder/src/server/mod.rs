//! The embedder as a server of its own: one model, shared by all lanes of its fingerprint.
//!
//! `POST /v1/embed` and `GET /v1/info` for our own client ([`crate::RemoteEncoder`]), `POST /v1/embeddings` for
//! clients of the OpenAI API, `/healthz` and `/readyz` for probes. Until the model is loaded everything but
//! `/healthz` answers 503.
//!
//! What must always hold: no text that is embedded reaches a log, a metric or an error; a request for another
//! fingerprint is refused; a full queue is 429 at once.
//!
//! Not here: who may ask. NetworkPolicies let stores and query-service in; texts are not kept.

mod embed;
mod embeddings;
mod metrics;
mod rate;

use std::sync::{Arc, OnceLock};

use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use lanekeeper_core::LaneUid;
use lanekeeper_core::encoder::{EncodeError, Encoder, Passage, Work, WorkKind};
use lanekeeper_core::fingerprint::FingerprintFields;

use crate::remote_wire::{EMBED, EmbedProblem, INFO, Info, REQUEST_BYTES};

/// What the server is made of. Shared by both routers.
pub struct Embedder {
    fields: FingerprintFields,
    encoder: OnceLock<Arc<dyn Encoder>>,
    rate: rate::Rate,
    metrics: metrics::Metrics,
}

impl std::fmt::Debug for Embedder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedder").field("fields", &self.fields).finish_non_exhaustive()
    }
}

impl Embedder {
    /// A server whose model comes later.
    #[must_use]
    pub fn new(fields: FingerprintFields) -> Arc<Self> {
        Arc::new(Self {
            fields,
            encoder: OnceLock::new(),
            rate: rate::Rate::default(),
            metrics: metrics::Metrics::default(),
        })
    }

    /// Hands in the model. False: it has another fingerprint than the server was made for, or there is one.
    pub fn provide(&self, encoder: Arc<dyn Encoder>) -> bool {
        encoder.fingerprint() == self.fields.fingerprint() && self.encoder.set(encoder).is_ok()
    }

    /// Encodes some passages once, so that there is a rate before the first lane asks.
    pub async fn warm_up(&self) -> Result<(), EncodeError> {
        let passage = |n: u32| Passage {
            context: String::new(),
            header: String::new(),
            chunk: format!("Warm-up sentence number {n}: the quick brown fox jumps over the lazy dog."),
        };
        let work = Work { lane: LaneUid::from_uuid(uuid::Uuid::nil()), kind: WorkKind::Projection };
        let encoder = self.encoder()?;
        let started = std::time::Instant::now();
        let vectors = encoder.encode_passages(work, (0..32).map(passage).collect()).await?;
        self.rate.add(vectors.len(), started.elapsed());
        Ok(())
    }

    fn encoder(&self) -> Result<&Arc<dyn Encoder>, EncodeError> {
        self.encoder.get().ok_or_else(|| EncodeError::Unavailable { reason: "the model is not loaded yet".into() })
    }
}

/// The API.
pub fn router(embedder: &Arc<Embedder>) -> Router {
    Router::new()
        .route(EMBED, post(embed::embed))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route(INFO, get(info))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES))
        .route("/healthz", get(|| async { StatusCode::OK }))
        .route("/readyz", get(readyz))
        .with_state(Arc::clone(embedder))
}

/// `GET /metrics`, for a port of its own.
pub fn metrics_router(embedder: &Arc<Embedder>) -> Router {
    Router::new().route("/metrics", get(metrics::serve)).with_state(Arc::clone(embedder))
}

async fn info(State(embedder): State<Arc<Embedder>>) -> Result<Json<Info>, Problem> {
    let encoder = embedder.encoder()?;
    Ok(Json(Info {
        fingerprint: encoder.fingerprint(),
        fields: embedder.fields.clone(),
        model: encoder.model().to_owned(),
        dimension: u32::try_from(encoder.dimension()).unwrap_or(u32::MAX),
        token_states: encoder.has_token_states(),
        baseline: encoder.baseline(),
        vectors_per_second: embedder.rate.per_second(),
    }))
}

async fn readyz(State(embedder): State<Arc<Embedder>>) -> StatusCode {
    if embedder.encoder.get().is_some() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// An error as an answer.
#[derive(Debug)]
struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
}

impl Problem {
    fn refused(detail: &str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code: "refused", detail: detail.to_owned() }
    }
}

impl From<EncodeError> for Problem {
    fn from(error: EncodeError) -> Self {
        let detail = error.to_string();
        let (status, code) = match error {
            EncodeError::Overloaded => (StatusCode::TOO_MANY_REQUESTS, "overloaded"),
            EncodeError::Unavailable { .. } => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            EncodeError::ModelMismatch { .. } => (StatusCode::CONFLICT, "model_mismatch"),
            EncodeError::Refused { .. } => (StatusCode::BAD_REQUEST, "refused"),
        };
        Self { status, code, detail }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, code, detail } = self;
        let mut response = (status, Json(EmbedProblem { code: code.to_owned(), detail })).into_response();
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(axum::http::header::RETRY_AFTER, axum::http::HeaderValue::from_static("1"));
        }
        response
    }
}
