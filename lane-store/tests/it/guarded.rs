//! Tests that stand for one guard each: they fail when it is taken out (`cargo xtask guards`).

use lanekeeper_core::lane_client::LaneClient;
use lanekeeper_core::wire::forget::ForgetRequest;
use lanekeeper_core::wire::recall::{Arm, Filter};
use lanekeeper_lane_store::testing::turn;

use crate::stage::stage;

#[tokio::test]
async fn a_filter_finds_what_stands_deep_in_an_arm() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    for n in 0..40 {
        store.put(&bob, "crowd", &[&format!("the heron and heron{n} stand in the water")]).await;
    }
    let answer = store.ask(&bob, "heron water", Filter::default()).await.unwrap();
    assert_eq!(answer.candidates.len(), 40, "an arm holds 100 distinct contents before anything is cut");
    store.close().await;
}

#[tokio::test]
async fn ranks_of_a_text_arm_follow_its_exact_scores() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    // Long turns with many matches against short ones with few: FTS5's constants put them in another order.
    for n in 1..30 {
        let text = format!("{} {} end{n}", "heron ".repeat(n % 7 + 1), "reed bank water mud ".repeat(n));
        store.put(&bob, "s", &[&text]).await;
    }
    let answer = store.ask(&bob, "heron mud", Filter::default()).await.unwrap();
    for arm in [Arm::TurnText, Arm::WindowText] {
        let mut listed: Vec<(u32, f64)> =
            answer.candidates.iter().filter_map(|hit| Some((*hit.ranks.get(&arm)?, hit.scores[&arm]))).collect();
        listed.sort_by_key(|(rank, _)| *rank);
        assert!(listed.len() > 20, "{arm:?}: {listed:?}");
        assert!(listed.iter().zip(1..).all(|((rank, _), place)| *rank == place), "{arm:?}: {listed:?}");
        assert!(listed.is_sorted_by(|(_, a), (_, b)| a >= b), "{arm:?}: {listed:?}");
    }
    store.close().await;
}

#[tokio::test]
async fn a_projection_that_finishes_after_a_forget_leaves_nothing() {
    use lanekeeper_core::testing::{Behaviour, HashEncoder};
    let encoder = HashEncoder::new();
    let stage = lanekeeper_lane_store::testing::Stage::new(std::sync::Arc::new(encoder.clone())).await;
    let bob = stage.bob();
    let store = stage.open().await;
    store.settle_down().await;
    // The projector hangs with the turn in hand; meanwhile the turn is forgotten, and its twin takes over.
    encoder.behave(Behaviour::Hangs);
    let gone = store.put(&bob, "s", &["a heron to be forgotten"]).await.events[0].id;
    while !encoder.is_waited_for() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let kept = store.put(&bob, "t", &["a heron to be forgotten"]).await.events[0].id;
    let forget = ForgetRequest { events: Some(vec![gone]), ..ForgetRequest::default() };
    store.forget(&bob, forget, None).await.unwrap();
    encoder.behave(Behaviour::Works);
    store.settle_down().await;
    let answer = store.ask(&bob, "heron forgotten", Filter::default()).await.unwrap();
    let ids: Vec<_> = answer.candidates.iter().map(|hit| hit.event_id).collect();
    assert_eq!(ids, [kept]);
    assert_eq!(answer.counts.dangling_skipped, 0, "a forgotten event has no point left");
    assert!(answer.candidates[0].scores.contains_key(&Arm::Vector), "the twin has vectors of its own");
    store.close().await;
}

#[tokio::test]
async fn equal_content_gets_one_set_of_vectors() {
    use lanekeeper_core::testing::HashEncoder;
    let encoder = HashEncoder::new();
    let stage = lanekeeper_lane_store::testing::Stage::new(std::sync::Arc::new(encoder.clone())).await;
    let bob = stage.bob();
    let store = stage.open().await;
    for n in 0..10 {
        store.put(&bob, &format!("s{n}"), &["Roger  that.", "roger that."]).await;
    }
    store.settle_down().await;
    assert_eq!(encoder.passages_encoded(), 1);
    let answer = store.ask(&bob, "roger that", Filter::default()).await.unwrap();
    assert_eq!((answer.candidates.len(), answer.candidates[0].folded), (1, 19));
    store.close().await;
}

#[tokio::test]
async fn deleted_pages_are_overwritten() {
    // Longer than a page, so that the text stands on overflow pages, which a plain DELETE only unlinks.
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    let long = "SECRETPAGEMARKER ".repeat(2_000);
    let id = {
        let mut request = lanekeeper_lane_store::testing::save("s", &["x"]);
        request.save.turns = vec![turn(&long)];
        store.append(&bob, request).await.unwrap().events[0].id
    };
    store.settle_down().await;
    let forget = ForgetRequest { events: Some(vec![id]), ..ForgetRequest::default() };
    store.forget(&bob, forget, None).await.unwrap();
    store.settle_down().await;
    store.close().await;
    let found: Vec<_> = stage
        .all_bytes()
        .into_iter()
        .filter(|(_, bytes)| bytes.windows(16).any(|window| window == b"SECRETPAGEMARKER"))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(found, Vec::<std::path::PathBuf>::new());
}
