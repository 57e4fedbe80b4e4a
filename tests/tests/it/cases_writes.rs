//! C13 to C23: what a save must withstand.

use std::sync::Arc;

use http::Method;
use lanekeeper_core::testing::{Behaviour, HashEncoder};
use lanekeeper_tests::world::{LaneSpec, World};
use serde_json::{Value, json};

const EVENTS: &str = "/v1/lanes/team/bob/events";

async fn world() -> (World, String) {
    let world = World::new(Arc::new(HashEncoder::new()), vec![LaneSpec::personal("team/bob", "bob")]).await;
    let token = world.token("team/bob", "user:bob");
    (world, token)
}

fn one(text: &str) -> Value {
    json!({"session": "s", "turns": [{"role": "assistant", "text": text}]})
}

#[tokio::test]
async fn c13_three_retries_make_one_event() {
    let (world, bob) = world().await;
    let key = [("idempotency-key", "retry-1")];
    let mut ids = Vec::new();
    for _ in 0..4 {
        let saved = world
            .call(Method::POST, EVENTS, Some(&bob), &key, one("a heron once").to_string().into_bytes())
            .await
            .expect(201);
        ids.push(saved["events"][0]["id"].clone());
    }
    ids.dedup();
    assert_eq!(ids.len(), 1);
    let other = world.call(Method::POST, EVENTS, Some(&bob), &key, one("a heron twice").to_string().into_bytes()).await;
    assert_eq!((other.status.as_u16(), other.code().as_str()), (409, "idempotency_conflict"));
    for bad in ["", "a b", &"x".repeat(256)] {
        let answer = world
            .call(Method::POST, EVENTS, Some(&bob), &[("idempotency-key", bad)], one("x").to_string().into_bytes())
            .await;
        assert_eq!(answer.status.as_u16(), 400, "{bad:?}");
    }
    assert_eq!(world.texts(&bob, "heron").await, ["a heron once"]);
    world.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c15_saves_during_a_rebuild_and_an_import_lose_nothing() {
    let (world, bob) = world().await;
    let world = Arc::new(world);
    for n in 0..40 {
        world.save("team/bob", &bob, "before", &[&format!("before{n}z")]).await.expect(201);
    }
    let export = world.get("/v1/lanes/team/bob/export", &bob).await;
    assert_eq!(export.status.as_u16(), 200);
    let saves: Vec<_> = (0..200)
        .map(|n| {
            let (world, bob) = (world.clone(), bob.clone());
            tokio::spawn(async move {
                loop {
                    let answer = world.save("team/bob", &bob, &format!("s{}", n % 8), &[&format!("during{n}z")]).await;
                    match answer.status.as_u16() {
                        201 => return,
                        429 | 503 => {
                            assert!(answer.headers.contains_key("retry-after"));
                            tokio::task::yield_now().await;
                        }
                        other => panic!("{other}: {answer:?}"),
                    }
                }
            })
        })
        .collect();
    let upkeep = async {
        world.post("/v1/lanes/team/bob/rebuild", &bob, json!({})).await.expect(200);
        let headers = [("content-type", "application/x-ndjson")];
        world.call(Method::POST, "/v1/lanes/team/bob/import", Some(&bob), &headers, export.bytes.clone()).await
    };
    let imported = upkeep.await;
    assert!(imported.status.is_success(), "{imported:?}");
    for save in saves {
        save.await.unwrap();
    }
    world.settle().await;
    let mut seen = Vec::new();
    let mut after = 0;
    loop {
        let page = world.get(&format!("{EVENTS}?after={after}&limit=100"), &bob).await.expect(200);
        seen.extend(
            page["events"].as_array().unwrap().iter().filter_map(|event| event["text"].as_str().map(str::to_owned)),
        );
        match page["next_after"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    for n in 0..200 {
        assert_eq!(seen.iter().filter(|text| **text == format!("during{n}z")).count(), 1, "{n}");
    }
    let report = world.post("/v1/lanes/team/bob/verify", &bob, json!({})).await.expect(200);
    assert_eq!(report["ok"], true, "{report}");
    world.close().await;
}

#[tokio::test]
async fn c17_near_equal_memories_are_both_kept() {
    let (world, bob) = world().await;
    let pairs = [
        ("the deadline is October 15th", "the deadline is October 16th"),
        ("the SLO is 99.9 %", "the SLO is 99.5 %"),
        ("version v2.5 ships", "version v2.6 ships"),
    ];
    for (first, second) in pairs {
        for text in [first, second] {
            let saved = world.save("team/bob", &bob, "s", &[text]).await.expect(201);
            assert_eq!(saved["events"][0]["projection"], "pending", "{text}");
        }
    }
    world.settle().await;
    for (first, second) in pairs {
        let found = world.texts(&bob, first).await;
        assert!(
            found.iter().any(|text| text == first) && found.iter().any(|text| text == second),
            "{first}: {found:?}"
        );
        assert_eq!(found[0], first);
    }
    world.close().await;
}

#[tokio::test]
async fn c18_c21_text_is_stored_and_exported_byte_for_byte() {
    let (world, bob) = world().await;
    let texts = [
        "Subject: [x] a\tb\r\n\r\n  indented  \n trailing   ",
        "a\u{0}b nul",
        "\u{feff}byte-order mark",
        "right\u{200f}to\u{202e}left marks",
        "emoji 👩‍👩‍👧‍👦 and combining e\u{301}",
        "quotes \" ' ` and \\ backslash \u{2028} line separator",
    ];
    for text in texts {
        world.post(EVENTS, &bob, one(text)).await.expect(201);
    }
    let page = world.get(EVENTS, &bob).await.expect(200);
    let listed: Vec<&str> =
        page["events"].as_array().unwrap().iter().filter_map(|event| event["text"].as_str()).collect();
    assert_eq!(listed, texts);
    let export = world.get("/v1/lanes/team/bob/export", &bob).await;
    let exported: Vec<String> = String::from_utf8(export.bytes)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter_map(|line| line["text"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(exported, texts);
    world.close().await;
}

#[tokio::test]
async fn c21_a_lone_surrogate_is_400_with_its_path_and_never_500() {
    let (world, bob) = world().await;
    let bodies: [&[u8]; 6] = [
        br#"{"session":"s","turns":[{"role":"assistant","text":"a \ud800 b"}]}"#,
        br#"{"session":"s","turns":[{"role":"assistant","text":"x"},{"role":"assistant","text":7}]}"#,
        br#"{"session":"s","turns":[{"role":"narrator","text":"x"}]}"#,
        br#"{"session":"s","turns":[{"role":"assistant","text":"x","colour":1}]}"#,
        b"{\"session\":\"s\",\"turns\":[{\"role\":\"assistant\",\"text\":\"\xff\"}]}",
        b"not json",
    ];
    for body in bodies {
        let answer = world.call(Method::POST, EVENTS, Some(&bob), &[], body.to_vec()).await;
        assert_eq!(answer.status.as_u16(), 400, "{}", String::from_utf8_lossy(body));
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        assert!(answer.json()["errors"][0]["field"].is_string());
    }
    let surrogate = world.call(Method::POST, EVENTS, Some(&bob), &[], bodies[0].to_vec()).await.json();
    assert!(surrogate["errors"][0]["field"].as_str().unwrap().starts_with("turns[0]"), "{surrogate}");
    let second = world.call(Method::POST, EVENTS, Some(&bob), &[], bodies[1].to_vec()).await.json();
    assert_eq!(second["errors"][0]["field"], "turns[1].text");
    world.close().await;
}

#[tokio::test]
async fn c22_a_long_line_is_chunked_and_its_end_recalled() {
    let (world, bob) = world().await;
    let filler = "lorem ipsum dolor sit amet ".repeat(36_000);
    let text = format!("{} and the marker is ENDMARKER-9917", &filler[..950_000]);
    let saved = world.post(EVENTS, &bob, one(&text)).await.expect(201);
    let chunks = saved["events"][0]["chunks"].as_u64().unwrap();
    assert!(chunks > 2000, "{chunks}");
    let answer = world.recall(&bob, json!({"query": "ENDMARKER-9917", "explain": true})).await.expect(200);
    assert!(answer["hits"][0]["text"].as_str().unwrap().ends_with("ENDMARKER-9917"));
    assert!(answer["hits"][0]["arms"]["turn_text"]["rank"].is_u64());
    let over = "x".repeat(1024 * 1024 + 10);
    let refused = world.post(EVENTS, &bob, one(&over)).await;
    assert_eq!(refused.status.as_u16(), 413);
    assert_eq!(refused.json()["limit"], 1024 * 1024);
    let turns: Vec<Value> = (0..257).map(|_| json!({"role": "assistant", "text": "x"})).collect();
    let refused = world.post(EVENTS, &bob, json!({"session": "s", "turns": turns})).await;
    assert_eq!(refused.status.as_u16(), 400);
    let big = json!({"k": "x".repeat(17 * 1024)});
    let refused = world
        .post(EVENTS, &bob, json!({"session": "s", "turns": [{"role": "assistant", "text": "x", "metadata": big}]}))
        .await;
    assert_eq!(refused.status.as_u16(), 413);
    world.close().await;
}

#[tokio::test]
async fn c23_times_are_kept_as_sent_or_refused() {
    let mut lane = LaneSpec::personal("team/bob", "bob");
    lane.half_life_ms = Some(30 * 86_400_000);
    let world = World::new(Arc::new(HashEncoder::new()), vec![lane]).await;
    let bob = world.token("team/bob", "user:bob");
    let at = |at: &str| json!({"session": "s", "turns": [{"role": "assistant", "text": format!("heron at {at}"), "at": at}]});
    for good in [
        "1970-01-01T00:00:00Z",
        "2026-01-01T00:00:00+14:00",
        "2026-01-01T00:00:00.123456-03:30",
        "0001-01-01T00:00:00Z",
    ] {
        let saved = world.post(EVENTS, &bob, at(good)).await.expect(201);
        assert_eq!(saved["events"][0]["at"], good);
    }
    for bad in ["2026-01-01T00:00:00", "9999-01-01T00:00:00Z", "2027-12-31T00:00:00Z", "2026-02-30T00:00:00Z", "now"] {
        let refused = world.post(EVENTS, &bob, at(bad)).await;
        assert_eq!(refused.status.as_u16(), 400, "{bad}");
        assert_eq!(refused.json()["errors"][0]["field"], "turns[0].at");
    }
    for ranking in ["fused", "rrf"] {
        let answer = world.recall(&bob, json!({"query": "heron", "ranking": ranking, "top_k": 50})).await.expect(200);
        let hits = answer["hits"].as_array().unwrap();
        assert_eq!(hits.len(), 4);
        for hit in hits {
            let (score, decay) = (hit["score"].as_f64().unwrap(), hit["decay"].as_f64().unwrap());
            assert!(score.is_finite() && (0.0..=1.0).contains(&decay), "{hit}");
        }
    }
    world.close().await;
}

#[tokio::test]
async fn a_save_never_waits_for_the_embedder() {
    let encoder = HashEncoder::new();
    encoder.behave(Behaviour::Hangs);
    let world = World::new(Arc::new(encoder.clone()), vec![LaneSpec::personal("team/bob", "bob")]).await;
    let bob = world.token("team/bob", "user:bob");
    world.save("team/bob", &bob, "s", &["a heron stands still"]).await.expect(201);
    encoder.behave(Behaviour::Down);
    let answer = world.recall(&bob, json!({"query": "heron"})).await.expect(200);
    assert_eq!(answer["hits"][0]["text"], "a heron stands still");
    assert_eq!(answer["coverage"]["complete_corpus"], false);
    assert_eq!(answer["coverage"]["lanes"][0]["counts"]["pending_projection"], 1);
    assert_eq!(answer["coverage"]["lanes"][0]["arms"]["vector"]["reason"], "embedder_unavailable");
    world.close().await;
}
