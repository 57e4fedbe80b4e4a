//! `kubectl lane status LANE`

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use lanekeeper_core::LaneName;
use lanekeeper_crds::Lane;
use lanekeeper_crds::conditions::{self, Condition};
use lanekeeper_crds::lane::LaneKind;

use super::chain::{Chain, is_writer, writer};
use super::cluster::{Cluster, Part};
use crate::failure::Failure;
use crate::output;
use crate::output::plain;

pub(super) async fn run(cluster: &Cluster, name: &LaneName) -> Result<(), Failure> {
    output::print(&words(&Chain::of(cluster, name).await?))
}

/// The conditions of a lane that count one by one, in the order in which one needs the other.
pub(super) fn links(lane: &Lane) -> impl Iterator<Item = &Condition> {
    const ORDER: [&str; 8] = [
        conditions::FENCE_HELD,
        conditions::VOLUME_CONFLICT,
        conditions::VOLUME_READY,
        conditions::EMBEDDER_READY,
        conditions::COLLECTION_READY,
        conditions::STORE_READY,
        conditions::FENCE_ENFORCED,
        conditions::READS_RESOLVED,
    ];
    let all = lane.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
    ORDER.iter().filter_map(|kind| all.iter().find(|found| found.type_ == **kind))
}

pub(super) fn condition<'c>(found: &'c [Condition], kind: &str) -> Option<&'c Condition> {
    found.iter().find(|found| found.type_ == kind)
}

fn words(chain: &Chain) -> String {
    let Chain { name, lane, record, volume, pod, embedder, warnings } = chain;
    let status = lane.status.clone().unwrap_or_default();
    let kind = match (lane.spec.kind, &lane.spec.owner) {
        (LaneKind::Personal, Some(owner)) => format!("personal, of {}", plain(owner)),
        (LaneKind::Personal, None) => "personal".to_owned(),
        (LaneKind::Corpus, _) => "corpus".to_owned(),
    };
    let mut text = format!("Lane {name} ({kind}), UID {}\n", lane.uid().unwrap_or_default());
    match condition(&status.conditions, conditions::READY) {
        Some(ready) => _ = writeln!(text, "  {}", said(ready)),
        None => text.push_str("  The operator has not looked at it yet.\n"),
    }
    if status.observed_generation.is_some_and(|seen| Some(seen) != lane.metadata.generation) {
        text.push_str("  The operator has not looked at the newest change of it yet: what follows is older.\n");
    }
    if lane.metadata.deletion_timestamp.is_some() {
        text.push_str("  It is being deleted.\n");
    }
    let mut line = |what: &str, words: String| _ = writeln!(text, "  {what:<11}{}", plain(&words));
    line(
        "record",
        part(record, |record| {
            let mut words = if is_writer(record, lane) {
                "this lane writes".to_owned()
            } else {
                format!("ANOTHER writes: {}", writer(record))
            };
            let _ = write!(words, ", epoch {}, generation {}", record.spec.epoch, record.spec.generation);
            let status = record.status.clone().unwrap_or_default();
            match status.holder {
                Some(holder) if holder.released => words.push_str(", let go in order by the last store"),
                Some(holder) if pod.found().and_then(|pod| pod.uid()).as_ref() == Some(&holder.id) => {
                    words.push_str(", held by the store's pod")
                }
                Some(holder) => _ = write!(words, ", held by another process ({})", holder.id),
                None => words.push_str(", never held"),
            }
            if let Some(head) = status.head {
                let _ = write!(words, ", head published at seq {}", head.seq);
            }
            words
        }),
    );
    line(
        "volume",
        part(volume, |volume| {
            let status = volume.status.clone().unwrap_or_default();
            let size = status.capacity.and_then(|capacity| capacity.get("storage").map(|size| size.0.clone()));
            let class = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.clone());
            format!(
                "{} {}, {} of class {}",
                volume.name_any(),
                status.phase.unwrap_or_else(|| "without a phase".to_owned()),
                size.unwrap_or_else(|| "no size".to_owned()),
                class.unwrap_or_else(|| "(the cluster's default)".to_owned())
            )
        }),
    );
    line(
        "embedder",
        match embedder {
            None => "not chosen yet".to_owned(),
            Some(embedder) => part(embedder, |embedder| {
                let found = embedder.status.clone().unwrap_or_default();
                let state = condition(&found.conditions, conditions::READY)
                    .map_or_else(|| "not looked at yet".to_owned(), said);
                let consumers =
                    output::counted(found.consumers.unwrap_or(0).unsigned_abs(), "lane uses it", "lanes use it");
                format!("{} ({}): {state}; {consumers}", embedder.name_any(), embedder.spec.model)
            }),
        },
    );
    line("store", part(pod, pod_words));
    let count = |count: Option<i64>| count.map_or_else(|| "not known".to_owned(), |count| count.to_string());
    line(
        "memory",
        format!(
            "events: {}, points: {}, collection {}",
            count(status.events),
            count(status.points),
            super::chain::collection(name, lane)
        ),
    );
    for warning in warnings {
        line("warning", warning.clone());
    }
    text.push_str("\n  In detail:\n");
    for link in links(lane) {
        let _ = writeln!(text, "  {:<16}{}", link.type_, plain(&said(link)));
    }
    text
}

