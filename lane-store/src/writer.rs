//! The one writer: groups requests into transactions and acknowledges after the durable commit.
//!
//! # Flow
//! 1. Jobs queue up, bounded; a full queue answers `overloaded`.
//! 2. The writer takes what waits, confirms the fence once for the group and begins one transaction.
//! 3. Each job runs in a SAVEPOINT of its own: a failed pin or bad input rolls back that job alone.
//! 4. At most once a second the group also carries a signed checkpoint.
//! 5. One COMMIT; only then is anybody answered.
//!
//! # Guarantees
//! - [`WriteTx`] is the only thing with a writable connection, and it is made for a confirmed
//!   [`Fenced`] alone.
//! - After a failed COMMIT every waiter hears `commit_unknown`, the connection is dropped and the head is
//!   read again from disk. A full disk is `disk_full`, and the writer stays up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ed25519_dalek::SigningKey;
use futures::future::BoxFuture;
use lanekeeper_core::clock::Clock;
use lanekeeper_core::hooks::{Fault, fault};
use lanekeeper_core::{EventId, Hash32, LaneError, Seq};
use lanekeeper_federation::{Fence, Fenced};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection};
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::{StoreError, is_disk_full, statement};
use crate::log::checkpoint::Checkpoint;
use crate::log::row::{BindingBody, EventRow, Kind, commitment, insert};
use crate::state::LaneState;

/// Most jobs in one transaction.
const GROUP: usize = 128;
/// Jobs that may wait.
const QUEUE: usize = 1024;
/// Checkpoints that are kept.
const CHECKPOINTS_KEPT: i64 = 1024;
/// At most one checkpoint in this time, milliseconds.
const CHECKPOINT_MS: i64 = 1_000;

/// The log's last row; seq 0 with the root hash where there is none.
pub(crate) type Head = (Seq, Hash32);

/// An event to be appended.
#[derive(Debug)]
pub(crate) struct NewEvent {
    pub(crate) kind: Kind,
    pub(crate) at_ms: Option<i64>,
    pub(crate) principal: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// An appended event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Appended {
    pub(crate) seq: Seq,
    pub(crate) id: EventId,
    pub(crate) hash: Hash32,
    pub(crate) at_ms: i64,
}

/// A transaction under a confirmed fence.
#[derive(Debug)]
pub(crate) struct WriteTx {
    conn: SqliteConnection,
    head: Head,
    fenced: Fenced,
    now_ms: i64,
    broken: bool,
    truncate_wal: bool,
}

impl WriteTx {
    /// After the commit the write-ahead log is emptied, so that what was erased is in no byte of it.
    pub(crate) const fn truncate_wal_after(&mut self) {
        self.truncate_wal = true;
    }

    pub(crate) fn conn(&mut self) -> &mut SqliteConnection {
        &mut self.conn
    }

    pub(crate) const fn now_ms(&self) -> i64 {
        self.now_ms
    }

    pub(crate) const fn head(&self) -> Head {
        self.head
    }

    /// Appends one row to the log.
    pub(crate) async fn append(&mut self, event: NewEvent) -> Result<Appended, LaneError> {
        let NewEvent { kind, at_ms, principal, session, body } = event;
        let mut salt = [0_u8; 32];
        getrandom::fill(&mut salt).map_err(LaneError::internal)?;
        let (head_seq, head_hash) = self.head;
        let mut row = EventRow {
            seq: head_seq.next(),
            id: EventId::from_uuid(uuid_v7(self.now_ms)),
            at_ms: at_ms.unwrap_or(self.now_ms),
            kind: kind.as_str().to_owned(),
            principal,
            session,
            epoch: self.fenced.epoch(),
            commitment: commitment(&salt, &body),
            salt: Some(salt.to_vec()),
            body: Some(body),
            prev_hash: head_hash,
            hash: head_hash,
        };
        row.hash = row.computed_hash();
        insert(&mut self.conn, &row).await.map_err(statement)?;
        self.head = (row.seq, row.hash);
        Ok(Appended { seq: row.seq, id: row.id, hash: row.hash, at_ms: row.at_ms })
    }
}

/// A UUIDv7 of the clock's time; the random part comes from the system.
fn uuid_v7(now_ms: i64) -> uuid::Uuid {
    let ms = u64::try_from(now_ms).unwrap_or(0);
    let nanos = u32::try_from((ms % 1000) * 1_000_000).unwrap_or(0);
    uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, ms / 1000, nanos))
}

trait Job: Send {
    fn run<'t>(&'t mut self, tx: &'t mut WriteTx) -> BoxFuture<'t, Result<(), LaneError>>;
    fn finish(self: Box<Self>, outcome: Result<(), LaneError>);
}

