//! What a save hears when COMMIT fails and when the disk is full. A process of its own: faults are global.
//!
//! The COMMIT tests need the feature `test-hooks` (on in `cargo test --workspace`).

#[path = "../stage/mod.rs"]
mod stage;

use std::sync::Arc;

use lanekeeper_core::LaneError;
use lanekeeper_core::lane_client::LaneClient;
use lanekeeper_core::testing::HashEncoder;
use lanekeeper_core::wire::recall::Filter;
use lanekeeper_lane_store::testing::{SmallVolume, Stage, keyed, save};

/// One test at a time: a fault strikes every store of the process.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A COMMIT that fails, before and after it reached the disk: nobody is told more than is known, the
/// writer goes on from the head on disk, and a retry under its key ends with exactly one event.
#[cfg(feature = "test-hooks")]
#[tokio::test]
async fn a_failed_commit_is_unknown_to_all_and_a_retry_makes_one_event() {
    use lanekeeper_core::hooks::set_fault;
    let _alone = ONE_AT_A_TIME.lock().await;
    let stage = stage::stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    let mut before = store.put(&bob, "s", &["the ground"]).await.head;
    for point in ["commit", "after_commit"] {
        let keys: Vec<String> = (0..4).map(|n| format!("{point}-{n}")).collect();
        let requests: Vec<_> = keys.iter().map(|key| keyed(save("s", &[&format!("a heron of {key}")]), key)).collect();
        set_fault(point, Some("error"));
        let answers =
            futures::future::join_all(requests.iter().map(|request| store.append(&bob, request.clone()))).await;
        set_fault(point, None);
        for answer in answers {
            assert!(matches!(answer, Err(LaneError::CommitUnknown)), "{point}: {answer:?}");
        }
        assert_eq!(store.status().await.head_seq, before.seq.0, "{point}: no head that nobody was told of");
        // The connection is opened anew and the head read from disk: no row has a wrong predecessor.
        let mut ids = Vec::new();
        for request in &requests {
            ids.push(store.append(&bob, request.clone()).await.unwrap().events[0].id);
        }
        let again = store.append(&bob, requests[3].clone()).await.unwrap();
        assert_eq!(again.events[0].id, ids[3], "{point}: the retry of a retry");
        assert_eq!(again.head.seq.0, before.seq.0 + 4, "{point}: one event a key");
        // The next new event goes on from what is on disk, which after a lost answer is more than was told.
        before = store.put(&bob, "s", &[&format!("after {point}")]).await.head;
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 4);
    }
    let report = store.verify(&bob).await.unwrap();
    assert!(report.ok, "{report:?}");
    store.close().await;
}

/// Every save is answered 507 and none is half there; reading goes on; with room again the same writer
/// takes the same requests.
#[tokio::test]
#[expect(clippy::print_stderr, reason = "a skip is visible")]
async fn a_full_disk_refuses_saves_and_the_writer_stays_up() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let Some(volume) = SmallVolume::mount("96m") else {
        eprintln!("SKIPPED a_full_disk_refuses_saves_and_the_writer_stays_up: may not mount a tmpfs");
        return;
    };
    let stage = Stage::at(volume.path(), "team/acme", Arc::new(HashEncoder::new())).await;
    let bob = stage.bob();
    let store = stage.open().await;
    let head = store.put(&bob, "s", &["a heron on dry ground"]).await.head;
    store.settle_down().await;

    let ballast = volume.fill();
    let long = "a long word of the flood ".repeat(800);
    let requests: Vec<_> = (0..8).map(|n| keyed(save("s", &[&format!("{n} {long}")]), &format!("flood-{n}"))).collect();
    for request in &requests {
        let answer = store.append(&bob, request.clone()).await;
        assert!(matches!(answer, Err(LaneError::DiskFull)), "{answer:?}");
    }
    assert_eq!(store.status().await.head_seq, head.seq.0, "nothing half done");
    let answer = store.ask(&bob, "heron", Filter::default()).await.unwrap();
    assert_eq!(answer.candidates.len(), 1, "reading goes on");

    std::fs::remove_file(ballast).unwrap();
    for request in &requests {
        store.append(&bob, request.clone()).await.unwrap();
    }
    store.settle_down().await;
    assert_eq!(store.status().await.head_seq, head.seq.0 + 8);
    let report = store.verify(&bob).await.unwrap();
    assert!(report.ok, "{report:?}");
    store.close().await;
}
