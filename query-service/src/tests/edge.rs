//! What every request passes: bodies, headers, parameters, ids, limits, faults.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, StatusCode};
use lanekeeper_core::LaneError;
use serde_json::{Value, json};
use sha2::Digest as _;
use tower::ServiceExt as _;

use super::fake::{Answer, BOB, Does, World, answer, request};
use crate::router;

const EVENTS: &str = "/v1/lanes/team/bob/events";

fn turns() -> Value {
    json!({"session": "s", "turns": [{"role": "user", "text": "hello"}]})
}

async fn post(world: &World, path: &str, body: Value) -> Answer {
    world.ask("POST", path, &world.token("user:bob", BOB), Some(body)).await
}

async fn with_header(world: &World, name: &str, value: &[u8]) -> Answer {
    let mut request = request("POST", EVENTS, Some(&world.token("user:bob", BOB)), Some(turns()));
    request
        .headers_mut()
        .insert(http::HeaderName::try_from(name).unwrap(), http::HeaderValue::from_bytes(value).unwrap());
    world.send(request).await
}

fn first_error(answer: &Answer) -> (String, String) {
    let error = &answer.json()["errors"][0];
    (error["field"].as_str().unwrap_or_default().to_owned(), error["rule"].as_str().unwrap_or_default().to_owned())
}

// C21, C23, and the field paths of the checks
#[tokio::test]
async fn a_bad_field_is_named_by_its_path() {
    let world = World::new();
    let turn = |turn: Value| json!({"session": "s", "turns": [{"role": "user", "text": "a"}, turn]});
    for (body, field) in [
        (turn(json!({"role": "user", "text": " "})), "turns[1].text"),
        (turn(json!({"role": "user", "text": "a", "at": "2026-11-30T09:00:00"})), "turns[1].at"),
        (turn(json!({"role": "user", "text": "a", "at": "2030-01-01T00:00:00Z"})), "turns[1].at"),
        (turn(json!({"role": "user", "text": "a", "lane": "other"})), "turns[1].lane"),
        (json!({"session": "", "turns": []}), "session"),
        (json!({"session": "s", "turns": []}), "turns"),
        (json!({"session": "s"}), "turns"),
        (json!([]), "body"),
    ] {
        let answer = post(&world, EVENTS, body.clone()).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (400, "invalid_field"), "{body}");
        assert_eq!(first_error(&answer).0, field, "{body}");
    }
    let filter = post(&world, "/v1/recall", json!({"query": "q", "filter": {"lane": "x"}})).await;
    assert_eq!(first_error(&filter).0, "filter.lane");
    let lone = Request::post(EVENTS)
        .header("authorization", format!("Bearer {}", world.token("user:bob", BOB)))
        .header("content-type", "application/json")
        .body(Body::from(r#"{"session":"s","turns":[{"role":"user","text":"\ud800"}]}"#))
        .unwrap();
    assert_eq!(first_error(&world.send(lone).await).0, "turns[0].text");
    let large =
        post(&world, EVENTS, turn(json!({"role": "user", "text": "a", "metadata": {"k": "x".repeat(17_000)}}))).await;
    assert_eq!((large.status.as_u16(), large.json()["limit"].as_u64()), (413, Some(16_384)));
    assert_eq!(world.bob.called(), Vec::<&str>::new());
}

#[tokio::test]
async fn a_body_has_a_type_a_size_and_a_time() {
    let mut world = World::new();
    world.limits.body_bytes = 200;
    world.limits.body_wait = Duration::from_millis(20);
    let token = world.token("user:bob", BOB);
    let send = async |content_type: Option<&str>, body: Body| {
        let mut builder = Request::post(EVENTS).header("authorization", format!("Bearer {token}"));
        if let Some(content_type) = content_type {
            builder = builder.header("content-type", content_type);
        }
        world.send(builder.body(body).unwrap()).await
    };
    let json = Some("application/json");
    let good = turns().to_string();
    assert_eq!(send(Some("application/json; charset=utf-8"), good.clone().into()).await.status, 201);
    for other in [None, Some("text/plain"), Some("application/x-www-form-urlencoded")] {
        assert_eq!(send(other, good.clone().into()).await.status, 415);
    }
    let announced = send(json, "x".repeat(201).into()).await;
    assert_eq!(
        (announced.status.as_u16(), announced.code().as_str(), announced.json()["limit"].as_u64()),
        (413, "too_large", Some(200))
    );
    let parts = futures::stream::iter((0..3).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 100]))));
    assert_eq!(send(json, Body::from_stream(parts)).await.status, 413);
    let never = futures::stream::pending::<Result<Bytes, std::io::Error>>();
    assert_eq!(send(json, Body::from_stream(never)).await.code(), "body_not_read");
    let broken = futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("gone"))]);
    assert_eq!(send(json, Body::from_stream(broken)).await.status, 408);
    // A body where none is asked for is read too, and may be left out.
    let verify =
        async |body: Option<Value>| world.ask("POST", "/v1/lanes/team/bob/verify", &token, body).await.status.as_u16();
    assert_eq!(
        (verify(None).await, verify(Some(json!({}))).await, verify(Some(json!({"deep": true}))).await),
        (200, 200, 400)
    );
}

