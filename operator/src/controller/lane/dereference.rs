//! What the caches hold about a lane. Reads no spec but for `reads`.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use lanekeeper_core::cluster;
use lanekeeper_crds::Lane;
use lanekeeper_crds::lane::{LaneKind, LaneReference};

use crate::cache::find;
use crate::context::Context;
use crate::error::Error;
use crate::queue::Key;
use crate::status::{Finding, Reason};

/// What there is.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Whether the namespace is on its way out.
    pub namespace_ends: bool,
    /// The lane's StatefulSet.
    pub stateful_set: Option<Arc<StatefulSet>>,
    /// Its pod.
    pub pod: Option<Arc<Pod>>,
    /// Its volume.
    pub volume: Option<Arc<PersistentVolumeClaim>>,
}

/// Looks it up.
pub fn dereference(context: &Context, key: &Key) -> Result<Seen, Error> {
    let caches = context.caches()?;
    let object = Key::namespaced(key.namespace(), cluster::lane_object(&key.name));
    let pod = Key::namespaced(key.namespace(), cluster::lane_pod(&key.name));
    let namespace = find(&caches.namespaces, &Key::cluster(key.namespace()));
    Ok(Seen {
        namespace_ends: namespace.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some()),
        stateful_set: find(&caches.stateful_sets, &object),
        pod: find(&caches.pods, &pod),
        volume: find(&caches.volumes, &object),
    })
}

/// Whether every entry of `reads` resolves, and which side is missing if one does not.
pub fn reads(context: &Context, key: &Key, lane: &Lane) -> Result<Finding, Error> {
    if lane.spec.reads.is_empty() {
        return Ok(Finding::yes(Reason::Resolved, "the lane reads no other"));
    }
    let lanes = &context.caches()?.lanes;
    for LaneReference { namespace, name } in &lane.spec.reads {
        let target = find(lanes, &Key::namespaced(namespace, name));
        let target = target.as_ref().and_then(|target| target.0.as_ref().ok());
        let target = target.filter(|target| target.metadata.deletion_timestamp.is_none());
        let Some(target) = target else {
            return Ok(Finding::no(Reason::ReadTargetMissing, format!("there is no lane {namespace}/{name}")));
        };
        if target.spec.kind != LaneKind::Corpus {
            let message = format!("{namespace}/{name} is no corpus lane");
            return Ok(Finding::no(Reason::ReadTargetNotCorpus, message));
        }
        let admits = target
            .spec
            .readers
            .iter()
            .any(|reader| reader.namespace == key.namespace() && (reader.name == "*" || reader.name == key.name));
        if !admits {
            let message = format!("{namespace}/{name} does not list {key} in its readers");
            return Ok(Finding::no(Reason::ReadTargetDoesNotConsent, message));
        }
    }
    Ok(Finding::yes(Reason::Resolved, format!("all {} lanes consent", lane.spec.reads.len())))
}

/// Whether an object belongs to this lane.
pub fn is_of<K: kube::Resource>(object: &K, uid: &str) -> bool {
    object.labels().get(cluster::label::LANE_UID).is_some_and(|found| found == uid)
}
