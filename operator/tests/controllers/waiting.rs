//! What waits: unknown embedders, quotas, unreadable objects.

use std::time::Duration;

use lanekeeper_operator::controller::Controller;
use serde_json::json;
use tokio::time::Instant;

use crate::{LANES, SETS, Stage, personal};

#[tokio::test(start_paused = true)]
async fn fifty_lanes_that_name_an_unknown_embedder_for_ten_minutes() {
    const LANES_OF_IT: usize = 50;
    let stage = Stage::new(&[]).await;
    for number in 0..LANES_OF_IT {
        let spec = json!({"kind": "personal", "owner": "bob", "embedder": {"name": "there-is-none"}});
        stage.declare(&format!("lane-{number}"), spec);
    }
    let context = stage.context().await;
    context.enqueue_lanes();
    let (start, mut tries) = (Instant::now(), Vec::new());
    while let Ok(key) = tokio::time::timeout_at(start + Duration::from_secs(600), context.queues.lanes.next()).await {
        // The cache of a context stays as it was: what is written would be written again.
        lanekeeper_operator::controller::work(&context, Controller::Lane, &key).await;
        tries.push(start.elapsed());
    }
    let last_minutes = tries.iter().filter(|at| **at > Duration::from_secs(300)).count();
    assert!(tries.len() <= 8 * LANES_OF_IT, "{} tries", tries.len());
    assert!(last_minutes <= 2 * LANES_OF_IT, "{last_minutes} tries in the last five minutes: it does not back off");
    // With caches that follow there is one Event a lane.
    let fresh = Stage::new(&[]).await;
    fresh.declare("bob", json!({"kind": "personal", "owner": "bob", "embedder": {"name": "there-is-none"}}));
    for _ in 0..10 {
        fresh.lane("bob").await.unwrap();
    }
    assert_eq!(fresh.server.events(), ["EmbedderUnknown"]);
    assert_eq!(fresh.server.writes().len(), 1, "one status");
    assert!(fresh.condition("bob", "Ready").unwrap().2.contains("there-is-none"));
}

#[tokio::test]
async fn a_quota_is_named_and_the_controller_of_pods_reminded() {
    let stage = Stage::new(&[]).await;
    stage.declare("bob", personal("bob"));
    stage.settle("bob").await;
    assert_eq!(stage.condition("bob", "StoreReady").unwrap().1, "Pending");
    let set = stage.server.get(&format!("{SETS}/lane-bob")).unwrap();
    stage.server.put("/api/v1/namespaces/team/events/x", json!({
        "metadata": {"name": "x"}, "type": "Warning", "reason": "FailedCreate",
        "involvedObject": {"kind": "StatefulSet", "name": "lane-bob", "uid": set["metadata"]["uid"]},
        "message": "pods \"lane-bob-0\" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0",
        "lastTimestamp": "2026-12-01T00:00:00Z",
    }));
    stage.lane("bob").await.unwrap();
    let (_, reason, message) = stage.condition("bob", "Ready").unwrap();
    assert_eq!(reason, "QuotaExceeded");
    assert!(message.contains("none") && message.contains("limited: pods=0"), "{message}");
    assert!(stage.server.writes().iter().any(|write| write.contains("statefulsets/lane-bob")), "nobody is reminded");
}

#[tokio::test]
async fn a_lane_that_cannot_be_read_is_told_once_and_stops_no_other() {
    let stage = Stage::new(&[]).await;
    stage.declare("bad", json!({"kind": "nonsense"}));
    stage.declare("bob", personal("bob"));
    for _ in 0..3 {
        stage.lane("bad").await.unwrap();
    }
    let writes = stage.server.writes();
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert_eq!(stage.condition("bad", "Ready").unwrap().1, "InvalidSpec");
    assert_eq!(stage.server.events(), ["InvalidSpec"]);
    stage.settle("bob").await;
    assert!(stage.server.get(&format!("{SETS}/lane-bob")).is_some());
}

#[tokio::test]
async fn a_pod_of_an_old_revision_that_never_got_ready_is_replaced() {
    let stage = Stage::new(&[]).await;
    let lane = stage.declare("bob", personal("bob"));
    stage.settle("bob").await;
    let set = format!("{SETS}/lane-bob");
    let generation = stage.server.get(&set).unwrap()["metadata"]["generation"].clone();
    let pod = "/api/v1/namespaces/team/pods/lane-bob-0";
    let put = |revision: &str, ready: &str| {
        stage.server.put(
            pod,
            json!({
                "metadata": {"name": "lane-bob-0", "labels": {"controller-revision-hash": revision,
                    "lanekeeper.dev/lane-uid": lane["metadata"]["uid"]}},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
            }),
        );
    };
    stage
        .server
        .change(&set, json!({"status": {"replicas": 1, "updateRevision": "new", "observedGeneration": generation}}));
    put("old", "True");
    let _ = stage.lane("bob").await;
    assert!(stage.server.get(pod).is_some(), "a ready pod is the StatefulSet's to replace");
    put("new", "False");
    let _ = stage.lane("bob").await;
    assert!(stage.server.get(pod).is_some(), "a pod that starts is not stuck");
    put("old", "False");
    let _ = stage.lane("bob").await;
    assert!(stage.server.get(pod).is_none(), "it is stuck for ever");
}

#[tokio::test]
async fn an_error_that_does_not_pass_is_told() {
    let stage = Stage::new(&[]).await;
    stage.declare("bob", personal("bob"));
    stage.server.refuse("serviceaccounts", 403, "no right for serviceaccounts");
    assert!(stage.lane("bob").await.is_err());
    let (_, reason, message) = stage.condition("bob", "Ready").unwrap();
    assert_eq!(reason, "Refused");
    assert!(message.contains("no right for serviceaccounts"), "{message}");
    assert!(stage.server.get(&format!("{LANES}/bob")).is_some());
}
