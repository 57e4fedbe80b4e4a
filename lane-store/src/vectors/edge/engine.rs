//! The shards of one lane: the searched generation and its shadow.
//!
//! What must always hold: searches run beside each other and beside an update; updates, flushes and changes of
//! generation run one at a time (the engine's flush panics beside an update); a panic or a storage error in a
//! shard is an error here, and the shards are loaded again.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use lanekeeper_core::{EventId, Generation};
use qdrant_edge as edge;
use qdrant_edge::{EdgeShard, OperationError, UpdateOperation};
use uuid::Uuid;

use super::super::points::page;
use super::super::{Found, Payload, Point, VectorError, VectorFilter};
use super::convert;
use super::folder::Folder;
use super::reads::{existing, nearest, scroll};
use super::shard::{Failure, Opening, Shard};

/// Events asked for at a time.
const EVENTS_AT_A_TIME: usize = 256;

/// The reason is in the log: it names files, and callers see this.
fn loaded_again() -> VectorError {
    VectorError::Unavailable("it failed and was loaded again".into())
}

#[derive(Debug)]
pub(super) struct Shards {
    pub(super) searched: Shard,
    shadow: Option<Shard>,
    /// How often they were loaded again, so that one failure seen by many calls is mended once.
    loads: u64,
}

impl Shards {
    fn all(&self) -> impl Iterator<Item = &Shard> {
        std::iter::once(&self.searched).chain(&self.shadow)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Shard> {
        std::iter::once(&mut self.searched).chain(&mut self.shadow)
    }

    fn newest(&self) -> &Shard {
        self.shadow.as_ref().unwrap_or(&self.searched)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Engine {
    folder: Folder,
    pub(super) dimension: usize,
    /// Held by whatever writes, flushes or changes generations.
    writer: Mutex<()>,
    /// Held exclusively only while shards are loaded or exchanged.
    shards: RwLock<Shards>,
    pub(super) generation: AtomicU64,
    pub(super) has_shadow: AtomicBool,
    /// Written since the last flush.
    unflushed: AtomicBool,
    /// Something written was lost before a flush: the next flush must not call it durable.
    lost: AtomicBool,
}

impl Engine {
    pub(super) fn open(dir: &Path, dimension: usize) -> Result<Self, VectorError> {
        let failed = |error: std::io::Error| {
            if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::StorageFull) {
                VectorError::Unavailable(error.to_string())
            } else {
                VectorError::Storage(error.to_string())
            }
        };
        let folder = Folder::open(dir).map_err(failed)?;
        let known = folder.current().map_err(failed)?;
        let current = known.unwrap_or(Generation(1));
        if known.is_some() {
            folder.sweep(current).map_err(failed)?;
        }
        let (searched, opened) = Shard::open(&folder, current, dimension);
        report(current, &opened);
        let above = folder.generations().map_err(failed)?.into_iter().filter(|generation| *generation > current).min();
        let shadow = above.map(|generation| {
            let (shadow, opened) = Shard::open(&folder, generation, dimension);
            report(generation, &opened);
            shadow
        });
        if folder.has_room(0) {
            folder.point_to(current).map_err(failed)?;
        }
        Ok(Self {
            folder,
            dimension,
            writer: Mutex::new(()),
            generation: AtomicU64::new(current.0),
            has_shadow: AtomicBool::new(shadow.is_some()),
            shards: RwLock::new(Shards { searched, shadow, loads: 0 }),
            unflushed: AtomicBool::new(false),
            lost: AtomicBool::new(false),
        })
    }

    // No lock here is poisoned: engine calls are caught below it, and what they guard is loaded again.
    fn writing(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reading(&self) -> RwLockReadGuard<'_, Shards> {
        self.shards.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exchanging(&self) -> RwLockWriteGuard<'_, Shards> {
        self.shards.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks one shard; a broken one is loaded again for the next call.
    pub(super) fn ask<T>(
        &self,
        which: impl Fn(&Shards) -> &Shard,
        ask: impl Fn(&EdgeShard) -> Result<T, OperationError>,
    ) -> Result<T, VectorError> {
        for attempt in 0..2 {
            let shards = self.reading();
            let shard = which(&shards);
            let loaded = shard.is_open();
            match shard.run(&ask) {
                Ok(answer) => return Ok(answer),
                Err(Failure::Refused(error)) => return Err(error),
                Err(Failure::Broken(why)) => {
                    let seen = shards.loads;
                    drop(shards);
                    self.mend(seen, &why)?;
                    // A shard that was merely not loaded has not been asked yet.
                    if loaded || attempt > 0 {
                        return Err(loaded_again());
                    }
                }
            }
        }
        Err(loaded_again())
    }

    /// Writes to every shard. `bytes`: about how much.
    pub(super) fn write(
        &self,
        bytes: usize,
        write: impl Fn(&EdgeShard) -> Result<(), OperationError>,
    ) -> Result<(), VectorError> {
        let _writer = self.writing();
        self.write_held(bytes, write)
    }

    fn write_held(
        &self,
        bytes: usize,
        write: impl Fn(&EdgeShard) -> Result<(), OperationError>,
    ) -> Result<(), VectorError> {
        // Once for the vectors, once for the engine's log, and the indexes.
        if !self.folder.has_room((bytes as u64).saturating_mul(4)) {
            return Err(VectorError::Unavailable("the volume is full".into()));
        }
        self.load_missing()?;
        self.unflushed.store(true, Ordering::SeqCst);
        let (seen, failed) = self.each(|shard| shard.run(&write));
        match failed {
            None => Ok(()),
            Some(Failure::Refused(error)) => Err(error),
            Some(Failure::Broken(why)) => {
                self.mend(seen, &why)?;
                Err(loaded_again())
            }
        }
    }

    /// Calls every shard; the first failure, with the count of loads it was seen at.
    fn each(&self, call: impl Fn(&Shard) -> Result<(), Failure>) -> (u64, Option<Failure>) {
        let shards = self.reading();
        (shards.loads, shards.all().find_map(|shard| call(shard).err()))
    }

    fn load_missing(&self) -> Result<(), VectorError> {
        let shards = self.reading();
        let (seen, open) = (shards.loads, shards.all().all(Shard::is_open));
        drop(shards);
        if open { Ok(()) } else { self.mend(seen, "not loaded") }
    }

    /// Loads all shards again, unless that has been done since `seen`. What was written and not flushed counts
    /// as lost.
    fn mend(&self, seen: u64, why: &str) -> Result<(), VectorError> {
        let mut shards = self.exchanging();
        if shards.loads != seen && shards.all().all(Shard::is_open) {
            return Ok(());
        }
        shards.loads += 1;
        tracing::warn!(%why, "the vector engine failed and is loaded again");
        if self.unflushed.swap(false, Ordering::SeqCst) {
            self.lost.store(true, Ordering::SeqCst);
        }
        for shard in shards.all_mut() {
            let opened = shard.reopen(&self.folder);
            report(shard.generation(), &opened);
            opened?;
        }
        Ok(())
    }

    pub(super) fn flush(&self) -> Result<(), VectorError> {
        let _writer = self.writing();
        self.flush_held()
    }

    fn flush_held(&self) -> Result<(), VectorError> {
        self.load_missing()?;
        let (seen, failed) = self.each(Shard::flush);
        match failed {
            None => {}
            Some(Failure::Refused(error)) => return Err(error),
            Some(Failure::Broken(why)) => {
                self.mend(seen, &why)?;
                // This call says so itself.
                self.lost.store(false, Ordering::SeqCst);
                return Err(loaded_again());
            }
        }
        self.unflushed.store(false, Ordering::SeqCst);
        if self.lost.swap(false, Ordering::SeqCst) {
            return Err(VectorError::Unavailable("what was written last may be lost; write it again".into()));
        }
        if self.reading().all().any(Shard::log_is_long) {
            let mut shards = self.exchanging();
            for shard in shards.all_mut() {
                report(shard.generation(), &shard.reopen(&self.folder));
            }
        }
        Ok(())
    }

    pub(super) fn upsert(&self, points: &[Point]) -> Result<(), VectorError> {
        let bytes = points.iter().map(|point| point.vector.len() * 4 + 1024).sum();
        let points: Vec<edge::PointStructPersisted> = points.iter().map(convert::point).collect();
        self.write(bytes, |shard| {
            shard.update(UpdateOperation::PointOperation(edge::PointOperations::UpsertPoints(
                edge::PointInsertOperations::PointsList(points.clone()),
            )))
        })
    }

    pub(super) fn set_payload(&self, ids: &[Uuid], payload: &Payload) -> Result<(), VectorError> {
        let payload = convert::payload(payload);
        self.write(ids.len() * 1024, |shard| {
            // The engine refuses the whole operation for one missing id, after doing part of it.
            let points: Vec<edge::PointId> = existing(shard, ids)?.into_iter().map(edge::PointId::Uuid).collect();
            if points.is_empty() {
                return Ok(());
            }
            shard.update(UpdateOperation::PayloadOperation(edge::PayloadOps::OverwritePayload(edge::SetPayloadOp {
                payload: payload.clone(),
                points: Some(points),
                filter: None,
                key: None,
            })))
        })
    }

    pub(super) fn delete(&self, ids: &[Uuid]) -> Result<(), VectorError> {
        let ids = convert::ids(ids);
        self.write(0, |shard| {
            shard.update(UpdateOperation::PointOperation(edge::PointOperations::DeletePoints { ids: ids.clone() }))
        })
    }

    pub(super) fn delete_event(&self, event_id: EventId) -> Result<(), VectorError> {
        let filter = convert::of_events(&[event_id]);
        self.write(0, |shard| {
            shard.update(UpdateOperation::PointOperation(edge::PointOperations::DeletePointsByFilter(filter.clone())))
        })
    }

    pub(super) fn search(
        &self,
        vector: &[f32],
        filter: &VectorFilter,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<Found>, VectorError> {
        let filter = convert::filter(filter);
        page(limit, offset, |asked| {
            self.ask(|shards| &shards.searched, |shard| nearest(shard, vector, filter.as_ref(), asked))
        })
    }

    pub(super) fn vectors_of(&self, events: &[EventId]) -> Result<HashMap<EventId, Vec<Vec<f32>>>, VectorError> {
        let mut found: HashMap<EventId, Vec<Vec<f32>>> = HashMap::new();
        for events in events.chunks(EVENTS_AT_A_TIME) {
            let records = self.ask(
                |shards| &shards.searched,
                |shard| scroll(shard, Some(convert::of_events(events)), &[convert::EVENT_ID], true),
            )?;
            for record in records {
                let event_id = convert::event_id(record.payload.as_ref());
                if let (Some(event_id), Some(vector)) = (event_id, convert::vector(record.vector)) {
                    found.entry(event_id).or_default().push(vector);
                }
            }
        }
        Ok(found)
    }

    pub(super) fn vectors(&self, ids: &[Uuid]) -> Result<HashMap<Uuid, Vec<f32>>, VectorError> {
        let ids = convert::ids(ids);
        let records = self.ask(
            |shards| &shards.searched,
            |shard| shard.retrieve(&ids, Some(false.into()), Some(edge::WithVector::Bool(true))),
        )?;
        let pairs =
            records.into_iter().filter_map(|record| Some((convert::id(record.id)?, convert::vector(record.vector)?)));
        Ok(pairs.collect())
    }

    pub(super) fn existing(&self, ids: &[Uuid]) -> Result<Vec<Uuid>, VectorError> {
        self.ask(Shards::newest, |shard| existing(shard, ids))
    }

    pub(super) fn all_ids(&self) -> Result<Vec<Uuid>, VectorError> {
        let records = self.ask(Shards::newest, |shard| scroll(shard, None, &[], false))?;
        Ok(records.into_iter().filter_map(|record| convert::id(record.id)).collect())
    }

    pub(super) fn count(&self) -> Result<u64, VectorError> {
        self.ask(Shards::newest, |shard| shard.count(edge::CountRequest { filter: None, exact: true }))
            .map(|count| count as u64)
    }

    pub(super) fn begin_shadow(&self) -> Result<Generation, VectorError> {
        let _writer = self.writing();
        let mut shards = self.exchanging();
        if let Some(shadow) = &shards.shadow {
            return Ok(shadow.generation());
        }
        let generation = shards.searched.generation().next();
        let (shadow, opened) = Shard::open(&self.folder, generation, self.dimension);
        report(generation, &opened);
        opened?;
        shards.shadow = Some(shadow);
        self.has_shadow.store(true, Ordering::SeqCst);
        Ok(generation)
    }

    pub(super) fn swap_shadow(&self) -> Result<Generation, VectorError> {
        let _writer = self.writing();
        self.flush_held()?;
        let mut shards = self.exchanging();
        let generation = match &shards.shadow {
            Some(shadow) => shadow.generation(),
            None => return Err(VectorError::Storage("there is no shadow to swap in".into())),
        };
        self.folder.point_to(generation).map_err(|error| VectorError::Unavailable(error.to_string()))?;
        // From here on the new one is searched after a restart too: only forward.
        if let Some(shadow) = shards.shadow.take() {
            let mut old = std::mem::replace(&mut shards.searched, shadow);
            self.generation.store(generation.0, Ordering::SeqCst);
            self.has_shadow.store(false, Ordering::SeqCst);
            old.close();
            if let Err(error) = old.remove().and_then(|()| self.folder.sync()) {
                // The next start sweeps it.
                tracing::warn!(%error, "the old vectors are not removed yet");
            }
        }
        Ok(generation)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for shard in self.exchanging().all_mut() {
            shard.close();
        }
    }
}

fn report(generation: Generation, opened: &Result<Opening, VectorError>) {
    match opened {
        Ok(Opening::Loaded | Opening::Made) => {}
        Ok(Opening::Healed) => {
            tracing::warn!(%generation, "vectors were damaged: empty, to be made again from the log")
        }
        Err(error) => tracing::warn!(%generation, %error, "vectors are not available"),
    }
}
