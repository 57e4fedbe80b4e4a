//! The data folder: who holds it, and what lies where.
//!
//! ```text
//! data.lock      held while a server or an offline command works on the folder
//! keys/          token.key: what tokens are signed with, 32 bytes
//! records/       one federation record a collection
//! lanes/         <namespace>.<name>.<uid>/   a lane: lane.json, its log, its vectors, its curated memory
//! retained/      the same, of lanes that are no more
//! ```
//!
//! What must always hold: folders are 0700 and files 0600 from their first byte; a folder of `lanes/` or
//! `retained/` appears whole, by rename.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use lanekeeper_core::hooks::guard;
use lanekeeper_core::{LaneName, LaneUid};
use lanekeeper_query_service::Issuer;

/// The issuer of local tokens.
const ISSUER: &str = "lanekeeper-local";

/// Prefix of a folder that is not a lane yet; one that is left over is removed at start.
pub(crate) const UNFINISHED: &str = ".new-";

/// Why the data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataError {
    /// Another process works on it. Stop it first.
    #[error("{} is in use by another process (its lock is held{}); stop that first", path.display(), by(*holder))]
    InUse {
        /// The lock file.
        path: PathBuf,
        /// Who holds it, as far as it is known.
        holder: Option<u32>,
    },
    /// Nothing was ever kept there.
    #[error("{} holds no Lanekeeper data: start `lanekeeper local --data {}` once", path.display(), path.display())]
    NotThere {
        /// The folder.
        path: PathBuf,
    },
    /// A key file that is none. A person must look.
    #[error("{} must hold 32 bytes", path.display())]
    BadKey {
        /// The file.
        path: PathBuf,
    },
    /// The file system refuses.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

fn by(holder: Option<u32>) -> String {
    holder.map_or_else(String::new, |pid| format!(" by process {pid}"))
}

pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DataError {
    let path = path.to_owned();
    move |source| DataError::Io { action, path, source }
}

/// Where things lie. Says nothing about who holds the folder.
#[derive(Debug, Clone)]
pub(crate) struct Layout(PathBuf);

impl Layout {
    /// A folder that exists, to read from.
    pub(crate) fn existing(data: &Path) -> Result<Self, DataError> {
        let layout = Self(data.to_owned());
        if layout.lanes().is_dir() { Ok(layout) } else { Err(DataError::NotThere { path: data.to_owned() }) }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    pub(crate) fn lanes(&self) -> PathBuf {
        self.0.join("lanes")
    }

    pub(crate) fn retained(&self) -> PathBuf {
        self.0.join("retained")
    }

    pub(crate) fn records(&self) -> PathBuf {
        self.0.join("records")
    }

    pub(crate) fn lane(&self, name: &LaneName, uid: LaneUid) -> PathBuf {
        self.lanes().join(folder_name(name, uid))
    }

    pub(crate) fn retained_lane(&self, name: &LaneName, uid: LaneUid) -> PathBuf {
        self.retained().join(folder_name(name, uid))
    }

    fn token_key(&self) -> PathBuf {
        self.0.join("keys").join("token.key")
    }

    /// What signs and checks local tokens; `None`: no key was made yet.
    pub(crate) fn issuer(&self) -> Result<Option<Issuer>, DataError> {
        let path = self.token_key();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", &path)(error)),
        };
        let seed: [u8; 32] = bytes.try_into().map_err(|_| DataError::BadKey { path })?;
        Ok(Some(Issuer::from_seed(ISSUER, &seed)))
    }
}

/// The data folder, held by this process.
#[derive(Debug)]
pub(crate) struct DataFolder {
    pub(crate) layout: Layout,
    _lock: File,
}

impl DataFolder {
    /// Makes what is not there and takes the lock.
    pub(crate) fn open(data: &Path) -> Result<Self, DataError> {
        let layout = Layout(data.to_owned());
        for folder in [data, &layout.lanes(), &layout.retained(), &layout.records(), &data.join("keys")] {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed("make", folder))?;
        }
        Self::lock(layout)
    }

    /// Takes the lock of a folder that exists.
    pub(crate) fn open_existing(data: &Path) -> Result<Self, DataError> {
        Self::lock(Layout::existing(data)?)
    }

    fn lock(layout: Layout) -> Result<Self, DataError> {
        let path = layout.0.join("data.lock");
        let mut lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed("open", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(_) if !guard("lock") => {}
            Err(TryLockError::WouldBlock) => {
                let holder = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
                return Err(DataError::InUse { path, holder });
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock", &path)(error)),
        }
        // For people who look: the lock itself is what counts.
        let _ = lock.set_len(0);
        let _ = writeln!(lock, "{}", std::process::id());
        Ok(Self { layout, _lock: lock })
    }

    /// What signs and checks local tokens, made when first asked for.
    pub(crate) fn issuer(&self) -> Result<Issuer, DataError> {
        if let Some(issuer) = self.layout.issuer()? {
            return Ok(issuer);
        }
        let path = self.layout.token_key();
        let mut seed = [0_u8; 32];
        random(&mut seed, &path)?;
        replace(&path, &seed)?;
        Ok(Issuer::from_seed(ISSUER, &seed))
    }
}

