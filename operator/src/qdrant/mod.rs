//! Collections in Qdrant: made, aliased, fenced and dropped by the operator alone. Absent where no Qdrant is
//! configured.
//!
//! # Flow of a lane
//! 1. The fence of the record's epoch is set: from then on the token of an older epoch opens nothing.
//! 2. The physical collection of the record's generation is made, with its payload indexes.
//! 3. The alias is pointed at it, if it points nowhere. (A swap is the record controller's: [`swap`].)
//! 4. Once a key, enforcement is proven with the lane's own token ([`prove`]).

pub mod client;
pub mod prove;
pub mod swap;
pub mod token;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use lanekeeper_core::cluster::{key, qdrant};
use lanekeeper_core::{Epoch, Generation};

use crate::error::{Error, is_missing};
use crate::keys::certificate::short;
use crate::status::{Finding, Reason};
use token::LaneToken;

/// Why Qdrant did not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It does not answer. Try again.
    #[error("Qdrant does not answer: {0}")]
    Unreachable(String),
    /// It refuses the key. Wait for another one.
    #[error("Qdrant refuses the key")]
    Refused,
    /// It answered with an error. A person should look.
    #[error("Qdrant: {0}")]
    Failed(String),
}

/// What the operator asks of Qdrant. Every method is idempotent.
#[async_trait]
pub trait Collections: Send + Sync + std::fmt::Debug {
    /// A collection of one unnamed vector (cosine) with the payload indexes of a lane.
    async fn make(&self, name: &str, dimension: u32) -> Result<(), Fault>;
    /// Where an alias points.
    async fn alias(&self, alias: &str) -> Result<Option<String>, Fault>;
    /// Points an alias at a collection, in one change.
    async fn point_alias(&self, alias: &str, collection: &str) -> Result<(), Fault>;
    /// Takes an alias away.
    async fn drop_alias(&self, alias: &str) -> Result<(), Fault>;
    /// Names of collections that begin so.
    async fn names(&self, prefix: &str) -> Result<Vec<String>, Fault>;
    /// Drops a collection with all in it.
    async fn drop_collection(&self, name: &str) -> Result<(), Fault>;
    /// Sets the one fence of `collection` to `epoch`.
    async fn set_fence(&self, collection: &str, epoch: Epoch) -> Result<(), Fault>;
    /// Takes the fence away: no token of any epoch opens anything any more.
    async fn drop_fence(&self, collection: &str) -> Result<(), Fault>;
    /// Points in a collection.
    async fn count(&self, name: &str) -> Result<u64, Fault>;
    /// Whether `token` (none: no key at all) may count the points of a collection.
    async fn admits(&self, token: Option<&str>, name: &str) -> Result<bool, Fault>;
}

/// Makes a connection: in tests something else.
pub type Connect = Box<dyn Fn(&str, &str) -> Result<Arc<dyn Collections>, Fault> + Send + Sync>;

/// Qdrant as it is configured.
pub struct Qdrant {
    url: String,
    secret: String,
    connect: Connect,
    connections: Mutex<HashMap<String, Connection>>,
    proofs: Mutex<HashMap<String, Finding>>,
}

impl std::fmt::Debug for Qdrant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Qdrant").field("url", &self.url).field("secret", &self.secret).finish_non_exhaustive()
    }
}

/// A key, and collections opened with it.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Qdrant's API key.
    pub api_key: lanekeeper_core::secret::Secret<String>,
    /// What it opens.
    pub collections: Arc<dyn Collections>,
    id: String,
}

impl Qdrant {
    /// At `url`, with the key in `secret` of the system namespace.
    #[must_use]
    pub fn new(url: String, secret: String, connect: Connect) -> Self {
        Self { url, secret, connect, connections: Mutex::default(), proofs: Mutex::default() }
    }

    /// The Secret's name.
    #[must_use]
    pub fn secret_name(&self) -> &str {
        &self.secret
    }

