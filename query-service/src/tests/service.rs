//! Health, readiness, listing and metrics.

use lanekeeper_core::lane_client::LaneStatus;
use lanekeeper_core::wire::recall::LaneCounts;
use serde_json::json;
use tower::ServiceExt as _;

use super::fake::{BOB, Does, World, answer, request};
use crate::{metrics_router, router};

fn broken(reason: &str) -> LaneStatus {
    LaneStatus { ready: true, writable: false, reasons: vec![reason.into()], ..LaneStatus::default() }
}

#[tokio::test]
async fn readiness_names_reasons_and_no_lane() {
    let world = World::new();
    let ready = async || {
        let answer = world.send(request("GET", "/readyz", None, None)).await;
        (answer.status.as_u16(), answer.json())
    };
    assert_eq!(
        ready().await,
        (200, json!({"ready": true, "lanes": 3, "lanes_ready": 3, "lanes_writable": 3, "reasons": {}}))
    );
    *world.bob.status.lock().unwrap() = broken("fence_unconfirmed");
    *world.eve.status.lock().unwrap() = broken("fence_unconfirmed");
    world.change("team/handbook", |view| view.suspend = true);
    let (status, body) = ready().await;
    assert_eq!(status, 200);
    assert_eq!(body["reasons"], json!({"fence_unconfirmed": 2, "lane_suspended": 1}));
    assert!(!body.to_string().contains("team"));
    for lane in [&world.bob, &world.eve] {
        *lane.status.lock().unwrap() = LaneStatus::default();
    }
    assert_eq!(ready().await.0, 503);
    for lane in ["team/bob", "team/eve", "team/handbook"] {
        world.remove(lane);
    }
    assert_eq!(ready().await.0, 200);
    assert_eq!(world.send(request("GET", "/healthz", None, None)).await.json(), json!({"status": "ok"}));
}

#[tokio::test]
async fn a_caller_sees_its_lanes_with_role_and_state() {
    let world = World::new();
    *world.bob.status.lock().unwrap() = LaneStatus {
        head_seq: 7,
        counts: LaneCounts { events: 5, ..LaneCounts::default() },
        ..broken("fence_other_writer")
    };
    *world.handbook.status.lock().unwrap() = LaneStatus::default();
    let list = world.ask("GET", "/v1/lanes", &world.token("user:bob", BOB), None).await.json();
    insta::assert_json_snapshot!("lanes", list);
}

#[tokio::test]
async fn metrics_count_and_name_no_tenant() {
    let world = World::new();
    *world.handbook.does.lock().unwrap() =
        Does::Fail(lanekeeper_core::LaneError::Unavailable { what: "secret thing".into() });
    *world.bob.status.lock().unwrap() = broken("fence_unconfirmed");
    let app = world.app();
    let token = world.token("user:bob", BOB);
    let recall = request("POST", "/v1/recall", Some(&token), Some(json!({"query": "MARKER"})));
    for request in [
        recall,
        request("GET", "/v1/lanes/team/MARKER/events?q=MARKER", Some(&token), None),
        request("GET", "/MARKER", None, None),
    ] {
        let _ = router(&app).oneshot(request).await.unwrap();
    }
    let odd = http::Request::builder().method("MARKER").uri("/v1/lanes").body(axum::body::Body::empty()).unwrap();
    let _ = router(&app).oneshot(odd).await.unwrap();
    let metrics = answer(metrics_router(&app).oneshot(request("GET", "/metrics", None, None)).await.unwrap()).await;
    assert!(metrics.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let text = metrics.text;
    for line in [
        r#"lanekeeper_requests_total{method="POST",route="/v1/recall",status="200"} 1"#,
        r#"lanekeeper_requests_total{method="GET",route="/v1/lanes/{namespace}/{name}/events",status="404"} 1"#,
        r#"lanekeeper_requests_total{method="GET",route="none",status="404"} 1"#,
        r#"lanekeeper_recall_arms_not_searched_total{arm="vector",reason="unavailable"} 1"#,
        r#"lanekeeper_recalls_total{complete="false"} 1"#,
        "lanekeeper_lanes 3",
        "lanekeeper_lanes_writable 2",
        r#"lanekeeper_lane_reasons{reason="fence_unconfirmed"} 1"#,
    ] {
        assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
    }
    assert_eq!(text.matches("# EOF").count(), 1);
    for tenant in ["bob", "team", "MARKER", "handbook", "secret"] {
        assert!(!text.contains(tenant), "{tenant}");
    }
    // Not on the API's own port.
    assert_eq!(world.send(request("GET", "/metrics", None, None)).await.status, 404);
}
