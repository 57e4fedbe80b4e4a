//! The control test: a marker in lane A, absent in B, B's count unmoved, recalled without standing in the
//! query.

use std::sync::Arc;

use lanekeeper_core::testing::HashEncoder;
use lanekeeper_tests::world::{LaneSpec, World};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_marker_saved_in_one_lane_is_nowhere_in_the_other() {
    let world = World::new(
        Arc::new(HashEncoder::new()),
        vec![LaneSpec::personal("team/bob", "bob"), LaneSpec::personal("team/ada", "ada")],
    )
    .await;
    let (bob, ada) = (world.token("team/bob", "user:bob"), world.token("team/ada", "user:ada"));
    world.save("team/ada", &ada, "s", &["the weather is fine"]).await.expect(201);
    let before = world.recall(&ada, json!({"query": "release plan"})).await.expect(200);
    world.save("team/bob", &bob, "s", &["the release plan names MARKER-71f3a"]).await.expect(201);
    world.settle().await;
    let found =
        world.recall(&bob, json!({"query": "what does the release plan name", "explain": true})).await.expect(200);
    assert!(found["hits"][0]["text"].as_str().unwrap().contains("MARKER-71f3a"));
    assert_eq!(found["coverage"]["complete_corpus"], true, "{}", found["coverage"]);
    let after = world.recall(&ada, json!({"query": "release plan MARKER-71f3a", "explain": true})).await.expect(200);
    assert!(!after.to_string().contains("71f3a") || after["hits"] == json!([]), "{after}");
    assert!(!after["hits"].to_string().contains("71f3a"));
    assert_eq!(after["coverage"]["lanes"].as_array().unwrap().len(), 1);
    assert_eq!(after["coverage"]["lanes"][0]["counts"]["events"], before["coverage"]["lanes"][0]["counts"]["events"]);
    world.close().await;
}
