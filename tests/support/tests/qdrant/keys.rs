//! The lane's key: what it is refused for, how it is renewed, and that it is nowhere to be read.

use std::time::Duration;

use lanekeeper_lane_store::vectors::qdrant::QdrantStore;
use lanekeeper_lane_store::vectors::{VectorError, VectorFilter, VectorStore};
use lanekeeper_test_support::qdrant::{Collections, LaneGrant, mint, mint_for_lane};
use serde_json::json;
use uuid::Uuid;

use crate::stage::{ALIAS, API_KEY, DIMENSION, Stage, point};

async fn search(store: &QdrantStore) -> Result<usize, VectorError> {
    store.search(vec![1.0; DIMENSION], VectorFilter::default(), 100, 0).await.map(|found| found.len())
}

fn is_refused(error: &VectorError) -> bool {
    error.reason() == "vector_engine_refused" && error.is_transient()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_refused_is_taken_up_again_without_a_restart() {
    let stage = Stage::new().await;
    let store = stage.open().await;
    store.upsert(vec![point(1)]).await.unwrap();
    for bad in [
        "no-key-at-all".to_owned(),
        // Signed by somebody else.
        mint("another-key", &json!({"exp": 4_000_000_000_u64})),
        // Out of date.
        mint(API_KEY, &json!({"exp": 1_000_000_000_u64})),
        // Another lane's.
        mint_for_lane(
            API_KEY,
            &LaneGrant { alias: "team.eve", physical: &[], epoch: 1, lifetime: Duration::from_secs(60) },
        ),
    ] {
        stage.write_key(&bad);
        // The old one is still good until the file is looked at again, which a server that refuses it makes
        // happen at once. Here it is good, so a new engine is opened.
        let store = stage.open().await;
        let error = search(&store).await.unwrap_err();
        assert!(is_refused(&error), "{error}");
        assert!(is_refused(&store.upsert(vec![point(2)]).await.unwrap_err()));
        assert!(!format!("{error:?} {store:?}").contains(&bad), "no key is to be read");
        stage.grant(1);
        assert_eq!(search(&store).await.unwrap(), 1, "read again when it was refused");
    }
    assert_eq!(search(&store).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_api_key_is_followed_at_the_first_refusal() {
    let stage = Stage::new().await;
    let store = stage.open().await;
    store.upsert(vec![point(1)]).await.unwrap();
    stage.server.set_api_key(Some("the-next-key"));
    assert!(is_refused(&search(&store).await.unwrap_err()), "the Secret is gone or old");
    std::fs::remove_file(stage.key_file()).unwrap();
    assert!(is_refused(&search(&store).await.unwrap_err()), "and so it is while there is none");
    let physical = [stage.physical(1)];
    let grant = LaneGrant { alias: ALIAS, physical: &physical, epoch: 1, lifetime: Duration::from_secs(60) };
    stage.write_key(&mint_for_lane("the-next-key", &grant));
    assert_eq!(search(&store).await.unwrap(), 1);
    store.upsert(vec![point(2)]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moving_the_epoch_refuses_the_old_writer_at_once() {
    let stage = Stage::new().await;
    let old = stage.open().await;
    old.upsert(vec![point(1)]).await.unwrap();
    stage.collections.fence(ALIAS, 2).await.unwrap();
    assert!(is_refused(&old.upsert(vec![point(2)]).await.unwrap_err()));
    assert!(is_refused(&old.delete(vec![Uuid::from_u128(1)]).await.unwrap_err()));
    assert!(is_refused(&search(&old).await.unwrap_err()));
    // The new writer's key is for the new epoch; nothing of the old one's refused writes has landed.
    stage.grant(2);
    let new = stage.open().await;
    assert_eq!(new.all_ids().await.unwrap(), [Uuid::from_u128(1)]);
    // Without the fence's collection no lane's key is good.
    stage.collections.remove("lanekeeper-fence").await.unwrap();
    assert!(is_refused(&new.count().await.unwrap_err()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lanes_own_token_reaches_its_collections_and_nothing_else() {
    let stage = Stage::new().await;
    stage.collections.make("team.eve__4_abababab_g1", DIMENSION).await.unwrap();
    stage.collections.point_alias("team.eve", "team.eve__4_abababab_g1").await.unwrap();
    let token = std::fs::read_to_string(stage.key_file()).unwrap();
    let lane = Collections::new(&stage.server.url(), Some(&token)).unwrap();
    for refused in [
        lane.make("team.bob__4_abababab_g9", DIMENSION).await.err(),
        lane.remove(&stage.physical(1)).await.err(),
        lane.point_alias(ALIAS, "team.eve__4_abababab_g1").await.err(),
        lane.fence(ALIAS, 9).await.err(),
        // The alias of a collection that is granted by its physical name only: names are compared, not targets.
        {
            stage.collections.fence("team.other", 1).await.unwrap();
            let physical = [stage.physical(1)];
            let grant =
                LaneGrant { alias: "team.other", physical: &physical, epoch: 1, lifetime: Duration::from_secs(60) };
            stage.write_key(&mint_for_lane(API_KEY, &grant));
            let store = stage.open().await;
            store.count().await.expect("by its physical name");
            search(&store).await.err().map(Into::into)
        },
    ] {
        let refused: anyhow::Error = refused.expect("a lane's token lacks the right");
        assert!(format!("{refused:#}").contains("required") || is_refused_text(&refused), "{refused:#}");
    }
    // It sees its own names, not that there are others.
    let names = lane.names().await.unwrap();
    assert_eq!(names, [stage.physical(1)]);
}

fn is_refused_text(error: &anyhow::Error) -> bool {
    error.to_string().contains("refuses the lane's key")
}
