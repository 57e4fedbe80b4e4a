//! The task that follows the manifests and owns the lanes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lanekeeper_core::clock::Clock;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::folder;
use super::lanes::{Lanes, Refused};
use super::manifests::{Change, Follower, Moment};
use super::problems::{Problems, Subject};

/// How often the folder is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// At start more often, until every file counts.
const EVERY_AT_START: Duration = Duration::from_millis(100);
/// A file that never settles (somebody writes it all the time) does not hold the start.
const START_WAIT: Duration = Duration::from_secs(5);

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Supervisor {
    manifests: PathBuf,
    follower: Follower,
    lanes: Lanes,
    clock: Arc<dyn Clock>,
    started: Instant,
    problems: Problems,
}

impl Supervisor {
    /// Loads what there is. Opens nothing yet.
    pub(crate) async fn start(manifests: PathBuf, mut lanes: Lanes, clock: Arc<dyn Clock>) -> Result<Self, Refused> {
        lanes.load().await?;
        let mut follower = Follower::default();
        for (name, lane, source) in lanes.known() {
            follower.set(name, lane, source);
        }
        Ok(Self { manifests, follower, lanes, clock, started: Instant::now(), problems: Problems::default() })
    }

    /// Looks until every manifest that is there counts and every lane has been opened once.
    pub(crate) async fn settle(&mut self) {
        let deadline = Instant::now() + START_WAIT;
        while !self.pass().await && Instant::now() < deadline {
            tokio::time::sleep(EVERY_AT_START).await;
        }
    }

