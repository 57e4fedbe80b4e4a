//! A lane's store: one pod, the only writer of its log.
//!
//! `Parallel`, because with `OrderedReady` a bad first revision never heals. No liveness probe: a long replay or a
//! full walk of the log must not be killed; a store that cannot go on ends itself.

use k8s_openapi::api::apps::v1::StatefulSet;
use lanekeeper_core::cluster::{self, label, path, port, program};
use lanekeeper_crds::lane::{LaneKind, Language, TurnRole};
use serde_json::{Value, json};

use super::{LanePlan, container_security, label_values, pod_security, tolerations, typed};
use crate::error::Error;

/// Seconds between two startup probes.
const STARTUP_PERIOD: i32 = 5;
/// Seconds that any log may take to open.
const STARTUP_LEAST: i64 = 600;
/// Events that a slow machine certainly walks in a second.
const WALKED_PER_SECOND: i64 = 500;

/// The StatefulSet. `stored` is the one there is: what it allows for the start never falls, so that a log that
/// grows restarts no pod by itself.
pub fn stateful_set(plan: &LanePlan<'_>, stored: Option<&StatefulSet>) -> Result<StatefulSet, Error> {
    let spec = &plan.lane.spec;
    let selector = json!({label::NAME: label::STORE, label::LANE: plan.name.name()});
    let mut labels = label_values(&spec.pod_labels);
    labels.extend(plan.labels());
    let mut pod = json!({
        "serviceAccountName": plan.object(),
        "automountServiceAccountToken": true,
        "enableServiceLinks": false,
        // Long enough for a checkpoint and to give the record back.
        "terminationGracePeriodSeconds": 60,
        "securityContext": pod_security(),
        "containers": [container(plan, startup_failures(plan.head_seq, stored))?],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": plan.object()}},
            {"name": "secrets", "secret": {"secretName": plan.object(), "defaultMode": 0o400}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        ],
    });
    if !spec.tolerations.is_empty() {
        pod["tolerations"] = tolerations(&spec.tolerations)?;
    }
    if !spec.node_selector.is_empty() {
        pod["nodeSelector"] = json!(label_values(&spec.node_selector));
    }
    if let Some(class) = &spec.priority_class_name {
        pod["priorityClassName"] = json!(class);
    }
    if !spec.image_pull_secrets.is_empty() {
        pod["imagePullSecrets"] = spec.image_pull_secrets.iter().map(|secret| json!({"name": secret.name})).collect();
    }
    typed(json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": plan.owned_metadata(),
        "spec": {
            "replicas": 1,
            "serviceName": plan.object(),
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate"},
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }))
}

