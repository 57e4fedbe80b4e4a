//! C1 to C16: what must never cross from one lane into another. Numbers are those of shared/cases.md.

use std::sync::Arc;

use http::Method;
use lanekeeper_core::scope::Role;
use lanekeeper_core::testing::HashEncoder;
use lanekeeper_tests::world::{LaneSpec, World};
use serde_json::{Value, json};

async fn world(lanes: Vec<LaneSpec>) -> World {
    World::new(Arc::new(HashEncoder::new()), lanes).await
}

#[tokio::test]
async fn c01_a_lane_whose_name_is_a_prefix_sees_nothing() {
    let world = world(vec![LaneSpec::personal("team/acme", "bob"), LaneSpec::personal("team/acme-corp", "ada")]).await;
    let (bob, ada) = (world.token("team/acme", "user:bob"), world.token("team/acme-corp", "user:ada"));
    world.save("team/acme-corp", &ada, "s", &["the merger is called project heron"]).await.expect(201);
    world.settle().await;
    let answer = world.recall(&bob, json!({"query": "merger heron", "explain": true, "top_k": 50})).await.expect(200);
    assert_eq!(answer["hits"], json!([]));
    let coverage = &answer["coverage"]["lanes"];
    assert_eq!(coverage.as_array().unwrap().len(), 1);
    assert_eq!((&coverage[0]["lane"], &coverage[0]["counts"]["events"]), (&json!("team/acme"), &json!(0)));
    assert!(!answer.to_string().contains("acme-corp"));
    world.close().await;
}

#[tokio::test]
async fn c02_a_percent_sign_in_a_filter_is_literal() {
    let world = world(vec![LaneSpec::personal("team/bob", "bob")]).await;
    let bob = world.token("team/bob", "user:bob");
    for session in ["%", "_", "a%b", "axb"] {
        world.save("team/bob", &bob, session, &[&format!("note in session {session} about walrus")]).await.expect(201);
    }
    world.settle().await;
    for (session, expected) in [("%", 1), ("_", 1), ("a%b", 1), ("%x%", 0), ("*", 0)] {
        let answer = world
            .recall(&bob, json!({"query": "walrus", "top_k": 50, "filter": {"session": [session]}}))
            .await
            .expect(200);
        let hits = answer["hits"].as_array().unwrap();
        assert_eq!(hits.len(), expected, "{session}: {answer}");
        assert!(hits.iter().all(|hit| hit["session"] == session));
    }
    world.close().await;
}

#[tokio::test]
async fn c03_a_failed_save_leaves_an_empty_answer_with_its_reason() {
    let world = world(vec![LaneSpec::personal("team/bob", "bob"), LaneSpec::personal("team/ada", "ada")]).await;
    let (bob, ada) = (world.token("team/bob", "user:bob"), world.token("team/ada", "user:ada"));
    world.save("team/bob", &bob, "s", &["bob's own heron"]).await.expect(201);
    // Ada's record is sealed, as a read-only volume would be: the save fails, recall answers by its own.
    let collection = world.lane("team/ada").view.collection.clone();
    use lanekeeper_federation::Registry;
    world
        .registry
        .change_spec(&collection, Box::new(|spec| spec.mode = lanekeeper_federation::Mode::Sealed))
        .await
        .unwrap();
    let refused = world.save("team/ada", &ada, "s", &["ada's heron"]).await;
    assert!(!refused.status.is_success());
    assert_eq!(refused.code(), "fence_not_writable");
    let answer = world.recall(&ada, json!({"query": "heron"})).await.expect(200);
    assert_eq!(answer["hits"], json!([]));
    assert_eq!(answer["coverage"]["lanes"][0]["lane"], "team/ada");
    assert_eq!(answer["coverage"]["lanes"][0]["counts"]["events"], 0);
    world.close().await;
}

#[tokio::test]
async fn c05_metadata_is_the_callers_own_and_steers_nothing() {
    let world = world(vec![LaneSpec::personal("team/bob", "bob"), LaneSpec::personal("team/other", "ada")]).await;
    let bob = world.token("team/bob", "user:bob");
    let metadata =
        json!({"lane": "team/other", "user_id": "x", "collection": "y", "event_id": "z", "principal": "user:ada"});
    let body =
        json!({"session": "s", "turns": [{"role": "assistant", "text": "a heron flew by", "metadata": metadata}]});
    let saved = world.post("/v1/lanes/team/bob/events", &bob, body).await.expect(201);
    assert_ne!(saved["events"][0]["id"], "z");
    let hit = world.recall(&bob, json!({"query": "heron"})).await.expect(200)["hits"][0].clone();
    assert_eq!(hit["metadata"], metadata);
    assert_eq!((&hit["lane"], &hit["principal"]), (&json!("team/bob"), &json!("user:bob")));
    let ada = world.token("team/other", "user:ada");
    assert_eq!(world.texts(&ada, "heron").await, Vec::<String>::new());
    world.close().await;
}

