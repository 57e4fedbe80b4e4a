//! The client against a real server on this machine that answers as each test wants.

use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use lanekeeper_core::fingerprint::DocumentPooling;
use serde_json::{Value, json};

use super::*;

const DIMENSION: usize = 4;

fn fields() -> FingerprintFields {
    FingerprintFields {
        model: "acme/small".into(),
        revision: None,
        weights_sha256: None,
        dimension: DIMENSION as u32,
        dtype: None,
        query_prefix: "query: ".into(),
        document_prefix: "passage: ".into(),
        document_pooling: Some(DocumentPooling::Server),
        query_pooling: None,
        max_tokens: None,
        normalise: None,
    }
}

fn work(kind: WorkKind) -> Work {
    Work { lane: "00000000-0000-4000-8000-000000000001".parse().unwrap(), kind }
}

fn passages(chunks: &[&str]) -> Vec<Passage> {
    let passage = |chunk: &&str| Passage { context: "ignored".into(), header: "[h]".into(), chunk: (*chunk).into() };
    chunks.iter().map(passage).collect()
}

/// What a request asks for.
fn inputs(body: &Value) -> Vec<String> {
    body["input"].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// A vector that tells its text: length and first byte of it.
fn numbers(text: &str) -> Vec<f64> {
    vec![text.len() as f64, f64::from(text.as_bytes()[0]), 1.0, 0.0]
}

fn unit(numbers: &[f64]) -> Vec<f32> {
    let norm = numbers.iter().map(|x| x * x).sum::<f64>().sqrt();
    numbers.iter().map(|x| (x / norm) as f32).collect()
}

fn good(body: &Value) -> Value {
    let data: Vec<Value> = inputs(body)
        .iter()
        .enumerate()
        // Backwards: the order of the answer means nothing.
        .rev()
        .map(|(index, text)| json!({"object": "embedding", "index": index, "embedding": numbers(text)}))
        .collect();
    json!({"object": "list", "model": "acme/small", "data": data, "usage": {"total_tokens": 1}})
}

/// Every request the server saw.
#[derive(Clone, Default)]
struct Seen(Arc<StdMutex<Vec<(HeaderMap, Value)>>>);

impl Seen {
    fn all(&self) -> Vec<(HeaderMap, Value)> {
        self.0.lock().unwrap().clone()
    }
}

async fn serve(answer: impl Fn(&Value) -> Response + Clone + Send + Sync + 'static) -> (String, Seen) {
    // The first of the tests to come installs it; main does in the program.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let seen = Seen::default();
    let log = seen.clone();
    let handler = move |headers: HeaderMap, body: Bytes| {
        let body: Value = serde_json::from_slice(&body).unwrap();
        let response = answer(&body);
        log.0.lock().unwrap().push((headers, body));
        async move { response }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/v1/embeddings", post(handler));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, seen)
}

fn encoder(url: &str) -> ExternalEncoder {
    ExternalEncoder::new(ExternalConfig::new(url, fields())).unwrap()
}

async fn ask(encoder: &ExternalEncoder) -> Result<QueryEncoding, EncodeError> {
    encoder.encode_query(work(WorkKind::Query), "secret-marker").await
}

async fn project(encoder: &ExternalEncoder, chunks: &[&str]) -> Result<Vec<PassageVector>, EncodeError> {
    encoder.encode_passages(work(WorkKind::Projection), passages(chunks)).await
}

#[tokio::test]
async fn vectors_come_in_the_order_of_the_inputs_in_batches_with_prefixes() {
    let (url, seen) = serve(|body| Json(good(body)).into_response()).await;
    let config = ExternalConfig { batch_texts: 2, ..ExternalConfig::new(format!("{url}/v1/"), fields()) };
    let encoder = ExternalEncoder::new(config).unwrap();
    let chunks = ["a", "bb", "ccc", "dddd", "eeeee"];
    let got = project(&encoder, &chunks).await.unwrap();
    let expected: Vec<_> =
        chunks.iter().map(|chunk| PassageVector::Vector(unit(&numbers(&format!("passage: [h] {chunk}"))))).collect();
    assert_eq!(got, expected);
    assert_eq!(ask(&encoder).await.unwrap(), QueryEncoding::Pooled(unit(&numbers("query: secret-marker"))));
    let first_four: Vec<_> = seen.all().iter().take(3).map(|(_, body)| inputs(body).len()).collect();
    assert_eq!(first_four, [2, 2, 1]);
    assert_eq!(seen.all()[0].1["model"], "acme/small");
    assert!(!encoder.has_token_states());
    assert_eq!((encoder.dimension(), encoder.model()), (DIMENSION, "acme/small"));
    assert_eq!(encoder.fingerprint(), fields().fingerprint());
}

#[tokio::test]
async fn the_token_is_read_from_its_file_each_time_and_printed_nowhere() {
    let (url, seen) = serve(|body| Json(good(body)).into_response()).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    let config = ExternalConfig { token_file: Some(file.clone()), ..ExternalConfig::new(url, fields()) };
    let encoder = ExternalEncoder::new(config).unwrap();
    let error = ask(&encoder).await.unwrap_err();
    assert!(matches!(&error, EncodeError::Unavailable { reason } if reason.contains("is not there")), "{error}");
    for token in ["first-token", "second-token"] {
        std::fs::write(&file, format!("{token}\n")).unwrap();
        ask(&encoder).await.unwrap();
        let wanted = format!("Bearer {token}");
        assert!(seen.all().iter().any(|(headers, _)| headers[header::AUTHORIZATION] == wanted.as_str()));
    }
    for bad in ["", "two words", "multi\nline"] {
        std::fs::write(&file, bad).unwrap();
        let error = ask(&encoder).await.unwrap_err().to_string();
        assert!(error.contains("visible characters"), "{error}");
        assert!(bad.is_empty() || !error.contains(bad), "{error}");
    }
    assert!(!format!("{encoder:?}").contains("second-token"));
}

#[tokio::test]
async fn each_status_has_its_own_meaning_and_no_error_quotes_the_server() {
    type IsRight = fn(&EncodeError) -> bool;
    let cases: [(u16, IsRight); 8] = [
        (429, |error| *error == EncodeError::Overloaded),
        (503, |error| matches!(error, EncodeError::Unavailable { .. })),
        (500, |error| matches!(error, EncodeError::Unavailable { .. })),
        (401, |error| matches!(error, EncodeError::Unavailable { reason } if reason.contains("token"))),
        (302, |error| matches!(error, EncodeError::Unavailable { .. })),
        (400, |error| matches!(error, EncodeError::Refused { .. })),
        (422, |error| matches!(error, EncodeError::Refused { .. })),
        (413, |error| matches!(error, EncodeError::Refused { .. })),
    ];
    for (status, is_right) in cases {
        let (url, seen) = serve(move |_| {
            let echo = "you sent secret-marker";
            (StatusCode::from_u16(status).unwrap(), [(header::LOCATION, "/v1/embeddings")], echo).into_response()
        })
        .await;
        let error = ask(&encoder(&url)).await.unwrap_err();
        assert!(is_right(&error), "{status}: {error}");
        assert!(!error.to_string().contains("secret-marker"), "{error}");
        assert_eq!(seen.all().len(), 1, "no retry, no redirect");
    }
}

#[tokio::test]
async fn what_was_not_declared_is_a_mismatch() {
    let other_dimension = |body: &Value| {
        let mut answer = good(body);
        answer["data"][0]["embedding"] = json!([1.0, 2.0, 3.0]);
        Json(answer).into_response()
    };
    let (url, _) = serve(other_dimension).await;
    let error = ask(&encoder(&url)).await.unwrap_err();
    assert!(matches!(&error, EncodeError::ModelMismatch { reason } if reason.contains("3 numbers")), "{error}");

    let other_model = |body: &Value| {
        let mut answer = good(body);
        answer["model"] = json!("acme/large");
        Json(answer).into_response()
    };
    let (url, _) = serve(other_model).await;
    let error = ask(&encoder(&url)).await.unwrap_err();
    assert!(matches!(&error, EncodeError::ModelMismatch { reason } if reason.contains("acme/large")), "{error}");
    let config =
        ExternalConfig { reported_model: Some("acme/large".into()), ..ExternalConfig::new(url.clone(), fields()) };
    ask(&ExternalEncoder::new(config).unwrap()).await.unwrap();
}

#[tokio::test]
async fn answers_that_are_not_vectors_are_refused() {
    type Answer = fn(&Value) -> Value;
    let broken: [(&str, Answer); 5] = [
        ("an index twice", |body| {
            json!({"data": [
            {"index": 0, "embedding": numbers(&inputs(body)[0])}, {"index": 0, "embedding": numbers("x")}]})
        }),
        ("an index too high", |_| json!({"data": [{"index": 1, "embedding": [1, 2, 3, 4]}]})),
        ("no vector", |_| json!({"data": []})),
        ("no data", |_| json!({"error": "secret-marker"})),
        ("a word", |_| json!({"data": [{"index": 0, "embedding": ["secret-marker", 2, 3, 4]}]})),
    ];
    for (what, answer) in broken {
        let (url, _) = serve(move |body| Json(answer(body)).into_response()).await;
        let error = ask(&encoder(&url)).await.unwrap_err();
        assert!(matches!(error, EncodeError::Unavailable { .. }), "{what}: {error}");
        assert!(!error.to_string().contains("secret-marker"), "{error}");
    }
    for numbers in ["1e39,1,1,1", "null,1,1,1", "0,0,0,0"] {
        let (url, _) =
            serve(move |_| format!(r#"{{"data":[{{"index":0,"embedding":[{numbers}]}}]}}"#).into_response()).await;
        let error = ask(&encoder(&url)).await.unwrap_err();
        assert!(matches!(error, EncodeError::Refused { .. }), "{numbers}: {error}");
    }
    for numbers in ["NaN,1,1,1", "1e999,1,1,1"] {
        let (url, _) =
            serve(move |_| format!(r#"{{"data":[{{"index":0,"embedding":[{numbers}]}}]}}"#).into_response()).await;
        let error = ask(&encoder(&url)).await.unwrap_err();
        assert!(matches!(error, EncodeError::Unavailable { .. }), "{numbers}: {error}");
    }
}

#[tokio::test]
async fn an_answer_is_not_read_without_bound() {
    // Valid but for its size: with a declared length, and in pieces without one.
    let padded = |body: &Value| format!("{}{}", good(body), " ".repeat(1 << 20));
    let (url, _) = serve(move |body| padded(body).into_response()).await;
    let (chunked_url, _) = serve(move |body| {
        let pieces = padded(body).into_bytes().chunks(1000).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let stream = futures::stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>));
        axum::body::Body::from_stream(stream).into_response()
    })
    .await;
    for url in [url, chunked_url] {
        let error = ask(&encoder(&url)).await.unwrap_err();
        assert!(matches!(&error, EncodeError::Unavailable { reason } if reason.contains("larger")), "{error}");
    }
}

#[tokio::test]
async fn one_bad_input_is_found_and_does_not_hide_that_others_are_too_long() {
    // The server takes at most two texts of up to 60 bytes.
    let strict = |body: &Value| {
        let texts = inputs(body);
        if texts.len() > 2 || texts.iter().any(|text| text.len() > 60) {
            return StatusCode::PAYLOAD_TOO_LARGE.into_response();
        }
        if texts.iter().any(|text| text.contains("poison")) {
            return StatusCode::BAD_REQUEST.into_response();
        }
        Json(good(body)).into_response()
    };
    let (url, _) = serve(strict).await;
    let encoder = encoder(&url);
    let long = "x".repeat(100);
    let got = project(&encoder, &["a", "b", &long, "d", "e"]).await.unwrap();
    let is_vector: Vec<bool> = got.iter().map(|one| matches!(one, PassageVector::Vector(_))).collect();
    assert_eq!(is_vector, [true, true, false, true, true]);
    assert_eq!(got[2], PassageVector::ChunkTooLong);
    assert_eq!(got[4], PassageVector::Vector(unit(&numbers("passage: [h] e"))));
    let error = project(&encoder, &["a", "b", "poison", "d"]).await.unwrap_err();
    assert!(matches!(error, EncodeError::Refused { .. }), "{error}");

    // Splitting has an end: a short text that is still too large is refused.
    let (url, _) = serve(|_| StatusCode::PAYLOAD_TOO_LARGE.into_response()).await;
    let error = project(&self::encoder(&url), &["short"]).await.unwrap_err();
    assert!(matches!(error, EncodeError::Refused { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_unavailable_in_time() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Accepts and stays silent.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let config = ExternalConfig { query_timeout: Duration::from_millis(50), ..ExternalConfig::new(&url, fields()) };
    let error = ask(&ExternalEncoder::new(config).unwrap()).await.unwrap_err();
    assert!(matches!(&error, EncodeError::Unavailable { reason } if reason.contains("in time")), "{error}");
    drop(listener);
    let error = ask(&encoder(&url)).await.unwrap_err();
    assert!(matches!(&error, EncodeError::Unavailable { reason } if reason.contains("reached")), "{error}");
}

#[tokio::test]
async fn a_lane_has_its_own_bounded_part() {
    let (url, _) = serve(|body| Json(good(body)).into_response()).await;
    let encoder = encoder(&url);
    // All the room of the lane is taken by others that wait.
    let room = encoder.inner.questions.admission.admit(work(WorkKind::Query).lane, QUERIES_PER_LANE).unwrap();
    assert_eq!(ask(&encoder).await.unwrap_err(), EncodeError::Overloaded);
    let other = Work { lane: "00000000-0000-4000-8000-000000000002".parse().unwrap(), kind: WorkKind::Query };
    encoder.encode_query(other, "x").await.unwrap();
    drop(room);
    ask(&encoder).await.unwrap();
}

#[tokio::test]
async fn the_baseline_is_measured_after_the_first_success() {
    let failures_left = Arc::new(AtomicUsize::new(1));
    let (url, _) = serve(move |body| {
        if failures_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        Json(good(body)).into_response()
    })
    .await;
    let encoder = encoder(&url);
    ask(&encoder).await.unwrap_err();
    assert_eq!(encoder.baseline(), None);
    ask(&encoder).await.unwrap();
    let baseline = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            match encoder.baseline() {
                Some(baseline) => return baseline,
                None => tokio::task::yield_now().await,
            }
        }
    })
    .await
    .unwrap();
    assert!(baseline.pairs >= 3600 && baseline.mean <= baseline.p99 && baseline.p99 <= 1.0, "{baseline:?}");
}

#[test]
fn an_url_is_completed_or_refused() {
    let endpoint = |base: &str| endpoint(base).map(|url| url.to_string()).map_err(|error| error.to_string());
    for (base, full) in [
        ("http://h:1", "http://h:1/v1/embeddings"),
        ("https://h/", "https://h/v1/embeddings"),
        ("https://h/v1", "https://h/v1/embeddings"),
        ("https://h/team/v1/", "https://h/team/v1/embeddings"),
        ("https://h/v1/embeddings", "https://h/v1/embeddings"),
    ] {
        assert_eq!(endpoint(base).unwrap(), full);
    }
    for bad in ["h:1", "ftp://h", "http://user:pass@h", "http://h?key=1", ""] {
        let error = endpoint(bad).unwrap_err();
        assert!(!error.contains("pass@"), "{error}");
    }
}
