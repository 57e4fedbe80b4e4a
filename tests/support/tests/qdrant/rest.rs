//! The REST face: an operator's calls, with the key and without.

use lanekeeper_test_support::qdrant::{LaneGrant, QdrantServer, mint_for_lane};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::stage::API_KEY;

/// One request on a connection of its own: the status and the body.
async fn call(server: &QdrantServer, key: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let url = server.rest_url();
    let host = url.strip_prefix("http://").unwrap();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\napi-key: {key}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut socket = TcpStream::connect(host).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_operator_does_over_rest() {
    let dir = tempfile::tempdir().unwrap();
    let server = QdrantServer::start(dir.path(), Some(API_KEY)).unwrap();
    let ask = async |method: &str, path: &str, body: Value| call(&server, API_KEY, method, path, &body).await;
    let made = ask("PUT", "/collections/a__4_f_g1", json!({"vectors": {"size": 4, "distance": "Cosine"}})).await;
    assert_eq!((made.0, &made.1["result"]), (200, &json!(true)), "{made:?}");
    let again = ask("PUT", "/collections/a__4_f_g1", json!({"vectors": {"size": 4, "distance": "Cosine"}})).await;
    assert_eq!(again.0, 409, "{again:?}");
    let index = json!({"field_name": "sessions", "field_schema": "keyword"});
    assert_eq!(ask("PUT", "/collections/a__4_f_g1/index?wait=true", index).await.0, 200);
    let times = json!({"field_name": "at_ms", "field_schema": {"type": "integer", "lookup": false, "range": true}});
    assert_eq!(ask("PUT", "/collections/a__4_f_g1/index?wait=true", times).await.0, 200);
    let alias = json!({"actions": [{"create_alias": {"collection_name": "a__4_f_g1", "alias_name": "team.a"}}]});
    assert_eq!(ask("POST", "/collections/aliases", alias).await.0, 200);
    let aliases = ask("GET", "/aliases", Value::Null).await.1;
    assert_eq!(aliases["result"]["aliases"], json!([{"alias_name": "team.a", "collection_name": "a__4_f_g1"}]));
    let points = json!({"points": [{"id": 7, "vector": [1, 0, 0, 0], "payload": {"sessions": ["s"]}}]});
    assert_eq!(ask("PUT", "/collections/team.a/points?wait=true", points).await.0, 200);
    let filter = json!({"filter": {"must": [{"key": "sessions", "match": {"value": "s"}}]}});
    let counted = ask("POST", "/collections/team.a/points/count", filter.clone()).await.1;
    assert_eq!(counted["result"]["count"], 1);
    let info = ask("GET", "/collections/team.a", Value::Null).await.1;
    assert_eq!(info["result"]["config"]["params"]["vectors"], json!({"size": 4, "distance": "Cosine"}));
    assert_eq!(info["result"]["payload_schema"]["sessions"]["data_type"], "keyword");
    assert_eq!(ask("POST", "/collections/team.a/points/delete", filter).await.0, 200);
    let scrolled = ask("POST", "/collections/team.a/points/scroll", json!({})).await.1;
    assert_eq!(scrolled["result"]["points"], json!([]));
    // Keys: the same as over gRPC.
    assert_eq!(call(&server, "wrong", "GET", "/collections", &Value::Null).await.0, 401);
    let grant = LaneGrant { alias: "team.a", physical: &[], epoch: 1, lifetime: std::time::Duration::from_secs(60) };
    let fenced = mint_for_lane(API_KEY, &grant);
    assert_eq!(call(&server, &fenced, "GET", "/collections", &Value::Null).await.0, 403, "there is no fence");
    assert_eq!(ask("DELETE", "/collections/a__4_f_g1", Value::Null).await.1["result"], true);
    assert_eq!(ask("GET", "/collections/team.a", Value::Null).await.0, 404);
    assert_eq!(ask("GET", "/collections", Value::Null).await.1["result"]["collections"], json!([]));
}
