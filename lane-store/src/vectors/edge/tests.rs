//! Tests of the in-process engine beyond the conformance suite.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::super::conformance::{Target, conformance};
use super::folder::Folder;
use super::*;
use crate::testing::SmallVolume;

struct Edge(tempfile::TempDir);

impl Target for Edge {
    async fn open(&self, dimension: usize) -> Arc<dyn VectorStore> {
        open(self.0.path(), dimension).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_in_process_engine_conforms() {
    conformance(|| Edge(tempfile::tempdir().unwrap())).await;
}

fn payload(event: u128) -> Payload {
    Payload {
        event_id: EventId::from_uuid(Uuid::from_u128(event)),
        n: 0,
        projection_task: "t0".into(),
        task_version: 1,
        prompt_version: 0,
        embed_model: "m".into(),
        dim: 8,
        sessions: vec![format!("s{}", event % 7)],
        roles: vec!["assistant".into()],
        speakers: Vec::new(),
        at_ms: vec![i64::try_from(event).unwrap()],
    }
}

fn point(event: u128, dimension: usize) -> Point {
    #[expect(clippy::cast_precision_loss, reason = "any direction will do")]
    let vector = (0..dimension).map(|place| ((event as usize * 31 + place * 17) % 97) as f32 - 40.0).collect();
    Point { id: Uuid::from_u128(event), vector, payload: payload(event) }
}

async fn filled(dir: &Path, points: u128) -> EdgeStore {
    let store = open_store(dir, 8).await.unwrap();
    store.upsert((1..=points).map(|number| point(number, 8)).collect()).await.unwrap();
    store.flush().await.unwrap();
    store
}

fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        }
        all.push(path);
    }
    all
}

#[tokio::test]
async fn a_missing_folder_and_an_emptied_one_are_made() {
    let dir = tempfile::tempdir().unwrap();
    let vectors = dir.path().join("deep/vectors");
    drop(filled(&vectors, 3).await);
    fs::remove_dir_all(&vectors).unwrap();
    assert_eq!(open_store(&vectors, 8).await.unwrap().count().await.unwrap(), 0);
    fs::remove_dir_all(vectors.join("g1")).unwrap();
    let store = open_store(&vectors, 8).await.unwrap();
    store.upsert(vec![point(1, 8)]).await.unwrap();
    assert_eq!(store.count().await.unwrap(), 1);
}

#[tokio::test]
async fn damage_is_moved_aside_and_made_again() {
    for damage in ["wal", "segments"] {
        let dir = tempfile::tempdir().unwrap();
        drop(filled(dir.path(), 50).await);
        let victims = files(&dir.path().join("g1").join(damage));
        let mut hurt = 0;
        for victim in victims.into_iter().filter(|path| path.is_file()) {
            // Every file of the part: whichever the engine reads first is bad.
            fs::write(&victim, b"garbage").unwrap();
            hurt += 1;
        }
        assert!(hurt > 0);
        let store = open_store(dir.path(), 8).await.unwrap();
        assert_eq!(store.count().await.unwrap(), 0, "{damage}");
        store.upsert(vec![point(1, 8)]).await.unwrap();
        store.flush().await.unwrap();
        assert!(dir.path().join("damaged-g1").exists());
        drop(store);
        let store = open_store(dir.path(), 8).await.unwrap();
        assert_eq!(store.count().await.unwrap(), 1);
        assert!(!dir.path().join("damaged-g1").exists(), "kept for one run only");
    }
}

#[tokio::test]
async fn vectors_of_another_dimension_are_made_again() {
    let dir = tempfile::tempdir().unwrap();
    drop(filled(dir.path(), 5).await);
    let store = open_store(dir.path(), 16).await.unwrap();
    assert_eq!(store.count().await.unwrap(), 0);
    store.upsert(vec![point(1, 16)]).await.unwrap();
}

#[tokio::test]
async fn a_second_process_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _held = filled(dir.path(), 1).await;
    let refused = open_store(dir.path(), 8).await.unwrap_err();
    assert!(refused.is_transient(), "{refused}");
}

