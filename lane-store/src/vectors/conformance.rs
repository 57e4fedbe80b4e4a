//! What every engine must do, whichever it is. One suite, run over each of them.
//!
//! A check gets a target of its own: an empty collection that can be opened, let go of and opened again.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;

use lanekeeper_core::EventId;
use uuid::Uuid;

use super::{Found, Payload, Point, VectorError, VectorFilter, VectorStore};

/// An empty collection of one engine.
pub trait Target: Sync {
    /// Opens it. What was opened before has been dropped.
    fn open(&self, dimension: usize) -> impl Future<Output = Arc<dyn VectorStore>> + Send;
}

/// Runs every check, each on a new target. Panics on the first that fails.
pub async fn conformance<T: Target>(make: impl Fn() -> T) {
    an_empty_collection_answers(&make()).await;
    nearest_come_first_and_scores_are_cosines(&make()).await;
    filters_apply_before_the_pool_is_cut(&make()).await;
    values_are_literal(&make()).await;
    times_are_half_open(&make()).await;
    pages_are_stable(&make()).await;
    writing_again_replaces(&make()).await;
    the_last_of_equal_ids_counts(&make()).await;
    payloads_are_replaced_and_missing_ids_passed_over(&make()).await;
    deleting_by_id_and_by_event(&make()).await;
    bad_vectors_write_nothing(&make()).await;
    flushed_points_survive(&make()).await;
    a_shadow_takes_over(&make()).await;
    a_shadow_survives(&make()).await;
    searches_run_beside_writes(&make()).await;
}

const DIMENSION: usize = 4;

fn event(number: u128) -> EventId {
    EventId::from_uuid(Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_0000 + number))
}

fn id(event: u128, n: u32) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("t0:{}:{n}", self::event(event)).as_bytes())
}

fn payload(event: u128, n: u32) -> Payload {
    Payload {
        event_id: self::event(event),
        n,
        projection_task: "t0".into(),
        task_version: 1,
        prompt_version: 0,
        embed_model: "conformance".into(),
        dim: 4,
        sessions: vec![format!("s{event}")],
        roles: vec!["assistant".into()],
        speakers: Vec::new(),
        at_ms: vec![i64::try_from(event).unwrap() * 1000],
    }
}

fn point(event: u128, n: u32, vector: [f32; DIMENSION]) -> Point {
    Point { id: id(event, n), vector: vector.to_vec(), payload: payload(event, n) }
}

/// Vectors on a quarter circle: the angle decides the order.
fn at_angle(degrees: f32) -> [f32; DIMENSION] {
    [degrees.to_radians().cos(), degrees.to_radians().sin(), 0.0, 0.0]
}

async fn search(store: &Arc<dyn VectorStore>, filter: VectorFilter) -> Vec<Uuid> {
    let found = store.search(at_angle(0.0).to_vec(), filter, 100, 0).await.unwrap();
    found.into_iter().map(|found| found.id).collect()
}

async fn an_empty_collection_answers<T: Target>(target: &T) {
    let store = target.open(DIMENSION).await;
    assert_eq!(store.dimension(), DIMENSION);
    assert!(search(&store, VectorFilter::default()).await.is_empty());
    assert_eq!(store.count().await.unwrap(), 0);
    assert!(store.all_ids().await.unwrap().is_empty());
    assert!(store.existing(vec![id(1, 0)]).await.unwrap().is_empty());
    assert!(store.vectors(vec![id(1, 0)]).await.unwrap().is_empty());
    assert!(store.vectors_of(vec![event(1)]).await.unwrap().is_empty());
    store.delete(vec![id(1, 0)]).await.unwrap();
    store.delete(Vec::new()).await.unwrap();
    store.delete_event(event(1)).await.unwrap();
    store.upsert(Vec::new()).await.unwrap();
    store.set_payload(Vec::new(), payload(1, 0)).await.unwrap();
    store.flush().await.unwrap();
}

