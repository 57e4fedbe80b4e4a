//! What is made of a lane that holds its collection, in the order that matters: the volume is stamped before a store
//! can open it, the Secret is there before a pod mounts it, the store comes last.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use lanekeeper_core::cluster::label;
use lanekeeper_core::{Epoch, Generation};
use lanekeeper_crds::Lane;
use lanekeeper_crds::lane::DeletionPolicy;
use serde_json::json;

use super::claim::Held;
use super::dereference::Seen;
use super::findings::Findings;
use super::validate::ValidatedLane;
use crate::apply::{FIELD_MANAGER, Ownership, apply as send};
use crate::backoff::Class;
use crate::build::{self, LanePlan, secret, stateful_set, volume};
use crate::cache::find;
use crate::causes;
use crate::context::Context;
use crate::controller::Next;
use crate::controller::pods::cause;
use crate::error::{Error, chain, is_missing};
use crate::qdrant::token::LaneToken;
use crate::qdrant::{self, Connection};
use crate::queue::Key;
use crate::status::{Finding, Reason};

/// Annotation of a StatefulSet: when its controller was last reminded, while a quota keeps its pod away. That
/// controller backs off to a quarter of an hour by itself.
const REMINDED: &str = "lanekeeper.dev/reminded";

/// Applies it all.
pub async fn apply(
    context: &Context,
    lane: &Lane,
    valid: &ValidatedLane,
    seen: &Seen,
    held: &Held,
    now: Timestamp,
    findings: &mut Findings,
) -> Result<Next, Error> {
    let record = &held.record;
    let uid = valid.uid.to_string();
    let owner = Ownership { label: label::LANE_UID, value: &uid };
    let plan = LanePlan {
        lane,
        name: valid.name.clone(),
        uid: valid.uid,
        config: &context.config,
        collection: valid.collection.clone(),
        embedder: valid.embedder.clone(),
        log_id: held.log_id,
        adopted: held.adopted,
        head_seq: record.status.as_ref().and_then(|status| status.head.as_ref()).map_or(0, |head| head.seq),
    };
    findings.volume = Some(apply_volume(context, &plan, held).await?);
    apply_surroundings(context, &plan, owner).await?;
    let token = LaneToken {
        collection: valid.collection.clone(),
        fingerprint: valid.embedder.fingerprint(),
        dimension: valid.embedder.fields.dimension,
        generation: Generation(u64::try_from(record.spec.generation).unwrap_or_default()),
        epoch: Epoch(u64::try_from(record.spec.epoch).unwrap_or_default()),
    };
    let (connection, collection_next) = collection(context, &token, now, findings).await?;
    let secret_next =
        apply_secret(context, &plan, valid, owner, connection.as_ref().map(|it| (it, &token)), now).await?;
    let store_next = if lane.spec.suspend {
        suspend(context, &plan, seen).await?;
        findings.store =
            Some(Finding::no(Reason::Suspended, "the lane is suspended: it answers nothing and keeps all"));
        Next::Done
    } else {
        apply_store(context, &plan, seen, owner, now, findings).await?
    };
    if findings.store.as_ref().is_some_and(|store| store.holds) {
        ask_store(context, valid, held, now, findings).await?;
        if let Some(Connection { collections, .. }) = &connection {
            findings.points =
                collections.count(&token.collection).await.ok().and_then(|count| i64::try_from(count).ok());
        }
    }
    Ok(store_next.or(collection_next).or(secret_next))
}

