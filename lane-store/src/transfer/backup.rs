//! Backup: one stream that holds the lane's database and its curated files as they were at one moment.
//!
//! # Flow
//! 1. Under the lock of curated memory SQLite copies the database by `VACUUM INTO`, a read transaction that no
//!    writer waits for, and the curated files are copied beside it.
//! 2. The copies lose their names at once: only open files hold them.
//! 3. They are streamed as an archive (see `archive`).
//!
//! # Guarantees
//! - The copy has no free pages, so nothing that was forgotten before is in it.
//! - No copy outlives the stream, or a kill: what has a name for a moment is swept at the next open.
//!
//! # Caveats
//! - Neither the log's key nor the dedupe key is in it, nor vectors: a restore makes new keys and says so in
//!   the log, and derived tables and vectors are made again.
//! - What is forgotten after a backup is still in the backup; the receipt of a forget says so.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bytes::Bytes;
use futures::stream;
use lanekeeper_core::fingerprint::Fingerprint;
use lanekeeper_core::hooks::fault;
use lanekeeper_core::lane::LaneKind;
use lanekeeper_core::lane_client::ByteStream;
use lanekeeper_core::time::format_rfc3339_ms;
use lanekeeper_core::wire::events::Head;
use lanekeeper_core::{Epoch, LaneError, LaneName, LaneUid, LogId};
use serde::{Deserialize, Serialize};
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tokio::sync::mpsc;

use super::archive::ArchiveWriter;
use super::place::{BACKUP_PREFIX, DATABASE, MANIFEST, MEMORY};
use crate::error::StoreError;
use crate::log::row::root;
use crate::schema;
use crate::store::LaneStore;
use crate::volume::private_file;
use crate::writer::read_head;

/// Bytes handed on at a time.
const CHUNK: usize = 256 * 1024;
/// How deep the folder of curated files is looked into.
const DEPTH: usize = 4;

/// What a backup says of itself; its first entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupManifest {
    /// When, RFC 3339.
    pub made_at: String,
    /// The lane.
    pub lane: LaneName,
    /// What its name was bound to.
    pub uid: LaneUid,
    /// Personal or corpus.
    pub kind: LaneKind,
    /// `<namespace>.<collection>`.
    pub collection: String,
    /// The log.
    pub log_id: LogId,
    /// Its head in this backup.
    pub head: Head,
    /// The epoch that the store wrote under.
    pub epoch: Epoch,
    /// The embedding of its vectors, which are not in it.
    pub fingerprint: Fingerprint,
    /// The version of the database's schema.
    pub schema: i64,
}

/// Copies without names.
struct Snapshot {
    manifest: BackupManifest,
    database: File,
    /// Curated files, one behind the other.
    memory: File,
    files: Vec<(String, u64)>,
}

impl LaneStore {
    /// Streams a backup. The caller is admitted already.
    pub(crate) async fn backup_stream(&self) -> Result<ByteStream, LaneError> {
        let snapshot = {
            let _one_at_a_time = self.upkeep_lock.lock().await;
            // Event and file of a curated save are in step while this is held.
            let _memory = self.memory_lock.lock().await;
            self.snapshot().await?
        };
        let (sender, mut chunks) = mpsc::channel(4);
        tokio::task::spawn_blocking(move || {
            let mut out = Chunks { sender, buffer: Vec::with_capacity(CHUNK) };
            if let Err(error) = write_archive(snapshot, &mut out) {
                tracing::warn!(%error, "a backup was not streamed to its end");
                // Without the end mark the stream is no backup; a reader that went away hears nothing.
                let _ = out.sender.blocking_send(Err(LaneError::internal(error)));
            }
        });
        Ok(Box::pin(stream::poll_fn(move |context| chunks.poll_recv(context))))
    }

    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let folder = self.volume.folder();
        let temp = tempfile::Builder::new()
            .prefix(BACKUP_PREFIX)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(folder)
            .map_err(|error| StoreError::io("make a folder in", folder, error))?;
        let path = temp.path().join(DATABASE);
        copy_database(&self.volume.database(), &path).await?;
        let _ = fault("backup_copied");
        let mut conn = open_read_only(&path).await?;
        let (seq, hash) = read_head(&mut conn, root(self.log_id)).await?;
        let _ = conn.close().await;
        let (memory, files) = copy_memory(&self.volume.memory(), temp.path())?;
        let database = File::open(&path).map_err(|error| StoreError::io("open", &path, error))?;
        temp.close().map_err(|error| StoreError::io("remove a folder in", folder, error))?;
        let manifest = BackupManifest {
            made_at: format_rfc3339_ms(self.clock.now_ms()),
            lane: self.config.lane.clone(),
            uid: self.config.uid,
            kind: self.config.kind,
            collection: self.config.collection.clone(),
            log_id: self.log_id,
            head: Head { seq, hash },
            epoch: self.fence.expected().epoch,
            fingerprint: self.encoder.fingerprint(),
            schema: schema::VERSION,
        };
        Ok(Snapshot { manifest, database, memory, files })
    }
}

