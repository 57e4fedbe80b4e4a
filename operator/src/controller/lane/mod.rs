//! A Lane becomes a record, a volume, a Secret, an account with one right, a Service, a policy, and a store.
//!
//! # Flow
//! 1. Dereference: the Lane, its embedder, what there is of its objects.
//! 2. Validate: names, UID, embedder. What is wrong here waits for an edit.
//! 3. The finalizer, then the claim of the collection ([`claim`]): the record before anything else.
//! 4. Build and apply: volume, account and its right, Service, policy, collection, Secret, StatefulSet last.
//! 5. Status, if it says something new; Events on transitions.
//!
//! # Guarantees
//! - Nothing of a lane is made before the registry names it as the writer of its collection.
//! - A Lane that is deleted goes to [`crate::finalize`], whatever its spec says.

pub mod apply;
pub mod claim;
pub mod dereference;
pub mod findings;
pub mod status;
pub mod validate;

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::DeserializeGuard;
use kube::{Api, Resource as _, ResourceExt as _};
use lanekeeper_core::cluster::LANE_FINALIZER;
use lanekeeper_crds::Lane;
use serde_json::json;

use super::Next;
use crate::backoff::Class;
use crate::cache::find;
use crate::context::Context;
use crate::error::{Error, chain, is_missing};
use crate::finalize;
use crate::queue::Key;
use crate::status::{Finding, Reason};
use claim::Claim;
use findings::Findings;

/// Makes the cluster be as the Lane says.
pub async fn reconcile(context: &Context, key: &Key) -> Result<Next, Error> {
    let Some(guarded) = find(&context.caches()?.lanes, key) else { return Ok(Next::Done) };
    if guarded.meta().deletion_timestamp.is_some() {
        return finalize::lane(context, key, &guarded).await;
    }
    let lane = match &guarded.0 {
        Ok(lane) => lane,
        Err(invalid) => {
            // Metadata is all that can be read, so the whole status is new.
            let finding = Finding::no(Reason::InvalidSpec, format!("the Lane cannot be read: {}", invalid.error));
            status::report_unreadable(context, key, &invalid.metadata, &finding).await?;
            return Ok(Next::Waiting(Class::Edit));
        }
    };
    let mut findings = Findings::default();
    let outcome = work(context, key, lane, &mut findings).await;
    match outcome {
        Ok(next) => {
            status::report(context, key, lane, &findings).await?;
            Ok(next)
        }
        Err(error) => {
            if let Some(finding) = visible(&error) {
                findings.store = Some(finding);
                status::report(context, key, lane, &findings).await?;
            }
            Err(error)
        }
    }
}

/// What people have to hear of an error that does not pass by itself.
fn visible(error: &Error) -> Option<Finding> {
    match error {
        Error::NotOurs { object } => {
            Some(Finding::no(Reason::NameTaken, format!("{object} exists and is not this lane's; remove or rename it")))
        }
        Error::Api { .. } if error.class() == Class::Denied => Some(Finding::no(Reason::Refused, chain(error))),
        Error::Api { .. }
        | Error::Keys { .. }
        | Error::Certificate(_)
        | Error::Malformed { .. }
        | Error::Waiting { .. }
        | Error::Collections { .. }
        | Error::Deadline { .. }
        | Error::Panicked => None,
    }
}

async fn work(context: &Context, key: &Key, lane: &Lane, findings: &mut Findings) -> Result<Next, Error> {
    let seen = dereference::dereference(context, key)?;
    findings.reads = Some(dereference::reads(context, key, lane)?);
    if seen.namespace_ends {
        findings.store = Some(Finding::no(
            Reason::NamespaceTerminating,
            format!("the namespace {} is being deleted: nothing is made in it", key.namespace()),
        ));
        return Ok(Next::Done);
    }
    let valid = match validate::validate(context, lane) {
        Ok(valid) => valid,
        Err(invalid) => {
            findings.take_invalid(invalid);
            return Ok(Next::Waiting(Class::Edit));
        }
    };
    findings.embedder = Some(valid.embedder_finding.clone());
    findings.embedder_name = Some(valid.embedder.name.clone());
    findings.fingerprint = Some(valid.embedder.fingerprint());
    findings.collection_name = Some(valid.collection.clone());
    add_finalizer(context, key, lane).await?;
    let now = Timestamp::now();
    let held = match claim::claim(context, lane, &valid, now).await? {
        Claim::Held(held) => held,
        Claim::Refused { fence, conflict } => {
            if findings.is_news(lane, &fence) {
                context.metrics.fence_conflict();
            }
            findings.fence = Some(fence);
            findings.conflict = conflict.clone();
            findings.volume =
                conflict.map(|message| Finding::no(Reason::VolumeConflict, message)).or(findings.volume.take());
            return Ok(Next::Waiting(Class::Edit));
        }
    };
    findings.fence = Some(findings::fence(lane, &held, seen.pod.as_deref()));
    if let Some(message) = &held.conflict {
        findings.conflict = Some(message.clone());
        findings.volume = Some(Finding::no(Reason::VolumeConflict, message.clone()));
        return Ok(Next::Waiting(Class::Edit));
    }
    if held.record.spec.fingerprint != valid.embedder.fingerprint().to_string() {
        findings.embedder = Some(Finding::no(
            Reason::FingerprintChanged,
            "the lane's vectors were made with another embedding than spec.embedder names now; set it back",
        ));
        return Ok(Next::Waiting(Class::Edit));
    }
    apply::apply(context, lane, &valid, &seen, &held, now, findings).await
}

/// Before anything is made that must be cleaned up.
async fn add_finalizer(context: &Context, key: &Key, lane: &Lane) -> Result<(), Error> {
    if lane.finalizers().iter().any(|found| found == LANE_FINALIZER) {
        return Ok(());
    }
    let finalizers: Vec<&str> =
        lane.finalizers().iter().map(String::as_str).chain(std::iter::once(LANE_FINALIZER)).collect();
    // With the version: a list is replaced as a whole, and somebody may just have added to it.
    let patch = json!({"metadata": {"resourceVersion": lane.resource_version(), "finalizers": finalizers}});
    let lanes = Api::<DeserializeGuard<Lane>>::namespaced(context.client.clone(), key.namespace());
    let params = PatchParams { field_manager: Some(crate::apply::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match lanes.patch(&key.name, &params, &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(error) if is_missing(&error) => Err(Error::Waiting { what: "the end of the lane".to_owned() }),
        Err(error) => Err(Error::api("add the finalizer to", format!("Lane {key}"))(error)),
    }
}
