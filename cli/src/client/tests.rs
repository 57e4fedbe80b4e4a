//! The client against a server that answers what the test wants.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::header::{AUTHORIZATION, LOCATION, RETRY_AFTER};
use serde_json::{Value, json};

use super::*;

/// Status, headers, body.
type Scripted = (u16, Vec<(HeaderName, String)>, Value);

/// Answers in order, the last one again and again; remembers what was asked.
#[derive(Debug, Default)]
struct Script {
    answers: VecDeque<Scripted>,
    asked: Vec<(String, Option<String>, Option<String>)>,
}

type Shared = Arc<Mutex<Script>>;

async fn answer(State(script): State<Shared>, request: Request) -> Response {
    let header = |name: &HeaderName| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let asked = (request.uri().to_string(), header(&IDEMPOTENCY_KEY), header(&AUTHORIZATION));
    let mut script = script.lock().unwrap();
    script.asked.push(asked);
    let (status, headers, body) =
        if script.answers.len() > 1 { script.answers.pop_front().unwrap() } else { script.answers[0].clone() };
    let mut response = (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response();
    for (name, value) in headers {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

async fn server(answers: Vec<Scripted>) -> (Server, Shared) {
    let script = Arc::new(Mutex::new(Script { answers: answers.into(), asked: Vec::new() }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/base/", listener.local_addr().unwrap()).parse().unwrap();
    let router = Router::new().fallback(answer).with_state(script.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().tls_certs_only([]);
    let _ = rustls::crypto::ring::default_provider().install_default();
    (Server { http: http.build().unwrap(), base, token: Secret::new("a.b.c".into()), raw: false }, script)
}

fn refused(status: u16, code: &str) -> Scripted {
    (status, vec![(RETRY_AFTER, "0".into())], json!({"code": code, "detail": "x"}))
}

fn asked(script: &Shared) -> Vec<(String, Option<String>, Option<String>)> {
    script.lock().unwrap().asked.clone()
}

fn lane() -> LaneName {
    "team/bob".parse().unwrap()
}

#[tokio::test]
async fn a_save_is_tried_again_under_the_same_key() {
    let answers = vec![refused(503, "commit_unknown"), refused(429, "overloaded"), (201, vec![], json!({"ok": true}))];
    let (server, script) = server(answers).await;
    let call = Call::on_lane(Method::POST, &lane(), &["events"]).bytes(b"{}".to_vec()).under_key("key-1".into());
    let answer: Answer<Value> = server.call(call).await.unwrap();
    assert_eq!(answer.value, json!({"ok": true}));
    let expected =
        ("/base/v1/lanes/team/bob/events".to_owned(), Some("key-1".to_owned()), Some("Bearer a.b.c".to_owned()));
    assert_eq!(asked(&script), vec![expected; 3]);
}

#[tokio::test]
async fn what_another_try_cannot_cure_or_could_double_is_not_tried_again() {
    let (refusing, script) = server(vec![refused(404, "not_found")]).await;
    let call = Call::post(&["v1", "recall"]).bytes(b"{}".to_vec()).repeatable();
    let error = refusing.call::<Value>(call).await.unwrap_err();
    assert!(matches!(error, ClientError::Problem(problem) if problem.code == "not_found"));
    assert_eq!(asked(&script).len(), 1);
    let (busy, script) = server(vec![refused(503, "commit_unknown")]).await;
    let call = Call::on_lane(Method::POST, &lane(), &["rebuild"]).bytes(b"{}".to_vec());
    assert!(busy.call::<Value>(call).await.is_err());
    assert_eq!(asked(&script).len(), 1, "without a key a second try could be a second request");
}

#[tokio::test]
async fn a_token_follows_no_redirect() {
    let (elsewhere, other) = server(vec![(200, vec![], json!({}))]).await;
    let to = vec![(LOCATION, elsewhere.base.to_string())];
    let (server, _) = server(vec![(307, to, json!({}))]).await;
    assert!(matches!(server.call::<Value>(Call::get(&["v1", "lanes"])).await, Err(ClientError::NotOurs { .. })));
    assert!(asked(&other).is_empty());
}

#[tokio::test]
async fn the_lane_is_the_tokens_own_unless_one_is_named() {
    let summary = |name: &str, relation: &str| {
        json!({"lane": name, "uid": "01939a00-0000-7000-8000-000000000001", "kind": "personal", "relation": relation, "role": null,
            "ready": true, "writable": true, "reasons": [], "head_seq": null, "counts": null, "ranking": "fused", "embedder": "x"})
    };
    let list = json!({"lanes": [summary("team/bob", "own"), summary("team/handbook", "read")]});
    let (server, script) = server(vec![(200, vec![], list)]).await;
    assert_eq!(server.lane(None).await.unwrap(), lane());
    let named = "team/ada".parse().unwrap();
    assert_eq!(server.lane(Some(&named)).await.unwrap(), named);
    assert_eq!(asked(&script).len(), 1);
}

#[tokio::test]
async fn a_query_is_escaped() {
    let (server, script) = server(vec![(200, vec![], json!({}))]).await;
    let call = Call::get(&["v1", "lanes", "a/../b"]).query("query", "a&b=c d%");
    let _: Answer<Value> = server.call(call).await.unwrap();
    assert_eq!(asked(&script)[0].0, "/base/v1/lanes/a%2F..%2Fb?query=a%26b%3Dc+d%25");
}
