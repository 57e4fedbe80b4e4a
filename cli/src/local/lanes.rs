//! The lanes of this machine: made, opened, changed, retired. One owner, the supervisor's task.
//!
//! # Flow
//! 1. [`Lanes::load`] reads what lies in the data folder and finishes what a kill cut short.
//! 2. [`Lanes::apply`] makes one change of a manifest happen, or says why not.
//! 3. [`Lanes::open_closed`] opens what should be open: new lanes, resumed ones, those that failed before.
//! 4. [`Lanes::publish`] shows the query API what there is, and the records who may read.
//!
//! # Guarantees
//! - Each step is one rename or one replaced file, in an order in which a kill leaves either the old state or
//!   one that `load` carries on from.
//! - A name whose folder cannot be understood stays closed. It is never bound to a new UID, which would look
//!   as if everything had been forgotten.

mod create;
mod open;
mod retire;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use lanekeeper_core::clock::Clock;
use lanekeeper_core::encoder::Encoder;
use lanekeeper_core::lane::LaneView;
use lanekeeper_core::{LaneName, LaneUid};
use lanekeeper_crds::Lane;
use lanekeeper_federation::{Registry, RegistryError};
use lanekeeper_query_service::LaneHandle;

use super::data::{DataError, Layout};
use super::directory::Directory;
use super::embedders::{Chosen, Declared, Embedders};
use super::lane_client::LocalLane;
use super::lane_file::{self, Found, LaneFile, Stage};
use super::manifests::Change;
use super::problems::{Problems, Subject};
use crate::failure::chain;

/// Why a change did not happen: a stable code, and words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: &'static str,
    pub(crate) why: String,
}

impl Refused {
    fn new(code: &'static str, why: impl Into<String>) -> Self {
        Self { code, why: why.into() }
    }
}

impl From<DataError> for Refused {
    fn from(error: DataError) -> Self {
        Self::new("data_folder", chain(&error))
    }
}

impl From<RegistryError> for Refused {
    fn from(error: RegistryError) -> Self {
        let code = match error {
            RegistryError::Taken { .. } => "collection_taken",
            RegistryError::Missing { .. } => "record_missing",
            RegistryError::Garbled { .. } => "record_garbled",
            RegistryError::Unreadable { .. } => "records_unreadable",
        };
        Self::new(code, error.to_string())
    }
}

/// A lane that exists.
#[derive(Debug)]
struct Live {
    file: LaneFile,
    folder: PathBuf,
    collection: String,
    view: LaneView,
    client: Arc<LocalLane>,
    encoder: Arc<dyn Encoder>,
    /// Why its vectors will never be made here.
    embedder_trouble: Option<String>,
    /// Why it is not open, and when it is tried again.
    trouble: Option<(Refused, i64)>,
    /// Who may read it, as the record was last told.
    readers: Option<Vec<LaneUid>>,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Lanes {
    layout: Layout,
    registry: Arc<dyn Registry>,
    embedders: Embedders,
    declared: Declared,
    clock: Arc<dyn Clock>,
    directory: Arc<Directory>,
    live: BTreeMap<LaneName, Live>,
    /// Names whose folders a person must look at.
    blocked: BTreeMap<LaneName, String>,
}

impl Lanes {
    pub(crate) fn new(
        layout: Layout,
        registry: Arc<dyn Registry>,
        embedders: Embedders,
        clock: Arc<dyn Clock>,
        directory: Arc<Directory>,
    ) -> Self {
        Self {
            layout,
            registry,
            embedders,
            declared: Declared::new(),
            clock,
            directory,
            live: BTreeMap::new(),
            blocked: BTreeMap::new(),
        }
    }

