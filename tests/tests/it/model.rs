//! What only the real model can show.

use lanekeeper_tests::world::{LaneSpec, World};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c30_the_exact_text_is_over_the_floor_and_an_unrelated_one_under_it() {
    let Some(encoder) = lanekeeper_tests::builtin() else { return };
    let world = World::new(encoder, vec![LaneSpec::personal("team/bob", "bob")]).await;
    let bob = world.token("team/bob", "user:bob");
    let texts = [
        "The database migration to Postgres 17 is planned for the second week of November.",
        "Maria prefers short meetings in the morning.",
        "The staging cluster ran out of disk space on Tuesday.",
        "We agreed to rotate the signing keys every ninety days.",
    ];
    world.save("team/bob", &bob, "s", &texts).await.expect(201);
    world.settle().await;
    for text in texts {
        let answer = world.recall(&bob, json!({"query": text, "explain": true})).await.expect(200);
        let floor = answer["coverage"]["lanes"][0]["floor"].as_f64().unwrap();
        assert_eq!(answer["hits"][0]["text"], text);
        let cosine = answer["hits"][0]["arms"]["vector"]["score"].as_f64().unwrap();
        assert!(cosine > floor, "{text}: {cosine} under the floor {floor}");
    }
    // No word in common and nothing to do with any of it: only a vector arm without a floor would find it.
    let answer =
        world.recall(&bob, json!({"query": "penguins waddle across Antarctic ice", "explain": true})).await.expect(200);
    assert_eq!(answer["hits"], json!([]), "{answer}");
    // A paraphrase without its words is found by vector alone.
    let answer =
        world.recall(&bob, json!({"query": "how often do credentials get renewed", "explain": true})).await.expect(200);
    assert_eq!(answer["hits"][0]["text"], texts[3], "{answer}");
    world.close().await;
}
