//! What is made of a lane, in which order; and that nothing is written where nothing changed.

use serde_json::json;

use crate::{LANES, RECORDS, SETS, Stage, VOLUMES, personal};

fn place(writes: &[String], part: &str) -> usize {
    writes.iter().position(|write| write.contains(part)).unwrap_or_else(|| panic!("no {part} in {writes:#?}"))
}

#[tokio::test]
async fn the_record_comes_before_the_volume_and_the_store_last() {
    let stage = Stage::new(&["--network-policies"]).await;
    stage.declare("bob", personal("bob"));
    let writes = stage.settle("bob").await;
    let order = [
        "PATCH /apis/lanekeeper.dev/v1alpha1/namespaces/team/lanes/bob",
        "POST /apis/lanekeeper.dev/v1alpha1/namespaces/sys/federationrecords",
        "persistentvolumeclaims/lane-bob",
        "serviceaccounts/lane-bob",
        "roles/lane-team.bob",
        "rolebindings/lane-team.bob",
        "services/lane-bob",
        "networkpolicies/lane-bob",
        "secrets/lane-bob",
        "statefulsets/lane-bob",
        "lanes/bob/status",
    ];
    let places: Vec<usize> = order.iter().map(|part| place(&writes, part)).collect();
    assert!(places.is_sorted(), "{writes:#?}");
    let record = stage.server.get(&format!("{RECORDS}/team.bob")).unwrap();
    let volume = stage.server.get(&format!("{VOLUMES}/lane-bob")).unwrap();
    assert_eq!(record["spec"]["logId"], volume["metadata"]["annotations"]["lanekeeper.dev/log-id"]);
    assert_eq!(volume["metadata"]["annotations"]["lanekeeper.dev/owner"], "bob");
    assert!(volume["metadata"]["ownerReferences"].is_null(), "it would go with the Lane");
    let set = stage.server.get(&format!("{SETS}/lane-bob")).unwrap().to_string();
    assert!(set.contains(record["spec"]["logId"].as_str().unwrap()));
}

#[tokio::test]
async fn nothing_is_sent_where_nothing_changed() {
    let stage = Stage::new(&["--network-policies"]).await;
    stage.declare("bob", personal("bob"));
    stage.settle("bob").await;
    let context = stage.context().await;
    let sent = stage.server.sent();
    for _ in 0..3 {
        crate::work(&context, "bob").await;
    }
    assert_eq!(stage.server.sent(), sent, "{:?}", stage.server.writes());
}

#[tokio::test]
async fn what_was_changed_or_deleted_by_hand_is_healed_and_fields_of_others_stay() {
    let stage = Stage::new(&["--network-policies"]).await;
    stage.declare("bob", personal("bob"));
    stage.settle("bob").await;
    let service = "/api/v1/namespaces/team/services/lane-bob";
    for path in [
        service,
        "/api/v1/namespaces/team/serviceaccounts/lane-bob",
        "/api/v1/namespaces/team/secrets/lane-bob",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/sys/roles/lane-team.bob",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/sys/rolebindings/lane-team.bob",
        "/apis/networking.k8s.io/v1/namespaces/team/networkpolicies/lane-bob",
        "/apis/apps/v1/namespaces/team/statefulsets/lane-bob",
    ] {
        stage.server.delete(path);
        stage.settle("bob").await;
        assert!(stage.server.get(path).is_some(), "{path} is not healed");
    }
    stage
        .server
        .change(service, json!({"spec": {"clusterIP": "10.0.0.9"}, "metadata": {"annotations": {"theirs": "1"}}}));
    stage.settle("bob").await;
    let healed = stage.server.get(service).unwrap();
    assert_eq!(healed["spec"]["clusterIP"], "None");
    assert_eq!(healed["metadata"]["annotations"]["theirs"], "1");
    stage.server.change("/api/v1/namespaces/team/secrets/lane-bob", json!({"data": {"attestation.key": "AAAA"}}));
    stage.settle("bob").await;
    let secret = stage.server.get("/api/v1/namespaces/team/secrets/lane-bob").unwrap();
    assert_ne!(secret["data"]["attestation.key"], "AAAA");
}

