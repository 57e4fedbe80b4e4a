//! An Embedder becomes a Deployment, a Service and perhaps a volume, while lanes use it.
//!
//! # Flow
//! 1. Dereference: the Embedder, the lanes that use it, what there is of its objects.
//! 2. Validate: a fingerprint from the spec alone.
//! 3. Build and apply. One that nobody uses has none of it: workload, Service and volume go, a managed Embedder too; a
//!    user's own stays Idle, and a user's Secret is never touched.
//! 4. A test embedding of the declared length, once for each set of ready pods: only then is it Ready.
//! 5. Status, if it says something new; Events on transitions.
//!
//! It is a controller of its own because two lanes that applied one Embedder would take each other's ownerReference
//! away; lanes only name it.

pub mod status;
pub mod trial;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::DeserializeGuard;
use kube::{Api, Resource, ResourceExt as _};
use lanekeeper_core::cluster::{embedder_object, label, managed_embedder};
use lanekeeper_crds::embedder::EmbedderSpec;
use lanekeeper_crds::models::BuiltinModel;
use lanekeeper_crds::{Embedder, Lane, annotations};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::Next;
use super::lane::validate::target;
use super::pods::cause;
use crate::apply::{FIELD_MANAGER, Ownership, apply};
use crate::backoff::Class;
use crate::build::embedder::deployment::{NoDeployment, deployment};
use crate::build::embedder::{EmbedderPlan, cache, service};
use crate::build::stateful_set::is_ready;
use crate::build::{EmbedderTarget, typed};
use crate::cache::find;
use crate::causes;
use crate::context::Context;
use crate::error::{Error, chain, is_missing};
use crate::queue::Key;
use crate::status::{Finding, Reason};
use status::Findings;

/// The key of the Embedder that is made for a built-in model.
#[must_use]
pub fn managed_key(model: BuiltinModel) -> Key {
    Key::cluster(managed_embedder(&model.fingerprint_fields().fingerprint()))
}

/// Whether the lane names this Embedder.
#[must_use]
pub fn uses(lane: &Lane, embedder: &str) -> bool {
    match (&lane.spec.embedder.name, lane.spec.embedder.model) {
        (Some(name), _) => name == embedder,
        (None, Some(model)) => managed_key(model).name == embedder,
        (None, None) => false,
    }
}

/// What there is.
struct Seen {
    consumers: Vec<String>,
    deployment: Option<Arc<Deployment>>,
    service: Option<Arc<Service>>,
    volume: Option<Arc<PersistentVolumeClaim>>,
    pods: Vec<Arc<Pod>>,
}

/// Makes the cluster be as the Embedder says.
pub async fn reconcile(context: &Context, key: &Key) -> Result<Next, Error> {
    let seen = dereference(context, key)?;
    let Some(guarded) = find(&context.caches()?.embedders, key) else {
        return make_managed(context, key, &seen).await;
    };
    if guarded.meta().deletion_timestamp.is_some() {
        // What it owns goes by itself.
        return Ok(Next::Done);
    }
    let embedder = match &guarded.0 {
        Ok(embedder) => embedder,
        Err(invalid) => {
            tracing::error!(embedder = %key, error = invalid.error, "the Embedder cannot be read");
            return Ok(Next::Waiting(Class::Edit));
        }
    };
    let mut findings = Findings { consumers: seen.consumers.clone(), ..Findings::default() };
    let next = if seen.consumers.is_empty() {
        retire(context, key, embedder, &seen).await?;
        if is_managed(embedder) {
            return Ok(Next::Done);
        }
        findings.ready = Finding::no(Reason::Idle, "no lane uses it");
        Next::Done
    } else {
        run(context, embedder, &seen, &mut findings).await?
    };
    status::report(context, embedder, &findings).await?;
    Ok(next)
}

fn dereference(context: &Context, key: &Key) -> Result<Seen, Error> {
    let caches = context.caches()?;
    let mut consumers: Vec<String> = caches
        .lanes
        .state()
        .iter()
        .filter_map(|lane| lane.0.as_ref().ok())
        .filter(|lane| lane.metadata.deletion_timestamp.is_none() && uses(lane, &key.name))
        .map(|lane| format!("{}/{}", lane.namespace().unwrap_or_default(), lane.name_any()))
        .collect();
    consumers.sort_unstable();
    let object = Key::namespaced(&context.config.system_namespace, embedder_object(&key.name));
    let of_it = |pod: &Pod| {
        pod.namespace().as_deref() == Some(&context.config.system_namespace)
            && pod.labels().get(label::EMBEDDER_NAME).is_some_and(|name| *name == key.name)
    };
    let mut pods = caches.pods.state_filter(of_it);
    pods.sort_by_key(|pod| pod.name_any());
    Ok(Seen {
        consumers,
        deployment: find(&caches.deployments, &object),
        service: find(&caches.services, &object),
        volume: find(&caches.volumes, &object),
        pods,
    })
}

