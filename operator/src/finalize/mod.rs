//! The end of a lane, and of a record.
//!
//! # Flow of a lane
//! 1. `Delete` counts only with the annotation `lanekeeper.dev/confirm-delete: <uid>`; without it, and where the
//!    spec cannot be read, it is `Retain`. It never blocks: an Event says so.
//! 2. The StatefulSet goes first, so that the store ends in order.
//! 3. `Retain`: the volume's reclaim policy is set, record and volume stay. `Delete`: the pod's end is awaited (for a
//!    minute: a node that is gone must not keep the lane), then the volume and the record go.
//! 4. Role and RoleBinding go, and everything with an ownerReference by itself. Last the finalizer.
//!
//! # Flow of a record that is erased
//! Its own finalizer keeps it until Qdrant has dropped fence, alias and collections. So a lane goes although Qdrant
//! is down, and its collection's name is free only when nothing of it is left.
//!
//! # Guarantees
//! - Works while suspended, with a bad spec, with the Secret gone, with Qdrant down, in a terminating namespace:
//!   nothing is created, nothing that is missing is an error.
//! - A record goes only if its writer is this lane's UID, a volume only if it is stamped with it.

pub mod record;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::DeserializeGuard;
use kube::{Api, Resource, ResourceExt as _};
use lanekeeper_core::cluster::{self, LANE_FINALIZER, label};
use lanekeeper_core::{LaneName, LaneUid};
use lanekeeper_crds::lane::DeletionPolicy;
use lanekeeper_crds::{FederationRecord, Lane, annotations};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::apply::FIELD_MANAGER;
use crate::context::Context;
use crate::controller::Next;
use crate::controller::lane::apply::{delete_stateful_set, set_reclaim_policy};
use crate::controller::lane::dereference::is_of;
use crate::error::{Error, is_missing};
use crate::queue::Key;

/// How long the end of a pod is awaited, seconds after the deletion.
const POD_S: i64 = 60;
/// Annotation of a record: it is deleted together with all vectors, by the lane of this UID.
pub const ERASE: &str = "lanekeeper.dev/erase";

/// Whether a lane's memory goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It stays.
    Retain,
    /// It stays although the spec says Delete: that was not confirmed.
    Unconfirmed,
    /// It goes.
    Erase,
}

/// Decides it. `None`: the spec cannot be read.
#[must_use]
pub fn fate(lane: Option<&Lane>, uid: LaneUid) -> Fate {
    match lane {
        Some(lane) if lane.spec.deletion_policy == DeletionPolicy::Delete => {
            if lane.confirms_delete(uid) {
                Fate::Erase
            } else {
                Fate::Unconfirmed
            }
        }
        Some(_) | None => Fate::Retain,
    }
}

/// Ends a lane that is being deleted.
pub async fn lane(context: &Context, key: &Key, guarded: &DeserializeGuard<Lane>) -> Result<Next, Error> {
    if !guarded.finalizers().iter().any(|found| found == LANE_FINALIZER) {
        return Ok(Next::Done);
    }
    let meta = guarded.meta();
    let uid_text = meta.uid.clone().unwrap_or_default();
    let malformed = |reason: String| Error::Malformed { object: format!("Lane {key}"), reason };
    let uid: LaneUid = uid_text.parse().map_err(|error| malformed(format!("metadata.uid {error}")))?;
    let lane = guarded.0.as_ref().ok();
    let fate = fate(lane, uid);
    end_store(context, key, &uid_text).await?;
    let volume = volume_of(context, key, &uid_text).await?;
    match fate {
        Fate::Retain | Fate::Unconfirmed => retain(context, volume.as_ref(), "Retain").await?,
        Fate::Erase => {
            await_pod(context, key, &uid_text, meta.deletion_timestamp.as_ref().map(|time| time.0)).await?;
            retain(context, volume.as_ref(), "Delete").await?;
            if let Some(volume) = &volume {
                delete::<PersistentVolumeClaim>(context, key.namespace(), &volume.name_any(), volume.uid()).await?;
            }
            erase_records(context, &uid_text).await?;
        }
    }
    if let Ok(name) = LaneName::new(key.namespace(), &key.name) {
        let here = context.config.system_namespace.clone();
        delete::<RoleBinding>(context, &here, &cluster::lane_role(&name), None).await?;
        delete::<Role>(context, &here, &cluster::lane_role(&name), None).await?;
    }
    if fate == Fate::Unconfirmed {
        let message = format!(
            "the memory is kept: deletionPolicy Delete needs the annotation {}: {uid_text}",
            annotations::CONFIRM_DELETE
        );
        context.events.warn(&guarded.object_ref(&()), "Delete", "DeletedAsRetain", &message).await;
    }
    remove_finalizer(context, key, guarded).await?;
    tracing::info!(lane = %key, ?fate, "the lane has ended");
    Ok(Next::Done)
}

async fn end_store(context: &Context, key: &Key, uid: &str) -> Result<(), Error> {
    let sets = Api::<StatefulSet>::namespaced(context.client.clone(), key.namespace());
    let name = cluster::lane_object(&key.name);
    let found =
        sets.get_opt(&name).await.map_err(Error::api("get", format!("StatefulSet {}/{name}", key.namespace())))?;
    match found {
        Some(found) if is_of(&found, uid) => delete_stateful_set(context, &found).await,
        Some(_) | None => Ok(()),
    }
}