/// Random bytes for what is kept at `path`.
pub(crate) fn random(bytes: &mut [u8], path: &Path) -> Result<(), DataError> {
    getrandom::fill(bytes).map_err(|error| failed("get random bytes for", path)(io::Error::other(error.to_string())))
}

/// `<namespace>.<name>.<uid>`: neither part of a name holds a dot.
pub(crate) fn folder_name(name: &LaneName, uid: LaneUid) -> String {
    format!("{}.{}.{uid}", name.namespace(), name.name())
}

/// The lane that a folder's name is of.
pub(crate) fn parse_folder_name(text: &str) -> Option<(LaneName, LaneUid)> {
    let mut parts = text.split('.');
    let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    let parsed = (LaneName::new(namespace, name).ok()?, uid.parse().ok()?);
    parts.next().is_none().then_some(parsed)
}

/// Writes a whole file: temp file beside it (0600), fsync, rename, fsync of the folder.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), DataError> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let mut temp = tempfile::NamedTempFile::new_in(folder).map_err(failed("write into", folder))?;
    temp.write_all(bytes).and_then(|()| temp.as_file().sync_all()).map_err(failed("write", path))?;
    temp.persist(path).map_err(|error| failed("replace", path)(error.error))?;
    sync(folder)
}

/// Moves a folder, durably on both sides.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), DataError> {
    std::fs::rename(from, to).map_err(failed("move", from))?;
    for path in [from, to] {
        if let Some(folder) = path.parent() {
            sync(folder)?;
        }
    }
    Ok(())
}

pub(crate) fn sync(folder: &Path) -> Result<(), DataError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("sync", folder))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn one_process_at_a_time_holds_the_folder() {
        let temp = tempfile::tempdir().unwrap();
        let data = temp.path().join("data");
        assert!(matches!(DataFolder::open_existing(&data), Err(DataError::NotThere { .. })));
        let first = DataFolder::open(&data).unwrap();
        let Err(DataError::InUse { holder, .. }) = DataFolder::open(&data) else { panic!("a second holder") };
        assert_eq!(holder, Some(std::process::id()));
        assert!(matches!(DataFolder::open_existing(&data), Err(DataError::InUse { .. })));
        drop(first);
        assert!(DataFolder::open_existing(&data).is_ok());
    }

    #[test]
    fn everything_is_private_and_the_key_stays() {
        let temp = tempfile::tempdir().unwrap();
        let data = temp.path().join("data");
        let folder = DataFolder::open(&data).unwrap();
        assert!(folder.layout.issuer().unwrap().is_none());
        folder.issuer().unwrap();
        let key = std::fs::read(data.join("keys/token.key")).unwrap();
        folder.issuer().unwrap();
        assert_eq!(std::fs::read(data.join("keys/token.key")).unwrap(), key);
        for name in ["", "lanes", "retained", "records", "keys"] {
            assert_eq!(mode(&data.join(name)), 0o700, "{name}");
        }
        for name in ["data.lock", "keys/token.key"] {
            assert_eq!(mode(&data.join(name)), 0o600, "{name}");
        }
        std::fs::write(data.join("keys/token.key"), b"short").unwrap();
        assert!(matches!(folder.issuer(), Err(DataError::BadKey { .. })));
    }

    #[test]
    fn a_folder_is_named_after_its_lane() {
        let (name, uid): (LaneName, LaneUid) =
            ("team/bob".parse().unwrap(), "01939a00-0000-7000-8000-000000000001".parse().unwrap());
        let text = folder_name(&name, uid);
        assert_eq!(text, "team.bob.01939a00-0000-7000-8000-000000000001");
        assert_eq!(parse_folder_name(&text), Some((name, uid)));
        for other in ["team.bob", ".new-x", "team.bob.x", &format!("{text}.bak"), &format!("{text} copy"), "lost+found"]
        {
            assert_eq!(parse_folder_name(other), None, "{other}");
        }
    }
}
