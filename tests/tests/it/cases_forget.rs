//! C39 to C45 through the API.

use std::sync::Arc;

use http::Method;
use lanekeeper_core::testing::HashEncoder;
use lanekeeper_tests::world::{LaneSpec, World};
use serde_json::{Value, json};

async fn world() -> (World, String, String) {
    let lanes = vec![LaneSpec::personal("team/bob", "bob"), LaneSpec::personal("team/ada", "ada")];
    let world = World::new(Arc::new(HashEncoder::new()), lanes).await;
    let (bob, ada) = (world.token("team/bob", "user:bob"), world.token("team/ada", "user:ada"));
    (world, bob, ada)
}

#[tokio::test]
async fn c39_c41_forgetting_everything_in_one_lane_leaves_the_other_alone() {
    let (world, bob, ada) = world().await;
    for n in 0..15 {
        let notes: Vec<String> = (0..10).map(|m| format!("heron {n} {m} was seen")).collect();
        let notes: Vec<&str> = notes.iter().map(String::as_str).collect();
        world.save("team/bob", &bob, "all", &notes).await.expect(201);
    }
    world.save("team/ada", &ada, "all", &["heron of ada", "another"]).await.expect(201);
    world.settle().await;
    let before = world.recall(&ada, json!({"query": "heron"})).await.expect(200);
    let done = world.post("/v1/lanes/team/bob/forget", &bob, json!({"session": "all"})).await.expect(200);
    assert_eq!(done["receipt"]["count"], 150);
    world.settle().await;
    assert_eq!(world.texts(&bob, "heron").await, Vec::<String>::new());
    let export = world.get("/v1/lanes/team/bob/export", &bob).await;
    assert!(!String::from_utf8_lossy(&export.bytes).contains("was seen"));
    let after = world.recall(&ada, json!({"query": "heron"})).await.expect(200);
    assert_eq!(after["hits"], before["hits"]);
    assert_eq!(after["coverage"], before["coverage"]);
    for lane in [("team/bob", &bob), ("team/ada", &ada)] {
        let report = world.post(&format!("/v1/lanes/{}/verify", lane.0), lane.1, json!({})).await.expect(200);
        assert_eq!(report["ok"], true);
    }
    world.close().await;
}

#[tokio::test]
async fn c44_a_smaller_memory_replaces_a_larger_one_everywhere() {
    let (world, bob, _) = world().await;
    const MEMORY: &str = "/v1/lanes/team/bob/memory";
    let paragraphs: Vec<String> = (0..10).map(|n| format!("Paragraph number{n}z speaks of subject{n}z.")).collect();
    let body = |count: usize| json!({"text": paragraphs[..count].join("\n\n")}).to_string().into_bytes();
    let saved = world.call(Method::PUT, MEMORY, Some(&bob), &[], body(10)).await;
    assert!(saved.status.is_success(), "{saved:?}");
    let saved = saved.json();
    assert_eq!(saved["added"], 10);
    // Without If-Match nothing is replaced, with a wrong one neither.
    assert_eq!(world.call(Method::PUT, MEMORY, Some(&bob), &[], body(7)).await.status.as_u16(), 428);
    let wrong = [("if-match", "\"0000\"")];
    assert_eq!(world.call(Method::PUT, MEMORY, Some(&bob), &wrong, body(7)).await.status.as_u16(), 412);
    let etag = format!("\"{}\"", saved["document"]["etag"].as_str().unwrap());
    let saved = world.call(Method::PUT, MEMORY, Some(&bob), &[("if-match", &etag)], body(7)).await;
    assert!(saved.status.is_success(), "{saved:?}");
    assert_eq!(saved.json()["removed"], 3);
    let listed = world.get(MEMORY, &bob).await.expect(200);
    assert_eq!((listed["mode"].as_str(), listed["paragraphs"].as_array().unwrap().len()), (Some("listing"), 7));
    for n in 0..10 {
        let found = world.get(&format!("{MEMORY}?query=subject{n}z"), &bob).await.expect(200);
        assert_eq!(found["paragraphs"].as_array().unwrap().len(), usize::from(n < 7), "{n}");
        let recalled =
            world.recall(&bob, json!({"query": format!("subject{n}z"), "surfaces": ["memory"]})).await.expect(200);
        let hits: Vec<&Value> = recalled["hits"].as_array().unwrap().iter().collect();
        assert_eq!(hits.len(), usize::from(n < 7), "{n}: {recalled}");
        assert!(hits.iter().all(|hit| hit["surface"] == "memory"));
    }
    world.close().await;
}

#[tokio::test]
async fn contradicting_paragraphs_of_two_owners_are_both_returned_and_private_ones_stay_private() {
    use lanekeeper_core::scope::Role;
    let lane = LaneSpec::corpus("team/ops").access("user:ada", Role::Curator).access("user:carol", Role::Curator);
    let world = World::new(Arc::new(HashEncoder::new()), vec![lane]).await;
    let (ada, carol) = (world.token("team/ops", "user:ada"), world.token("team/ops", "user:carol"));
    const MEMORY: &str = "/v1/lanes/team/ops/memory";
    let put = async |token: &str, body: Value| {
        let answer = world.call(Method::PUT, MEMORY, Some(token), &[], body.to_string().into_bytes()).await;
        assert!(answer.status.is_success(), "{answer:?}");
    };
    put(&ada, json!({"text": "Deploys happen on Friday."})).await;
    put(&carol, json!({"text": "Deploys never happen on Friday."})).await;
    put(&carol, json!({"text": "Deploys happen when the board agrees.", "shared": true})).await;
    let of = async |token: &str| -> Vec<String> {
        let page = world.get(&format!("{MEMORY}?query=DEPLOYS"), token).await.expect(200);
        let mut owners: Vec<String> =
            page["paragraphs"].as_array().unwrap().iter().map(|p| p["owner"].as_str().unwrap().to_owned()).collect();
        owners.sort();
        owners
    };
    assert_eq!(of(&ada).await, ["_shared", "ada"]);
    assert_eq!(of(&carol).await, ["_shared", "carol"]);
    let recalled =
        world.recall(&ada, json!({"query": "deploys friday", "surfaces": ["memory"], "top_k": 50})).await.expect(200);
    assert!(!recalled.to_string().contains("never happen"), "{recalled}");
    let history = world.get(&format!("{MEMORY}/history"), &ada).await.expect(200);
    assert!(!history.to_string().contains("never happen"));
    let listed = world.get("/v1/lanes/team/ops/events", &ada).await.expect(200);
    assert!(!listed.to_string().contains("never happen"));
    world.close().await;
}

#[tokio::test]
async fn a_dry_run_says_what_an_apply_does_and_changes_nothing() {
    let (world, bob, _) = world().await;
    world.save("team/bob", &bob, "s", &["one heron", "two herons", "three herons"]).await.expect(201);
    let dry = world.post("/v1/lanes/team/bob/forget", &bob, json!({"session": "s", "dry_run": true})).await.expect(200);
    assert_eq!(world.texts(&bob, "herons").await.len(), 3);
    assert!(dry.get("receipt").is_none());
    let apply = world.post("/v1/lanes/team/bob/forget", &bob, json!({"session": "s"})).await.expect(200);
    assert_eq!(apply["events"], dry["events"]);
    for bad in [json!({}), json!({"session": "s", "events": []}), json!({"events": []}), json!({"everything": true})] {
        assert_eq!(world.post("/v1/lanes/team/bob/forget", &bob, bad).await.status.as_u16(), 400);
    }
    world.close().await;
}