async fn nearest_come_first_and_scores_are_cosines<T: Target>(target: &T) {
    let store = target.open(DIMENSION).await;
    let angles = [80.0, 10.0, 45.0, 170.0];
    // Lengths differ: only the direction counts.
    let points = (1_u128..).zip(angles).map(|(number, angle)| point(number, 0, at_angle(angle).map(|x| x * angle)));
    store.upsert(points.collect()).await.unwrap();
    let found = store.search(vec![7.0, 0.0, 0.0, 0.0], VectorFilter::default(), 10, 0).await.unwrap();
    let order: Vec<EventId> = found.iter().map(|found| found.event_id).collect();
    assert_eq!(order, [event(2), event(3), event(1), event(4)]);
    for (found, angle) in found.iter().zip([10.0_f32, 45.0, 80.0, 170.0]) {
        assert!((found.score - angle.to_radians().cos()).abs() < 1e-5, "{found:?}");
    }
    let one = store.vectors(vec![id(2, 0), id(9, 9)]).await.unwrap();
    assert_eq!(one.len(), 1);
    let (wanted, stored) = (at_angle(10.0), &one[&id(2, 0)]);
    assert!(wanted.iter().zip(stored).all(|(a, b)| (a - b).abs() < 1e-5), "stored as a direction: {stored:?}");
}

async fn filters_apply_before_the_pool_is_cut<T: Target>(target: &T) {
    let store = target.open(DIMENSION).await;
    let mut points: Vec<Point> = (1..=200).map(|number| point(number, 0, at_angle(1.0))).collect();
    let mut far = point(900, 0, at_angle(89.0));
    far.payload.sessions = vec!["wanted".into(), "other".into()];
    far.payload.roles = vec!["user".into(), "tool".into()];
    far.payload.speakers = vec!["hash-a".into()];
    points.push(far);
    store.upsert(points).await.unwrap();
    let filter = |sessions: &[&str], roles: &[&str], speakers: &[&str]| VectorFilter {
        sessions: sessions.iter().map(|text| (*text).to_owned()).collect(),
        roles: roles.iter().map(|text| (*text).to_owned()).collect(),
        speakers: speakers.iter().map(|text| (*text).to_owned()).collect(),
        at_gte_ms: None,
        at_lt_ms: None,
    };
    for (filter, expected) in [
        (filter(&["wanted"], &[], &[]), 1),
        (filter(&["absent", "other"], &[], &[]), 1),
        (filter(&[], &["user"], &[]), 1),
        (filter(&[], &["tool", "system"], &["hash-b", "hash-a"]), 1),
        (filter(&["wanted"], &["assistant"], &[]), 0),
        (filter(&[], &[], &["hash"]), 0),
    ] {
        // One place only: the 200 that are nearer must not take it.
        let found = store.search(at_angle(0.0).to_vec(), filter.clone(), 1, 0).await.unwrap();
        assert_eq!(found.len(), expected, "{filter:?}");
        assert!(found.iter().all(|found| found.event_id == event(900)));
    }
}

async fn values_are_literal<T: Target>(target: &T) {
    let store = target.open(DIMENSION).await;
    let sessions =
        ["a_b", "axb", "a%", "a*b", "A_B", "会議 №1", "🎉", "", " a_b", "a\"b\\", "caf\u{e9}", "cafe\u{301}"];
    let mut points = Vec::new();
    for (number, session) in (1_u128..).zip(sessions) {
        let mut point = point(number, 0, at_angle(5.0));
        point.payload.sessions = vec![session.to_owned()];
        points.push(point);
    }
    store.upsert(points).await.unwrap();
    for (number, session) in (1_u128..).zip(sessions) {
        let filter = VectorFilter { sessions: vec![session.to_owned()], ..VectorFilter::default() };
        assert_eq!(search(&store, filter).await, [id(number, 0)], "{session:?}");
    }
}

