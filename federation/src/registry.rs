//! The registry as a question. Answered by files ([`crate::FileRegistry`]) or by the API server.

use async_trait::async_trait;

use crate::record::{Record, RecordSpec, RecordStatus};

/// Why the registry gives no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// No record of that collection. Wait for whoever declares it.
    #[error("no record of collection {collection}")]
    Missing {
        /// The collection.
        collection: String,
    },
    /// It is there and is not a record. A person must look.
    #[error("the record of collection {collection} cannot be read as one: {reason}")]
    Garbled {
        /// The collection.
        collection: String,
        /// In words.
        reason: String,
    },
    /// Another lane declared the collection first.
    #[error("collection {collection} is written by {holder}")]
    Taken {
        /// The collection.
        collection: String,
        /// Who holds it, `namespace/name`.
        holder: String,
    },
    /// The registry cannot be reached. Retry.
    #[error("the registry cannot be read: {reason}")]
    Unreadable {
        /// In words.
        reason: String,
    },
}

/// Changes a status in place. Called on the status as it is when it is written: where another writer came between,
/// once more on the newer one, so it must decide from what it is given and not from an earlier read.
pub type StatusChange = Box<dyn Fn(&mut RecordStatus) + Send + Sync>;
/// Changes a spec in place; called again as [`StatusChange`].
pub type SpecChange = Box<dyn Fn(&mut RecordSpec) + Send + Sync>;

/// Records by collection.
#[async_trait]
pub trait Registry: Send + Sync + std::fmt::Debug {
    /// The record as it is now.
    async fn read(&self, collection: &str) -> Result<Record, RegistryError>;
    /// Declares a collection. If it is declared: the record that stands, if its writer is the same lane
    /// (by UID), else [`RegistryError::Taken`].
    async fn declare(&self, spec: RecordSpec) -> Result<Record, RegistryError>;
    /// Changes the spec under the registry's lock. For the operator and the local program.
    async fn change_spec(&self, collection: &str, change: SpecChange) -> Result<Record, RegistryError>;
    /// Changes the status under the registry's lock. For the store alone.
    async fn change_status(&self, collection: &str, change: StatusChange) -> Result<Record, RegistryError>;
    /// Removes a record. For the operator and the local program.
    async fn remove(&self, collection: &str) -> Result<(), RegistryError>;
    /// The pod this process is, where holders are pods: its UID. Then the lock on a volume does not show that the
    /// holder before is gone, and a new one waits ([`crate::take_over`]). `None`: the lock alone counts.
    fn pod(&self) -> Option<&str> {
        None
    }
}
