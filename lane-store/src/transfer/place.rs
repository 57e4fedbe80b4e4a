//! How a restored lane comes into its folder: whole, or not at all.
//!
//! # Flow
//! 1. Everything is unpacked and verified in `restore.tmp-…` in the lane's folder.
//! 2. That folder is renamed to `restore.ready`: the one moment at which the restore happens.
//! 3. What is in it is moved into place, the database last. Whoever opens the folder next goes on with step 3
//!    if a kill came in between, and removes what never reached step 2.

use std::path::{Component, Path};

use crate::error::StoreError;
use crate::volume::{Volume, sync_folder};

/// The database's name, in the folder and in a backup.
pub(super) const DATABASE: &str = "lane.db";
/// The folder of curated files, in the lane's folder and in a backup.
pub(super) const MEMORY: &str = "memory";
/// The entry by which a backup says what it is.
pub(super) const MANIFEST: &str = "manifest.json";
/// Folders that a backup or a restore works in.
pub(super) const BACKUP_PREFIX: &str = "backup.tmp-";
pub(super) const RESTORE_PREFIX: &str = "restore.tmp-";
const READY: &str = "restore.ready";
/// What SQLite keeps beside a database. Left over, a write-ahead log would be played into a restored one.
const BESIDE: [&str; 3] = ["lane.db-wal", "lane.db-shm", "lane.db-journal"];

/// Finishes a restore that a kill stopped on its last step, and removes what was never ready. Called under
/// the volume's lock before anything else is looked at.
pub(crate) fn settle(volume: &Volume) -> Result<(), StoreError> {
    let folder = volume.folder();
    let failed = |error| StoreError::io("list", folder, error);
    let mut removed = false;
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let left_over =
            name.to_str().is_some_and(|name| name.starts_with(BACKUP_PREFIX) || name.starts_with(RESTORE_PREFIX));
        if left_over {
            let path = entry.path();
            std::fs::remove_dir_all(&path).map_err(|error| StoreError::io("remove", &path, error))?;
            removed = true;
        }
    }
    if removed {
        sync_folder(folder)?;
    }
    let ready = folder.join(READY);
    if exists(&ready)? { finish(folder, &ready) } else { Ok(()) }
}

fn exists(path: &Path) -> Result<bool, StoreError> {
    path.try_exists().map_err(|error| StoreError::io("look for", path, error))
}

/// Step 3. Each move is done or not; the database comes last, so its presence means that all is there.
fn finish(folder: &Path, ready: &Path) -> Result<(), StoreError> {
    for name in [MEMORY, DATABASE] {
        let from = ready.join(name);
        if exists(&from)? {
            let to = folder.join(name);
            // An empty folder may be in the way; one that holds anything was refused at the start.
            std::fs::rename(&from, &to).map_err(|error| StoreError::io("move into place", &to, error))?;
            sync_folder(folder)?;
        }
    }
    std::fs::remove_dir(ready).map_err(|error| StoreError::io("remove", ready, error))?;
    sync_folder(folder)
}

/// Step 2 and 3.
pub(super) fn put_in_place(volume: &Volume, staged: &Path) -> Result<(), StoreError> {
    let ready = volume.folder().join(READY);
    sync_folder(staged)?;
    std::fs::rename(staged, &ready).map_err(|error| StoreError::io("make ready", &ready, error))?;
    sync_folder(volume.folder())?;
    let _ = lanekeeper_core::hooks::fault("restore_ready");
    settle(volume)
}

/// A restore never writes over a lane: whoever means to must move it away by hand.
pub(super) fn refuse_occupied(volume: &Volume) -> Result<(), StoreError> {
    let folder = volume.folder();
    let occupied = |name: &str| StoreError::Occupied { path: folder.join(name).display().to_string() };
    for name in [DATABASE].iter().chain(&BESIDE) {
        let path = folder.join(name);
        match std::fs::metadata(&path) {
            // A kill while a new lane's file was made leaves an empty one, which is none.
            Ok(meta) if meta.is_file() && meta.len() == 0 => {
                std::fs::remove_file(&path).map_err(|error| StoreError::io("remove", &path, error))?;
            }
            Ok(_) => return Err(occupied(name)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(StoreError::io("look for", &path, error)),
        }
    }
    let memory = volume.memory();
    match std::fs::read_dir(&memory) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(occupied(MEMORY));
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(StoreError::io("list", &memory, error)),
    }
    Ok(())
}

