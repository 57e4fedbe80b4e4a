//! Which change concerns which object: the watches, and what each of them puts into which queue.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::watcher;
use kube::{Api, Resource, ResourceExt as _};
use lanekeeper_core::cluster::{label, system};
use lanekeeper_crds::{Embedder, FederationRecord, Lane};
use tokio::task::JoinSet;

use crate::cache::{Watch, key_of, our_labels, ours, start, without_status};
use crate::context::{Caches, Context};
use crate::controller::embedder::{managed_key, uses};
use crate::queue::Key;

/// Starts every watch; call once.
pub fn watch(context: &Arc<Context>, tasks: &mut JoinSet<()>) {
    let client = context.client.clone();
    let here = context.config.system_namespace.clone();
    let everything = watcher::Config::default;
    macro_rules! told {
        ($function:expr) => {{
            let context = Arc::clone(context);
            Box::new(move |object: &_| $function(&context, object))
        }};
    }
    // Our objects in any namespace, and those of the system namespace alone.
    macro_rules! of_lanes {
        ($kind:ty) => {{
            let (api, config) = ours::<$kind>(&client);
            start(Watch::new(api, config, told!(child::<$kind>)), tasks)
        }};
    }
    macro_rules! of_system {
        ($kind:ty) => {{
            let api = Api::<$kind>::namespaced(client.clone(), &here);
            start(Watch::new(api, our_labels(), told!(child::<$kind>)), tasks)
        }};
    }
    let mut lanes = Watch::new(Api::all(client.clone()), everything(), told!(lane));
    lanes.relevant = without_status;
    let pods = {
        let (api, config) = ours::<Pod>(&client);
        let mut watch = Watch::new(api, config, told!(child::<Pod>));
        watch.trim = trim_pod;
        watch
    };
    let caches = Caches {
        lanes: start(lanes, tasks),
        embedders: start(Watch::new(Api::all(client.clone()), everything(), told!(embedder)), tasks),
        records: start(Watch::new(Api::namespaced(client.clone(), &here), everything(), told!(record)), tasks),
        stateful_sets: of_lanes!(k8s_openapi::api::apps::v1::StatefulSet),
        deployments: of_system!(k8s_openapi::api::apps::v1::Deployment),
        services: of_lanes!(k8s_openapi::api::core::v1::Service),
        service_accounts: of_lanes!(k8s_openapi::api::core::v1::ServiceAccount),
        volumes: of_lanes!(k8s_openapi::api::core::v1::PersistentVolumeClaim),
        roles: of_system!(k8s_openapi::api::rbac::v1::Role),
        role_bindings: of_system!(k8s_openapi::api::rbac::v1::RoleBinding),
        policies: context.config.network_policies.then(|| of_lanes!(k8s_openapi::api::networking::v1::NetworkPolicy)),
        pods: start(pods, tasks),
        secrets: start(
            Watch::new(
                Api::all(client.clone()),
                our_labels(),
                told!(child::<PartialObjectMeta<k8s_openapi::api::core::v1::Secret>>),
            ),
            tasks,
        ),
        system_secrets: start(
            Watch::new(Api::namespaced(client.clone(), &here), everything(), told!(system_secret)),
            tasks,
        ),
        namespaces: start(Watch::new(Api::all(client.clone()), everything(), told!(namespace)), tasks),
    };
    if context.caches.set(caches).is_err() {
        tracing::error!("the watches were started twice");
    }
}

/// Of a pod only what its causes are read from is kept.
fn trim_pod(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
    if let Some(spec) = &mut pod.spec {
        spec.volumes = None;
        spec.affinity = None;
        for container in &mut spec.containers {
            container.args = None;
            container.env = None;
            container.volume_mounts = None;
        }
    }
}

fn lane(context: &Context, changed: &DeserializeGuard<Lane>) {
    let key = key_of(changed);
    context.queues.lanes.add(key.clone());
    let Ok(lane) = &changed.0 else { return };
    if let Ok(collection) = lane.full_collection() {
        context.queues.records.add(Key::namespaced(&context.config.system_namespace, collection));
    }
    enqueue_embedder(context, lane);
    let Some(caches) = context.caches.get() else { return };
    // Whoever it reads has to admit it; whoever reads it may now, or not any more.
    for target in &lane.spec.reads {
        let target = Key::namespaced(&target.namespace, &target.name);
        let found = crate::cache::find(&caches.lanes, &target);
        if let Some(Ok(collection)) = found.as_ref().and_then(|found| found.0.as_ref().ok()).map(Lane::full_collection)
        {
            context.queues.records.add(Key::namespaced(&context.config.system_namespace, collection));
        }
    }
    let declared = |lane: &Lane| lane.spec.collection.clone().or_else(|| lane.metadata.name.clone());
    let collection = declared(lane);
    for other in caches.lanes.state() {
        let Ok(other) = &other.0 else { continue };
        // Who holds a collection is told to whoever else declares it.
        if other.metadata.namespace == key.namespace && declared(other) == collection {
            context.queues.lanes.add(key_of(other));
        }
        let reads = |read: &lanekeeper_crds::lane::LaneReference| {
            Some(read.namespace.as_str()) == key.namespace.as_deref() && read.name == key.name
        };
        if other.spec.reads.iter().any(reads) {
            context.queues.lanes.add(key_of(other));
        }
    }
}

