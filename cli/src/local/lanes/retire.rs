//! A lane whose manifest was removed: its memory is kept, or erased if that was asked for and confirmed.
//!
//! # Order of keeping
//! The store is closed (its head is published); the record is copied into `lane.json`; the folder moves to
//! `retained/`; the record is removed, which frees the collection. A kill in between is carried on from
//! `lane.json` at the next start.
//!
//! # Order of erasing
//! The store is closed; the folder gets a name that no lane has; the record is removed; the folder is removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lanekeeper_core::hooks::guard;
use lanekeeper_core::time::format_rfc3339_ms;
use lanekeeper_core::{LaneName, LaneUid};
use lanekeeper_crds::annotations::{ADOPT, CONFIRM_DELETE};
use lanekeeper_crds::lane::DeletionPolicy;
use lanekeeper_federation::{Record, RegistryError};

use super::{Lanes, Refused};
use crate::local::data::{UNFINISHED, failed, folder_name, rename, sync};
use crate::local::lane_client::LocalLane;
use crate::local::lane_file::{self, LaneFile, Stage};

/// Prefix of a folder that is being removed.
const DELETING: &str = ".deleting-";

/// A removal that will be finished, now or at the next start.
enum Begun {
    /// `lane.json` says so.
    Keeping(Box<LaneFile>),
    /// The folder has a name that no lane has.
    Erasing(PathBuf),
}

/// Closes a store, if it is open: no call reaches it from here on.
pub(super) async fn close(client: &LocalLane) {
    if let Some(store) = client.take() {
        store.close().await;
    }
}

/// [`close`], without waiting for it.
pub(super) fn close_behind(client: &Arc<LocalLane>) {
    if let Some(store) = client.take() {
        tokio::spawn(async move { store.close().await });
    }
}

impl Lanes {
    pub(super) async fn remove(&mut self, name: &LaneName) -> Result<(), Refused> {
        let Some(live) = self.live.get(name) else { return Ok(()) };
        // Asked first, so that an unreadable registry costs the lane no downtime.
        self.own_record(&live.collection, live.file.uid).await?;
        // From here on nobody gets to it: first not by name, then not at all.
        let Some(live) = self.live.remove(name) else { return Ok(()) };
        close(&live.client).await;
        let outcome = self.begin(&live.file, &live.folder, &live.collection).await;
        let begun = match outcome {
            Ok(begun) => begun,
            Err(refused) => {
                // It is as it was, but closed; the next pass opens it and tries again.
                self.live.insert(name.clone(), live);
                return Err(refused);
            }
        };
        let finished = match begun {
            Begun::Keeping(file) => self.finish_retiring(&file, &live.folder).await,
            Begun::Erasing(folder) => self.finish_erasing(&live.file, &folder).await,
        };
        if let Err(Refused { code: _, why }) = finished {
            // Never opened again: its folder may have moved, and an empty one would be made in its place.
            self.blocked.insert(name.clone(), format!("its removal was not finished ({why}); a restart finishes it"));
        }
        Ok(())
    }

    /// Up to the one step after which there is no way back.
    async fn begin(&self, file: &LaneFile, folder: &Path, collection: &str) -> Result<Begun, Refused> {
        let LaneFile { lane, uid, manifest, .. } = file;
        match manifest.spec.deletion_policy {
            DeletionPolicy::Delete if manifest.confirms_delete(*uid) || !guard("confirm_delete") => {
                let gone = self.layout.lanes().join(format!("{DELETING}{}", folder_name(lane, *uid)));
                rename(folder, &gone)?;
                return Ok(Begun::Erasing(gone));
            }
            DeletionPolicy::Delete => tracing::warn!(
                %lane,
                "deletionPolicy is Delete, but the manifest did not confirm it with {CONFIRM_DELETE}: {uid}; the memory is kept"
            ),
            DeletionPolicy::Retain => {}
        }
        let record = self.own_record(collection, *uid).await?.map(Box::new);
        let at = format_rfc3339_ms(self.clock.now_ms());
        let file = LaneFile { stage: Stage::Retired { record, at }, ..file.clone() };
        file.write(folder)?;
        Ok(Begun::Keeping(Box::new(file)))
    }

    /// From the moment that `lane.json` says so.
    pub(super) async fn finish_retiring(&self, file: &LaneFile, folder: &Path) -> Result<(), Refused> {
        let LaneFile { lane, uid, .. } = file;
        let to = self.layout.retained_lane(lane, *uid);
        rename(folder, &to)?;
        self.free(file).await?;
        tracing::info!(
            %lane,
            kept_in = %to.display(),
            "the lane is removed and its memory is kept. A manifest of this name and owner has it back with the annotation {ADOPT}: {uid}"
        );
        Ok(())
    }

    async fn finish_erasing(&self, file: &LaneFile, gone: &Path) -> Result<(), Refused> {
        self.free(file).await?;
        self.remove_folder(gone)?;
        tracing::info!(lane = %file.lane, uid = %file.uid, "the lane is removed and its memory erased, as confirmed. Backups and exports are not reached");
        Ok(())
    }

    /// What a kill left behind, at start.
    pub(super) async fn sweep(&self) -> Result<(), Refused> {
        let lanes = self.layout.lanes();
        for entry in std::fs::read_dir(&lanes).map_err(failed("list", &lanes))? {
            let entry = entry.map_err(failed("list", &lanes))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(DELETING) {
                // A file that cannot be read keeps its record; the collection then stays taken, and says so.
                if let Ok(file) = LaneFile::read_unbound(&entry.path()) {
                    self.free(&file).await?;
                }
                self.remove_folder(&entry.path())?;
            } else if name.starts_with(UNFINISHED) {
                // Never had a store.
                self.remove_folder(&entry.path())?;
            }
        }
        for retained in lane_file::retained(&self.layout)? {
            if let Ok(collection) =
                retained.file.as_ref().map_err(drop).and_then(|file| file.collection().map_err(drop))
            {
                self.remove_record(&collection, retained.uid).await?;
            }
        }
        Ok(())
    }

    fn remove_folder(&self, folder: &Path) -> Result<(), Refused> {
        std::fs::remove_dir_all(folder).map_err(failed("remove", folder))?;
        Ok(sync(&self.layout.lanes())?)
    }

    async fn free(&self, file: &LaneFile) -> Result<(), Refused> {
        match file.collection() {
            Ok(collection) => self.remove_record(&collection, file.uid).await,
            Err(error) => Err(Refused::new("manifest_refused", crate::failure::chain(&error))),
        }
    }

    /// Removes a record if it is this lane's.
    async fn remove_record(&self, collection: &str, uid: LaneUid) -> Result<(), Refused> {
        match self.own_record(collection, uid).await? {
            Some(_) => Ok(self.registry.remove(collection).await?),
            None => Ok(()),
        }
    }

    /// The record, if it is there, can be read, and is this lane's.
    async fn own_record(&self, collection: &str, uid: LaneUid) -> Result<Option<Record>, Refused> {
        match self.registry.read(collection).await {
            Ok(record) if record.spec.writer.uid == uid => Ok(Some(record)),
            Ok(_) | Err(RegistryError::Missing { .. } | RegistryError::Garbled { .. }) => Ok(None),
            Err(error @ (RegistryError::Unreadable { .. } | RegistryError::Taken { .. })) => Err(error.into()),
        }
    }
}