struct TypedJob<T, F> {
    work: Option<F>,
    value: Option<T>,
    reply: oneshot::Sender<Result<T, LaneError>>,
}

impl<T, F> Job for TypedJob<T, F>
where
    T: Send + 'static,
    F: for<'t> FnOnce(&'t mut WriteTx) -> BoxFuture<'t, Result<T, LaneError>> + Send + 'static,
{
    fn run<'t>(&'t mut self, tx: &'t mut WriteTx) -> BoxFuture<'t, Result<(), LaneError>> {
        Box::pin(async move {
            let Some(work) = self.work.take() else { return Err(LaneError::internal("a job ran twice")) };
            self.value = Some(work(tx).await?);
            Ok(())
        })
    }

    fn finish(self: Box<Self>, outcome: Result<(), LaneError>) {
        let value = match outcome {
            Ok(()) => self.value.ok_or_else(|| LaneError::internal("a job gave no value")),
            Err(error) => Err(error),
        };
        // A caller that went away is not an error: the write stands, a retry under its key finds it.
        let _ = self.reply.send(value);
    }
}

/// A handle for handing in jobs.
#[derive(Clone)]
pub(crate) struct Writer {
    jobs: mpsc::Sender<Box<dyn Job>>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("free", &self.jobs.capacity()).finish()
    }
}

impl Writer {
    /// Runs `work` in a group transaction and waits for its durable commit.
    pub(crate) async fn write<T, F>(&self, work: F) -> Result<T, LaneError>
    where
        T: Send + 'static,
        F: for<'t> FnOnce(&'t mut WriteTx) -> BoxFuture<'t, Result<T, LaneError>> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(TypedJob { work: Some(work), value: None, reply });
        self.jobs.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => LaneError::Overloaded { retry_after_s: 1 },
            mpsc::error::TrySendError::Closed(_) => LaneError::Unavailable { what: "the lane's store".into() },
        })?;
        // A dropped reply means the writer died inside the group: the outcome is not known.
        answer.await.unwrap_or(Err(LaneError::CommitUnknown))
    }
}

/// What the writer task needs.
pub(crate) struct WriterTask {
    pub(crate) options: SqliteConnectOptions,
    pub(crate) fence: Arc<Fence>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) signing: SigningKey,
    pub(crate) state: Arc<LaneState>,
    pub(crate) root: Hash32,
    pub(crate) head: watch::Sender<Head>,
    pub(crate) commits: Arc<AtomicU64>,
    /// The binding to be appended before anything else: of a new log, or of an adopted one.
    pub(crate) binding: Option<(Kind, BindingBody)>,
}

/// Opens a writable connection and reads the head from disk.
async fn connect(options: &SqliteConnectOptions, root: Hash32) -> Result<(SqliteConnection, Head), StoreError> {
    let mut conn = options.connect().await.map_err(StoreError::sqlite("open the log for writing"))?;
    let head = read_head(&mut conn, root).await?;
    Ok((conn, head))
}

/// The last row's seq and hash.
pub(crate) async fn read_head(conn: &mut SqliteConnection, root: Hash32) -> Result<Head, StoreError> {
    let row = sqlx::query("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1")
        .fetch_optional(conn)
        .await
        .map_err(StoreError::sqlite("read the head"))?;
    let Some(row) = row else { return Ok((Seq(0), root)) };
    let seq: i64 = row.try_get(0).map_err(StoreError::sqlite("read the head"))?;
    let hash: Vec<u8> = row.try_get(1).map_err(StoreError::sqlite("read the head"))?;
    let hash = Hash32::from_slice(&hash)
        .ok_or_else(|| StoreError::Malformed { what: "head", why: "its hash is not 32 bytes".into() })?;
    Ok((Seq(seq.cast_unsigned()), hash))
}

impl WriterTask {
    /// Starts the task; it ends when every [`Writer`] is gone, after the last group and a checkpoint.
    pub(crate) async fn start(self) -> Result<(Writer, tokio::task::JoinHandle<()>), StoreError> {
        let (conn, head) = connect(&self.options, self.root).await?;
        self.head.send_replace(head);
        let (jobs, queue) = mpsc::channel(QUEUE);
        let task = tokio::spawn(self.run(queue, conn));
        Ok((Writer { jobs }, task))
    }

