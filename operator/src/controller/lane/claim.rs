//! The claim of a collection. The record's unique name is the lock: it is created, and whoever is second learns
//! whose it is.
//!
//! # Flow
//! 1. Record and volume are read from the API server itself, not from a cache.
//! 2. No record: it is created, with the log of the volume if that is ours (or adoptable), else with a new one.
//!    `AlreadyExists` means that somebody was faster: go on with theirs.
//! 3. The record names this lane's UID: held.
//! 4. It names another: if that lane exists, the collection is taken. If it is gone, its memory is retained, and
//!    only a lane of the same name and owner that asks for that UID takes it over, with the epoch raised.
//!
//! # Guarantees
//! - Of any number of lanes that claim a collection exactly one is named, whatever they do at the same time: one
//!   create succeeds, and a takeover names the `resourceVersion` it saw.
//! - A volume of another lane or another owner is never opened.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt as _};
use lanekeeper_core::cluster::{self, label};
use lanekeeper_core::{Hash32, LaneUid, LogId};
use lanekeeper_crds::{FederationRecord, Lane, annotations};

use super::validate::ValidatedLane;
use crate::apply::FIELD_MANAGER;
use crate::build::record::{self, adoption};
use crate::build::volume::ADOPTED;
use crate::build::{asked_to_adopt, owner_stamp};
use crate::context::Context;
use crate::error::Error;
use crate::status::{Finding, Reason};

/// How a claim ended.
#[derive(Debug, Clone)]
pub enum Claim {
    /// The record names this lane.
    Held(Box<Held>),
    /// It names another.
    Refused {
        /// What FenceHeld says.
        fence: Finding,
        /// What VolumeConflict says, where the volume is another's too.
        conflict: Option<String>,
    },
}

/// A record that names this lane.
#[derive(Debug, Clone)]
pub struct Held {
    /// As stored.
    pub record: FederationRecord,
    /// The identity of its log.
    pub log_id: LogId,
    /// The UID of the lane whose log is adopted.
    pub adopted: Option<LaneUid>,
    /// The volume there is.
    pub volume: Option<PersistentVolumeClaim>,
    /// Why the volume there is is not this lane's.
    pub conflict: Option<String>,
}

/// What the volume of the lane's name is to this lane. Public for tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeState {
    /// There is none.
    Absent,
    /// This lane's, with this log.
    Ours {
        /// On it.
        log_id: LogId,
        /// Adopted from.
        adopted: Option<LaneUid>,
    },
    /// Another's, which this lane asked for and may have.
    Adoptable {
        /// Whose it was.
        from: LaneUid,
        /// On it.
        log_id: LogId,
    },
    /// Another's.
    Conflict(String),
}

/// Judges the volume by its stamps.
#[must_use]
pub fn volume_state(volume: Option<&PersistentVolumeClaim>, lane: &Lane, uid: LaneUid) -> VolumeState {
    let Some(volume) = volume else { return VolumeState::Absent };
    let name = volume.name_any();
    let stamp = |key: &str| volume.annotations().get(key).map(String::as_str);
    let (Some(of), Some(owner), Some(log_id)) = (
        stamp(label::LANE_UID).and_then(|uid| uid.parse::<LaneUid>().ok()),
        stamp(label::OWNER),
        stamp(label::LOG_ID).and_then(|id| id.parse::<LogId>().ok()),
    ) else {
        return VolumeState::Conflict(format!("the volume {name} exists and bears no lane's stamps"));
    };
    if of == uid {
        return VolumeState::Ours { log_id, adopted: stamp(ADOPTED).and_then(|uid| uid.parse().ok()) };
    }
    if asked_to_adopt(lane) != Some(of) {
        return VolumeState::Conflict(format!(
            "the volume {name} holds the memory of an earlier lane of this name (UID {of}); its owner opens it with \
             the annotation {}: {of}",
            annotations::ADOPT
        ));
    }
    if owner != owner_stamp(lane) {
        return VolumeState::Conflict(format!(
            "the volume {name} holds the memory of an earlier lane of this name, of another owner"
        ));
    }
    VolumeState::Adoptable { from: of, log_id }
}

