//! Append, idempotency, pins, verification, fence, lock and rollback, on a real store in a temporary folder.

use crate::stage::{self, stage};
use lanekeeper_core::error::{FenceReason, ReadOnlyReason};
use lanekeeper_core::lane_client::LaneClient;
use lanekeeper_core::scope::{EffectiveScope, Role, Scope};
use lanekeeper_core::wire::events::{Head, Projection};
use lanekeeper_core::wire::forget::ForgetRequest;
use lanekeeper_core::wire::recall::Filter;
use lanekeeper_core::{Epoch, LaneError, Seq};
use lanekeeper_federation::Registry;
use lanekeeper_lane_store::testing::{keyed, save};
use lanekeeper_lane_store::{StoreError, verify_file};

#[tokio::test]
async fn a_save_is_chained_listed_and_survives_reopening() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    let answer = store.put(&bob, "s", &["the first", "the second", "the first"]).await;
    assert_eq!(answer.events.iter().map(|event| event.seq.0).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(answer.events[0].projection, Projection::Pending);
    assert_eq!(answer.events[2].projection, Projection::Duplicate);
    assert_eq!(answer.events[2].duplicate_of, Some(answer.events[0].id));
    assert_eq!(answer.head.hash, answer.events[2].hash);
    store.close().await;
    let store = stage.open().await;
    let page = store.list_events(&bob, Seq(0), 100).await.unwrap();
    let kinds: Vec<&str> = page.events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["opened", "turn", "turn", "turn"]);
    assert_eq!(page.events[1].text.as_deref(), Some("the first"));
    assert_eq!(page.head, answer.head);
    let report = store.verify(&bob).await.unwrap();
    assert!(report.ok, "{}", report.statement);
    assert_eq!(report.signed_up_to, 4);
    store.close().await;
}

#[tokio::test]
async fn c13_a_key_makes_one_event_also_across_a_restart() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    let first = store.append(&bob, keyed(save("s", &["once"]), "k1")).await.unwrap();
    let again = store.append(&bob, keyed(save("s", &["once"]), "k1")).await.unwrap();
    assert_eq!(first.events[0].id, again.events[0].id);
    assert_eq!(first.head, again.head);
    let other = store.append(&bob, keyed(save("s", &["another body"]), "k1")).await.unwrap_err();
    assert_eq!(other, LaneError::IdempotencyConflict);
    store.close().await;
    let store = stage.open().await;
    let after = store.append(&bob, keyed(save("s", &["once"]), "k1")).await.unwrap();
    assert_eq!(first.events[0].id, after.events[0].id);
    assert_eq!(store.head().0, Seq(2));
    // After a forget any body under the key answers the same ids, marked, and writes nothing.
    let forget = ForgetRequest { events: Some(vec![first.events[0].id]), ..ForgetRequest::default() };
    store.forget(&bob, forget, None).await.unwrap();
    let head = store.head();
    let forgotten = store.append(&bob, keyed(save("s", &["a third body"]), "k1")).await.unwrap();
    assert_eq!(forgotten.events[0].id, first.events[0].id);
    assert!(forgotten.events[0].forgotten);
    assert_eq!(store.head(), head);
    store.close().await;
}

#[tokio::test]
async fn c11_a_key_belongs_to_one_principal() {
    let stage = stage().await;
    let store = stage.open().await;
    let bob = store.append(&stage.bob(), keyed(save("s", &["from bob"]), "k")).await.unwrap();
    let agent = stage.caller("sa:team/agent", Role::Writer);
    let other = store.append(&agent, keyed(save("s", &["from the agent"]), "k")).await.unwrap();
    assert_ne!(bob.events[0].id, other.events[0].id);
    // C8: both principals stand in the log.
    let page = store.list_events(&stage.bob(), Seq(1), 10).await.unwrap();
    let principals: Vec<_> = page.events.iter().map(|event| event.principal.clone().unwrap()).collect();
    assert_eq!(principals, ["user:bob", "sa:team/agent"]);
    store.close().await;
}