/// A connection that cannot write, to a file that nobody else has open.
pub(super) async fn open_read_only(path: &Path) -> Result<SqliteConnection, StoreError> {
    sqlx::sqlite::SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .read_only(true)
        .disable_statement_logging()
        .connect()
        .await
        .map_err(StoreError::sqlite("open the database of a backup"))
}

async fn copy_database(from: &Path, to: &Path) -> Result<(), StoreError> {
    // SQLite would make the file by the umask; into an empty one that is private already it may write.
    drop(private_file(to, OpenOptions::new().create_new(true).write(true))?);
    let target = to.to_str().ok_or_else(|| StoreError::Malformed {
        what: "lane folder",
        why: "its path must be UTF-8 for a backup".into(),
    })?;
    let mut conn =
        schema::writer_options(from).connect().await.map_err(StoreError::sqlite("open the log for a backup"))?;
    let copied = sqlx::query("VACUUM INTO ?").bind(target).execute(&mut conn).await;
    let _ = conn.close().await;
    copied.map(drop).map_err(StoreError::sqlite("copy the database"))
}

/// Copies every curated file into one nameless file. Dot files are editors' and our own half-written ones.
fn copy_memory(from: &Path, temp: &Path) -> Result<(File, Vec<(String, u64)>), StoreError> {
    let mut spool = tempfile::tempfile_in(temp).map_err(|error| StoreError::io("write into", temp, error))?;
    let mut names = Vec::new();
    if from.is_dir() {
        list(from, MEMORY, DEPTH, &mut names)?;
    }
    names.sort();
    let mut files = Vec::new();
    for name in names {
        let relative = name.strip_prefix(MEMORY).unwrap_or(&name).trim_start_matches('/');
        let path = from.join(relative);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            // A hand may have removed it since it was listed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(StoreError::io("open", &path, error)),
        };
        let length = std::io::copy(&mut file, &mut spool).map_err(|error| StoreError::io("copy", &path, error))?;
        files.push((name, length));
    }
    spool.rewind().map_err(|error| StoreError::io("rewind a copy in", temp, error))?;
    Ok((spool, files))
}

fn list(folder: &Path, prefix: &str, depth: usize, names: &mut Vec<String>) -> Result<(), StoreError> {
    let failed = |error| StoreError::io("list", folder, error);
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else {
            tracing::warn!(folder = %folder.display(), "a file whose name is not UTF-8 is not backed up");
            continue;
        };
        if name.starts_with('.') {
            continue;
        }
        let name = format!("{prefix}/{name}");
        if kind.is_dir() && depth > 1 {
            list(&entry.path(), &name, depth - 1, names)?;
        } else if kind.is_file() {
            names.push(name);
        } else {
            // A link could lead out of the lane.
            tracing::warn!(%name, "what is neither a file nor a folder is not backed up");
        }
    }
    Ok(())
}

fn write_archive(snapshot: Snapshot, out: &mut Chunks) -> std::io::Result<()> {
    let Snapshot { manifest, mut database, mut memory, files } = snapshot;
    let mut archive = ArchiveWriter::begin(out)?;
    let manifest = serde_json::to_vec(&manifest)?;
    archive.entry(MANIFEST, manifest.len() as u64, &mut manifest.as_slice())?;
    let length = database.metadata()?.len();
    archive.entry(DATABASE, length, &mut database)?;
    for (name, length) in files {
        archive.entry(&name, length, &mut (&mut memory).take(length))?;
    }
    archive.finish().map(drop)
}

/// A blocking writer whose bytes become a stream.
struct Chunks {
    sender: mpsc::Sender<Result<Bytes, LaneError>>,
    buffer: Vec<u8>,
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK));
        self.sender.blocking_send(Ok(chunk.into())).map_err(|_| std::io::ErrorKind::BrokenPipe.into())
    }
}
