//! One watch: objects of a kind as they are now, and a word when one of them changes.
//!
//! What must always hold: an object that cannot be read as its kind stays in the store as what it is (unreadable),
//! so that whoever uses it closes it; the watch never ends, and backs off while the API server is away.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use futures::StreamExt as _;
use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt as _, reflector as reflect};
use lanekeeper_core::clock::Clock;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

/// How a watch goes.
#[derive(Debug, Default)]
pub(super) struct Progress {
    synced: AtomicBool,
    /// Since when it fails, milliseconds since the epoch; 0: it does not.
    failing_since_ms: AtomicI64,
}

impl Progress {
    /// Whether every object was seen once.
    pub(super) fn is_synced(&self) -> bool {
        self.synced.load(Ordering::SeqCst)
    }

    /// For how long the watch has failed.
    pub(super) fn failing_ms(&self, now_ms: i64) -> i64 {
        match self.failing_since_ms.load(Ordering::SeqCst) {
            0 => 0,
            since => now_ms.saturating_sub(since),
        }
    }
}

/// Starts a watch. The task ends with the runtime.
pub(super) fn follow<K>(
    api: Api<DeserializeGuard<K>>,
    kind: &'static str,
    changed: Arc<Notify>,
    clock: Arc<dyn Clock>,
) -> (Store<DeserializeGuard<K>>, Arc<Progress>)
where
    K: kube::Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Clone + Debug + Eq + std::hash::Hash + Send + Sync,
{
    let (store, writer) = reflector::store();
    let progress = Arc::new(Progress::default());
    let told = Arc::clone(&progress);
    tokio::spawn(async move {
        let events = reflect(writer, watcher(api, watcher::Config::default()).default_backoff());
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    told.failing_since_ms.store(0, Ordering::SeqCst);
                    if matches!(event, watcher::Event::InitDone) {
                        told.synced.store(true, Ordering::SeqCst);
                    }
                    changed.notify_one();
                }
                Err(error) => {
                    let _ = told.failing_since_ms.compare_exchange(
                        0,
                        clock.now_ms().max(1),
                        Ordering::SeqCst,
                        Ordering::SeqCst,
                    );
                    tracing::warn!(kind, %error, "a watch fails; what is known stays, and it is tried again");
                }
            }
        }
    });
    (store, progress)
}