#[tokio::test]
async fn a_pinned_head_refuses_alone_and_rolls_back_whole() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    let head = store.put(&bob, "s", &["one"]).await.head;
    let pinned = |head: Head| {
        let mut request = save("s", &["a", "b"]);
        request.save.expected_head = Some(head);
        request
    };
    // Three in one group: the first moves the head, the second pins the old one, the third pins nothing.
    let (first, second, third) = tokio::join!(
        store.append(&bob, pinned(head)),
        store.append(&bob, pinned(head)),
        store.append(&bob, save("s", &["c"])),
    );
    first.unwrap();
    let LaneError::HeadMismatch { actual_seq: actual, .. } = second.unwrap_err() else { panic!("another error") };
    assert!(actual >= Seq(4));
    third.unwrap();
    let report = store.verify(&bob).await.unwrap();
    assert!(report.ok && report.events == 5, "{report:?}");
    store.close().await;
}

#[tokio::test]
async fn c14_concurrent_saves_are_all_acknowledged_chained_and_recallable() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    let mut saves = Vec::new();
    for n in 0..40 {
        let (store, bob) = (store.clone(), bob.clone());
        let session = if n < 32 { format!("session-{n}") } else { "shared".into() };
        saves.push(tokio::spawn(
            async move { store.put(&bob, &session, &[&format!("marker{n}xyz stands here")]).await },
        ));
    }
    let mut seqs: Vec<u64> = Vec::new();
    for save in saves {
        seqs.push(save.await.unwrap().events[0].seq.0);
    }
    seqs.sort_unstable();
    assert_eq!(seqs, (2..42).collect::<Vec<_>>());
    assert!(store.verify(&bob).await.unwrap().ok);
    for n in 0..40 {
        let answer = store.ask(&bob, &format!("marker{n}xyz"), Filter::default()).await.unwrap();
        assert!(answer.candidates.iter().any(|hit| hit.text.starts_with(&format!("marker{n}xyz "))), "{n}");
    }
    store.close().await;
}

#[tokio::test]
async fn c45_one_changed_byte_is_named_and_the_store_refuses_to_write() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    store.put(&bob, "s", &["one", "two", "three"]).await;
    store.close().await;
    let database = stage.folder.join("lane.db");
    let statements = [
        "UPDATE events SET body = replace(body, 'two', 'twx') WHERE seq = 3",
        "UPDATE events SET at_ms = at_ms + 1 WHERE seq = 3",
        "UPDATE events SET principal = 'user:eve' WHERE seq = 3",
        "UPDATE events SET salt = NULL, body = NULL WHERE seq = 3",
        "UPDATE events SET session = NULL WHERE seq = 3",
        "UPDATE events SET kind = 'memory' WHERE seq = 3",
    ];
    let original = std::fs::read(&database).unwrap();
    for statement in statements {
        std::fs::write(&database, &original).unwrap();
        stage::sql(&database, statement).await;
        let report = verify_file(&database, Some(stage.log_id)).await.unwrap();
        assert_eq!(report.first_bad_seq, Some(3), "{statement}: {}", report.statement);
        let store = stage.open().await;
        assert!(!store.verify(&bob).await.unwrap().ok);
        let refused = store.append(&bob, save("s", &["four"])).await.unwrap_err();
        assert_eq!(refused, LaneError::ReadOnly(ReadOnlyReason::BadRow(Seq(3))), "{statement}");
        // Recall goes on without the bad row.
        let answer = store.ask(&bob, "one two twx three", Filter::default()).await.unwrap();
        assert!(answer.candidates.iter().any(|hit| hit.text == "one"));
        assert!(answer.candidates.iter().all(|hit| hit.seq != Seq(3)), "{statement}");
        store.close().await;
    }
    std::fs::write(&database, &original).unwrap();
    for statement in ["DELETE FROM events WHERE seq = 3", "DELETE FROM events WHERE seq = 4"] {
        std::fs::write(&database, &original).unwrap();
        stage::sql(&database, statement).await;
        assert!(!verify_file(&database, Some(stage.log_id)).await.unwrap().ok, "{statement}");
    }
}

