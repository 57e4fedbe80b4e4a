//! Forget: what goes, what stays, what comes back after a crash.

use crate::stage::stage;
use lanekeeper_core::LaneError;
use lanekeeper_core::lane_client::LaneClient;
use lanekeeper_core::wire::forget::{Erasure, ForgetRequest};
use lanekeeper_core::wire::recall::{Arm, Filter};
use lanekeeper_core::wire::upkeep::RebuildRequest;

fn ids(events: &[lanekeeper_core::EventId]) -> ForgetRequest {
    ForgetRequest { events: Some(events.to_vec()), ..ForgetRequest::default() }
}

fn session(name: &str) -> ForgetRequest {
    ForgetRequest { session: Some(name.into()), ..ForgetRequest::default() }
}

/// Whether any byte of any file holds any of the words, in the log's form or as the term index has them.
fn holds(stage: &lanekeeper_lane_store::testing::Stage, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, bytes) in stage.all_bytes() {
        for word in words {
            if bytes.windows(word.len()).any(|window| window == word.as_bytes()) {
                found.push(format!("{word} in {}", path.display()));
            }
        }
    }
    found
}

#[tokio::test]
async fn c39_a_session_of_150_is_forgotten_whole() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    for n in 0..150 {
        store.put(&bob, "gone", &[&format!("turn number{n} of the gone session about walrus")]).await;
    }
    store.put(&bob, "kept", &["a walrus that stays"]).await;
    store.settle_down().await;
    let dry = store.forget(&bob, ForgetRequest { dry_run: true, ..session("gone") }, None).await.unwrap();
    assert_eq!((dry.events.len(), dry.receipt.is_none()), (150, true));
    let done = store.forget(&bob, session("gone"), None).await.unwrap();
    let receipt = done.receipt.unwrap();
    assert_eq!((receipt.count, done.events.len()), (150, 150));
    store.settle_down().await;
    let answer = store.ask(&bob, "walrus number7", Filter::default()).await.unwrap();
    let texts: Vec<&str> = answer.candidates.iter().map(|hit| hit.text.as_str()).collect();
    assert_eq!(texts, ["a walrus that stays"]);
    assert_eq!(answer.counts.events, 1);
    let report = store.verify(&bob).await.unwrap();
    assert!(report.ok && report.purged == 150, "{}", report.statement);
    // A repeat forgets nothing twice.
    assert_eq!(store.forget(&bob, session("gone"), None).await.unwrap().events.len(), 0);
    assert!(store.verify(&bob).await.unwrap().ok);
    store.close().await;
    assert!(stage.open().await.verify(&bob).await.unwrap().ok);
}

#[tokio::test]
async fn c42_a_word_of_one_turn_is_in_no_byte_of_the_lanes_files() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    // The word shares a prefix with 50 others: the term index keeps prefixes apart from suffixes.
    for n in 0..50 {
        store.put(&bob, "s", &[&format!("zyxwvut{n}q is a neighbour word")]).await;
    }
    let gone = store.put(&bob, "s", &["zyxwvutsecretword told once"]).await.events[0].id;
    let next = store.put(&bob, "s", &["the turn right after it", "and the one after that", "far away"]).await;
    store.settle_down().await;
    assert!(!holds(&stage, &["secretword"]).is_empty(), "the word must be there before it is forgotten");
    let before = store.ask(&bob, "zyxwvutsecretword", Filter::default()).await.unwrap();
    assert!(before.candidates.iter().any(|hit| hit.event_id == next.events[0].id), "by its window");
    let done = store.forget(&bob, ids(&[gone]), None).await.unwrap();
    assert_eq!(done.receipt.unwrap().neighbours_rewritten, 2);
    store.settle_down().await;
    let after = store.ask(&bob, "zyxwvutsecretword", Filter::default()).await.unwrap();
    for hit in &after.candidates {
        assert!(!hit.ranks.contains_key(&Arm::TurnText) && !hit.ranks.contains_key(&Arm::WindowText), "{hit:?}");
        assert_eq!(hit.scores.get(&Arm::WindowText).copied().unwrap_or(0.0), 0.0);
    }
    assert_eq!(holds(&stage, &["secretword", "secretw", "cretword", "etword"]), Vec::<String>::new());
    store.close().await;
    assert_eq!(holds(&stage, &["secretword", "etword"]), Vec::<String>::new());
}

#[tokio::test]
async fn c43_the_next_holder_is_promoted_and_found_by_vector_too() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    let first = store.put(&bob, "A", &["the quarterly report is due on friday"]).await;
    let second = store.put(&bob, "B", &["the quarterly report is due on friday"]).await;
    store.settle_down().await;
    let in_b = Filter { session: vec!["B".into()], ..Filter::default() };
    let found = store.ask(&bob, "quarterly report", in_b.clone()).await.unwrap();
    assert!(found.candidates[0].ranks.contains_key(&Arm::Vector), "a duplicate is found under its own session");
    let done = store.forget(&bob, session("A"), None).await.unwrap();
    assert_eq!(done.events, [first.events[0].id]);
    assert_eq!(done.counts["promoted"], 1);
    store.settle_down().await;
    let found = store.ask(&bob, "quarterly report", in_b).await.unwrap();
    assert_eq!(found.candidates.len(), 1);
    assert_eq!(found.candidates[0].event_id, second.events[0].id);
    assert!(found.candidates[0].ranks.contains_key(&Arm::Vector));
    assert_eq!(found.candidates[0].folded, 0);
    store.close().await;
}

