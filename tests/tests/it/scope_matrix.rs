//! C10: every route of openapi.json × no token, a wrong lane's token, an expired one, the right one.
//!
//! Routes come from the document; a route that is missing here fails the test.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::Method;
use lanekeeper_core::testing::HashEncoder;
use lanekeeper_tests::world::{LaneSpec, World};
use serde_json::{Value, json};

const PUBLIC: [&str; 3] = ["/healthz", "/readyz", "/openapi.json"];

/// What each route is asked with, and what it answers to the right token. May only grow with the document.
fn asked(method: &str, path: &str, event: &str) -> (Vec<u8>, Vec<(&'static str, &'static str)>, u16) {
    let json = |body: Value| body.to_string().into_bytes();
    let lane = path.strip_prefix("/v1/lanes/{namespace}/{name}").unwrap_or(path);
    match (method, lane) {
        ("GET", "/v1/lanes" | "/events" | "/memory" | "/memory/history" | "/export" | "/backup") => {
            (vec![], vec![], 200)
        }
        ("POST", "/events") => {
            (json(json!({"session": "s", "turns": [{"role": "assistant", "text": "x"}]})), vec![], 201)
        }
        ("POST", "/v1/recall") => (json(json!({"query": "heron"})), vec![], 200),
        ("POST", "/forget") => (json(json!({"events": [event]})), vec![], 200),
        ("PUT", "/memory") => (json(json!({"text": "A paragraph."})), vec![], 200),
        ("POST", "/verify" | "/rebuild") => (json(json!({})), vec![], 200),
        ("POST", "/import") => (br#"{"not":"a header"}"#.to_vec(), vec![("content-type", "application/x-ndjson")], 400),
        other => panic!("the document has a route that the matrix does not know: {other:?}"),
    }
}

#[tokio::test]
async fn c10_every_route_asks_for_the_right_token() {
    let lanes = vec![LaneSpec::personal("team/bob", "bob"), LaneSpec::personal("team/ada", "ada")];
    let world = World::new(Arc::new(HashEncoder::new()), lanes).await;
    let (bob, ada) = (world.token("team/bob", "user:bob"), world.token("team/ada", "user:ada"));
    let expired = world.token_from("team/bob", "user:bob", world.clock.now_ms() - 7_200_000, 3600);
    let saved = world.save("team/bob", &bob, "s", &["a heron"]).await.expect(201);
    let event = saved["events"][0]["id"].as_str().unwrap().to_owned();
    let document = world.call(Method::GET, "/openapi.json", None, &[], vec![]).await.expect(200);
    let mut seen = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let method = method.to_uppercase();
            seen.insert(format!("{method} {path}"));
            let verb: Method = method.parse().unwrap();
            if PUBLIC.contains(&path.as_str()) {
                assert!(world.call(verb, path, None, &[], vec![]).await.status.is_success(), "{path}");
                continue;
            }
            let (body, headers, success) = asked(&method, path, &event);
            let url = path.replace("{namespace}", "team").replace("{name}", "bob");
            let status = async |token: Option<&str>| {
                world.call(verb.clone(), &url, token, &headers, body.clone()).await.status.as_u16()
            };
            assert_eq!(status(None).await, 401, "{method} {path} without a token");
            assert_eq!(status(Some("nonsense")).await, 401, "{method} {path} with nonsense");
            assert_eq!(status(Some(&expired)).await, 401, "{method} {path} with an expired token");
            let foreign = world.call(verb.clone(), &url, Some(&ada), &headers, body.clone()).await;
            match path.as_str() {
                // These have no lane in their path: the token's own lanes answer, and no other.
                "/v1/lanes" | "/v1/recall" => {
                    assert!(foreign.status.is_success());
                    assert!(!String::from_utf8_lossy(&foreign.bytes).contains("team/bob"), "{path}");
                }
                _ => assert_eq!(foreign.status.as_u16(), 404, "{method} {path} with a wrong lane's token"),
            }
            let right = world.call(verb.clone(), &url, Some(&bob), &headers, body.clone()).await;
            assert_eq!(right.status.as_u16(), success, "{method} {path}: {}", String::from_utf8_lossy(&right.bytes));
        }
    }
    assert!(seen.len() >= 16, "{seen:?}");
    world.close().await;
}

#[tokio::test]
async fn a_tampered_token_is_refused_whatever_was_changed() {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let world = World::new(Arc::new(HashEncoder::new()), vec![LaneSpec::personal("team/bob", "bob")]).await;
    let bob = world.token("team/bob", "user:bob");
    let parts: Vec<&str> = bob.split('.').collect();
    let decode = |part: &str| -> Value { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap() };
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let status = async |token: &str| world.get("/v1/lanes", token).await.status.as_u16();
    assert_eq!(status(&bob).await, 200);
    for (field, value) in [
        ("alg", json!("none")),
        ("alg", json!("HS256")),
        ("typ", json!("JWT")),
        ("kid", json!("x")),
        ("crit", json!(["exp"])),
    ] {
        let mut header = decode(parts[0]);
        header[field] = value;
        assert_eq!(status(&format!("{}.{}.{}", encode(&header), parts[1], parts[2])).await, 401, "{field}");
    }
    for (field, value) in
        [("sub", json!("user:ada")), ("aud", json!("other")), ("exp", json!(9_999_999_999_u64)), ("iss", json!("evil"))]
    {
        let mut claims = decode(parts[1]);
        claims[field] = value;
        assert_eq!(status(&format!("{}.{}.{}", parts[0], encode(&claims), parts[2])).await, 401, "{field}");
    }
    for token in ["", ".", "..", "a.b", "a.b.c.d", &"x".repeat(100_000)] {
        assert_eq!(status(token).await, 401);
    }
    world.close().await;
}
