//! A FederationRecord: who may read its lane, and which generation is searched.
//!
//! 1. Dereference: the record, its writer, all lanes.
//! 2. Validate: the writer exists under the record's UID; else the record is retained and left as it is.
//! 3. Build: `readers`, from both sides' consent; the exchange of collections, if the store asks for one.
//! 4. Apply: collections first, then the record by a patch that names the version it was made from.
//! 5. It has no status of the operator's: the store alone writes it.
//!
//! Who claims a record is the lane controller's, its end [`crate::finalize::record`]'s.

use kube::api::{Patch, PatchParams};
use kube::core::DeserializeGuard;
use kube::{Api, Resource as _, ResourceExt as _};
use lanekeeper_core::cluster::RECORD_FINALIZER;
use lanekeeper_core::{Epoch, Generation, LaneName};
use lanekeeper_crds::lane::LaneKind;
use lanekeeper_crds::{FederationRecord, Lane};
use serde_json::{Value, json};

use super::Next;
use super::lane::validate::validate;
use crate::apply::FIELD_MANAGER;
use crate::backoff::Class;
use crate::cache::find;
use crate::context::Context;
use crate::error::{Error, chain, is_missing};
use crate::finalize;
use crate::qdrant::swap::{Exchange, drop_older, exchange};
use crate::qdrant::token::LaneToken;
use crate::queue::Key;

/// Makes the record be as its lanes say.
pub async fn reconcile(context: &Context, key: &Key) -> Result<Next, Error> {
    let caches = context.caches()?;
    let Some(guarded) = find(&caches.records, key) else { return Ok(Next::Done) };
    if guarded.meta().deletion_timestamp.is_some() {
        return finalize::record::end(context, key, &guarded).await;
    }
    let Ok(record) = &guarded.0 else {
        // A store refuses what it cannot read, and a person has to look. Nothing of it is guessed.
        tracing::error!(record = %key, "the record cannot be read");
        return Ok(Next::Waiting(Class::Edit));
    };
    let writer = Key::namespaced(&record.spec.writer.namespace, &record.spec.writer.name);
    let found = find(&caches.lanes, &writer);
    let lane = found.as_ref().and_then(|found| found.0.as_ref().ok());
    let Some(lane) = lane.filter(|lane| lane.metadata.uid.as_deref() == Some(record.spec.writer.uid.0.as_str())) else {
        return Ok(Next::Done);
    };
    let mut spec = serde_json::Map::new();
    let all = caches.lanes.state();
    let all = all.iter().filter_map(|other| other.0.as_ref().ok());
    let readers = readers(lane, all);
    let said: Vec<&str> = record.spec.readers.iter().map(|reader| reader.0.as_str()).collect();
    if said != readers {
        spec.insert("readers".to_owned(), json!(readers));
    }
    let (generation, next) = collections(context, record, lane).await?;
    if let Some(generation) = generation {
        spec.insert("generation".to_owned(), json!(generation.0));
    }
    let finalizer = context.qdrant.is_some() && !record.finalizers().iter().any(|found| found == RECORD_FINALIZER);
    if spec.is_empty() && !finalizer {
        return Ok(next);
    }
    patch(context, key, record, spec, finalizer).await?;
    Ok(next)
}

async fn patch(
    context: &Context,
    key: &Key,
    record: &FederationRecord,
    spec: serde_json::Map<String, Value>,
    finalizer: bool,
) -> Result<(), Error> {
    let mut patch = json!({"metadata": {"resourceVersion": record.resource_version()}, "spec": spec});
    if finalizer {
        let finalizers: Vec<&str> =
            record.finalizers().iter().map(String::as_str).chain(std::iter::once(RECORD_FINALIZER)).collect();
        patch["metadata"]["finalizers"] = json!(finalizers);
    }
    let records = Api::<DeserializeGuard<FederationRecord>>::namespaced(context.client.clone(), key.namespace());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match records.patch(&key.name, &params, &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(Error::api("patch", format!("FederationRecord {key}"))(error)),
    }
}

/// UIDs of the lanes that both sides let read `target`, sorted. Most of them: what the schema takes.
#[must_use]
pub fn readers<'a>(target: &Lane, all: impl Iterator<Item = &'a Lane>) -> Vec<&'a str> {
    const MOST: usize = 1024;
    let Ok(name) = target.lane_name() else { return Vec::new() };
    if target.spec.kind != LaneKind::Corpus || target.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let mut readers: Vec<&str> = all
        .filter(|reader| reader.metadata.deletion_timestamp.is_none() && reader.spec.kind == LaneKind::Personal)
        .filter(|reader| reader.lane_name().is_ok_and(|reader_name| consent(target, &name, reader, &reader_name)))
        .filter_map(|reader| reader.metadata.uid.as_deref())
        .collect();
    readers.sort_unstable();
    readers.truncate(MOST);
    readers
}

