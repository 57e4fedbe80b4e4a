//! One folder of the engine, and the only place that calls it.
//!
//! The engine reports some failures by panicking, its `Drop` included. Every call is caught, and a shard that
//! panicked or failed in its storage counts as broken until it is loaded again from disk.
//!
//! The engine writes a write-ahead log and never reads or cuts it: loading does not replay it. What is not
//! flushed is lost with the process, so nothing counts as stored before [`Shard::flush`]; and old segments of
//! that log are removed here, or it would outgrow the vectors.

use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use lanekeeper_core::Generation;
use qdrant_edge as edge;
use qdrant_edge::{EdgeShard, OperationError, UpdateOperation};

use super::super::VectorError;
use super::convert;
use super::folder::{Folder, make, tighten};

/// One segment of the engine's write-ahead log, bytes. Its default of 32 MiB is made for servers.
/// It is read through at each load, so this is also memory of an idle lane.
const WAL_SEGMENT_BYTES: usize = 1024 * 1024;

/// Closed segments of that log before the shard is loaded again to be rid of them.
const WAL_SEGMENTS_KEPT: usize = 32;

/// How a call to the engine failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The request is at fault and the shard is as it was.
    Refused(VectorError),
    /// The shard must be loaded again. Holds no payload: the engine names files and versions.
    Broken(String),
}

/// What was found when a shard was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// Loaded.
    Loaded,
    /// There was none.
    Made,
    /// It could not be read, was moved aside, and is empty now.
    Healed,
}

/// A generation's vectors.
#[derive(Debug)]
pub(super) struct Shard {
    generation: Generation,
    path: PathBuf,
    dimension: usize,
    /// `None`: broken, and not loadable so far.
    engine: Option<EdgeShard>,
}

impl Shard {
    /// Loads a generation; makes it where there is none; moves it aside and makes it where its files cannot be
    /// read. Fails only where nothing could be made either (no room, no right to): files are left as they are.
    pub(super) fn open(
        folder: &Folder,
        generation: Generation,
        dimension: usize,
    ) -> (Self, Result<Opening, VectorError>) {
        let path = folder.generation(generation);
        let mut shard = Self { generation, path, dimension, engine: None };
        let opened = shard.load(folder);
        (shard, opened)
    }

    fn load(&mut self, folder: &Folder) -> Result<Opening, VectorError> {
        let storage = |error: io::Error| VectorError::Unavailable(error.to_string());
        // Loading rewrites the engine's own settings file.
        if !folder.has_room(0) {
            return Err(VectorError::Unavailable("the volume is full".into()));
        }
        let fresh = !has_segments(&self.path);
        make(&self.path).map_err(storage)?;
        tighten(&self.path).map_err(storage)?;
        let opening = if fresh {
            self.make().map_err(VectorError::Unavailable)?;
            Opening::Made
        } else {
            cut_log(&self.path).map_err(storage)?;
            match caught(|| EdgeShard::load(&self.path, Some(config(self.dimension)))) {
                Ok(engine) => {
                    self.engine = Some(engine);
                    Opening::Loaded
                }
                Err(why) => {
                    // The reason names files and sizes, never what is stored.
                    tracing::warn!(%why, generation = %self.generation, "vectors cannot be read and are made again");
                    folder.move_aside(&self.path).map_err(storage)?;
                    make(&self.path).map_err(storage)?;
                    self.make().map_err(VectorError::Unavailable)?;
                    Opening::Healed
                }
            }
        };
        tighten(&self.path).map_err(storage)?;
        folder.sync().map_err(storage)?;
        Ok(opening)
    }

    /// An empty shard with an index on every field that is filtered by. A folder with no segment in it has
    /// nothing worth keeping, so a creation that was cut short is begun again.
    fn make(&mut self) -> Result<(), String> {
        super::folder::remove(&self.path).and_then(|()| make(&self.path)).map_err(|error| error.to_string())?;
        let engine = caught(|| {
            let engine = EdgeShard::new(&self.path, config(self.dimension))?;
            let keyword = || edge::PayloadSchemaParams::Keyword(edge::KeywordIndexParams::default());
            let fields = [
                (convert::EVENT_ID, edge::PayloadSchemaParams::Uuid(edge::UuidIndexParams::default())),
                (convert::SESSIONS, keyword()),
                (convert::ROLES, keyword()),
                (convert::SPEAKERS, keyword()),
                // Times are compared, never looked up: half the index.
                (
                    convert::AT_MS,
                    edge::PayloadSchemaParams::Integer(edge::IntegerIndexParams {
                        lookup: Some(false),
                        range: Some(true),
                        ..edge::IntegerIndexParams::default()
                    }),
                ),
            ];
            for (field, schema) in fields {
                engine.update(UpdateOperation::FieldIndexOperation(edge::FieldIndexOperations::CreateIndex(
                    edge::CreateIndex {
                        field_name: convert::path(field),
                        field_schema: Some(edge::PayloadFieldSchema::FieldParams(schema)),
                    },
                )))?;
            }
            engine.flush();
            Ok(engine)
        })?;
        self.engine = Some(engine);
        Ok(())
    }

    /// Loads the shard again. What was not flushed may be gone.
    pub(super) fn reopen(&mut self, folder: &Folder) -> Result<Opening, VectorError> {
        self.close();
        self.load(folder)
    }

