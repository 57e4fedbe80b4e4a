//! `lane.json`: what the program knows of a lane, kept in the lane's own folder.
//!
//! What must always hold: it is replaced whole; the name in it and its UID are those of the folder, which is
//! how a name is bound to a UID; `log_id` is in it before the store's first start; the manifest is the last
//! accepted one, against which a change is checked.
//!
//! A lane's folder is never seen without it: it is written before the folder gets its name.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use lanekeeper_core::fingerprint::FingerprintFields;
use lanekeeper_core::{Epoch, Generation, LaneName, LaneUid, LogId};
use lanekeeper_crds::Lane;
use lanekeeper_federation::{Mode, Record, RecordSpec, Writer};
use serde::{Deserialize, Serialize};

use super::data::{DataError, Layout, failed, parse_folder_name, replace};

const NAME: &str = "lane.json";
const FORMAT: u32 = 1;

/// Where a lane is in its life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "stage", deny_unknown_fields)]
pub(crate) enum Stage {
    /// Made; its record may not be declared yet.
    New,
    /// Its record was declared, so a missing one is never made again.
    Active,
    /// Its manifest was removed. The record is kept here, so that its collection is free.
    Retired {
        /// `None`: it could not be read.
        record: Option<Box<Record>>,
        /// When, RFC 3339.
        at: String,
    },
    /// Taken out of `retained/` under a new UID; its record may not be declared yet.
    Adopting {
        /// As it was retired with.
        record: Option<Box<Record>>,
    },
}

/// The file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LaneFile {
    /// Of this file.
    pub(crate) format: u32,
    /// `namespace/name`.
    pub(crate) lane: LaneName,
    /// What the name is bound to.
    pub(crate) uid: LaneUid,
    /// The UID that the log was bound to before, where it was adopted.
    pub(crate) adopted_from: Option<LaneUid>,
    /// The identity of the log.
    pub(crate) log_id: LogId,
    /// The epoch of the record when this program last wrote it.
    pub(crate) epoch: Epoch,
    /// What the vectors are made with; stays what it was when the lane was made.
    pub(crate) embedding: FingerprintFields,
    /// Where it is in its life.
    pub(crate) stage: Stage,
    /// The manifest file that declared it last.
    pub(crate) source: String,
    /// The manifest as it was last accepted, defaults filled in.
    pub(crate) manifest: Lane,
}

/// Why a lane's file is not to be believed. The lane stays closed until a person has looked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaneFileError {
    /// It cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// It is not one.
    #[error("{} cannot be read as a lane's file: {reason}", path.display())]
    Garbled {
        /// The file.
        path: PathBuf,
        /// In words.
        reason: String,
    },
    /// It is another lane's.
    #[error("{} names lane {lane} with uid {uid}, which is not what the folder is called", path.display())]
    Elsewhere {
        /// The file.
        path: PathBuf,
        /// In the file.
        lane: LaneName,
        /// In the file.
        uid: LaneUid,
    },
}

impl LaneFile {
    /// Of a lane that has no log yet.
    pub(crate) fn new(
        lane: LaneName,
        uid: LaneUid,
        log_id: LogId,
        embedding: FingerprintFields,
        manifest: Lane,
        source: String,
    ) -> Self {
        Self {
            format: FORMAT,
            lane,
            uid,
            adopted_from: None,
            log_id,
            epoch: Epoch(1),
            embedding,
            stage: Stage::New,
            source,
            manifest,
        }
    }

    /// Reads a folder's file and compares it with the folder's name.
    pub(crate) fn read(folder: &Path) -> Result<Self, LaneFileError> {
        let file = Self::read_unbound(folder)?;
        let named = folder.file_name().and_then(|name| name.to_str()).and_then(parse_folder_name);
        if named == Some((file.lane.clone(), file.uid)) {
            return Ok(file);
        }
        Err(LaneFileError::Elsewhere { path: folder.join(NAME), lane: file.lane, uid: file.uid })
    }

    /// Reads a folder's file, whatever the folder is called.
    pub(crate) fn read_unbound(folder: &Path) -> Result<Self, LaneFileError> {
        let path = folder.join(NAME);
        let bytes = std::fs::read(&path).map_err(failed("read", &path))?;
        let garbled = |reason: String| LaneFileError::Garbled { path: path.clone(), reason };
        let file: Self = serde_json::from_slice(&bytes).map_err(|error| garbled(error.to_string()))?;
        if file.format != FORMAT {
            return Err(garbled(format!("its format is {}, this program's is {FORMAT}", file.format)));
        }
        Ok(file)
    }