async fn times_are_half_open<T: Target>(target: &T) {
    let store = target.open(DIMENSION).await;
    // Years 0, 1970, 2026 and 9999, and a content with two holders.
    let times =
        [vec![-62_135_596_800_000], vec![0], vec![1_796_083_200_000], vec![253_402_300_799_000], vec![10, 1000]];
    let mut points = Vec::new();
    for (number, at_ms) in (1_u128..).zip(times) {
        let mut point = point(number, 0, at_angle(f32::from(u8::try_from(number).unwrap())));
        point.payload.at_ms = at_ms;
        points.push(point);
    }
    store.upsert(points).await.unwrap();
    for (gte, lt, expected) in [
        (Some(0), Some(1), vec![2]),
        (Some(1), None, vec![3, 4, 5]),
        (None, Some(0), vec![1]),
        (Some(1_796_083_200_000), Some(1_796_083_200_001), vec![3]),
        (Some(1_796_083_200_001), Some(253_402_300_799_000), vec![]),
        (Some(1000), Some(1001), vec![5]),
        (Some(11), Some(1000), vec![]),
        (Some(5), Some(5), vec![]),
    ] {
        let filter = VectorFilter { at_gte_ms: gte, at_lt_ms: lt, ..VectorFilter::default() };
        let expected: Vec<Uuid> = expected.into_iter().map(|number| id(number, 0)).collect();
        assert_eq!(search(&store, filter).await, expected, "{gte:?} {lt:?}");
    }
}

async fn pages_are_stable<T: Target>(target: &T) {
    let store = target.open(DIMENSION).await;
    // Runs of equal scores: only the id orders them.
    let points: Vec<Point> =
        (1..=60).map(|number| point(number, 0, at_angle(if number % 3 == 0 { 10.0 } else { 20.0 }))).collect();
    store.upsert(points).await.unwrap();
    let page = |limit, offset| {
        let store = Arc::clone(&store);
        async move { store.search(at_angle(0.0).to_vec(), VectorFilter::default(), limit, offset).await.unwrap() }
    };
    let whole = page(100, 0).await;
    assert_eq!(whole.len(), 60);
    let ordered = |a: &Found, b: &Found| a.score > b.score || (a.score.total_cmp(&b.score).is_eq() && a.id < b.id);
    assert!(whole.windows(2).all(|pair| ordered(&pair[0], &pair[1])));
    for limit in [1, 7, 25] {
        let mut pages = Vec::new();
        for offset in (0..70).step_by(limit) {
            pages.extend(page(limit, offset).await);
        }
        assert_eq!(pages, whole, "pages of {limit}");
    }
    assert!(page(10, 1_000_000).await.is_empty() && page(0, 0).await.is_empty());
}

async fn writing_again_replaces<T: Target>(target: &T) {
    let store = target.open(DIMENSION).await;
    store.upsert(vec![point(1, 0, at_angle(5.0)), point(2, 0, at_angle(10.0))]).await.unwrap();
    let mut again = point(1, 0, at_angle(60.0));
    again.payload.sessions = vec!["new".into()];
    store.upsert(vec![again]).await.unwrap();
    assert_eq!(store.count().await.unwrap(), 2);
    assert_eq!(search(&store, VectorFilter::default()).await, [id(2, 0), id(1, 0)]);
    let of = |session: &str| VectorFilter { sessions: vec![session.to_owned()], ..VectorFilter::default() };
    assert!(search(&store, of("s1")).await.is_empty(), "the old payload is gone");
    assert_eq!(search(&store, of("new")).await, [id(1, 0)]);
}

async fn the_last_of_equal_ids_counts<T: Target>(target: &T) {
    let store = target.open(DIMENSION).await;
    let batch = vec![point(1, 0, at_angle(80.0)), point(2, 0, at_angle(40.0)), point(1, 0, at_angle(5.0))];
    store.upsert(batch).await.unwrap();
    assert_eq!(store.count().await.unwrap(), 2);
    assert_eq!(search(&store, VectorFilter::default()).await, [id(1, 0), id(2, 0)]);
    assert_eq!(store.existing(vec![id(1, 0), id(1, 0), id(7, 0)]).await.unwrap(), [id(1, 0)]);
}

