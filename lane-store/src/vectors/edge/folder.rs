//! The folder of a lane's vectors.
//!
//! `current` names the generation that is searched and is only ever replaced by rename; `g<N>/` are the
//! engine's own folders; `lock` is held while the folder is open. A folder above `current` is a shadow, one
//! below it is left over from a swap that was cut short, `damaged-*` was moved aside at the last start.
//! Everything here can be made again from the log, so what cannot be used is never a reason to stop.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lanekeeper_core::Generation;

/// The engine writes into holes of mapped files: on a full volume that is a signal that ends the process,
/// not an error. So nothing is written with less than this left.
const LEAST_FREE_BYTES: u64 = 8 * 1024 * 1024;

/// How long the folder's lock is waited for: a request that was cancelled may still hold the old one.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder {
    dir: PathBuf,
    _lock: File,
}

impl Folder {
    /// Opens or makes the folder, waits for its lock and removes what no generation needs.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(dir.join("lock"))?;
        let deadline = Instant::now() + LOCK_WAIT;
        while let Err(error) = lock.try_lock() {
            match error {
                fs::TryLockError::WouldBlock if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                fs::TryLockError::WouldBlock => {
                    return Err(io::Error::new(io::ErrorKind::WouldBlock, "another process has them open"));
                }
                fs::TryLockError::Error(error) => return Err(error),
            }
        }
        Ok(Self { dir: dir.to_owned(), _lock: lock })
    }

    /// Where a generation's files are.
    pub(super) fn generation(&self, generation: Generation) -> PathBuf {
        self.dir.join(format!("g{generation}"))
    }

    /// The generation that is searched. Without a readable pointer the newest folder: an older one may hold
    /// vectors of what was forgotten since, and what the newest lacks is made again.
    pub(super) fn current(&self) -> io::Result<Option<Generation>> {
        let pointer = match fs::read_to_string(self.dir.join("current")) {
            Ok(text) => text.trim().parse().ok().map(Generation),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => None,
            Err(error) => return Err(error),
        };
        Ok(pointer.or(self.generations()?.into_iter().max()))
    }

    /// The generations that have a folder.
    pub(super) fn generations(&self) -> io::Result<Vec<Generation>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix('g')).and_then(|text| text.parse().ok());
            found.extend(number.map(Generation));
        }
        Ok(found)
    }

    /// Makes a generation the one that is searched: durable when it returns.
    pub(super) fn point_to(&self, generation: Generation) -> io::Result<()> {
        let new = self.dir.join("current.new");
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        writeln!(file, "{generation}")?;
        file.sync_all()?;
        fs::rename(&new, self.dir.join("current"))?;
        self.sync()
    }

    /// Removes what neither the searched generation nor a shadow above it needs.
    pub(super) fn sweep(&self, current: Generation) -> io::Result<()> {
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let below = name.strip_prefix('g').and_then(|text| text.parse().ok()).is_some_and(|n: u64| n < current.0);
            if below || name.starts_with("damaged-") {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Moves a folder that the engine cannot read out of the way. It is kept until the next start, for whoever
    /// wants to look; longer would keep vectors of what is forgotten meanwhile.
    pub(super) fn move_aside(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let aside = self.dir.join(format!("damaged-{name}"));
        remove(&aside)?;
        fs::rename(path, aside)
    }

    /// Makes names in the folder durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    /// Whether `bytes` more can be written without filling the volume.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let Ok(stat) = nix::sys::statvfs::statvfs(&self.dir) else { return true };
        #[expect(clippy::useless_conversion, reason = "the width differs between platforms")]
        let free = u64::from(stat.blocks_available()).saturating_mul(u64::from(stat.fragment_size()));
        free >= LEAST_FREE_BYTES.saturating_add(bytes)
    }
}

/// Makes an empty folder that only its owner can enter.
pub(super) fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes a file or folder with all in it; one that is not there is as good.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Takes group and others out of the modes of everything below `path`. The engine makes its files by the
/// process's umask; the folder above is closed to others from its first moment, so this is the second wall.
pub(super) fn tighten(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    let wanted = if metadata.is_dir() { 0o700 } else { 0o600 };
    if !metadata.is_symlink() && metadata.permissions().mode() & 0o777 != wanted {
        fs::set_permissions(path, Permissions::from_mode(wanted))?;
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            match tighten(&entry?.path()) {
                // The engine renames temporary files while this walks.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pointer_decides_and_without_it_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(&dir.path().join("v")).unwrap();
        assert_eq!(folder.current().unwrap(), None);
        for n in [3, 4, 10] {
            make(&folder.generation(Generation(n))).unwrap();
        }
        folder.point_to(Generation(4)).unwrap();
        assert_eq!(folder.current().unwrap(), Some(Generation(4)));
        for garbled in [&b"\xff\xfe"[..], b"", b"four"] {
            fs::write(folder.dir.join("current"), garbled).unwrap();
            assert_eq!(folder.current().unwrap(), Some(Generation(10)));
        }
        fs::remove_file(folder.dir.join("current")).unwrap();
        assert_eq!(folder.current().unwrap(), Some(Generation(10)));
    }

    #[test]
    fn sweeping_spares_the_searched_one_and_its_shadow() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        for name in ["g3", "g4", "g5", "damaged-g4"] {
            make(&dir.path().join(name)).unwrap();
        }
        folder.sweep(Generation(4)).unwrap();
        let mut left = folder.generations().unwrap();
        left.sort_unstable();
        assert_eq!(left, [Generation(4), Generation(5)]);
        assert!(!dir.path().join("damaged-g4").exists());
    }

    #[test]
    fn a_second_opening_waits_and_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let held = Folder::open(dir.path()).unwrap();
        assert_eq!(Folder::open(dir.path()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let path = dir.path().to_owned();
        let waiting = std::thread::spawn(move || Folder::open(&path).is_ok());
        drop(held);
        assert!(waiting.join().unwrap());
    }

    #[test]
    fn modes_are_private() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/b"), "x").unwrap();
        fs::set_permissions(dir.path().join("a/b"), Permissions::from_mode(0o644)).unwrap();
        tighten(dir.path()).unwrap();
        let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("a"), mode("a/b")), (0o700, 0o600));
    }
}