    /// Writes it.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), DataError> {
        let path = folder.join(NAME);
        let bytes =
            serde_json::to_vec_pretty(self).map_err(|error| failed("write", &path)(std::io::Error::other(error)))?;
        replace(&path, &bytes)
    }

    /// Whether this lane has taken over the log of `uid`.
    pub(crate) fn has_adopted(&self, uid: &str) -> bool {
        self.adopted_from.is_some_and(|from| from.to_string() == uid)
    }

    /// `<namespace>.<collection>`.
    pub(crate) fn collection(&self) -> Result<String, lanekeeper_crds::view::ViewError> {
        self.manifest.full_collection()
    }

    /// What the federation record must say.
    pub(crate) fn record(&self, collection: String, generation: Generation) -> RecordSpec {
        RecordSpec {
            collection,
            writer: Writer {
                namespace: self.lane.namespace().to_owned(),
                name: self.lane.name().to_owned(),
                uid: self.uid,
            },
            mode: Mode::ReadWrite,
            log_id: self.log_id,
            fingerprint: self.embedding.fingerprint(),
            epoch: self.epoch,
            generation,
            // Filled in as soon as all lanes are known.
            readers: Vec::new(),
        }
    }
}

/// A folder of `lanes/` or `retained/`: by its name, and what its file says.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) lane: LaneName,
    pub(crate) uid: LaneUid,
    pub(crate) folder: PathBuf,
    pub(crate) file: Result<LaneFile, LaneFileError>,
}

/// Every lane in `lanes/`. Folders that are not named as one are left alone.
pub(crate) fn live(layout: &Layout) -> Result<Vec<Found>, DataError> {
    found(&layout.lanes(), LaneFile::read)
}

/// Every lane in `retained/`. An adoption that was cut short leaves a file that names the new UID already;
/// the folder's name is what counts.
pub(crate) fn retained(layout: &Layout) -> Result<Vec<Found>, DataError> {
    found(&layout.retained(), LaneFile::read_unbound)
}

fn found(folder: &Path, read: fn(&Path) -> Result<LaneFile, LaneFileError>) -> Result<Vec<Found>, DataError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("list", folder)(error)),
    };
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed("list", folder))?;
        let named = entry.file_name().to_str().and_then(parse_folder_name);
        if let Some((lane, uid)) = named {
            let folder = entry.path();
            let file = read(&folder);
            all.push(Found { lane, uid, folder, file });
        }
    }
    all.sort_by(|a, b| (&a.lane, a.uid).cmp(&(&b.lane, b.uid)));
    Ok(all)
}

#[cfg(test)]
pub(crate) mod tests {
    use lanekeeper_core::Hash32;
    use lanekeeper_crds::{Manifest, parse_lane_manifest};

    use super::*;

    pub(crate) fn manifest(text: &str) -> Lane {
        match parse_lane_manifest(text, "default").unwrap().remove(0).unwrap() {
            Manifest::Lane(lane) => *lane,
            Manifest::Embedder(_) => panic!("not a lane"),
        }
    }

    fn file() -> LaneFile {
        let lane = manifest(
            "apiVersion: lanekeeper.dev/v1alpha1\nkind: Lane\nmetadata: {name: bob, namespace: team}\nspec: {kind: personal, owner: bob}",
        );
        LaneFile::new(
            "team/bob".parse().unwrap(),
            "01939a00-0000-7000-8000-000000000001".parse().unwrap(),
            LogId(Hash32::from_bytes([7; 32])),
            FingerprintFields::builtin(),
            lane,
            "bob.yaml".into(),
        )
    }

    #[test]
    fn a_file_comes_back_as_it_was_and_only_in_its_own_folder() {
        let temp = tempfile::tempdir().unwrap();
        let own = temp.path().join("team.bob.01939a00-0000-7000-8000-000000000001");
        std::fs::create_dir(&own).unwrap();
        for stage in [
            Stage::New,
            Stage::Active,
            Stage::Adopting { record: None },
            Stage::Retired { record: None, at: "x".into() },
        ] {
            let file = LaneFile { stage, ..file() };
            file.write(&own).unwrap();
            assert_eq!(LaneFile::read(&own).unwrap(), file);
        }
        // A copy of the folder is no lane, and no other lane's folder takes it.
        let other = temp.path().join("team.ada.01939a00-0000-7000-8000-000000000002");
        std::fs::rename(&own, &other).unwrap();
        assert!(matches!(LaneFile::read(&other), Err(LaneFileError::Elsewhere { .. })));
        std::fs::write(other.join(NAME), "{").unwrap();
        assert!(matches!(LaneFile::read(&other), Err(LaneFileError::Garbled { .. })));
    }

    #[test]
    fn a_format_of_another_program_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        LaneFile { format: FORMAT + 1, ..file() }.write(temp.path()).unwrap();
        assert!(matches!(LaneFile::read_unbound(temp.path()), Err(LaneFileError::Garbled { .. })));
    }
}
