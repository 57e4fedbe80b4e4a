//! Opening stores: those of new lanes, resumed ones, and those that could not be opened before.

use lanekeeper_core::lane::LaneView;
use lanekeeper_lane_store::{LaneConfig, LaneParts, LaneSettings, LaneStore, StoreError};

use super::create::declare;
use super::{Lanes, Live, Refused};

/// How long after a failure it is tried again.
const AGAIN_MS: i64 = 5_000;

/// What may change while a store runs.
pub(super) fn settings(view: &LaneView) -> LaneSettings {
    LaneSettings {
        language: view.recall.language,
        projected_roles: view.projected_roles.clone(),
        min_score: view.recall.min_score,
    }
}

impl Lanes {
    /// Opens what should be open and is not. Several at once.
    pub(crate) async fn open_closed(&mut self) {
        let now_ms = self.clock.now_ms();
        let registry = self.registry.clone();
        let clock = self.clock.clone();
        let due = self.live.values_mut().filter(|live| {
            let waits = live.trouble.as_ref().is_some_and(|(_, at_ms)| *at_ms > now_ms);
            !live.view.suspend && !live.client.is_open() && !waits
        });
        let opening = due.map(|live| {
            let parts = LaneParts {
                registry: registry.clone(),
                encoder: live.encoder.clone(),
                vectors: None,
                clock: clock.clone(),
            };
            async move {
                live.trouble = open(live, parts).await.err().map(|refused| (refused, now_ms + AGAIN_MS));
            }
        });
        futures::future::join_all(opening).await;
    }
}

async fn open(live: &mut Live, parts: LaneParts) -> Result<(), Refused> {
    declare(parts.registry.as_ref(), live).await?;
    let config = LaneConfig {
        folder: live.folder.clone(),
        lane: live.file.lane.clone(),
        uid: live.file.uid,
        kind: live.view.kind,
        collection: live.collection.clone(),
        adopt: live.file.adopted_from,
        settings: settings(&live.view),
    };
    let store = LaneStore::open(config, parts).await.map_err(|error| Refused::new(code(&error), error.chain()))?;
    live.client.open(store);
    Ok(())
}

fn code(error: &StoreError) -> &'static str {
    match error {
        StoreError::Locked { .. } => "store_locked",
        StoreError::SchemaTooNew { .. } => "store_schema_too_new",
        StoreError::OtherLane { .. } => "store_other_lane",
        StoreError::OtherLog => "store_other_log",
        StoreError::FileGone { .. } => "store_file_gone",
        StoreError::Occupied { .. }
        | StoreError::BackupDamaged { .. }
        | StoreError::Io { .. }
        | StoreError::Sqlite { .. }
        | StoreError::Registry(_)
        | StoreError::Vectors(_)
        | StoreError::Malformed { .. }
        | StoreError::Lane(_) => "store_not_open",
    }
}