    /// Reads the data folder and finishes what was cut short. Opens nothing yet.
    pub(crate) async fn load(&mut self) -> Result<(), Refused> {
        self.sweep().await?;
        let mut found: BTreeMap<LaneName, Vec<Found>> = BTreeMap::new();
        for lane in lane_file::live(&self.layout)? {
            found.entry(lane.lane.clone()).or_default().push(lane);
        }
        for (name, mut folders) in found {
            if folders.len() > 1 {
                let paths: Vec<String> = folders.iter().map(|found| found.folder.display().to_string()).collect();
                self.blocked
                    .insert(name, format!("has several folders: {}; move all but one away", paths.join(" and ")));
                continue;
            }
            let Some(Found { lane: _, uid: _, folder, file }) = folders.pop() else { continue };
            let file = match file {
                Ok(file) => file,
                Err(error) => {
                    self.blocked.insert(name, chain(&error));
                    continue;
                }
            };
            match file.stage {
                Stage::Retired { .. } => self.finish_retiring(&file, &folder).await?,
                Stage::New | Stage::Active | Stage::Adopting { .. } => match self.revive(file, folder) {
                    Ok(live) => drop(self.live.insert(name, live)),
                    Err(refused) => drop(self.blocked.insert(name, refused.why)),
                },
            }
        }
        Ok(())
    }

    /// Every lane with its last accepted manifest and where that stood.
    pub(crate) fn known(&self) -> impl Iterator<Item = (LaneName, Lane, String)> {
        self.live.values().map(|live| (live.file.lane.clone(), live.file.manifest.clone(), live.file.source.clone()))
    }

    /// Embedders as they are declared now. Running lanes keep theirs; one that had none looks again.
    pub(crate) fn declare_embedders(&mut self, declared: Declared) {
        if self.declared == declared {
            return;
        }
        self.declared = declared;
        for live in self.live.values_mut().filter(|live| live.embedder_trouble.is_some()) {
            let Chosen { encoder, trouble } = self.embedders.choose(&live.file.embedding, &self.declared);
            if trouble.is_none() {
                tracing::info!(lane = %live.file.lane, "there is an embedder for the lane now; its store is opened again");
                live.encoder = encoder;
                live.trouble = None;
                // The store keeps the encoder it was opened with.
                retire::close_behind(&live.client);
            }
            live.embedder_trouble = trouble;
        }
    }

    /// Makes a change happen.
    pub(crate) async fn apply(&mut self, change: &Change) -> Result<(), Refused> {
        match change {
            Change::Create { name, lane, source } => self.create(name, lane, source).await,
            Change::Update { name, lane, source } => self.update(name, lane, source).await,
            Change::Remove { name } => self.remove(name).await,
        }
    }

    async fn update(&mut self, name: &LaneName, lane: &Lane, source: &str) -> Result<(), Refused> {
        let Some(live) = self.live.get_mut(name) else {
            return Err(Refused::new("lane_missing", "there is no such lane any more"));
        };
        if lane.spec.embedder != live.file.manifest.spec.embedder {
            return Err(Refused::new(
                "embedder_change",
                "spec.embedder: another embedding needs all vectors made again under it, which this version cannot do; the lane stays as it was",
            ));
        }
        let file = LaneFile { manifest: lane.clone(), source: source.to_owned(), ..live.file.clone() };
        let view = create::view(&file)?;
        file.write(&live.folder)?;
        let suspends = view.suspend && !live.view.suspend;
        live.file = file;
        live.view = view;
        match live.client.store() {
            Ok(store) if !suspends => store.set_settings(open::settings(&live.view)),
            Ok(_) | Err(_) => {}
        }
        if suspends {
            retire::close(&live.client).await;
            tracing::info!(lane = %name, "the lane is suspended: it answers nothing and keeps everything");
        } else {
            tracing::info!(lane = %name, "the lane's manifest has changed and counts");
        }
        // A change may be what was waited for.
        live.trouble = None;
        Ok(())
    }

