//! `POST /v1/embeddings`: the OpenAI API, for other clients and for a test embedding. Each input is a passage
//! without context, so its vector is the mean over all its tokens.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use lanekeeper_core::LaneUid;
use lanekeeper_core::encoder::{Passage, PassageVector, Work, WorkKind};
use serde::{Deserialize, Serialize};

use super::embed::body;
use super::{Embedder, Problem};
use crate::remote_wire::PASSAGES;

/// One text, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Input {
    One(String),
    Several(Vec<String>),
}

/// Fields that other clients send and that change nothing here are passed over.
#[derive(Debug, Deserialize)]
pub(super) struct EmbeddingsRequest {
    input: Input,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    encoding_format: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Embeddings {
    object: &'static str,
    model: String,
    data: Vec<Embedding>,
}

#[derive(Debug, Serialize)]
struct Embedding {
    object: &'static str,
    index: usize,
    embedding: Vec<f32>,
}

pub(super) async fn embeddings(
    State(embedder): State<Arc<Embedder>>,
    request: Result<Json<EmbeddingsRequest>, JsonRejection>,
) -> Result<Json<Embeddings>, Problem> {
    let EmbeddingsRequest { input, model, encoding_format } = body(request)?;
    let encoder = embedder.encoder()?;
    if model.is_some_and(|model| model != encoder.model()) {
        return Err(Problem::refused("this server serves another model"));
    }
    if encoding_format.is_some_and(|format| format != "float") {
        return Err(Problem::refused("encoding_format can only be float"));
    }
    let texts = match input {
        Input::One(text) => vec![text],
        Input::Several(texts) => texts,
    };
    if texts.is_empty() || texts.len() > PASSAGES || texts.iter().any(|text| text.trim().is_empty()) {
        return Err(Problem::refused("input must be 1 to 64 texts, none of them blank"));
    }
    let passage = |chunk| Passage { context: String::new(), header: String::new(), chunk };
    // Nobody's lane: in the queue it is one among others.
    let work = Work { lane: LaneUid::from_uuid(uuid::Uuid::nil()), kind: WorkKind::Projection };
    let vectors = encoder.encode_passages(work, texts.into_iter().map(passage).collect()).await?;
    let mut data = Vec::with_capacity(vectors.len());
    for (index, vector) in vectors.into_iter().enumerate() {
        match vector {
            PassageVector::Vector(embedding) => data.push(Embedding { object: "embedding", index, embedding }),
            PassageVector::ChunkTooLong => {
                return Err(Problem::refused("an input has more tokens than the model reads"));
            }
        }
    }
    Ok(Json(Embeddings { object: "list", model: encoder.model().to_owned(), data }))
}