fn enqueue_embedder(context: &Context, lane: &Lane) {
    match (&lane.spec.embedder.name, lane.spec.embedder.model) {
        (Some(name), _) => context.queues.embedders.add(Key::cluster(name)),
        (None, Some(model)) => context.queues.embedders.add(managed_key(model)),
        (None, None) => {}
    }
    // It may have been another's until now.
    let before = lane.status.as_ref().and_then(|status| status.embedder.as_ref());
    if let Some(name) = before {
        context.queues.embedders.add(Key::cluster(name));
    }
}

fn embedder(context: &Context, changed: &DeserializeGuard<Embedder>) {
    let name = changed.name_any();
    context.queues.embedders.add(Key::cluster(&name));
    enqueue_users(context, &name);
}

fn enqueue_users(context: &Context, embedder: &str) {
    let Some(caches) = context.caches.get() else { return };
    for lane in caches.lanes.state() {
        if lane.0.as_ref().is_ok_and(|lane| uses(lane, embedder)) {
            context.queues.lanes.add(key_of(&*lane));
        }
    }
}

fn record(context: &Context, changed: &DeserializeGuard<FederationRecord>) {
    context.queues.records.add(key_of(changed));
    if let Ok(record) = &changed.0 {
        let writer = &record.spec.writer;
        context.queues.lanes.add(Key::namespaced(&writer.namespace, &writer.name));
    }
    let collection = changed.name_any();
    let Some(caches) = context.caches.get() else { return };
    // Whoever would like to have it hears that it went, or whose it is.
    for lane in caches.lanes.state() {
        let declared = lane.0.as_ref().ok().and_then(|lane| lane.full_collection().ok());
        if declared.as_deref() == Some(&collection) {
            context.queues.lanes.add(key_of(&*lane));
        }
    }
}

fn child<K: Resource>(context: &Context, changed: &K) {
    let meta = changed.meta();
    let get = |name: &str| meta.labels.as_ref().and_then(|labels| labels.get(name));
    if let Some(lane) = get(label::LANE) {
        let namespace = get(label::LANE_NAMESPACE).or(meta.namespace.as_ref());
        if let Some(namespace) = namespace {
            context.queues.lanes.add(Key::namespaced(namespace, lane));
        }
    }
    if let Some(embedder) = get(label::EMBEDDER_NAME) {
        context.queues.embedders.add(Key::cluster(embedder));
    }
}

fn system_secret(context: &Context, changed: &PartialObjectMeta<k8s_openapi::api::core::v1::Secret>) {
    let name = changed.name_any();
    if [system::MASTER, system::CA, system::QUERY_TLS].contains(&name.as_str()) {
        context.queues.system.notify_one();
        return;
    }
    let Some(caches) = context.caches.get() else { return };
    if context.qdrant.as_ref().is_some_and(|qdrant| qdrant.secret_name() == name) {
        context.enqueue_lanes();
        caches.records.state().iter().for_each(|record| context.queues.records.add(key_of(&**record)));
        return;
    }
    for embedder in caches.embedders.state() {
        let Ok(found) = &embedder.0 else { continue };
        let secret = found.spec.external.as_ref().and_then(|external| external.api_key_secret.as_ref());
        if secret.is_some_and(|secret| secret.name == name) {
            context.queues.embedders.add(key_of(&*embedder));
            enqueue_users(context, &embedder.name_any());
        }
    }
}

fn namespace(context: &Context, changed: &PartialObjectMeta<k8s_openapi::api::core::v1::Namespace>) {
    if changed.metadata.deletion_timestamp.is_none() {
        return;
    }
    let Some(caches) = context.caches.get() else { return };
    let name = changed.name_any();
    for lane in caches.lanes.state() {
        if lane.namespace().as_deref() == Some(&name) {
            context.queues.lanes.add(key_of(&*lane));
        }
    }
}
