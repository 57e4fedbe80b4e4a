//! What the operator asks over HTTP: a store how it is, an embedder for a test embedding.
//!
//! What must always hold: an answer is bounded in time and size; no text of a memory is asked for; a store is
//! believed only over TLS under our CA and for its own name.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use lanekeeper_core::attest::{self, LaneKey, Statement};
use lanekeeper_core::cluster;
use lanekeeper_core::encoder::Baseline;
use lanekeeper_core::fingerprint::Fingerprint;
use lanekeeper_core::wire::store::{StatusAnswer, path};
use lanekeeper_core::{LaneName, LaneUid, LogId};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::keys::Keys;
use crate::status::{Finding, Reason};

/// How long a store has.
const STORE: Duration = Duration::from_secs(3);
/// How long an embedder has.
const EMBEDDER: Duration = Duration::from_secs(20);
/// Largest answer read, bytes.
const ANSWER: usize = 4 * 1024 * 1024;
/// Sentences of the test embedding. About nothing, and nobody's.
const SENTENCES: usize = 16;

/// Asks.
#[derive(Debug, Default)]
pub struct Ask {
    /// A client that trusts our CA alone, and which CA that is.
    stores: Mutex<Option<(String, reqwest::Client)>>,
    embedders: reqwest::Client,
}

/// What an embedder that answers is like.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The 99th percentile of unrelated pairs, if it measures.
    pub baseline: Option<f64>,
    /// Vectors in a second.
    pub vectors_per_second: Option<i64>,
}

/// Whom to ask for a test embedding, and what must come.
#[derive(Debug, Clone)]
pub struct TestEmbedding<'a> {
    /// `http://…:7070` of our own server, the base of an OpenAI-compatible one.
    pub url: &'a str,
    /// Whether it is our own.
    pub is_ours: bool,
    /// As declared.
    pub model: &'a str,
    /// As declared.
    pub dimension: u32,
    /// Of the declared fields.
    pub fingerprint: Fingerprint,
    /// The key of an external one.
    pub token: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Info {
    fingerprint: Fingerprint,
    #[serde(default)]
    baseline: Option<Baseline>,
    #[serde(default)]
    vectors_per_second: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Embeddings {
    data: Vec<Embedding>,
}

#[derive(Debug, Deserialize)]
struct Embedding {
    embedding: Vec<Option<f64>>,
}

impl Ask {
    /// How a lane's store is. `None`: it did not answer; the reason is logged.
    pub async fn store(
        &self,
        keys: &Keys,
        lane: &LaneName,
        uid: LaneUid,
        log_id: LogId,
        now: Timestamp,
    ) -> Option<StatusAnswer> {
        let client = self.stores(keys)?;
        let key = LaneKey::derive(keys.master.expose(), uid, keys.version);
        let issued_at_ms = now.as_millisecond();
        let deadline = i64::try_from(STORE.as_millis()).unwrap_or(0);
        let statement = Statement {
            v: attest::VERSION,
            key_version: key.version(),
            lane_uid: uid,
            log_id,
            principal: None,
            reading_lane: None,
            scope: None,
            deadline_ms: issued_at_ms.saturating_add(deadline),
            issued_at_ms,
            nonce: Uuid::new_v4(),
        };
        let request = attest::Request {
            method: "GET",
            path_and_query: path::STATUS,
            body_sha256: &Sha256::digest(b"").into(),
            idempotency_key: None,
            if_match: None,
        };
        let header = attest::sign(&key, &statement, &request)?;
        let url = format!("{}{}", cluster::store_url(lane), path::STATUS);
        let answer = async {
            let answer = client.get(url).header(attest::HEADER, header).timeout(STORE).send().await?;
            read(answer.error_for_status()?).await
        };
        match answer.await {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(answer) => Some(answer),
                Err(error) => {
                    tracing::warn!(%lane, %error, "the store's status is not understood");
                    None
                }
            },
            Err(error) => {
                tracing::debug!(%lane, error = crate::error::chain(&error), "the store does not answer");
                None
            }
        }
    }

    fn stores(&self, keys: &Keys) -> Option<reqwest::Client> {
        let mut current = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((id, client)) = &*current
            && id == keys.authority.id()
        {
            return Some(client.clone());
        }
        let made = reqwest::Certificate::from_pem(keys.authority.certificate().as_bytes()).and_then(|authority| {
            reqwest::Client::builder().tls_certs_only([authority]).https_only(true).no_proxy().build()
        });
        match made {
            Ok(client) => {
                *current = Some((keys.authority.id().to_owned(), client.clone()));
                Some(client)
            }
            Err(error) => {
                tracing::error!(error = crate::error::chain(&error), "no client for stores");
                None
            }
        }
    }

    /// Has some sentences embedded. `Err` is what the condition says.
    pub async fn embedder(&self, test: &TestEmbedding<'_>) -> Result<Measured, Finding> {
        let info = if test.is_ours { Some(self.info(test).await?) } else { None };
        let base = test.url.trim_end_matches('/');
        let url = if test.is_ours { format!("{base}/v1/embeddings") } else { format!("{base}/embeddings") };
        let sentences: Vec<String> =
            (1..=SENTENCES).map(|number| format!("Test sentence number {number} of the operator.")).collect();
        let body = serde_json::json!({"model": test.model, "input": sentences, "encoding_format": "float"});
        let mut request = self.embedders.post(url).json(&body).timeout(EMBEDDER);
        if let Some(token) = &test.token {
            request = request.bearer_auth(token);
        }
        let started = Instant::now();
        let bytes = answered(request, test.url).await?;
        let seconds = started.elapsed().as_secs_f64().max(0.001);
        let embeddings: Embeddings = serde_json::from_slice(&bytes).map_err(|_| {
            Finding::no(Reason::ModelMismatch, format!("{} does not answer as the OpenAI API does", test.url))
        })?;
        judge(&embeddings, test)?;
        let measured = info.as_ref().and_then(|info| info.vectors_per_second).unwrap_or(SENTENCES as f64 / seconds);
        #[expect(clippy::cast_possible_truncation, reason = "a rate; the cast saturates")]
        let vectors_per_second = Some(measured.round().max(1.0) as i64);
        let baseline = info.and_then(|info| info.baseline).map(|baseline| f64::from(baseline.p99));
        Ok(Measured { baseline: baseline.map(three_digits), vectors_per_second })
    }

    async fn info(&self, test: &TestEmbedding<'_>) -> Result<Info, Finding> {
        let url = format!("{}/v1/info", test.url.trim_end_matches('/'));
        let bytes = answered(self.embedders.get(url).timeout(EMBEDDER), test.url).await?;
        let info: Info = serde_json::from_slice(&bytes)
            .map_err(|_| Finding::no(Reason::ModelMismatch, format!("{} does not say what it serves", test.url)))?;
        if info.fingerprint != test.fingerprint {
            let message = format!(
                "the server has the fingerprint {}, declared is {}",
                info.fingerprint.short(),
                test.fingerprint.short()
            );
            return Err(Finding::no(Reason::ModelMismatch, message));
        }
        Ok(info)
    }
}