async fn payloads_are_replaced_and_missing_ids_passed_over<T: Target>(target: &T) {
    let store = target.open(DIMENSION).await;
    store.upsert(vec![point(1, 0, at_angle(5.0)), point(2, 0, at_angle(10.0))]).await.unwrap();
    let mut both = payload(1, 0);
    both.sessions = vec!["s1".into(), "s7".into()];
    both.roles = Vec::new();
    store.set_payload(vec![id(9, 9), id(1, 0)], both).await.unwrap();
    store.set_payload(vec![id(9, 9)], payload(9, 9)).await.unwrap();
    let of = |session: &str| VectorFilter { sessions: vec![session.to_owned()], ..VectorFilter::default() };
    assert_eq!(search(&store, of("s7")).await, [id(1, 0)]);
    let assistant = VectorFilter { roles: vec!["assistant".into()], ..VectorFilter::default() };
    assert_eq!(search(&store, assistant).await, [id(2, 0)], "a list that is empty now matches nothing");
    assert_eq!(store.count().await.unwrap(), 2, "no point was made for a missing id");
}

async fn deleting_by_id_and_by_event<T: Target>(target: &T) {
    let store = target.open(DIMENSION).await;
    let mut points: Vec<Point> = (0..5).map(|n| point(1, n, at_angle(10.0))).collect();
    points.extend((0..3).map(|n| point(2, n, at_angle(20.0))));
    store.upsert(points).await.unwrap();
    assert_eq!(store.vectors_of(vec![event(1), event(3)]).await.unwrap()[&event(1)].len(), 5);
    store.delete(vec![id(1, 4), id(1, 4), id(8, 8)]).await.unwrap();
    assert_eq!(store.count().await.unwrap(), 7);
    store.delete_event(event(1)).await.unwrap();
    let left: HashSet<Uuid> = store.all_ids().await.unwrap().into_iter().collect();
    assert_eq!(left, (0..3).map(|n| id(2, n)).collect());
    assert!(store.vectors_of(vec![event(1)]).await.unwrap().is_empty());
    assert!(search(&store, VectorFilter::default()).await.iter().all(|id| left.contains(id)));
    store.upsert(vec![point(1, 0, at_angle(1.0))]).await.unwrap();
    assert_eq!(search(&store, VectorFilter::default()).await[0], id(1, 0), "an id may come back");
}

async fn bad_vectors_write_nothing<T: Target>(target: &T) {
    let store = target.open(DIMENSION).await;
    let mut long = point(2, 0, at_angle(10.0));
    long.vector.push(0.0);
    let refused = store.upsert(vec![point(1, 0, at_angle(5.0)), long]).await;
    assert_eq!(refused, Err(VectorError::Dimension { expected: 4, actual: 5 }));
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let refused = store.upsert(vec![point(1, 0, at_angle(5.0)), point(2, 0, [bad, 0.0, 0.0, 0.0])]).await;
        assert_eq!(refused, Err(VectorError::NotFinite));
        let question = store.search(vec![bad, 0.0, 0.0, 0.0], VectorFilter::default(), 5, 0).await;
        assert_eq!(question, Err(VectorError::NotFinite));
    }
    let short = store.search(vec![1.0], VectorFilter::default(), 5, 0).await;
    assert_eq!(short, Err(VectorError::Dimension { expected: 4, actual: 1 }));
    assert_eq!(store.count().await.unwrap(), 0, "nothing half done");
    store.upsert(vec![point(1, 0, at_angle(5.0))]).await.unwrap();
    assert_eq!(store.count().await.unwrap(), 1);
}

async fn flushed_points_survive<T: Target>(target: &T) {
    let store = target.open(DIMENSION).await;
    let generation = store.generation();
    store.upsert((1..=50).map(|number| point(number, 0, at_angle(30.0))).collect()).await.unwrap();
    store.delete_event(event(50)).await.unwrap();
    store.set_payload(vec![id(1, 0)], Payload { sessions: vec!["kept".into()], ..payload(1, 0) }).await.unwrap();
    store.flush().await.unwrap();
    drop(store);
    let store = target.open(DIMENSION).await;
    assert_eq!((store.count().await.unwrap(), store.generation()), (49, generation));
    let kept = VectorFilter { sessions: vec!["kept".into()], ..VectorFilter::default() };
    assert_eq!(search(&store, kept).await, [id(1, 0)]);
    // And it goes on taking writes: an engine that numbers operations must not take them for old ones.
    store.upsert(vec![point(1, 0, at_angle(2.0)), point(60, 0, at_angle(1.0))]).await.unwrap();
    assert_eq!(search(&store, VectorFilter::default()).await[..2], [id(60, 0), id(1, 0)]);
    assert_eq!(store.count().await.unwrap(), 50);
}