#[tokio::test]
async fn what_is_not_ours_is_left_alone_and_told() {
    let stage = Stage::new(&[]).await;
    stage.declare("bob", personal("bob"));
    let theirs = json!({"metadata": {"name": "lane-bob"}, "spec": {"clusterIP": "10.0.0.9"}});
    let path = "/api/v1/namespaces/team/services/lane-bob";
    stage.server.put(path, theirs);
    let before = stage.server.get(path);
    assert!(stage.lane("bob").await.is_err());
    assert_eq!(stage.server.get(path), before);
    let (_, reason, message) = stage.condition("bob", "Ready").unwrap();
    assert_eq!(reason, "NameTaken");
    assert!(message.contains("Service team/lane-bob"), "{message}");
}

#[tokio::test]
async fn a_suspended_lane_has_no_store_and_keeps_the_rest() {
    let stage = Stage::new(&[]).await;
    stage.declare("bob", personal("bob"));
    stage.settle("bob").await;
    stage.server.change(&format!("{LANES}/bob"), json!({"spec": {"suspend": true}}));
    stage.settle("bob").await;
    assert!(stage.server.get(&format!("{SETS}/lane-bob")).is_none());
    for kept in [format!("{RECORDS}/team.bob"), format!("{VOLUMES}/lane-bob")] {
        assert!(stage.server.get(&kept).is_some(), "{kept}");
    }
    assert_eq!(stage.condition("bob", "Ready").unwrap().1, "Suspended");
    assert_eq!(stage.condition("bob", "FenceHeld").unwrap().1, "Claimed");
    stage.server.change(&format!("{LANES}/bob"), json!({"spec": {"suspend": false}}));
    stage.settle("bob").await;
    assert!(stage.server.get(&format!("{SETS}/lane-bob")).is_some());
}

#[tokio::test]
async fn a_replica_that_does_not_lead_writes_nothing() {
    let stage = Stage::new(&[]).await;
    stage.declare("bob", personal("bob"));
    let context = stage.context().await;
    let (sent, before) = (stage.server.sent(), stage.server.paths(""));
    stage.term.end();
    crate::work(&context, "bob").await;
    assert_eq!(stage.server.sent(), sent);
    assert_eq!(stage.server.paths(""), before);
}

#[tokio::test]
async fn a_managed_embedder_comes_with_its_first_lane_and_goes_with_its_last() {
    let stage = Stage::new(&[]).await;
    stage.declare("one", personal("bob"));
    stage.declare("two", personal("bob"));
    let name =
        lanekeeper_operator::controller::embedder::managed_key(lanekeeper_crds::models::BuiltinModel::AllMiniLmL6V2)
            .name;
    let path = format!("/apis/lanekeeper.dev/v1alpha1/embedders/{name}");
    let deployment = format!("/apis/apps/v1/namespaces/sys/deployments/embedder-{name}");
    for _ in 0..3 {
        stage.embedder(&name).await.unwrap();
    }
    let made = stage.server.get(&path).unwrap();
    assert_eq!(made["status"]["consumers"], 2);
    assert_eq!(made["status"]["firstConsumers"], json!(["team/one", "team/two"]));
    assert!(stage.server.get(&deployment).is_some());
    stage.server.delete(&format!("{LANES}/one"));
    stage.embedder(&name).await.unwrap();
    assert!(stage.server.get(&deployment).is_some(), "it went with the first of two");
    stage.server.delete(&format!("{LANES}/two"));
    stage.embedder(&name).await.unwrap();
    assert!(stage.server.get(&path).is_none());
    assert!(stage.server.get(&deployment).is_none());
}

#[tokio::test]
async fn an_embedder_of_a_user_stays_idle_without_lanes() {
    let stage = Stage::new(&[]).await;
    let path = "/apis/lanekeeper.dev/v1alpha1/embedders/mine";
    stage.server.put(
        path,
        json!({
            "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Embedder", "metadata": {"name": "mine"},
            "spec": {"model": "all-MiniLM-L6-v2", "cache": {}},
        }),
    );
    stage.declare("bob", json!({"kind": "personal", "owner": "bob", "embedder": {"name": "mine"}}));
    for _ in 0..2 {
        stage.embedder("mine").await.unwrap();
    }
    assert_eq!(stage.server.paths("embedder-mine").len(), 3, "Deployment, Service and cache");
    stage.server.delete(&format!("{LANES}/bob"));
    for _ in 0..2 {
        stage.embedder("mine").await.unwrap();
    }
    assert!(stage.server.paths("embedder-mine").is_empty());
    let idle = stage.server.get(path).unwrap()["status"]["conditions"].to_string();
    assert!(idle.contains("\"Idle\""), "{idle}");
}
