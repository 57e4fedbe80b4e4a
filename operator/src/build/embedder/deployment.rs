//! The Deployment of an Embedder. GPU resource, nodeSelector, tolerations and runtimeClass stand on every pod of it.
//!
//! `replicas` is sent only where it is declared: without it whatever scales the Deployment decides.

use k8s_openapi::api::apps::v1::Deployment;
use lanekeeper_core::cluster::{label, path, port};
use lanekeeper_crds::embedder::Runtime;
use serde_json::{Value, json};

use super::arguments::{CACHE, CommandLine, command_line};
use super::{EmbedderPlan, typed};
use crate::build::{container_security, label_values, pod_security, tolerations};
use crate::error::Error;

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoDeployment {
    /// Somebody else runs it.
    External,
    /// The operator was told no image for the runtime; its flag.
    NoImage(&'static str),
}

/// The Deployment.
pub fn deployment(plan: &EmbedderPlan<'_>) -> Result<Result<Deployment, NoDeployment>, Error> {
    let spec = plan.spec;
    let Some(CommandLine { command, arguments }) = command_line(plan) else { return Ok(Err(NoDeployment::External)) };
    let image = match (spec.runtime, &plan.config.tei_image, &plan.config.llamacpp_image) {
        (Runtime::Builtin, _, _) => &plan.config.image,
        (Runtime::Tei, Some(image), _) | (Runtime::Llamacpp, _, Some(image)) => image,
        (Runtime::Tei, None, _) => return Ok(Err(NoDeployment::NoImage("--tei-image"))),
        (Runtime::Llamacpp, _, None) => return Ok(Err(NoDeployment::NoImage("--llamacpp-image"))),
        (Runtime::External, _, _) => return Ok(Err(NoDeployment::External)),
    };
    let mut volumes = vec![json!({"name": "tmp", "emptyDir": {}})];
    let mut mounts = vec![json!({"name": "tmp", "mountPath": "/tmp"})];
    let mut environment: Vec<Value> = Vec::new();
    if spec.runtime != Runtime::Builtin || spec.cache.is_some() {
        // tei and llamacpp fetch their weights: into the volume, or again by each new pod.
        let cache = if spec.cache.is_some() {
            json!({"name": "cache", "persistentVolumeClaim": {"claimName": plan.object()}})
        } else {
            json!({"name": "cache", "emptyDir": {}})
        };
        volumes.push(cache);
        mounts.push(json!({"name": "cache", "mountPath": CACHE}));
        environment.push(json!({"name": "HF_HOME", "value": CACHE}));
        environment.push(json!({"name": "LLAMA_CACHE", "value": CACHE}));
    }
    let health = match spec.runtime {
        Runtime::Builtin => (path::HEALTHZ, path::READYZ),
        Runtime::Tei | Runtime::Llamacpp | Runtime::External => ("/health", "/health"),
    };
    let probe = |path: &str| json!({"path": path, "port": "http"});
    let mut container = json!({
        "name": "embedder",
        "image": image,
        "imagePullPolicy": plan.config.image_pull_policy.as_str(),
        "args": arguments,
        "env": environment,
        "ports": [
            {"name": "http", "containerPort": port::EMBEDDER, "protocol": "TCP"},
            {"name": "metrics", "containerPort": port::METRICS, "protocol": "TCP"},
        ],
        // A large model is fetched and loaded for a long time: an hour, then something is wrong.
        "startupProbe": {"httpGet": probe(health.1), "periodSeconds": 5, "failureThreshold": 720},
        "readinessProbe": {"httpGet": probe(health.1), "periodSeconds": 5},
        "livenessProbe": {"httpGet": probe(health.0), "periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 6},
        "resources": resources(plan),
        "securityContext": container_security(),
        "volumeMounts": mounts,
    });
    if !command.is_empty() {
        container["command"] = json!(command);
    }
    let mut pod = json!({
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": pod_security(),
        "containers": [container],
        "volumes": volumes,
    });
    if !plan.config.image_pull_secrets.is_empty() {
        pod["imagePullSecrets"] = plan.config.image_pull_secrets.iter().map(|name| json!({"name": name})).collect();
    }
    if let Some(gpu) = &spec.gpu {
        if !gpu.node_selector.is_empty() {
            pod["nodeSelector"] = json!(label_values(&gpu.node_selector));
        }
        if !gpu.tolerations.is_empty() {
            pod["tolerations"] = tolerations(&gpu.tolerations)?;
        }
        if let Some(class) = &gpu.runtime_class_name {
            pod["runtimeClassName"] = json!(class);
        }
    }
    let mut deployment = json!({
        "selector": {"matchLabels": {label::NAME: label::EMBEDDER, label::EMBEDDER_NAME: plan.name}},
        "revisionHistoryLimit": 2,
        // A GPU, and a volume of one node, are rarely there twice: the old pod makes room first.
        "strategy": strategy(plan),
        "template": {"metadata": {"labels": plan.labels()}, "spec": pod},
    });
    if let Some(replicas) = spec.replicas {
        deployment["replicas"] = json!(replicas);
    }
    typed(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": plan.metadata(), "spec": deployment,
    }))
    .map(Ok)
}

fn strategy(plan: &EmbedderPlan<'_>) -> Value {
    if plan.spec.gpu.is_some() || plan.spec.cache.is_some() {
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}})
    } else {
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
    }
}

fn resources(plan: &EmbedderPlan<'_>) -> Value {
    let mut resources = match plan.spec.runtime {
        Runtime::Builtin => json!({"requests": {"cpu": "250m", "memory": "256Mi"}}),
        Runtime::Tei | Runtime::Llamacpp | Runtime::External => json!({"requests": {"cpu": "500m", "memory": "1Gi"}}),
    };
    if let Some(gpu) = &plan.spec.gpu {
        // Of an extended resource request and limit are equal; both are written, so that a reader sees it.
        let count = gpu.count.to_string();
        resources["limits"] = json!({gpu.resource_name.as_str(): count});
        resources["requests"][gpu.resource_name.as_str()] = json!(count);
    }
    resources
}