#[tokio::test]
async fn rows_or_a_file_of_another_lane_never_pass() {
    let one = stage().await;
    let two = stage().await;
    for stage in [&one, &two] {
        let store = stage.open().await;
        store.put(&stage.bob(), "s", &["text"]).await;
        store.close().await;
    }
    std::fs::copy(one.folder.join("lane.db"), two.folder.join("lane.db")).unwrap();
    assert!(matches!(two.try_open().await, Err(StoreError::OtherLog)));
    let report = verify_file(&two.folder.join("lane.db"), Some(two.log_id)).await.unwrap();
    assert_eq!(report.first_bad_seq, Some(1));
}

#[tokio::test]
async fn a_second_opener_is_refused_and_a_foreign_uid_too() {
    let mut stage = stage().await;
    let store = stage.open().await;
    store.put(&stage.bob(), "s", &["text"]).await;
    assert!(matches!(stage.try_open().await, Err(StoreError::Locked { .. })));
    store.close().await;
    drop(store);
    let old = stage.uid;
    stage.uid = lanekeeper_core::LaneUid::from_uuid(uuid::Uuid::new_v4());
    assert!(matches!(stage.try_open().await, Err(StoreError::OtherLane { .. })));
    // Asked for, the log is adopted, and says so without a first write: the next adoption names this lane, also
    // where it never wrote.
    let mut from = old;
    for adoptions in 1..=2 {
        let uid = lanekeeper_core::LaneUid::from_uuid(uuid::Uuid::new_v4());
        stage.adopt = Some(std::mem::replace(&mut from, uid));
        stage.uid = uid;
        stage.registry.change_spec(&stage.collection(), Box::new(move |spec| spec.writer.uid = uid)).await.unwrap();
        let store = stage.open().await;
        let mut kinds: Vec<String> = Vec::new();
        while kinds.iter().filter(|kind| *kind == "adopted").count() < adoptions {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            let listed = store.list_events(&stage.bob(), Seq(0), 10).await.unwrap();
            kinds = listed.events.into_iter().map(|event| event.kind).collect();
        }
        assert_eq!(kinds, [&["opened", "turn"][..], &["adopted"; 2][..adoptions]].concat());
        assert!(store.verify(&stage.bob()).await.unwrap().ok);
        store.close().await;
    }
}