async fn apply_volume(context: &Context, plan: &LanePlan<'_>, held: &Held) -> Result<Finding, Error> {
    let object = format!("PersistentVolumeClaim {}/{}", plan.namespace(), plan.object());
    let desired = volume::volume(plan, held.volume.as_ref())?;
    // What it is to this lane was judged by its stamps before the claim, and an adopted one bears another's labels.
    let stored_owner = held.volume.as_ref().and_then(|volume| volume.labels().get(label::LANE_UID)).cloned();
    let uid = plan.uid.to_string();
    let owner = Ownership { label: label::LANE_UID, value: stored_owner.as_deref().unwrap_or(&uid) };
    let volume = match send(&context.client, desired, held.volume.as_ref(), owner).await {
        Ok(applied) => applied.object,
        // Growing is refused by classes that cannot, and by quotas. The lane goes on with what it has.
        Err(Error::Api { source: kube::Error::Api(status), .. })
            if matches!(status.code, 403 | 422) && held.volume.is_some() =>
        {
            let reason = if status.message.contains("exceeded quota") {
                Reason::QuotaExceeded
            } else {
                Reason::VolumeNotExpandable
            };
            return Ok(Finding::no(
                reason,
                format!("{object} cannot become {}: {}", plan.lane.spec.storage.size, status.message),
            ));
        }
        Err(Error::Api { source: kube::Error::Api(status), .. }) if status.message.contains("exceeded quota") => {
            return Ok(causes::of_creation(&status.message));
        }
        Err(error) => return Err(error),
    };
    let status = volume.status.as_ref();
    let resizing = status.iter().flat_map(|status| status.conditions.iter().flatten()).any(|condition| {
        matches!(condition.type_.as_str(), "Resizing" | "FileSystemResizePending") && condition.status == "True"
    });
    let name = volume.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty());
    match (status.and_then(|status| status.phase.as_deref()), name) {
        (Some("Bound"), name) => {
            if let Some(name) = name.filter(|_| context.config.retain_volumes) {
                let erased =
                    plan.lane.spec.deletion_policy == DeletionPolicy::Delete && plan.lane.confirms_delete(plan.uid);
                set_reclaim_policy(context, name, if erased { "Delete" } else { "Retain" }).await?;
            }
            let reason = if resizing { Reason::Resizing } else { Reason::Bound };
            Ok(Finding::yes(reason, "the volume is bound"))
        }
        (Some("Lost"), _) => Ok(Finding::no(Reason::VolumeLost, format!("{object} has lost its volume"))),
        (_, _) => Ok(Finding::no(Reason::VolumePending, "the volume waits for a node or its provisioner")),
    }
}

/// Says what happens to a volume when its claim goes. Only called where the operator may.
pub async fn set_reclaim_policy(context: &Context, name: &str, policy: &str) -> Result<(), Error> {
    let volumes = Api::<PersistentVolume>::all(context.client.clone());
    let object = || format!("PersistentVolume {name}");
    let volume = match volumes.get(name).await {
        Ok(volume) => volume,
        Err(error) if is_missing(&error) => return Ok(()),
        Err(error) => return Err(Error::api("get", object())(error)),
    };
    if volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()) == Some(policy) {
        return Ok(());
    }
    let patch = json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    volumes.patch(name, &params, &Patch::Merge(patch)).await.map_err(Error::api("patch", object()))?;
    Ok(())
}

async fn apply_surroundings(context: &Context, plan: &LanePlan<'_>, owner: Ownership<'_>) -> Result<(), Error> {
    let caches = context.caches()?;
    let client = &context.client;
    let object = Key::namespaced(plan.namespace(), plan.object());
    let account = find(&caches.service_accounts, &object);
    send(client, build::service::service_account(plan)?, account.as_deref(), owner).await?;
    let role = build::role::role(plan)?;
    let key = Key::namespaced(&context.config.system_namespace, role.name_any());
    let (known_role, known_binding) = (find(&caches.roles, &key), find(&caches.role_bindings, &key));
    // In our own namespace the name alone says whose they are; a lane that lost its finalizer leaves them behind.
    let here = Ownership { label: label::LANE, value: plan.name.name() };
    send(client, role, known_role.as_deref(), here).await?;
    send(client, build::role::role_binding(plan)?, known_binding.as_deref(), here).await?;
    let service = find(&caches.services, &object);
    send(client, build::service::service(plan)?, service.as_deref(), owner).await?;
    if let Some(policy) = build::network_policy::network_policy(plan)? {
        let known = caches.policies.as_ref().and_then(|policies| find(policies, &object));
        send(client, policy, known.as_deref(), owner).await?;
    }
    Ok(())
}

