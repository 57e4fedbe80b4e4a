//! Restore: a backup becomes a lane's folder again, offline, verified before any of it is in place.
//!
//! # Flow
//! 1. The folder's lock; a folder that holds a lane is refused.
//! 2. The archive is unpacked beside it, each entry checked.
//! 3. The log's id is compared with the record's, and the whole log is walked.
//! 4. All of it is put in place (see `place`).
//!
//! # Guarantees
//! - A backup that is changed, cut, of another log, of a newer schema or with a row that does not hold
//!   leaves the folder as it was.
//! - The record is not written. A backup older than the published head restores to a lane that only reads
//!   until a person accepts its head (see `accept`).
//!
//! # Caveats
//! - The keys are new ones unless the folder still has the old: the log says so in a `restored` event.

use std::fs::{File, OpenOptions, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use lanekeeper_core::hooks::{fault, guard};
use lanekeeper_core::wire::events::Head;
use lanekeeper_core::wire::upkeep::VerifyReport;
use lanekeeper_core::{LaneUid, LogId};
use lanekeeper_federation::{PublishedHead, Record, Registry};
use serde::Serialize;
use sqlx::Connection;
use tempfile::TempDir;

use super::archive::ArchiveReader;
use super::backup::{BackupManifest, open_read_only};
use super::place::{self, DATABASE, MANIFEST, RESTORE_PREFIX};
use crate::error::StoreError;
use crate::opening::{log_id_in, row_at};
use crate::schema;
use crate::verifying::verify_file;
use crate::volume::{Volume, private_file, private_folder, sync_folder};

/// Longest manifest that is read into memory.
const MANIFEST_BYTES: u64 = 64 * 1024;

/// How a restored log stands to the head that its record knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The record knows no head.
    Unpublished,
    /// The log holds the published head: the lane can be written at once.
    HoldsPublished,
    /// The log ends before it: read-only until a person accepts the log's head.
    Behind {
        /// What the record knows.
        published: Head,
    },
    /// The log has another row there: read-only until a person accepts the log's head.
    Forked {
        /// What the record knows.
        published: Head,
    },
}

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestoreReport {
    /// What the backup says of itself.
    pub manifest: BackupManifest,
    /// The walk over the whole log.
    pub verified: VerifyReport,
    /// Curated files put in place.
    pub memory_files: u64,
    /// Whether the lane can be written.
    pub standing: Standing,
}

/// An unpacked backup that is not in place yet. Dropped, it is gone.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) folder: TempDir,
    pub(super) manifest: BackupManifest,
    pub(super) memory_files: u64,
}

/// Reads what a backup says of itself, without checking more than that entry.
pub fn read_manifest(archive: impl Read) -> Result<BackupManifest, StoreError> {
    let mut reader = ArchiveReader::begin(archive)?;
    manifest(&mut reader)
}

/// Puts a backup into a lane's folder. The lane must not be open, here or elsewhere. `archive` is read once,
/// to its end; wrap it for a progress bar.
pub async fn restore(
    archive: impl Read + Send + 'static,
    folder: &Path,
    registry: &dyn Registry,
    collection: &str,
    uid: LaneUid,
) -> Result<RestoreReport, StoreError> {
    let record = registry.read(collection).await.map_err(StoreError::Registry)?;
    if record.spec.writer.uid != uid {
        return Err(StoreError::OtherLane { bound: record.spec.writer.uid, asked: uid });
    }
    let volume = Volume::open(folder)?;
    place::settle(&volume)?;
    place::refuse_occupied(&volume)?;
    let parent = folder.to_owned();
    let staged = tokio::task::spawn_blocking(move || unpack(archive, &parent))
        .await
        .map_err(|error| StoreError::Malformed { what: "restore", why: error.to_string() })??;
    let _ = fault("restore_unpacked");
    let verified = check(&staged, record.spec.log_id).await?;
    let standing = standing(&staged, &record).await?;
    let Staged { folder: temp, manifest, memory_files } = staged;
    place::put_in_place(&volume, &temp.keep())?;
    Ok(RestoreReport { manifest, verified, memory_files, standing })
}

