//! Which physical collection is searched and which one is filled.
//!
//! Only the operator makes, exchanges and drops collections; a lane's key lacks the right. The two agree in
//! the FederationRecord: the store writes `status.wantedGeneration`, the operator makes that collection, the
//! store fills it and writes `status.filledGeneration`, the operator points the alias at it, raises
//! `spec.generation`, and drops the old one.
//!
//! What must always hold: the searched generation is the one in the record's spec; an empty collection is
//! never offered as filled (see [`Generations::offer`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lanekeeper_core::Generation;
use lanekeeper_core::cluster::qdrant::physical;
use lanekeeper_core::fingerprint::Fingerprint;
use lanekeeper_federation::{Record, Registry, RegistryError};

use super::super::VectorError;

/// Like the fence: what was read longer ago is read again before a write.
const FRESH: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    searched: Option<Generation>,
    shadow: Option<Generation>,
    /// Somebody has seen what the shadow lacks, and will fill it.
    compared: bool,
    read: Option<Instant>,
}

/// Physical collections by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) searched: String,
    pub(super) shadow: Option<String>,
}

impl Names {
    /// All that are written to.
    pub(super) fn written(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.searched.as_str()).chain(self.shadow.as_deref())
    }

    /// The one that healing looks at.
    pub(super) fn newest(&self) -> &str {
        self.shadow.as_deref().unwrap_or(&self.searched)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Generations {
    registry: Arc<dyn Registry>,
    alias: String,
    dimension: usize,
    fingerprint: Fingerprint,
    known: Mutex<Known>,
}

impl Generations {
    pub(super) fn new(registry: Arc<dyn Registry>, alias: String, dimension: usize, fingerprint: Fingerprint) -> Self {
        Self { registry, alias, dimension, fingerprint, known: Mutex::new(Known::default()) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn searched(&self) -> Generation {
        self.known().searched.unwrap_or_default()
    }

    pub(super) fn shadow(&self) -> Option<Generation> {
        self.known().shadow
    }

    pub(super) fn name(&self, generation: Generation) -> String {
        physical(&self.alias, u32::try_from(self.dimension).unwrap_or(u32::MAX), &self.fingerprint, generation)
    }

    /// The record, read now. What it says is known from here on.
    pub(super) async fn read(&self) -> Result<Record, VectorError> {
        let record = self.registry.read(&self.alias).await.map_err(|error| unreadable(&error))?;
        if record.spec.fingerprint != self.fingerprint {
            return Err(VectorError::Unavailable("the record declares another fingerprint".into()));
        }
        self.learn(&record);
        Ok(record)
    }

    fn learn(&self, record: &Record) {
        let mut known = self.known();
        let searched = record.spec.generation;
        if known.searched.is_none() {
            // A shadow that an earlier run of the store began.
            known.shadow = record.status.wanted_generation.filter(|wanted| *wanted > searched);
            known.compared = false;
        }
        // Never backwards: an answer of the registry may be older than the one before.
        if known.searched.is_none_or(|before| searched > before) {
            known.searched = Some(searched);
        }
        if known.shadow.is_some_and(|shadow| shadow <= searched) {
            known.shadow = None;
            known.compared = false;
        }
        known.read = Some(Instant::now());
    }

    /// The collections as they are named now. Where the registry cannot be read the last answer stands: a
    /// collection that is gone since shows itself in the call.
    pub(super) async fn names(&self) -> Result<Names, VectorError> {
        let known = *self.known();
        let stale = known.searched.is_none() || known.read.is_none_or(|read| read.elapsed() >= FRESH);
        if stale && let Err(error) = self.read().await {
            if known.searched.is_none() {
                return Err(error);
            }
            self.known().read = Some(Instant::now());
        }
        let known = *self.known();
        let searched = known.searched.unwrap_or_default();
        Ok(Names { searched: self.name(searched), shadow: known.shadow.map(|shadow| self.name(shadow)) })
    }

    /// Asks the operator for the next generation, or for the one that was asked for already.
    pub(super) async fn want(&self) -> Result<Generation, VectorError> {
        let record = self.read().await?;
        let searched = record.spec.generation;
        if let Some(wanted) = record.status.wanted_generation.filter(|wanted| *wanted > searched) {
            return Ok(wanted);
        }
        let next = searched.next();
        self.registry
            .change_status(
                &self.alias,
                Box::new(move |status| status.wanted_generation = status.wanted_generation.max(Some(next))),
            )
            .await
            .map_err(|error| unreadable(&error))?;
        Ok(next)
    }

    /// The wanted collection is there: from here on it is written to. Whoever asked for it reopens every claim.
    pub(super) fn begin(&self, shadow: Generation) {
        let mut known = self.known();
        known.shadow = Some(shadow);
        known.compared = true;
    }

    /// All ids of the shadow have been given to healing, which reopens the claims of what it lacks.
    pub(super) fn compared(&self) {
        self.known().compared = true;
    }

    /// Tells the operator that the shadow is whole. Refused for a shadow of an earlier run that nobody has
    /// compared with the log yet: it may be empty with no claim open, and searching it would find nothing.
    pub(super) async fn offer(&self) -> Result<Generation, VectorError> {
        let known = *self.known();
        let Some(shadow) = known.shadow else {
            return Err(VectorError::Storage("there is no shadow to swap in".into()));
        };
        if !known.compared {
            return Err(VectorError::Unavailable("the shadow was not compared with the log yet".into()));
        }
        // Asked again and again while the operator is slow: only a real change is written.
        if self.read().await?.status.filled_generation < Some(shadow) {
            self.registry
                .change_status(
                    &self.alias,
                    Box::new(move |status| status.filled_generation = status.filled_generation.max(Some(shadow))),
                )
                .await
                .map_err(|error| unreadable(&error))?;
        }
        Ok(shadow)
    }
}

fn unreadable(error: &RegistryError) -> VectorError {
    VectorError::Unavailable(format!("which collection is the lane's is not known: {error}"))
}