/// Claims the collection for the lane.
pub async fn claim(context: &Context, lane: &Lane, valid: &ValidatedLane, now: Timestamp) -> Result<Claim, Error> {
    let here = &context.config.system_namespace;
    let records = Api::<FederationRecord>::namespaced(context.client.clone(), here);
    let volumes = Api::<PersistentVolumeClaim>::namespaced(context.client.clone(), valid.name.namespace());
    let volume_name = cluster::lane_object(valid.name.name());
    let record_object = format!("FederationRecord {here}/{}", valid.collection);
    let volume = volumes
        .get_opt(&volume_name)
        .await
        .map_err(Error::api("get", format!("PersistentVolumeClaim {}/{volume_name}", valid.name.namespace())))?;
    let state = volume_state(volume.as_ref(), lane, valid.uid);
    let stored = records.get_opt(&valid.collection).await.map_err(Error::api("get", record_object.as_str()))?;
    let stored = match stored {
        Some(stored) => stored,
        None => {
            let log_id = match &state {
                VolumeState::Ours { log_id, .. } | VolumeState::Adoptable { log_id, .. } => *log_id,
                VolumeState::Absent => new_log_id()?,
                // Without a record of its own the lane claims nothing that it could not use.
                VolumeState::Conflict(message) => {
                    let fence = Finding::no(Reason::VolumeConflict, message.clone());
                    return Ok(Claim::Refused { fence, conflict: Some(message.clone()) });
                }
            };
            let new = record::record(&record::Claim {
                lane: &valid.name,
                uid: valid.uid,
                collection: &valid.collection,
                log_id,
                fingerprint: valid.embedder.fingerprint(),
                now_s: now.as_second(),
                system_namespace: here,
                in_qdrant: context.qdrant.is_some(),
            })?;
            let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            match records.create(&params, &new).await {
                Ok(made) => {
                    tracing::info!(lane = %valid.name, collection = valid.collection, "claimed");
                    made
                }
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    records.get(&valid.collection).await.map_err(Error::api("get", record_object.as_str()))?
                }
                Err(error) => return Err(Error::api("create", record_object.as_str())(error)),
            }
        }
    };
    if stored.spec.writer.uid.0 == valid.uid.to_string() {
        return Ok(held(stored, state, volume));
    }
    if let Some(fence) = taken(context, &stored, valid).await? {
        return Ok(Claim::Refused { fence, conflict: None });
    }
    // The writer is gone and its memory retained.
    let writer = &stored.spec.writer;
    let gone = format!("{}/{} (UID {})", writer.namespace, writer.name, writer.uid.0);
    let same_name = writer.namespace == valid.name.namespace() && writer.name == valid.name.name();
    match &state {
        VolumeState::Adoptable { from, log_id }
            if same_name && from.to_string() == writer.uid.0 && log_id.to_string() == stored.spec.log_id =>
        {
            let patch = adoption(&stored, &valid.name, valid.uid);
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            let adopted = records
                .patch(&valid.collection, &params, &Patch::Merge(patch))
                .await
                .map_err(Error::api("adopt", record_object))?;
            tracing::info!(lane = %valid.name, from = %from, "adopted");
            Ok(held(adopted, state, volume))
        }
        VolumeState::Conflict(message) => {
            let fence = Finding::no(
                Reason::CollectionTaken,
                format!("the collection {} is retained for the deleted lane {gone}", valid.collection),
            );
            Ok(Claim::Refused { fence, conflict: Some(message.clone()) })
        }
        VolumeState::Absent | VolumeState::Ours { .. } | VolumeState::Adoptable { .. } => {
            let message = format!("the collection {} is retained for the deleted lane {gone}", valid.collection);
            let asked = asked_to_adopt(lane).is_some_and(|uid| uid.to_string() == writer.uid.0);
            let conflict = (same_name || asked).then(|| {
                format!("{message}, and no volume of that lane is here to tell whether the owner is the same")
            });
            Ok(Claim::Refused { fence: Finding::no(Reason::CollectionTaken, message), conflict })
        }
    }
}

