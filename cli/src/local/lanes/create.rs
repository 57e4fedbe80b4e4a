//! A manifest becomes a lane: a new one, or a retained one under a new UID.

use lanekeeper_core::hooks::guard;
use lanekeeper_core::lane::LaneView;
use lanekeeper_core::{Epoch, Generation, Hash32, LaneName, LaneUid, LogId};
use lanekeeper_crds::Lane;
use lanekeeper_federation::{Record, RecordStatus, Registry, RegistryError};

use super::{Lanes, Live, Refused};
use crate::failure::chain;
use crate::local::data::{UNFINISHED, folder_name, random, rename, sync};
use crate::local::lane_file::{self, Found, LaneFile, Stage};

/// The lane as the parts below see it.
pub(super) fn view(file: &LaneFile) -> Result<LaneView, Refused> {
    file.manifest
        .to_view(file.uid, file.embedding.fingerprint())
        .map_err(|error| Refused::new("manifest_refused", chain(&error)))
}

/// A retained lane that a manifest may have back.
struct Adoptable {
    old: LaneUid,
    file: LaneFile,
    record: Option<Box<Record>>,
    folder: std::path::PathBuf,
}

impl Lanes {
    pub(super) async fn create(&mut self, name: &LaneName, lane: &Lane, source: &str) -> Result<(), Refused> {
        if let Some(refused) = self.blocked(name) {
            return Err(refused);
        }
        let collection = lane.full_collection().map_err(|error| Refused::new("manifest_refused", chain(&error)))?;
        self.refuse_taken(name, &collection).await?;
        let adoptable = match lane.adopts() {
            Some(asked) => self.adoptable(name, lane, asked)?,
            None => None,
        };
        let mut live = match adoptable {
            Some(adoptable) => self.adopt(name, lane, source, adoptable)?,
            None => self.make(name, lane, source)?,
        };
        let declared = declare(self.registry.as_ref(), &mut live).await;
        if let Err(refused) = declared {
            // It exists all the same; opening tries again.
            live.trouble = Some((refused, self.clock.now_ms()));
        }
        tracing::info!(lane = %name, uid = %live.file.uid, folder = %live.folder.display(), "the lane is made");
        self.live.insert(name.clone(), live);
        Ok(())
    }

    /// Whether somebody else writes the collection. Asked before anything is made.
    async fn refuse_taken(&self, name: &LaneName, collection: &str) -> Result<(), Refused> {
        let record = match self.registry.read(collection).await {
            Err(RegistryError::Missing { .. }) => return Ok(()),
            other => other?,
        };
        let writer = &record.spec.writer;
        let holder = format!("{}/{}", writer.namespace, writer.name);
        if holder == name.to_string() {
            return Err(Refused::new(
                "collection_taken",
                format!(
                    "collection {collection} belongs to this name under uid {}, whose folder is not in {}: put it back, or remove {}/{collection}.json",
                    writer.uid,
                    self.layout.lanes().display(),
                    self.layout.records().display()
                ),
            ));
        }
        Err(Refused::new("collection_taken", format!("collection {collection} is written by lane {holder}")))
    }

    /// An empty lane under a new UID.
    fn make(&mut self, name: &LaneName, lane: &Lane, source: &str) -> Result<Live, Refused> {
        let embedding = self
            .embedders
            .for_new_lane(&lane.spec.embedder, &self.declared)
            .map_err(|why| Refused::new("embedder_unknown", why))?;
        let uid = LaneUid::from_uuid(uuid::Uuid::new_v4());
        let mut log_id = [0_u8; 32];
        random(&mut log_id, &self.layout.lanes())?;
        let log_id = LogId(Hash32::from_bytes(log_id));
        let file = LaneFile::new(name.clone(), uid, log_id, embedding, lane.clone(), source.to_owned());
        let folder = self.layout.lane(name, uid);
        let unfinished = self.layout.lanes().join(format!("{UNFINISHED}{}", folder_name(name, uid)));
        let live = self.revive(file, folder.clone())?;
        // umask 077: private from the first byte.
        std::fs::create_dir(&unfinished).map_err(crate::local::data::failed("make", &unfinished))?;
        live.file.write(&unfinished)?;
        sync(&unfinished)?;
        rename(&unfinished, &folder)?;
        Ok(live)
    }

