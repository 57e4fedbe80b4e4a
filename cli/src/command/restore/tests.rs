//! Restores into real lanes of a real data folder.

use lanekeeper_core::EventId;
use lanekeeper_core::wire::forget::ForgetRequest;

use super::*;
use crate::local::world::{World, bob, lane, name};

/// What the command does with its arguments.
async fn run(
    temp: &tempfile::TempDir,
    archive: Option<&Path>,
    head: Option<Head>,
    flags: (bool, bool),
) -> Result<(), String> {
    let restore = Restore {
        data: temp.path().join("data"),
        lane: name("team/bob"),
        archive: archive.map(Path::to_owned),
        accept_head: head,
        replace: flags.0,
        other_log: flags.1,
    };
    restore.run().await.map_err(|failure| match failure {
        Failure::Refused(why) | Failure::Usage(why) => why,
        other @ (Failure::Unreachable(_) | Failure::Raw(_) | Failure::Told | Failure::PipeClosed) => {
            panic!("{other:?}")
        }
    })
}

async fn head_of(temp: &tempfile::TempDir) -> Head {
    let layout = crate::local::data::Layout::existing(&temp.path().join("data")).unwrap();
    let found = lane_file::live(&layout).unwrap().remove(0);
    verify_file(&found.folder.join("lane.db"), None).await.unwrap().head.unwrap()
}

async fn with_backup() -> (World, PathBuf) {
    let mut world = World::new();
    world.create(bob()).await.unwrap();
    world.save("team/bob", "before the backup").await;
    let archive = world.backup("team/bob").await;
    (world, archive)
}

