//! The federation record of one collection. `spec` is written by whoever runs lanes (the operator, or
//! the local program); `status` by the store alone.

use lanekeeper_core::fingerprint::Fingerprint;
use lanekeeper_core::{Epoch, Generation, Hash32, LaneUid, LogId, Seq};
use serde::{Deserialize, Serialize};

/// The one declared writer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writer {
    /// The lane's namespace.
    pub namespace: String,
    /// The lane's name.
    pub name: String,
    /// What the name was bound to.
    pub uid: LaneUid,
}

/// Whether the writer may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Yes.
    ReadWrite,
    /// No: a hand-over is under way, or a person sealed it.
    Sealed,
}

/// Declared by the operator (locally the program).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordSpec {
    /// `<namespace>.<collection>`: the name is the lock.
    pub collection: String,
    /// The writer.
    pub writer: Writer,
    /// Whether it may write.
    pub mode: Mode,
    /// The identity of the log, made before the store's first start.
    pub log_id: LogId,
    /// The embedding of the collection.
    pub fingerprint: Fingerprint,
    /// Raised by every change of writer and every accepted rollback.
    pub epoch: Epoch,
    /// Which physical collection.
    pub generation: Generation,
    /// Lanes that may read this one, resolved to UIDs from both sides' consent.
    pub readers: Vec<LaneUid>,
}

/// The process that holds the log open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// Pod UID, or a random id of the process.
    pub id: String,
    /// When it wrote itself, milliseconds since the epoch.
    pub since_ms: i64,
    /// Whether it let go in order.
    pub released: bool,
}

/// A head that the store had reached; the file must still hold it when it is opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedHead {
    /// Which log.
    pub log_id: LogId,
    /// Seq.
    pub seq: Seq,
    /// Hash of that row.
    pub hash: Hash32,
}

/// Reported by the store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordStatus {
    /// Who holds the log.
    pub holder: Option<Holder>,
    /// At most once a minute of activity, and at shutdown.
    pub head: Option<PublishedHead>,
    /// The generation the store wants to fill.
    pub wanted_generation: Option<Generation>,
    /// The generation the store has filled.
    pub filled_generation: Option<Generation>,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Declared.
    pub spec: RecordSpec,
    /// Reported.
    #[serde(default)]
    pub status: RecordStatus,
}
