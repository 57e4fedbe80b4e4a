//! One owner's folder on the volume: `memory/<owner>/MEMORY.md` and the conflict files beside it.
//!
//! What must always hold: folders are 0700 and files 0600 from their first byte; a file is replaced as a
//! whole by rename; what is replaced was looked at after the new file was already on disk, so that an edit
//! by hand is lost only if it falls between that look and the rename. Blocking; called off the runtime.
//! What it does not do: know the log.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use lanekeeper_core::limits::MEMORY_BYTES;
use lanekeeper_core::{EventId, Hash32, LaneError};
use nix::libc;
use sha2::{Digest, Sha256};

use crate::error::StoreError;
use crate::volume::{private_folder, sync_folder};

const NAME: &str = "MEMORY.md";
/// Files not yet renamed. One that is left over is from a kill.
const PART: &str = ".MEMORY.md.part-";
const CONFLICT: (&str, &str) = ("MEMORY.conflict-", ".md");

/// SHA-256 of a file's bytes.
pub(super) fn digest(bytes: &[u8]) -> Hash32 {
    Hash32::from_bytes(Sha256::digest(bytes).into())
}

/// What If-Match compares: the first half of the digest.
pub(super) fn etag(digest: Hash32) -> String {
    digest.to_string()[..32].to_owned()
}

/// What stands on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Disk {
    /// No file.
    Missing,
    /// A file of UTF-8.
    Text {
        /// As it is.
        text: String,
        /// Of its bytes.
        digest: Hash32,
        /// Milliseconds since the epoch.
        modified_ms: i64,
    },
    /// A file that is not UTF-8.
    NotText {
        /// As they are.
        bytes: Vec<u8>,
        /// Of the bytes.
        digest: Hash32,
    },
    /// Over the limit: it can neither be served nor kept in the log. A person must shorten or move it.
    TooLarge,
    /// A link, a folder, a pipe: never followed. A person must look.
    NotAFile,
}

impl Disk {
    /// The digest of a file that can be kept.
    pub(super) const fn digest(&self) -> Option<Hash32> {
        match self {
            Self::Text { digest, .. } | Self::NotText { digest, .. } => Some(*digest),
            Self::Missing | Self::TooLarge | Self::NotAFile => None,
        }
    }

    /// Refuses what a write could not keep.
    pub(super) fn keepable(self) -> Result<Self, LaneError> {
        match self {
            Self::TooLarge => {
                Err(LaneError::TooLarge { what: "the MEMORY.md on the volume".into(), limit: MEMORY_BYTES })
            }
            Self::NotAFile => Err(LaneError::Conflict {
                code: "memory_not_a_file",
                detail: "the MEMORY.md on the volume is not an ordinary file".into(),
            }),
            kept @ (Self::Missing | Self::Text { .. } | Self::NotText { .. }) => Ok(kept),
        }
    }
}

/// The outcome of [`OwnerFolder::replace`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Replaced {
    /// The new file stands, durably.
    Done,
    /// Something else than expected stands there; nothing was replaced.
    Changed(Vec<u8>),
}

/// One owner's folder.
#[derive(Debug, Clone)]
pub(super) struct OwnerFolder(PathBuf);

impl OwnerFolder {
    /// `owner` must be a checked segment.
    pub(super) fn new(memory: &Path, owner: &str) -> Self {
        Self(memory.join(owner))
    }

    fn file(&self) -> PathBuf {
        self.0.join(NAME)
    }

    fn unusable(&self) -> StoreError {
        let why = format!("{} is over the limit or no ordinary file in an ordinary folder", self.file().display());
        StoreError::Malformed { what: "curated file", why }
    }

    fn conflict(&self, event: EventId) -> PathBuf {
        self.0.join(format!("{}{event}{}", CONFLICT.0, CONFLICT.1))
    }