    async fn run(mut self, mut queue: mpsc::Receiver<Box<dyn Job>>, conn: SqliteConnection) {
        let mut conn = Some(conn);
        let mut last_checkpoint_ms = i64::MIN;
        while let Some(first) = queue.recv().await {
            let mut group = vec![first];
            while group.len() < GROUP {
                let Ok(job) = queue.try_recv() else { break };
                group.push(job);
            }
            if let Some(reason) = self.state.read_only() {
                finish_all(group, &LaneError::ReadOnly(reason));
                continue;
            }
            let fenced = match self.fence.confirm().await {
                Ok(fenced) => fenced,
                Err(refusal) => {
                    finish_all(group, &refusal.into());
                    continue;
                }
            };
            let ready = match conn.take() {
                Some(conn) => Ok((conn, *self.head.borrow())),
                // After a COMMIT of unknown outcome the disk may hold more than anybody was told.
                None => connect(&self.options, self.root).await.inspect(|(_, head)| {
                    self.head.send_replace(*head);
                }),
            };
            let (connection, head) = match ready {
                Ok(ready) => ready,
                Err(error) => {
                    tracing::error!(error = %error.chain(), "the log cannot be opened for writing");
                    finish_all(group, &LaneError::Unavailable { what: "the lane's log".into() });
                    continue;
                }
            };
            let tx = WriteTx {
                conn: connection,
                head,
                fenced,
                now_ms: self.clock.now_ms(),
                broken: false,
                truncate_wal: false,
            };
            conn = self.group(tx, group, &mut last_checkpoint_ms).await;
        }
        // Closing: sign what was written since the last checkpoint.
        if let Some(mut connection) = conn {
            let head = *self.head.borrow();
            // With a binding still to be appended the log does not know this key yet: signing with it would
            // leave a checkpoint that nothing in the log stands for.
            if self.binding.is_none()
                && self.state.read_only().is_none()
                && self.fence.confirm().await.is_ok()
                && let Err(error) = self.sign(&mut connection, head, self.clock.now_ms()).await
            {
                tracing::warn!(%error, "no closing checkpoint");
            }
            let _ = connection.close().await;
        }
    }

    /// Runs one group. Gives the connection back unless it must be opened again.
    async fn group(
        &mut self,
        mut tx: WriteTx,
        group: Vec<Box<dyn Job>>,
        last_checkpoint_ms: &mut i64,
    ) -> Option<SqliteConnection> {
        let before = tx.head;
        if let Err(error) = sqlx::query("BEGIN IMMEDIATE").execute(&mut tx.conn).await {
            finish_all(group, &statement(error));
            return None;
        }
        if let Err(error) = self.bind(&mut tx).await {
            let _ = sqlx::query("ROLLBACK").execute(&mut tx.conn).await;
            finish_all(group, &error);
            return None;
        }
        let mut done: Vec<(Box<dyn Job>, Result<(), LaneError>)> = Vec::with_capacity(group.len());
        let mut jobs = group.into_iter();
        for mut job in jobs.by_ref() {
            let outcome = run_in_savepoint(job.as_mut(), &mut tx).await;
            done.push((job, outcome));
            if tx.broken {
                break;
            }
        }
        if tx.broken {
            // SQLite rolled the whole transaction back (a full disk, an I/O error): nothing was written.
            let cause = done.last().and_then(|(_, outcome)| outcome.clone().err()).unwrap_or(LaneError::DiskFull);
            for (job, outcome) in done {
                job.finish(Err(outcome.err().unwrap_or_else(|| cause.clone())));
            }
            finish_all(jobs.collect(), &cause);
            let _ = tx.conn.close().await;
            return None;
        }
        if tx.head != before && tx.now_ms.saturating_sub(*last_checkpoint_ms) >= CHECKPOINT_MS {
            match self.sign(&mut tx.conn, tx.head, tx.now_ms).await {
                Ok(()) => *last_checkpoint_ms = tx.now_ms,
                Err(error) => tracing::warn!(%error, "no checkpoint in this group"),
            }
        }
        // A group that took long (a very large turn on a busy machine) is confirmed once more: what counts is
        // that the fence stands when the commit happens.
        let fresh = match self.fence.check_fresh(&tx.fenced) {
            Ok(()) => Ok(()),
            Err(stale) => match self.fence.confirm().await {
                Ok(again) if again.epoch() == tx.fenced.epoch() => Ok(()),
                Ok(_) => Err(stale),
                Err(refusal) => Err(refusal),
            },
        };
        if let Err(refusal) = fresh {
            let _ = sqlx::query("ROLLBACK").execute(&mut tx.conn).await;
            let error = LaneError::from(refusal);
            for (job, outcome) in done {
                job.finish(Err(outcome.err().unwrap_or_else(|| error.clone())));
            }
            return Some(tx.conn);
        }
        let _ = fault("before_commit");
        let committed = match fault("commit") {
            Fault::Error => Err(sqlx::Error::Io(std::io::Error::other("a test made COMMIT fail"))),
            Fault::SlowMs(ms) => {
                tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
                commit(&mut tx.conn).await
            }
            Fault::None => commit(&mut tx.conn).await,
        };
        // On disk, and yet reported as failed: the other half of what "unknown" means.
        let committed = match fault("after_commit") {
            Fault::Error => Err(sqlx::Error::Io(std::io::Error::other("a test lost the answer of COMMIT"))),
            Fault::None | Fault::SlowMs(_) => committed,
        };
        match committed {
            Ok(()) => {
                if tx.head != before {
                    self.head.send_replace(tx.head);
                }
                self.binding = None;
                if tx.truncate_wal {
                    self.state.set_wal_holds_erased(true);
                }
                if self.state.wal_holds_erased() && truncate_wal(&mut tx.conn).await {
                    self.state.set_wal_holds_erased(false);
                }
                self.commits.fetch_add(1, Ordering::Relaxed);
                for (job, outcome) in done {
                    job.finish(outcome);
                }
                Some(tx.conn)
            }
            Err(error) if is_disk_full(&error) => {
                let _ = sqlx::query("ROLLBACK").execute(&mut tx.conn).await;
                for (job, outcome) in done {
                    job.finish(Err(outcome.err().unwrap_or(LaneError::DiskFull)));
                }
                let _ = tx.conn.close().await;
                None
            }
            Err(error) => {
                tracing::error!(%error, "COMMIT failed; its outcome is unknown");
                for (job, outcome) in done {
                    job.finish(Err(outcome.err().unwrap_or(LaneError::CommitUnknown)));
                }
                let _ = tx.conn.close().await;
                None
            }
        }
    }