/// Enough for a reader, and not so much that it changes at each start.
fn three_digits(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn judge(embeddings: &Embeddings, test: &TestEmbedding<'_>) -> Result<(), Finding> {
    let no = |message: String| Err(Finding::no(Reason::ModelMismatch, message));
    if embeddings.data.len() != SENTENCES {
        return no(format!("{SENTENCES} texts gave {} vectors", embeddings.data.len()));
    }
    for Embedding { embedding } in &embeddings.data {
        if embedding.len() != test.dimension as usize {
            return no(format!("a vector has {} numbers, declared are {}", embedding.len(), test.dimension));
        }
        if !embedding.iter().all(|number| number.is_some_and(f64::is_finite)) {
            return no("a vector holds what is no number".to_owned());
        }
    }
    Ok(())
}

async fn answered(request: reqwest::RequestBuilder, url: &str) -> Result<Vec<u8>, Finding> {
    let unreachable = |why: String| Finding::no(Reason::EmbedderUnreachable, format!("{url} {why}"));
    let answer = request.send().await.map_err(|error| {
        let why = if error.is_timeout() { "does not answer in time" } else { "cannot be reached" };
        unreachable(why.to_owned())
    })?;
    match answer.status().as_u16() {
        200..=299 => {}
        401 | 403 => return Err(unreachable("refuses the key".to_owned())),
        409 => return Err(Finding::no(Reason::ModelMismatch, format!("{url} serves another model"))),
        status => return Err(unreachable(format!("answers with status {status}"))),
    }
    read(answer).await.map_err(|_| unreachable("breaks off its answer".to_owned()))
}

/// The body, up to the bound; what is longer is cut, and then not understood.
async fn read(mut answer: reqwest::Response) -> Result<Vec<u8>, reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > ANSWER {
            bytes.truncate(ANSWER);
            break;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::fingerprint::FingerprintFields;

    use super::*;

    #[test]
    fn a_test_embedding_must_have_the_declared_length_and_be_numbers() {
        let test = TestEmbedding {
            url: "http://x",
            is_ours: false,
            model: "m",
            dimension: 2,
            fingerprint: FingerprintFields::builtin().fingerprint(),
            token: None,
        };
        let of = |vector: Vec<Option<f64>>, count: usize| Embeddings {
            data: (0..count).map(|_| Embedding { embedding: vector.clone() }).collect(),
        };
        assert_eq!(judge(&of(vec![Some(1.0), Some(0.5)], SENTENCES), &test), Ok(()));
        for bad in [
            of(vec![Some(1.0)], SENTENCES),
            of(vec![Some(1.0), None], SENTENCES),
            of(vec![Some(1.0), Some(f64::INFINITY)], SENTENCES),
            of(vec![Some(1.0), Some(0.5)], 1),
        ] {
            assert_eq!(judge(&bad, &test).unwrap_err().reason, Reason::ModelMismatch);
        }
    }
}
