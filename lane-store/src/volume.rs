//! The lane's folder: private from the first byte, held by one process.
//!
//! What must always hold: folders are 0700 and files 0600 when they come into being, and nobody opens
//! the database without the OFD lock on `lane.lock`. The lock belongs to the open file description, so a
//! second open in this very process is refused too.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use lanekeeper_core::hooks::guard;
use nix::fcntl::{FcntlArg, fcntl};

use crate::error::StoreError;

/// A lane's folder, locked.
#[derive(Debug)]
pub struct Volume {
    folder: PathBuf,
    lock: std::sync::Mutex<Option<File>>,
}

/// Makes a folder 0700.
pub(crate) fn private_folder(path: &Path) -> Result<(), StoreError> {
    let mode = if guard("private_files") { 0o700 } else { 0o755 };
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(|error| StoreError::io("make folder", path, error))
}

/// Opens (and if needed makes, 0600) a file for writing.
pub(crate) fn private_file(path: &Path, options: &mut OpenOptions) -> Result<File, StoreError> {
    let mode = if guard("private_files") { 0o600 } else { 0o644 };
    options.mode(mode).open(path).map_err(|error| StoreError::io("open", path, error))
}

/// Syncs a folder, so that a rename or a new file in it is durable.
pub(crate) fn sync_folder(path: &Path) -> Result<(), StoreError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(|error| StoreError::io("sync folder", path, error))
}

/// Writes a whole file: temp file beside it (0600), fsync, rename, fsync of the folder.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let mut temp =
        tempfile::NamedTempFile::new_in(folder).map_err(|error| StoreError::io("write into", folder, error))?;
    temp.write_all(bytes)
        .and_then(|()| temp.as_file().sync_all())
        .map_err(|error| StoreError::io("write", temp.path(), error))?;
    temp.persist(path).map_err(|error| StoreError::io("rename to", path, error.error))?;
    sync_folder(folder)
}

impl Volume {
    /// Makes the folder if needed and takes its lock, or says who else has it.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        private_folder(folder)?;
        let path = folder.join("lane.lock");
        let mut lock = private_file(&path, OpenOptions::new().create(true).truncate(false).read(true).write(true))?;
        let range = nix::libc::flock {
            l_type: nix::libc::F_WRLCK as _,
            l_whence: nix::libc::SEEK_SET as _,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        match fcntl(lock.as_fd(), FcntlArg::F_OFD_SETLK(&range)) {
            Ok(_) => {}
            Err(_) if !guard("lock") => {}
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => {
                return Err(StoreError::Locked { path: path.display().to_string() });
            }
            Err(error) => return Err(StoreError::io("lock", &path, error.into())),
        }
        // For people who look: the lock itself is what counts.
        let _ = lock.set_len(0);
        let _ = writeln!(lock, "{}", std::process::id());
        Ok(Self { folder: folder.to_owned(), lock: std::sync::Mutex::new(Some(lock)) })
    }

    /// Lets go of the lock: nothing of the folder may be touched after it.
    pub(crate) fn release(&self) {
        drop(self.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take());
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The database file.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.folder.join("lane.db")
    }

    /// The folder of curated files.
    #[must_use]
    pub fn memory(&self) -> PathBuf {
        self.folder.join("memory")
    }

    /// The folder of the in-process vector engine.
    #[must_use]
    pub fn vectors(&self) -> PathBuf {
        self.folder.join("vectors")
    }

    /// 32 secret bytes kept in a file of this folder, made when first asked for.
    pub(crate) fn key(&self, name: &str) -> Result<[u8; 32], StoreError> {
        let path = self.folder.join(name);
        match File::open(&path) {
            Ok(mut file) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).map_err(|error| StoreError::io("read", &path, error))?;
                bytes.try_into().map_err(|_| StoreError::Malformed {
                    what: "key file",
                    why: format!("{} must hold 32 bytes", path.display()),
                })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let mut bytes = [0_u8; 32];
                getrandom::fill(&mut bytes).map_err(|error| {
                    StoreError::io("random bytes for", &path, std::io::Error::other(error.to_string()))
                })?;
                replace_file(&path, &bytes)?;
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
                    .map_err(|error| StoreError::io("make private", &path, error))?;
                Ok(bytes)
            }
            Err(error) => Err(StoreError::io("read", &path, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_opener_is_refused_until_the_first_lets_go() {
        let folder = tempfile::tempdir().unwrap();
        let first = Volume::open(folder.path()).unwrap();
        assert!(matches!(Volume::open(folder.path()), Err(StoreError::Locked { .. })));
        drop(first);
        assert!(Volume::open(folder.path()).is_ok());
    }

    #[test]
    fn keys_are_private_and_stay() {
        let folder = tempfile::tempdir().unwrap();
        let volume = Volume::open(&folder.path().join("lane")).unwrap();
        let key = volume.key("dedupe.key").unwrap();
        assert_eq!(volume.key("dedupe.key").unwrap(), key);
        assert_ne!(volume.key("log.key").unwrap(), key);
        for (path, mode) in [("", 0o700), ("lane.lock", 0o600), ("dedupe.key", 0o600)] {
            let found = std::fs::metadata(volume.folder().join(path)).unwrap().permissions().mode() & 0o777;
            assert_eq!(found, mode, "{path}");
        }
        std::fs::write(volume.folder().join("log.key"), b"short").unwrap();
        assert!(volume.key("log.key").is_err());
    }
}
