//! What every reconcile has at hand: the client behind the gate, caches, queues, keys, and whom it asks.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Client;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::reflector::Store;
use lanekeeper_crds::{Embedder, FederationRecord, Lane};
use tokio::sync::Notify;

use crate::ask::Ask;
use crate::backoff::Backoffs;
use crate::config::Config;
use crate::error::Error;
use crate::events::Events;
use crate::gate::Watches;
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::probes::Health;
use crate::qdrant::Qdrant;
use crate::queue::Queue;
use crate::status::Reason;

/// What the API server holds of each kind.
#[derive(Debug)]
pub struct Caches {
    /// All lanes.
    pub lanes: Store<DeserializeGuard<Lane>>,
    /// All embedders.
    pub embedders: Store<DeserializeGuard<Embedder>>,
    /// All records.
    pub records: Store<DeserializeGuard<FederationRecord>>,
    /// Ours.
    pub stateful_sets: Store<StatefulSet>,
    /// Ours, in the system namespace.
    pub deployments: Store<Deployment>,
    /// Ours.
    pub services: Store<Service>,
    /// Ours.
    pub service_accounts: Store<ServiceAccount>,
    /// Ours.
    pub volumes: Store<PersistentVolumeClaim>,
    /// Ours, in the system namespace.
    pub roles: Store<Role>,
    /// Ours, in the system namespace.
    pub role_bindings: Store<RoleBinding>,
    /// Ours, where the operator makes them.
    pub policies: Option<Store<NetworkPolicy>>,
    /// Of stores and embedders.
    pub pods: Store<Pod>,
    /// Metadata of lanes' Secrets. What is in them is read when it is needed, and not kept.
    pub secrets: Store<PartialObjectMeta<Secret>>,
    /// Metadata of all Secrets of the system namespace.
    pub system_secrets: Store<PartialObjectMeta<Secret>>,
    /// Metadata of all namespaces.
    pub namespaces: Store<PartialObjectMeta<Namespace>>,
}

impl Caches {
    /// Returns when every one has listed what there is. False: a watch ended before.
    pub async fn wait(&self) -> bool {
        let Self {
            lanes,
            embedders,
            records,
            stateful_sets,
            deployments,
            services,
            service_accounts,
            volumes,
            roles,
            role_bindings,
            policies,
            pods,
            secrets,
            system_secrets,
            namespaces,
        } = self;
        macro_rules! all {
            ($($store:expr),+) => { $($store.wait_until_ready().await.is_ok())&&+ };
        }
        let policies = async {
            match policies {
                Some(store) => store.wait_until_ready().await.is_ok(),
                None => true,
            }
        };
        all!(
            lanes,
            embedders,
            records,
            stateful_sets,
            deployments,
            services,
            service_accounts,
            volumes,
            roles,
            role_bindings,
            pods,
            secrets,
            system_secrets,
            namespaces
        ) && policies.await
    }
}

/// One queue a controller.
#[derive(Debug, Default)]
pub struct Queues {
    /// Lanes.
    pub lanes: Queue,
    /// Embedders, by name; one that should be made has a key too.
    pub embedders: Queue,
    /// Records.
    pub records: Queue,
    /// The release's own secrets changed.
    pub system: Notify,
}