#[tokio::test]
async fn c06_lanes_narrow_and_never_widen() {
    let world = world(vec![LaneSpec::personal("team/bob", "bob"), LaneSpec::personal("team/ada", "ada")]).await;
    let (bob, ada) = (world.token("team/bob", "user:bob"), world.token("team/ada", "user:ada"));
    world.save("team/bob", &bob, "s", &["a heron"]).await.expect(201);
    world.save("team/ada", &ada, "s", &["a heron"]).await.expect(201);
    let uid = world.lane("team/ada").view.uid.to_string();
    for (lanes, status) in [
        (json!(["team/ada"]), 404),
        (json!(["team/bob", "team/ada"]), 404),
        (json!(["other/x"]), 404),
        (json!([]), 400),
        (json!(["team/bob"]), 200),
    ] {
        let answer = world.recall(&bob, json!({"query": "heron", "lanes": lanes})).await;
        assert_eq!(answer.status.as_u16(), status, "{lanes}");
    }
    for nonsense in
        [json!([uid]), json!([""]), json!(["*"]), json!(["team/*"]), json!(["team"]), json!([{}]), json!("team/bob")]
    {
        let answer = world.recall(&bob, json!({"query": "heron", "lanes": nonsense})).await;
        assert!(matches!(answer.status.as_u16(), 400 | 404), "{nonsense}: {}", answer.status);
    }
    world.close().await;
}

#[tokio::test]
async fn c08_saved_by_a_service_account_and_recalled_by_its_person() {
    let lane = LaneSpec::personal("team/bob", "bob").access("sa:team/agent", Role::Writer);
    let world = world(vec![lane]).await;
    let (agent, bob) = (world.token("team/bob", "sa:team/agent"), world.token("team/bob", "user:bob"));
    world.save("team/bob", &agent, "s", &["the agent saw a heron"]).await.expect(201);
    world.save("team/bob", &bob, "s", &["bob saw it too"]).await.expect(201);
    let hit = world.recall(&bob, json!({"query": "heron"})).await.expect(200)["hits"][0].clone();
    assert_eq!((&hit["text"], &hit["principal"]), (&json!("the agent saw a heron"), &json!("sa:team/agent")));
    let page = world.get("/v1/lanes/team/bob/events", &bob).await.expect(200);
    let principals: Vec<&str> =
        page["events"].as_array().unwrap().iter().filter_map(|event| event["principal"].as_str()).collect();
    assert_eq!(principals, ["sa:team/agent", "user:bob"]);
    // A writer forgets nothing.
    let id = page["events"][1]["id"].clone();
    let refused = world.post("/v1/lanes/team/bob/forget", &agent, json!({"events": [id]})).await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (403, "gate_required"));
    world.close().await;
}

#[tokio::test]
async fn c11_one_key_in_two_lanes_is_two_keys() {
    let world = world(vec![LaneSpec::personal("team/bob", "bob"), LaneSpec::personal("team/ada", "ada")]).await;
    let (bob, ada) = (world.token("team/bob", "user:bob"), world.token("team/ada", "user:ada"));
    let body =
        |text: &str| json!({"session": "s", "turns": [{"role": "assistant", "text": text}]}).to_string().into_bytes();
    let key = [("idempotency-key", "same-key")];
    let one = world.call(Method::POST, "/v1/lanes/team/bob/events", Some(&bob), &key, body("of bob")).await.expect(201);
    let two = world.call(Method::POST, "/v1/lanes/team/ada/events", Some(&ada), &key, body("of ada")).await.expect(201);
    assert_ne!(one["events"][0]["id"], two["events"][0]["id"]);
    assert!(!world.texts(&ada, "of bob").await.contains(&"of bob".to_owned()));
    world.close().await;
}

