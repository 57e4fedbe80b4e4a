//! The lanes of the cluster, as the API server shows them now.
//!
//! # Flow
//! Lanes, FederationRecords and Embedders are watched. When one changes, all three are put together anew
//! ([`assemble`], pure) and the whole list is replaced.
//!
//! What must always hold
//! - A Lane that is being deleted, or that cannot be read, is not there: its tokens end at once.
//! - A lane's store is asked only where the record names this very lane (by UID) as its writer; the fingerprint is
//!   the record's, since that is what the collection holds.
//! - A client lives as long as name, UID and log stay: its circuit and its connections outlast changes of the Lane.
//!
//! # Caveats
//! - While the API server is away the last known state counts. Stores stop writing after 15 s by themselves.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use kube::core::DeserializeGuard;
use kube::runtime::reflector::Store;
use kube::{Api, Client};
use lanekeeper_core::clock::Clock;
use lanekeeper_core::cluster::store_url;
use lanekeeper_core::fingerprint::{Fingerprint, FingerprintFields};
use lanekeeper_core::lane::LaneView;
use lanekeeper_core::lane_client::LaneClient;
use lanekeeper_core::{LaneName, LaneUid, LogId, Principal};
use lanekeeper_crds::{Embedder, EmbedderSpec, FederationRecord, FederationRecordSpec, Lane};
use tokio::sync::Notify;

use super::account_grants::AccountGrants;
use super::embedders::{Embedders, Place, place};
use super::no_store::NoStore;
use super::remote_lane::{RemoteLane, StoreLink};
use super::watching::{Progress, follow};
use crate::directory::{LaneDirectory, LaneHandle};

/// Changes that come together are put together once.
const SETTLE: Duration = Duration::from_millis(50);

/// What the directory knows beside the objects.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The operator's namespace.
    pub system_namespace: String,
    /// A folder with bearer tokens of external embedders, a file each, named like the Embedder.
    pub embedder_tokens: Option<PathBuf>,
    /// How stores are reached.
    pub link: Arc<StoreLink>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// A lane as the objects show it.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    view: LaneView,
    /// The log of its record, or why there is no store to ask.
    log_id: Result<LogId, &'static str>,
    place: Place,
    fields: Option<FingerprintFields>,
}

/// The objects of one moment.
#[derive(Debug, Default)]
struct Objects {
    lanes: Vec<Lane>,
    records: HashMap<String, FederationRecordSpec>,
    /// Names of records that cannot be read.
    garbled: HashSet<String>,
    embedders: Vec<(String, EmbedderSpec)>,
}

/// See the module's head.
pub struct ClusterDirectory {
    lanes: RwLock<Vec<Arc<LaneHandle>>>,
    grants: AccountGrants,
    kept: Mutex<Kept>,
    surroundings: Surroundings,
    progress: Mutex<Vec<Arc<Progress>>>,
}

#[derive(Debug, Default)]
struct Kept {
    stores: HashMap<(LaneName, LaneUid, LogId), Arc<RemoteLane>>,
    embedders: Embedders,
}

impl std::fmt::Debug for ClusterDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterDirectory").field("surroundings", &self.surroundings).finish_non_exhaustive()
    }
}

impl ClusterDirectory {
    /// Starts the watches. The list is empty until [`Self::is_synced`].
    pub fn start(client: Client, surroundings: Surroundings) -> Arc<Self> {
        let changed = Arc::new(Notify::new());
        let clock = &surroundings.clock;
        let namespace = &surroundings.system_namespace;
        let (lanes, lanes_progress) =
            follow::<Lane>(Api::all(client.clone()), "Lane", Arc::clone(&changed), Arc::clone(clock));
        let (records, records_progress) = follow::<FederationRecord>(
            Api::namespaced(client.clone(), namespace),
            "FederationRecord",
            Arc::clone(&changed),
            Arc::clone(clock),
        );
        let (embedders, embedders_progress) =
            follow::<Embedder>(Api::all(client), "Embedder", Arc::clone(&changed), Arc::clone(clock));
        let directory = Arc::new(Self {
            lanes: RwLock::default(),
            grants: AccountGrants::default(),
            kept: Mutex::default(),
            surroundings,
            progress: Mutex::new(vec![lanes_progress, records_progress, embedders_progress]),
        });
        tokio::spawn(keep_up(Arc::downgrade(&directory), changed, lanes, records, embedders));
        directory
    }