    /// Flushes and lets go of the files.
    pub(super) fn close(&mut self) {
        let engine = self.engine.take();
        if let Err(why) = caught(move || {
            drop(engine);
            Ok(())
        }) {
            tracing::warn!(%why, generation = %self.generation, "the vector engine did not close in order");
        }
    }

    pub(super) const fn generation(&self) -> Generation {
        self.generation
    }

    pub(super) const fn is_open(&self) -> bool {
        self.engine.is_some()
    }

    /// Asks the engine.
    pub(super) fn run<T>(&self, ask: impl FnOnce(&EdgeShard) -> Result<T, OperationError>) -> Result<T, Failure> {
        let Some(engine) = &self.engine else {
            return Err(Failure::Broken("not loaded".into()));
        };
        match catch_unwind(AssertUnwindSafe(|| ask(engine))) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(failure(&error)),
            Err(panic) => Err(Failure::Broken(panic_text(panic.as_ref()))),
        }
    }

    /// Makes everything written durable. No update may run beside it: the engine panics.
    pub(super) fn flush(&self) -> Result<(), Failure> {
        self.run(|engine| {
            engine.flush();
            Ok(())
        })?;
        tighten(&self.path).map_err(|error| Failure::Broken(error.to_string()))
    }

    /// Whether the engine's log has grown enough to be worth loading the shard again.
    pub(super) fn log_is_long(&self) -> bool {
        closed_segments(&self.path).is_ok_and(|closed| closed.len() > WAL_SEGMENTS_KEPT)
    }

    /// Removes the shard's files. It must be closed.
    pub(super) fn remove(self) -> io::Result<()> {
        super::folder::remove(&self.path)
    }
}

fn config(dimension: usize) -> edge::EdgeConfig {
    // Cosine: the engine stores vectors normalised. On disk: mapped, so an idle lane holds no pages. The
    // search is exact over all vectors: `optimize` would build a graph, blocks for as long as that takes, and
    // gives approximate pages (docs/decisions/0042).
    edge::EdgeConfig::builder()
        .vector(
            edge::DEFAULT_VECTOR_NAME,
            edge::EdgeVectorParams::builder(dimension, edge::Distance::Cosine).on_disk(true).build(),
        )
        .on_disk_payload(true)
        .wal_options(edge::WalOptions {
            segment_capacity: WAL_SEGMENT_BYTES,
            segment_queue_len: 0,
            retain_closed: NonZeroUsize::MIN,
        })
        .build()
}

fn has_segments(path: &Path) -> bool {
    fs::read_dir(path.join("segments")).is_ok_and(|mut entries| entries.next().is_some())
}

/// Closed segments of the engine's log, oldest first.
fn closed_segments(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut closed = Vec::new();
    for entry in fs::read_dir(path.join("wal"))? {
        let entry = entry?;
        let start = entry.file_name().to_str().and_then(|name| name.strip_prefix("closed-")?.parse::<u64>().ok());
        closed.extend(start.map(|start| (start, entry.path())));
    }
    closed.sort_unstable();
    Ok(closed.into_iter().map(|(_, path)| path).collect())
}

/// Removes all closed segments but the newest, whose number is where the next operation's number goes on: with
/// a lower one the engine would take every update for an old one and drop it.
fn cut_log(path: &Path) -> io::Result<()> {
    let Ok(mut closed) = closed_segments(path) else { return Ok(()) };
    closed.pop();
    // Oldest first: a gap in the middle would be damage.
    closed.into_iter().try_for_each(|segment| super::folder::remove(&segment))
}

fn failure(error: &OperationError) -> Failure {
    match error {
        OperationError::WrongVectorDimension { expected_dim, received_dim } => {
            Failure::Refused(VectorError::Dimension { expected: *expected_dim, actual: *received_dim })
        }
        OperationError::ServiceError { description, backtrace: _ } => Failure::Broken(description.clone()),
        OperationError::InconsistentStorage { description } | OperationError::OutOfMemory { description, free: _ } => {
            Failure::Broken(description.clone())
        }
        // These name fields and values of a request; a request is made here, so they are faults of ours, and
        // what they name stays out of the message.
        OperationError::VectorNameNotExists { .. }
        | OperationError::PointIdError { .. }
        | OperationError::TypeError { .. }
        | OperationError::TypeInferenceError { .. }
        | OperationError::Cancelled { .. }
        | OperationError::Timeout { .. }
        | OperationError::ValidationError { .. }
        | OperationError::WrongSparse
        | OperationError::WrongMulti
        | OperationError::MissingRangeIndexForOrderBy { .. }
        | OperationError::MissingMapIndexForFacet { .. }
        | OperationError::VariableTypeError { .. }
        | OperationError::NonFiniteNumber { .. } => {
            Failure::Refused(VectorError::Storage("the engine refused a request".into()))
        }
    }
}

/// Runs what may panic; the reason in words.
fn caught<T>(run: impl FnOnce() -> Result<T, OperationError>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(OperationError::ServiceError { description, backtrace: _ })) => Err(description),
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => Err(panic_text(panic.as_ref())),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned()).or_else(|| panic.downcast_ref().cloned());
    text.unwrap_or_else(|| "a panic without words".into())
}
