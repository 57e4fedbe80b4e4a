//! The lanes this process can reach, as they are now.
//!
//! What must always hold: a directory answers from its current state at each call, so that removing access,
//! suspending a lane or making a name anew counts for the next request. It decides nothing: who reaches
//! which lane is [`crate::auth`]'s.

use std::sync::Arc;

use lanekeeper_core::encoder::Encoder;
use lanekeeper_core::lane::LaneView;
use lanekeeper_core::lane_client::LaneClient;
use lanekeeper_core::{LaneUid, Principal};

/// A lane with the ways to it.
#[derive(Debug)]
pub struct LaneHandle {
    /// The Lane as it is now.
    pub view: LaneView,
    /// Its store.
    pub client: Arc<dyn LaneClient>,
    /// The embedder of its fingerprint.
    pub encoder: Arc<dyn Encoder>,
}

/// All lanes.
pub trait LaneDirectory: Send + Sync {
    /// Every lane, current at this call. Cheap: it is called once a request.
    fn lanes(&self) -> Vec<Arc<LaneHandle>>;

    /// Whether the account behind a ServiceAccount's name is the one that first used its grant on this lane: a
    /// name that was made anew is another account. Asked only of a principal that has a role there now. A
    /// directory that knows no accounts admits all.
    fn admits_account(&self, lane: LaneUid, principal: &Principal, account_uid: &str) -> bool {
        let _ = (lane, principal, account_uid);
        true
    }
}
