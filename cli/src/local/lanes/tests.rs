//! Lanes on a real data folder with real stores.

use super::*;
use crate::local::world::{World, bob, lane, name};

#[tokio::test]
async fn a_lane_is_made_with_a_record_that_knows_its_log_and_keeps_its_uid() {
    let mut world = World::new();
    world.create(bob()).await.unwrap();
    world.save("team/bob", "remembered").await;
    let uid = world.uid("team/bob");
    let live = &world.lanes.live[&name("team/bob")];
    let record = world.record("team.bob").await.unwrap();
    assert_eq!((record.spec.writer.uid, record.spec.log_id), (uid, live.file.log_id));
    assert_eq!((record.spec.epoch.0, record.spec.generation.0), (1, 1));
    assert_eq!(live.client.store().unwrap().log_id(), live.file.log_id);
    assert_eq!(world.folders("lanes"), [format!("team.bob.{uid}")]);
    let world = world.restart().await;
    assert_eq!(world.uid("team/bob"), uid);
    let status = world.status("team/bob").await;
    assert!(status.ready && status.writable, "{:?}", status.reasons);
    assert_eq!(status.counts.events, 1);
}

#[tokio::test]
async fn a_removed_lane_is_kept_and_a_new_one_of_its_name_starts_empty() {
    let mut world = World::new();
    world.create(bob()).await.unwrap();
    world.save("team/bob", "remembered").await;
    let old = world.uid("team/bob");
    world.remove("team/bob").await;
    assert!(world.handle("team/bob").is_none());
    assert_eq!(world.folders("retained"), [format!("team.bob.{old}")]);
    assert!(world.folders("lanes").is_empty() && world.record("team.bob").await.is_none());
    world.create(bob()).await.unwrap();
    assert_ne!(world.uid("team/bob"), old);
    assert_eq!(world.status("team/bob").await.counts.events, 0);
}

#[tokio::test]
async fn the_same_owner_has_the_memory_back_when_it_asks() {
    let mut world = World::new();
    world.create(bob()).await.unwrap();
    world.save("team/bob", "remembered").await;
    let old = world.uid("team/bob");
    let log_id = world.lanes.live[&name("team/bob")].file.log_id;
    world.remove("team/bob").await;
    let asks = lane("bob", "{kind: personal, owner: bob}", &format!("lanekeeper.dev/adopt: {old}"));
    world.create(asks).await.unwrap();
    let new = world.uid("team/bob");
    assert_ne!(new, old);
    let status = world.status("team/bob").await;
    assert!(status.writable, "{:?}", status.reasons);
    assert_eq!(status.counts.events, 1);
    assert!(world.lanes.problems().codes().is_empty(), "{:?}", world.lanes.problems());
    let record = world.record("team.bob").await.unwrap();
    assert_eq!((record.spec.writer.uid, record.spec.log_id, record.spec.epoch.0), (new, log_id, 2));
    assert!(record.status.head.is_some(), "the published head goes along");
    assert!(world.folders("retained").is_empty());
    world.save("team/bob", "and more").await;
    // Adopted once, it stays so: a restart neither refuses the log nor adopts again.
    let world = world.restart().await;
    assert_eq!((world.uid("team/bob"), world.status("team/bob").await.counts.events), (new, 2));
    assert!(world.status("team/bob").await.writable);
}

#[tokio::test]
async fn another_owner_gets_nothing_and_is_told() {
    let mut world = World::new();
    world.create(bob()).await.unwrap();
    world.save("team/bob", "remembered").await;
    let old = world.uid("team/bob");
    world.remove("team/bob").await;
    let eve = lane("bob", "{kind: personal, owner: eve}", &format!("lanekeeper.dev/adopt: {old}"));
    world.create(eve).await.unwrap();
    assert_eq!(world.status("team/bob").await.counts.events, 0);
    assert_eq!(world.lanes.problems().codes(), [("lane team/bob".to_owned(), "adopt_refused")]);
    assert_eq!(world.folders("retained"), [format!("team.bob.{old}")]);
}

#[tokio::test]
async fn what_is_not_retained_cannot_be_adopted() {
    let mut world = World::new();
    for asked in ["01939a00-0000-7000-8000-000000000001", "nonsense"] {
        let refused =
            world.create(lane("bob", "{kind: personal, owner: bob}", &format!("lanekeeper.dev/adopt: {asked}"))).await;
        assert_eq!(refused.unwrap_err().code, "adopt_unknown");
    }
    assert!(world.folders("lanes").is_empty());
}

#[tokio::test]
async fn a_delete_acts_only_when_it_is_confirmed_for_this_very_uid() {
    let mut world = World::new();
    let spec = "{kind: personal, owner: bob, deletionPolicy: Delete}";
    for confirmed in ["", "lanekeeper.dev/confirm-delete: 01939a00-0000-7000-8000-000000000001"] {
        world.create(lane("bob", spec, confirmed)).await.unwrap();
        let uid = world.uid("team/bob");
        world.remove("team/bob").await;
        assert!(world.folders("retained").contains(&format!("team.bob.{uid}")), "{confirmed:?}");
    }
    world.create(lane("bob", spec, "")).await.unwrap();
    let uid = world.uid("team/bob");
    world.update(lane("bob", spec, &format!("lanekeeper.dev/confirm-delete: {uid}"))).await.unwrap();
    world.remove("team/bob").await;
    assert_eq!(world.folders("retained").len(), 2);
    assert!(world.folders("lanes").is_empty() && world.record("team.bob").await.is_none());
}