    /// A connection with the key as it is now. The inner error is what conditions say.
    pub async fn connection(&self, client: &Client, namespace: &str) -> Result<Result<Connection, Finding>, Error> {
        let name = &self.secret;
        let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
        let secret = match secrets.get(name).await {
            Ok(secret) => secret,
            Err(error) if is_missing(&error) => {
                let message = format!("there is no Secret {name} in {namespace}, which holds Qdrant's key");
                return Ok(Err(Finding::no(Reason::QdrantKeyMissing, message)));
            }
            Err(error) => return Err(Error::api("get", format!("Secret {namespace}/{name}"))(error)),
        };
        let stored = secret.data.as_ref().and_then(|data| data.get(key::QDRANT_API_KEY));
        let api_key = stored.and_then(|bytes| std::str::from_utf8(&bytes.0).ok()).map(str::trim).unwrap_or_default();
        if api_key.is_empty() {
            let message = format!("Secret {name} in {namespace} has no key {}", key::QDRANT_API_KEY);
            return Ok(Err(Finding::no(Reason::QdrantKeyMissing, message)));
        }
        let id = short(&[self.url.as_bytes(), api_key.as_bytes()]);
        let known = self.connections.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        if let Some(known) = known {
            return Ok(Ok(known));
        }
        let collections = match (self.connect)(&self.url, api_key) {
            Ok(collections) => collections,
            Err(fault) => return Ok(Err(self.finding(&fault))),
        };
        let made = Connection {
            api_key: lanekeeper_core::secret::Secret::new(api_key.to_owned()),
            collections,
            id: id.clone(),
        };
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        // The key before is of no use any more.
        connections.clear();
        connections.insert(id, made.clone());
        Ok(Ok(made))
    }

    /// What a condition says of a fault.
    #[must_use]
    pub fn finding(&self, fault: &Fault) -> Finding {
        match fault {
            Fault::Unreachable(_) => {
                Finding::no(Reason::QdrantUnreachable, format!("Qdrant at {} does not answer", self.url))
            }
            Fault::Refused => Finding::no(
                Reason::QdrantKeyRefused,
                format!("Qdrant at {} refuses the key in Secret {}", self.url, self.secret),
            ),
            Fault::Failed(said) => Finding::no(Reason::Refused, format!("Qdrant at {}: {said}", self.url)),
        }
    }

    /// What enforcement was found to be under this key; proven with this lane's token if it is not known.
    pub async fn enforcement(&self, connection: &Connection, lane: &LaneToken, now_s: i64) -> Finding {
        let known = self.proofs.lock().unwrap_or_else(PoisonError::into_inner).get(&connection.id).cloned();
        if let Some(known) = known {
            return known;
        }
        match prove::prove(connection, lane, now_s).await {
            Ok(finding) => {
                let mut proofs = self.proofs.lock().unwrap_or_else(PoisonError::into_inner);
                // A failure is looked at again at the next reconcile: somebody may just have turned it on.
                if finding.holds {
                    proofs.insert(connection.id.clone(), finding.clone());
                }
                finding
            }
            Err(fault) => self.finding(&fault),
        }
    }
}

/// Steps 1 to 3 of the flow.
pub async fn ensure(collections: &dyn Collections, lane: &LaneToken) -> Result<(), Fault> {
    collections.set_fence(&lane.collection, lane.epoch).await?;
    let physical = lane.physical(lane.generation);
    collections.make(&physical, lane.dimension).await?;
    let points_at = collections.alias(&lane.collection).await?;
    // Nowhere, or at a generation that was dropped after the record's was raised and before the crash.
    let ahead = points_at.as_deref().and_then(|name| generation_of(lane, name));
    if ahead.is_none_or(|generation| generation < lane.generation) {
        collections.point_alias(&lane.collection, &physical).await?;
    }
    Ok(())
}

/// The generation in a physical name of this lane's collection, whatever its fingerprint.
#[must_use]
pub fn generation_of(lane: &LaneToken, physical: &str) -> Option<Generation> {
    let rest = physical.strip_prefix(&qdrant::physical_prefix(&lane.collection))?;
    rest.rsplit_once("_g")?.1.parse().ok().map(Generation)
}