fn consent(target: &Lane, target_name: &LaneName, reader: &Lane, reader_name: &LaneName) -> bool {
    let asks = reader
        .spec
        .reads
        .iter()
        .any(|read| read.namespace == target_name.namespace() && read.name == target_name.name());
    let admits = target.spec.readers.iter().any(|entry| {
        entry.namespace == reader_name.namespace() && (entry.name == "*" || entry.name == reader_name.name())
    });
    asks && admits
}

/// The generation that the record should name from now on, once its collection is filled and reached.
async fn collections(
    context: &Context,
    record: &FederationRecord,
    lane: &Lane,
) -> Result<(Option<Generation>, Next), Error> {
    let Some(qdrant) = &context.qdrant else { return Ok((None, Next::Done)) };
    let Ok(valid) = validate(context, lane) else { return Ok((None, Next::Done)) };
    // Another embedding is told on the lane; nothing is made for it here.
    if valid.embedder.fingerprint().to_string() != record.spec.fingerprint {
        return Ok((None, Next::Done));
    }
    let token = LaneToken {
        collection: record.spec.collection.clone(),
        fingerprint: valid.embedder.fingerprint(),
        dimension: valid.embedder.fields.dimension,
        generation: Generation(u64::try_from(record.spec.generation).unwrap_or_default()),
        epoch: Epoch(u64::try_from(record.spec.epoch).unwrap_or_default()),
    };
    let status = record.status.as_ref();
    let wanted = status.and_then(|status| status.wanted_generation);
    let filled = status.and_then(|status| status.filled_generation);
    let step = exchange(record.spec.generation, wanted, filled);
    // A generation that was swapped in leaves an older one to drop.
    let dropping = step == Exchange::None && filled.is_some_and(|filled| filled == record.spec.generation);
    if step == Exchange::None && !dropping {
        return Ok((None, Next::Done));
    }
    let connection = match qdrant.connection(&context.client, &context.config.system_namespace).await? {
        Ok(connection) => connection,
        // The lane's conditions say it.
        Err(_) => return Ok((None, Next::Waiting(Class::Transient))),
    };
    let collections = connection.collections.as_ref();
    let done = match step {
        Exchange::Make(next) => collections.make(&token.physical(next), token.dimension).await.map(|()| None),
        Exchange::Swap(next) => {
            collections.point_alias(&token.collection, &token.physical(next)).await.map(|()| Some(next))
        }
        Exchange::None => drop_older(collections, &token).await.map(|()| None),
    };
    match done {
        Ok(generation) => Ok((generation, Next::Done)),
        Err(fault) => {
            tracing::warn!(collection = token.collection, ?step, error = chain(&fault), "the exchange waits");
            Ok((None, Next::Waiting(Class::Transient)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(name: &str, uid: u8, spec: Value) -> Lane {
        serde_json::from_value(json!({
            "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Lane",
            "metadata": {"name": name, "namespace": "team", "uid": format!("0193a1b2-0000-7000-8000-0000000000{uid:02}")},
            "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn a_reader_needs_both_sides_and_a_lane_that_ends_reads_nothing() {
        let corpus = lane("notes", 1, json!({"kind": "corpus", "readers": [{"namespace": "team", "name": "bob"}]}));
        let reads = json!([{"namespace": "team", "name": "notes"}]);
        let bob = lane("bob", 2, json!({"kind": "personal", "owner": "bob", "reads": reads}));
        let eve = lane("eve", 3, json!({"kind": "personal", "owner": "eve", "reads": reads}));
        let quiet = lane("bob", 4, json!({"kind": "personal", "owner": "bob"}));
        let uid = |lane: &Lane| lane.metadata.uid.clone().unwrap();
        assert_eq!(readers(&corpus, [&bob, &eve].into_iter()), [uid(&bob)]);
        assert!(readers(&corpus, [&quiet].into_iter()).is_empty(), "it does not ask");
        let all = lane("notes", 1, json!({"kind": "corpus", "readers": [{"namespace": "team", "name": "*"}]}));
        assert_eq!(readers(&all, [&eve, &bob].into_iter()), [uid(&bob), uid(&eve)]);
        let mut ending = bob.clone();
        ending.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        assert!(readers(&corpus, [&ending].into_iter()).is_empty());
        assert!(readers(&quiet, [&bob].into_iter()).is_empty(), "nobody reads a personal lane");
    }
}