#[tokio::test]
async fn a_collection_has_one_writer_and_the_loser_is_told_who() {
    let mut world = World::new();
    world.create(lane("first", "{kind: corpus, collection: shared}", "")).await.unwrap();
    let second = lane("second", "{kind: corpus, collection: shared}", "");
    let refused = world.create(second.clone()).await.unwrap_err();
    assert_eq!(refused.code, "collection_taken");
    assert!(refused.why.contains("team/first"), "{}", refused.why);
    assert_eq!(world.folders("lanes").len(), 1);
    world.remove("team/first").await;
    world.create(second).await.unwrap();
    assert!(world.status("team/second").await.writable);
}

#[tokio::test]
async fn a_lane_whose_folder_was_taken_away_is_not_made_anew() {
    let mut world = World::new();
    world.create(bob()).await.unwrap();
    let folder = world.lanes.live[&name("team/bob")].folder.clone();
    world.lanes.close_all().await;
    std::fs::rename(&folder, world.temp.path().join("elsewhere")).unwrap();
    let mut world = world.restart().await;
    let refused = world.create(bob()).await.unwrap_err();
    assert_eq!(refused.code, "collection_taken");
    assert!(refused.why.contains("put it back"), "{}", refused.why);
    std::fs::rename(world.temp.path().join("elsewhere"), &folder).unwrap();
    assert!(world.restart().await.status("team/bob").await.writable);
}

#[tokio::test]
async fn a_suspended_lane_is_listed_and_closed_until_it_resumes() {
    let mut world = World::new();
    world.create(bob()).await.unwrap();
    world.save("team/bob", "remembered").await;
    world.update(lane("bob", "{kind: personal, owner: bob, suspend: true}", "")).await.unwrap();
    let handle = world.handle("team/bob").unwrap();
    assert!(handle.view.suspend && !world.lanes.live[&name("team/bob")].client.is_open());
    drop(handle);
    let mut world = world.restart().await;
    assert!(!world.lanes.live[&name("team/bob")].client.is_open());
    world.update(bob()).await.unwrap();
    assert_eq!(world.status("team/bob").await.counts.events, 1);
}

#[tokio::test]
async fn another_embedder_is_refused_and_the_lane_stays_as_it_was() {
    let mut world = World::new();
    world.create(bob()).await.unwrap();
    let other = lane("bob", "{kind: personal, owner: bob, suspend: true, embedder: {name: big}}", "");
    assert_eq!(world.update(other).await.unwrap_err().code, "embedder_change");
    assert!(!world.handle("team/bob").unwrap().view.suspend);
    let new = lane("new", "{kind: corpus, embedder: {name: big}}", "");
    assert_eq!(world.create(new).await.unwrap_err().code, "embedder_unknown");
}

#[tokio::test]
async fn a_record_names_its_readers_while_both_sides_consent() {
    let mut world = World::new();
    let corpus = |readers: &str| lane("handbook", &format!("{{kind: corpus, readers: {readers}}}"), "");
    let reads = |list: &str| lane("bob", &format!("{{kind: personal, owner: bob, reads: {list}}}"), "");
    world.create(corpus("[]")).await.unwrap();
    world.create(reads("[{namespace: team, name: handbook}]")).await.unwrap();
    let uid = world.uid("team/bob");
    async fn readers(world: &World) -> Vec<LaneUid> {
        world.record("team.handbook").await.unwrap().spec.readers
    }
    assert!(readers(&world).await.is_empty());
    world.update(corpus("[{namespace: team, name: bob}]")).await.unwrap();
    assert_eq!(readers(&world).await, [uid]);
    world.update(reads("[]")).await.unwrap();
    assert!(readers(&world).await.is_empty());
    world.update(corpus("[{namespace: team, name: '*'}]")).await.unwrap();
    world.update(reads("[{namespace: team, name: handbook}]")).await.unwrap();
    assert_eq!(readers(&world).await, [uid]);
    // A lane of that name that is not the same lane.
    world.remove("team/bob").await;
    assert!(readers(&world).await.is_empty());
}

#[tokio::test]
async fn a_kill_while_a_lane_is_retired_is_carried_on_from() {
    let mut world = World::new();
    world.create(bob()).await.unwrap();
    let uid = world.uid("team/bob");
    let (file, folder) = {
        let live = &world.lanes.live[&name("team/bob")];
        (live.file.clone(), live.folder.clone())
    };
    world.lanes.close_all().await;
    // After lane.json, before the move.
    let record = world.record("team.bob").await.map(Box::new);
    let retired = LaneFile { stage: Stage::Retired { record: record.clone(), at: "x".into() }, ..file };
    retired.write(&folder).unwrap();
    let world = world.restart().await;
    assert!(world.handle("team/bob").is_none() && world.record("team.bob").await.is_none());
    assert_eq!(world.folders("retained"), [format!("team.bob.{uid}")]);
    // After the move, before the record went.
    world.lanes.registry.declare(record.unwrap().spec).await.unwrap();
    let world = world.restart().await;
    assert!(world.record("team.bob").await.is_none());
}

