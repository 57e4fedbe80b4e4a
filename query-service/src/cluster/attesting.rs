//! Signing requests to stores: the master key, and the statement about a request.
//!
//! What must always hold: the master key is one Secret's, read from its folder and never kept anywhere else; a
//! lane's key is derived for each statement; a nonce is random and used once.

use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use lanekeeper_core::attest::{LaneKey, Request, Statement, VERSION, sign};
use lanekeeper_core::cluster::key;
use lanekeeper_core::lane_client::Caller;
use lanekeeper_core::secret::Secret;
use lanekeeper_core::{LaneError, LaneUid, LogId};

/// Why there is no master key. A person, or the operator, must look.
#[derive(Debug, thiserror::Error)]
pub enum MasterError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// It.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{path} must hold {rule}")]
    Malformed {
        /// It.
        path: String,
        /// The rule.
        rule: &'static str,
    },
}

#[derive(Debug, Clone)]
struct Key {
    version: u32,
    master: Secret<[u8; 32]>,
}

/// The master key, renewed in place.
#[derive(Debug)]
pub struct Master {
    folder: PathBuf,
    key: RwLock<Key>,
}

/// What a statement says beside the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) lane: LaneUid,
    pub(super) log_id: LogId,
    pub(super) caller: Option<&'a Caller>,
    pub(super) now_ms: i64,
    pub(super) deadline_ms: i64,
}

impl Master {
    /// Reads `master` and `version` of a folder.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, MasterError> {
        let folder = folder.into();
        let key = RwLock::new(read(&folder)?);
        Ok(Self { folder, key })
    }

    /// One look at the files. What cannot be read changes nothing.
    pub(super) fn look(&self) {
        match read(&self.folder) {
            Ok(key) => {
                let mut known = self.key.write().unwrap_or_else(PoisonError::into_inner);
                if key.version != known.version || key.master.expose() != known.master.expose() {
                    tracing::info!(version = key.version, "the master key was renewed");
                    *known = key;
                }
            }
            Err(error) => tracing::warn!(%error, "the master key stays as it was"),
        }
    }

    /// The attestation of a request.
    pub(super) fn attest(&self, about: &About<'_>, request: &Request<'_>) -> Result<String, LaneError> {
        let Key { version, master } = self.key.read().unwrap_or_else(PoisonError::into_inner).clone();
        let About { lane, log_id, caller, now_ms, deadline_ms } = *about;
        let mut nonce = [0_u8; 16];
        getrandom::fill(&mut nonce).map_err(|error| LaneError::internal(format!("no random bytes: {error}")))?;
        let statement = Statement {
            v: VERSION,
            key_version: version,
            lane_uid: lane,
            log_id,
            principal: caller.map(|caller| caller.principal.clone()),
            reading_lane: caller.and_then(|caller| caller.reading_lane),
            scope: caller.map(|caller| caller.scope.clone()),
            deadline_ms,
            issued_at_ms: now_ms,
            nonce: uuid::Uuid::from_bytes(nonce),
        };
        sign(&LaneKey::derive(master.expose(), lane, version), &statement, request)
            .ok_or_else(|| LaneError::internal("a statement could not be written"))
    }
}

fn read(folder: &Path) -> Result<Key, MasterError> {
    let file = |name: &str| {
        let path = folder.join(name);
        let bytes = std::fs::read(&path);
        (path.display().to_string(), bytes)
    };
    let (path, bytes) = file(key::MASTER);
    let bytes = bytes.map_err(|source| MasterError::Read { path: path.clone(), source })?;
    let master = bytes.try_into().map_err(|_| MasterError::Malformed { path, rule: "32 bytes" })?;
    let (path, bytes) = file(key::MASTER_VERSION);
    let bytes = bytes.map_err(|source| MasterError::Read { path: path.clone(), source })?;
    let version = std::str::from_utf8(&bytes).ok().and_then(|text| text.trim().parse().ok());
    let version = version.ok_or(MasterError::Malformed { path, rule: "a decimal number" })?;
    Ok(Key { version, master: Secret::new(master) })
}