    /// Reads `MEMORY.md`.
    pub(super) fn read(&self) -> Result<Disk, StoreError> {
        match std::fs::symlink_metadata(&self.0) {
            Ok(metadata) if metadata.is_dir() => read(&self.file()),
            Ok(_) => Ok(Disk::NotAFile),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Disk::Missing),
            Err(error) => Err(StoreError::io("look at", &self.0, error)),
        }
    }

    /// Replaces `MEMORY.md` if what stands there is `expected`, or nothing, or the new text already.
    pub(super) fn replace(&self, text: &str, expected: Option<Hash32>) -> Result<Replaced, StoreError> {
        let target = digest(text.as_bytes());
        let part = self.part(text.as_bytes())?;
        let found = self.read()?;
        match found.digest() {
            Some(found) if found == target => return Ok(Replaced::Done),
            Some(found) if Some(found) == expected => {}
            Some(_) | None => match found {
                Disk::Missing => {}
                Disk::Text { text, .. } => return Ok(Replaced::Changed(text.into_bytes())),
                Disk::NotText { bytes, .. } => return Ok(Replaced::Changed(bytes)),
                Disk::TooLarge | Disk::NotAFile => return Err(self.unusable()),
            },
        }
        self.persist(part, &self.file())?;
        Ok(Replaced::Done)
    }

    /// Writes the bytes of a conflict, unless their file is there.
    pub(super) fn keep_conflict(&self, event: EventId, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.conflict(event);
        if std::fs::symlink_metadata(&path).is_ok() {
            return Ok(());
        }
        self.persist(self.part(bytes)?, &path)
    }

    /// Removes the file of a conflict that was forgotten.
    pub(super) fn drop_conflict(&self, event: EventId) -> Result<(), StoreError> {
        remove(&self.conflict(event))?;
        sync_folder(&self.0)
    }

    /// The events of the conflict files that are there.
    pub(super) fn conflicts(&self) -> Result<Vec<EventId>, StoreError> {
        let names = self.names()?;
        Ok(names
            .iter()
            .filter_map(|name| name.strip_prefix(CONFLICT.0)?.strip_suffix(CONFLICT.1)?.parse().ok())
            .collect())
    }

    /// Removes what a kill left behind. Only while nobody writes here.
    pub(super) fn drop_leftovers(&self) -> Result<(), StoreError> {
        for name in self.names()?.iter().filter(|name| name.starts_with(PART)) {
            remove(&self.0.join(name))?;
        }
        Ok(())
    }

    /// Conflict files that hold something, and how many other files beside `MEMORY.md` do (an editor's
    /// copies: not ours to remove).
    pub(super) fn holding(&self, holds: impl Fn(&[u8]) -> bool) -> Result<(Vec<EventId>, u64), StoreError> {
        let mut conflicts = Vec::new();
        let mut others = 0;
        for name in self.names()? {
            let path = self.0.join(&name);
            let ours = name.strip_prefix(CONFLICT.0).and_then(|rest| rest.strip_suffix(CONFLICT.1)?.parse().ok());
            let plain = std::fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file());
            if !plain || name == NAME || name.starts_with(PART) {
                continue;
            }
            let bytes = std::fs::read(&path).map_err(|error| StoreError::io("read", &path, error))?;
            match ours {
                _ if !holds(&bytes) => {}
                Some(event) => conflicts.push(event),
                None => others += 1,
            }
        }
        Ok((conflicts, others))
    }

    fn names(&self) -> Result<Vec<String>, StoreError> {
        let entries = match std::fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StoreError::io("list", &self.0, error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| StoreError::io("list", &self.0, error))?;
            names.extend(entry.file_name().into_string());
        }
        Ok(names)
    }

    /// New bytes on disk, durable, under a name of no meaning.
    fn part(&self, bytes: &[u8]) -> Result<tempfile::NamedTempFile, StoreError> {
        let folder = &self.0;
        match std::fs::symlink_metadata(folder) {
            Ok(metadata) if metadata.is_dir() => {}
            // A link could lead out of the lane.
            Ok(_) => return Err(self.unusable()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                private_folder(folder)?;
                for above in folder.ancestors().skip(1).take(2) {
                    sync_folder(above)?;
                }
            }
            Err(error) => return Err(StoreError::io("look at", folder, error)),
        }
        // The builder's files are 0600.
        let mut part = tempfile::Builder::new()
            .prefix(PART)
            .tempfile_in(folder)
            .map_err(|error| StoreError::io("write into", folder, error))?;
        part.write_all(bytes)
            .and_then(|()| part.as_file().sync_all())
            .map_err(|error| StoreError::io("write", part.path(), error))?;
        Ok(part)
    }

    fn persist(&self, part: tempfile::NamedTempFile, path: &Path) -> Result<(), StoreError> {
        part.persist(path).map_err(|error| StoreError::io("rename to", path, error.error))?;
        sync_folder(&self.0)
    }
}