#[tokio::test]
async fn an_idempotency_key_comes_with_the_hash_of_the_body() {
    let world = World::new();
    assert_eq!(with_header(&world, "idempotency-key", b"save-1").await.status, 201);
    let call = world.bob.calls.lock().unwrap().last().unwrap().clone();
    let idempotency = call.idempotency.unwrap();
    assert_eq!(idempotency.key, "save-1");
    assert_eq!(idempotency.body_sha256, <[u8; 32]>::from(sha2::Sha256::digest(turns().to_string())));
    for bad in [&b"a b"[..], b"", "ä".as_bytes(), &[b'x'; 256]] {
        let refused = with_header(&world, "idempotency-key", bad).await;
        assert_eq!((refused.status.as_u16(), first_error(&refused).0.as_str()), (400, "Idempotency-Key"));
    }
}

#[tokio::test]
async fn a_curated_save_hands_on_the_version_and_answers_the_new_one() {
    let world = World::new();
    let token = world.token("user:bob", BOB);
    let put = async |if_match: Option<&str>| {
        let mut request = request("PUT", "/v1/lanes/team/bob/memory", Some(&token), Some(json!({"text": "x"})));
        if let Some(if_match) = if_match {
            request.headers_mut().insert("if-match", if_match.parse().unwrap());
        }
        world.send(request).await
    };
    let saved = put(Some("\"v0\"")).await;
    assert_eq!((saved.status.as_u16(), saved.header("etag")), (200, Some("\"v1\"")));
    assert_eq!(world.bob.calls.lock().unwrap().last().unwrap().if_match.as_deref(), Some("v0"));
    assert_eq!(first_error(&put(Some("*")).await).0, "If-Match");
    assert_eq!(put(Some("W/\"v0\"")).await.status, 400);
    *world.bob.does.lock().unwrap() = Does::Fail(LaneError::PreconditionRequired { current: "v1".into() });
    let required = put(None).await;
    assert_eq!(
        (required.status.as_u16(), required.json()["current"].as_str().map(str::to_owned)),
        (428, Some("v1".into()))
    );
    let large =
        world.ask("PUT", "/v1/lanes/team/bob/memory", &token, Some(json!({"text": "x".repeat(256 * 1024 + 1)}))).await;
    assert_eq!((large.status.as_u16(), large.json()["limit"].as_u64()), (413, Some(256 * 1024)));
}

#[tokio::test]
async fn unknown_parameters_methods_and_routes_are_refused() {
    let world = World::new();
    let token = world.token("user:bob", BOB);
    for path in [
        "/v1/lanes/team/bob/events?principal=eve",
        "/v1/lanes/team/bob/events?limit=0",
        "/v1/lanes/team/bob/events?limit=1001",
        "/v1/lanes/team/bob/events?after=-1",
        "/v1/lanes/team/bob/events?after=1&after=2",
        "/v1/lanes?x=1",
        "/v1/lanes/team/bob/memory/history?x=1",
        "/v1/lanes/team/bob/export?x=1",
    ] {
        let answer = world.ask("GET", path, &token, None).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (400, "invalid_field"), "{path}");
    }
    assert_eq!(world.ask("GET", "/v1/lanes/team/bob/events?after=9&limit=1000", &token, None).await.status, 200);
    let method = world.ask("DELETE", EVENTS, &token, None).await;
    assert_eq!((method.status.as_u16(), method.code().as_str()), (405, "method_not_allowed"));
    let mut allowed: Vec<&str> = method.header("allow").unwrap().split(',').collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST"]);
    let route = world.ask("GET", "/v2/anything", &token, None).await;
    assert_eq!((route.status.as_u16(), route.code().as_str()), (404, "not_found"));
}

#[tokio::test]
async fn every_answer_has_a_request_id_and_is_not_to_be_kept() {
    let world = World::new();
    let given = with_header(&world, "x-request-id", b"req-42").await;
    assert_eq!(given.header("x-request-id"), Some("req-42"));
    assert_eq!(given.header("cache-control"), Some("no-store"));
    assert_eq!(given.header("x-content-type-options"), Some("nosniff"));
    let insane = with_header(&world, "x-request-id", b"a b").await;
    assert_eq!(insane.header("x-request-id").unwrap().len(), 36);
    for path in ["/nowhere", EVENTS, "/healthz"] {
        let answer = world.send(request("GET", path, None, None)).await;
        let id = answer.header("x-request-id").unwrap().to_owned();
        if answer.status.is_client_error() {
            assert_eq!(answer.json()["request_id"], id.as_str(), "{path}");
            assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{path}");
        }
    }
}