#[tokio::test]
async fn an_apply_by_ids_forgets_exactly_those_and_unknown_ids_are_not_found() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    let saved = store.put(&bob, "s", &["one", "two", "three"]).await;
    let unknown = lanekeeper_core::EventId::from_uuid(uuid::Uuid::now_v7());
    let refused = store.forget(&bob, ids(&[saved.events[0].id, unknown]), None).await.unwrap_err();
    assert_eq!(refused, LaneError::NotFound { what: "event" });
    assert_eq!(store.ask(&bob, "one", Filter::default()).await.unwrap().counts.events, 3, "nothing half done");
    let done = store.forget(&bob, ids(&[saved.events[1].id]), None).await.unwrap();
    assert_eq!(done.events, [saved.events[1].id]);
    let receipt = done.receipt.unwrap();
    assert_eq!(receipt.surfaces["log_text"], Erasure::Erased);
    assert_eq!(receipt.surfaces["backups"], Erasure::Unreachable);
    store.close().await;
}

#[tokio::test]
async fn a_rebuild_equals_the_live_store() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    let mut gone = Vec::new();
    for n in 0..30 {
        let saved = store.put(&bob, &format!("s{}", n % 3), &[&format!("fact{} about topic{}", n % 20, n % 7)]).await;
        if n % 9 == 4 {
            gone.push(saved.events[0].id);
        }
    }
    store.forget(&bob, ids(&gone), None).await.unwrap();
    store.settle_down().await;
    let questions = ["fact3", "topic5", "fact11 topic2", "about"];
    let mut live = Vec::new();
    for question in questions {
        live.push(store.ask(&bob, question, Filter::default()).await.unwrap());
    }
    let report = store.rebuild(&bob, RebuildRequest::default()).await.unwrap();
    assert_eq!(report.turns, 27);
    // While the shadow fills, recall goes on and says so.
    let during = store.ask(&bob, "fact3", Filter::default()).await.unwrap();
    assert!(during.arms[&Arm::Vector].searched);
    store.settle_down().await;
    for (question, live) in questions.iter().zip(live) {
        let rebuilt = store.ask(&bob, question, Filter::default()).await.unwrap();
        assert_eq!(rebuilt.candidates, live.candidates, "{question}");
        assert_eq!(rebuilt.counts, live.counts);
    }
    store.close().await;
}

#[tokio::test]
async fn a_lost_and_an_older_vector_folder_are_healed_from_the_log() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    store.put(&bob, "s", &["the first memory of all", "a second memory"]).await;
    store.settle_down().await;
    store.close().await;
    drop(store);
    let vectors = stage.folder.join("vectors");
    let older = stage.folder.with_extension("older");
    copy(&vectors, &older);
    let store = stage.open().await;
    let gone = store.put(&bob, "s", &["the third memory, to be forgotten", "a fourth memory"]).await.events[0].id;
    store.settle_down().await;
    store.forget(&bob, ids(&[gone]), None).await.unwrap();
    store.settle_down().await;
    let expected = store.ask(&bob, "memory", Filter::default()).await.unwrap().candidates;
    assert_eq!(expected.len(), 3);
    store.close().await;
    drop(store);
    for replacement in [None, Some(&older)] {
        std::fs::remove_dir_all(&vectors).unwrap();
        if let Some(folder) = replacement {
            copy(folder, &vectors);
        }
        let store = stage.open().await;
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            store.settle_down().await;
            let healed = store.ask(&bob, "memory", Filter::default()).await.unwrap().candidates;
            if healed == expected {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{replacement:?}: {healed:?}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        store.close().await;
        drop(store);
    }
}

#[tokio::test]
async fn an_older_folder_with_the_same_ids_is_made_again_whole() {
    use lanekeeper_core::testing::HashEncoder;
    let encoder = HashEncoder::new();
    let stage = lanekeeper_lane_store::testing::Stage::new(std::sync::Arc::new(encoder.clone())).await;
    let bob = stage.bob();
    let store = stage.open().await;
    let gone = store.put(&bob, "s", &["zebra zebra zebra"]).await.events[0].id;
    store.put(&bob, "s", &["the turn after it", "and one more"]).await;
    store.settle_down().await;
    store.close().await;
    let vectors = stage.folder.join("vectors");
    let older = stage.folder.with_extension("older");
    copy(&vectors, &older);
    let store = stage.open().await;
    store.forget(&bob, ids(&[gone]), None).await.unwrap();
    store.settle_down().await;
    let expected = store.ask(&bob, "turn zebra", Filter::default()).await.unwrap().candidates;
    store.close().await;
    std::fs::remove_dir_all(&vectors).unwrap();
    copy(&older, &vectors);
    let before = encoder.passages_encoded();
    let store = stage.open().await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while encoder.passages_encoded() < before + 2 {
        assert!(std::time::Instant::now() < deadline, "nothing was made again");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    store.settle_down().await;
    // Context moves a vector a little: equal scores show that none is left that was made with the zebra.
    assert_eq!(store.ask(&bob, "turn zebra", Filter::default()).await.unwrap().candidates, expected);
    store.close().await;
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}
