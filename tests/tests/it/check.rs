//! `lanekeeper check` against a running server: a lane that remembers, one whose vectors are not made, one that the
//! token is not for. What it saved is gone afterwards, whatever came of it.

use std::process::{Command, Output};

use lanekeeper_tests::embed_server;
use lanekeeper_tests::process::{Server, client, write_lane};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_lanekeeper-hooked");

fn start(root: &std::path::Path, embedder: &str) -> Server {
    let dimension = embed_server::DIMENSION.to_string();
    let arguments =
        ["--embedder", embedder, "--embedder-model", embed_server::MODEL, "--embedder-dimension", &dimension];
    Server::start(PROGRAM, root, &arguments.map(str::to_owned), &[]).unwrap()
}

async fn check(server: &Server, lane: &str, token: &str, wait: &str) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["check", "--lane", lane, "--url", &server.url, "--wait", wait]).env("LANEKEEPER_TOKEN", token);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// How many turns the lane holds.
async fn turns(server: &Server, token: &str) -> usize {
    let url = format!("{}/v1/lanes/team/acme/events", server.url);
    let answer = client().get(url).bearer_auth(token).send().await.unwrap();
    let listed: Value = answer.json().await.unwrap();
    listed["events"].as_array().unwrap().iter().filter(|event| event["text"].is_string()).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_tells_whether_a_lane_remembers_and_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    write_lane(temp.path(), "acme", "bob", "");
    write_lane(temp.path(), "other", "eve", "");
    let address = embed_server::start().await;
    let mut server = start(temp.path(), &format!("http://{address}"));
    let token = server.token("team/acme", "user:bob");
    let remembers = check(&server, "team/acme", &token, "30").await;
    assert!(remembers.status.success(), "{}", String::from_utf8_lossy(&remembers.stderr));
    assert_eq!(
        String::from_utf8_lossy(&remembers.stdout),
        "Lane team/acme remembers: saved, recalled by every arm, forgotten.\n"
    );
    assert_eq!(turns(&server, &token).await, 0);
    let foreign = check(&server, "team/other", &token, "1").await;
    assert!(!foreign.status.success());
    server.stop();

    // Nothing listens there: text finds the marker, no vector is made.
    let mut server = start(temp.path(), "http://127.0.0.1:9");
    let blind = check(&server, "team/acme", &token, "2").await;
    assert!(!blind.status.success());
    let said = String::from_utf8_lossy(&blind.stderr);
    assert!(said.contains("after 2 s still not everything was searched"), "{said}");
    assert_eq!(turns(&server, &token).await, 0);
    server.stop();
}