/// Fence, collection and alias, and whether Qdrant enforces the fence. What fails there is told and tried again; the
/// store runs meanwhile, since saves and text need no vectors.
async fn collection(
    context: &Context,
    token: &LaneToken,
    now: Timestamp,
    findings: &mut Findings,
) -> Result<(Option<Connection>, Next), Error> {
    let Some(qdrant) = &context.qdrant else {
        findings.collection = Some(Finding::yes(Reason::InProcess, "the store keeps its vectors on its volume"));
        findings.enforced =
            Some(Finding::no(Reason::NoQdrant, "no Qdrant is configured: the store alone holds the fence"));
        return Ok((None, Next::Done));
    };
    let connection = match qdrant.connection(&context.client, &context.config.system_namespace).await? {
        Ok(connection) => connection,
        Err(finding) => {
            findings.collection = Some(finding.clone());
            findings.enforced = Some(finding);
            return Ok((None, Next::Waiting(Class::Transient)));
        }
    };
    if let Err(fault) = qdrant::ensure(connection.collections.as_ref(), token).await {
        tracing::warn!(collection = token.collection, error = chain(&fault), "the collection is not ready");
        let finding = qdrant.finding(&fault);
        findings.enforced = Some(finding.clone());
        findings.collection = Some(finding);
        // The token is still minted: it may be valid again before the next try.
        return Ok((Some(connection), Next::Waiting(Class::Transient)));
    }
    findings.collection =
        Some(Finding::yes(Reason::CollectionThere, format!("the collection is {}", token.physical(token.generation))));
    let enforced = qdrant.enforcement(&connection, token, now.as_second()).await;
    let next = if enforced.holds { Next::Done } else { Next::Waiting(Class::Edit) };
    findings.enforced = Some(enforced);
    Ok((Some(connection), next))
}

async fn apply_secret(
    context: &Context,
    plan: &LanePlan<'_>,
    valid: &ValidatedLane,
    owner: Ownership<'_>,
    qdrant: Option<(&Connection, &LaneToken)>,
    now: Timestamp,
) -> Result<Next, Error> {
    let keys = context.keys()?;
    let secrets = Api::<Secret>::namespaced(context.client.clone(), plan.namespace());
    let name = plan.object();
    let object = format!("Secret {}/{name}", plan.namespace());
    let stored = secrets.get_opt(&name).await.map_err(Error::api("get", object))?;
    let embedder_token = match &valid.embedder_secret {
        Some((name, key)) => system_secret(context, name, key).await?,
        None => None,
    };
    let sources = secret::Sources {
        stored: stored.as_ref(),
        keys: &keys,
        token: qdrant.map(|(connection, token)| (connection.api_key.expose().as_str(), token)),
        embedder_token: embedder_token.as_deref(),
        now,
        renew: !plan.lane.spec.suspend,
    };
    let (desired, due) = secret::secret(plan, &sources)?;
    send(&context.client, desired, stored.as_ref(), owner).await?;
    Ok(due.map_or(Next::Done, |due| {
        let seconds = due.as_second().saturating_sub(now.as_second()).max(1);
        Next::After(std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(1)))
    }))
}

/// A key of a Secret of the system namespace, which a user made. Missing is no error here: the Embedder says it.
pub async fn system_secret(context: &Context, name: &str, key: &str) -> Result<Option<Vec<u8>>, Error> {
    let here = &context.config.system_namespace;
    let secrets = Api::<Secret>::namespaced(context.client.clone(), here);
    let secret = secrets.get_opt(name).await.map_err(Error::api("get", format!("Secret {here}/{name}")))?;
    Ok(secret.and_then(|secret| secret.data).and_then(|data| data.get(key).map(|bytes| bytes.0.clone())))
}

/// A suspended lane has no StatefulSet; all else stays.
async fn suspend(context: &Context, plan: &LanePlan<'_>, seen: &Seen) -> Result<(), Error> {
    match &seen.stateful_set {
        Some(found) if super::dereference::is_of(&**found, &plan.uid.to_string()) => {
            delete_stateful_set(context, found).await
        }
        Some(_) | None => Ok(()),
    }
}

/// Deletes it, with its pod.
pub async fn delete_stateful_set(context: &Context, found: &StatefulSet) -> Result<(), Error> {
    if found.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let (namespace, name) = (found.namespace().unwrap_or_default(), found.name_any());
    let sets = Api::<StatefulSet>::namespaced(context.client.clone(), &namespace);
    let precondition = Preconditions { uid: found.uid(), resource_version: None };
    match sets.delete(&name, &DeleteParams::background().preconditions(precondition)).await {
        Ok(_) => Ok(()),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(Error::api("delete", format!("StatefulSet {namespace}/{name}"))(error)),
    }
}