#[tokio::test]
async fn a_crash_loses_at_most_what_was_not_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let store = filled(dir.path(), 20).await;
    store.upsert((21..=40).map(|number| point(number, 8)).collect()).await.unwrap();
    store.delete((1..=5).map(Uuid::from_u128).collect()).await.unwrap();
    // The files as a killed process leaves them: no flush, no Drop.
    for path in files(dir.path()) {
        let to = copy.path().join(path.strip_prefix(dir.path()).unwrap());
        if path.is_dir() {
            fs::create_dir_all(to).unwrap();
        } else {
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(path, to).unwrap();
        }
    }
    let after = open_store(copy.path(), 8).await.unwrap();
    let ids: HashSet<Uuid> = after.all_ids().await.unwrap().into_iter().collect();
    assert!((6..=20).all(|number| ids.contains(&Uuid::from_u128(number))), "{}", ids.len());
    // Doing all of it again gives the same points, whatever had reached the disk.
    after.upsert((21..=40).map(|number| point(number, 8)).collect()).await.unwrap();
    after.delete((1..=5).map(Uuid::from_u128).collect()).await.unwrap();
    after.flush().await.unwrap();
    assert_eq!(after.count().await.unwrap(), 35);
    let vector = after.vectors(vec![Uuid::from_u128(40)]).await.unwrap();
    assert_eq!(vector.len(), 1);
    let found = after.search(point(30, 8).vector, VectorFilter::default(), 1, 0).await.unwrap();
    assert!((found[0].score - 1.0).abs() < 1e-5);
}

#[tokio::test]
async fn a_swap_that_was_cut_short_is_finished_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path(), 3).await;
    store.begin_shadow().await.unwrap();
    store.upsert(vec![point(9, 8)]).await.unwrap();
    store.flush().await.unwrap();
    drop(store);
    // The pointer was renamed, the old folder not yet removed.
    Folder::open(dir.path()).unwrap().point_to(Generation(2)).unwrap();
    let store = open_store(dir.path(), 8).await.unwrap();
    assert_eq!((store.generation(), store.has_shadow()), (Generation(2), false));
    assert_eq!(store.all_ids().await.unwrap(), [Uuid::from_u128(9)]);
    assert!(!dir.path().join("g1").exists());
}

#[tokio::test]
async fn a_panic_in_the_engine_is_an_error_and_the_next_call_works() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path(), 10).await;
    let failed =
        store.blocking(|engine| engine.ask(|shards| &shards.searched, |_| -> Result<(), _> { panic!("engine") }));
    assert!(failed.await.unwrap_err().is_transient());
    assert_eq!(store.count().await.unwrap(), 10);
    // One inside a write: what was written before it and not flushed must not be called durable.
    store.upsert(vec![point(11, 8)]).await.unwrap();
    let failed = store.blocking(|engine| engine.write(0, |_| panic!("engine"))).await.unwrap_err();
    assert!(failed.is_transient());
    assert!(store.flush().await.unwrap_err().is_transient(), "point 11 may be lost");
    store.upsert(vec![point(11, 8)]).await.unwrap();
    store.flush().await.unwrap();
    assert_eq!(store.count().await.unwrap(), 11);
}

#[tokio::test]
async fn the_engines_log_does_not_outgrow_the_vectors() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(dir.path(), 384).await.unwrap();
    let log = || fs::read_dir(dir.path().join("g1/wal")).unwrap().count();
    for round in 0..45 {
        // About as much as one segment of the log.
        store.upsert((1..=500).map(|number| point(number + round, 384)).collect()).await.unwrap();
        if round % 4 == 3 {
            store.flush().await.unwrap();
            assert!(log() < 40, "{}", log());
        }
    }
    store.flush().await.unwrap();
    assert_eq!(store.count().await.unwrap(), 544);
    drop(store);
    let store = open_store(dir.path(), 384).await.unwrap();
    assert!(log() <= 3, "{}", log());
    // Operations go on with their numbers: a replacement is not taken for an old write.
    let mut moved = point(1, 384);
    moved.vector.reverse();
    store.upsert(vec![moved.clone()]).await.unwrap();
    let found = store.search(moved.vector, VectorFilter::default(), 1, 0).await.unwrap();
    assert_eq!(found[0].id, Uuid::from_u128(1));
    assert!((found[0].score - 1.0).abs() < 1e-5);
}

#[tokio::test]
async fn files_are_private() {
    let dir = tempfile::tempdir().unwrap();
    let vectors = dir.path().join("v");
    let store = filled(&vectors, 30).await;
    for path in files(&vectors).into_iter().chain([vectors.clone()]) {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
    drop(store);
}

#[tokio::test]
async fn without_a_pointer_the_newest_is_searched() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path(), 3).await;
    store.begin_shadow().await.unwrap();
    store.swap_shadow().await.unwrap();
    drop(store);
    fs::remove_file(dir.path().join("current")).unwrap();
    assert_eq!(open_store(dir.path(), 8).await.unwrap().generation(), Generation(2));
    assert_eq!(fs::read_to_string(dir.path().join("current")).unwrap(), "2\n");
}

