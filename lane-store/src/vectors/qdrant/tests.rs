//! What needs no server: conversions, refusals of nonsense, and the agreement with the record. The
//! conformance suite over a real socket is in `tests/support/tests/qdrant`.

use std::collections::HashMap;
use std::path::Path;

use lanekeeper_core::{Epoch, EventId, Generation, Hash32, LaneUid, LogId};
use lanekeeper_federation::{FileRegistry, Mode, RecordSpec, RecordStatus, Writer};
use qdrant_client::qdrant as wire;
use uuid::Uuid;

use super::super::fields::EVENT_ID;
use super::super::{VectorFilter, VectorStore};
use super::*;

const ALIAS: &str = "team.bob";

fn fingerprint(digit: char) -> Fingerprint {
    digit.to_string().repeat(64).parse().unwrap()
}

async fn declared(dir: &Path, generation: u64) -> Arc<dyn Registry> {
    let registry = FileRegistry::open(dir).unwrap();
    registry
        .declare(RecordSpec {
            collection: ALIAS.into(),
            writer: Writer {
                namespace: "team".into(),
                name: "bob".into(),
                uid: LaneUid::from_uuid(Uuid::from_u128(1)),
            },
            mode: Mode::ReadWrite,
            log_id: LogId(Hash32::from_bytes([1; 32])),
            fingerprint: fingerprint('a'),
            epoch: Epoch(1),
            generation: Generation(generation),
            readers: Vec::new(),
        })
        .await
        .unwrap();
    Arc::new(registry)
}

fn settings(registry: Arc<dyn Registry>) -> QdrantSettings {
    QdrantSettings {
        // Port 9 of this machine: nobody answers.
        url: "http://127.0.0.1:9".into(),
        credential_file: None,
        ca_file: None,
        alias: ALIAS.into(),
        fingerprint: fingerprint('a'),
        dimension: 4,
        registry,
        limits: QdrantLimits {
            read: Duration::from_millis(500),
            write: Duration::from_millis(500),
            operator: Duration::from_millis(200),
        },
    }
}

#[tokio::test]
async fn addresses_that_can_never_work_are_refused_with_the_rule() {
    let dir = tempfile::tempdir().unwrap();
    let registry = declared(dir.path(), 1).await;
    for (url, ca_file, rule) in [
        ("qdrant:6334", None, "http://"),
        ("ftp://qdrant:6334", None, "http://"),
        ("http://a b", None, "must be a URL"),
        ("http://qdrant:6334", Some(dir.path().join("ca.crt")), "https://"),
        ("https://qdrant:6334", Some(dir.path().join("ca.crt")), "ca.crt"),
    ] {
        let refused =
            QdrantStore::connect(QdrantSettings { url: url.into(), ca_file, ..settings(Arc::clone(&registry)) })
                .await
                .unwrap_err();
        assert!(!refused.is_transient() && refused.to_string().contains(rule), "{url}: {refused}");
    }
}

#[tokio::test]
async fn without_a_server_it_opens_and_every_call_may_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let store = QdrantStore::connect(settings(declared(dir.path(), 3).await)).await.unwrap();
    assert_eq!((store.generation(), store.has_shadow(), store.dimension()), (Generation(3), false, 4));
    let event = EventId::from_uuid(Uuid::from_u128(9));
    let failures = [
        store.search(vec![1.0; 4], VectorFilter::default(), 5, 0).await.unwrap_err(),
        store.vectors(vec![Uuid::nil()]).await.unwrap_err(),
        store.vectors_of(vec![event]).await.unwrap_err(),
        store.existing(vec![Uuid::nil()]).await.unwrap_err(),
        store.all_ids().await.unwrap_err(),
        store.count().await.unwrap_err(),
        store.delete(vec![Uuid::nil()]).await.unwrap_err(),
        store.delete_event(event).await.unwrap_err(),
    ];
    for failure in failures {
        assert_eq!(failure.reason(), "vector_engine_unavailable", "{failure}");
    }
    // Nothing to ask: no server is needed.
    store.upsert(Vec::new()).await.unwrap();
    store.flush().await.unwrap();
    assert!(store.search(vec![1.0; 4], VectorFilter::default(), 0, 0).await.unwrap().is_empty());
}

#[tokio::test]
async fn without_a_record_or_with_another_fingerprint_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let empty: Arc<dyn Registry> = Arc::new(FileRegistry::open(dir.path()).unwrap());
    let store = QdrantStore::connect(settings(empty)).await.unwrap();
    assert_eq!(store.generation(), Generation(0));
    assert!(store.delete(vec![Uuid::nil()]).await.unwrap_err().to_string().contains("no record"));
    let other = QdrantSettings { fingerprint: fingerprint('b'), ..settings(declared(dir.path(), 1).await) };
    let store = QdrantStore::connect(other).await.unwrap();
    let refused = store.delete(vec![Uuid::nil()]).await.unwrap_err();
    assert!(refused.to_string().contains("another fingerprint") && refused.is_transient());
}

