//! How lanes end: retained or erased, in the five hard states.

use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use crate::{LANES, RECORDS, SETS, Stage, VOLUMES, personal};

const QDRANT: [&str; 1] = ["--qdrant-url=http://qdrant.test:6334"];

fn with_key(stage: &Stage) {
    stage.server.put(
        "/api/v1/namespaces/sys/secrets/lanekeeper-qdrant",
        json!({
            "metadata": {"name": "lanekeeper-qdrant"}, "data": {"api-key": "c2VjcmV0"},
        }),
    );
}

fn delete(stage: &Stage, confirmed: bool) {
    let path = format!("{LANES}/bob");
    let uid = stage.server.get(&path).unwrap()["metadata"]["uid"].clone();
    let annotations = if confirmed { json!({"lanekeeper.dev/confirm-delete": uid}) } else { json!({}) };
    stage.server.change(&path, json!({"metadata": {"annotations": annotations}, "spec": {"deletionPolicy": "Delete"}}));
    stage.server.delete(&path);
}

#[tokio::test]
async fn a_confirmed_delete_erases_and_an_unconfirmed_one_keeps_and_says_so() {
    for confirmed in [true, false] {
        let stage = Stage::new(&[]).await;
        stage.declare("bob", personal("bob"));
        stage.settle("bob").await;
        delete(&stage, confirmed);
        stage.lane("bob").await.unwrap();
        assert!(stage.server.get(&format!("{LANES}/bob")).is_none(), "it does not end");
        assert!(stage.server.get(&format!("{SETS}/lane-bob")).is_none());
        assert!(stage.server.paths("lane-team.bob").is_empty(), "Role and RoleBinding are left");
        for kept in [format!("{RECORDS}/team.bob"), format!("{VOLUMES}/lane-bob")] {
            assert_eq!(stage.server.get(&kept).is_some(), !confirmed, "{kept}");
        }
        assert_eq!(stage.server.events().contains(&"DeletedAsRetain".to_owned()), !confirmed);
    }
}