async fn a_shadow_takes_over<T: Target>(target: &T) {
    let store = target.open(DIMENSION).await;
    let first = store.generation();
    store.upsert(vec![point(1, 0, at_angle(5.0)), point(2, 0, at_angle(10.0))]).await.unwrap();
    assert!(!store.has_shadow());
    let next = store.begin_shadow().await.unwrap();
    assert!(next > first && store.has_shadow() && store.generation() == first);
    assert_eq!(store.begin_shadow().await.unwrap(), next, "begun once");
    assert_eq!((store.count().await.unwrap(), search(&store, VectorFilter::default()).await.len()), (0, 2));
    assert!(store.existing(vec![id(1, 0)]).await.unwrap().is_empty());
    assert_eq!(store.vectors(vec![id(1, 0)]).await.unwrap().len(), 1);
    // Both are written; a payload for a point that only one has is no error.
    store.upsert(vec![point(3, 0, at_angle(1.0))]).await.unwrap();
    store.set_payload(vec![id(1, 0), id(3, 0)], Payload { sessions: vec!["x".into()], ..payload(3, 0) }).await.unwrap();
    store.delete(vec![id(2, 0)]).await.unwrap();
    assert_eq!(search(&store, VectorFilter::default()).await, [id(3, 0), id(1, 0)]);
    assert_eq!(store.all_ids().await.unwrap(), [id(3, 0)]);
    assert_eq!(store.swap_shadow().await.unwrap(), next);
    assert!(!store.has_shadow() && store.generation() == next);
    assert_eq!(search(&store, VectorFilter::default()).await, [id(3, 0)]);
    assert!(store.swap_shadow().await.is_err(), "there is none to swap in");
    drop(store);
    let store = target.open(DIMENSION).await;
    assert_eq!((store.generation(), store.count().await.unwrap()), (next, 1));
}

async fn a_shadow_survives<T: Target>(target: &T) {
    let store = target.open(DIMENSION).await;
    store.upsert(vec![point(1, 0, at_angle(5.0))]).await.unwrap();
    let next = store.begin_shadow().await.unwrap();
    store.upsert(vec![point(2, 0, at_angle(10.0))]).await.unwrap();
    store.flush().await.unwrap();
    drop(store);
    let store = target.open(DIMENSION).await;
    assert!(store.has_shadow() && store.generation() < next);
    assert_eq!(store.begin_shadow().await.unwrap(), next);
    assert_eq!(store.all_ids().await.unwrap(), [id(2, 0)]);
    assert_eq!(search(&store, VectorFilter::default()).await.len(), 2);
    assert_eq!(store.swap_shadow().await.unwrap(), next);
    assert_eq!(store.count().await.unwrap(), 1);
}

async fn searches_run_beside_writes<T: Target>(target: &T) {
    let store = target.open(DIMENSION).await;
    store.upsert((1..=100).map(|number| point(number, 0, at_angle(30.0))).collect()).await.unwrap();
    let mut tasks = Vec::new();
    for worker in 0..4_u128 {
        let (writing, searching) = (Arc::clone(&store), Arc::clone(&store));
        tasks.push(tokio::spawn(async move {
            for round in 0..6 {
                let number = 1000 + worker * 100 + round;
                writing.upsert(vec![point(number, 0, at_angle(60.0))]).await.unwrap();
                writing.flush().await.unwrap();
                writing.delete(vec![id(number, 0)]).await.unwrap();
            }
        }));
        tasks.push(tokio::spawn(async move {
            for _ in 0..50 {
                // The hundred that nobody touches are always first, whatever is written meanwhile.
                let found = searching.search(at_angle(0.0).to_vec(), VectorFilter::default(), 100, 0).await.unwrap();
                assert!(found.len() == 100 && found.iter().all(|found| found.score > 0.8), "{}", found.len());
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    store.flush().await.unwrap();
    assert_eq!(store.count().await.unwrap(), 100);
}
