//! The record in the API server: what is missing, garbled or unreadable; conflicts; who may write; taking over.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_core::clock::ManualClock;
use lanekeeper_core::error::FenceReason;
use lanekeeper_core::fingerprint::FingerprintFields;
use lanekeeper_core::{Epoch, Generation, Hash32, LaneUid, LogId, Seq};
use lanekeeper_federation::{
    Expectation, Fence, Holder, KubeRegistry, Mode, PublishedHead, RecordSpec, Registry, RegistryError, Writer,
    take_over,
};
use serde_json::json;

use super::api_server::{ApiServer, GROUP};

const NAME: &str = "team.bob";

fn path() -> String {
    format!("{GROUP}/namespaces/sys/federationrecords/{NAME}")
}

fn uid(n: u128) -> LaneUid {
    LaneUid::from_uuid(uuid::Uuid::from_u128(n))
}

fn spec(writer: u128) -> RecordSpec {
    RecordSpec {
        collection: NAME.into(),
        writer: Writer { namespace: "team".into(), name: "bob".into(), uid: uid(writer) },
        mode: Mode::ReadWrite,
        log_id: LogId(Hash32::from_bytes([1; 32])),
        fingerprint: FingerprintFields::builtin().fingerprint(),
        epoch: Epoch(1),
        generation: Generation(1),
        readers: vec![uid(5)],
    }
}

struct World {
    server: Arc<ApiServer>,
    operator: KubeRegistry,
}

impl World {
    async fn new() -> Self {
        let server = ApiServer::new();
        let operator = KubeRegistry::for_operator(server.client(), "sys");
        operator.declare(spec(1)).await.unwrap();
        Self { server, operator }
    }

    fn store(&self, pod: &str) -> KubeRegistry {
        KubeRegistry::for_store(self.server.client(), "sys", pod, uid(1))
    }
}

#[tokio::test]
async fn missing_garbled_and_unreadable_are_told_apart() {
    let world = World::new().await;
    let store = world.store("pod-1");
    assert_eq!(store.read(NAME).await.unwrap().spec, spec(1));
    let missing = store.read("team.other").await.unwrap_err();
    assert!(matches!(missing, RegistryError::Missing { .. }), "{missing:?}");
    for status in [403, 404, 429, 500, 503] {
        world.server.fail(Some(status));
        let error = store.read(NAME).await.unwrap_err();
        // A 404 that does not name the record says nothing about it.
        assert!(matches!(error, RegistryError::Unreadable { .. }), "{status}: {error:?}");
        assert!(!error.to_string().contains("SECRET-MESSAGE"), "{error}");
    }
    world.server.fail(None);
    let mut object = world.server.get(&path()).unwrap();
    object["spec"]["epoch"] = json!("one");
    world.server.put(&path(), object);
    assert!(matches!(store.read(NAME).await.unwrap_err(), RegistryError::Garbled { .. }));
}

#[tokio::test]
async fn a_change_is_applied_again_to_what_came_between() {
    let world = World::new().await;
    let store = world.store("pod-1");
    world.server.conflict(2);
    let record =
        store.change_status(NAME, Box::new(|status| status.filled_generation = Some(Generation(4)))).await.unwrap();
    // The other writer's field is kept.
    assert_eq!(record.status.filled_generation, Some(Generation(4)));
    assert_eq!(record.status.wanted_generation, Some(Generation(9)));
    assert_eq!(world.server.calls("PATCH"), 3);
    // What changes nothing is not written.
    store.change_status(NAME, Box::new(|status| status.filled_generation = Some(Generation(4)))).await.unwrap();
    assert_eq!(world.server.calls("PATCH"), 3);
    // What is taken out is out, and what a newer store reports stays.
    let mut object = world.server.get(&path()).unwrap();
    object["status"]["mood"] = json!("good");
    world.server.put(&path(), object);
    store.change_status(NAME, Box::new(|status| status.filled_generation = None)).await.unwrap();
    let object = world.server.get(&path()).unwrap();
    assert_eq!((object["status"].get("filledGeneration"), &object["status"]["mood"]), (None, &json!("good")));
    world.server.conflict(u32::MAX);
    let error = store.change_status(NAME, Box::new(|status| status.holder = None)).await;
    assert!(error.is_ok(), "nothing to change, nothing to write");
    let error = store.change_status(NAME, Box::new(|status| status.filled_generation = Some(Generation(1)))).await;
    assert!(matches!(error.unwrap_err(), RegistryError::Unreadable { .. }));
}