    async fn bind(&self, tx: &mut WriteTx) -> Result<(), LaneError> {
        let Some((kind, body)) = &self.binding else { return Ok(()) };
        let body = serde_json::to_vec(body).map_err(LaneError::internal)?;
        tx.append(NewEvent { kind: *kind, at_ms: None, principal: None, session: None, body }).await?;
        // From here on the log itself tells that a head was accepted.
        sqlx::query("DELETE FROM meta WHERE key = 'accepted_head'")
            .execute(tx.conn())
            .await
            .map(drop)
            .map_err(statement)
    }

    async fn sign(&self, conn: &mut SqliteConnection, head: Head, now_ms: i64) -> Result<(), sqlx::Error> {
        if head.0 == Seq(0) {
            return Ok(());
        }
        let purged: i64 = sqlx::query_scalar("SELECT count(*) FROM purged").fetch_one(&mut *conn).await?;
        let Checkpoint { seq, hash, purged, at_ms, signature } =
            Checkpoint::sign(&self.signing, head.0, head.1, purged.cast_unsigned(), now_ms);
        sqlx::query("INSERT OR REPLACE INTO checkpoints (seq, hash, purged, at_ms, signature) VALUES (?, ?, ?, ?, ?)")
            .bind(seq.0.cast_signed())
            .bind(hash.as_bytes().as_slice())
            .bind(purged.cast_signed())
            .bind(at_ms)
            .bind(signature.as_slice())
            .execute(&mut *conn)
            .await?;
        sqlx::query(
            "DELETE FROM checkpoints WHERE seq <= (SELECT seq FROM checkpoints ORDER BY seq DESC LIMIT 1 OFFSET ?)",
        )
        .bind(CHECKPOINTS_KEPT)
        .execute(&mut *conn)
        .await
        .map(drop)
    }
}

async fn commit(conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("COMMIT").execute(conn).await.map(drop)
}

/// Empties the write-ahead log; false while a reader still needs it.
async fn truncate_wal(conn: &mut SqliteConnection) -> bool {
    let run = async {
        sqlx::query("PRAGMA busy_timeout = 500").execute(&mut *conn).await?;
        let row = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(&mut *conn).await?;
        sqlx::query("PRAGMA busy_timeout = 10000").execute(&mut *conn).await?;
        row.try_get::<i64, _>(0)
    };
    match run.await {
        Ok(busy) => busy == 0,
        Err(error) => {
            tracing::warn!(%error, "the write-ahead log was not emptied yet");
            false
        }
    }
}

async fn run_in_savepoint(job: &mut dyn Job, tx: &mut WriteTx) -> Result<(), LaneError> {
    let head = tx.head;
    if let Err(error) = sqlx::query("SAVEPOINT job").execute(&mut tx.conn).await {
        tx.broken = true;
        return Err(statement(error));
    }
    let outcome = job.run(tx).await;
    let release = if outcome.is_ok() { "RELEASE job" } else { "ROLLBACK TO job; RELEASE job" };
    if outcome.is_err() {
        tx.head = head;
    }
    if let Err(error) = sqlx::raw_sql(release).execute(&mut tx.conn).await {
        // "no such savepoint": the error inside the job ended the whole transaction.
        tx.broken = true;
        return outcome.and(Err(statement(error)));
    }
    outcome
}

fn finish_all(group: Vec<Box<dyn Job>>, error: &LaneError) {
    for job in group {
        job.finish(Err(error.clone()));
    }
}
