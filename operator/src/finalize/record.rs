//! The end of a record. Its collections go only if a lane's deletion said so ([`super::ERASE`]): a record that was
//! deleted by hand leaves them, and its lane makes the record anew with the log of its volume.

use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use kube::core::DeserializeGuard;
use kube::{Api, Resource as _};
use lanekeeper_core::cluster::RECORD_FINALIZER;
use lanekeeper_crds::FederationRecord;
use serde_json::json;

use super::ERASE;
use crate::apply::FIELD_MANAGER;
use crate::backoff::Class;
use crate::context::Context;
use crate::controller::Next;
use crate::error::{Error, chain, is_missing};
use crate::qdrant::swap;
use crate::queue::Key;

/// Ends a record that is being deleted.
pub async fn end(context: &Context, key: &Key, guarded: &DeserializeGuard<FederationRecord>) -> Result<Next, Error> {
    if !guarded.finalizers().iter().any(|found| found == RECORD_FINALIZER) {
        return Ok(Next::Done);
    }
    let erases = guarded.annotations().contains_key(ERASE);
    if erases && let Some(qdrant) = &context.qdrant {
        let connection = match qdrant.connection(&context.client, &context.config.system_namespace).await? {
            Ok(connection) => connection,
            Err(finding) => {
                tracing::warn!(collection = key.name, reason = finding.message, "the erasure waits");
                return Ok(Next::Waiting(Class::Transient));
            }
        };
        // The record's name is its collection's.
        if let Err(fault) = swap::erase(connection.collections.as_ref(), &key.name).await {
            tracing::warn!(collection = key.name, error = chain(&fault), "the erasure waits");
            return Ok(Next::Waiting(Class::Transient));
        }
        tracing::info!(collection = key.name, "erased");
    } else if erases {
        // Where Qdrant was is not known any more: `orphans` of the plugin lists what is left.
        tracing::warn!(collection = key.name, "no Qdrant is configured: collections there are left");
    }
    let rest: Vec<&String> = guarded.finalizers().iter().filter(|found| *found != RECORD_FINALIZER).collect();
    let patch = json!({"metadata": {"resourceVersion": guarded.meta().resource_version, "finalizers": rest}});
    let records = Api::<DeserializeGuard<FederationRecord>>::namespaced(context.client.clone(), key.namespace());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match records.patch(&key.name, &params, &Patch::Merge(patch)).await {
        Ok(_) => Ok(Next::Done),
        Err(error) if is_missing(&error) => Ok(Next::Done),
        Err(error) => Err(Error::api("remove the finalizer from", format!("FederationRecord {key}"))(error)),
    }
}
