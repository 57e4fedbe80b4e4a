//! A server with the OpenAI embeddings API over the deterministic encoder, for tests of the real process
//! and of its real client.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use lanekeeper_core::LaneUid;
use lanekeeper_core::encoder::{Encoder, QueryEncoding, Work, WorkKind};
use lanekeeper_core::testing::HashEncoder;
use serde_json::{Value, json};

/// Length of its vectors.
pub const DIMENSION: usize = 64;
/// Its model's name.
pub const MODEL: &str = "hash-pooled";

/// Starts it on a free port of this machine; it ends with the test's runtime.
pub async fn start() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/v1/embeddings", post(embed)).with_state(Arc::new(HashEncoder::pooled()));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

async fn embed(State(encoder): State<Arc<HashEncoder>>, Json(body): Json<Value>) -> Json<Value> {
    let texts: Vec<String> = match &body["input"] {
        Value::String(text) => vec![text.clone()],
        Value::Array(texts) => texts.iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => vec![],
    };
    let work = Work { lane: LaneUid::from_uuid(uuid::Uuid::nil()), kind: WorkKind::Query };
    let mut data = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let Ok(QueryEncoding::Pooled(vector)) = encoder.encode_query(work, text).await else { continue };
        data.push(json!({"object": "embedding", "index": index, "embedding": vector}));
    }
    Json(json!({"object": "list", "model": MODEL, "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}}))
}