/// Whether a name from a backup is a curated file's and stays below its folder.
pub(super) fn is_memory_name(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(MEMORY).and_then(|rest| rest.strip_prefix('/')) else { return false };
    let plain = Path::new(rest).components().all(|part| {
        let Component::Normal(part) = part else { return false };
        part.to_str().is_some_and(|part| !part.starts_with('.'))
    });
    plain && !rest.is_empty() && !rest.ends_with('/') && !rest.contains("//") && !rest.contains(['\0', '\\'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_folder_of_curated_files() {
        for good in ["memory/bob/MEMORY.md", "memory/_shared/MEMORY.md", "memory/sa.team.agent/x"] {
            assert!(is_memory_name(good), "{good}");
        }
        for bad in [
            "memory",
            "memory/",
            "memory//x",
            "memory/../x",
            "memory/./x",
            "memory/.x",
            "memory/a/../../x",
            "memory/a/",
            "memoryx/y",
            "/memory/x",
            "lane.db",
            "../memory/x",
            "memory/a\\b",
            "memory/a\0b",
        ] {
            assert!(!is_memory_name(bad), "{bad}");
        }
    }

    fn staged(volume: &Volume) -> std::path::PathBuf {
        let staged = volume.folder().join("restore.tmp-x");
        std::fs::create_dir_all(staged.join("memory/bob")).unwrap();
        std::fs::write(staged.join("memory/bob/MEMORY.md"), "kept").unwrap();
        std::fs::write(staged.join(DATABASE), "database").unwrap();
        staged
    }

    fn names(volume: &Volume) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(volume.folder())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_kill_at_any_step_leaves_nothing_or_the_whole() {
        // Before it was ready: nothing.
        let temp = tempfile::tempdir().unwrap();
        let volume = Volume::open(temp.path()).unwrap();
        staged(&volume);
        std::fs::create_dir(temp.path().join("backup.tmp-y")).unwrap();
        settle(&volume).unwrap();
        assert_eq!(names(&volume), ["lane.lock"]);
        // Ready, with none, one or both of its parts moved: the whole.
        for moved in 0..=2 {
            let temp = tempfile::tempdir().unwrap();
            let volume = Volume::open(temp.path()).unwrap();
            std::fs::create_dir(volume.memory()).unwrap();
            let ready = temp.path().join(READY);
            std::fs::rename(staged(&volume), &ready).unwrap();
            for name in [MEMORY, DATABASE].iter().take(moved) {
                std::fs::rename(ready.join(name), temp.path().join(name)).unwrap();
            }
            settle(&volume).unwrap();
            assert_eq!(names(&volume), [DATABASE, "lane.lock", MEMORY], "{moved}");
            assert_eq!(std::fs::read_to_string(temp.path().join("memory/bob/MEMORY.md")).unwrap(), "kept");
            settle(&volume).unwrap();
        }
    }

    #[test]
    fn a_folder_that_holds_a_lane_is_refused() {
        for (name, bytes) in [(DATABASE, "x"), ("lane.db-wal", "x"), ("memory/bob", "x")] {
            let temp = tempfile::tempdir().unwrap();
            let volume = Volume::open(temp.path()).unwrap();
            refuse_occupied(&volume).unwrap();
            let path = temp.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            refuse_occupied(&volume).unwrap();
            std::fs::write(&path, bytes).unwrap();
            assert!(matches!(refuse_occupied(&volume), Err(StoreError::Occupied { .. })), "{name}");
        }
        let temp = tempfile::tempdir().unwrap();
        let volume = Volume::open(temp.path()).unwrap();
        std::fs::write(volume.database(), "").unwrap();
        refuse_occupied(&volume).unwrap();
        assert!(!volume.database().exists());
    }
}