    /// Looks once a second until it is told to stop, then closes every store.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !*stop.borrow_and_update() {
            tokio::select! {
                _ = ticks.tick() => {
                    self.pass().await;
                }
                changed = stop.changed() => {
                    if changed.is_err() {
                        break;
                    }
                }
            }
        }
        self.lanes.close_all().await;
    }

    /// One look. Whether every file counts as it is.
    pub(crate) async fn pass(&mut self) -> bool {
        let path = self.manifests.clone();
        let Ok(observation) = tokio::task::spawn_blocking(move || folder::scan(&path)).await else { return false };
        let steady_ms = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        let pass = self.follower.observe(Moment { steady_ms, wall_ms: self.clock.now_ms() }, observation);
        let mut problems = pass.problems;
        if let Some(embedders) = pass.embedders {
            self.lanes.declare_embedders(embedders);
        }
        // A removal may free the collection that a new lane waits for.
        let (removals, others): (Vec<Change>, Vec<Change>) =
            pass.changes.into_iter().partition(|change| matches!(change, Change::Remove { .. }));
        for change in removals.into_iter().chain(others) {
            match self.lanes.apply(&change).await {
                Ok(()) => self.happened(change),
                Err(Refused { code, why }) => problems.add(Subject::Lane(change.name().clone()), code, why),
            }
        }
        self.lanes.open_closed().await;
        problems.extend(self.lanes.problems());
        problems.tell(&self.problems);
        self.lanes.publish(&problems).await;
        self.problems = problems;
        pass.settled
    }

    fn happened(&mut self, change: Change) {
        match change {
            Change::Create { name, lane, source } | Change::Update { name, lane, source } => {
                self.follower.set(name, *lane, source);
            }
            Change::Remove { name } => self.follower.forget(&name),
        }
    }

    #[cfg(test)]
    pub(crate) fn problems(&self) -> &Problems {
        &self.problems
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use lanekeeper_core::clock::SystemClock;
    use lanekeeper_federation::FileRegistry;
    use lanekeeper_query_service::LaneDirectory as _;

    use super::*;
    use crate::local::data::DataFolder;
    use crate::local::directory::Directory;
    use crate::local::embedders::Embedders;
    use crate::local::late_encoder::LateEncoder;

    const BOB: &str = "apiVersion: lanekeeper.dev/v1alpha1\nkind: Lane\nmetadata: {name: bob, namespace: team}\nspec: {kind: personal, owner: bob}\n";

    struct World {
        temp: tempfile::TempDir,
        supervisor: Supervisor,
        directory: Arc<Directory>,
        _data: DataFolder,
    }

    impl World {
        async fn new(temp: tempfile::TempDir) -> Self {
            let manifests = temp.path().join("manifests");
            let _ = std::fs::create_dir(&manifests);
            let data = DataFolder::open(&temp.path().join("data")).unwrap();
            let registry = FileRegistry::open(data.layout.records()).unwrap();
            let embedders = Embedders::new(Arc::new(LateEncoder::builtin()), None).unwrap();
            let directory = Arc::new(Directory::default());
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let lanes =
                Lanes::new(data.layout.clone(), Arc::new(registry), embedders, clock.clone(), directory.clone());
            let supervisor = Supervisor::start(manifests, lanes, clock).await.unwrap();
            Self { temp, supervisor, directory, _data: data }
        }

        /// Writes a manifest that counts at once, by its time stamp.
        fn write(&self, file: &str, text: &str) {
            let path = self.temp.path().join("manifests").join(file);
            std::fs::write(&path, text).unwrap();
            let old = SystemTime::now() - Duration::from_secs(60);
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        }

        async fn reasons(&self) -> Vec<String> {
            let handle = self.directory.lanes().remove(0);
            handle.client.status().await.reasons
        }

        async fn restart(mut self) -> Self {
            self.supervisor.lanes.close_all().await;
            let Self { temp, supervisor, directory, _data } = self;
            drop((supervisor, directory, _data));
            Self::new(temp).await
        }
    }

    #[tokio::test]
    async fn a_folder_becomes_lanes_and_its_troubles_are_said_where_the_lanes_are() {
        let mut world = World::new(tempfile::tempdir().unwrap()).await;
        assert!(world.supervisor.pass().await);
        assert!(world.directory.lanes().is_empty());
        world.write("bob.yaml", BOB);
        assert!(world.supervisor.pass().await);
        let uid = world.directory.lanes()[0].view.uid;
        assert!(world.reasons().await.is_empty());
        // A forbidden change: the old state goes on, also over a restart.
        world.write("bob.yaml", &BOB.replace("owner: bob", "owner: eve"));
        world.supervisor.pass().await;
        assert_eq!(world.reasons().await, ["manifest_refused"]);
        let mut world = world.restart().await;
        world.supervisor.settle().await;
        assert_eq!(world.reasons().await, ["manifest_refused"]);
        let handle = world.directory.lanes().remove(0);
        assert_eq!((handle.view.uid, handle.view.owner.clone().unwrap().to_string()), (uid, "user:bob".to_owned()));
        drop(handle);
        world.write("bob.yaml", BOB);
        world.supervisor.pass().await;
        assert!(world.reasons().await.is_empty());
    }

    #[tokio::test]
    async fn a_folder_that_vanishes_or_empties_is_reported_and_deletes_nothing() {
        let mut world = World::new(tempfile::tempdir().unwrap()).await;
        world.write("bob.yaml", BOB);
        world.supervisor.pass().await;
        let manifests = world.temp.path().join("manifests");
        std::fs::remove_file(manifests.join("bob.yaml")).unwrap();
        world.supervisor.pass().await;
        assert_eq!(world.reasons().await, ["manifests_emptied"]);
        std::fs::remove_dir(&manifests).unwrap();
        world.supervisor.pass().await;
        assert_eq!(world.reasons().await, ["manifests_unreadable"]);
        assert!(world.directory.lanes()[0].client.status().await.writable);
        // Also where it is so from the start.
        let mut world = world.restart().await;
        std::fs::remove_dir(&manifests).unwrap();
        world.supervisor.settle().await;
        assert_eq!(world.reasons().await, ["manifests_unreadable"]);
        assert_eq!(world.supervisor.problems().codes().len(), 1);
        assert!(world.directory.lanes()[0].client.status().await.writable);
    }
}
