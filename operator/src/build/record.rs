//! The record of a collection's one writer. Its unique name is the lock, so it is created and never applied.

use lanekeeper_core::cluster::{RECORD_FINALIZER, label};
use lanekeeper_core::fingerprint::Fingerprint;
use lanekeeper_core::{LaneName, LaneUid, LogId};
use lanekeeper_crds::FederationRecord;
use lanekeeper_crds::federation_record::WriterMode;
use serde_json::json;

use super::typed;
use crate::error::Error;

/// A claim of a collection.
#[derive(Debug, Clone)]
pub struct Claim<'a> {
    /// The lane that claims it.
    pub lane: &'a LaneName,
    /// Its UID.
    pub uid: LaneUid,
    /// `<namespace>.<collection>`.
    pub collection: &'a str,
    /// The identity of its log.
    pub log_id: LogId,
    /// The embedding.
    pub fingerprint: Fingerprint,
    /// Seconds since the epoch, now. A record that is made again after an erasure must not begin with an epoch that
    /// a token of the erased lane still names (they live 24 h), so the first epoch is the time.
    pub now_s: i64,
    /// Where records are.
    pub system_namespace: &'a str,
    /// Whether its vectors are in Qdrant.
    pub in_qdrant: bool,
}

/// The record that wins the collection if nobody was faster.
pub fn record(claim: &Claim<'_>) -> Result<FederationRecord, Error> {
    let finalizers: &[&str] = if claim.in_qdrant { &[RECORD_FINALIZER] } else { &[] };
    let labels: super::LabelMap = [
        (label::MANAGED_BY, label::LANEKEEPER),
        (label::LANE, claim.lane.name()),
        (label::LANE_NAMESPACE, claim.lane.namespace()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect();
    let mut record: FederationRecord = typed(json!({
        "apiVersion": lanekeeper_crds::API_VERSION, "kind": "FederationRecord",
        "metadata": {
            "name": claim.collection, "namespace": claim.system_namespace, "labels": labels, "finalizers": finalizers,
        },
        "spec": {
            "collection": claim.collection,
            "writer": {
                "namespace": claim.lane.namespace(), "name": claim.lane.name(), "uid": claim.uid.to_string(),
            },
            "mode": "read-write",
            "logId": claim.log_id.to_string(),
            "fingerprint": claim.fingerprint.to_string(),
            "epoch": claim.now_s,
            "generation": 1,
        },
    }))?;
    record.spec.mode = WriterMode::ReadWrite;
    Ok(record)
}

/// The patch by which a lane takes over the record of a retained one: the log stays, the epoch rises, and nobody
/// wrote it meanwhile.
#[must_use]
pub fn adoption(record: &FederationRecord, lane: &LaneName, uid: LaneUid) -> serde_json::Value {
    json!({
        "metadata": {"resourceVersion": record.metadata.resource_version},
        "spec": {
            "writer": {"namespace": lane.namespace(), "name": lane.name(), "uid": uid.to_string()},
            "mode": "read-write",
            "epoch": record.spec.epoch.saturating_add(1),
        },
    })
}