fn is_managed(embedder: &Embedder) -> bool {
    embedder.labels().get(annotations::MANAGED).is_some_and(|value| value == "true")
}

/// A lane names a built-in model for which there is no Embedder yet.
async fn make_managed(context: &Context, key: &Key, seen: &Seen) -> Result<Next, Error> {
    let Some(model) = BuiltinModel::ALL.into_iter().find(|model| managed_key(*model) == *key) else {
        return Ok(Next::Done);
    };
    if seen.consumers.is_empty() {
        return Ok(Next::Done);
    }
    let embedder: Embedder = typed(json!({
        "apiVersion": lanekeeper_crds::API_VERSION, "kind": "Embedder",
        "metadata": {"name": key.name, "labels": {annotations::MANAGED: "true", label::MANAGED_BY: label::LANEKEEPER}},
        "spec": {"model": model.name(), "runtime": "builtin"},
    }))?;
    let embedders = Api::<Embedder>::all(context.client.clone());
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match embedders.create(&params, &embedder).await {
        Ok(_) => Ok(Next::Done),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Next::Done),
        Err(error) => Err(Error::api("create", format!("Embedder {key}"))(error)),
    }
}

/// The last lane has gone.
async fn retire(context: &Context, key: &Key, embedder: &Embedder, seen: &Seen) -> Result<(), Error> {
    let here = &context.config.system_namespace;
    // Owned by this very Embedder, so nothing of a user goes.
    let uid = embedder.metadata.uid.as_deref().unwrap_or_default();
    remove::<Deployment>(context, here, seen.deployment.as_deref(), uid).await?;
    remove::<Service>(context, here, seen.service.as_deref(), uid).await?;
    remove::<PersistentVolumeClaim>(context, here, seen.volume.as_deref(), uid).await?;
    if !is_managed(embedder) {
        return Ok(());
    }
    let embedders = Api::<DeserializeGuard<Embedder>>::all(context.client.clone());
    // A version: somebody may just have taken the mark off to keep it.
    let precondition = Preconditions { uid: embedder.uid(), resource_version: embedder.resource_version() };
    match embedders.delete(&key.name, &DeleteParams::background().preconditions(precondition)).await {
        Ok(_) => Ok(()),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(Error::api("delete", format!("Embedder {key}"))(error)),
    }
}

async fn remove<K>(context: &Context, namespace: &str, found: Option<&K>, owner: &str) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let Some(found) = found else { return Ok(()) };
    let is_owned = found.owner_references().iter().any(|reference| reference.uid == owner);
    if !is_owned || found.meta().deletion_timestamp.is_some() {
        return Ok(());
    }
    let objects = Api::<K>::namespaced(context.client.clone(), namespace);
    let precondition = Preconditions { uid: found.uid(), resource_version: None };
    let name = found.name_any();
    match objects.delete(&name, &DeleteParams::background().preconditions(precondition)).await {
        Ok(_) => Ok(()),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(Error::api("delete", format!("{} {namespace}/{name}", K::kind(&())))(error)),
    }
}

