//! Why a pod is not there or not ready, from what the scheduler, the kubelet and the controllers say, and what is
//! missing by name.
//!
//! What must always hold: the same pod gives the same words, so that a status is not written for nothing; numbers
//! that change by themselves (seconds, back-off) are not repeated.

use k8s_openapi::api::core::v1::{ContainerStatus, Event, Node, Pod, Taint, Toleration};

use crate::build::stateful_set::is_ready;
use crate::status::{Finding, Reason};

/// A container that ended so often does not start by itself any more.
const RESTARTS: i32 = 3;

/// What a pod waits for.
#[must_use]
pub fn of_pod(pod: &Pod) -> Finding {
    of_pod_on(pod, &[])
}

/// Whether the scheduler speaks of taints without naming one, as it does since Kubernetes 1.35: the nodes have to be
/// looked at ([`of_pod_on`]).
#[must_use]
pub fn needs_nodes(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
        .any(|condition| condition.message.as_deref().is_some_and(|said| said.contains("untolerated taint(s)")))
}

/// [`of_pod`], with the nodes there are.
#[must_use]
pub fn of_pod_on(pod: &Pod, nodes: &[Node]) -> Finding {
    if pod.metadata.deletion_timestamp.is_some() {
        return Finding::no(Reason::Starting, "the pod before it is ending");
    }
    if is_ready(pod) {
        return Finding::yes(Reason::Running, "the pod is ready");
    }
    let Some(status) = &pod.status else { return Finding::no(Reason::Pending, "the pod is not scheduled yet") };
    let conditions = status.conditions.iter().flatten();
    for condition in conditions {
        if condition.type_ == "PodScheduled" && condition.status == "False" {
            let message = condition.message.as_deref().unwrap_or_default();
            return unschedulable(pod, message, nodes);
        }
    }
    let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    for container in containers {
        if let Some(finding) = of_container(container) {
            return finding;
        }
    }
    match status.phase.as_deref() {
        Some("Failed") => {
            let said = status.reason.as_deref().or(status.message.as_deref()).unwrap_or("no reason was given");
            Finding::no(Reason::CrashLoop, format!("the pod failed: {said}"))
        }
        Some("Running") => Finding::no(Reason::Starting, "the container runs and is not ready yet"),
        Some(_) | None => Finding::no(Reason::Pending, "the pod's containers are being made"),
    }
}

/// What the Events about an object say that its pod does not: that there is none, or that it waits for a mount.
/// Newer ones win.
#[must_use]
pub fn of_events(events: &[Event]) -> Option<Finding> {
    let time = |event: &Event| {
        let last = event.last_timestamp.as_ref().map(|time| time.0);
        last.or_else(|| event.event_time.as_ref().map(|time| time.0))
            .or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0))
    };
    let mut events: Vec<&Event> = events.iter().filter(|event| event.type_.as_deref() == Some("Warning")).collect();
    events.sort_by_key(|event| std::cmp::Reverse(time(event)));
    events.into_iter().find_map(|event| {
        let message = event.message.as_deref().unwrap_or_default();
        match event.reason.as_deref() {
            Some("FailedCreate") => Some(of_creation(message)),
            Some("FailedMount" | "FailedAttachVolume" | "FailedMapVolume") => {
                Some(Finding::no(Reason::MountFailed, one_line(message)))
            }
            _ => None,
        }
    })
}

/// Why a pod could not be made.
#[must_use]
pub fn of_creation(message: &str) -> Finding {
    // `pods "x" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0`
    if let Some(at) = message.find("exceeded quota:") {
        return Finding::no(Reason::QuotaExceeded, one_line(&message[at..]));
    }
    // `… failed quota: x: must specify limits.cpu`
    if let Some(at) = message.find("failed quota:") {
        return Finding::no(Reason::QuotaExceeded, one_line(&message[at..]));
    }
    let from = message.find("is forbidden:").map_or(0, |at| at);
    Finding::no(Reason::PodRefused, one_line(&message[from..]))
}