#[tokio::test]
async fn a_panic_is_a_500_that_says_nothing() {
    let world = World::new();
    *world.bob.does.lock().unwrap() = Does::Panic;
    let answer = post(&world, EVENTS, turns()).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (500, "internal"));
    assert!(!answer.text.contains("told to panic"));
    assert_eq!(answer.json()["request_id"].as_str(), answer.header("x-request-id"));
    *world.bob.does.lock().unwrap() = Does::Fail(LaneError::internal("SECRET-CAUSE"));
    let answer = post(&world, EVENTS, turns()).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!answer.text.contains("SECRET-CAUSE"));
}

#[tokio::test]
async fn a_full_service_sheds_and_stays_alive() {
    let mut world = World::new();
    world.limits.concurrent_requests = 1;
    *world.bob.does.lock().unwrap() = Does::Hang;
    let token = world.token("user:bob", BOB);
    let router = router(&world.app());
    let hanging = tokio::spawn(router.clone().oneshot(request("GET", EVENTS, Some(&token), None)));
    // The lane was asked, so the one permit is taken.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while world.bob.called().is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "the first request never reached the lane");
        tokio::task::yield_now().await;
    }
    let shed = answer(router.clone().oneshot(request("GET", "/v1/lanes", Some(&token), None)).await.unwrap()).await;
    assert_eq!(
        (shed.status.as_u16(), shed.code().as_str(), shed.header("retry-after")),
        (503, "overloaded", Some("1"))
    );
    for public in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(router.clone().oneshot(request("GET", public, None, None)).await.unwrap().status(), 200);
    }
    hanging.abort();
    assert!(hanging.await.unwrap_err().is_cancelled());
    let after = router.oneshot(request("GET", "/v1/lanes", Some(&token), None)).await.unwrap();
    assert_eq!(after.status(), 200);
}

#[tokio::test]
async fn an_import_streams_and_only_a_person_forces() {
    let mut world = World::new();
    world.limits.body_bytes = 64;
    world.change("team/bob", |view| {
        view.access.push(super::fake::access("sa:team/admin", lanekeeper_core::scope::Role::Admin))
    });
    let send = async |who: &str, query: &str, content_type: &str, body: Body| {
        let request = Request::post(format!("/v1/lanes/team/bob/import{query}"))
            .header("authorization", format!("Bearer {}", world.token(who, BOB)))
            .header("content-type", content_type)
            .body(body)
            .unwrap();
        world.send(request).await
    };
    let line = format!("{}\n", "x".repeat(63));
    let many =
        futures::stream::iter((0..40).map(|_| Ok::<_, std::io::Error>(Bytes::from(line.clone()))).collect::<Vec<_>>());
    let ndjson = "application/x-ndjson";
    assert_eq!(send("user:bob", "", ndjson, Body::from_stream(many)).await.status, 200);
    assert_eq!(world.bob.imported.lock().unwrap().len(), 40 * 64);
    let long = send("user:bob", "", ndjson, format!("{}\n", "x".repeat(65)).into()).await;
    assert_eq!((long.status.as_u16(), long.json()["limit"].as_u64()), (413, Some(64)));
    assert_eq!(send("user:bob", "?force_personal=true", ndjson, Body::empty()).await.status, 200);
    assert_eq!(send("sa:team/admin", "?force_personal=false", ndjson, Body::empty()).await.status, 200);
    assert_eq!(send("sa:team/admin", "?force_personal=true", ndjson, Body::empty()).await.code(), "human_required");
    assert_eq!(send("user:bob", "?force_personal=1", ndjson, Body::empty()).await.code(), "invalid_field");
    assert_eq!(send("user:bob", "", "application/json", Body::empty()).await.status, 415);
}

#[tokio::test]
async fn a_streamed_answer_that_fails_breaks_off() {
    let world = World::new();
    let token = world.token("user:bob", BOB);
    let export = world.ask("GET", "/v1/lanes/team/bob/export", &token, None).await;
    assert_eq!(
        (export.whole, export.text.as_str(), export.header("content-type")),
        (true, "{}\n{}\n", Some("application/x-ndjson"))
    );
    let backup = world.ask("GET", "/v1/lanes/team/bob/backup", &token, None).await;
    assert!(!backup.whole);
}
