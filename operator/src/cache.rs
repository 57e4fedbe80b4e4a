//! What the API server holds, as this replica has seen it: one watch a kind, shared by all controllers.
//!
//! What must always hold: an object that cannot be read does not stop its kind's watch (kinds of ours are watched
//! through `DeserializeGuard`); whoever is told of a change finds it in the store; an object that vanished while the
//! watch was away is reported like any deleted one. What is not ours is watched by its metadata alone.
//!
//! Every replica watches, so that the one that waits can begin at once.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Debug;
use std::hash::Hasher as _;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use crate::error::chain;
use crate::queue::Key;

/// Told of every change, with the object as it is, or was before it went.
pub type Listener<K> = Box<dyn Fn(&K) + Send + Sync>;

/// What is watched of a kind.
pub struct Watch<K: Resource> {
    /// Where.
    pub api: Api<K>,
    /// Which.
    pub config: watcher::Config,
    /// Takes out what is not needed, before it is kept.
    pub trim: fn(&mut K),
    /// What counts as a change; the resourceVersion by default.
    pub relevant: fn(&K) -> u64,
    /// Told of it.
    pub listener: Listener<K>,
}

impl<K: Resource> Watch<K> {
    /// Watches all that `api` and `config` select; every change counts.
    pub fn new(api: Api<K>, config: watcher::Config, listener: Listener<K>) -> Self {
        Self { api, config, trim: |object| drop(object.meta_mut().managed_fields.take()), relevant: version, listener }
    }
}

fn version<K: Resource>(object: &K) -> u64 {
    hash(object.meta().resource_version.as_deref())
}

/// A number for a value, equal only for equal values of one process.
pub fn hash(value: impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// What a person or another controller changes of an object of ours; not what only its status holds.
pub fn without_status<K: Resource>(object: &K) -> u64 {
    let meta = object.meta();
    hash((
        meta.uid.as_deref(),
        meta.generation,
        &meta.annotations,
        &meta.labels,
        &meta.finalizers,
        meta.deletion_timestamp.is_some(),
    ))
}

/// Starts a watch as a task of `tasks`. The store fills as soon as the first listing is through.
pub fn start<K>(watch: Watch<K>, tasks: &mut JoinSet<()>) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let Watch { api, config, trim, relevant, listener } = watch;
    let stream = kube::runtime::watcher(api, config).default_backoff().boxed();
    let (store, writer) = reflector::store();
    tasks.spawn(follow(stream, writer, trim, relevant, listener));
    store
}

async fn follow<K>(
    mut stream: futures::stream::BoxStream<'static, watcher::Result<Event<K>>>,
    mut writer: reflector::store::Writer<K>,
    trim: fn(&mut K),
    relevant: fn(&K) -> u64,
    listener: Listener<K>,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    let store = writer.as_reader();
    let kind = K::kind(&());
    let mut seen: HashMap<ObjectRef<K>, u64> = HashMap::new();
    let mut listed: HashMap<ObjectRef<K>, u64> = HashMap::new();
    let mut changed: Vec<K> = Vec::new();
    while let Some(event) = stream.next().await {
        let mut event = match event {
            Ok(event) => event,
            Err(error) => {
                tracing::warn!(%kind, error = chain(&error), "watch");
                continue;
            }
        };
        match &mut event {
            Event::Apply(object) | Event::Delete(object) | Event::InitApply(object) => trim(object),
            Event::Init | Event::InitDone => {}
        }
        match &event {
            Event::Init => {
                listed.clear();
                changed.clear();
            }
            Event::InitApply(object) => {
                let (reference, now) = (ObjectRef::from_obj(object), relevant(object));
                if seen.get(&reference) != Some(&now) {
                    changed.push(object.clone());
                }
                listed.insert(reference, now);
            }
            Event::InitDone => {
                let gone = store.state().into_iter().filter(|old| !listed.contains_key(&ObjectRef::from_obj(&**old)));
                let gone: Vec<Arc<K>> = gone.collect();
                seen = std::mem::take(&mut listed);
                writer.apply_watcher_event(&event);
                changed.drain(..).for_each(|object| listener(&object));
                gone.iter().for_each(|object| listener(object));
                continue;
            }
            Event::Apply(object) => {
                let (reference, now) = (ObjectRef::from_obj(object), relevant(object));
                let news = seen.insert(reference, now) != Some(now);
                writer.apply_watcher_event(&event);
                if news {
                    listener(object);
                }
                continue;
            }
            Event::Delete(object) => {
                seen.remove(&ObjectRef::from_obj(object));
                writer.apply_watcher_event(&event);
                listener(object);
                continue;
            }
        }
        writer.apply_watcher_event(&event);
    }
    // The stream of a watch never ends; if it does, the probes say so.
    tracing::error!(%kind, "the watch ended");
}

/// The key of an object.
pub fn key_of<K: Resource>(object: &K) -> Key {
    Key { namespace: object.meta().namespace.clone(), name: object.name_any() }
}

/// The object of a key.
pub fn find<K>(store: &Store<K>, key: &Key) -> Option<Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let mut reference = ObjectRef::new(&key.name);
    if let Some(namespace) = &key.namespace {
        reference = reference.within(namespace);
    }
    store.get(&reference)
}

/// All that can be read of a guarded kind.
pub fn readable<K>(store: &Store<DeserializeGuard<K>>) -> Vec<Arc<DeserializeGuard<K>>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store.state_filter(|object| object.0.is_ok())
}

/// Objects of a kind that are ours, in all namespaces.
pub fn ours<K>(client: &Client) -> (Api<K>, watcher::Config)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    (Api::all(client.clone()), our_labels())
}

/// Selects what the operator made.
#[must_use]
pub fn our_labels() -> watcher::Config {
    use lanekeeper_core::cluster::label;
    watcher::Config::default().labels(&format!(
        "{}={},{} in ({},{})",
        label::MANAGED_BY,
        label::LANEKEEPER,
        label::NAME,
        label::STORE,
        label::EMBEDDER
    ))
}