fn said(condition: &Condition) -> String {
    let state = match condition.status.as_str() {
        "True" => "yes",
        "False" => "no",
        _ => "not known",
    };
    let message = plain(&condition.message);
    let name = if condition.type_ == conditions::READY { "Ready: " } else { "" };
    format!("{name}{state} ({}){}{message}", condition.reason, if message.is_empty() { "" } else { " " })
}

fn part<T>(part: &Part<T>, words: impl FnOnce(&T) -> String) -> String {
    match part {
        Part::Found(object) => words(object),
        Part::Missing => "is not there".to_owned(),
        Part::Unseen(why) => format!("not seen: {why}"),
    }
}

fn pod_words(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let mut words = format!("pod {} {}", pod.name_any(), status.phase.unwrap_or_else(|| "without a phase".to_owned()));
    if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) {
        let _ = write!(words, " on {node}");
    }
    for container in status.container_statuses.unwrap_or_default() {
        let ready = if container.ready { "ready" } else { "not ready" };
        let restarts = output::counted(container.restart_count.unsigned_abs().into(), "restart", "restarts");
        let _ = write!(words, ", {ready}, {restarts}");
        if let Some(waiting) = container.state.and_then(|state| state.waiting) {
            let _ = write!(words, ", waits: {}", waiting.reason.unwrap_or_default());
        }
    }
    words
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    const UID: &str = "0193a1b2-0000-7000-8000-000000000001";

    pub(in crate::kubectl) fn chain(conditions: serde_json::Value) -> Chain {
        let object = |value| serde_json::from_value(value).unwrap();
        Chain {
            name: "team/bob".parse().unwrap(),
            lane: serde_json::from_value(json!({
                "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Lane",
                "metadata": {"name": "bob", "namespace": "team", "uid": UID, "generation": 2},
                "spec": {"kind": "personal", "owner": "bob"},
                "status": {"observedGeneration": 2, "events": 12, "embedder": "m-1", "conditions": conditions},
            }))
            .unwrap(),
            record: Part::Found(serde_json::from_value(json!({
                "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "FederationRecord", "metadata": {"name": "team.bob"},
                "spec": {"collection": "team.bob", "writer": {"namespace": "team", "name": "bob", "uid": UID},
                         "mode": "read-write", "logId": "00", "fingerprint": "00", "epoch": 7, "generation": 1},
                "status": {"holder": {"id": "pod-uid", "sinceMs": 0, "released": false}},
            }))
            .unwrap()),
            volume: Part::Missing,
            pod: Part::Found(object(json!({"metadata": {"name": "lane-bob-0", "uid": "pod-uid"}, "status": {
                "phase": "Running",
                "containerStatuses": [{"name": "store", "ready": false, "restartCount": 3, "image": "i", "imageID": "i",
                                       "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}))),
            embedder: Some(Part::Unseen("embedders is forbidden".to_owned())),
            warnings: vec!["BackOff: restarting\u{1b}[2J".to_owned()],
        }
    }

    pub(in crate::kubectl) fn one(kind: &str, status: &str, reason: &str, message: &str) -> serde_json::Value {
        json!({"type": kind, "status": status, "reason": reason, "message": message,
               "lastTransitionTime": "2026-12-01T00:00:00Z"})
    }

    #[test]
    fn every_link_is_in_words() {
        let text = words(&chain(json!([
            one("Ready", "False", "CrashLoop", "the store ends again and again"),
            one("StoreReady", "False", "CrashLoop", "the store ends again and again"),
            one("FenceHeld", "True", "Held", ""),
        ])));
        insta::assert_snapshot!(text, @r"
        Lane team/bob (personal, of bob), UID 0193a1b2-0000-7000-8000-000000000001
          Ready: no (CrashLoop) the store ends again and again
          record     this lane writes, epoch 7, generation 1, held by the store's pod
          volume     is not there
          embedder   not seen: embedders is forbidden
          store      pod lane-bob-0 Running, not ready, 3 restarts, waits: CrashLoopBackOff
          memory     events: 12, points: not known, collection team.bob
          warning    BackOff: restarting\u{1b}[2J

          In detail:
          FenceHeld       yes (Held)
          StoreReady      no (CrashLoop) the store ends again and again
        ");
    }
}