/// See the module.
pub struct Context {
    /// What the operator was told.
    pub config: Config,
    /// Behind the gate.
    pub client: Client,
    /// Set once the watches are started.
    pub caches: OnceLock<Caches>,
    /// What waits.
    pub queues: Queues,
    /// Failures in a row, by controller.
    pub backoffs: [Backoffs; 3],
    /// Tells people.
    pub events: Events,
    /// Counts.
    pub metrics: Metrics,
    /// Where one is configured.
    pub qdrant: Option<Qdrant>,
    /// Asks stores and embedders.
    pub ask: Ask,
    /// Test embeddings that went well.
    pub trials: crate::controller::embedder::trial::Trials,
    /// When watches were started.
    pub watches: Watches,
    keys: RwLock<Option<Arc<Keys>>>,
    synced: std::sync::atomic::AtomicBool,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Context {
    /// Without caches and keys: both come later.
    #[must_use]
    pub fn new(config: Config, client: Client, watches: Watches, qdrant: Option<Qdrant>, ask: Ask) -> Self {
        let events = Events::new(client.clone(), &config.pod_name);
        Self {
            config,
            client,
            caches: OnceLock::new(),
            queues: Queues::default(),
            backoffs: Default::default(),
            events,
            metrics: Metrics::default(),
            qdrant,
            ask,
            trials: Default::default(),
            watches,
            keys: RwLock::new(None),
            synced: false.into(),
        }
    }

    /// The caches. An error before they are there: nothing reconciles then.
    pub fn caches(&self) -> Result<&Caches, Error> {
        self.caches.get().ok_or_else(|| Error::Waiting { what: "caches".to_owned() })
    }

    /// The release's keys.
    pub fn keys(&self) -> Result<Arc<Keys>, Error> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner).clone();
        keys.ok_or_else(|| Error::Keys { reason: "not made yet".to_owned() })
    }

    /// Takes keys; returns whether they are others than before.
    pub fn set_keys(&self, keys: Keys) -> bool {
        let mut current = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let same = current.as_ref().is_some_and(|old| {
            old.version == keys.version
                && old.master.expose() == keys.master.expose()
                && old.authority.id() == keys.authority.id()
        });
        *current = Some(Arc::new(keys));
        !same
    }

    /// All caches have listed.
    pub fn set_synced(&self) {
        self.synced.store(true, std::sync::atomic::Ordering::Release);
    }

    /// Every lane is looked at.
    pub fn enqueue_lanes(&self) {
        if let Some(caches) = self.caches.get() {
            caches.lanes.state().iter().for_each(|lane| self.queues.lanes.add(crate::cache::key_of(&**lane)));
        }
    }

    /// Everything is looked at: the start of a term.
    pub fn enqueue_all(&self) {
        self.enqueue_lanes();
        let Some(caches) = self.caches.get() else { return };
        caches.embedders.state().iter().for_each(|found| self.queues.embedders.add(crate::cache::key_of(&**found)));
        caches.records.state().iter().for_each(|found| self.queues.records.add(crate::cache::key_of(&**found)));
        for model in lanekeeper_crds::models::BuiltinModel::ALL {
            self.queues.embedders.add(crate::controller::embedder::managed_key(model));
        }
    }
}

impl Health for Context {
    fn is_synced(&self) -> bool {
        self.synced.load(std::sync::atomic::Ordering::Acquire)
    }

    fn watches(&self) -> &Watches {
        &self.watches
    }

    fn metrics(&self) -> String {
        use lanekeeper_crds::conditions::READY;
        if let Some(caches) = self.caches.get() {
            let of = |conditions: &[lanekeeper_crds::conditions::Condition]| {
                crate::status::finding_of(conditions, READY)
                    .map_or((false, Reason::Pending), |finding| (finding.holds, finding.reason))
            };
            let lanes: Vec<(bool, Reason)> = caches
                .lanes
                .state()
                .iter()
                .map(|lane| match &lane.0 {
                    Ok(lane) => of(lane.status.as_ref().map_or(&[], |status| &status.conditions)),
                    Err(_) => (false, Reason::InvalidSpec),
                })
                .collect();
            let embedders: Vec<Reason> = caches
                .embedders
                .state()
                .iter()
                .filter_map(|embedder| {
                    let embedder = embedder.0.as_ref().ok()?;
                    let (ready, reason) = of(embedder.status.as_ref().map_or(&[], |status| &status.conditions));
                    (!ready && reason != Reason::Idle).then_some(reason)
                })
                .collect();
            self.metrics.population(&lanes, &embedders);
            self.metrics.queued("lane", self.queues.lanes.len());
            self.metrics.queued("embedder", self.queues.embedders.len());
            self.metrics.queued("record", self.queues.records.len());
        }
        self.metrics.render()
    }
}
