//! A lane's store: opened, running, closed.
//!
//! # Flow of opening
//! 1. The volume's lock.
//! 2. The record: its log_id and head.
//! 3. The file: made only if there is none and the record has never had a head; a newer schema is refused
//!    untouched.
//! 4. log_id, binding, verification from the last checkpoint, published head.
//! 5. This process becomes the record's holder.
//! 6. The writer, the projector and upkeep start; the full walk of the log runs in the background.
//!
//! # Guarantees
//! - Whatever is wrong with the log leaves a store that recalls and refuses to write, with the reason.
//! - An unreachable registry refuses writes, never recall.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use lanekeeper_core::clock::Clock;
use lanekeeper_core::encoder::Encoder;
use lanekeeper_core::error::ReadOnlyReason;
use lanekeeper_core::lane::{LaneKind, Language, ProjectedRoles};
use lanekeeper_core::{Epoch, Hash32, LaneError, LaneName, LaneUid, LogId, Seq};
use lanekeeper_federation::{
    Expectation, Fence, PublishedHead, Record, Registry, RegistryError, TAKE_OVER_WAIT, take_over,
};
use sqlx::pool::PoolConnection;
use sqlx::{ConnectOptions, Connection, Sqlite, SqlitePool};
use tokio::sync::{Notify, watch};

use crate::error::StoreError;
use crate::index::Indexing;
use crate::keys::Keys;
use crate::log::row::{BindingBody, Kind, root};
use crate::opening;
use crate::schema;
use crate::state::LaneState;
use crate::transfer::accept::Accepted;
use crate::transfer::place;
use crate::vectors::VectorStore;
use crate::volume::Volume;
use crate::writer::{Head, Writer, WriterTask};

/// What a store is opened as. Comes from the Lane, never from a request.
#[derive(Debug, Clone)]
pub struct LaneConfig {
    /// The lane's folder.
    pub folder: std::path::PathBuf,
    /// `namespace/name`.
    pub lane: LaneName,
    /// What the name is bound to.
    pub uid: LaneUid,
    /// Personal or corpus.
    pub kind: LaneKind,
    /// `<namespace>.<collection>`.
    pub collection: String,
    /// The UID this lane asks to take over the log of; the caller has checked the owner.
    pub adopt: Option<LaneUid>,
    /// What may change while the store runs.
    pub settings: LaneSettings,
}

/// Settings that may change while the store runs.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneSettings {
    /// Stop words and stemmer. A change takes effect on new turns; `rebuild` brings the rest.
    pub language: Language,
    /// Roles whose turns get vectors.
    pub projected_roles: ProjectedRoles,
    /// Floor of vector-only hits.
    pub min_score: Option<f32>,
}

/// What a store works with.
#[derive(Debug, Clone)]
pub struct LaneParts {
    /// The federation registry.
    pub registry: Arc<dyn Registry>,
    /// The lane's embedder.
    pub encoder: Arc<dyn Encoder>,
    /// The vector engine; `None`: the in-process one, in the lane's folder.
    pub vectors: Option<Arc<dyn VectorStore>>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// An open lane.
pub struct LaneStore {
    pub(crate) config: LaneConfig,
    pub(crate) settings: RwLock<LaneSettings>,
    pub(crate) volume: Volume,
    pub(crate) keys: Keys,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) encoder: Arc<dyn Encoder>,
    pub(crate) vectors: Arc<dyn VectorStore>,
    pub(crate) fence: Arc<Fence>,
    pub(crate) state: Arc<LaneState>,
    pub(crate) log_id: LogId,
    /// Whether the record could be read when the store was opened: without it the published head was not compared.
    #[cfg_attr(not(feature = "server"), expect(dead_code, reason = "only a server opens a lane again"))]
    pub(crate) opened_with_record: bool,
    /// Whether this process wrote itself into the record. Once: a holder that was replaced stays replaced.
    took_over: AtomicBool,
    /// Whether the log must be bound to this lane without waiting for a first write; see [`Self::bind`].
    bind_unasked: AtomicBool,
    pub(crate) pool: SqlitePool,
    pub(crate) projector_wake: Arc<Notify>,
    /// One curated file is written at a time: event and file stay in step.
    pub(crate) memory_lock: tokio::sync::Mutex<()>,
    /// Verifications, rebuilds and backups, one at a time.
    pub(crate) upkeep_lock: tokio::sync::Mutex<()>,
    writer: Mutex<Option<Writer>>,
    head: watch::Receiver<Head>,
    commits: Arc<AtomicU64>,
    tasks: Mutex<Vec<tokio::task::JoinHandle<()>>>,
    stop: watch::Sender<bool>,
}