    /// Whether every watch has seen everything once.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.progress().iter().all(|progress| progress.is_synced())
    }

    /// For how long the watch that fails longest has failed, milliseconds.
    pub(super) fn failing_ms(&self) -> i64 {
        let now_ms = self.surroundings.clock.now_ms();
        self.progress().iter().map(|progress| progress.failing_ms(now_ms)).max().unwrap_or_default()
    }

    /// Stores that are not asked at the moment.
    pub(super) fn cut_off(&self) -> usize {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.stores.values().filter(|store| store.is_cut_off()).count()
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Progress>>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the list.
    fn show(&self, seen: Vec<Seen>) {
        let granted = seen
            .iter()
            .flat_map(|lane| lane.view.access.iter().map(|entry| (lane.view.uid, entry.principal.clone())))
            .collect();
        let handles = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let handles: Vec<_> = seen.into_iter().map(|lane| Arc::new(self.handle(&mut kept, lane))).collect();
            let wanted: HashSet<Fingerprint> = handles.iter().map(|handle| handle.view.fingerprint).collect();
            let uids: HashSet<LaneUid> = handles.iter().map(|handle| handle.view.uid).collect();
            kept.embedders.keep(|fingerprint| wanted.contains(fingerprint));
            kept.stores.retain(|(_, uid, _), _| uids.contains(uid));
            handles
        };
        *self.lanes.write().unwrap_or_else(PoisonError::into_inner) = handles;
        // After the list: a grant that was taken back is not bound again by a request that saw the old one.
        self.grants.keep(&granted);
    }

    fn handle(&self, kept: &mut Kept, seen: Seen) -> LaneHandle {
        let Seen { view, log_id, place, fields } = seen;
        let encoder = kept.embedders.client(view.fingerprint, place, fields);
        let client: Arc<dyn LaneClient> = match log_id {
            Err(reason) => Arc::new(NoStore { reason }),
            Ok(log_id) => {
                let link = &self.surroundings.link;
                let store = kept.stores.entry((view.name.clone(), view.uid, log_id)).or_insert_with(|| {
                    let base = store_url(&view.name);
                    Arc::new(RemoteLane::new(view.name.clone(), view.uid, log_id, base, Arc::clone(link)))
                });
                Arc::clone(store) as _
            }
        };
        LaneHandle { view, client, encoder }
    }
}