    /// Shows the query API what there is now, and tells each record who may read.
    pub(crate) async fn publish(&mut self, problems: &Problems) {
        let handles = self.live.values().map(|live| {
            Arc::new(LaneHandle { view: live.view.clone(), client: live.client.clone(), encoder: live.encoder.clone() })
        });
        // First who may ask, then what the stores believe: consent that is taken back counts at once.
        self.directory.replace(handles.collect());
        for live in self.live.values() {
            live.client.set_reasons(problems.codes_of(&live.file.lane));
        }
        self.tell_readers().await;
    }

    async fn tell_readers(&mut self) {
        let consenting: Vec<(LaneName, Vec<LaneUid>)> = self
            .live
            .iter()
            .map(|(name, target)| {
                let mut readers: Vec<LaneUid> = self
                    .live
                    .values()
                    .filter(|reader| target.view.consents_to(&reader.view))
                    .map(|reader| reader.file.uid)
                    .collect();
                readers.sort_unstable();
                (name.clone(), readers)
            })
            .collect();
        for (name, readers) in consenting {
            let Some(live) = self.live.get_mut(&name) else { continue };
            // A record that is not declared yet gets its readers once it is.
            if live.readers.as_ref() == Some(&readers) || live.file.stage != Stage::Active {
                continue;
            }
            match write_readers(self.registry.as_ref(), &live.collection, live.file.uid, readers.clone()).await {
                Ok(()) => live.readers = Some(readers),
                // Asked for again in the next pass. Until then the store refuses whoever is not in the record.
                Err(error) => tracing::debug!(lane = %name, %error, "the record was not told its readers"),
            }
        }
    }

    /// What is wrong with lanes that exist.
    pub(crate) fn problems(&self) -> Problems {
        let mut problems = Problems::default();
        for name in self.blocked.keys() {
            if let Some(Refused { code, why }) = self.blocked(name) {
                problems.add(Subject::Lane(name.clone()), code, why);
            }
        }
        for (name, live) in &self.live {
            let subject = || Subject::Lane(name.clone());
            if let Some((Refused { code, why }, _)) = &live.trouble {
                problems.add(subject(), code, why);
            }
            if let Some(why) = &live.embedder_trouble {
                problems.add(subject(), "embedder_unknown", why);
            }
            if let Some(asked) = live.file.manifest.adopts().filter(|asked| !live.file.has_adopted(asked)) {
                problems.add(
                    subject(),
                    "adopt_refused",
                    format!("asks for the memory of {asked}, which counts only when the lane is made, for a retained lane of the same name, kind and owner"),
                );
            }
        }
        problems
    }

    /// Closes every store, all at once.
    pub(crate) async fn close_all(&mut self) {
        futures::future::join_all(self.live.values().map(|live| retire::close(&live.client))).await;
    }

    #[cfg(test)]
    pub(crate) fn registry(&self) -> &dyn Registry {
        self.registry.as_ref()
    }

    /// Why a name stays closed, if it does.
    fn blocked(&self, name: &LaneName) -> Option<Refused> {
        let why = self.blocked.get(name)?;
        Some(Refused::new("lane_folder_unusable", format!("{why}; the lane stays closed")))
    }

    /// A live lane from its file.
    fn revive(&mut self, file: LaneFile, folder: PathBuf) -> Result<Live, Refused> {
        let view = create::view(&file)?;
        let Chosen { encoder, trouble } = self.embedders.choose(&file.embedding, &self.declared);
        Ok(Live {
            collection: view.collection.clone(),
            file,
            folder,
            view,
            client: Arc::default(),
            encoder,
            embedder_trouble: trouble,
            trouble: None,
            readers: None,
        })
    }
}

/// Writes readers into a record of this lane, if they are others than it has.
async fn write_readers(
    registry: &dyn Registry,
    collection: &str,
    uid: LaneUid,
    readers: Vec<LaneUid>,
) -> Result<(), RegistryError> {
    let record = registry.read(collection).await?;
    if record.spec.writer.uid != uid || record.spec.readers == readers {
        return Ok(());
    }
    registry.change_spec(collection, Box::new(move |spec| spec.readers.clone_from(&readers))).await.map(drop)
}
