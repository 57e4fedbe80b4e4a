//! A lane's volume. Made here and not by the StatefulSet, so that it is stamped before it is used: with the lane's
//! UID, its owner and the identity of the log on it.
//!
//! It has no ownerReference: what happens to it is the finalizer's decision and nobody else's.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use lanekeeper_core::cluster::label;
use lanekeeper_crds::lane::AccessMode;
use serde_json::json;

use super::{LanePlan, owner_stamp, typed};
use crate::error::Error;
use crate::quantity;

/// Annotation: the UID of the lane whose log was adopted with the volume. The store is told by its command line,
/// which must not change when the person takes the request out of the Lane.
pub const ADOPTED: &str = "lanekeeper.dev/adopted-from";

/// The volume. `stored` is the one there is: class and access mode of a claim never change, and its size never
/// falls, whatever the lane that adopted it says.
pub fn volume(plan: &LanePlan<'_>, stored: Option<&PersistentVolumeClaim>) -> Result<PersistentVolumeClaim, Error> {
    let storage = &plan.lane.spec.storage;
    let there = stored.and_then(|stored| stored.spec.as_ref());
    let size_there = there
        .and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage"))
        .map(|quantity| quantity.0.as_str());
    let size = size_there.map_or(storage.size.as_str(), |there| quantity::larger(there, &storage.size));
    let mode = match storage.access_mode {
        AccessMode::ReadWriteOnce => "ReadWriteOnce",
        AccessMode::ReadWriteOncePod => "ReadWriteOncePod",
    };
    let modes = there.and_then(|spec| spec.access_modes.clone()).unwrap_or_else(|| vec![mode.to_owned()]);
    // Not sent where it is the cluster's default: what the server filled in is not ours to state. An adopted claim
    // keeps the class that the lane before may have stated.
    let class = match there {
        Some(spec) if storage.storage_class_name.is_some() || plan.adopted.is_some() => {
            spec.storage_class_name.as_deref()
        }
        Some(_) => None,
        None => storage.storage_class_name.as_deref(),
    };
    let mut annotations = vec![
        (label::LANE_UID, plan.uid.to_string()),
        (label::OWNER, owner_stamp(plan.lane)),
        (label::LOG_ID, plan.log_id.to_string()),
    ];
    annotations.extend(plan.adopted.map(|uid| (ADOPTED, uid.to_string())));
    let annotations: super::LabelMap = annotations.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let mut spec = json!({"accessModes": modes, "resources": {"requests": {"storage": size}}});
    if let Some(class) = class {
        spec["storageClassName"] = class.into();
    }
    typed(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": plan.object(), "namespace": plan.namespace(), "labels": plan.labels(), "annotations": annotations,
        },
        "spec": spec,
    }))
}
