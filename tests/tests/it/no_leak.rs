//! A random marker in every field of save, recall, forget and every error path, at TRACE: nothing of it in
//! stdout, stderr, metrics or receipts.

use std::time::Duration;

use lanekeeper_tests::embed_server;
use lanekeeper_tests::process::{Server, client, post, write_lane};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lanekeeper-hooked");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_text_of_a_memory_is_in_logs_metrics_or_receipts() {
    let marker = format!("zq{:016x}qz", rand::random::<u64>());
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    write_lane(root, "acme", "bob", "");
    let address = embed_server::start().await;
    let arguments: Vec<String> = [
        "--embedder",
        &format!("http://{address}"),
        "--embedder-model",
        embed_server::MODEL,
        "--embedder-dimension",
        "64",
    ]
    .map(str::to_owned)
    .into();
    let environment = [("LANEKEEPER_LOG", "trace".to_owned())];
    let mut server = Server::start(PROGRAM, root, &arguments, &environment).unwrap();
    let client = client();
    let token = server.token("team/acme", "user:bob");
    let lane = format!("{}/v1/lanes/team/acme", server.url);
    let events = format!("{lane}/events");
    let recall = format!("{}/v1/recall", server.url);
    let m = |prefix: &str| format!("{prefix}{marker}");
    let turn =
        json!({"role": "assistant", "text": m("text "), "speaker": m("speaker"), "metadata": {m("key"): m("value")}});
    let save = json!({"session": m("session"), "turns": [turn]});
    let (status, saved) = post(&client, &events, &token, Some(&m("key-")), &save).await.unwrap();
    assert_eq!(status, 201, "{saved}");
    let (status, found) =
        post(&client, &recall, &token, None, &json!({"query": m("what of "), "explain": true})).await.unwrap();
    assert!(status == 200 && found["hits"][0]["text"].as_str().unwrap().contains(&marker), "{found}");
    // Error paths.
    let bodies: Vec<(String, Value)> = vec![
        (events.clone(), json!({"session": m("s"), "turns": [{"role": m("role"), "text": m("t")}]})),
        (events.clone(), json!({"session": m("s"), "turns": [{"role": "assistant", "text": m("t"), "at": m("at")}]})),
        (events.clone(), json!({m("field"): m("value")})),
        (
            events.clone(),
            json!({"session": m("s"), "turns": [{"role": "assistant", "text": m("t"), "speaker": m(":")}]}),
        ),
        (
            events.clone(),
            json!({"session": m("s"), "turns": [{"role": "assistant", "text": m("t"), "metadata": {"k": m("v").repeat(2000)}}]}),
        ),
        (
            events.clone(),
            json!({"session": m("s"), "turns": [{"role": "assistant", "text": m("t")}], "expected_head": {"seq": 99, "hash": "0".repeat(64)}}),
        ),
        (recall.clone(), json!({"query": m("q"), "lanes": [m("team/x")]})),
        (recall.clone(), json!({"query": m("q"), "filter": {"session": [m("s")], m("odd"): 1}})),
        (recall.clone(), json!({"query": m("q"), "filter": {"at_gte": m("t")}})),
        (recall.clone(), json!({"query": m("q"), "top_k": 999})),
        (format!("{lane}/forget"), json!({"session": m("s"), "reason": m("R")})),
        (format!("{lane}/forget"), json!({"events": [m("id")]})),
        (format!("{lane}/forget"), json!({"memory": {"owner": m("o"), "paragraphs": [m("p")]}})),
        (format!("{}/v1/lanes/team/{}/events", server.url, m("x")), save.clone()),
    ];
    for (url, body) in &bodies {
        let (status, _) = post(&client, url, &token, Some(&m("k-")), body).await.unwrap();
        assert!((400..500).contains(&status), "{url}: {status}");
    }
    let (status, _) = post(&client, &events, &m("not.a.token"), None, &save).await.unwrap();
    assert_eq!(status, 401);
    let put = client.put(format!("{lane}/memory")).bearer_auth(&token).header("content-type", "application/json");
    let answer = put.body(json!({"text": m("Paragraph ")}).to_string()).send().await.unwrap();
    assert!(answer.status().is_success(), "{answer:?}");
    let _ = client.get(format!("{lane}/memory?query={marker}")).bearer_auth(&token).send().await.unwrap();
    let _ = client.get(format!("{lane}/export?{marker}=1")).bearer_auth(&token).send().await.unwrap();
    let import =
        client.post(format!("{lane}/import")).bearer_auth(&token).header("content-type", "application/x-ndjson");
    let _ = import.body(format!("{{\"{marker}\": \"{marker}\"}}\n{marker}\n")).send().await.unwrap();
    let id = saved["events"][0]["id"].clone();
    let (status, receipt) =
        post(&client, &format!("{lane}/forget"), &token, None, &json!({"events": [id]})).await.unwrap();
    assert_eq!(status, 200, "{receipt}");
    assert!(!receipt.to_string().contains(&marker), "the receipt: {receipt}");
    let metrics = client.get(&server.metrics).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("lanekeeper_"), "{metrics}");
    assert!(!metrics.contains(&marker), "the metrics");
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.stop();
    for name in ["stdout.log", "stderr.log"] {
        let text = std::fs::read_to_string(root.join(name)).unwrap();
        let leaked: Vec<&str> = text.lines().filter(|line| line.contains(&marker) || line.contains(&token)).collect();
        assert!(leaked.is_empty(), "{name} has {} lines with it, such as {:?}", leaked.len(), leaked.first());
        if name == "stderr.log" {
            assert!(
                text.contains("TRACE") || text.contains("trace"),
                "nothing was logged at TRACE, so nothing was shown"
            );
        }
    }
}
