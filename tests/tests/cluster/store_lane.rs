//! A lane through its server and `RemoteLane`: what a caller sees is what the lane in process answers.

use std::sync::Arc;

use futures::StreamExt as _;
use lanekeeper_core::encoder::{Work, WorkKind};
use lanekeeper_core::lane_client::{ByteStream, Caller, LaneClient, StoreRecall};
use lanekeeper_core::scope::{Action, Role};
use lanekeeper_core::wire::forget::ForgetRequest;
use lanekeeper_core::wire::memory::MemorySaveRequest;
use lanekeeper_core::wire::recall::{Filter, Surface};
use lanekeeper_core::wire::upkeep::RebuildRequest;
use lanekeeper_core::{LaneError, Seq};
use lanekeeper_federation::Registry as _;
use lanekeeper_lane_store::testing::{Stage, keyed, save};

use super::stage::{Served, link, until};

fn question(stage: &Stage, text: &str) -> StoreRecall {
    let (encoder, query) = (Arc::clone(&stage.encoder), text.to_owned());
    let work = Work { lane: stage.uid, kind: WorkKind::Query };
    StoreRecall {
        query: text.to_owned(),
        encoding: Box::pin(async move { Ok(Arc::new(encoder.encode_query(work, &query).await.unwrap())) }),
        fingerprint: stage.encoder.fingerprint(),
        surfaces: vec![Surface::Turns, Surface::Memory],
        filter: Filter::default(),
        arms_off: vec![],
        idf_pooling: true,
        deadline_ms: i64::MAX / 2,
    }
}

async fn bytes(mut stream: ByteStream) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(part) = stream.next().await {
        all.extend_from_slice(&part.unwrap());
    }
    all
}

fn body(bytes: Vec<u8>) -> ByteStream {
    let parts: Vec<_> = bytes.chunks(777).map(|part| Ok(bytes::Bytes::copy_from_slice(part))).collect();
    Box::pin(futures::stream::iter(parts))
}