#[tokio::test]
async fn a_shadow_that_is_not_there_is_asked_for_once_and_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let registry = declared(dir.path(), 1).await;
    let store = QdrantStore::connect(settings(Arc::clone(&registry))).await.unwrap();
    for _ in 0..2 {
        assert!(store.begin_shadow().await.unwrap_err().is_transient());
        assert!(!store.has_shadow(), "nobody fills what is not there");
    }
    let status = registry.read(ALIAS).await.unwrap().status;
    assert_eq!(status, RecordStatus { wanted_generation: Some(Generation(2)), ..RecordStatus::default() });
    assert!(!store.swap_shadow().await.unwrap_err().is_transient(), "there is none");
}

#[tokio::test]
async fn a_shadow_of_an_earlier_run_is_not_offered_before_it_was_compared() {
    let dir = tempfile::tempdir().unwrap();
    let registry = declared(dir.path(), 1).await;
    registry.change_status(ALIAS, Box::new(|status| status.wanted_generation = Some(Generation(2)))).await.unwrap();
    let store = QdrantStore::connect(settings(Arc::clone(&registry))).await.unwrap();
    assert!(store.has_shadow());
    let refused = store.swap_shadow().await.unwrap_err();
    assert!(refused.is_transient() && refused.to_string().contains("not compared"), "{refused}");
    assert_eq!(registry.read(ALIAS).await.unwrap().status.filled_generation, None);
    // Once healing has seen its ids it is offered; the operator does not answer here.
    store.generations.compared();
    let waiting = store.swap_shadow().await.unwrap_err();
    assert!(waiting.is_transient() && waiting.to_string().contains("exchanged"), "{waiting}");
    assert_eq!(registry.read(ALIAS).await.unwrap().status.filled_generation, Some(Generation(2)));
    // The exchange that came too late is seen with the next look.
    registry.change_spec(ALIAS, Box::new(|spec| spec.generation = Generation(2))).await.unwrap();
    assert_eq!(store.swap_shadow().await.unwrap(), Generation(2));
    assert!(!store.has_shadow() && store.generation() == Generation(2));
}

#[test]
fn an_answer_is_not_taken_on_trust() {
    let scored = |score| wire::ScoredPoint {
        id: Some(convert::id(Uuid::from_u128(1))),
        score,
        payload: HashMap::from([(EVENT_ID.to_owned(), Uuid::from_u128(2).to_string().into())]),
        ..wire::ScoredPoint::default()
    };
    assert_eq!(convert::read_found(scored(0.5)).unwrap().unwrap().id, Uuid::from_u128(1));
    assert!(convert::read_found(scored(f32::NAN)).is_err());
    assert!(convert::read_found(wire::ScoredPoint { id: None, ..scored(0.5) }).is_err());
    assert!(convert::read_found(wire::ScoredPoint { id: Some("x".into()), ..scored(0.5) }).is_err());
    // Somebody else's points are passed over.
    assert!(convert::read_found(wire::ScoredPoint { id: Some(7_u64.into()), ..scored(0.5) }).unwrap().is_none());
    assert!(convert::read_found(wire::ScoredPoint { payload: HashMap::new(), ..scored(0.5) }).unwrap().is_none());
    let vector = |data: Vec<f32>| {
        Some(wire::VectorsOutput {
            vectors_options: Some(wire::vectors_output::VectorsOptions::Vector(wire::VectorOutput {
                vector: Some(wire::vector_output::Vector::Dense(wire::DenseVector { data })),
                ..wire::VectorOutput::default()
            })),
        })
    };
    assert_eq!(convert::read_vector(vector(vec![1.0, 0.0]), 2).unwrap(), [1.0, 0.0]);
    assert!(convert::read_vector(vector(vec![1.0, f32::INFINITY]), 2).is_err());
    assert!(convert::read_vector(vector(vec![1.0]), 2).is_err() && convert::read_vector(None, 2).is_err());
    let written = |status: Option<wire::UpdateStatus>| wire::PointsOperationResponse {
        result: status.map(|status| wire::UpdateResult { operation_id: None, status: status.into() }),
        ..wire::PointsOperationResponse::default()
    };
    assert!(convert::applied(written(Some(wire::UpdateStatus::Completed))).is_ok());
    for pending in [Some(wire::UpdateStatus::Acknowledged), Some(wire::UpdateStatus::WaitTimeout), None] {
        assert!(convert::applied(written(pending)).unwrap_err().is_transient(), "{pending:?}");
    }
}

#[test]
fn nothing_is_filtered_by_an_empty_filter_and_bounds_are_half_open() {
    assert_eq!(convert::filter(&VectorFilter::default()), None);
    let filter =
        VectorFilter { sessions: vec!["s".into()], at_gte_ms: Some(1), at_lt_ms: Some(2), ..VectorFilter::default() };
    let must = convert::filter(&filter).unwrap().must;
    assert_eq!(must.len(), 2);
    let Some(wire::condition::ConditionOneOf::Field(times)) = &must[1].condition_one_of else { panic!("{must:?}") };
    assert_eq!(times.range, Some(wire::Range { gte: Some(1.0), lt: Some(2.0), gt: None, lte: None }));
}