fn of_container(container: &ContainerStatus) -> Option<Finding> {
    let state = container.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        let why = waiting.reason.as_deref().unwrap_or_default();
        return match why {
            "ImagePullBackOff"
            | "ErrImagePull"
            | "ErrImageNeverPull"
            | "InvalidImageName"
            | "RegistryUnavailable"
            | "ImageInspectError"
            | "SignatureValidationFailed" => Some(Finding::no(
                Reason::ImagePullFailed,
                // The kubelet's own text changes from try to try.
                format!("the image {} cannot be had ({})", container.image, steady(why)),
            )),
            "CrashLoopBackOff" => Some(crashed(container)),
            "CreateContainerConfigError" | "CreateContainerError" => Some(Finding::no(
                Reason::MountFailed,
                one_line(waiting.message.as_deref().unwrap_or("the container cannot be made")),
            )),
            _ => None,
        };
    }
    let again = container.restart_count >= RESTARTS && !container.ready;
    (again && (state.terminated.is_some() || container.last_state.is_some())).then(|| crashed(container))
}

/// Two of the kubelet's words alternate for one and the same cause.
fn steady(why: &str) -> &str {
    if why == "ErrImagePull" { "ImagePullBackOff" } else { why }
}

fn crashed(container: &ContainerStatus) -> Finding {
    let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let last = last.or_else(|| container.state.as_ref().and_then(|state| state.terminated.as_ref()));
    let how = last.map_or_else(String::new, |ended| {
        let why = ended.reason.as_deref().unwrap_or("Error");
        format!(", last with exit code {} ({why})", ended.exit_code)
    });
    Finding::no(Reason::CrashLoop, format!("the container {} ends again and again{how}", container.name))
}

/// From the scheduler's sentence, such as `0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) had
/// untolerated taint {gpu: yes}. preemption: …`. Of several causes the one that is nearest to a fit: a node that
/// lacks a resource passed taints and labels.
fn unschedulable(pod: &Pod, message: &str, known: &[Node]) -> Finding {
    // What follows is about evicting others, and of no use to who looks for what is missing.
    let end = [" preemption:", " no new claims"].iter().filter_map(|tail| message.find(tail)).min();
    let nodes = &message[..end.unwrap_or(message.len())];
    let said = one_line(nodes);
    let gpu = gpu_resources(pod);
    let missing = insufficient(nodes);
    if let Some(resource) = missing.iter().find(|missing| gpu.iter().any(|(name, _)| *name == **missing)) {
        let wanted = gpu.iter().find(|(name, _)| *name == **resource).map_or("some", |(_, count)| count.as_str());
        return Finding::no(Reason::InsufficientGPU, format!("no node has {wanted} of {resource} free: {said}"));
    }
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Finding::no(Reason::InsufficientResources, format!("no node has enough {missing}: {said}"));
    }
    // Taints that mark a node as broken or as the control plane's are not what keeps a pod from its node.
    let mut taints: Vec<String> = taints(nodes).into_iter().map(str::to_owned).collect();
    taints.extend(untolerated(pod, known));
    let of_people = taints.iter().find(|taint| !taint.contains("node.kubernetes.io/") && !taint.contains("node-role."));
    if let Some(taint) = of_people {
        return Finding::no(Reason::UntoleratedTaint, format!("the pod does not tolerate the taint {taint}: {said}"));
    }
    if nodes.contains("node affinity/selector") || nodes.contains("node selector") {
        let labels = selector(pod);
        let wanted = if labels.is_empty() { String::new() } else { format!(" {labels}") };
        return Finding::no(
            Reason::NoMatchingNode,
            format!("no node has the labels that are asked for{wanted}: {said}"),
        );
    }
    if nodes.contains("volume node affinity") {
        return Finding::no(Reason::NoMatchingNode, format!("no node reaches the volume: {said}"));
    }
    if let Some(taint) = taints.first() {
        return Finding::no(Reason::UntoleratedTaint, format!("the pod does not tolerate the taint {taint}: {said}"));
    }
    if nodes.contains("untolerated taint") {
        return Finding::no(Reason::UntoleratedTaint, format!("the pod does not tolerate a taint: {said}"));
    }
    if nodes.contains("unbound immediate PersistentVolumeClaims") || nodes.contains("persistent volumes to bind") {
        return Finding::no(Reason::VolumePending, format!("the volume is not there: {said}"));
    }
    Finding::no(Reason::Unschedulable, said)
}

