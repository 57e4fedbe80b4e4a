//! One row of the log: its canonical body, commitment and hash.

use lanekeeper_core::wire::events::{Turn, TurnRole};
use lanekeeper_core::{Epoch, EventId, Hash32, LaneUid, LogId, Seq};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

const ROOT_TAG: &[u8] = b"lanekeeper/log/root/v1";
const BODY_TAG: &[u8] = b"lanekeeper/log/body/v1";
const ROW_TAG: &[u8] = b"lanekeeper/log/row/v1";

/// What an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A turn of a conversation.
    Turn,
    /// A version of a curated file.
    Memory,
    /// What was forgotten.
    Forget,
    /// The log's first event: which lane, which key.
    Opened,
    /// The log was taken over by a re-created lane of the same owner.
    Adopted,
    /// A person accepted a head, or a backup was restored.
    Restored,
    /// The turns just before it came from elsewhere.
    Imported,
}

impl Kind {
    /// The name in the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Memory => "memory",
            Self::Forget => "forget",
            Self::Opened => "opened",
            Self::Adopted => "adopted",
            Self::Restored => "restored",
            Self::Imported => "imported",
        }
    }

    /// Whether a forget may take its body.
    #[must_use]
    pub const fn forgettable(self) -> bool {
        match self {
            Self::Turn | Self::Memory => true,
            Self::Forget | Self::Opened | Self::Adopted | Self::Restored | Self::Imported => false,
        }
    }
}

impl std::str::FromStr for Kind {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Turn, Self::Memory, Self::Forget, Self::Opened, Self::Adopted, Self::Restored, Self::Imported]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or(())
    }
}

/// Body of a turn, as stored. Field order is part of the format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnBody {
    /// As sent.
    pub text: String,
    /// Who said it.
    pub role: TurnRole,
    /// As sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
    /// As sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// As sent, keys sorted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

impl TurnBody {
    pub(crate) fn of(turn: &Turn) -> Self {
        let Turn { role, text, speaker, at, metadata } = turn;
        Self {
            text: text.clone(),
            role: *role,
            speaker: speaker.clone(),
            at: at.clone(),
            metadata: metadata
                .clone()
                .map(|map| if let Value::Object(map) = sorted(Value::Object(map)) { map } else { Map::new() }),
        }
    }
}

/// Body of a `memory` event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryBody {
    /// Whose file.
    pub owner: String,
    /// `save`, `hand_edit`, `conflict` or `forget`.
    pub cause: String,
    /// The whole file; for a `conflict` the base64 of its bytes.
    pub text: String,
    /// Of cause `forget` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trail: Option<MemoryTrail>,
}

/// What the versions that a forget erased can no longer tell. Holds ids and places, no text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryTrail {
    /// Of each paragraph that is left, in order: its id, and the seq of the event that first wrote it.
    pub paragraphs: Vec<(String, u64)>,
    /// Of each version erased by this forget or by one whose own trail it erased: seq and cause.
    pub erased: Vec<(u64, String)>,
}

/// Body of a `forget` event. It stays readable for ever, so it holds no text and no name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetBody {
    /// What was forgotten.
    pub seqs: Vec<u64>,
    /// How many.
    pub count: u64,
    /// Who.
    pub by: String,
    /// Reason code.
    pub reason: String,
}

/// Body of `opened`, `adopted` and `restored`: the lane that the log is bound to from here on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingBody {
    /// `namespace/name`.
    pub lane: String,
    /// The Lane's UID.
    pub uid: LaneUid,
    /// Ed25519 public key that signs checkpoints from here on, 64 hex digits.
    pub public_key: Hash32,
    /// Of `restored`: the head that was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_seq: Option<u64>,
}

/// Body of an `imported` event: which turns before it came from elsewhere. Their principals are what the file
/// said; the event's own principal is who brought them. It stays readable for ever, so it holds ids alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedBody {
    /// The log that was exported.
    pub log_id: LogId,
    /// Its lane, `namespace/name`.
    pub lane: String,
    /// The turns.
    pub rows: Vec<ImportedRow>,
}