impl std::fmt::Debug for LaneStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LaneStore")
            .field("lane", &self.config.lane)
            .field("uid", &self.config.uid)
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A connection that only reads.
#[expect(clippy::wildcard_enum_match_arm, reason = "the library's errors are an open list")]
pub(crate) async fn acquire(pool: &SqlitePool) -> Result<PoolConnection<Sqlite>, LaneError> {
    pool.acquire().await.map_err(|error| match error {
        sqlx::Error::PoolTimedOut => LaneError::Overloaded { retry_after_s: 1 },
        sqlx::Error::PoolClosed => LaneError::Unavailable { what: "the lane's store".into() },
        other => LaneError::internal(other),
    })
}

impl LaneStore {
    /// Opens a lane. See the module's head.
    pub async fn open(config: LaneConfig, parts: LaneParts) -> Result<Arc<Self>, StoreError> {
        let LaneParts { registry, encoder, vectors, clock } = parts;
        let volume = Volume::open(&config.folder)?;
        place::settle(&volume)?;
        let keys = Keys::open(&volume)?;
        let record = match registry.read(&config.collection).await {
            Ok(record) => Some(record),
            Err(
                error @ (RegistryError::Unreadable { .. }
                | RegistryError::Garbled { .. }
                | RegistryError::Missing { .. }
                | RegistryError::Taken { .. }),
            ) => {
                tracing::warn!(%error, "the lane opens without its record and will refuse writes");
                None
            }
        };
        let log_id = opening::file(&volume, record.as_ref(), &keys).await?;
        let state = Arc::new(LaneState::default());
        let database = volume.database();
        let mut conn = schema::writer_options(&database).connect().await.map_err(StoreError::sqlite("open the log"))?;
        let opened = opening::check(&mut conn, log_id, record.as_ref(), &state).await?;
        // A kill between a forget and the emptying of the write-ahead log: the first commit empties it.
        let purged: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM purged)")
            .fetch_one(&mut conn)
            .await
            .map_err(StoreError::sqlite("look for forgotten rows"))?;
        state.set_wal_holds_erased(purged);
        conn.close().await.map_err(StoreError::sqlite("close the log"))?;
        let binding = Self::binding(&config, &keys, opened.binding, opened.accepted)?;
        let bind_unasked = binding.as_ref().is_some_and(|(kind, _)| *kind != Kind::Opened);
        let epoch = record.as_ref().map_or(opened.epoch, |record| record.spec.epoch);
        let holder = registry.pod().map_or_else(|| uuid::Uuid::now_v7().to_string(), str::to_owned);
        let fence = Arc::new(Fence::new(
            registry,
            Expectation {
                collection: config.collection.clone(),
                writer: config.uid,
                log_id,
                fingerprint: encoder.fingerprint(),
                epoch: epoch.max(Epoch(1)),
                holder,
            },
            clock.clone(),
        ));
        let vectors = match vectors {
            Some(vectors) => vectors,
            None => opening::engine(&volume, encoder.dimension(), record.as_ref()).await?,
        };
        let (head_sender, head) = watch::channel((Seq(0), root(log_id)));
        let commits = Arc::new(AtomicU64::new(0));
        let task = WriterTask {
            options: schema::writer_options(&database),
            fence: fence.clone(),
            clock: clock.clone(),
            signing: keys.signing(),
            state: state.clone(),
            root: root(log_id),
            head: head_sender,
            commits: commits.clone(),
            binding,
        };
        let (writer, writer_task) = task.start().await?;
        let store = Arc::new(Self {
            settings: RwLock::new(config.settings.clone()),
            pool: schema::reader_pool(&database),
            projector_wake: Arc::new(Notify::new()),
            memory_lock: tokio::sync::Mutex::new(()),
            upkeep_lock: tokio::sync::Mutex::new(()),
            writer: Mutex::new(Some(writer)),
            tasks: Mutex::new(vec![writer_task]),
            stop: watch::Sender::new(false),
            config,
            volume,
            keys,
            clock,
            encoder,
            vectors,
            fence,
            state,
            log_id,
            opened_with_record: record.is_some(),
            took_over: AtomicBool::new(false),
            bind_unasked: AtomicBool::new(bind_unasked),
            head,
            commits,
        });
        store.become_holder().await;
        store.heal_memory().await?;
        crate::upkeep::start(&store);
        Ok(store)
    }

    /// The binding to append first: of a new log; of one that is adopted; of one whose head a person accepted;
    /// none for the lane's own.
    fn binding(
        config: &LaneConfig,
        keys: &Keys,
        bound: Option<BindingBody>,
        accepted: Option<Accepted>,
    ) -> Result<Option<(Kind, BindingBody)>, StoreError> {
        let body = BindingBody {
            lane: config.lane.to_string(),
            uid: config.uid,
            public_key: keys.public(),
            accepted_seq: accepted.map(|accepted| accepted.seq.0),
        };
        match bound {
            None => Ok(Some((Kind::Opened, body))),
            Some(bound) if bound.uid == config.uid && bound.public_key == keys.public() && accepted.is_none() => {
                Ok(None)
            }
            // A head was accepted, or the keys on the volume are new ones (a backup holds none).
            Some(bound) if bound.uid == config.uid => Ok(Some((Kind::Restored, body))),
            Some(bound) if config.adopt == Some(bound.uid) => Ok(Some((Kind::Adopted, body))),
            Some(bound) => Err(StoreError::OtherLane { bound: bound.uid, asked: config.uid }),
        }
    }

    /// Writes this process into the record as holder, once; see [`take_over`]. With the file registry the volume's
    /// lock alone shows that the old holder is gone, so there is no wait.
    pub(crate) async fn become_holder(&self) -> bool {
        if self.took_over.load(Ordering::SeqCst) {
            return true;
        }
        let expected = self.fence.expected();
        let registry = self.fence.registry();
        let now_ms = self.clock.now_ms();
        if registry.pod().is_some() {
            // From before the record names this process: nothing may be confirmed until it is known how long to
            // wait, also where the answer gets lost.
            self.fence.hold_back(TAKE_OVER_WAIT);
        }
        match take_over(registry.as_ref(), &expected.collection, &expected.holder, now_ms).await {
            Ok((_, wait)) => {
                if !wait.is_zero() {
                    let seconds = wait.as_secs();
                    tracing::info!(seconds, "the lane recalls; it writes once the holder before is surely gone");
                }
                self.fence.hold_back(wait);
                self.took_over.store(true, Ordering::SeqCst);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "this process is not the record's holder yet");
                false
            }
        }
    }

    /// Binds an adopted or restored log to this lane. An adoption that waited for the first write would be lost with
    /// a lane that is deleted before it: the next adoption names the UID of a lane that the log never heard of.
    /// (A new log is bound by its first write: an unused lane writes nothing.)
    pub(crate) async fn bind(&self) {
        let asked = self.bind_unasked.load(Ordering::SeqCst) && self.took_over.load(Ordering::SeqCst);
        if !asked || self.fence.held_back().is_some() || self.state.read_only().is_some() {
            return;
        }
        // Every group appends the binding that is still owed, an empty one too.
        let Ok(writer) = self.writer() else { return };
        match writer.write(|_| Box::pin(async { Ok(()) })).await {
            Ok(()) => self.bind_unasked.store(false, Ordering::SeqCst),
            Err(error) => tracing::debug!(%error, "the log is not bound to this lane yet"),
        }
    }

    /// Publishes the head, so that an older copy of the file is known for one.
    pub(crate) async fn publish_head(&self, release: bool) -> Result<Record, RegistryError> {
        let (seq, hash) = self.head();
        let expected = self.fence.expected();
        let log_id = self.log_id;
        let damaged = self.state.read_only().is_some();
        // One that never had its turn leaves the record as it is: the one before it may still be writing.
        let release = release && self.fence.held_back().is_none();
        self.fence
            .registry()
            .change_status(
                &expected.collection.clone(),
                Box::new(move |status| {
                    let mine = status.holder.as_ref().is_some_and(|holder| holder.id == expected.holder);
                    if !mine {
                        return;
                    }
                    // A damaged or rolled back log never moves the published head.
                    if seq > Seq(0) && !damaged {
                        status.head = Some(PublishedHead { log_id, seq, hash });
                    }
                    if release && let Some(holder) = &mut status.holder {
                        holder.released = true;
                    }
                }),
            )
            .await
    }

    /// Ends all work in order: the writer's last group and checkpoint, the head, the holder.
    pub async fn close(&self) {
        self.stop.send_replace(true);
        self.projector_wake.notify_waiters();
        drop(lock(&self.writer).take());
        let tasks: Vec<_> = std::mem::take(&mut *lock(&self.tasks));
        for task in tasks {
            let _ = task.await;
        }
        if let Err(error) = self.vectors.close().await {
            tracing::warn!(%error, "the vector engine was not flushed; open claims are made again");
        }
        if let Err(error) = self.publish_head(true).await {
            tracing::warn!(%error, "the head was not published at close");
        }
        self.pool.close().await;
        self.volume.release();
    }

    /// Replaces the settings.
    pub fn set_settings(&self, settings: LaneSettings) {
        *self.settings.write().unwrap_or_else(std::sync::PoisonError::into_inner) = settings;
        self.projector_wake.notify_one();
    }

    /// The settings now.
    #[must_use]
    pub fn settings(&self) -> LaneSettings {
        self.settings.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// The log's head.
    #[must_use]
    pub fn head(&self) -> (Seq, Hash32) {
        *self.head.borrow()
    }

    /// What it was opened as.
    #[must_use]
    pub const fn config(&self) -> &LaneConfig {
        &self.config
    }

    /// The log's identity.
    #[must_use]
    pub const fn log_id(&self) -> LogId {
        self.log_id
    }

    /// Group commits since it was opened.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    pub(crate) fn indexing(&self) -> Indexing {
        let LaneSettings { language, projected_roles, min_score: _ } = self.settings();
        Indexing { keys: self.keys.clone(), fingerprint: self.encoder.fingerprint(), language, projected_roles }
    }

    pub(crate) fn writer(&self) -> Result<Writer, LaneError> {
        lock(&self.writer).clone().ok_or(LaneError::Unavailable { what: "the lane's store".into() })
    }

    pub(crate) async fn reader(&self) -> Result<PoolConnection<Sqlite>, LaneError> {
        acquire(&self.pool).await
    }

    pub(crate) fn keep(&self, task: tokio::task::JoinHandle<()>) {
        lock(&self.tasks).push(task);
    }

    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Something was written: the projector looks, upkeep remembers.
    pub(crate) fn touched(&self) {
        self.projector_wake.notify_one();
    }

    /// Marks the log damaged.
    pub(crate) fn found_bad_row(&self, seq: Seq) {
        self.state.set_read_only(ReadOnlyReason::BadRow(seq));
    }
}