fn saw_text(error: &LaneError) -> bool {
    format!("{error:?}").contains("Thursday")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_is_the_same_over_the_network() {
    let mut served = Served::new("team/bob").await;
    let (remote, bob) = (served.remote(), served.stage.bob());
    let store = served.store();

    let request = keyed(save("s", &["The release moves to Thursday.", "Lunch is at noon."]), "key-1");
    let saved = remote.append(&bob, request.clone()).await.unwrap();
    assert_eq!(saved.events.len(), 2);
    let again = remote.append(&bob, request).await.unwrap();
    assert_eq!(again.events[0].id, saved.events[0].id);
    let other = remote.append(&bob, keyed(save("s", &["another body"]), "key-1")).await.unwrap_err();
    assert_eq!(other, LaneError::IdempotencyConflict);
    store.settle_down().await;

    assert_eq!(remote.list_events(&bob, Seq(0), 10).await.unwrap(), store.list_events(&bob, Seq(0), 10).await.unwrap());
    let mut over = remote.recall(&bob, question(&served.stage, "when is the release")).await.unwrap();
    let mut within = store.recall(&bob, question(&served.stage, "when is the release")).await.unwrap();
    assert!(over.candidates.iter().any(|candidate| candidate.text == "The release moves to Thursday."));
    // A store promises no order: ranks are made by the query service.
    for answer in [&mut over, &mut within] {
        answer.candidates.sort_by_key(|candidate| candidate.event_id);
    }
    // Token states travel in half precision: scores differ in the fourth decimal and nothing else does.
    assert_eq!(over.candidates.len(), within.candidates.len());
    for (over, within) in over.candidates.iter().zip(&within.candidates) {
        assert_eq!((over.event_id, &over.text, over.content), (within.event_id, &within.text, within.content));
        for (arm, score) in &within.scores {
            assert!((score - over.scores[arm]).abs() < 2e-3, "{arm:?}: {score} and {}", over.scores[arm]);
        }
    }
    assert_eq!((over.arms, over.counts, over.pooling), (within.arms, within.counts, within.pooling));
    // No encoding: the reason travels instead.
    let mut without = question(&served.stage, "release");
    without.encoding = Box::pin(std::future::ready(Err("embedder_unavailable".into())));
    let without = remote.recall(&bob, without).await.unwrap();
    let vector = &without.arms[&lanekeeper_core::wire::recall::Arm::Vector];
    assert_eq!((vector.searched, vector.reason.as_deref()), (false, Some("embedder_unavailable")));
    assert_eq!(remote.known_speakers(&bob).await.unwrap(), store.known_speakers(&bob).await.unwrap());

    memory(&remote, &bob).await;
    let report = remote.verify(&bob).await.unwrap();
    assert!(report.ok && report.events > 2, "{report:?}");
    // What the role does not allow is refused by the store with the same error, and no text is in it.
    let reader = served.stage.caller("user:eve", Role::Reader);
    let refused = remote.append(&reader, save("s", &["Thursday"])).await.unwrap_err();
    assert_eq!(refused, LaneError::GateRequired { action: Action::Save });
    assert!(!saw_text(&refused));

    let forget = ForgetRequest { events: Some(vec![saved.events[0].id]), ..ForgetRequest::default() };
    let dry = remote.forget(&bob, ForgetRequest { dry_run: true, ..forget.clone() }, None).await.unwrap();
    assert_eq!((dry.events.len(), dry.receipt), (1, None));
    let gone = remote.forget(&bob, forget, None).await.unwrap();
    assert!(gone.receipt.is_some());
    let after = remote.recall(&bob, question(&served.stage, "when is the release")).await.unwrap();
    assert!(after.candidates.iter().all(|candidate| !candidate.text.contains("Thursday")));
    assert!(remote.rebuild(&bob, RebuildRequest::default()).await.is_ok());
    store.settle_down().await;
    let status = remote.status().await;
    assert!(status.ready && status.writable, "{status:?}");
    drop(store);
    served.stop().await;
}

async fn memory(remote: &impl LaneClient, bob: &Caller) {
    let write = |text: &str| MemorySaveRequest { text: text.into(), shared: false };
    let first = remote.save_memory(bob, write("Likes tea."), None, None).await.unwrap();
    let refused = remote.save_memory(bob, write("Likes coffee."), None, None).await.unwrap_err();
    assert_eq!(refused, LaneError::PreconditionRequired { current: first.document.etag.clone() });
    let etag = Some(first.document.etag);
    let second = remote.save_memory(bob, write("Likes coffee."), etag.clone(), None).await.unwrap();
    let refused = remote.save_memory(bob, write("Likes water."), etag, None).await.unwrap_err();
    assert_eq!(refused, LaneError::PreconditionFailed { current: second.document.etag });
    assert_eq!(remote.memory(bob, "coffee").await.unwrap().paragraphs.len(), 1);
    assert_eq!(remote.memory_history(bob).await.unwrap().versions.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn export_import_and_backup_stream() {
    let mut from = Served::new("team/from").await;
    let mut to = Served::new("team/to").await;
    let (source, target) = (from.remote(), to.remote());
    let long = "x".repeat(20_000);
    // More than one piece of an import.
    for n in 0..100 {
        source.append(&from.stage.bob(), save("s", &[&format!("{n} {long}")])).await.unwrap();
    }
    let export = bytes(source.export(&from.stage.bob()).await.unwrap()).await;
    assert!(export.len() > 2_000_000);
    let report = target.import(&to.stage.bob(), body(export.clone()), false).await.unwrap();
    assert_eq!((report.lines, report.imported, report.refused), (100, 100, 0), "{report:?}");
    let report = target.import(&to.stage.bob(), body(export), false).await.unwrap();
    assert_eq!((report.imported, report.already_present), (0, 100));
    let backup = bytes(source.backup(&from.stage.bob()).await.unwrap()).await;
    assert!(backup.len() > 100_000);
    let refused = source.import(&from.stage.bob(), body(b"no header\n".to_vec()), false).await.unwrap_err();
    assert_eq!(refused.code(), "invalid_field");
    from.stop().await;
    to.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_is_cut_off_and_found_again() {
    let mut served = Served::new("team/bob").await;
    let (remote, bob) = (served.remote(), served.stage.bob());
    let address = served.address();
    remote.append(&bob, save("s", &["before"])).await.unwrap();
    served.stop().await;
    // Refused connections: nothing was sent, so a save says so and is no commit of unknown outcome.
    let unavailable = LaneError::Unavailable { what: "the lane's store".into() };
    for _ in 0..3 {
        assert_eq!(remote.append(&bob, save("s", &["meanwhile"])).await.unwrap_err(), unavailable);
        assert_eq!(remote.list_events(&bob, Seq(0), 10).await.unwrap_err(), unavailable);
    }
    let started = std::time::Instant::now();
    for _ in 0..200 {
        assert_eq!(remote.list_events(&bob, Seq(0), 10).await.unwrap_err(), unavailable);
    }
    assert!(started.elapsed() < std::time::Duration::from_secs(2), "an open circuit asks nobody");
    let status = remote.status().await;
    assert_eq!((status.ready, status.reasons), (false, vec!["store_unavailable".to_owned()]));
    served.start(address).await;
    until("the store is asked again", async || remote.list_events(&bob, Seq(0), 10).await.is_ok()).await;
    assert_eq!(remote.list_events(&bob, Seq(0), 10).await.unwrap().events.len(), 2, "opened, before");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_publishes_the_head_and_releases_the_record() {
    let mut served = Served::new("team/bob").await;
    let saved = served.remote().append(&served.stage.bob(), save("s", &["last words"])).await.unwrap();
    let (status, ready) = served.probe("/readyz").await;
    assert_eq!((status, ready["ready"].as_bool()), (200, Some(true)), "{ready}");
    assert_eq!(served.probe("/startupz").await.0, 200);
    assert_eq!(served.probe("/healthz").await.0, 200);
    let metrics = served.running.as_ref().unwrap().metrics.unwrap();
    let text = reqwest::get(format!("http://{metrics}/metrics")).await.unwrap().text().await.unwrap();
    assert!(text.contains("lanekeeper_store_requests_total") && text.contains("lanekeeper_store_head_seq 2"), "{text}");
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
    served.stop().await;
    let record = served.stage.registry.read(&served.stage.collection()).await.unwrap();
    assert!(record.status.holder.unwrap().released);
    let head = record.status.head.unwrap();
    assert_eq!((head.seq, head.hash), (saved.head.seq, saved.head.hash));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_cannot_be_opened_says_why_and_is_tried_again() {
    let mut served = Served::new("team/bob").await;
    served.stop().await;
    let key = served.stage.folder.join("log.key");
    let kept = std::fs::read(&key).unwrap();
    std::fs::write(&key, b"short").unwrap();
    let stage = &served.stage;
    let settings = lanekeeper_lane_store::server::ServerSettings {
        lane_uid: stage.uid,
        log_id: stage.log_id,
        listen: "127.0.0.1:0".parse().unwrap(),
        metrics: None,
        drain: std::time::Duration::from_secs(1),
    };
    #[derive(Debug)]
    struct Tries(lanekeeper_lane_store::LaneConfig, lanekeeper_lane_store::LaneParts);
    #[async_trait::async_trait]
    impl lanekeeper_lane_store::server::Opener for Tries {
        async fn open(&self) -> Result<Arc<lanekeeper_lane_store::LaneStore>, lanekeeper_lane_store::StoreError> {
            lanekeeper_lane_store::LaneStore::open(self.0.clone(), self.1.clone()).await
        }
    }
    let secrets = lanekeeper_lane_store::server::Secrets::open(served.secrets()).unwrap();
    let opener = Arc::new(Tries(stage.config(), stage.parts()));
    let clock = Arc::new(lanekeeper_core::clock::SystemClock);
    served.running = Some(lanekeeper_lane_store::server::start(settings, secrets, opener, clock).await.unwrap());
    let probe = async || served.probe("/startupz").await;
    until("the reason is said", async || probe().await.1["reasons"][0] == "store_not_open").await;
    assert_eq!(served.probe("/readyz").await.0, 503);
    assert_eq!(served.probe("/healthz").await.0, 200);
    std::fs::write(&key, kept).unwrap();
    until("the lane is open", async || probe().await.0 == 200).await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_ca_counts_without_a_restart() {
    let mut served = Served::new("team/bob").await;
    let (old, bob) = (served.remote(), served.stage.bob());
    old.append(&bob, save("s", &["one"])).await.unwrap();
    let names = lanekeeper_core::cluster::lane_dns_names(&served.stage.lane);
    super::stage::Ca::new().write(&served.secrets(), names);
    let master = served.temp.path().join("master");
    until("the new certificate is served", async || {
        // A client of its own, that knows the new CA alone and keeps no connection.
        served.link = link(&served.secrets().join("ca.crt"), &master, &served.stage, served.address());
        served.remote().list_events(&bob, Seq(0), 10).await.is_ok()
    })
    .await;
    served.stop().await;
}