impl LaneDirectory for ClusterDirectory {
    fn lanes(&self) -> Vec<Arc<LaneHandle>> {
        self.lanes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn admits_account(&self, lane: LaneUid, principal: &Principal, account_uid: &str) -> bool {
        self.grants.admits(lane, principal, account_uid)
    }
}

async fn keep_up(
    directory: std::sync::Weak<ClusterDirectory>,
    changed: Arc<Notify>,
    lanes: Store<DeserializeGuard<Lane>>,
    records: Store<DeserializeGuard<FederationRecord>>,
    embedders: Store<DeserializeGuard<Embedder>>,
) {
    loop {
        changed.notified().await;
        tokio::time::sleep(SETTLE).await;
        let Some(directory) = directory.upgrade() else { return };
        // A list that is not whole would end tokens of lanes that were only not seen yet.
        if !directory.is_synced() {
            continue;
        }
        let objects = objects(&lanes, &records, &embedders);
        let surroundings = &directory.surroundings;
        let seen = assemble(&objects, &surroundings.system_namespace, surroundings.embedder_tokens.as_ref());
        tracing::debug!(lanes = seen.len(), "the lanes were put together anew");
        directory.show(seen);
    }
}

fn objects(
    lanes: &Store<DeserializeGuard<Lane>>,
    records: &Store<DeserializeGuard<FederationRecord>>,
    embedders: &Store<DeserializeGuard<Embedder>>,
) -> Objects {
    let mut objects = Objects::default();
    for guard in lanes.state() {
        match &guard.0 {
            Ok(lane) => objects.lanes.push(lane.clone()),
            Err(invalid) => {
                let (namespace, name) = (&invalid.metadata.namespace, &invalid.metadata.name);
                tracing::error!(?namespace, ?name, error = %invalid.error, "a Lane cannot be read: it is closed");
            }
        }
    }
    for guard in records.state() {
        match &guard.0 {
            Ok(record) => drop(objects.records.insert(record.spec.collection.clone(), record.spec.clone())),
            Err(invalid) => objects.garbled.extend(invalid.metadata.name.clone()),
        }
    }
    for guard in embedders.state() {
        if let Ok(embedder) = &guard.0
            && let Some(name) = &embedder.metadata.name
        {
            objects.embedders.push((name.clone(), embedder.spec.clone()));
        }
    }
    objects
}

/// The lanes that the objects make. Pure.
fn assemble(objects: &Objects, system_namespace: &str, tokens: Option<&PathBuf>) -> Vec<Seen> {
    let mut seen: Vec<Seen> =
        objects.lanes.iter().filter_map(|lane| see(objects, lane, system_namespace, tokens)).collect();
    seen.sort_by(|a, b| a.view.name.cmp(&b.view.name));
    seen
}

fn see(objects: &Objects, lane: &Lane, system_namespace: &str, tokens: Option<&PathBuf>) -> Option<Seen> {
    if lane.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let uid: LaneUid = lane.metadata.uid.as_deref()?.parse().ok()?;
    let closed = |error: &dyn std::fmt::Display| {
        tracing::error!(%uid, %error, "a Lane has no meaning here: it is closed");
    };
    let collection = lane.full_collection().inspect_err(|error| closed(error)).ok()?;
    let (log_id, recorded) = match objects.records.get(&collection) {
        _ if objects.garbled.contains(&collection) => (Err("record_garbled"), None),
        None => (Err("record_missing"), None),
        Some(record) if record.writer.uid.0 != uid.to_string() => (Err("collection_taken"), None),
        Some(record) => match (record.log_id.parse::<LogId>(), record.fingerprint.parse::<Fingerprint>()) {
            (Ok(log_id), Ok(fingerprint)) => (Ok(log_id), Some(fingerprint)),
            (Err(_), _) | (_, Err(_)) => (Err("record_garbled"), None),
        },
    };
    let named = |name: &str| objects.embedders.iter().find(|(known, _)| known == name).map(|(_, spec)| spec);
    // Without a record there is nothing to compare vectors with; what the Lane asks for stands in.
    let declared = || lane.spec.embedder.fingerprint_fields(named).ok().map(|fields| fields.fingerprint());
    let fingerprint = recorded.or_else(declared).unwrap_or_else(|| FingerprintFields::builtin().fingerprint());
    let embedders = objects.embedders.iter().map(|(name, spec)| (name.as_str(), spec));
    let (place, fields) = place(fingerprint, embedders, system_namespace, tokens);
    let view = lane.to_view(uid, fingerprint).inspect_err(|error| closed(error)).ok()?;
    Some(Seen { view, log_id, place, fields })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn uid(n: u128) -> String {
        uuid::Uuid::from_u128(n).to_string()
    }

    fn lane(name: &str, n: u128, spec: serde_json::Value) -> Lane {
        serde_json::from_value(json!({
            "apiVersion": "lanekeeper.dev/v1alpha1",
            "kind": "Lane",
            "metadata": {"namespace": "team", "name": name, "uid": uid(n)},
            "spec": spec,
        }))
        .unwrap()
    }

    fn record(collection: &str, writer: u128, fingerprint: Fingerprint) -> (String, FederationRecordSpec) {
        let spec = serde_json::from_value(json!({
            "collection": collection,
            "writer": {"namespace": "team", "name": "x", "uid": uid(writer)},
            "mode": "read-write",
            "logId": "01".repeat(32),
            "fingerprint": fingerprint,
            "epoch": 1,
            "generation": 1,
        }))
        .unwrap();
        (collection.to_owned(), spec)
    }

    fn bob() -> Lane {
        lane("bob", 1, json!({"kind": "personal", "owner": "bob"}))
    }

    fn seen(objects: &Objects) -> Vec<Seen> {
        assemble(objects, "sys", None)
    }

    #[test]
    fn a_store_is_asked_only_where_the_record_names_this_very_lane() {
        let builtin = FingerprintFields::builtin().fingerprint();
        let mut objects = Objects { lanes: vec![bob()], ..Objects::default() };
        assert_eq!(seen(&objects)[0].log_id, Err("record_missing"));
        objects.records = HashMap::from([record("team.bob", 2, builtin)]);
        assert_eq!(seen(&objects)[0].log_id, Err("collection_taken"));
        objects.records = HashMap::from([record("team.bob", 1, builtin)]);
        assert_eq!(seen(&objects)[0].log_id, Ok("01".repeat(32).parse().unwrap()));
        objects.garbled = HashSet::from(["team.bob".to_owned()]);
        assert_eq!(seen(&objects)[0].log_id, Err("record_garbled"));
        objects.garbled.clear();
        let (name, mut garbled) = record("team.bob", 1, builtin);
        garbled.log_id = "x".into();
        objects.records = HashMap::from([(name, garbled)]);
        assert_eq!(seen(&objects)[0].log_id, Err("record_garbled"));
    }

    #[test]
    fn the_fingerprint_is_what_the_collection_holds() {
        let other: EmbedderSpec =
            serde_json::from_value(json!({"model": "m", "dimension": 8, "runtime": "tei"})).unwrap();
        let fingerprint = other.fingerprint_fields().unwrap().fingerprint();
        let objects = Objects {
            lanes: vec![bob()],
            records: HashMap::from([record("team.bob", 1, fingerprint)]),
            embedders: vec![("tei".into(), other)],
            ..Objects::default()
        };
        let bob = &seen(&objects)[0];
        assert_eq!(bob.view.fingerprint, fingerprint);
        assert_eq!(bob.place, Place::OpenAi { url: "http://embedder-tei.sys.svc:7070".into(), token_file: None });
    }

    #[test]
    fn a_lane_that_is_being_deleted_or_means_nothing_is_not_there() {
        let mut deleted = bob();
        deleted.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-30T00:00:00Z")).unwrap();
        let mut nameless = bob();
        nameless.metadata.uid = None;
        let bad = lane("bad", 4, json!({"kind": "personal", "owner": "bob", "recall": {"halfLife": "x"}}));
        let objects = Objects {
            lanes: vec![deleted, nameless, bad, lane("a-corpus", 3, json!({"kind": "corpus"}))],
            ..Objects::default()
        };
        let names: Vec<_> = seen(&objects).iter().map(|lane| lane.view.name.to_string()).collect();
        assert_eq!(names, ["team/a-corpus"]);
    }
}
