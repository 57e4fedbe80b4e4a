//! Accepting a head: a person says that a log which was rolled back or forked is the lane's from here on.
//!
//! # Flow
//! 1. Under the folder's lock the whole log is walked and must end at exactly the head that the person names.
//! 2. The acceptance is written into the file.
//! 3. The record's epoch is raised by one, so that whoever still writes under the old one is refused.
//! 4. The record's head becomes the accepted one. The next open appends a `restored` event under the new epoch
//!    before anything else, and the acceptance leaves the file with it; vectors of events that are gone are
//!    deleted by healing.
//!
//! # Guarantees
//! - A kill between any two steps leaves a lane that still only reads, and the same call again goes on: the
//!   epoch is not raised twice for one acceptance.
//! - A log that does not hold is never accepted.

use std::path::Path;

use lanekeeper_core::hooks::fault;
use lanekeeper_core::wire::events::Head;
use lanekeeper_core::{Epoch, Hash32, LaneError, LaneUid, Seq};
use lanekeeper_federation::{PublishedHead, Registry};
use serde::{Deserialize, Serialize};
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use super::place;
use crate::error::StoreError;
use crate::opening::row_at;
use crate::schema;
use crate::verifying::verify_file;
use crate::volume::Volume;

/// An acceptance that no event tells of yet, as it stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Accepted {
    pub(crate) seq: Seq,
    pub(crate) hash: Hash32,
    /// What the record's epoch becomes.
    pub(crate) epoch: Epoch,
}

/// What accepting a head did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct AcceptReport {
    /// The head that counts from here on.
    pub head: Head,
    /// The head that the record knew before; what lies above the accepted one is given up.
    pub given_up: Option<Head>,
    /// The epoch from here on.
    pub epoch: Epoch,
}

/// Reads a standing acceptance.
pub(crate) async fn read(conn: &mut SqliteConnection) -> Result<Option<Accepted>, StoreError> {
    let stored: Option<Vec<u8>> = sqlx::query_scalar("SELECT value FROM meta WHERE key = 'accepted_head'")
        .fetch_optional(conn)
        .await
        .map_err(StoreError::sqlite("read the accepted head"))?;
    stored
        .map(|json| {
            serde_json::from_slice(&json)
                .map_err(|error| StoreError::Malformed { what: "accepted head", why: error.to_string() })
        })
        .transpose()
}

async fn write(conn: &mut SqliteConnection, accepted: Accepted) -> Result<(), StoreError> {
    let json = serde_json::to_vec(&accepted)
        .map_err(|error| StoreError::Malformed { what: "accepted head", why: error.to_string() })?;
    sqlx::query("INSERT OR REPLACE INTO meta (key, value) VALUES ('accepted_head', ?)")
        .bind(json)
        .execute(conn)
        .await
        .map(drop)
        .map_err(StoreError::sqlite("write the accepted head"))
}

/// Accepts `head` as the lane's. The lane must not be open, here or elsewhere.
pub async fn accept_head(
    folder: &Path,
    registry: &dyn Registry,
    collection: &str,
    uid: LaneUid,
    head: Head,
) -> Result<AcceptReport, StoreError> {
    let record = registry.read(collection).await.map_err(StoreError::Registry)?;
    if record.spec.writer.uid != uid {
        return Err(StoreError::OtherLane { bound: record.spec.writer.uid, asked: uid });
    }
    let volume = Volume::open(folder)?;
    place::settle(&volume)?;
    let database = volume.database();
    let log_id = record.spec.log_id;
    let report = verify_file(&database, Some(log_id)).await?;
    let Some(actual) = report.head else {
        return Err(StoreError::Malformed { what: "log", why: report.statement });
    };
    if actual != head {
        let Head { seq, hash } = actual;
        return Err(LaneError::HeadMismatch { actual_seq: seq, actual_hash: hash }.into());
    }
    schema::migrate(&database).await?;
    let mut conn = schema::writer_options(&database).connect().await.map_err(StoreError::sqlite("open the log"))?;
    let outcome = accept_in(&mut conn, registry, collection, head).await;
    conn.close().await.map_err(StoreError::sqlite("close the log"))?;
    outcome
}

async fn accept_in(
    conn: &mut SqliteConnection,
    registry: &dyn Registry,
    collection: &str,
    head: Head,
) -> Result<AcceptReport, StoreError> {
    let Head { seq, hash } = head;
    let record = registry.read(collection).await.map_err(StoreError::Registry)?;
    let log_id = record.spec.log_id;
    let begun = read(conn).await?.filter(|begun| (begun.seq, begun.hash) == (seq, hash));
    let published = record.status.head;
    if begun.is_none() {
        let holds = match &published {
            None => true,
            Some(PublishedHead { log_id: of, seq, hash }) => {
                *of == log_id && row_at(conn, *seq).await?.is_some_and(|(found, _)| found == *hash)
            }
        };
        if holds {
            return Err(LaneError::Conflict {
                code: "nothing_to_accept",
                detail: "the log holds the published head: there is nothing to accept".into(),
            }
            .into());
        }
    }
    // A call that was cut short is gone on with: the epoch is the one that it had decided on.
    let accepted = begun.unwrap_or(Accepted { seq, hash, epoch: record.spec.epoch.next() });
    write(conn, accepted).await?;
    let _ = fault("accept_written");
    let record = registry
        .change_spec(collection, Box::new(move |spec| spec.epoch = spec.epoch.max(accepted.epoch)))
        .await
        .map_err(StoreError::Registry)?;
    let _ = fault("accept_epoch");
    registry
        .change_status(collection, Box::new(move |status| status.head = Some(PublishedHead { log_id, seq, hash })))
        .await
        .map_err(StoreError::Registry)?;
    let given_up =
        published.map(|PublishedHead { log_id: _, seq, hash }| Head { seq, hash }).filter(|given_up| *given_up != head);
    Ok(AcceptReport { head, given_up, epoch: record.spec.epoch })
}