/// The finding if the record's writer is a lane that exists, or the record is on its way out.
async fn taken(context: &Context, stored: &FederationRecord, valid: &ValidatedLane) -> Result<Option<Finding>, Error> {
    let writer = &stored.spec.writer;
    let holder = format!("{}/{}", writer.namespace, writer.name);
    if stored.metadata.deletion_timestamp.is_some() {
        let message = format!("the collection {} is being erased for {holder}", valid.collection);
        return Ok(Some(Finding::no(Reason::CollectionTaken, message)));
    }
    let lanes = Api::<PartialObjectMeta<Lane>>::namespaced(context.client.clone(), &writer.namespace);
    let found = lanes.get_opt(&writer.name).await.map_err(Error::api("get", format!("Lane {holder}")))?;
    let alive = found.is_some_and(|lane| lane.metadata.uid.as_deref() == Some(writer.uid.0.as_str()));
    Ok(alive.then(|| {
        let message = format!("the collection {} is held by lane {holder} (UID {})", valid.collection, writer.uid.0);
        Finding::no(Reason::CollectionTaken, message)
    }))
}

fn held(record: FederationRecord, state: VolumeState, volume: Option<PersistentVolumeClaim>) -> Claim {
    let log_id = record.spec.log_id.parse::<LogId>();
    let (adopted, mut conflict, on_volume) = match state {
        VolumeState::Absent => (None, None, None),
        VolumeState::Ours { log_id, adopted } => (adopted, None, Some(log_id)),
        VolumeState::Adoptable { from, log_id } => (Some(from), None, Some(log_id)),
        VolumeState::Conflict(message) => (None, Some(message), None),
    };
    let log_id = match log_id {
        Ok(log_id) => log_id,
        Err(error) => {
            conflict = Some(format!("the record {} has no log: {error}", record.name_any()));
            LogId(Hash32::from_bytes([0; 32]))
        }
    };
    if conflict.is_none() && on_volume.is_some_and(|found| found != log_id) {
        conflict = Some(format!(
            "the volume holds the log {}, the record of {} names {log_id}",
            on_volume.map_or_else(String::new, |found| found.to_string()),
            record.name_any()
        ));
    }
    Claim::Held(Box::new(Held { record, log_id, adopted, volume, conflict }))
}

fn new_log_id() -> Result<LogId, Error> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| Error::Keys { reason: error.to_string() })?;
    Ok(LogId(Hash32::from_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const OLD: &str = "0193a1b2-0000-7000-8000-000000000001";
    const NEW: &str = "0193a1b2-0000-7000-8000-000000000002";

    fn lane(owner: &str, adopt: Option<&str>) -> Lane {
        serde_json::from_value(json!({
            "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Lane",
            "metadata": {"name": "diary", "namespace": "team", "uid": NEW,
                "annotations": adopt.map(|uid| json!({annotations::ADOPT: uid})).unwrap_or(json!({}))},
            "spec": {"kind": "personal", "owner": owner},
        }))
        .unwrap()
    }

    fn volume(annotations: Value) -> PersistentVolumeClaim {
        serde_json::from_value(json!({"metadata": {"name": "lane-diary", "annotations": annotations}})).unwrap()
    }

    fn stamped(uid: &str, owner: &str) -> PersistentVolumeClaim {
        volume(json!({label::LANE_UID: uid, label::OWNER: owner, label::LOG_ID: "1".repeat(64)}))
    }

    #[test]
    fn a_volume_opens_for_its_lane_and_for_the_same_owner_who_asks_and_for_nobody_else() {
        let state =
            |volume: Option<&PersistentVolumeClaim>, lane: &Lane| volume_state(volume, lane, NEW.parse().unwrap());
        let log_id: LogId = "1".repeat(64).parse().unwrap();
        let old = stamped(OLD, "bob");
        assert_eq!(state(None, &lane("bob", None)), VolumeState::Absent);
        assert_eq!(state(Some(&stamped(NEW, "bob")), &lane("bob", None)), VolumeState::Ours { log_id, adopted: None });
        let adoptable = VolumeState::Adoptable { from: OLD.parse().unwrap(), log_id };
        assert_eq!(state(Some(&old), &lane("bob", Some(OLD))), adoptable);
        for refused in [
            lane("bob", None),
            lane("eve", None),
            lane("eve", Some(OLD)),
            lane("bob", Some(NEW)),
            lane("bob", Some("nonsense")),
            lane("bob", Some("")),
        ] {
            assert!(matches!(state(Some(&old), &refused), VolumeState::Conflict(_)), "{refused:?}");
        }
        for unstamped in [json!({}), json!({label::LANE_UID: NEW}), json!({label::LANE_UID: NEW, label::OWNER: "bob"})]
        {
            assert!(matches!(state(Some(&volume(unstamped)), &lane("bob", None)), VolumeState::Conflict(_)));
        }
    }
}