async fn run(context: &Context, embedder: &Embedder, seen: &Seen, findings: &mut Findings) -> Result<Next, Error> {
    let name = embedder.name_any();
    let fields = match embedder.spec.fingerprint_fields() {
        Ok(fields) => fields,
        Err(error) => {
            findings.ready = Finding::no(Reason::EmbedderInvalid, chain(&error));
            return Ok(Next::Waiting(Class::Edit));
        }
    };
    let target = target(&name, &embedder.spec, &context.config.system_namespace, fields);
    findings.fingerprint = Some(target.fingerprint());
    findings.url = Some(target.url.clone());
    let Some(plan) = EmbedderPlan::of(embedder, &context.config) else {
        return Err(Error::Malformed { object: format!("Embedder {name}"), reason: "it has no UID".to_owned() });
    };
    let owner = Ownership { label: label::EMBEDDER_NAME, value: &name };
    let client = &context.client;
    let desired = match deployment(&plan)? {
        Ok(desired) => desired,
        Err(NoDeployment::External) => return try_external(context, embedder, &target, findings).await,
        Err(NoDeployment::NoImage(flag)) => {
            let message = format!("the operator was started without {flag}, so the runtime has no image");
            findings.ready = Finding::no(Reason::RuntimeImageMissing, message);
            return Ok(Next::Waiting(Class::Edit));
        }
    };
    if let Some(volume) = cache(&plan, seen.volume.as_deref())? {
        apply(client, volume, seen.volume.as_deref(), owner).await?;
    }
    apply(client, service(&plan)?, seen.service.as_deref(), owner).await?;
    let deployed = apply(client, desired, seen.deployment.as_deref(), owner).await?.object;
    let ready: Vec<String> =
        seen.pods.iter().filter(|pod| is_ready(pod)).filter_map(|pod| pod.metadata.uid.clone()).collect();
    if ready.is_empty() {
        findings.ready = waiting(context, &deployed, &seen.pods).await;
        return Ok(Next::Waiting(Class::Outside));
    }
    let key = trial::TrialKey::new(embedder, &target, &ready);
    findings.take(context.ask_once(&key, &trial_of(&embedder.spec, &target, None)).await);
    Ok(if findings.ready.holds { Next::Done } else { Next::Waiting(Class::Transient) })
}

fn trial_of<'a>(
    spec: &'a EmbedderSpec,
    target: &'a EmbedderTarget,
    token: Option<String>,
) -> crate::ask::TestEmbedding<'a> {
    crate::ask::TestEmbedding {
        url: &target.url,
        is_ours: target.is_ours,
        model: &spec.model,
        dimension: target.fields.dimension,
        fingerprint: target.fingerprint(),
        token,
    }
}

/// No watch tells of a server that somebody else runs: it is asked again now and then.
async fn try_external(
    context: &Context,
    embedder: &Embedder,
    target: &EmbedderTarget,
    findings: &mut Findings,
) -> Result<Next, Error> {
    let secret = embedder.spec.external.as_ref().and_then(|external| external.api_key_secret.as_ref());
    let token = match secret {
        None => None,
        Some(secret) => {
            let found = super::lane::apply::system_secret(context, &secret.name, &secret.key).await?;
            let token = found.and_then(|bytes| String::from_utf8(bytes).ok()).map(|token| token.trim().to_owned());
            let Some(token) = token.filter(|token| !token.is_empty()) else {
                let message = format!(
                    "there is no key {} in Secret {} of {}",
                    secret.key, secret.name, context.config.system_namespace
                );
                findings.ready = Finding::no(Reason::EmbedderUnreachable, message);
                return Ok(Next::Waiting(Class::Edit));
            };
            Some(token)
        }
    };
    match context.ask.embedder(&trial_of(&embedder.spec, target, token)).await {
        Ok(mut measured) => {
            // The rate of another's server differs from time to time: what was measured first stands.
            let before =
                embedder.status.as_ref().filter(|status| status.observed_generation == embedder.metadata.generation);
            measured.vectors_per_second =
                before.and_then(|status| status.vectors_per_second).or(measured.vectors_per_second);
            findings.take(Ok(measured));
            Ok(Next::After(std::time::Duration::from_secs(600)))
        }
        Err(finding) => {
            findings.take(Err(finding));
            Ok(Next::Waiting(Class::Transient))
        }
    }
}

/// Why no pod is ready: what the Deployment says of pods that cannot be made, then the pod that is furthest from it.
async fn waiting(context: &Context, deployment: &Deployment, pods: &[Arc<Pod>]) -> Finding {
    let conditions = deployment.status.iter().flat_map(|status| status.conditions.iter().flatten());
    for condition in conditions {
        if condition.type_ == "ReplicaFailure" && condition.status == "True" {
            return causes::of_creation(condition.message.as_deref().unwrap_or_default());
        }
    }
    if deployment.spec.as_ref().and_then(|spec| spec.replicas) == Some(0) {
        return Finding::no(Reason::EmbedderStarting, "the Deployment is scaled to 0");
    }
    let mut found = Vec::new();
    for pod in pods {
        found.push(cause(context, pod).await);
    }
    let worst = found.iter().find(|finding| finding.reason.is_problem());
    match worst.or_else(|| found.first()) {
        Some(finding) if finding.reason.is_problem() => finding.clone(),
        Some(finding) => Finding::no(Reason::EmbedderStarting, finding.message.clone()),
        None => Finding::no(Reason::EmbedderStarting, "its pods are being made"),
    }
}