async fn apply_store(
    context: &Context,
    plan: &LanePlan<'_>,
    seen: &Seen,
    owner: Ownership<'_>,
    now: Timestamp,
    findings: &mut Findings,
) -> Result<Next, Error> {
    let desired = stateful_set::stateful_set(plan, seen.stateful_set.as_deref())?;
    let set = send(&context.client, desired, seen.stateful_set.as_deref(), owner).await?.object;
    let Some(pod) = &seen.pod else {
        let events = events_about(context, plan.namespace(), "StatefulSet", &set.name_any(), set.uid()).await?;
        let finding =
            causes::of_events(&events).unwrap_or_else(|| Finding::no(Reason::Pending, "the pod is being made"));
        if matches!(finding.reason, Reason::QuotaExceeded | Reason::PodRefused) {
            remind(context, plan, now).await?;
        }
        findings.store = Some(finding);
        return Ok(Next::Waiting(Class::Outside));
    };
    if stateful_set::is_stuck(&set, pod) {
        let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(context.client.clone(), plan.namespace());
        let precondition = Preconditions { uid: pod.uid(), resource_version: None };
        match pods.delete(&pod.name_any(), &DeleteParams::default().preconditions(precondition)).await {
            Ok(_) => tracing::info!(pod = pod.name_any(), "stuck in an old revision: deleted"),
            Err(error) if is_missing(&error) => {}
            Err(error) => {
                return Err(Error::api("delete", format!("Pod {}/{}", plan.namespace(), pod.name_any()))(error));
            }
        }
    }
    let mut finding = cause(context, pod).await;
    if finding.reason == Reason::Pending {
        let events = events_about(context, plan.namespace(), "Pod", &pod.name_any(), pod.uid()).await?;
        finding = causes::of_events(&events).unwrap_or(finding);
    }
    let next = if finding.holds { Next::Done } else { Next::Waiting(Class::Outside) };
    findings.store = Some(finding);
    Ok(next)
}

async fn events_about(
    context: &Context,
    namespace: &str,
    kind: &str,
    name: &str,
    uid: Option<String>,
) -> Result<Vec<Event>, Error> {
    let uid = uid.unwrap_or_default();
    let fields = format!("involvedObject.kind={kind},involvedObject.name={name},involvedObject.uid={uid}");
    let events = Api::<Event>::namespaced(context.client.clone(), namespace);
    let found = events.list(&ListParams::default().fields(&fields).limit(50)).await;
    found.map(|list| list.items).map_err(Error::api("list Events about", format!("{kind} {namespace}/{name}")))
}

async fn remind(context: &Context, plan: &LanePlan<'_>, now: Timestamp) -> Result<(), Error> {
    let sets = Api::<StatefulSet>::namespaced(context.client.clone(), plan.namespace());
    let patch = json!({"metadata": {"annotations": {REMINDED: now.to_string()}}});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let object = format!("StatefulSet {}/{}", plan.namespace(), plan.object());
    sets.patch(&plan.object(), &params, &Patch::Merge(patch)).await.map_err(Error::api("remind", object))?;
    Ok(())
}

/// Counts, and what keeps a store that runs from taking saves.
async fn ask_store(
    context: &Context,
    valid: &ValidatedLane,
    held: &Held,
    now: Timestamp,
    findings: &mut Findings,
) -> Result<(), Error> {
    let keys = context.keys()?;
    let Some(answer) = context.ask.store(&keys, &valid.name, valid.uid, held.log_id, now).await else { return Ok(()) };
    findings.events = i64::try_from(answer.counts.events).ok();
    // The last refusal of the fence stands until the next write confirms it, so it says nothing about now; FenceHeld
    // does. What is wrong with the log stays until a person has looked.
    let damaged = answer.reasons.iter().any(|reason| reason.starts_with("log_"));
    if !answer.writable && damaged {
        let reasons = answer.reasons.join(", ");
        findings.store = Some(Finding::no(Reason::StoreReadOnly, format!("the store takes no saves: {reasons}")));
    }
    Ok(())
}