/// The lane's volume, if it is stamped with its UID.
async fn volume_of(context: &Context, key: &Key, uid: &str) -> Result<Option<PersistentVolumeClaim>, Error> {
    let volumes = Api::<PersistentVolumeClaim>::namespaced(context.client.clone(), key.namespace());
    let name = cluster::lane_object(&key.name);
    let object = format!("PersistentVolumeClaim {}/{name}", key.namespace());
    let found = volumes.get_opt(&name).await.map_err(Error::api("get", object))?;
    Ok(found.filter(|volume| volume.annotations().get(label::LANE_UID).is_some_and(|found| found == uid)))
}

async fn retain(context: &Context, volume: Option<&PersistentVolumeClaim>, policy: &str) -> Result<(), Error> {
    let bound = volume.and_then(|volume| volume.spec.as_ref()?.volume_name.clone()).filter(|name| !name.is_empty());
    match bound {
        Some(name) if context.config.retain_volumes => set_reclaim_policy(context, &name, policy).await,
        Some(_) | None => Ok(()),
    }
}

/// A store that still runs would write into what is being dropped.
async fn await_pod(context: &Context, key: &Key, uid: &str, deleted: Option<Timestamp>) -> Result<(), Error> {
    let pods = Api::<Pod>::namespaced(context.client.clone(), key.namespace());
    let name = cluster::lane_pod(&key.name);
    let found = pods.get_opt(&name).await.map_err(Error::api("get", format!("Pod {}/{name}", key.namespace())))?;
    let waited = deleted.map_or(POD_S, |deleted| Timestamp::now().as_second().saturating_sub(deleted.as_second()));
    match found {
        Some(pod) if is_of(&pod, uid) && waited < POD_S => {
            Err(Error::Waiting { what: format!("the end of Pod {name}") })
        }
        Some(_) | None => Ok(()),
    }
}

/// Every record whose writer is the lane: its spec may not tell which.
async fn erase_records(context: &Context, uid: &str) -> Result<(), Error> {
    let here = &context.config.system_namespace;
    let records = Api::<FederationRecord>::namespaced(context.client.clone(), here);
    let known: Vec<String> = context
        .caches()?
        .records
        .state()
        .iter()
        .filter(|record| record.0.as_ref().is_ok_and(|record| record.spec.writer.uid.0 == uid))
        .map(|record| record.name_any())
        .collect();
    for name in known {
        let object = || format!("FederationRecord {here}/{name}");
        // Read again: a cache may be behind an adoption.
        let Some(record) = records.get_opt(&name).await.map_err(Error::api("get", object()))? else { continue };
        if record.spec.writer.uid.0 != uid {
            continue;
        }
        if record.metadata.deletion_timestamp.is_none() {
            let patch = json!({"metadata": {
                "resourceVersion": record.resource_version(), "annotations": {ERASE: uid},
            }});
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            records.patch(&name, &params, &Patch::Merge(patch)).await.map_err(Error::api("mark", object()))?;
            delete::<FederationRecord>(context, here, &name, record.uid()).await?;
        }
    }
    Ok(())
}

async fn delete<K>(context: &Context, namespace: &str, name: &str, uid: Option<String>) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let objects = Api::<K>::namespaced(context.client.clone(), namespace);
    let mut params = DeleteParams::background();
    if uid.is_some() {
        params = params.preconditions(Preconditions { uid, resource_version: None });
    }
    match objects.delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(Error::api("delete", format!("{} {namespace}/{name}", K::kind(&())))(error)),
    }
}

async fn remove_finalizer(context: &Context, key: &Key, guarded: &DeserializeGuard<Lane>) -> Result<(), Error> {
    let rest: Vec<&String> = guarded.finalizers().iter().filter(|found| *found != LANE_FINALIZER).collect();
    let patch = json!({"metadata": {"resourceVersion": guarded.resource_version(), "finalizers": rest}});
    let lanes = Api::<DeserializeGuard<Lane>>::namespaced(context.client.clone(), key.namespace());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match lanes.patch(&key.name, &params, &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(Error::api("remove the finalizer from", format!("Lane {key}"))(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_only_with_the_policy_and_the_confirmation_of_this_very_uid() {
        const UID: &str = "0193a1b2-0000-7000-8000-000000000001";
        let lane = |policy: &str, confirmed: Option<&str>| -> Lane {
            let annotations = confirmed.map_or(json!({}), |uid| json!({annotations::CONFIRM_DELETE: uid}));
            serde_json::from_value(json!({
                "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Lane",
                "metadata": {"name": "bob", "namespace": "team", "annotations": annotations},
                "spec": {"kind": "personal", "owner": "bob", "deletionPolicy": policy},
            }))
            .unwrap()
        };
        let uid = UID.parse().unwrap();
        assert_eq!(fate(Some(&lane("Delete", Some(UID))), uid), Fate::Erase);
        assert_eq!(fate(Some(&lane("Delete", None)), uid), Fate::Unconfirmed);
        let other = "0193a1b2-0000-7000-8000-000000000002";
        for wrong in [other, "", "true", &UID.to_uppercase()] {
            assert_eq!(fate(Some(&lane("Delete", Some(wrong))), uid), Fate::Unconfirmed, "{wrong}");
        }
        assert_eq!(fate(Some(&lane("Retain", Some(UID))), uid), Fate::Retain);
        assert_eq!(fate(None, uid), Fate::Retain, "what cannot be read erases nothing");
    }
}