#[test]
fn a_head_is_a_seq_and_a_hash() {
    let hash = "ab".repeat(32);
    assert_eq!(head(&format!("12:{hash}")).unwrap().seq, Seq(12));
    for bad in ["", "12", &format!(":{hash}"), &format!("x:{hash}"), "12:ab", &format!("-1:{hash}")] {
        assert!(head(bad).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_running_server_keeps_a_restore_out() {
    let (world, archive) = with_backup().await;
    let why = run(&world.temp, Some(&archive), None, (true, false)).await.unwrap_err();
    assert!(why.contains("in use by another process"), "{why}");
}

#[tokio::test]
async fn a_lane_that_holds_something_is_replaced_only_on_request_and_kept_aside() {
    let (world, archive) = with_backup().await;
    let uid = world.uid("team/bob");
    let temp = world.stop().await;
    let why = run(&temp, Some(&archive), None, (false, false)).await.unwrap_err();
    assert!(why.contains("--replace"), "{why}");
    run(&temp, Some(&archive), None, (true, false)).await.unwrap();
    let world = World::start(temp).await;
    let aside = world.folders("retained");
    assert!(aside.len() == 1 && aside[0].starts_with(&format!("team.bob.{uid}.replaced-")), "{aside:?}");
    // It held the published head, so it goes on at once, as the same lane.
    let status = world.status("team/bob").await;
    assert!(status.writable, "{:?}", status.reasons);
    assert_eq!((world.uid("team/bob"), status.counts.events), (uid, 1));
}

#[tokio::test]
async fn a_backup_from_before_the_published_head_is_read_only_until_its_head_is_accepted() {
    let (world, archive) = with_backup().await;
    world.save("team/bob", "after the backup").await;
    let temp = world.stop().await;
    run(&temp, Some(&archive), None, (true, false)).await.unwrap();
    let world = World::start(temp).await;
    let status = world.status("team/bob").await;
    assert!(status.ready && !status.writable);
    assert!(status.reasons.contains(&"log_rolled_back".to_owned()), "{:?}", status.reasons);
    let temp = world.stop().await;
    let head = head_of(&temp).await;
    let other = Head { seq: head.seq.next(), ..head };
    assert!(run(&temp, None, Some(other), (false, false)).await.unwrap_err().contains("not accepted"));
    run(&temp, None, Some(head), (false, false)).await.unwrap();
    let world = World::start(temp).await;
    assert!(world.status("team/bob").await.writable);
    assert_eq!(world.record("team.bob").await.unwrap().spec.epoch.0, 2);
    world.save("team/bob", "and on").await;
}

#[tokio::test]
async fn a_damaged_backup_moves_nothing() {
    let (world, archive) = with_backup().await;
    let temp = world.stop().await;
    let mut bytes = std::fs::read(&archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&archive, bytes).unwrap();
    assert!(run(&temp, Some(&archive), None, (true, false)).await.is_err());
    let world = World::start(temp).await;
    assert!(world.folders("retained").is_empty());
    assert!(world.status("team/bob").await.writable);
}

#[tokio::test]
async fn a_backup_of_another_log_is_taken_only_on_request() {
    let (world, archive) = with_backup().await;
    let (old, log_id) = (world.uid("team/bob"), world.record("team.bob").await.unwrap().spec.log_id);
    let _first = world.stop().await;
    // The same lane on another machine.
    let mut world = World::new();
    world.create(bob()).await.unwrap();
    let uid = world.uid("team/bob");
    let temp = world.stop().await;
    let why = run(&temp, Some(&archive), None, (true, false)).await.unwrap_err();
    assert!(why.contains("--other-log") && why.contains(&old.to_string()), "{why}");
    run(&temp, Some(&archive), None, (true, true)).await.unwrap();
    let world = World::start(temp).await.restart().await;
    let status = world.status("team/bob").await;
    assert!(status.writable, "{:?}", status.reasons);
    assert_eq!((world.uid("team/bob"), status.counts.events), (uid, 1));
    let record = world.record("team.bob").await.unwrap();
    assert_eq!((record.spec.log_id, record.spec.epoch.0), (log_id, 2));
    world.save("team/bob", "and on").await;
}

#[tokio::test]
async fn a_backup_of_a_personal_lane_never_becomes_a_corpus_lane() {
    let (world, archive) = with_backup().await;
    let _first = world.stop().await;
    let mut world = World::new();
    world.create(lane("bob", "{kind: corpus}", "")).await.unwrap();
    let temp = world.stop().await;
    assert!(run(&temp, Some(&archive), None, (true, true)).await.unwrap_err().contains("other kind"));
}

#[tokio::test]
async fn a_record_that_is_gone_comes_back_when_a_person_names_the_head() {
    let (world, _) = with_backup().await;
    let registry_file = world.temp.path().join("data/records/team.bob.json");
    let temp = world.stop().await;
    std::fs::remove_file(&registry_file).unwrap();
    let head = head_of(&temp).await;
    let other = Head { seq: head.seq.next(), ..head };
    assert!(run(&temp, None, Some(other), (false, false)).await.is_err());
    assert!(!registry_file.exists());
    run(&temp, None, Some(head), (false, false)).await.unwrap();
    let world = World::start(temp).await;
    assert!(world.status("team/bob").await.writable);
    world.save("team/bob", "and on").await;
}

#[tokio::test]
async fn a_lane_without_record_and_log_is_restored_all_the_same() {
    let (world, archive) = with_backup().await;
    let folder = world.temp.path().join("data/lanes").join(&world.folders("lanes")[0]);
    let registry_file = world.temp.path().join("data/records/team.bob.json");
    let temp = world.stop().await;
    std::fs::remove_file(&registry_file).unwrap();
    std::fs::write(folder.join("lane.db"), "no database any more").unwrap();
    run(&temp, Some(&archive), None, (true, false)).await.unwrap();
    let world = World::start(temp).await;
    assert!(world.status("team/bob").await.writable);
    assert_eq!(world.record("team.bob").await.unwrap().spec.epoch.0, 2);
}

#[tokio::test]
async fn what_was_forgotten_after_a_backup_is_said_to_come_back_by_nobody() {
    // The forget stands above the backup's head, so the restored lane is read-only: nobody is misled silently.
    let (world, archive) = with_backup().await;
    let handle = world.handle("team/bob").unwrap();
    let caller = world.owner("team/bob");
    let page = handle.client.list_events(&caller, Seq(0), 10).await.unwrap();
    let ids: Vec<EventId> = page.events.iter().filter(|event| event.kind == "turn").map(|event| event.id).collect();
    let request = ForgetRequest { events: Some(ids), ..ForgetRequest::default() };
    handle.client.forget(&caller, request, None).await.unwrap();
    drop(handle);
    let temp = world.stop().await;
    run(&temp, Some(&archive), None, (true, false)).await.unwrap();
    let world = World::start(temp).await;
    assert!(!world.status("team/bob").await.writable);
}