#[tokio::test]
async fn a_kill_while_a_lane_is_adopted_is_carried_on_from() {
    for moved in [false, true] {
        let mut world = World::new();
        world.create(bob()).await.unwrap();
        world.save("team/bob", "remembered").await;
        let old = world.uid("team/bob");
        world.remove("team/bob").await;
        let retained = world.temp.path().join("data/retained").join(format!("team.bob.{old}"));
        let file = LaneFile::read(&retained).unwrap();
        let Stage::Retired { record, .. } = file.stage.clone() else { panic!() };
        let uid = LaneUid::from_uuid(uuid::Uuid::new_v4());
        let adopting = LaneFile {
            uid,
            adopted_from: Some(old),
            epoch: file.epoch.next(),
            stage: Stage::Adopting { record },
            ..file
        };
        adopting.write(&retained).unwrap();
        if moved {
            std::fs::rename(&retained, world.temp.path().join("data/lanes").join(format!("team.bob.{uid}"))).unwrap();
        }
        let mut world = world.restart().await;
        if !moved {
            assert!(world.handle("team/bob").is_none());
            let asks = lane("bob", "{kind: personal, owner: bob}", &format!("lanekeeper.dev/adopt: {old}"));
            world.create(asks).await.unwrap();
        }
        let status = world.status("team/bob").await;
        assert!(status.writable, "{:?}", status.reasons);
        assert_eq!(status.counts.events, 1);
    }
}

#[tokio::test]
async fn what_was_being_erased_is_gone_after_a_restart() {
    let mut world = World::new();
    world.create(bob()).await.unwrap();
    let folder = world.lanes.live[&name("team/bob")].folder.clone();
    world.lanes.close_all().await;
    let base = folder.parent().unwrap();
    std::fs::rename(&folder, base.join(format!(".deleting-{}", folder.file_name().unwrap().to_str().unwrap())))
        .unwrap();
    std::fs::create_dir(base.join(".new-x")).unwrap();
    let world = world.restart().await;
    assert!(world.folders("lanes").is_empty() && world.record("team.bob").await.is_none());
}

#[tokio::test]
async fn a_name_whose_folder_cannot_be_understood_stays_closed() {
    let mut world = World::new();
    world.create(bob()).await.unwrap();
    let folder = world.lanes.live[&name("team/bob")].folder.clone();
    world.lanes.close_all().await;
    let good = std::fs::read(folder.join("lane.json")).unwrap();
    std::fs::write(folder.join("lane.json"), "{").unwrap();
    let mut world = world.restart().await;
    assert_eq!(world.create(bob()).await.unwrap_err().code, "lane_folder_unusable");
    assert_eq!(world.lanes.problems().codes(), [("lane team/bob".to_owned(), "lane_folder_unusable")]);
    assert_eq!(world.folders("lanes").len(), 1);
    // Two folders of one name: which is the lane is not ours to say.
    std::fs::write(folder.join("lane.json"), good).unwrap();
    let second = folder.with_file_name("team.bob.01939a00-0000-7000-8000-000000000001");
    std::fs::create_dir(&second).unwrap();
    let world = world.restart().await;
    assert!(world.handle("team/bob").is_none());
    std::fs::remove_dir(second).unwrap();
    assert!(world.restart().await.status("team/bob").await.writable);
}

#[tokio::test]
async fn a_record_that_is_gone_is_not_made_again() {
    let mut world = World::new();
    world.create(bob()).await.unwrap();
    world.save("team/bob", "remembered").await;
    world.lanes.close_all().await;
    world.lanes.registry.remove("team.bob").await.unwrap();
    let world = world.restart().await;
    let status = world.status("team/bob").await;
    assert!(status.ready && !status.writable);
    assert_eq!(status.reasons, ["fence_record_missing"]);
    assert!(world.record("team.bob").await.is_none());
}

#[tokio::test]
async fn a_store_in_use_is_said_and_opened_as_soon_as_it_is_free() {
    let mut world = World::new();
    world.create(bob()).await.unwrap();
    let folder = world.lanes.live[&name("team/bob")].folder.clone();
    world.lanes.close_all().await;
    let other = loop {
        // A request that was still running lets go of the lock when it ends.
        match lanekeeper_lane_store::Volume::open(&folder) {
            Ok(volume) => break volume,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    world.settle().await;
    assert_eq!(world.status("team/bob").await.reasons, ["store_locked"]);
    drop(other);
    world.lanes.live.get_mut(&name("team/bob")).unwrap().trouble = None;
    world.settle().await;
    assert!(world.status("team/bob").await.writable);
}
