//! Curated memory: per owner a real `MEMORY.md` on the volume, its versions in the log, its paragraphs in
//! tables of their own.
//!
//! # Flow of a save
//! 1. One at a time: what an earlier save left unwritten is written first.
//! 2. The file on disk is read; If-Match is compared with what is there.
//! 3. What was edited by hand since the last write becomes an event before anything else (bytes that are not
//!    UTF-8 one of cause `conflict`, kept beside the file too).
//! 4. The event of the save, the paragraphs and `unwritten` commit together with it.
//! 5. Temp file, fsync, a last look at what is replaced, rename, fsync of the folder.
//! 6. `unwritten` is cleared.
//!
//! # Guarantees
//! - A kill anywhere ends with the file equal to the owner's last event (docs/decisions/0051). What was
//!   edited by hand meanwhile is in the log, and beside the file.
//! - Owners are never mixed: equal or contradicting paragraphs of two owners are two records.
//! - A read writes nothing and shows the file as it is on disk.
//!
//! # Caveats
//! - An edit by hand that lands between the last look at the file and the rename is lost; nothing lies
//!   between the two but the calls themselves.
//! - A missing file is written again from the log: to clear a memory, empty the file, save or forget.

mod absorb;
mod file;
mod forget;
mod history;
mod paragraphs;
mod reindex;
mod rows;
mod settle;
mod view;
mod write;

pub(crate) use reindex::reindex_memory;

use lanekeeper_core::LaneError;
use lanekeeper_core::hooks::guard;
use lanekeeper_core::lane_client::Caller;
use lanekeeper_core::scope::{Action, Decision, ScopePath};

use crate::error::StoreError;
use crate::store::LaneStore;
use file::OwnerFolder;

/// What a version of a file came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// A save.
    Save,
    /// Found on disk.
    HandEdit,
    /// Found on disk, kept beside the file, never the file itself.
    Conflict,
    /// What a forget left.
    Forget,
}

impl Cause {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Save => "save",
            Self::HandEdit => "hand_edit",
            Self::Conflict => "conflict",
            Self::Forget => "forget",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Save, Self::HandEdit, Self::Conflict, Self::Forget].into_iter().find(|cause| cause.as_str() == text)
    }
}

/// Whether this caller may read an owner's memory. The one place that decides it for listing, search,
/// history and recall.
fn may_read(caller: &Caller, owner: &str) -> bool {
    caller.on_memory(owner, Action::MemoryRead) == Decision::Auto || !guard("memory_owner_scope")
}

/// Runs file work off the runtime.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, LaneError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(LaneError::internal)?;
    done.map_err(|error| {
        tracing::warn!(error = %error.chain(), "the curated file on the volume");
        LaneError::Unavailable { what: "the curated file on the volume".into() }
    })
}

impl LaneStore {
    /// An owner is one checked path segment, whoever asks.
    fn owner_folder(&self, owner: &str) -> Result<OwnerFolder, LaneError> {
        ScopePath::memory(&self.config.lane, self.config.uid, owner)
            .map_err(|error| LaneError::invalid("owner", error.rule))?;
        Ok(OwnerFolder::new(&self.volume.memory(), owner))
    }
}
