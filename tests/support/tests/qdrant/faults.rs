//! A server that is gone, slow, or talks nonsense. After each the engine works again without being opened
//! again, and nothing that was acknowledged is lost.

use std::time::{Duration, Instant};

use lanekeeper_core::EventId;
use lanekeeper_lane_store::vectors::qdrant::{QdrantLimits, QdrantSettings, QdrantStore};
use lanekeeper_lane_store::vectors::{VectorError, VectorFilter, VectorStore};
use lanekeeper_test_support::qdrant::Garble;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Code;
use uuid::Uuid;

use crate::stage::{DIMENSION, Stage, point};

async fn search(store: &QdrantStore) -> Result<usize, VectorError> {
    store.search(vec![1.0; DIMENSION], VectorFilter::default(), 100, 0).await.map(|found| found.len())
}

fn quick(settings: QdrantSettings) -> QdrantSettings {
    let limit = Duration::from_millis(400);
    QdrantSettings { limits: QdrantLimits { read: limit, write: limit, operator: limit }, ..settings }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_went_away_is_found_again_at_the_first_call() {
    let mut stage = Stage::new().await;
    let store = stage.open().await;
    store.upsert(vec![point(1)]).await.unwrap();
    stage.server.kill();
    for _ in 0..2 {
        let gone = search(&store).await.unwrap_err();
        assert_eq!(gone.reason(), "vector_engine_unavailable", "{gone}");
        assert!(store.upsert(vec![point(2)]).await.unwrap_err().is_transient());
    }
    stage.server.restart().unwrap();
    assert_eq!(search(&store).await.unwrap(), 1, "what was acknowledged is there, what was refused is not");
    store.upsert(vec![point(2)]).await.unwrap();
    // And when the server was exchanged between two calls, the second one does not fail for it.
    stage.server.kill();
    stage.server.restart().unwrap();
    assert_eq!(search(&store).await.unwrap(), 2);
    assert_eq!(store.count().await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_outlives_its_deadline() {
    let stage = Stage::new().await;
    let store = QdrantStore::connect(quick(stage.settings())).await.unwrap();
    store.upsert(vec![point(1)]).await.unwrap();
    stage.server.faults().slow(Duration::from_secs(30));
    let started = Instant::now();
    let (found, written, counted) = tokio::join!(search(&store), store.upsert(vec![point(2)]), store.count());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    for late in [found.unwrap_err(), written.unwrap_err(), counted.unwrap_err()] {
        assert_eq!(late.reason(), "vector_engine_unavailable", "{late}");
    }
    stage.server.faults().slow(Duration::ZERO);
    assert_eq!(search(&store).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_takes_connections_and_never_answers_is_given_up() {
    let stage = Stage::new().await;
    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", deaf.local_addr().unwrap());
    let store = QdrantStore::connect(quick(QdrantSettings { url, ..stage.settings() })).await.unwrap();
    let started = Instant::now();
    assert!(search(&store).await.unwrap_err().is_transient());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_answers_something_else_is_an_error() {
    let stage = Stage::new().await;
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", other.local_addr().unwrap());
    let answering = tokio::spawn(async move {
        while let Ok((mut socket, _)) = other.accept().await {
            let mut ignored = [0; 64];
            let _read = socket.read(&mut ignored).await;
            let _sent = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\xff\xfe\0\x01").await;
        }
    });
    let store = QdrantStore::connect(quick(QdrantSettings { url, ..stage.settings() })).await.unwrap();
    for _ in 0..3 {
        let error = search(&store).await.unwrap_err();
        assert_eq!(error.reason(), "vector_engine_unavailable", "{error}");
    }
    answering.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_is_an_error_and_never_a_value() {
    let stage = Stage::new().await;
    let store = stage.open().await;
    store.upsert((1..=5).map(point).collect()).await.unwrap();
    let event = EventId::from_uuid(Uuid::from_u128(1));
    let faults = stage.server.faults();
    faults.garble(Some(Garble::NotFinite));
    assert!(search(&store).await.unwrap_err().to_string().contains("not finite"));
    assert!(store.vectors(vec![Uuid::from_u128(1)]).await.unwrap_err().is_transient());
    assert!(store.vectors_of(vec![event]).await.unwrap_err().is_transient());
    faults.garble(Some(Garble::Short));
    assert!(store.vectors(vec![Uuid::from_u128(1)]).await.unwrap_err().is_transient());
    faults.garble(Some(Garble::NoResult));
    assert!(store.count().await.unwrap_err().is_transient());
    assert!(store.upsert(vec![point(6)]).await.unwrap_err().is_transient());
    faults.garble(Some(Garble::Endless));
    assert!(store.all_ids().await.unwrap_err().to_string().contains("do not go on"));
    faults.garble(Some(Garble::NotApplied));
    assert!(store.delete(vec![Uuid::from_u128(6)]).await.unwrap_err().to_string().contains("not applied"));
    faults.garble(None);
    assert_eq!(store.count().await.unwrap(), 5);
    assert_eq!(search(&store).await.unwrap(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_of_the_server_are_told_apart() {
    let stage = Stage::new().await;
    let store = stage.open().await;
    for (code, transient, reason) in [
        (Code::Internal, true, "vector_engine_unavailable"),
        (Code::ResourceExhausted, true, "vector_engine_unavailable"),
        (Code::FailedPrecondition, true, "vector_engine_unavailable"),
        (Code::NotFound, true, "collection_missing"),
        (Code::InvalidArgument, false, "vector_engine_failed"),
    ] {
        stage.server.faults().fail(Some(code));
        let error = search(&store).await.unwrap_err();
        assert_eq!((error.is_transient(), error.reason()), (transient, reason), "{code:?}: {error}");
        let error = store.upsert(vec![point(1)]).await.unwrap_err();
        assert_eq!((error.is_transient(), error.reason()), (transient, reason), "{code:?}: {error}");
    }
    stage.server.faults().fail(None);
    store.upsert(vec![point(1)]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_that_is_gone_is_missing_and_not_made_by_the_store() {
    let mut stage = Stage::new().await;
    let store = stage.open().await;
    store.upsert(vec![point(1)]).await.unwrap();
    stage.keeper.take();
    stage.collections.remove(&stage.physical(1)).await.unwrap();
    for error in [
        search(&store).await.unwrap_err(),
        store.upsert(vec![point(2)]).await.unwrap_err(),
        store.all_ids().await.unwrap_err(),
        store.vectors(vec![Uuid::from_u128(1)]).await.unwrap_err(),
    ] {
        assert_eq!((error.reason(), error.is_transient()), ("collection_missing", true), "{error}");
    }
    assert_eq!(stage.collections.names().await.unwrap(), ["lanekeeper-fence"]);
    // Made again by whoever may: the store goes on, and healing sees that it is empty.
    stage.collections.make(&stage.physical(1), DIMENSION).await.unwrap();
    stage.collections.point_alias(crate::stage::ALIAS, &stage.physical(1)).await.unwrap();
    assert!(store.all_ids().await.unwrap().is_empty());
    store.upsert(vec![point(1)]).await.unwrap();
    assert_eq!(search(&store).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_of_another_dimension_is_for_a_person() {
    let mut stage = Stage::new().await;
    let store = stage.open().await;
    stage.keeper.take();
    stage.collections.remove(&stage.physical(1)).await.unwrap();
    stage.collections.make(&stage.physical(1), 7).await.unwrap();
    stage.collections.point_alias(crate::stage::ALIAS, &stage.physical(1)).await.unwrap();
    let written = store.upsert(vec![point(1)]).await.unwrap_err();
    assert!(!written.is_transient() && written.to_string().contains("another dimension"), "{written}");
    let asked = search(&store).await.unwrap_err();
    assert!(!asked.is_transient() && asked.to_string().contains("another dimension"), "{asked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_go_to_the_physical_collection_and_searches_through_the_alias() {
    let stage = Stage::new().await;
    let store = stage.open().await;
    store.begin_shadow().await.unwrap();
    stage.server.faults().take_seen();
    store.upsert(vec![point(1)]).await.unwrap();
    search(&store).await.unwrap();
    let seen = stage.server.faults().take_seen();
    // The keeper still makes its indexes.
    let seen = seen.iter().filter(|seen| seen.method != "create_field_index");
    let asked: Vec<(&str, &str)> = seen.map(|seen| (seen.method, seen.collection.as_str())).collect();
    let (first, second) = (stage.physical(1), stage.physical(2));
    assert_eq!(asked, [("upsert", first.as_str()), ("upsert", second.as_str()), ("query", crate::stage::ALIAS)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_that_another_run_began_is_seen_by_the_next_write() {
    let stage = Stage::new().await;
    let store = stage.open().await;
    store.upsert(vec![point(1)]).await.unwrap();
    // The same lane rebuilt elsewhere (a copy of the store that has lost its fence since).
    let other = stage.open().await;
    other.begin_shadow().await.unwrap();
    other.upsert(vec![point(1), point(2)]).await.unwrap();
    other.swap_shadow().await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while stage.collections.names().await.unwrap().contains(&stage.physical(1)) {
        assert!(Instant::now() < deadline, "the old collection is dropped");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    store.upsert(vec![point(3)]).await.unwrap();
    assert_eq!((store.generation().0, store.has_shadow(), store.count().await.unwrap()), (2, false, 3));
}