#[tokio::test]
async fn one_lane_declares_and_only_it_writes() {
    let world = World::new().await;
    assert_eq!(world.operator.declare(spec(1)).await.unwrap().spec, spec(1));
    let taken = world.operator.declare(spec(2)).await.unwrap_err();
    assert_eq!(taken, RegistryError::Taken { collection: NAME.into(), holder: "team/bob".into() });
    // A store of a lane that was replaced writes nothing into its successor's record.
    let store = world.store("pod-1");
    world.operator.change_spec(NAME, Box::new(|all| *all = RecordSpec { epoch: Epoch(2), ..spec(2) })).await.unwrap();
    let writes = world.server.calls("PATCH");
    let refused = take_over(&store, NAME, "pod-1", 0).await.unwrap_err();
    assert!(matches!(refused, RegistryError::Taken { .. }));
    assert_eq!(world.server.calls("PATCH"), writes);
    world.operator.remove(NAME).await.unwrap();
    world.operator.remove(NAME).await.unwrap();
    assert!(matches!(store.read(NAME).await.unwrap_err(), RegistryError::Missing { .. }));
}

#[tokio::test]
async fn who_takes_over_waits_unless_the_one_before_let_go() {
    let world = World::new().await;
    let (first, second) = (world.store("pod-1"), world.store("pod-2"));
    let (record, wait) = take_over(&first, NAME, "pod-1", 1_000).await.unwrap();
    assert_eq!(wait, Duration::ZERO);
    assert_eq!(record.status.holder, Some(Holder { id: "pod-1".into(), since_ms: 1_000, released: false }));
    let (_, wait) = take_over(&second, NAME, "pod-2", 2_000).await.unwrap();
    assert_eq!(wait, Duration::from_secs(15));
    // Its container is started again: what is left.
    let (_, wait) = take_over(&second, NAME, "pod-2", 7_000).await.unwrap();
    assert_eq!(wait, Duration::from_secs(10));
    let release = |status: &mut lanekeeper_federation::RecordStatus| {
        status.holder.as_mut().unwrap().released = true;
        status.head = Some(PublishedHead {
            log_id: LogId(Hash32::from_bytes([1; 32])),
            seq: Seq(3),
            hash: Hash32::from_bytes([2; 32]),
        });
    };
    second.change_status(NAME, Box::new(release)).await.unwrap();
    let (record, wait) = take_over(&first, NAME, "pod-1", 9_000).await.unwrap();
    assert_eq!((wait, record.status.head.unwrap().seq), (Duration::ZERO, Seq(3)));
}

#[tokio::test]
async fn the_fence_reads_the_record_only_to_confirm_and_nothing_while_it_is_held_back() {
    let world = World::new().await;
    let store = Arc::new(world.store("pod-1"));
    take_over(store.as_ref(), NAME, "pod-1", 0).await.unwrap();
    let clock = ManualClock::new(1_000_000);
    let expected = Expectation {
        collection: NAME.into(),
        writer: uid(1),
        log_id: LogId(Hash32::from_bytes([1; 32])),
        fingerprint: FingerprintFields::builtin().fingerprint(),
        epoch: Epoch(1),
        holder: "pod-1".into(),
    };
    let fence = Fence::new(store, expected, Arc::new(clock.clone()));
    let reads = || world.server.calls("GET");
    let before = reads();
    fence.hold_back(Duration::from_millis(300));
    assert_eq!(fence.confirm().await.unwrap_err().reason, FenceReason::Unconfirmed);
    assert_eq!(fence.refusal().unwrap().reason, FenceReason::Unconfirmed);
    assert_eq!(reads(), before, "nothing is asked while nothing may be written");
    super::stage::until("the wait is over", async || fence.held_back().is_none()).await;
    assert!(fence.refusal().is_none() && fence.confirm().await.is_ok());
    assert_eq!(reads(), before + 1);
    // Idle: nobody asks. Away: for 15 s what was confirmed counts.
    world.server.fail(Some(503));
    clock.advance(14_000);
    assert!(fence.confirm().await.is_ok());
    clock.advance(1_000);
    assert_eq!(fence.confirm().await.unwrap_err().reason, FenceReason::RegistryUnreadable);
    world.server.fail(None);
    assert!(fence.confirm().await.is_ok());
    // Another pod took over: at once, and for good.
    clock.advance(2_000);
    take_over(&world.store("pod-2"), NAME, "pod-2", 0).await.unwrap();
    assert_eq!(fence.confirm().await.unwrap_err().reason, FenceReason::OtherHolder);
}
