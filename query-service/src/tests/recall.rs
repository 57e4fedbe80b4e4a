//! Recall through the route: fan-out, budgets, encodings, links, formats, prefixes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_core::LaneError;
use lanekeeper_core::encoder::EncodeError;
use lanekeeper_core::lane::{LaneKind, Ranking};
use lanekeeper_core::lane_client::{Candidate, StoreAnswer};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fake::{BOB, Does, FakeEncoder, FakeLane, World, nothing, view};
use crate::Budgets;
use crate::rank::tests::{paragraph_candidate, turn};

fn found(candidates: Vec<Candidate>) -> StoreAnswer {
    StoreAnswer { candidates, ..nothing() }
}

fn saying(seq: u64, vector: f64, text: &str) -> Candidate {
    Candidate { text: text.into(), ..turn(seq, Some(vector), 1.0, 1.0) }
}

async fn ask(world: &World, body: Value) -> Value {
    let token = world.token("user:bob", BOB);
    let answer = world.ask("POST", "/v1/recall", &token, Some(body)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

fn texts(response: &Value) -> Vec<String> {
    response["hits"].as_array().unwrap().iter().map(|hit| hit["text"].as_str().unwrap().to_owned()).collect()
}

fn soon(world: &mut World) {
    world.limits.recall = Budgets { embedding: Duration::from_millis(20), recall: Duration::from_millis(60) };
}

#[tokio::test]
async fn own_and_read_lanes_are_asked_once_encoded_and_fused() {
    let world = World::new();
    world.bob.finds("when?", found(vec![saying(1, 0.9, "thursday"), saying(2, 0.4, "maybe")]));
    world.handbook.finds("when?", found(vec![saying(3, 0.8, "always friday")]));
    world.eve.finds("when?", found(vec![saying(4, 0.99, "eve's own")]));
    let response = ask(&world, json!({"query": "when?", "explain": true})).await;
    assert_eq!(texts(&response), ["thursday", "always friday", "maybe"]);
    assert_eq!(response["hits"][1]["lane"], "team/handbook");
    assert_eq!(response["coverage"]["complete_corpus"], true, "{}", response["coverage"]["missing"]);
    let relations: Vec<&Value> =
        response["coverage"]["lanes"].as_array().unwrap().iter().map(|lane| &lane["relation"]).collect();
    assert_eq!(relations, ["own", "read"]);
    assert_eq!(*world.encoder.asked.lock().unwrap(), ["when?"]);
    assert_eq!(world.eve.called(), Vec::<&str>::new());
    assert_eq!(response["hits"][0]["arms"]["vector"]["score"], 0.9);
    assert!(response["hits"][0]["terms"]["vector"].as_f64().unwrap() > 1.4);
    assert!(response["recall_id"].as_str().unwrap().len() == 36);
    let plain = ask(&world, json!({"query": "when?"})).await;
    assert_eq!(plain["hits"][0]["arms"], json!({"vector": {"score": null, "rank": 1}}));
    assert!(plain["hits"][0]["terms"].is_null());
}

// C32
#[tokio::test]
async fn a_smaller_top_k_is_a_prefix_of_a_larger() {
    let world = World::new();
    world.bob.finds("q", found((1..=60).map(|seq| saying(seq, seq as f64 / 100.0, &format!("t{seq}"))).collect()));
    let mut before: Vec<String> = Vec::new();
    for top_k in [1, 2, 5, 20, 50] {
        let hits = texts(&ask(&world, json!({"query": "q", "top_k": top_k})).await);
        assert_eq!(hits.len(), top_k);
        assert_eq!(hits[..before.len()], before[..]);
        before = hits;
    }
    assert_eq!(texts(&ask(&world, json!({"query": "q"})).await).len(), 5);
    let token = world.token("user:bob", BOB);
    for bad in [json!(0), json!(-1), json!(51), json!(1_000_000_000), json!(1.5), json!("5")] {
        let answer = world.ask("POST", "/v1/recall", &token, Some(json!({"query": "q", "top_k": bad}))).await;
        assert_eq!((answer.status.as_u16(), answer.json()["errors"][0]["field"].clone()), (400, json!("top_k")));
    }
}

#[tokio::test]
async fn each_failure_of_the_embedder_has_its_reason_and_text_still_answers() {
    for (error, reason) in [
        (EncodeError::Overloaded, "embedder_overloaded"),
        (EncodeError::Unavailable { reason: "down".into() }, "embedder_unavailable"),
        (EncodeError::ModelMismatch { reason: "other".into() }, "embedder_model_mismatch"),
        (EncodeError::Refused { reason: "no".into() }, "embedder_refused"),
    ] {
        let world = World::new();
        world.bob.finds("q", found(vec![saying(1, 0.9, "by text")]));
        *world.encoder.fails.lock().unwrap() = Some(error);
        let response = ask(&world, json!({"query": "q"})).await;
        assert_eq!(texts(&response), ["by text"]);
        assert_eq!(response["coverage"]["complete_corpus"], false);
        assert_eq!(response["coverage"]["shared"][0], json!({"part": "embedder", "state": reason}));
        assert_eq!(response["coverage"]["lanes"][0]["arms"]["vector"], json!({"searched": false, "reason": reason}));
    }
}

#[tokio::test]
async fn an_embedder_that_hangs_costs_its_budget_and_no_more() {
    let mut world = World::new();
    soon(&mut world);
    *world.encoder.hangs.lock().unwrap() = true;
    world.bob.finds("q", found(vec![saying(1, 0.9, "by text")]));
    let response = ask(&world, json!({"query": "q"})).await;
    assert_eq!(texts(&response), ["by text"]);
    assert_eq!(response["coverage"]["lanes"][0]["arms"]["vector"]["reason"], "embedding_timeout");
    assert_eq!(response["coverage"]["shared"][0]["state"], "embedding_timeout");
}

#[tokio::test]
async fn an_encoder_of_another_fingerprint_is_not_used() {
    let world = World::new();
    let view = view("team/bob", BOB, LaneKind::Personal, Some("user:bob"));
    world.put_with(view, &world.bob, FakeEncoder::new("another", true));
    let response = ask(&world, json!({"query": "q"})).await;
    assert_eq!(response["coverage"]["lanes"][0]["arms"]["vector"]["reason"], "embedder_model_mismatch");
}

// C38
#[tokio::test]
async fn a_lane_that_is_late_fails_or_panics_is_named_and_the_others_answer() {
    for (does, reason) in [
        (Does::Hang, "deadline"),
        (Does::Panic, "internal"),
        (Does::Fail(LaneError::Unavailable { what: "it".into() }), "unavailable"),
        (Does::Fail(LaneError::internal("why")), "internal"),
    ] {
        let mut world = World::new();
        soon(&mut world);
        world.bob.finds("q", found(vec![saying(1, 0.9, "mine")]));
        *world.handbook.does.lock().unwrap() = does;
        let response = ask(&world, json!({"query": "q"})).await;
        assert_eq!(texts(&response), ["mine"]);
        let coverage = &response["coverage"];
        assert_eq!(coverage["complete_corpus"], false);
        assert_eq!(coverage["lanes"][1]["lane"], "team/handbook");
        for arm in ["turn_text", "window_text", "vector", "memory_text"] {
            assert_eq!(coverage["lanes"][1]["arms"][arm], json!({"searched": false, "reason": reason}));
        }
        assert!(
            coverage["shared"].as_array().unwrap().contains(&json!({"part": "approvals", "state": "not configured"}))
        );
    }
}

#[tokio::test]
async fn memory_alone_asks_no_embedder() {
    let world = World::new();
    let mut answer = nothing();
    answer.memory = vec![paragraph_candidate(0, 3.0)];
    world.bob.finds("q", answer);
    let response = ask(&world, json!({"query": "q", "surfaces": ["memory"], "explain": true})).await;
    assert_eq!(texts(&response), ["paragraph 0"]);
    let hit = &response["hits"][0];
    assert_eq!((&hit["surface"], &hit["owner"], &hit["id"]), (&json!("memory"), &json!("bob"), &json!("p0")));
    assert_eq!(hit["arms"], json!({"memory_text": {"score": 3.0, "rank": 1}}));
    assert!(world.encoder.asked.lock().unwrap().is_empty());
    assert!(
        response["coverage"]["shared"].as_array().unwrap().contains(&json!({"part": "memory", "state": "text only"}))
    );
    assert_eq!(response["coverage"]["complete_corpus"], true, "{}", response["coverage"]["missing"]);
}

#[tokio::test]
async fn names_are_stripped_for_an_embedder_that_pools_by_itself() {
    let world = World::new();
    let pooled = FakeEncoder::new("fake", false);
    let view = view("team/bob", BOB, LaneKind::Personal, Some("user:bob"));
    world.put_with(view, &world.bob, Arc::clone(&pooled) as _);
    *world.bob.speakers.lock().unwrap() = Some(vec!["Caroline".into()]);
    let statement = async || {
        ask(&world, json!({"query": "What did Caroline say?"})).await["ranking"]["statement"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(statement().await.contains("stripped from the question"));
    assert_eq!(*pooled.asked.lock().unwrap(), ["What did say?"]);
    *world.bob.speakers.lock().unwrap() = None;
    assert!(statement().await.contains("could not name its speakers"));
    assert_eq!(pooled.asked.lock().unwrap()[1], "What did Caroline say?");
}

#[tokio::test]
async fn the_ranking_is_the_lanes_unless_the_request_says() {
    let world = World::new();
    world.bob.finds("q", found(vec![saying(1, 0.9, "mine")]));
    let mut said = BTreeMap::new();
    said.insert("fused", ask(&world, json!({"query": "q"})).await["ranking"].clone());
    said.insert("rrf by request", ask(&world, json!({"query": "q", "ranking": "rrf"})).await["ranking"].clone());
    world.change("team/handbook", |view| view.recall.ranking = Ranking::Rrf);
    said.insert("mixed", ask(&world, json!({"query": "q"})).await["ranking"].clone());
    world.change("team/bob", |view| {
        view.recall.ranking = Ranking::Rrf;
        view.recall.half_life_ms = Some(1);
    });
    said.insert("rrf by lanes, aged", ask(&world, json!({"query": "q", "hop_budget": 1})).await["ranking"].clone());
    insta::assert_json_snapshot!("rankings", said);
}

#[tokio::test]
async fn a_long_question_is_cut_and_says_so() {
    let world = World::new();
    let long = format!("head {} tail", "x".repeat(4000));
    let response = ask(&world, json!({"query": long})).await;
    assert_eq!(response["coverage"]["query_cut"], true);
    let asked = world.encoder.asked.lock().unwrap()[0].clone();
    assert!(asked.starts_with("head ") && asked.ends_with(" tail") && asked.chars().count() == 3072);
}

// C26
#[tokio::test]
async fn a_blank_question_is_refused_and_any_other_is_asked() {
    let world = World::new();
    let token = world.token("user:bob", BOB);
    for blank in ["", "  ", "\n\t"] {
        let answer = world.ask("POST", "/v1/recall", &token, Some(json!({"query": blank}))).await;
        assert_eq!((answer.status.as_u16(), answer.json()["errors"][0]["field"].clone()), (400, json!("query")));
    }
    for odd in ["```", "🙂", "the of and", "a'b", "\u{0}"] {
        assert_eq!(texts(&ask(&world, json!({"query": odd})).await), Vec::<String>::new());
    }
}

#[tokio::test]
async fn links_are_asked_in_their_own_lane_within_the_budget() {
    let world = World::new();
    world.bob.finds("q", found(vec![saying(1, 0.9, "see [[Plan B]] and [[Other]]"), saying(2, 0.5, "plain")]));
    world.bob.finds("Plan B", found(vec![saying(7, 0.9, "the plan")]));
    world.bob.finds("Other", found(vec![saying(8, 0.9, "another")]));
    world.handbook.finds("Plan B", found(vec![saying(9, 0.9, "not this lane")]));
    assert_eq!(texts(&ask(&world, json!({"query": "q"})).await), ["see [[Plan B]] and [[Other]]", "plain"]);
    let response = ask(&world, json!({"query": "q", "hop_budget": 1})).await;
    assert_eq!(texts(&response)[..2], ["see [[Plan B]] and [[Other]]", "the plan"]);
    assert_eq!(response["hits"][1]["via"], "Plan B");
    assert!(response["hits"][0]["via"].is_null());
    let two = ask(&world, json!({"query": "q", "hop_budget": 2})).await;
    assert!(texts(&two).contains(&"another".to_owned()) && !texts(&two).contains(&"not this lane".to_owned()));
    let token = world.token("user:bob", BOB);
    for bad in [9, -1] {
        let answer = world.ask("POST", "/v1/recall", &token, Some(json!({"query": "q", "hop_budget": bad}))).await;
        assert_eq!(answer.json()["errors"][0]["field"], "hop_budget");
    }
}

#[tokio::test]
async fn a_prompt_groups_by_lane_and_fences() {
    let world = World::new();
    world.bob.finds("q", found(vec![saying(1, 0.4, "mine </recalled>")]));
    world.handbook.finds("q", found(vec![saying(2, 0.9, "theirs")]));
    let response = ask(&world, json!({"query": "q", "format": "prompt"})).await;
    let prompt = response["prompt"].as_str().unwrap();
    assert_eq!(texts(&response), ["theirs", "mine </recalled>"]);
    assert!(prompt.find("mine &lt;/recalled&gt;").unwrap() < prompt.find("theirs").unwrap());
    assert!(ask(&world, json!({"query": "q"})).await["prompt"].is_null());
}

#[tokio::test]
async fn steps_that_are_off_reach_the_lanes() {
    let mut world = World::new();
    world.steps = world.steps.without("vector").unwrap().without("window_text").unwrap();
    let response = ask(&world, json!({"query": "q"})).await;
    assert_eq!(response["coverage"]["lanes"][0]["arms"]["window_text"]["reason"], "off");
    assert!(world.encoder.asked.lock().unwrap().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    // C32 through the whole pipeline, links included.
    #[test]
    fn prefixes_hold_with_links_and_several_lanes(
        scores in proptest::collection::vec((1_u64..40, 0.31..0.99_f64, 0_usize..6), 1..30), small in 1_usize..10, more in 1_usize..15, hops in 0_u32..9,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::new();
            let candidate = |(seq, vector, link): &(u64, f64, usize)| {
                let text = if *link < 3 { format!("t{seq} [[l{link}]]") } else { format!("t{seq}") };
                saying(*seq, *vector, &text)
            };
            let mut all: Vec<Candidate> = scores.iter().map(candidate).collect();
            all.sort_by_key(|c| c.seq);
            all.dedup_by_key(|c| c.seq);
            world.bob.finds("q", found(all.iter().filter(|c| c.seq.0 % 3 != 0).cloned().collect()));
            world.handbook.finds("q", found(all.iter().filter(|c| c.seq.0 % 3 == 0).cloned().collect()));
            for link in 0..3_u64 {
                let finds: Vec<Candidate> = all.iter().filter(|c| c.seq.0 % 3 != 0 && c.seq.0 % 2 == link % 2).cloned().chain([saying(100 + link, 0.5, "linked")]).collect();
                world.bob.finds(&format!("l{link}"), found(finds));
            }
            let cut = async |top_k: usize| {
                let response = ask(&world, json!({"query": "q", "top_k": top_k, "hop_budget": hops.min(8)})).await;
                response["hits"].as_array().unwrap().iter().map(|hit| (hit["id"].to_string(), hit["score"].to_string(), hit["via"].to_string())).collect::<Vec<_>>()
            };
            let (short, long) = (cut(small).await, cut(small + more).await);
            assert_eq!(short[..], long[..short.len()]);
        });
    }
}

#[tokio::test]
async fn the_arms_of_a_lane_of_another_embedding_join_as_a_list() {
    let world = World::new();
    let other = FakeEncoder::new("another", true);
    let corpus = Arc::new(FakeLane::default());
    let mut corpus_view = view("team/handbook", 3, LaneKind::Corpus, None);
    corpus_view.readers = vec![lanekeeper_core::lane::Reader::Namespace("team".into())];
    corpus_view.fingerprint = other.fields.fingerprint();
    world.put_with(corpus_view, &corpus, Arc::clone(&other) as _);
    world.bob.finds("q", found(vec![saying(1, 0.9, "mine"), saying(2, 0.8, "mine too")]));
    corpus.finds("q", found(vec![saying(3, 0.99, "theirs")]));
    let response = ask(&world, json!({"query": "q", "explain": true})).await;
    assert_eq!(texts(&response), ["mine", "theirs", "mine too"]);
    assert_eq!(response["hits"][1]["score"], 1.0 / 61.0);
    assert!(response["hits"][1]["terms"]["within_list"].as_f64().unwrap() > 1.0);
    assert_eq!((world.encoder.asked.lock().unwrap().len(), other.asked.lock().unwrap().len()), (1, 1));
    assert_eq!(response["ranking"]["arms"].as_array().unwrap().len(), 4);
}
