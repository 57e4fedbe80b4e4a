//! Who gets a collection, a record, a volume.

use serde_json::{Value, json};

use crate::{LANES, RECORDS, SETS, Stage, VOLUMES, personal};

fn shared(owner: &str) -> Value {
    json!({"kind": "personal", "owner": owner, "collection": "shared"})
}

#[tokio::test]
async fn of_two_claims_at_once_one_wins_and_the_other_says_who_holds_it() {
    for round in 0..20 {
        let stage = Stage::new(&[]).await;
        stage.declare("a", shared("bob"));
        stage.declare("b", shared("bob"));
        let (one, other) = tokio::join!(stage.lane("a"), stage.lane("b"));
        assert!(one.is_ok() && other.is_ok(), "round {round}");
        let record = stage.server.get(&format!("{RECORDS}/team.shared")).unwrap();
        let winner = record["spec"]["writer"]["name"].as_str().unwrap();
        let loser = if winner == "a" { "b" } else { "a" };
        let (status, reason, message) = stage.condition(loser, "FenceHeld").unwrap();
        assert_eq!((status.as_str(), reason.as_str()), ("False", "CollectionTaken"));
        assert!(message.contains(&format!("team/{winner}")), "{message}");
        assert!(stage.server.get(&format!("{SETS}/lane-{loser}")).is_none());
        assert!(stage.server.get(&format!("{VOLUMES}/lane-{loser}")).is_none());
        stage.settle(winner).await;
        assert!(stage.server.get(&format!("{SETS}/lane-{winner}")).is_some());
        let told = stage.server.get(&format!("{LANES}/{winner}")).unwrap()["status"].to_string();
        assert!(!told.contains(&format!("team/{loser}")), "the winner is told that it lost");
    }
}

async fn retained() -> (Stage, String) {
    let stage = Stage::new(&[]).await;
    let lane = stage.declare("diary", personal("bob"));
    stage.settle("diary").await;
    stage.server.delete(&format!("{LANES}/diary"));
    stage.lane("diary").await.unwrap();
    assert!(stage.server.get(&format!("{LANES}/diary")).is_none(), "the lane does not end");
    (stage, lane["metadata"]["uid"].as_str().unwrap().to_owned())
}

fn adopting(stage: &Stage, owner: &str, uid: &str) {
    stage.declare("diary", personal(owner));
    stage.server.change(&format!("{LANES}/diary"), json!({"metadata": {"annotations": {"lanekeeper.dev/adopt": uid}}}));
}

#[tokio::test]
async fn a_retained_volume_opens_for_the_same_owner_who_asks() {
    let (stage, uid) = retained().await;
    let record = stage.server.get(&format!("{RECORDS}/team.diary")).unwrap();
    adopting(&stage, "bob", &uid);
    stage.settle("diary").await;
    let adopted = stage.server.get(&format!("{RECORDS}/team.diary")).unwrap();
    assert_eq!(adopted["spec"]["logId"], record["spec"]["logId"]);
    assert_eq!(adopted["spec"]["epoch"].as_i64(), record["spec"]["epoch"].as_i64().map(|epoch| epoch + 1));
    let set = stage.server.get(&format!("{SETS}/lane-diary")).unwrap().to_string();
    assert!(set.contains(&format!("--adopt={uid}")));
    // Taking the request back restarts nothing and takes nothing away.
    stage.server.change(&format!("{LANES}/diary"), json!({"metadata": {"annotations": null}}));
    stage.settle("diary").await;
    assert_eq!(stage.server.get(&format!("{SETS}/lane-diary")).unwrap().to_string(), set);
    assert!(stage.condition("diary", "VolumeConflict").is_none());
}

#[tokio::test]
async fn a_retained_volume_opens_for_nobody_else() {
    for (owner, asks) in [("eve", false), ("eve", true), ("bob", false)] {
        let (stage, uid) = retained().await;
        let (record, volume) =
            (stage.server.get(&format!("{RECORDS}/team.diary")), stage.server.get(&format!("{VOLUMES}/lane-diary")));
        if asks {
            adopting(&stage, owner, &uid);
        } else {
            stage.declare("diary", personal(owner));
        }
        stage.settle("diary").await;
        assert_eq!(stage.condition("diary", "VolumeConflict").unwrap().0, "True", "{owner} {asks}");
        assert_eq!(stage.condition("diary", "VolumeReady").unwrap().1, "VolumeConflict");
        assert!(stage.server.get(&format!("{SETS}/lane-diary")).is_none());
        assert_eq!(stage.server.get(&format!("{RECORDS}/team.diary")), record);
        assert_eq!(stage.server.get(&format!("{VOLUMES}/lane-diary")), volume);
        // Nor does the end of such a lane take anything along, whatever it asks for.
        let now = stage.server.get(&format!("{LANES}/diary")).unwrap()["metadata"]["uid"].clone();
        stage.server.change(&format!("{LANES}/diary"), json!({
            "metadata": {"annotations": {"lanekeeper.dev/confirm-delete": now}}, "spec": {"deletionPolicy": "Delete"},
        }));
        stage.server.delete(&format!("{LANES}/diary"));
        stage.lane("diary").await.unwrap();
        assert!(stage.server.get(&format!("{LANES}/diary")).is_none());
        assert_eq!(stage.server.get(&format!("{RECORDS}/team.diary")), record);
        assert_eq!(stage.server.get(&format!("{VOLUMES}/lane-diary")), volume);
    }
}

#[tokio::test]
async fn a_record_that_was_deleted_by_hand_is_made_again_with_the_log_of_the_volume() {
    let stage = Stage::new(&[]).await;
    stage.declare("bob", personal("bob"));
    stage.settle("bob").await;
    let log_id = stage.server.get(&format!("{RECORDS}/team.bob")).unwrap()["spec"]["logId"].clone();
    stage.server.delete(&format!("{RECORDS}/team.bob"));
    stage.settle("bob").await;
    assert_eq!(stage.server.get(&format!("{RECORDS}/team.bob")).unwrap()["spec"]["logId"], log_id);
}

#[tokio::test]
async fn a_lane_of_another_embedding_is_refused_and_its_store_left_as_it_is() {
    let stage = Stage::new(&[]).await;
    stage.declare("bob", personal("bob"));
    stage.settle("bob").await;
    let set = stage.server.get(&format!("{SETS}/lane-bob"));
    stage.server.put(
        "/apis/lanekeeper.dev/v1alpha1/embedders/other",
        json!({
            "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Embedder", "metadata": {"name": "other"},
            "spec": {"model": "all-MiniLM-L6-v2", "queryPrefix": "query: "},
        }),
    );
    stage.server.change(&format!("{LANES}/bob"), json!({"spec": {"embedder": {"name": "other"}}}));
    stage.settle("bob").await;
    assert_eq!(stage.condition("bob", "EmbedderReady").unwrap().1, "FingerprintChanged");
    assert_eq!(stage.server.get(&format!("{SETS}/lane-bob")), set);
}