#[tokio::test]
async fn an_erasure_waits_for_the_pod_and_not_for_ever() {
    let stage = Stage::new(&[]).await;
    let lane = stage.declare("bob", personal("bob"));
    stage.settle("bob").await;
    let pod = "/api/v1/namespaces/team/pods/lane-bob-0";
    stage.server.put(
        pod,
        json!({"metadata": {"name": "lane-bob-0", "labels": {
        "lanekeeper.dev/lane-uid": lane["metadata"]["uid"]}}}),
    );
    delete(&stage, true);
    // Deleted a moment ago: its pod may still write.
    let now = Timestamp::now().to_string();
    stage.server.change(&format!("{LANES}/bob"), json!({"metadata": {"deletionTimestamp": now}}));
    assert!(stage.lane("bob").await.is_err());
    assert!(stage.server.get(&format!("{RECORDS}/team.bob")).is_some());
    stage.server.change(&format!("{LANES}/bob"), json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    stage.lane("bob").await.unwrap();
    assert!(stage.server.get(&format!("{LANES}/bob")).is_none(), "a node that is gone keeps the lane");
}

#[tokio::test]
async fn a_lane_ends_with_qdrant_down_and_its_collections_go_when_qdrant_is_back() {
    let stage = Stage::new(&QDRANT).await;
    with_key(&stage);
    stage.declare("bob", personal("bob"));
    stage.settle("bob").await;
    assert_eq!(stage.condition("bob", "FenceEnforced").unwrap().1, "Enforced");
    assert_eq!(stage.condition("bob", "CollectionReady").unwrap().1, "CollectionThere");
    {
        let state = stage.qdrant.0.lock().unwrap();
        let record = stage.server.get(&format!("{RECORDS}/team.bob")).unwrap();
        assert_eq!(state.fences["team.bob"].0, record["spec"]["epoch"].as_u64().unwrap());
        assert!(state.aliases["team.bob"].ends_with("_g1"));
    }
    stage.qdrant.0.lock().unwrap().away = true;
    delete(&stage, true);
    stage.lane("bob").await.unwrap();
    assert!(stage.server.get(&format!("{LANES}/bob")).is_none());
    stage.record("team.bob").await.unwrap();
    assert!(stage.server.get(&format!("{RECORDS}/team.bob")).is_some(), "the name is free before the vectors are gone");
    // Meanwhile nobody gets the collection.
    stage.declare("eve", json!({"kind": "personal", "owner": "eve", "collection": "bob"}));
    stage.lane("eve").await.unwrap();
    assert_eq!(stage.condition("eve", "FenceHeld").unwrap().1, "CollectionTaken");
    stage.qdrant.0.lock().unwrap().away = false;
    stage.record("team.bob").await.unwrap();
    assert!(stage.server.get(&format!("{RECORDS}/team.bob")).is_none());
    let state = stage.qdrant.0.lock().unwrap();
    assert!(state.collections.is_empty() && state.aliases.is_empty() && state.fences.is_empty(), "{state:?}");
}

#[tokio::test]
async fn a_record_deleted_by_hand_leaves_the_vectors_of_a_living_lane() {
    let stage = Stage::new(&QDRANT).await;
    with_key(&stage);
    stage.declare("bob", personal("bob"));
    stage.settle("bob").await;
    stage.server.delete(&format!("{RECORDS}/team.bob"));
    stage.record("team.bob").await.unwrap();
    assert!(stage.server.get(&format!("{RECORDS}/team.bob")).is_none());
    assert_eq!(stage.qdrant.0.lock().unwrap().collections.len(), 1);
}

#[tokio::test]
async fn a_lane_ends_suspended_unreadable_without_its_secret_and_in_a_terminating_namespace() {
    for state in ["suspended", "unreadable", "no secret", "terminating"] {
        let stage = Stage::new(&[]).await;
        stage.declare("bob", personal("bob"));
        stage.settle("bob").await;
        let path = format!("{LANES}/bob");
        match state {
            "suspended" => stage.server.change(&path, json!({"spec": {"suspend": true}})),
            "unreadable" => stage.server.change(&path, json!({"spec": {"kind": "nonsense", "owner": 7}})),
            "no secret" => stage.server.delete("/api/v1/namespaces/team/secrets/lane-bob"),
            _ => stage.server.change(
                "/api/v1/namespaces/team",
                json!({"metadata": {"finalizers": ["kubernetes"], "deletionTimestamp": "2026-12-01T00:00:00Z"}}),
            ),
        }
        stage.server.delete(&path);
        stage.server.writes();
        stage.lane("bob").await.unwrap();
        assert!(stage.server.get(&path).is_none(), "{state}");
        assert!(
            stage.server.get(&format!("{VOLUMES}/lane-bob")).is_some(),
            "{state}: what cannot be read erases nothing"
        );
        assert!(stage.server.get(&format!("{RECORDS}/team.bob")).is_some(), "{state}");
        let made: Vec<String> = stage.server.writes().into_iter().filter(|write| write.starts_with("POST")).collect();
        assert_eq!(made, Vec::<String>::new(), "{state}");
    }
}

#[tokio::test]
async fn nothing_is_made_in_a_namespace_that_ends() {
    let stage = Stage::new(&[]).await;
    stage.declare("bob", personal("bob"));
    stage.server.change(
        "/api/v1/namespaces/team",
        json!({"metadata": {"finalizers": ["kubernetes"], "deletionTimestamp": "2026-12-01T00:00:00Z"}}),
    );
    let writes = stage.settle("bob").await;
    assert!(writes.iter().all(|write| write.contains("lanes/bob/status")), "{writes:?}");
    assert_eq!(stage.condition("bob", "Ready").unwrap().1, "NamespaceTerminating");
}

#[tokio::test]
async fn a_rebuild_is_swapped_in_and_the_old_collection_dropped() {
    let stage = Stage::new(&QDRANT).await;
    with_key(&stage);
    stage.declare("bob", personal("bob"));
    stage.settle("bob").await;
    let record = format!("{RECORDS}/team.bob");
    let collections = || stage.qdrant.0.lock().unwrap().collections.len();
    stage.server.change(&record, json!({"status": {"wantedGeneration": 2}}));
    stage.record("team.bob").await.unwrap();
    assert_eq!(collections(), 2, "the shadow is not made");
    assert_eq!(stage.server.get(&record).unwrap()["spec"]["generation"], 1);
    stage.server.change(&record, json!({"status": {"filledGeneration": 2}}));
    stage.record("team.bob").await.unwrap();
    assert_eq!(stage.server.get(&record).unwrap()["spec"]["generation"], 2);
    assert!(stage.qdrant.0.lock().unwrap().aliases["team.bob"].ends_with("_g2"));
    stage.record("team.bob").await.unwrap();
    assert_eq!(collections(), 1, "the old one is left");
    stage.settle("bob").await;
    assert!(stage.qdrant.0.lock().unwrap().aliases["team.bob"].ends_with("_g2"), "the lane points it back");
}

#[tokio::test]
async fn a_qdrant_that_checks_nothing_is_told_and_a_missing_key_is_named() {
    let stage = Stage::new(&QDRANT).await;
    stage.declare("bob", personal("bob"));
    stage.settle("bob").await;
    let (_, reason, message) = stage.condition("bob", "CollectionReady").unwrap();
    assert_eq!(reason, "QdrantKeyMissing");
    assert!(message.contains("lanekeeper-qdrant"), "{message}");
    assert!(stage.server.get(&format!("{SETS}/lane-bob")).is_some(), "saves and text need no vectors");
    with_key(&stage);
    stage.qdrant.0.lock().unwrap().lax = true;
    stage.settle("bob").await;
    assert_eq!(stage.condition("bob", "FenceEnforced").unwrap().1, "QdrantAuthOff");
    assert_eq!(stage.condition("bob", "CollectionReady").unwrap().0, "True");
    stage.qdrant.0.lock().unwrap().lax = false;
    stage.settle("bob").await;
    assert_eq!(stage.condition("bob", "FenceEnforced").unwrap().1, "Enforced");
}