fn manifest<R: Read>(reader: &mut ArchiveReader<R>) -> Result<BackupManifest, StoreError> {
    let damaged = |why: &str| StoreError::BackupDamaged { why: why.into() };
    let entry = reader.next()?.filter(|entry| entry.name == MANIFEST && entry.length <= MANIFEST_BYTES);
    let entry = entry.ok_or_else(|| damaged("its first entry is not a manifest"))?;
    let mut json = Vec::new();
    reader.copy(entry, &mut json, Path::new("memory"))?;
    serde_json::from_slice(&json).map_err(|_| damaged("its manifest cannot be read as one"))
}

/// Unpacks a backup into a private folder below `parent`.
pub(super) fn unpack(archive: impl Read, parent: &Path) -> Result<Staged, StoreError> {
    let temp = tempfile::Builder::new()
        .prefix(RESTORE_PREFIX)
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(parent)
        .map_err(|error| StoreError::io("make a folder in", parent, error))?;
    let mut reader = ArchiveReader::begin(archive)?;
    let manifest = manifest(&mut reader)?;
    let mut memory_files = 0;
    let mut database = false;
    while let Some(entry) = reader.next()? {
        if entry.name == DATABASE {
            database = true;
        } else if place::is_memory_name(&entry.name) {
            memory_files += 1;
        } else {
            // Named by its place: what cannot be told apart from damage is not repeated.
            return Err(StoreError::BackupDamaged { why: "it holds an entry that no backup has".into() });
        }
        let path = temp.path().join(&entry.name);
        let folder = path.parent().unwrap_or(parent);
        private_folder(folder)?;
        let mut file: File = private_file(&path, OpenOptions::new().create_new(true).write(true))?;
        reader.copy(entry, &mut file, &path)?;
        file.sync_all().map_err(|error| StoreError::io("sync", &path, error))?;
        sync_folder(folder)?;
    }
    if !database {
        return Err(StoreError::BackupDamaged { why: format!("it holds no {DATABASE}") });
    }
    let memory = temp.path().join(place::MEMORY);
    if memory_files > 0 {
        sync_folder(&memory)?;
    }
    Ok(Staged { folder: temp, manifest, memory_files })
}

/// Everything that must hold before a restored file may be opened by a store.
pub(super) async fn check(staged: &Staged, log_id: LogId) -> Result<VerifyReport, StoreError> {
    let path = staged.folder.path().join(DATABASE);
    let found = schema::version(&path).await?;
    if found > schema::VERSION {
        return Err(StoreError::SchemaTooNew { found, known: schema::VERSION });
    }
    let mut conn = open_read_only(&path).await?;
    let stored = log_id_in(&mut conn).await;
    let _ = conn.close().await;
    let stored = stored?.ok_or_else(|| StoreError::BackupDamaged { why: "its database has no log_id".into() })?;
    if (stored != log_id || staged.manifest.log_id != log_id) && guard("restore_log") {
        return Err(StoreError::OtherLog);
    }
    let report = verify_file(&path, Some(log_id)).await?;
    if !report.ok && guard("restore_verify") {
        return Err(StoreError::BackupDamaged { why: format!("its log does not hold: {}", report.statement) });
    }
    if report.head.is_some_and(|head| head != staged.manifest.head) {
        return Err(StoreError::BackupDamaged { why: "its manifest names another head than its log has".into() });
    }
    Ok(report)
}

async fn standing(staged: &Staged, record: &Record) -> Result<Standing, StoreError> {
    let Some(PublishedHead { log_id, seq, hash }) = record.status.head else { return Ok(Standing::Unpublished) };
    let published = Head { seq, hash };
    let mut conn = open_read_only(&staged.folder.path().join(DATABASE)).await?;
    let found = row_at(&mut conn, seq).await;
    let _ = conn.close().await;
    Ok(match found? {
        _ if log_id != record.spec.log_id => Standing::Forked { published },
        None => Standing::Behind { published },
        Some((found, _)) if found != hash => Standing::Forked { published },
        Some(_) => Standing::HoldsPublished,
    })
}