    /// The retained lane that `asked` names, if this manifest may have it. One that may not starts empty.
    fn adoptable(&self, name: &LaneName, lane: &Lane, asked: &str) -> Result<Option<Adoptable>, Refused> {
        let unknown = |why: String| Refused::new("adopt_unknown", why);
        let uid: LaneUid = asked
            .parse()
            .map_err(|_| unknown(format!("the annotation lanekeeper.dev/adopt must be a UID, not {asked:?}")))?;
        let mut of_this_name = lane_file::retained(&self.layout)?.into_iter().filter(|found| found.lane == *name);
        let Some(Found { lane: _, uid: old, folder, file }) = of_this_name.by_ref().find(|found| found.uid == uid)
        else {
            return Err(unknown(format!(
                "asks for the memory of {uid}, and {} holds no such lane of this name; take the annotation out to start empty",
                self.layout.retained().display()
            )));
        };
        let file = file.map_err(|error| unknown(format!("asks for the memory of {uid}: {}", chain(&error))))?;
        let (was, is) = (&file.manifest.spec, &lane.spec);
        if (was.kind != is.kind || was.owner != is.owner) && guard("adopt_owner") {
            tracing::warn!(lane = %name, %uid, "the retained lane is of another kind or owner; this one starts empty");
            return Ok(None);
        }
        let record = match &file.stage {
            Stage::Retired { record, at: _ } | Stage::Adopting { record } => record.clone(),
            Stage::New | Stage::Active => None,
        };
        Ok(Some(Adoptable { old, file, record, folder }))
    }

    fn adopt(&mut self, name: &LaneName, lane: &Lane, source: &str, from: Adoptable) -> Result<Live, Refused> {
        let Adoptable { old, file, record, folder: retained } = from;
        let uid = LaneUid::from_uuid(uuid::Uuid::new_v4());
        let known = record.as_ref().map_or(Epoch(0), |record| record.spec.epoch);
        let file = LaneFile {
            uid,
            adopted_from: Some(old),
            // A change of writer.
            epoch: file.epoch.max(known).next(),
            stage: Stage::Adopting { record },
            source: source.to_owned(),
            manifest: lane.clone(),
            ..file
        };
        let folder = self.layout.lane(name, uid);
        let live = self.revive(file, folder.clone())?;
        live.file.write(&retained)?;
        rename(&retained, &folder)?;
        tracing::info!(lane = %name, %uid, adopted = %old, "the lane has its retained memory back");
        Ok(live)
    }
}

/// Makes the record of a lane that has none yet. One that had a record never gets a second.
pub(super) async fn declare(registry: &dyn Registry, live: &mut Live) -> Result<(), Refused> {
    let status = match &live.file.stage {
        Stage::Active => return Ok(()),
        Stage::Retired { .. } => return Err(Refused::new("lane_missing", "the lane is being removed")),
        Stage::New => None,
        Stage::Adopting { record } => record.as_ref().map(|record| (record.spec.generation, record.status.clone())),
    };
    let generation = status.as_ref().map_or(Generation(1), |(generation, _)| *generation);
    registry.declare(live.file.record(live.collection.clone(), generation)).await?;
    if let Some((_, RecordStatus { holder: _, head, wanted_generation, filled_generation })) = status {
        // The head goes along: a log that was rolled back while it was retained is still found out.
        let change = move |status: &mut RecordStatus| {
            *status = RecordStatus { holder: None, head, wanted_generation, filled_generation };
        };
        registry.change_status(&live.collection, Box::new(change)).await?;
    }
    let file = LaneFile { stage: Stage::Active, ..live.file.clone() };
    file.write(&live.folder)?;
    live.file = file;
    Ok(())
}
