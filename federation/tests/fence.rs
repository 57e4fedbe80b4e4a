//! Every refusal of the fence, over the file registry.

use std::sync::Arc;

use lanekeeper_core::clock::ManualClock;
use lanekeeper_core::error::FenceReason;
use lanekeeper_core::fingerprint::FingerprintFields;
use lanekeeper_core::{Epoch, Generation, Hash32, LaneUid, LogId};
use lanekeeper_federation::{
    Expectation, Fence, FileRegistry, Holder, Mode, RecordSpec, Registry, RegistryError, Writer,
};

struct Stage {
    folder: tempfile::TempDir,
    registry: Arc<FileRegistry>,
    clock: ManualClock,
    fence: Fence,
}

fn uid(n: u128) -> LaneUid {
    LaneUid::from_uuid(uuid_of(n))
}

fn uuid_of(n: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(n)
}

fn spec(writer: LaneUid) -> RecordSpec {
    RecordSpec {
        collection: "team.acme".into(),
        writer: Writer { namespace: "team".into(), name: "acme".into(), uid: writer },
        mode: Mode::ReadWrite,
        log_id: LogId(Hash32::from_bytes([1; 32])),
        fingerprint: FingerprintFields::builtin().fingerprint(),
        epoch: Epoch(1),
        generation: Generation(1),
        readers: vec![],
    }
}

async fn stage() -> Stage {
    let folder = tempfile::tempdir().unwrap();
    let registry = Arc::new(FileRegistry::open(folder.path().join("records")).unwrap());
    registry.declare(spec(uid(7))).await.unwrap();
    registry
        .change_status(
            "team.acme",
            Box::new(|status| status.holder = Some(Holder { id: "me".into(), since_ms: 0, released: false })),
        )
        .await
        .unwrap();
    let clock = ManualClock::new(1_000_000);
    let fence = Fence::new(
        registry.clone(),
        Expectation {
            collection: "team.acme".into(),
            writer: uid(7),
            log_id: LogId(Hash32::from_bytes([1; 32])),
            fingerprint: FingerprintFields::builtin().fingerprint(),
            epoch: Epoch(1),
            holder: "me".into(),
        },
        Arc::new(clock.clone()),
    );
    Stage { folder, registry, clock, fence }
}

#[tokio::test]
async fn each_difference_refuses_with_its_own_reason_and_agreement_heals() {
    type Change = fn(&mut RecordSpec);
    let changes: [(Change, FenceReason); 5] = [
        (|s| s.writer.uid = uid(8), FenceReason::OtherWriter),
        (|s| s.mode = Mode::Sealed, FenceReason::NotWritable),
        (|s| s.log_id = LogId(Hash32::from_bytes([2; 32])), FenceReason::OtherLog),
        (
            |s| {
                let mut fields = FingerprintFields::builtin();
                fields.dimension = 1;
                s.fingerprint = fields.fingerprint();
            },
            FenceReason::OtherFingerprint,
        ),
        (|s| s.epoch = Epoch(2), FenceReason::OtherEpoch),
    ];
    let stage = stage().await;
    for (change, reason) in changes {
        stage.clock.advance(2_000);
        assert_eq!(stage.fence.confirm().await.unwrap().epoch(), Epoch(1));
        stage.registry.change_spec("team.acme", Box::new(change)).await.unwrap();
        stage.clock.advance(2_000);
        assert_eq!(stage.fence.confirm().await.unwrap_err().reason, reason);
        assert_eq!(stage.fence.refusal().unwrap().reason, reason);
        stage.registry.change_spec("team.acme", Box::new(|s| *s = spec(uid(7)))).await.unwrap();
    }
    for (id, released) in [("other", false), ("me", true)] {
        stage
            .registry
            .change_status(
                "team.acme",
                Box::new(move |s| s.holder = Some(Holder { id: id.into(), since_ms: 1, released })),
            )
            .await
            .unwrap();
        stage.clock.advance(2_000);
        assert_eq!(stage.fence.confirm().await.unwrap_err().reason, FenceReason::OtherHolder);
    }
}

#[tokio::test]
async fn missing_and_garbled_records_refuse_at_once() {
    let stage = stage().await;
    stage.fence.confirm().await.unwrap();
    let path = stage.folder.path().join("records/team.acme.json");
    std::fs::write(&path, b"{\"spec\": 1}").unwrap();
    stage.clock.advance(2_000);
    assert_eq!(stage.fence.confirm().await.unwrap_err().reason, FenceReason::RecordGarbled);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(stage.fence.confirm().await.unwrap_err().reason, FenceReason::RecordMissing);
}

#[tokio::test]
async fn an_unreadable_registry_is_tolerated_for_15_s_and_no_longer() {
    let stage = stage().await;
    let fenced = stage.fence.confirm().await.unwrap();
    std::fs::rename(stage.folder.path().join("records"), stage.folder.path().join("away")).unwrap();
    stage.clock.advance(14_000);
    assert_eq!(stage.fence.confirm().await.unwrap().confirmed_at_ms(), fenced.confirmed_at_ms());
    assert!(stage.fence.check_fresh(&fenced).is_ok());
    stage.clock.advance(1_000);
    assert_eq!(stage.fence.confirm().await.unwrap_err().reason, FenceReason::RegistryUnreadable);
    assert_eq!(stage.fence.check_fresh(&fenced).unwrap_err().reason, FenceReason::Unconfirmed);
    std::fs::rename(stage.folder.path().join("away"), stage.folder.path().join("records")).unwrap();
    assert!(stage.fence.confirm().await.is_ok());
}

#[tokio::test]
async fn a_clock_that_goes_backwards_confirms_nothing() {
    let stage = stage().await;
    let fenced = stage.fence.confirm().await.unwrap();
    stage.clock.advance(-60_000);
    assert!(stage.fence.check_fresh(&fenced).is_err());
}

#[tokio::test]
async fn o23_two_lanes_declare_one_collection_and_exactly_one_wins() {
    for _ in 0..100 {
        let folder = tempfile::tempdir().unwrap();
        let registry = Arc::new(FileRegistry::open(folder.path()).unwrap());
        let (one, two) = tokio::join!(registry.declare(spec(uid(1))), registry.declare(spec(uid(2))));
        let losers = [&one, &two]
            .into_iter()
            .filter(|outcome| matches!(outcome, Err(RegistryError::Taken { holder, .. }) if holder == "team/acme"))
            .count();
        assert_eq!(losers, 1, "{one:?} {two:?}");
    }
}
