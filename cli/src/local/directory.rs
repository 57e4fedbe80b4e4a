//! The lanes of this process, for the query API: replaced as a whole when one of them changes.

use std::sync::{Arc, PoisonError, RwLock};

use lanekeeper_query_service::{LaneDirectory, LaneHandle};

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Directory(RwLock<Vec<Arc<LaneHandle>>>);

impl Directory {
    /// What is there from now on.
    pub(crate) fn replace(&self, lanes: Vec<Arc<LaneHandle>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = lanes;
    }
}

impl LaneDirectory for Directory {
    fn lanes(&self) -> Vec<Arc<LaneHandle>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
