//! The in-process engine: one folder a lane, nothing listening, nothing shared.
//!
//! What must always hold: the engine's blocking calls never run on the runtime's own threads, and no vector
//! reaches it unchecked. What may run beside what is [`engine`]'s.
//!
//! Deliberately not here: any healing of single points. What the log says must be there is the store's to
//! compare and the projector's to make again.

mod convert;
mod engine;
mod folder;
mod reads;
mod shard;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lanekeeper_core::{EventId, Generation};
use uuid::Uuid;

use self::engine::Engine;
use super::points::{check, checked};
use super::{Found, Payload, Point, VectorError, VectorFilter, VectorStore};

/// Opens the vectors of one lane in `dir`, which is made if it is not there. Fails where another process has
/// them open or the folder cannot be made. Where the files cannot be used they are moved aside and the
/// collection is empty; where the volume is full the store answers [`VectorError::Unavailable`] and tries again
/// with each call.
pub(super) async fn open_store(dir: &Path, dimension: usize) -> Result<EdgeStore, VectorError> {
    let dir = dir.to_owned();
    let engine = tokio::task::spawn_blocking(move || Engine::open(&dir, dimension)).await.map_err(|_| stopped())??;
    Ok(EdgeStore { dimension, engine: Mutex::new(Some(Arc::new(engine))) })
}

/// See [`open_store`].
pub async fn open(dir: &Path, dimension: usize) -> Result<Arc<dyn VectorStore>, VectorError> {
    Ok(Arc::new(open_store(dir, dimension).await?))
}

/// How long a close waits for calls under way.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

fn stopped() -> VectorError {
    VectorError::Unavailable("the program is stopping".into())
}

/// One lane's vectors in this process.
#[derive(Debug)]
pub(super) struct EdgeStore {
    dimension: usize,
    /// `None` once closed.
    engine: Mutex<Option<Arc<Engine>>>,
}

impl EdgeStore {
    fn engine(&self) -> Option<Arc<Engine>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn blocking<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Engine) -> Result<T, VectorError> + Send + 'static,
    ) -> Result<T, VectorError> {
        let engine = self.engine().ok_or_else(stopped)?;
        tokio::task::spawn_blocking(move || run(&engine)).await.map_err(|error| {
            if error.is_panic() { VectorError::Unavailable("a call to the engine panicked".into()) } else { stopped() }
        })?
    }
}

#[async_trait]
impl VectorStore for EdgeStore {
    fn dimension(&self) -> usize {
        self.dimension
    }

    fn generation(&self) -> Generation {
        Generation(self.engine().map_or(0, |engine| engine.generation.load(Ordering::SeqCst)))
    }

    async fn upsert(&self, points: Vec<Point>) -> Result<(), VectorError> {
        let points = checked(points, self.dimension())?;
        if points.is_empty() {
            return Ok(());
        }
        self.blocking(move |engine| engine.upsert(&points)).await
    }

    async fn set_payload(&self, ids: Vec<Uuid>, payload: Payload) -> Result<(), VectorError> {
        self.blocking(move |engine| engine.set_payload(&ids, &payload)).await
    }

    async fn delete(&self, ids: Vec<Uuid>) -> Result<(), VectorError> {
        if ids.is_empty() {
            return Ok(());
        }
        self.blocking(move |engine| engine.delete(&ids)).await
    }

    async fn delete_event(&self, event_id: EventId) -> Result<(), VectorError> {
        self.blocking(move |engine| engine.delete_event(event_id)).await
    }

    async fn search(
        &self,
        vector: Vec<f32>,
        filter: VectorFilter,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<Found>, VectorError> {
        check(&vector, self.dimension())?;
        self.blocking(move |engine| engine.search(&vector, &filter, limit, offset)).await
    }

    async fn vectors_of(&self, events: Vec<EventId>) -> Result<HashMap<EventId, Vec<Vec<f32>>>, VectorError> {
        self.blocking(move |engine| engine.vectors_of(&events)).await
    }

    async fn vectors(&self, ids: Vec<Uuid>) -> Result<HashMap<Uuid, Vec<f32>>, VectorError> {
        self.blocking(move |engine| engine.vectors(&ids)).await
    }

    async fn existing(&self, ids: Vec<Uuid>) -> Result<Vec<Uuid>, VectorError> {
        // Each id once, however often it was asked for.
        let distinct: HashSet<Uuid> = ids.into_iter().collect();
        self.blocking(move |engine| engine.existing(&distinct.into_iter().collect::<Vec<_>>())).await
    }

    async fn all_ids(&self) -> Result<Vec<Uuid>, VectorError> {
        self.blocking(Engine::all_ids).await
    }

    async fn count(&self) -> Result<u64, VectorError> {
        self.blocking(Engine::count).await
    }

    async fn flush(&self) -> Result<(), VectorError> {
        self.blocking(Engine::flush).await
    }

    async fn close(&self) -> Result<(), VectorError> {
        let taken = self.engine.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(engine) = taken else { return Ok(()) };
        let flushed = {
            let engine = Arc::clone(&engine);
            tokio::task::spawn_blocking(move || engine.flush()).await.map_err(|_| stopped())?
        };
        // Calls under way still hold the engine; its files are free once the last one lets go.
        let deadline = Instant::now() + CLOSE_WAIT;
        while Arc::strong_count(&engine) > 1 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::task::spawn_blocking(move || drop(engine)).await.map_err(|_| stopped())?;
        flushed
    }

    async fn begin_shadow(&self) -> Result<Generation, VectorError> {
        self.blocking(Engine::begin_shadow).await
    }

    fn has_shadow(&self) -> bool {
        self.engine().is_some_and(|engine| engine.has_shadow.load(Ordering::SeqCst))
    }

    async fn swap_shadow(&self) -> Result<Generation, VectorError> {
        self.blocking(Engine::swap_shadow).await
    }
}

#[cfg(test)]
mod tests;