#[tokio::test]
async fn c12_a_token_ends_with_the_lane_it_was_made_for() {
    let mut world = world(vec![LaneSpec::personal("team/acme", "bob")]).await;
    let bob = world.token("team/acme", "user:bob");
    world.save("team/acme", &bob, "s", &["bob's heron"]).await.expect(201);
    // The name is made again, for eve.
    world.add(LaneSpec::personal("team/acme", "eve").access("user:bob", Role::Reader), None).await;
    let eve = world.token("team/acme", "user:eve");
    world.save("team/acme", &eve, "s", &["eve's heron"]).await.expect(201);
    let answer = world.get("/v1/lanes/team/acme/events", &bob).await;
    assert_eq!(answer.status.as_u16(), 404);
    let answer = world.recall(&bob, json!({"query": "heron"})).await;
    assert!(answer.status.as_u16() == 404 || answer.json()["hits"] == json!([]), "{answer:?}");
    assert_eq!(world.texts(&eve, "heron").await, ["eve's heron"]);
    world.close().await;
}

#[tokio::test]
async fn removing_access_ends_a_token_at_once() {
    let mut world = world(vec![LaneSpec::personal("team/bob", "bob").access("user:ada", Role::Reader)]).await;
    let ada = world.token("team/bob", "user:ada");
    world.recall(&ada, json!({"query": "heron"})).await.expect(200);
    let mut changed = world.lane("team/bob").clone();
    changed.view.access.clear();
    world.put(changed);
    let answer = world.get("/v1/lanes/team/bob/events", &ada).await;
    assert_eq!(answer.status.as_u16(), 404);
    world.close().await;
}

#[tokio::test]
async fn c16_reads_need_consent_of_both_sides_and_end_with_it() {
    let world_of = |listed: bool| async move {
        let mut corpus = LaneSpec::corpus("team/handbook").publisher("user:carol", Role::Curator);
        if listed {
            corpus = corpus.reader("team/bob");
        }
        let lanes = vec![LaneSpec::personal("team/bob", "bob").reads("team/handbook"), corpus];
        let world = World::new(Arc::new(HashEncoder::new()), lanes).await;
        let carol = world.token("team/handbook", "user:carol");
        world.save("team/handbook", &carol, "s", &["the handbook speaks of herons"]).await.expect(201);
        world
    };
    let world = world_of(false).await;
    let bob = world.token("team/bob", "user:bob");
    assert_eq!(world.texts(&bob, "herons").await, Vec::<String>::new());
    world.close().await;

    let mut world = world_of(true).await;
    let bob = world.token("team/bob", "user:bob");
    let answer = world.recall(&bob, json!({"query": "herons"})).await.expect(200);
    assert_eq!(answer["hits"][0]["lane"], "team/handbook");
    let relations: Vec<&Value> =
        answer["coverage"]["lanes"].as_array().unwrap().iter().map(|lane| &lane["relation"]).collect();
    assert_eq!(relations, [&json!("own"), &json!("read")]);
    // One way, and recall alone.
    let carol = world.token("team/handbook", "user:carol");
    world.save("team/bob", &bob, "s", &["bob's private heron"]).await.expect(201);
    assert!(world.texts(&carol, "private heron").await.iter().all(|text| !text.contains("private")));
    let refused = world.save("team/handbook", &bob, "s", &["bob writes into the handbook"]).await;
    assert!(!refused.status.is_success());
    // The corpus lane made again as somebody's personal lane is read by nobody.
    world.add(LaneSpec::personal("team/handbook", "eve"), None).await;
    world.resolve_readers().await;
    let eve = world.token("team/handbook", "user:eve");
    world.save("team/handbook", &eve, "s", &["eve's private herons"]).await.expect(201);
    assert!(world.texts(&bob, "herons").await.iter().all(|text| !text.contains("eve")));
    world.close().await;
}

#[tokio::test]
async fn one_with_a_personal_lane_publishes_only_where_the_corpus_says_so() {
    let world = world(vec![
        LaneSpec::personal("team/bob", "bob"),
        LaneSpec::corpus("team/open").publisher("user:bob", Role::Writer),
        LaneSpec::corpus("team/closed").access("user:bob", Role::Writer).access("user:carol", Role::Writer),
    ])
    .await;
    let open = world.token("team/open", "user:bob");
    world.save("team/open", &open, "s", &["published"]).await.expect(201);
    let closed = world.token("team/closed", "user:bob");
    let refused = world.save("team/closed", &closed, "s", &["not published"]).await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (403, "gate_required"));
    let carol = world.token("team/closed", "user:carol");
    world.save("team/closed", &carol, "s", &["carol has no personal lane"]).await.expect(201);
    world.close().await;
}
