//! A data folder with real lanes, for tests. There is no model: nothing here needs one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::StreamExt as _;
use lanekeeper_core::clock::SystemClock;
use lanekeeper_core::lane_client::{AppendRequest, Caller, LaneStatus};
use lanekeeper_core::scope::EffectiveScope;
use lanekeeper_core::wire::events::{SaveRequest, Turn, TurnRole};
use lanekeeper_core::{LaneName, LaneUid};
use lanekeeper_crds::Lane;
use lanekeeper_federation::{FileRegistry, Record};
use lanekeeper_query_service::{LaneDirectory as _, LaneHandle};

use super::data::DataFolder;
use super::directory::Directory;
use super::embedders::Embedders;
use super::lane_file::tests::manifest;
use super::lanes::{Lanes, Refused};
use super::late_encoder::LateEncoder;
use super::manifests::Change;

/// A data folder and the lanes on it; `restart` is a new process on the same folder.
pub(crate) struct World {
    pub(crate) temp: tempfile::TempDir,
    pub(crate) lanes: Lanes,
    pub(crate) directory: Arc<Directory>,
    _data: DataFolder,
}

pub(crate) fn name(text: &str) -> LaneName {
    text.parse().unwrap()
}

pub(crate) fn lane(name: &str, spec: &str, annotations: &str) -> Lane {
    manifest(&format!(
        "apiVersion: lanekeeper.dev/v1alpha1\nkind: Lane\nmetadata: {{name: {name}, namespace: team, annotations: {{{annotations}}}}}\nspec: {spec}"
    ))
}

pub(crate) fn bob() -> Lane {
    lane("bob", "{kind: personal, owner: bob}", "")
}

fn on(temp: &Path) -> (Lanes, Arc<Directory>, DataFolder) {
    let data = DataFolder::open(&temp.join("data")).unwrap();
    let registry = FileRegistry::open(data.layout.records()).unwrap();
    let embedders = Embedders::new(Arc::new(LateEncoder::builtin()), None).unwrap();
    let directory = Arc::new(Directory::default());
    let lanes =
        Lanes::new(data.layout.clone(), Arc::new(registry), embedders, Arc::new(SystemClock), directory.clone());
    (lanes, directory, data)
}

impl World {
    pub(crate) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let (lanes, directory, data) = on(temp.path());
        Self { temp, lanes, directory, _data: data }
    }

    /// As a pass does it, but for the manifests.
    pub(crate) async fn settle(&mut self) {
        self.lanes.open_closed().await;
        let problems = self.lanes.problems();
        self.lanes.publish(&problems).await;
    }

    /// The process ends in order; its folder is left.
    pub(crate) async fn stop(mut self) -> tempfile::TempDir {
        self.lanes.close_all().await;
        let Self { temp, lanes, directory, _data } = self;
        drop((lanes, directory, _data));
        temp
    }

    pub(crate) async fn restart(self) -> Self {
        Self::start(self.stop().await).await
    }

    /// A process on a folder that another one left.
    pub(crate) async fn start(temp: tempfile::TempDir) -> Self {
        let (mut lanes, directory, data) = on(temp.path());
        lanes.load().await.unwrap();
        let mut world = Self { temp, lanes, directory, _data: data };
        world.settle().await;
        world
    }

    pub(crate) async fn create(&mut self, lane: Lane) -> Result<(), Refused> {
        let name = lane.lane_name().unwrap();
        let outcome = self.lanes.apply(&Change::Create { name, lane: Box::new(lane), source: "x.yaml".into() }).await;
        self.settle().await;
        outcome
    }

    pub(crate) async fn update(&mut self, lane: Lane) -> Result<(), Refused> {
        let name = lane.lane_name().unwrap();
        let outcome = self.lanes.apply(&Change::Update { name, lane: Box::new(lane), source: "x.yaml".into() }).await;
        self.settle().await;
        outcome
    }

    pub(crate) async fn remove(&mut self, lane: &str) {
        self.lanes.apply(&Change::Remove { name: name(lane) }).await.unwrap();
        self.settle().await;
    }

    pub(crate) fn handle(&self, lane: &str) -> Option<Arc<LaneHandle>> {
        self.directory.lanes().into_iter().find(|handle| handle.view.name == name(lane))
    }

    pub(crate) fn uid(&self, lane: &str) -> LaneUid {
        self.handle(lane).unwrap().view.uid
    }

    pub(crate) async fn status(&self, lane: &str) -> LaneStatus {
        self.handle(lane).unwrap().client.status().await
    }

    /// The lane's owner.
    pub(crate) fn owner(&self, lane: &str) -> Caller {
        let handle = self.handle(lane).unwrap();
        let principal = handle.view.owner.clone().unwrap();
        Caller {
            scope: EffectiveScope { granted: handle.view.scope_of(&principal).unwrap().unwrap(), narrowed: None },
            principal,
            lane: handle.view.name.clone(),
            lane_uid: handle.view.uid,
            reading_lane: None,
        }
    }

    /// Saves a turn as the lane's owner.
    pub(crate) async fn save(&self, lane: &str, text: &str) {
        let handle = self.handle(lane).unwrap();
        let turn = Turn { role: TurnRole::Assistant, text: text.into(), speaker: None, at: None, metadata: None };
        let save = SaveRequest { session: "s".into(), turns: vec![turn], expected_head: None };
        handle.client.append(&self.owner(lane), AppendRequest { save, idempotency: None }).await.unwrap();
    }

    /// A backup as its owner gets it, in a file beside the data folder.
    pub(crate) async fn backup(&self, lane: &str) -> PathBuf {
        let handle = self.handle(lane).unwrap();
        let mut stream = handle.client.backup(&self.owner(lane)).await.unwrap();
        let mut bytes = Vec::new();
        while let Some(part) = stream.next().await {
            bytes.extend_from_slice(&part.unwrap());
        }
        let path = self.temp.path().join("lane.backup");
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) async fn record(&self, collection: &str) -> Option<Record> {
        self.lanes.registry().read(collection).await.ok()
    }

    pub(crate) fn folders(&self, within: &str) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.temp.path().join("data").join(within))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}
