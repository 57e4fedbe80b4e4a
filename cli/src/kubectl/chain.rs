//! All that stands behind one lane, looked up once.

use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use lanekeeper_core::LaneName;
use lanekeeper_core::cluster;
use lanekeeper_crds::{Embedder, FederationRecord, Lane};

use super::cluster::{Cluster, Part, seen};
use crate::failure::Failure;

/// One lane, from its object to its embedder.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) name: LaneName,
    pub(super) lane: Lane,
    pub(super) record: Part<FederationRecord>,
    pub(super) volume: Part<PersistentVolumeClaim>,
    pub(super) pod: Part<Pod>,
    /// `None` where the operator has not yet said which.
    pub(super) embedder: Option<Part<Embedder>>,
    /// What warned lately of the pod, newest first.
    pub(super) warnings: Vec<String>,
}

impl Chain {
    pub(super) async fn of(cluster: &Cluster, name: &LaneName) -> Result<Self, Failure> {
        let lane = cluster.lane(name).await?;
        let (object, pod) = (cluster::lane_object(name.name()), cluster::lane_pod(name.name()));
        let collection = collection(name, &lane);
        let embedder = match lane.status.as_ref().and_then(|status| status.embedder.as_deref()) {
            Some(embedder) => Some(seen(Api::<Embedder>::all(cluster.client.clone()).get_opt(embedder).await)),
            None => None,
        };
        Ok(Self {
            record: cluster.part(&cluster.system, &collection).await,
            volume: cluster.part(name.namespace(), &object).await,
            pod: cluster.part(name.namespace(), &pod).await,
            warnings: warnings(cluster, name.namespace(), &pod).await,
            name: name.clone(),
            lane,
            embedder,
        })
    }
}

/// `<namespace>.<collection>`, also where no status says it yet.
pub(super) fn collection(name: &LaneName, lane: &Lane) -> String {
    format!("{}.{}", name.namespace(), lane.spec.collection.as_deref().unwrap_or(name.name()))
}

/// Warnings about an object, in its own words; none where they may not be seen.
async fn warnings(cluster: &Cluster, namespace: &str, object: &str) -> Vec<String> {
    let about = ListParams::default().fields(&format!("involvedObject.name={object},type=Warning"));
    let listed = Api::<Event>::namespaced(cluster.client.clone(), namespace).list(&about).await;
    let mut found = listed.map(|listed| listed.items).unwrap_or_default();
    let when = |event: &Event| event.last_timestamp.as_ref().map(|time| time.0);
    found.sort_by_key(|event| std::cmp::Reverse(when(event)));
    let words = |event: Event| Some(format!("{}: {}", event.reason?, event.message?.trim()));
    let mut words: Vec<String> = found.into_iter().filter_map(words).collect();
    words.dedup();
    words.truncate(3);
    words
}

/// Who the record says may write.
pub(super) fn writer(record: &FederationRecord) -> String {
    let writer = &record.spec.writer;
    format!("{}/{} (UID {})", writer.namespace, writer.name, writer.uid.0)
}

/// Whether the record's writer is this very lane.
pub(super) fn is_writer(record: &FederationRecord, lane: &Lane) -> bool {
    lane.uid().is_some_and(|uid| uid == record.spec.writer.uid.0)
}
