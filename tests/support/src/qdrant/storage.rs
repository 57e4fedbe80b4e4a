//! Collections on disk: one folder of the in-process engine each, and one file that names them and their
//! aliases.
//!
//! What must always hold: what is acknowledged is on disk; an update and a flush never run beside each other
//! (the engine panics).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use qdrant_edge as edge;
use qdrant_edge::{EdgeShard, OperationError, UpdateOperation};
use serde::{Deserialize, Serialize};

/// How a collection was declared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Shape {
    pub(super) size: usize,
    pub(super) distance: edge::Distance,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct SavedCollection {
    folder: String,
    shape: Shape,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Saved {
    collections: BTreeMap<String, SavedCollection>,
    aliases: BTreeMap<String, String>,
    /// So that no folder is used twice.
    made: u64,
}

/// One collection, open.
#[derive(Debug)]
pub(super) struct Collection {
    folder: String,
    path: PathBuf,
    pub(super) shape: Shape,
    /// `None` only while it is dropped.
    shard: Option<EdgeShard>,
    writing: Mutex<()>,
    operations: AtomicU64,
    /// Its files go with its last user.
    dropped: AtomicBool,
}

impl Collection {
    fn new(folder: String, path: PathBuf, shape: Shape, shard: EdgeShard) -> Arc<Self> {
        Arc::new(Self {
            folder,
            path,
            shape,
            shard: Some(shard),
            writing: Mutex::new(()),
            operations: AtomicU64::new(0),
            dropped: AtomicBool::new(false),
        })
    }

    pub(super) fn shard(&self) -> &EdgeShard {
        self.shard.as_ref().expect("there until it is dropped")
    }

    /// Applies an operation, durably. Gives its number.
    pub(super) fn update(&self, operation: UpdateOperation) -> Result<u64, OperationError> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.shard().update(operation)?;
        self.shard().flush();
        Ok(self.operations.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for Collection {
    fn drop(&mut self) {
        drop(self.shard.take());
        if self.dropped.load(Ordering::SeqCst)
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(%error, "a dropped collection's files are left over");
        }
    }
}

fn config(shape: Shape) -> edge::EdgeConfig {
    edge::EdgeConfig::builder()
        .vector(edge::DEFAULT_VECTOR_NAME, edge::EdgeVectorParams::builder(shape.size, shape.distance).build())
        .on_disk_payload(true)
        .build()
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) collections: BTreeMap<String, Arc<Collection>>,
    pub(super) aliases: BTreeMap<String, String>,
    made: u64,
}

impl State {
    /// By name, or by alias.
    pub(super) fn find(&self, name: &str) -> Option<&Arc<Collection>> {
        self.collections.get(name).or_else(|| self.collections.get(self.aliases.get(name)?))
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Storage {
    dir: PathBuf,
    state: RwLock<State>,
}

impl Storage {
    pub(super) fn open(dir: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir_all(&dir)?;
        let saved: Saved = match fs::read(dir.join("state.json")) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Saved::default(),
            Err(error) => return Err(error.into()),
        };
        let mut collections = BTreeMap::new();
        for (name, SavedCollection { folder, shape }) in saved.collections {
            let path = dir.join(&folder);
            let shard = EdgeShard::load(&path, Some(config(shape)))?;
            collections.insert(name, Collection::new(folder, path, shape, shard));
        }
        let state = State { collections, aliases: saved.aliases, made: saved.made };
        Ok(Self { dir, state: RwLock::new(state) })
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn save(&self, state: &State) -> io::Result<()> {
        let collections = state
            .collections
            .iter()
            .map(|(name, held)| (name.clone(), SavedCollection { folder: held.folder.clone(), shape: held.shape }))
            .collect();
        let saved = Saved { collections, aliases: state.aliases.clone(), made: state.made };
        let new = self.dir.join("state.json.new");
        fs::write(&new, serde_json::to_vec_pretty(&saved)?)?;
        fs::File::open(&new)?.sync_all()?;
        fs::rename(new, self.dir.join("state.json"))
    }

    /// Makes a collection. `Ok(false)`: the name is taken.
    pub(super) fn create(&self, name: &str, shape: Shape) -> Result<bool, OperationError> {
        let mut state = self.write();
        if state.collections.contains_key(name) || state.aliases.contains_key(name) {
            return Ok(false);
        }
        state.made += 1;
        let folder = format!("collection-{}", state.made);
        let path = self.dir.join(&folder);
        fs::create_dir_all(&path).map_err(failed)?;
        let shard = EdgeShard::new(&path, config(shape))?;
        shard.flush();
        state.collections.insert(name.to_owned(), Collection::new(folder, path, shape, shard));
        self.save(&state).map_err(failed)?;
        Ok(true)
    }

    /// Drops a collection with its aliases. `Ok(false)`: there is none of that name.
    pub(super) fn drop_collection(&self, name: &str) -> Result<bool, OperationError> {
        let mut state = self.write();
        let Some(collection) = state.collections.remove(name) else { return Ok(false) };
        state.aliases.retain(|_, target| target != name);
        self.save(&state).map_err(failed)?;
        collection.dropped.store(true, Ordering::SeqCst);
        Ok(true)
    }

    /// Changes aliases, all or none.
    pub(super) fn change_aliases<E: From<OperationError>>(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, String>, &BTreeMap<String, Arc<Collection>>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut state = self.write();
        let mut aliases = state.aliases.clone();
        change(&mut aliases, &state.collections)?;
        state.aliases = aliases;
        self.save(&state).map_err(|error| failed(error).into())
    }
}

fn failed(error: impl std::fmt::Display) -> OperationError {
    OperationError::ServiceError { description: error.to_string(), backtrace: None }
}