fn container(plan: &LanePlan<'_>, startup_failures: i32) -> Result<Value, Error> {
    let probe = |path: &str| json!({"path": path, "port": "store", "scheme": "HTTPS"});
    let resources = match &plan.lane.spec.resources {
        Some(resources) => serde_json::to_value(resources)
            .map_err(|error| Error::Malformed { object: "resources".to_owned(), reason: error.to_string() })?,
        None => json!({"requests": {"cpu": "25m", "memory": "64Mi"}}),
    };
    Ok(json!({
        "name": "store",
        "image": plan.config.image,
        "imagePullPolicy": plan.config.image_pull_policy.as_str(),
        "command": [program::STORE],
        "args": arguments(plan)?,
        "env": [{"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
        "ports": [
            {"name": "store", "containerPort": port::STORE, "protocol": "TCP"},
            {"name": "metrics", "containerPort": port::METRICS, "protocol": "TCP"},
        ],
        "startupProbe": {
            "httpGet": probe(path::STARTUPZ), "periodSeconds": STARTUP_PERIOD, "timeoutSeconds": 5,
            "failureThreshold": startup_failures,
        },
        "readinessProbe": {"httpGet": probe(path::READYZ), "periodSeconds": 5, "timeoutSeconds": 5},
        "resources": resources,
        "securityContext": container_security(),
        "volumeMounts": [
            {"name": "data", "mountPath": path::DATA},
            // The whole folder and no subPath: only then is it renewed in place.
            {"name": "secrets", "mountPath": path::LANE_SECRETS, "readOnly": true},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }))
}

/// The store's command line, as docs/cluster-contract.md has it.
fn arguments(plan: &LanePlan<'_>) -> Result<Vec<String>, Error> {
    let spec = &plan.lane.spec;
    let mut arguments = Vec::new();
    let mut add = |flag: &str, value: String| arguments.push(format!("--{flag}={value}"));
    add("lane", plan.name.to_string());
    add("lane-uid", plan.uid.to_string());
    add(
        "kind",
        match spec.kind {
            LaneKind::Personal => "personal",
            LaneKind::Corpus => "corpus",
        }
        .to_owned(),
    );
    add("collection", plan.collection.clone());
    add("log-id", plan.log_id.to_string());
    add("fingerprint", plan.embedder.fingerprint().to_string());
    add("dimension", plan.embedder.fields.dimension.to_string());
    add("roles", spec.projection.roles.iter().map(|role| role_name(*role)).collect::<Vec<_>>().join(","));
    add("language", language_name(spec.recall.language).to_owned());
    if let Some(score) = spec.recall.min_score {
        add("min-score", score.to_string());
    }
    if let Some(uid) = plan.adopted {
        add("adopt", uid.to_string());
    }
    add("data", path::DATA.to_owned());
    add("secrets", path::LANE_SECRETS.to_owned());
    add("system-namespace", plan.config.system_namespace.clone());
    match &plan.config.qdrant_url {
        Some(url) => add("qdrant-url", url.clone()),
        None => add("engine", "edge".to_owned()),
    }
    add("embedder-url", plan.embedder.url.clone());
    if !plan.embedder.is_ours {
        let fields = serde_json::to_string(&plan.embedder.fields)
            .map_err(|error| Error::Malformed { object: "embedder fields".to_owned(), reason: error.to_string() })?;
        add("embedder-fields", fields);
    }
    add("listen", format!("[::]:{}", port::STORE));
    add("metrics", format!("[::]:{}", port::METRICS));
    Ok(arguments)
}

const fn role_name(role: TurnRole) -> &'static str {
    match role {
        TurnRole::User => "user",
        TurnRole::Assistant => "assistant",
        TurnRole::Tool => "tool",
        TurnRole::System => "system",
    }
}

const fn language_name(language: Language) -> &'static str {
    match language {
        Language::English => "english",
        Language::German => "german",
        Language::French => "french",
        Language::Spanish => "spanish",
        Language::None => "none",
    }
}

/// How many startup probes may fail: twice what a walk of the whole log takes, in steps of a factor of two.
fn startup_failures(head_seq: i64, stored: Option<&StatefulSet>) -> i32 {
    let needed = (head_seq / WALKED_PER_SECOND).saturating_mul(2);
    let mut seconds = STARTUP_LEAST;
    while seconds < needed && seconds < i64::from(i32::MAX) / 2 {
        seconds *= 2;
    }
    let failures = i32::try_from(seconds / i64::from(STARTUP_PERIOD)).unwrap_or(i32::MAX);
    let there = stored
        .and_then(|stored| stored.spec.as_ref()?.template.spec.as_ref()?.containers.first()?.startup_probe.as_ref())
        .and_then(|probe| probe.failure_threshold);
    there.map_or(failures, |there| there.max(failures))
}

/// Whether a pod is stuck in an old revision: it is not ready, a newer one is wanted, and nobody will replace it.
#[must_use]
pub fn is_stuck(stateful_set: &StatefulSet, pod: &k8s_openapi::api::core::v1::Pod) -> bool {
    let Some(status) = &stateful_set.status else { return false };
    let wanted = status.update_revision.as_deref();
    let revision = pod.metadata.labels.as_ref().and_then(|labels| labels.get("controller-revision-hash"));
    let seen = status.observed_generation == stateful_set.metadata.generation;
    seen && wanted.is_some()
        && revision.map(String::as_str) != wanted
        && pod.metadata.deletion_timestamp.is_none()
        && !is_ready(pod)
}

/// Whether the kubelet says that it is ready.
#[must_use]
pub fn is_ready(pod: &k8s_openapi::api::core::v1::Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The pod of a lane by name.
#[must_use]
pub fn pod_name(plan: &LanePlan<'_>) -> String {
    cluster::lane_pod(plan.name.name())
}