/// The folders under `memory/`, by name.
pub(super) fn owners(memory: &Path) -> Result<Vec<String>, StoreError> {
    OwnerFolder(memory.to_owned()).names()
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(StoreError::io("remove", path, error)),
    }
}

fn read(path: &Path) -> Result<Disk, StoreError> {
    let failed = |error| StoreError::io("read", path, error);
    // A link could lead out of the lane, a pipe would block for ever.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Disk::Missing),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENXIO)) => return Ok(Disk::NotAFile),
        Err(error) => return Err(failed(error)),
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Ok(Disk::NotAFile);
    }
    let mut bytes = Vec::new();
    file.take(MEMORY_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > MEMORY_BYTES {
        return Ok(Disk::TooLarge);
    }
    let digest = digest(&bytes);
    let modified_ms = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
        .and_then(|age| i64::try_from(age.as_millis()).ok())
        .unwrap_or(0);
    Ok(match String::from_utf8(bytes) {
        Ok(text) => Disk::Text { text, digest, modified_ms },
        Err(error) => Disk::NotText { bytes: error.into_bytes(), digest },
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder() -> (tempfile::TempDir, OwnerFolder) {
        let temp = tempfile::tempdir().unwrap();
        let folder = OwnerFolder::new(&temp.path().join("memory"), "bob");
        (temp, folder)
    }

    #[test]
    fn files_are_private_and_replaced_only_where_expected() {
        let (_temp, folder) = folder();
        assert_eq!(folder.read().unwrap(), Disk::Missing);
        assert_eq!(folder.replace("one", None).unwrap(), Replaced::Done);
        for (path, mode) in
            [(folder.0.clone(), 0o700), (folder.0.parent().unwrap().to_owned(), 0o700), (folder.file(), 0o600)]
        {
            assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, mode);
        }
        assert_eq!(folder.replace("two", None).unwrap(), Replaced::Changed(b"one".to_vec()));
        assert_eq!(folder.replace("two", Some(digest(b"one"))).unwrap(), Replaced::Done);
        assert_eq!(folder.replace("two", None).unwrap(), Replaced::Done, "what is there already is done");
        assert_eq!(folder.names().unwrap(), ["MEMORY.md"], "no part is left");
    }

    #[test]
    fn what_is_no_ordinary_file_of_text_is_told_apart() {
        let (temp, folder) = folder();
        folder.replace("x", None).unwrap();
        let path = folder.file();
        std::fs::write(&path, [b'a', 0xff]).unwrap();
        assert!(matches!(folder.read().unwrap(), Disk::NotText { bytes, .. } if bytes == [b'a', 0xff]));
        std::fs::write(&path, vec![b'a'; MEMORY_BYTES]).unwrap();
        assert!(matches!(folder.read().unwrap(), Disk::Text { .. }));
        std::fs::write(&path, vec![b'a'; MEMORY_BYTES + 1]).unwrap();
        assert_eq!(folder.read().unwrap(), Disk::TooLarge);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(temp.path().join("secret"), "of another lane").unwrap();
        std::os::unix::fs::symlink(temp.path().join("secret"), &path).unwrap();
        assert_eq!(folder.read().unwrap(), Disk::NotAFile);
        assert!(folder.replace("y", None).is_err());
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(folder.read().unwrap(), Disk::NotAFile);
    }

    #[test]
    fn leftovers_go_and_other_files_stay() {
        let (_temp, folder) = folder();
        folder.replace("x", None).unwrap();
        let event = EventId::from_uuid(uuid::Uuid::now_v7());
        folder.keep_conflict(event, b"old").unwrap();
        folder.keep_conflict(event, b"another").unwrap();
        std::fs::write(folder.0.join(".MEMORY.md.part-abc"), "left").unwrap();
        std::fs::write(folder.0.join("MEMORY.md~"), "an editor's old copy").unwrap();
        folder.drop_leftovers().unwrap();
        let mut names = folder.names().unwrap();
        names.sort();
        assert_eq!(names, [format!("MEMORY.conflict-{event}.md"), "MEMORY.md".into(), "MEMORY.md~".into()]);
        let old = |bytes: &[u8]| bytes.windows(3).any(|part| part == b"old");
        assert_eq!(folder.holding(old).unwrap(), (vec![event], 1), "the first bytes were kept");
        folder.drop_conflict(event).unwrap();
        assert_eq!(folder.conflicts().unwrap(), []);
    }
}