/// One imported turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedRow {
    /// Its place in this log.
    pub seq: u64,
    /// Its id where it was first logged.
    pub id: String,
    /// The log it was first logged in, where that is not the one that was exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_id: Option<LogId>,
}

/// Sorts object keys at every depth: one value has one spelling.
#[must_use]
pub fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.into_iter().collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(entries.into_iter().map(|(key, value)| (key, sorted(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}

/// A row, as hashed and stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// Place in the log.
    pub seq: Seq,
    /// UUIDv7.
    pub id: EventId,
    /// `at` if sent, else the append's time; milliseconds since the epoch.
    pub at_ms: i64,
    /// As text, so that a row of an unknown kind still verifies.
    pub kind: String,
    /// Who wrote it.
    pub principal: Option<String>,
    /// The session of a turn.
    pub session: Option<String>,
    /// The epoch it was written under.
    pub epoch: Epoch,
    /// 32 random bytes; `None` once forgotten.
    pub salt: Option<Vec<u8>>,
    /// Canonical JSON; `None` once forgotten.
    pub body: Option<Vec<u8>>,
    /// SHA-256(tag ‖ salt ‖ body).
    pub commitment: Hash32,
    /// Hash of the row before.
    pub prev_hash: Hash32,
    /// Hash of this row.
    pub hash: Hash32,
}

/// The `prev_hash` of a log's first row.
#[must_use]
pub fn root(log_id: LogId) -> Hash32 {
    let mut hasher = Sha256::new();
    hasher.update(ROOT_TAG);
    hasher.update(log_id.0.as_bytes());
    Hash32::from_bytes(hasher.finalize().into())
}

/// SHA-256(tag ‖ salt ‖ body).
#[must_use]
pub fn commitment(salt: &[u8], body: &[u8]) -> Hash32 {
    let mut hasher = Sha256::new();
    hasher.update(BODY_TAG);
    hasher.update((salt.len() as u64).to_be_bytes());
    hasher.update(salt);
    hasher.update(body);
    Hash32::from_bytes(hasher.finalize().into())
}

impl EventRow {
    /// The hash that the other fields give. A missing principal or session differs from an empty one.
    #[must_use]
    pub fn computed_hash(&self) -> Hash32 {
        let Self { seq, id, at_ms, kind, principal, session, epoch, salt: _, body: _, commitment, prev_hash, hash: _ } =
            self;
        let mut hasher = Sha256::new();
        hasher.update(ROW_TAG);
        let mut field = |bytes: &[u8]| {
            hasher.update((bytes.len() as u64).to_be_bytes());
            hasher.update(bytes);
        };
        field(&seq.0.to_be_bytes());
        field(id.as_uuid().as_bytes());
        field(&at_ms.to_be_bytes());
        field(kind.as_bytes());
        for optional in [principal, session] {
            match optional {
                Some(text) => {
                    field(&[1]);
                    field(text.as_bytes());
                }
                None => field(&[0]),
            }
        }
        field(&epoch.0.to_be_bytes());
        field(commitment.as_bytes());
        field(prev_hash.as_bytes());
        Hash32::from_bytes(hasher.finalize().into())
    }
}

/// Columns of an [`EventRow`] in the order [`from_sql`] reads them.
pub(crate) const COLUMNS: &str =
    "seq, id, at_ms, kind, principal, session, epoch, salt, body, commitment, prev_hash, hash";

/// Reads a row; a column of another type or length than ours is a damaged row, not a fault of ours.
pub(crate) fn from_sql(row: &sqlx::sqlite::SqliteRow) -> Result<EventRow, String> {
    use sqlx::Row;
    let column = |error: sqlx::Error| error.to_string();
    let hash = |index: usize| -> Result<Hash32, String> {
        let bytes: Vec<u8> = row.try_get(index).map_err(column)?;
        Hash32::from_slice(&bytes).ok_or_else(|| format!("column {index} is not 32 bytes"))
    };
    let id: Vec<u8> = row.try_get(1).map_err(column)?;
    let id = uuid::Uuid::from_slice(&id).map_err(|error| error.to_string())?;
    let unsigned = |index: usize| -> Result<u64, String> {
        let value: i64 = row.try_get(index).map_err(column)?;
        u64::try_from(value).map_err(|_| format!("column {index} is negative"))
    };
    Ok(EventRow {
        seq: Seq(unsigned(0)?),
        id: EventId::from_uuid(id),
        at_ms: row.try_get(2).map_err(column)?,
        kind: row.try_get(3).map_err(column)?,
        principal: row.try_get(4).map_err(column)?,
        session: row.try_get(5).map_err(column)?,
        epoch: Epoch(unsigned(6)?),
        salt: row.try_get(7).map_err(column)?,
        body: row.try_get(8).map_err(column)?,
        commitment: hash(9)?,
        prev_hash: hash(10)?,
        hash: hash(11)?,
    })
}

/// Writes a row; the only INSERT into the log.
pub(crate) async fn insert(conn: &mut sqlx::SqliteConnection, row: &EventRow) -> Result<(), sqlx::Error> {
    let EventRow { seq, id, at_ms, kind, principal, session, epoch, salt, body, commitment, prev_hash, hash } = row;
    sqlx::query(
        "INSERT INTO events (seq, id, at_ms, kind, principal, session, epoch, salt, body, commitment, prev_hash, hash)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(seq.0.cast_signed())
    .bind(id.as_uuid().as_bytes().as_slice())
    .bind(at_ms)
    .bind(kind)
    .bind(principal.as_deref())
    .bind(session.as_deref())
    .bind(epoch.0.cast_signed())
    .bind(salt.as_deref())
    .bind(body.as_deref())
    .bind(commitment.as_bytes().as_slice())
    .bind(prev_hash.as_bytes().as_slice())
    .bind(hash.as_bytes().as_slice())
    .execute(conn)
    .await
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> EventRow {
        let mut row = EventRow {
            seq: Seq(1),
            id: EventId::from_uuid(uuid::Uuid::from_u128(5)),
            at_ms: 7,
            kind: "turn".into(),
            principal: Some("user:bob".into()),
            session: Some("s".into()),
            epoch: Epoch(1),
            salt: Some(vec![1; 32]),
            body: Some(b"{}".to_vec()),
            commitment: commitment(&[1; 32], b"{}"),
            prev_hash: root(LogId(Hash32::from_bytes([9; 32]))),
            hash: Hash32::from_bytes([0; 32]),
        };
        row.hash = row.computed_hash();
        row
    }

    #[test]
    fn every_field_enters_the_hash_and_salt_and_body_do_not() {
        let changes: [fn(&mut EventRow); 11] = [
            |r| r.seq = Seq(2),
            |r| r.id = EventId::from_uuid(uuid::Uuid::from_u128(6)),
            |r| r.at_ms = 8,
            |r| r.kind = "turm".into(),
            |r| r.principal = None,
            |r| r.principal = Some(String::new()),
            |r| r.session = None,
            |r| r.session = Some("t".into()),
            |r| r.epoch = Epoch(2),
            |r| r.commitment = Hash32::from_bytes([3; 32]),
            |r| r.prev_hash = Hash32::from_bytes([3; 32]),
        ];
        let base = row();
        for (index, change) in changes.iter().enumerate() {
            let mut changed = base.clone();
            change(&mut changed);
            assert_ne!(changed.computed_hash(), base.hash, "change {index}");
        }
        let mut purged = base.clone();
        purged.salt = None;
        purged.body = None;
        assert_eq!(purged.computed_hash(), base.hash);
    }

    #[test]
    fn the_format_of_a_row_never_moves() {
        // A stored log is verified by every later program: this value may not change. It was computed once by
        // another program (Python, from docs/formats.md).
        assert_eq!(row().hash.to_string(), "943154f437111e51e985e4e37e2440c4548c2b898a8ae0a71922a0772888451b");
    }

    #[test]
    fn metadata_has_one_spelling() {
        let value: Value = serde_json::from_str(r#"{"b":1,"a":{"d":[{"z":1,"y":2}],"c":null}}"#).unwrap();
        assert_eq!(sorted(value).to_string(), r#"{"a":{"c":null,"d":[{"y":2,"z":1}]},"b":1}"#);
    }
}