#[tokio::test]
#[expect(clippy::print_stderr, reason = "a skip is visible")]
async fn a_full_volume_refuses_writes_and_keeps_the_process() {
    let Some(volume) = SmallVolume::mount("64m") else {
        eprintln!("SKIPPED a_full_volume_refuses_writes_and_keeps_the_process: may not mount a tmpfs");
        return;
    };
    let dir = volume.path().join("vectors");
    let store = filled(&dir, 20).await;
    let ballast = volume.fill();
    // Enough to touch pages that are not there yet: without the guard this ends the process by a signal.
    let many: Vec<Point> = (100..5000).map(|number| point(number, 8)).collect();
    assert!(store.upsert(many.clone()).await.unwrap_err().is_transient());
    assert_eq!(store.search(point(3, 8).vector, VectorFilter::default(), 5, 0).await.unwrap().len(), 5);
    drop(store);
    // Opening works too, answers when there is room again, and takes nothing for damage.
    let store = open_store(&dir, 8).await.unwrap();
    assert!(store.count().await.unwrap_err().is_transient());
    fs::remove_file(ballast).unwrap();
    assert_eq!(store.count().await.unwrap(), 20);
    store.upsert(many).await.unwrap();
    store.flush().await.unwrap();
    assert_eq!(store.count().await.unwrap(), 4920);
    drop(store);
}

/// Any direction, another for each number: equal ones would make every page a question of ties.
fn random_point(number: u128) -> Point {
    use sha2::{Digest, Sha256};
    let mut vector = Vec::new();
    for block in 0..48_u8 {
        let hash = Sha256::digest([&number.to_be_bytes()[..], &[block]].concat());
        vector.extend(hash.iter().take(8).map(|byte| f32::from(*byte) - 127.5));
    }
    Point { id: Uuid::from_u128(number), vector, payload: Payload { dim: 384, ..payload(number) } }
}

/// Prints what a store costs; run by hand: `cargo test -p lanekeeper-lane-store footprint -- --ignored --nocapture`.
/// It fills 20,032 points, then runs itself again on them, so that nothing of the filling counts.
#[tokio::test]
#[ignore = "a measurement"]
#[expect(clippy::print_stderr, reason = "a measurement")]
async fn footprint() {
    let resident = || {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        status.lines().filter(|line| line.starts_with("Rss") || line.starts_with("VmRSS")).collect::<Vec<_>>().join(" ")
    };
    let filled = std::env::var_os("LANEKEEPER_FOOTPRINT");
    let Some(dir) = filled else {
        let dir = tempfile::tempdir().unwrap();
        let store = open_store(dir.path(), 384).await.unwrap();
        let points: Vec<Point> = (1..=20_032).map(random_point).collect();
        let started = Instant::now();
        for batch in points.chunks(64) {
            store.upsert(batch.to_vec()).await.unwrap();
        }
        eprintln!("20,032 points in {:?}", started.elapsed());
        let started = Instant::now();
        store.flush().await.unwrap();
        eprintln!("flush {:?}", started.elapsed());
        let started = Instant::now();
        for number in 1..=10 {
            store.upsert(vec![random_point(number)]).await.unwrap();
            store.flush().await.unwrap();
        }
        eprintln!("flush of one point {:?}", started.elapsed() / 10);
        drop(store);
        let out = std::process::Command::new("du").arg("-sk").arg(dir.path()).output().unwrap();
        eprintln!("on disk {}", String::from_utf8_lossy(&out.stdout));
        let itself = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["footprint", "--ignored", "--nocapture"])
            .env("LANEKEEPER_FOOTPRINT", dir.path())
            .status();
        assert!(itself.unwrap().success());
        return;
    };
    eprintln!("before {}", resident());
    let started = Instant::now();
    let store = open_store(Path::new(&dir), 384).await.unwrap();
    eprintln!("load {:?} {}", started.elapsed(), resident());
    for (name, filter) in [
        ("all", VectorFilter::default()),
        ("session", VectorFilter { sessions: vec!["s3".into()], ..VectorFilter::default() }),
        ("time", VectorFilter { at_gte_ms: Some(10_000), ..VectorFilter::default() }),
    ] {
        let _warm = store.search(random_point(5).vector, filter.clone(), 100, 0).await.unwrap();
        let started = Instant::now();
        for number in 0..20 {
            store.search(random_point(number).vector, filter.clone(), 100, 0).await.unwrap();
        }
        eprintln!("search by {name} {:?} {}", started.elapsed() / 20, resident());
    }
    let started = Instant::now();
    store.vectors((1..=100).map(Uuid::from_u128).collect()).await.unwrap();
    eprintln!("100 vectors by id {:?}", started.elapsed());
    let started = Instant::now();
    store.vectors_of((1..=100).map(|n| EventId::from_uuid(Uuid::from_u128(n))).collect()).await.unwrap();
    eprintln!("100 vectors by event {:?}", started.elapsed());
    let started = Instant::now();
    store.all_ids().await.unwrap();
    eprintln!("all ids {:?}", started.elapsed());
}