/// Extended resources of the pod, and how many.
fn gpu_resources(pod: &Pod) -> Vec<(String, String)> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers
        .filter_map(|container| container.resources.as_ref()?.limits.as_ref())
        .flatten()
        .filter(|(name, _)| name.contains('/') && !name.starts_with("kubernetes.io/"))
        .map(|(name, count)| (name.clone(), count.0.clone()))
        .collect()
}

fn selector(pod: &Pod) -> String {
    let labels = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
    let labels = labels.into_iter().flatten().map(|(key, value)| format!("{key}={value}"));
    labels.collect::<Vec<_>>().join(",")
}

fn insufficient(message: &str) -> Vec<&str> {
    let mut all = Vec::new();
    for part in message.split("Insufficient ").skip(1) {
        // Not at a point: `nvidia.com/gpu` holds one itself.
        let end = part.find([',', ' ']).unwrap_or(part.len());
        let name = part[..end].trim_end_matches('.');
        if !name.is_empty() && !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

fn taints(message: &str) -> Vec<&str> {
    // Newer schedulers say `untolerated taint(s)` without naming; older name one in braces.
    let parts = message.split("untolerated taint ").skip(1);
    parts.filter_map(|part| Some(&part[..=part.find('}')?])).filter(|taint| taint.starts_with('{')).collect()
}

/// Taints that keep the pod from the nodes that have its labels.
fn untolerated(pod: &Pod, nodes: &[Node]) -> Vec<String> {
    let wanted = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let has_labels = |node: &&Node| {
        let labels = node.metadata.labels.as_ref();
        wanted.is_none_or(|wanted| {
            wanted.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
        })
    };
    let mut found: Vec<String> = nodes
        .iter()
        .filter(has_labels)
        .flat_map(|node| node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()))
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .filter(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
        .map(|taint| format!("{{{}: {}}}", taint.key, taint.value.as_deref().unwrap_or_default()))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let exists = toleration.operator.as_deref() == Some("Exists");
    let key = toleration.key.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    (key == taint.key || (key.is_empty() && exists))
        && (effect.is_empty() || effect == taint.effect)
        && (exists || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default())
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").trim_end_matches('.').chars().take(500).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "embedder-gpu-x"},
            "spec": {
                "nodeSelector": {"accelerator": "h200"},
                "containers": [{"name": "embedder", "resources": {"limits": {"nvidia.com/gpu": "2", "memory": "1Gi"}}}],
            },
            "status": status,
        }))
        .unwrap()
    }

    fn scheduled(message: &str) -> Finding {
        of_pod(&pod(json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]})))
    }

    #[test]
    fn the_scheduler_is_understood() {
        let tail = " no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
        for (message, reason, named) in [
            (
                "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
                Reason::NoMatchingNode,
                "accelerator=h200",
            ),
            ("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", Reason::InsufficientGPU, "2 of nvidia.com/gpu"),
            (
                "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) didn't match Pod's node affinity/selector.",
                Reason::InsufficientGPU,
                "nvidia.com/gpu",
            ),
            (
                "0/1 nodes are available: 1 node(s) had untolerated taint {team.example/only: x}.",
                Reason::UntoleratedTaint,
                "{team.example/only: x}",
            ),
            (
                "0/3 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 2 node(s) didn't match Pod's node affinity/selector.",
                Reason::NoMatchingNode,
                "accelerator=h200",
            ),
            (
                "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }.",
                Reason::UntoleratedTaint,
                "disk-pressure",
            ),
            (
                "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.",
                Reason::InsufficientResources,
                "cpu, memory",
            ),
            (
                "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
                Reason::VolumePending,
                "volume",
            ),
            ("0/1 nodes are available: 1 node(s) had volume node affinity conflict.", Reason::NoMatchingNode, "volume"),
            ("something new", Reason::Unschedulable, "something new"),
        ] {
            let found = scheduled(&format!("{message}{tail}"));
            assert_eq!((found.reason, found.holds), (reason, false), "{message}: {found:?}");
            assert!(found.message.contains(named), "{} does not name {named}", found.message);
            assert!(!found.message.contains("reemption") && !found.message.contains("deallocate"), "{}", found.message);
        }
    }

    #[test]
    fn a_taint_that_the_scheduler_does_not_name_is_read_from_the_nodes() {
        let node = |name: &str, label: &str, taint: &str| -> Node {
            serde_json::from_value(json!({
                "metadata": {"name": name, "labels": {"accelerator": label}},
                "spec": {"taints": [{"key": taint, "value": "x", "effect": "NoSchedule"}]},
            }))
            .unwrap()
        };
        let said = |message: &str| {
            pod(json!({"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]}))
        };
        let taint = said("0/1 nodes are available: 1 node(s) had untolerated taint(s).");
        assert!(needs_nodes(&taint));
        assert_eq!(of_pod(&taint).reason, Reason::UntoleratedTaint);
        let found = of_pod_on(&taint, &[node("a", "h200", "team.example/only")]);
        assert_eq!(found.reason, Reason::UntoleratedTaint);
        assert!(found.message.contains("{team.example/only: x}"), "{}", found.message);
        // The taint of a node that would not fit anyway is not what is missing.
        let both = said(
            "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s).",
        );
        let other = [node("a", "none", "team.example/only")];
        assert_eq!(of_pod_on(&both, &other).reason, Reason::NoMatchingNode);
        assert_eq!(of_pod(&both).reason, Reason::NoMatchingNode);
        let mut tolerant = taint.clone();
        tolerant.spec.as_mut().unwrap().tolerations =
            Some(vec![Toleration { operator: Some("Exists".into()), ..Toleration::default() }]);
        assert!(!of_pod_on(&tolerant, &[node("a", "h200", "team.example/only")]).message.contains("only"));
    }

    #[test]
    fn the_kubelet_is_understood() {
        let waiting = |reason: &str| {
            of_pod(&pod(json!({"phase": "Pending", "containerStatuses": [{
                "name": "store", "image": "here/x:1", "imageID": "", "ready": false, "restartCount": 7,
                "state": {"waiting": {"reason": reason, "message": "back-off 2m40s"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]})))
        };
        let pull = waiting("ErrImagePull");
        assert_eq!(pull.reason, Reason::ImagePullFailed);
        assert!(pull.message.contains("here/x:1"));
        assert_eq!(pull, waiting("ImagePullBackOff"), "two words of one cause are one status");
        let crash = waiting("CrashLoopBackOff");
        assert_eq!(crash.reason, Reason::CrashLoop);
        assert!(crash.message.contains("137") && crash.message.contains("OOMKilled"), "{}", crash.message);
        assert!(!crash.message.contains("2m40s"), "changes by itself: {}", crash.message);
        assert_eq!(waiting("ContainerCreating").reason, Reason::Pending);
        let ready = pod(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}));
        assert!(of_pod(&ready).holds);
        assert_eq!(of_pod(&pod(json!({"phase": "Running"}))).reason, Reason::Starting);
    }

    #[test]
    fn a_quota_is_named_with_its_numbers() {
        let event = |reason: &str, message: &str, at: &str| -> Event {
            serde_json::from_value(json!({
                "metadata": {"name": at}, "involvedObject": {}, "type": "Warning", "reason": reason, "message": message,
                "lastTimestamp": at,
            }))
            .unwrap()
        };
        let quota = "create Pod lane-bob-0 in StatefulSet lane-bob failed error: pods \"lane-bob-0\" is forbidden: \
             exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0";
        let found = of_events(&[
            event("FailedCreate", "pods is forbidden: violates PodSecurity \"restricted\"", "2026-12-01T00:00:00Z"),
            event("FailedCreate", quota, "2026-12-01T00:01:00Z"),
            event("Other", "x", "2026-12-01T00:02:00Z"),
        ])
        .unwrap();
        assert_eq!(found.reason, Reason::QuotaExceeded);
        assert_eq!(found.message, "exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0");
        assert_eq!(of_creation("pods \"x\" is forbidden: violates PodSecurity").reason, Reason::PodRefused);
        assert_eq!(of_events(&[]), None);
    }
}
