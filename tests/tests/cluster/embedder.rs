//! The embedder's server and its client: encodings come over unchanged but for half precision, another fingerprint
//! is refused, and overload is said as such.

use std::net::SocketAddr;
use std::sync::Arc;

use lanekeeper_core::LaneUid;
use lanekeeper_core::encoder::{EncodeError, Encoder, Passage, PassageVector, QueryEncoding, Work, WorkKind};
use lanekeeper_core::fingerprint::FingerprintFields;
use lanekeeper_core::testing::{Behaviour, HashEncoder};
use lanekeeper_embedder::server::{Embedder, metrics_router, router};
use lanekeeper_embedder::{RemoteConfig, RemoteEncoder};
use serde_json::json;

use super::stage::{install_tls, until};

fn fields() -> FingerprintFields {
    FingerprintFields { model: "hash".into(), dimension: 64, ..FingerprintFields::builtin() }
}

fn work(kind: WorkKind) -> Work {
    Work { lane: LaneUid::from_uuid(uuid::Uuid::from_u128(1)), kind }
}

fn passage(chunk: &str) -> Passage {
    Passage { context: "before".into(), header: "[log x y]".into(), chunk: chunk.into() }
}

async fn listen(app: axum::Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn client(address: SocketAddr, fields: &FingerprintFields, dimension: usize) -> RemoteEncoder {
    install_tls();
    let config = RemoteConfig {
        model: "hash".into(),
        ..RemoteConfig::new(format!("http://{address}"), fields.fingerprint(), dimension)
    };
    RemoteEncoder::new(config).unwrap()
}

#[tokio::test]
async fn encodings_come_over() {
    let embedder = Embedder::new(fields());
    let address = listen(router(&embedder)).await;
    let remote = client(address, &fields(), 64);
    let ready = async || reqwest::get(format!("http://{address}/readyz")).await.unwrap().status().as_u16();
    assert_eq!(ready().await, 503);
    let unloaded = remote.encode_query(work(WorkKind::Query), "x").await.unwrap_err();
    assert!(matches!(unloaded, EncodeError::Unavailable { .. }));

    let local = HashEncoder::new();
    assert!(embedder.provide(Arc::new(local.clone())));
    assert!(!embedder.provide(Arc::new(local.clone())), "one model");
    embedder.warm_up().await.unwrap();
    assert_eq!(ready().await, 200);
    let info = remote.info().await.unwrap();
    assert_eq!((info.fingerprint, info.dimension, info.fields), (fields().fingerprint(), 64, fields()));
    assert!(info.vectors_per_second.unwrap() > 0.0);

    for kind in [WorkKind::Query, WorkKind::Projection] {
        let over = remote.encode_query(work(kind), "where is Ärger").await.unwrap();
        let within = local.encode_query(work(kind), "where is Ärger").await.unwrap();
        let (QueryEncoding::States { text, tokens }, QueryEncoding::States { text: expected, tokens: states }) =
            (over, within)
        else {
            panic!("token states")
        };
        assert_eq!((text, tokens.len()), (expected, states.len()));
        for (over, within) in tokens.iter().zip(&states) {
            assert_eq!((over.start, over.end), (within.start, within.end));
            assert!(over.state.iter().zip(&within.state).all(|(a, b)| (a - b).abs() < 1e-3));
        }
    }
    // More than one request's worth, in order, one of them too long.
    let mut passages: Vec<Passage> = (0..150).map(|n| passage(&format!("passage number {n}"))).collect();
    passages[70] = passage(&"word ".repeat(300));
    let over = remote.encode_passages(work(WorkKind::Projection), passages.clone()).await.unwrap();
    assert_eq!(over, local.encode_passages(work(WorkKind::Projection), passages).await.unwrap());
    assert_eq!(over[70], PassageVector::ChunkTooLong);
    assert!(remote.encode_passages(work(WorkKind::Projection), vec![]).await.unwrap().is_empty());

    local.behave(Behaviour::Overloaded);
    assert_eq!(remote.encode_query(work(WorkKind::Query), "x").await.unwrap_err(), EncodeError::Overloaded);
    local.behave(Behaviour::Down);
    assert!(matches!(
        remote.encode_passages(work(WorkKind::Projection), vec![passage("x")]).await.unwrap_err(),
        EncodeError::Unavailable { .. }
    ));
    let metrics = listen(metrics_router(&embedder)).await;
    let text = reqwest::get(format!("http://{metrics}/metrics")).await.unwrap().text().await.unwrap();
    assert!(text.contains(r#"outcome="overloaded""#) && !text.contains("Ärger"), "{text}");
}

#[tokio::test]
async fn a_server_of_another_model_is_refused_by_both_sides() {
    let embedder = Embedder::new(fields());
    embedder.provide(Arc::new(HashEncoder::new()));
    let address = listen(router(&embedder)).await;
    let other = FingerprintFields { revision: Some("2".into()), ..fields() };
    let mismatch = |error: EncodeError| assert!(matches!(error, EncodeError::ModelMismatch { .. }), "{error:?}");
    let remote = client(address, &other, 64);
    mismatch(remote.encode_query(work(WorkKind::Query), "x").await.unwrap_err());
    mismatch(remote.encode_passages(work(WorkKind::Projection), vec![passage("x")]).await.unwrap_err());
    mismatch(remote.info().await.unwrap_err());
    let remote = client(address, &fields(), 65);
    mismatch(remote.info().await.unwrap_err());
    mismatch(remote.encode_query(work(WorkKind::Query), "x").await.unwrap_err());
    // One that ignores what was asked for.
    let liar = axum::Router::new().route(
        "/v1/embed",
        axum::routing::post(|| async {
            axum::Json(json!({"fingerprint": FingerprintFields::builtin().fingerprint(), "result": {"passages": []}}))
        }),
    );
    let remote = client(listen(liar).await, &fields(), 64);
    mismatch(remote.encode_query(work(WorkKind::Query), "x").await.unwrap_err());
    // One that pools by itself: its encoder is not the declared one.
    assert!(!Embedder::new(fields()).provide(Arc::new(HashEncoder::pooled())));
}

#[tokio::test]
async fn the_other_api_embeds_and_refuses_without_quoting() {
    let embedder = Embedder::new(fields());
    embedder.provide(Arc::new(HashEncoder::new()));
    let address = listen(router(&embedder)).await;
    let post = async |path: &str, body: serde_json::Value| {
        let answer = reqwest::Client::new().post(format!("http://{address}{path}")).json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<serde_json::Value>().await.unwrap_or_default())
    };
    install_tls();
    let (status, answer) = post("/v1/embeddings", json!({"input": ["a b", "c"], "model": "hash"})).await;
    assert_eq!((status, answer["data"].as_array().unwrap().len()), (200, 2), "{answer}");
    assert_eq!(answer["data"][1]["embedding"].as_array().unwrap().len(), 64);
    assert_eq!(post("/v1/embeddings", json!({"input": "a"})).await.0, 200);
    let long = "SECRET ".repeat(300);
    for body in [
        json!({"input": long}),
        json!({"input": "SECRET", "model": "other"}),
        json!({"input": "SECRET", "encoding_format": "base64"}),
        json!({"input": []}),
        json!({"input": [""]}),
        json!({"input": {"SECRET": 1}}),
        json!({"input": vec!["SECRET"; 65]}),
    ] {
        let (status, answer) = post("/v1/embeddings", body).await;
        assert_eq!(status, 400);
        assert!(!answer.to_string().contains("SECRET"), "{answer}");
    }
    let (status, answer) = post("/v1/embed", json!({"work": {"question": "SECRET"}})).await;
    assert!(status == 400 && !answer.to_string().contains("SECRET"), "{answer}");
}

#[tokio::test]
async fn a_store_learns_the_baseline_without_asking_for_vectors() {
    let baseline = lanekeeper_core::encoder::Baseline { mean: 0.1, p99: 0.3, pairs: 100 };
    let info = json!({
        "fingerprint": fields().fingerprint(), "fields": fields(), "model": "hash", "dimension": 64,
        "token_states": true, "baseline": baseline, "vectors_per_second": null,
    });
    let app = axum::Router::new().route("/v1/info", axum::routing::get(move || async move { axum::Json(info) }));
    let remote = client(listen(app).await, &fields(), 64);
    until("the baseline is known", async || remote.baseline() == Some(baseline)).await;
}