#[tokio::test]
async fn the_fence_refuses_writes_and_recall_goes_on() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    store.put(&bob, "s", &["before"]).await;
    stage.registry.change_spec(&stage.collection(), Box::new(|spec| spec.epoch = Epoch(2))).await.unwrap();
    // The confirmation in hand is used for at most a second.
    let mut refused = None;
    for _ in 0..200 {
        match store.append(&bob, save("s", &["after"])).await {
            Ok(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    let refused = refused.expect("an old epoch is refused within seconds");
    assert!(matches!(refused, LaneError::Fence { reason: FenceReason::OtherEpoch, .. }), "{refused:?}");
    let status = store.status().await;
    assert!(status.ready && !status.writable);
    assert!(status.reasons.contains(&"fence_other_epoch".to_owned()), "{status:?}");
    assert!(!store.ask(&bob, "before", Filter::default()).await.unwrap().candidates.is_empty());
    store.close().await;
}

#[tokio::test]
async fn an_older_copy_is_a_rollback_and_a_rewritten_head_a_fork() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    store.put(&bob, "s", &["one"]).await;
    store.close().await;
    let database = stage.folder.join("lane.db");
    let older = std::fs::read(&database).unwrap();
    let store = stage.open().await;
    store.put(&bob, "s", &["two"]).await;
    store.close().await;
    let newer = std::fs::read(&database).unwrap();

    std::fs::write(&database, &older).unwrap();
    let store = stage.open().await;
    let refused = store.append(&bob, save("s", &["three"])).await.unwrap_err();
    assert_eq!(refused, LaneError::ReadOnly(ReadOnlyReason::Rollback));
    assert!(!store.ask(&bob, "one", Filter::default()).await.unwrap().candidates.is_empty());
    store.close().await;

    // The same length with another last row: only the hash tells.
    std::fs::write(&database, &older).unwrap();
    let head = stage.registry.read(&stage.collection()).await.unwrap().status.head;
    stage.registry.change_status(&stage.collection(), Box::new(|status| status.head = None)).await.unwrap();
    let store = stage.open().await;
    store.put(&bob, "s", &["other"]).await;
    store.close().await;
    stage.registry.change_status(&stage.collection(), Box::new(move |status| status.head = head)).await.unwrap();
    let store = stage.open().await;
    let refused = store.append(&bob, save("s", &["three"])).await.unwrap_err();
    assert_eq!(refused, LaneError::ReadOnly(ReadOnlyReason::Fork));
    store.close().await;

    // The file gone altogether.
    std::fs::write(&database, &newer).unwrap();
    stage.open().await.close().await;
    std::fs::remove_file(&database).unwrap();
    assert!(matches!(stage.try_open().await, Err(StoreError::FileGone { .. })));
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_untouched() {
    let stage = stage().await;
    stage.open().await.close().await;
    let database = stage.folder.join("lane.db");
    stage::sql(&database, "PRAGMA user_version = 99").await;
    let before = std::fs::read(&database).unwrap();
    assert!(matches!(stage.try_open().await, Err(StoreError::SchemaTooNew { found: 99, .. })));
    assert!(matches!(verify_file(&database, None).await, Err(StoreError::SchemaTooNew { .. })));
    assert_eq!(std::fs::read(&database).unwrap(), before);
}

#[tokio::test]
async fn scope_and_uid_are_checked_again_in_the_store() {
    let stage = stage().await;
    let store = stage.open().await;
    let reader = stage.caller("user:ada", Role::Reader);
    assert!(matches!(store.append(&reader, save("s", &["x"])).await, Err(LaneError::GateRequired { .. })));
    let mut foreign = stage.bob();
    // A scope that was good for the lane that had this name before.
    foreign.lane_uid = lanekeeper_core::LaneUid::from_uuid(uuid::Uuid::new_v4());
    let granted = Scope::of_role(&stage.lane, foreign.lane_uid, &foreign.principal, Role::Admin).unwrap();
    foreign.scope = EffectiveScope { granted, narrowed: None };
    assert!(matches!(store.append(&foreign, save("s", &["x"])).await, Err(LaneError::NotFound { .. })));
    // A lane that reads must stand in the record, and only a corpus lane is read at all.
    let mut reading = stage.bob();
    reading.reading_lane = Some(lanekeeper_core::LaneUid::from_uuid(uuid::Uuid::new_v4()));
    assert!(matches!(store.ask(&reading, "x", Filter::default()).await, Err(LaneError::NotFound { .. })));
    store.close().await;
}

#[tokio::test]
async fn a_verify_that_its_caller_leaves_holds_no_snapshot() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    for n in 0..4 {
        let texts: Vec<String> = (0..100).map(|m| format!("turn {n} {m}")).collect();
        store.put(&bob, "s", &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
    // Left at a different step each time; a reader with a snapshot still open could not begin another.
    for steps in 0..40 {
        let mut verify = Box::pin(store.verify(&bob));
        for _ in 0..steps {
            if futures::poll!(&mut verify).is_ready() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_micros(200)).await;
        }
    }
    let head = store.put(&bob, "s", &["after"]).await.head;
    for _ in 0..8 {
        let report = store.verify(&bob).await.unwrap();
        assert_eq!((report.ok, report.head.map(|head| head.seq)), (true, Some(head.seq)), "{report:?}");
    }
    store.close().await;
}

#[tokio::test]
async fn files_are_private_from_their_first_byte() {
    use std::os::unix::fs::PermissionsExt;
    let stage = stage().await;
    let store = stage.open().await;
    store.put(&stage.bob(), "s", &["text"]).await;
    store.settle_down().await;
    let mut folders = vec![stage.folder.clone()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        let mode = std::fs::metadata(&folder).unwrap().permissions().mode() & 0o077;
        assert_eq!(mode, 0, "{}", folder.display());
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.starts_with(stage.folder.join("vectors")) {
                // The engine makes its files itself; the folder above them is private.
                seen += 1;
                let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o077;
                assert_eq!(mode, 0, "{}", path.display());
            }
        }
    }
    assert!(seen >= 5);
    store.close().await;
}
