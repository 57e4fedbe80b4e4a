//! The engine of a Qdrant server, over gRPC: one collection a lane in a process that lanes share.
//!
//! # Flow
//! Searches go through the alias `<namespace>.<collection>`, so that an exchange of collections by the operator
//! is seen at once. Writes go to the physical collection of the record's generation, and to the shadow's while
//! there is one: an admitted write of a writer that was replaced can then never land in its successor's
//! collection. `wait=true`: what is answered is applied, so [`super::VectorStore::flush`] has nothing to do.
//!
//! # Guarantees
//! - No call outlives its deadline, and opening needs no server: what fails is said with the call.
//! - Every failure is one of [`VectorError`]'s: retry, wait for a key or a collection, or a person must look.
//! - The key is read again when its file changed or the server refuses it; while it is refused every call says
//!   [`VectorError::Refused`], and recall answers by text.
//! - It never makes, drops or renames a collection: a lane's key lacks the right, and the operator does.
//!
//! # Caveats
//! One call's points of more than 16 MiB are sent in several requests (the server takes 32 MiB at most): a
//! failure between them leaves the first ones written. Their claims are still open and are projected again.
//! What a server loses with its power although it had applied it is found by healing, at open and hourly.

mod calls;
mod convert;
mod credential;
mod failure;
mod generations;
mod requests;
mod store;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_core::fingerprint::Fingerprint;
use lanekeeper_federation::Registry;

use self::calls::Calls;
use self::credential::Credential;
use self::generations::Generations;
use super::VectorError;

/// How long calls may take.
#[derive(Debug, Clone, Copy)]
pub struct QdrantLimits {
    /// A question. Under the 8 s that a recall has in all.
    pub read: Duration,
    /// A write.
    pub write: Duration,
    /// For the operator to make a collection, or to exchange it for the filled one. A call that waited in vain
    /// says so and may be repeated: the operator goes on meanwhile.
    pub operator: Duration,
}

impl Default for QdrantLimits {
    fn default() -> Self {
        Self { read: Duration::from_secs(4), write: Duration::from_secs(30), operator: Duration::from_secs(10) }
    }
}

/// Where a lane's vectors are.
#[derive(Debug, Clone)]
pub struct QdrantSettings {
    /// The server's gRPC address, `http://host:6334` or `https://host:6334`.
    pub url: String,
    /// Holds the lane's JWT (or an API key); `None`: the server asks for none.
    pub credential_file: Option<PathBuf>,
    /// PEM of the CA of an `https` server; `None`: the machine's own.
    pub ca_file: Option<PathBuf>,
    /// The full name `<namespace>.<collection>`: the alias, and the name of the record.
    pub alias: String,
    /// Part of the physical name. The record must declare the same.
    pub fingerprint: Fingerprint,
    /// Length of the vectors.
    pub dimension: usize,
    /// Where the record is: its spec says which generation is searched, and its status asks for the next.
    pub registry: Arc<dyn Registry>,
    /// Deadlines.
    pub limits: QdrantLimits,
}

/// One lane's vectors on a Qdrant server. See the module.
#[derive(Debug)]
pub struct QdrantStore {
    calls: Calls,
    generations: Generations,
    alias: String,
    dimension: usize,
    limits: QdrantLimits,
}

impl QdrantStore {
    /// Opens the engine. Neither server nor registry need to be there: each call says what it lacks. Fails only
    /// for an address or a CA that can never work.
    pub async fn connect(settings: QdrantSettings) -> Result<Arc<Self>, VectorError> {
        let QdrantSettings { url, credential_file, ca_file, alias, fingerprint, dimension, registry, limits } =
            settings;
        let store = Self {
            calls: Calls::new(&url, ca_file.as_ref(), Credential::new(credential_file))?,
            generations: Generations::new(registry, alias.clone(), dimension, fingerprint),
            alias,
            dimension,
            limits,
        };
        if let Err(error) = store.generations.read().await {
            tracing::warn!(%error, "the vectors' generation is not known yet; recall goes through the alias");
        }
        Ok(Arc::new(store))
    }
}

#[cfg(test)]
mod tests;
