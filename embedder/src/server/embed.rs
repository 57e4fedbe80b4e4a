//! `POST /v1/embed`: encodings for our own client.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use lanekeeper_core::encoder::{EncodeError, Encoder, Passage, Work, WorkKind};
use lanekeeper_core::wire::encoding::{EncodingError, WireEncoding};

use super::{Embedder, Problem};
use crate::remote_wire::{EmbedAnswer, EmbedRequest, PASSAGES, WireResult, WireVector, WireWork};

/// What cannot be sent is not the input's fault alone: the model made numbers that the form cannot hold.
fn unsendable(error: EncodingError) -> EncodeError {
    EncodeError::Refused { reason: error.to_string() }
}

/// The parser's own words may quote the text.
pub(super) fn body<T>(body: Result<Json<T>, JsonRejection>) -> Result<T, Problem> {
    match body {
        Ok(Json(body)) => Ok(body),
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => Err(Problem {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            code: "too_large",
            detail: "the body is too large".to_owned(),
        }),
        Err(_) => Err(Problem::refused("the body is not of its form")),
    }
}

pub(super) async fn embed(
    State(embedder): State<Arc<Embedder>>,
    request: Result<Json<EmbedRequest>, JsonRejection>,
) -> Result<Json<EmbedAnswer>, Problem> {
    let EmbedRequest { fingerprint, lane, work } = body(request)?;
    let encoder = embedder.encoder()?;
    if encoder.fingerprint() != fingerprint {
        let reason = format!("this server's fingerprint is {}", encoder.fingerprint().short());
        return Err(EncodeError::ModelMismatch { reason }.into());
    }
    let question = async |text: String, kind| -> Result<WireResult, EncodeError> {
        let encoding = encoder.encode_query(Work { lane, kind }, &text).await?;
        Ok(WireResult::Question(WireEncoding::write(&encoding).map_err(unsendable)?))
    };
    let started = Instant::now();
    let (label, outcome) = match work {
        WireWork::Question(text) => ("question", question(text, WorkKind::Query).await),
        WireWork::ProjectedQuestion(text) => ("projected_question", question(text, WorkKind::Projection).await),
        WireWork::Passages(passages) if passages.len() > PASSAGES => {
            return Err(Problem::refused("at most 64 passages a request"));
        }
        WireWork::Passages(passages) => {
            let count = passages.len();
            let passages = passages.into_iter().map(Into::into).collect();
            let outcome = vectors(encoder.as_ref(), Work { lane, kind: WorkKind::Projection }, passages).await;
            if outcome.is_ok() {
                embedder.rate.add(count, started.elapsed());
                embedder.metrics.passages(count);
            }
            ("passages", outcome)
        }
    };
    embedder.metrics.encoded(label, outcome.as_ref().err(), started.elapsed());
    Ok(Json(EmbedAnswer { fingerprint: encoder.fingerprint(), result: outcome? }))
}

async fn vectors(encoder: &dyn Encoder, work: Work, passages: Vec<Passage>) -> Result<WireResult, EncodeError> {
    let vectors = encoder.encode_passages(work, passages).await?;
    let vectors = vectors.iter().map(WireVector::write).collect::<Result<_, _>>().map_err(unsendable)?;
    Ok(WireResult::Passages(vectors))
}
