//! C25 to C38: what a search must withstand.

use std::sync::Arc;

use lanekeeper_core::testing::{Behaviour, HashEncoder};
use lanekeeper_tests::world::{LaneSpec, World};
use serde_json::{Value, json};

async fn world() -> (World, String) {
    let world = World::new(Arc::new(HashEncoder::new()), vec![LaneSpec::personal("team/bob", "bob")]).await;
    let token = world.token("team/bob", "user:bob");
    (world, token)
}

fn texts(answer: &Value) -> Vec<&str> {
    answer["hits"].as_array().unwrap().iter().map(|hit| hit["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn c25_literals_are_found_with_a_text_rank() {
    let (world, bob) = world().await;
    let literals = [
        "GB/s",
        "multi-agent",
        "v2.5 release",
        "host:8080",
        "a'b",
        "C++",
        "rm -rf",
        "DO NOT USE",
        "BENCH-100821",
        "snake_case_name",
        "foo(bar)",
        "\"quoted\"",
        "NEAR",
        "AND",
        "col:value",
        "x*",
        "(a OR b)",
        "€100",
        "50%",
    ];
    for literal in literals {
        world.save("team/bob", &bob, "s", &[&format!("a note that holds {literal} in its midst")]).await.expect(201);
    }
    world.save("team/bob", &bob, "s", &["a note that holds nothing of the kind"]).await.expect(201);
    world.settle().await;
    for literal in literals {
        let answer = world.recall(&bob, json!({"query": literal, "top_k": 5, "explain": true})).await.expect(200);
        let hits = answer["hits"].as_array().unwrap();
        let hit = hits.iter().find(|hit| hit["text"].as_str().unwrap().contains(literal));
        let Some(hit) = hit else {
            // Words that are stop words in English alone have no text arm, and the answer says so.
            assert!(["AND", "DO NOT USE"].contains(&literal), "{literal}: {answer}");
            continue;
        };
        assert!(hit["arms"]["turn_text"]["rank"].is_u64(), "{literal}: {hit}");
    }
    let long = "where is the BENCH-100821 result of the run ".repeat(100);
    let answer = world.recall(&bob, json!({"query": long})).await.expect(200);
    assert!(texts(&answer)[0].contains("BENCH-100821"));
    assert_eq!(answer["coverage"]["query_cut"], true);
    world.close().await;
}

#[tokio::test]
async fn c25_ten_thousand_random_strings_give_no_5xx() {
    use rand::{RngExt, SeedableRng};
    let (world, bob) = world().await;
    world.save("team/bob", &bob, "s", &["a heron", "NEAR AND OR \" ' * ( ) : ^ -", "ünïcödé"]).await.expect(201);
    world.settle().await;
    let seed: u64 = rand::random();
    eprintln!("seed {seed}");
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let alphabet: Vec<char> =
        "ab \"'*():^-+/\\%_{}[]<>&|!~`@#$;,.?\0\t\n\u{200f}\u{feff}é中日한👩\u{200d}0".chars().collect();
    for _ in 0..10_000 {
        let query: String =
            (0..random.random_range(1..24)).map(|_| alphabet[random.random_range(0..alphabet.len())]).collect();
        let answer = world.recall(&bob, json!({"query": query})).await;
        assert!(matches!(answer.status.as_u16(), 200 | 400), "{query:?}: {}", answer.status);
    }
    world.close().await;
}

#[tokio::test]
async fn c26_blank_is_400_and_the_rest_answers_but_never_everything() {
    let (world, bob) = world().await;
    for n in 0..30 {
        world.save("team/bob", &bob, "s", &[&format!("note {n} of the day about something")]).await.expect(201);
    }
    world.settle().await;
    for blank in ["", " ", "\n\t", "\u{3000}"] {
        let answer = world.recall(&bob, json!({"query": blank})).await;
        assert_eq!(
            (answer.status.as_u16(), answer.json()["errors"][0]["field"].as_str().unwrap()),
            (400, "query"),
            "{blank:?}"
        );
    }
    for odd in ["the of and", "```", "🦩"] {
        let answer = world.recall(&bob, json!({"query": odd, "top_k": 50})).await.expect(200);
        assert!(answer["hits"].as_array().unwrap().len() < 30, "{odd}: {}", answer["hits"]);
    }
    let stop = world.recall(&bob, json!({"query": "the of and"})).await.expect(200);
    let arms = &stop["coverage"]["lanes"][0]["arms"];
    assert_eq!(arms["turn_text"]["reason"], "no_searchable_terms");
    assert_eq!(stop["coverage"]["complete_corpus"], false);
    world.close().await;
}

#[tokio::test]
async fn c28_chinese_japanese_and_korean_are_found_by_two_characters() {
    // By text alone: the test's encoder knows no Chinese, and its chance neighbours would only blur the order.
    let encoder = HashEncoder::new();
    encoder.behave(Behaviour::Down);
    let world = World::new(Arc::new(encoder), vec![LaneSpec::personal("team/bob", "bob")]).await;
    let bob = world.token("team/bob", "user:bob");
    let sentences = [
        "部署在周五之前完成",
        "数据库迁移推迟到下周",
        "会议改到下午三点",
        "GPU节点需要更多内存",
        "客户要求退款处理",
        "東京の会議は明日です",
        "設計書を更新しました",
        "サーバーが停止した",
        "予算が承認された",
        "新しい担当者は田中さん",
        "서울 회의는 내일입니다",
        "데이터베이스 이전 완료",
        "배포가 실패했습니다",
        "예산 승인 대기",
        "담당자는 김철수",
    ];
    for sentence in sentences {
        world.save("team/bob", &bob, "s", &[sentence]).await.expect(201);
    }
    for (query, expected) in [
        ("部署", 0),
        ("迁移", 1),
        ("GPU节点", 3),
        ("退款", 4),
        ("会議", 5),
        ("設計", 6),
        ("予算", 8),
        ("田中", 9),
        ("서울", 10),
        ("배포", 12),
        ("예산", 13),
    ] {
        let answer = world.recall(&bob, json!({"query": query, "top_k": 50})).await.expect(200);
        let found = texts(&answer);
        assert_eq!(found.first(), Some(&sentences[expected]), "{query}: {found:?}");
        assert!(found.len() < sentences.len(), "{query} must not find all");
    }
    world.close().await;
}

#[tokio::test]
async fn c32_a_smaller_top_k_is_a_prefix() {
    let (world, bob) = world().await;
    for batch in 0..5 {
        let notes: Vec<String> =
            (0..100).map(|n| format!("note {n} of batch {batch} on subject{} and theme{}", n % 13, n % 7)).collect();
        let notes: Vec<&str> = notes.iter().map(String::as_str).collect();
        world.save("team/bob", &bob, &format!("s{batch}"), &notes).await.expect(201);
    }
    world.settle().await;
    for ranking in ["fused", "rrf"] {
        for query in ["subject3 theme2", "note", "batch 4"] {
            let mut before: Vec<Value> = vec![];
            for top_k in [1, 2, 5, 20, 50] {
                let answer =
                    world.recall(&bob, json!({"query": query, "top_k": top_k, "ranking": ranking})).await.expect(200);
                let ids: Vec<Value> = answer["hits"].as_array().unwrap().iter().map(|hit| hit["id"].clone()).collect();
                assert_eq!(ids[..before.len()], before[..], "{ranking} {query} {top_k}");
                assert!(ids.len() <= top_k);
                before = ids;
            }
        }
    }
    for bad in [json!(0), json!(-1), json!(51), json!(1_000_000_000), json!("5"), json!(2.5)] {
        assert_eq!(world.recall(&bob, json!({"query": "x", "top_k": bad})).await.status.as_u16(), 400, "{bad}");
    }
    world.close().await;
}

#[tokio::test]
async fn c35_copies_are_folded_within_a_lane_and_both_lanes_appear() {
    let lanes = vec![
        LaneSpec::personal("team/bob", "bob").reads("team/handbook"),
        LaneSpec::corpus("team/handbook")
            .publisher("user:carol", lanekeeper_core::scope::Role::Curator)
            .reader("team/bob"),
    ];
    let world = World::new(Arc::new(HashEncoder::new()), lanes).await;
    let (bob, carol) = (world.token("team/bob", "user:bob"), world.token("team/handbook", "user:carol"));
    let paragraph = "every release needs a second pair of eyes";
    for n in 0..20 {
        world.save("team/bob", &bob, &format!("s{n}"), &[paragraph]).await.expect(201);
    }
    world.save("team/handbook", &carol, "s", &[paragraph]).await.expect(201);
    world.settle().await;
    let answer =
        world.recall(&bob, json!({"query": "second pair of eyes for a release", "top_k": 50})).await.expect(200);
    let hits = answer["hits"].as_array().unwrap();
    let lanes: Vec<&str> = hits.iter().map(|hit| hit["lane"].as_str().unwrap()).collect();
    assert_eq!(lanes, ["team/bob", "team/handbook"], "own lanes win ties");
    assert_eq!((hits[0]["folded"].as_u64(), hits[1]["folded"].as_u64()), (Some(19), Some(0)));
    assert_eq!(answer["coverage"]["lanes"][0]["counts"]["folded"], 19);
    world.close().await;
}

#[tokio::test]
async fn c37_what_was_saved_is_found_at_once() {
    let (world, bob) = world().await;
    for n in 0..100 {
        world.save("team/bob", &bob, "s", &[&format!("instant{n}q is told")]).await.expect(201);
        let answer = world.recall(&bob, json!({"query": format!("instant{n}q")})).await.expect(200);
        assert!(texts(&answer).contains(&format!("instant{n}q is told").as_str()), "{n}: {answer}");
        let counts = &answer["coverage"]["lanes"][0]["counts"];
        let by_vector = answer["hits"][0]["arms"]["vector"]["rank"].is_u64();
        assert!(
            by_vector
                || counts["pending_projection"].as_u64().unwrap() > 0
                || answer["coverage"]["complete_corpus"] == true
        );
    }
    world.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c38_whatever_is_down_is_named_and_the_rest_answers() {
    use lanekeeper_core::lane_client::LaneClient;
    let encoder = HashEncoder::new();
    let lanes = vec![
        LaneSpec::personal("team/bob", "bob").reads("team/handbook"),
        LaneSpec::corpus("team/handbook")
            .publisher("user:carol", lanekeeper_core::scope::Role::Curator)
            .reader("team/bob"),
    ];
    let mut world = World::new(Arc::new(encoder.clone()), lanes).await;
    let (bob, carol) = (world.token("team/bob", "user:bob"), world.token("team/handbook", "user:carol"));
    world.save("team/bob", &bob, "s", &["a heron of bob's"]).await.expect(201);
    world.save("team/handbook", &carol, "s", &["a heron of the handbook's"]).await.expect(201);
    world.settle().await;
    let whole = world.recall(&bob, json!({"query": "heron"})).await.expect(200);
    assert_eq!(whole["coverage"]["complete_corpus"], true, "{}", whole["coverage"]);
    let shared = whole["coverage"]["shared"].as_array().unwrap();
    assert!(shared.contains(&json!({"part": "approvals", "state": "not configured"})), "{shared:?}");
    for (behaviour, reason) in [
        (Behaviour::Down, "embedder_unavailable"),
        (Behaviour::Overloaded, "embedder_overloaded"),
        (Behaviour::Hangs, "embedding_timeout"),
    ] {
        encoder.behave(behaviour);
        let answer = world.recall(&bob, json!({"query": "heron"})).await.expect(200);
        assert_eq!(answer["hits"].as_array().unwrap().len(), 2, "{reason}");
        assert_eq!(answer["coverage"]["complete_corpus"], false);
        assert_eq!(answer["coverage"]["lanes"][0]["arms"]["vector"], json!({"searched": false, "reason": reason}));
    }
    encoder.behave(Behaviour::Works);
    // One lane store stopped.
    let handbook = world.lane("team/handbook").clone();
    handbook.store.close().await;
    let answer = world.recall(&bob, json!({"query": "heron"})).await.expect(200);
    assert_eq!(texts(&answer), ["a heron of bob's"]);
    let lane =
        answer["coverage"]["lanes"].as_array().unwrap().iter().find(|lane| lane["lane"] == "team/handbook").unwrap();
    assert_eq!(lane["arms"]["turn_text"]["searched"], false, "{lane}");
    assert!(lane["arms"]["turn_text"]["reason"].is_string());
    assert_eq!(answer["coverage"]["complete_corpus"], false);
    // The vector store stopped.
    let failing: Arc<dyn vectors::VectorStore> = Arc::new(Stopped);
    let running = world.add(LaneSpec::personal("team/bob", "bob"), Some(failing)).await;
    let bob = world.token("team/bob", "user:bob");
    world.save("team/bob", &bob, "s", &["a heron without vectors"]).await.expect(201);
    let answer = world.recall(&bob, json!({"query": "heron"})).await.expect(200);
    assert_eq!(texts(&answer), ["a heron without vectors"]);
    assert_eq!(answer["coverage"]["lanes"][0]["arms"]["vector"]["reason"], "vector_engine_unavailable");
    assert!(running.store.status().await.ready);
    world.close().await;
}

/// An engine that is down.
#[derive(Debug)]
struct Stopped;

#[async_trait::async_trait]
impl vectors::VectorStore for Stopped {
    fn dimension(&self) -> usize {
        64
    }
    fn generation(&self) -> lanekeeper_core::Generation {
        lanekeeper_core::Generation(1)
    }
    async fn upsert(&self, _: Vec<vectors::Point>) -> Result<(), vectors::VectorError> {
        down()
    }
    async fn set_payload(&self, _: Vec<uuid::Uuid>, _: vectors::Payload) -> Result<(), vectors::VectorError> {
        down()
    }
    async fn delete(&self, _: Vec<uuid::Uuid>) -> Result<(), vectors::VectorError> {
        down()
    }
    async fn delete_event(&self, _: lanekeeper_core::EventId) -> Result<(), vectors::VectorError> {
        down()
    }
    async fn search(
        &self,
        _: Vec<f32>,
        _: vectors::VectorFilter,
        _: usize,
        _: usize,
    ) -> Result<Vec<vectors::Found>, vectors::VectorError> {
        down()
    }
    async fn vectors_of(
        &self,
        _: Vec<lanekeeper_core::EventId>,
    ) -> Result<std::collections::HashMap<lanekeeper_core::EventId, Vec<Vec<f32>>>, vectors::VectorError> {
        down()
    }
    async fn vectors(
        &self,
        _: Vec<uuid::Uuid>,
    ) -> Result<std::collections::HashMap<uuid::Uuid, Vec<f32>>, vectors::VectorError> {
        down()
    }
    async fn existing(&self, _: Vec<uuid::Uuid>) -> Result<Vec<uuid::Uuid>, vectors::VectorError> {
        down()
    }
    async fn all_ids(&self) -> Result<Vec<uuid::Uuid>, vectors::VectorError> {
        down()
    }
    async fn count(&self) -> Result<u64, vectors::VectorError> {
        down()
    }
    async fn flush(&self) -> Result<(), vectors::VectorError> {
        down()
    }
    async fn begin_shadow(&self) -> Result<lanekeeper_core::Generation, vectors::VectorError> {
        down()
    }
    fn has_shadow(&self) -> bool {
        false
    }
    async fn swap_shadow(&self) -> Result<lanekeeper_core::Generation, vectors::VectorError> {
        down()
    }
}

use lanekeeper_lane_store::vectors;

fn down<T>() -> Result<T, vectors::VectorError> {
    Err(vectors::VectorError::Unavailable("a test stopped it".into()))
}
