//! An Embedder's status: computed from what was found, written only if it differs.

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::DeserializeGuard;
use kube::{Api, Resource as _, ResourceExt as _};
use lanekeeper_core::fingerprint::Fingerprint;
use lanekeeper_crds::conditions::{IDLE, READY};
use lanekeeper_crds::{Embedder, EmbedderStatus};
use serde_json::{Value, json};

use crate::apply::FIELD_MANAGER;
use crate::ask::Measured;
use crate::context::Context;
use crate::error::{Error, is_missing};
use crate::status::{Finding, Reason, transitions};

/// How many consumers are named.
const NAMED: usize = 10;

/// What was found out.
#[derive(Debug, Clone)]
pub struct Findings {
    /// Ready.
    pub ready: Finding,
    /// Lanes that use it, sorted.
    pub consumers: Vec<String>,
    /// Of the spec.
    pub fingerprint: Option<Fingerprint>,
    /// Where it is asked.
    pub url: Option<String>,
    /// Of the test embedding.
    pub measured: Option<Measured>,
}

impl Default for Findings {
    fn default() -> Self {
        Self {
            ready: Finding::no(Reason::Pending, "not looked at yet"),
            consumers: Vec::new(),
            fingerprint: None,
            url: None,
            measured: None,
        }
    }
}

impl Findings {
    /// Takes the outcome of a test embedding.
    pub fn take(&mut self, outcome: Result<Measured, Finding>) {
        match outcome {
            Ok(measured) => {
                self.ready = Finding::yes(Reason::Answers, "it gave vectors of the declared length");
                self.measured = Some(measured);
            }
            Err(finding) => self.ready = finding,
        }
    }
}

/// The status that should be.
#[must_use]
pub fn compute(embedder: &Embedder, findings: &Findings, now: Timestamp) -> EmbedderStatus {
    let before = embedder.status.clone().unwrap_or_default();
    let generation = embedder.metadata.generation;
    let idle = if findings.consumers.is_empty() {
        Finding::yes(Reason::Idle, "no lane uses it: workload, Service and cache are gone")
    } else {
        Finding::no(Reason::InUse, "lanes use it")
    };
    let conditions = [(READY, &findings.ready), (IDLE, &idle)];
    EmbedderStatus {
        observed_generation: generation,
        conditions: conditions
            .map(|(kind, finding)| finding.condition(kind, generation, &before.conditions, now))
            .into(),
        fingerprint: findings.fingerprint.map(|fingerprint| fingerprint.to_string()).or(before.fingerprint),
        url: findings.url.clone().or(before.url),
        // What was measured stands until it is measured anew.
        baseline: findings.measured.as_ref().map_or(before.baseline, |measured| measured.baseline),
        vectors_per_second: findings
            .measured
            .as_ref()
            .map_or(before.vectors_per_second, |measured| measured.vectors_per_second),
        consumers: i64::try_from(findings.consumers.len()).ok(),
        first_consumers: findings.consumers.iter().take(NAMED).cloned().collect(),
    }
}

/// Writes it, and tells of transitions.
pub async fn report(context: &Context, embedder: &Embedder, findings: &Findings) -> Result<(), Error> {
    let status = compute(embedder, findings, Timestamp::now());
    if embedder.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let before = embedder.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let mut news = transitions(before, &status.conditions);
    // It has no other condition that says why it is not ready.
    let ready = &status.conditions[..1];
    if findings.ready.reason.is_problem()
        && !ready
            .iter()
            .all(|condition| before.iter().any(|old| old.type_ == condition.type_ && old.reason == condition.reason))
    {
        news.push(crate::status::Transition {
            kind: READY.to_owned(),
            good: false,
            reason: findings.ready.reason.as_str().to_owned(),
            message: findings.ready.message.clone(),
        });
    }
    let name = embedder.name_any();
    let patch = json!({"metadata": {"uid": embedder.uid()}, "status": status_json(&status)});
    let embedders = Api::<DeserializeGuard<Embedder>>::all(context.client.clone());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match embedders.patch_status(&name, &params, &Patch::Merge(patch)).await {
        Ok(_) => {}
        Err(error) if is_missing(&error) => return Ok(()),
        Err(error) => return Err(Error::api("write the status of", format!("Embedder {name}"))(error)),
    }
    context.events.tell(&embedder.object_ref(&()), &news).await;
    Ok(())
}

fn status_json(status: &EmbedderStatus) -> Value {
    let EmbedderStatus {
        observed_generation,
        conditions,
        fingerprint,
        url,
        baseline,
        vectors_per_second,
        consumers,
        first_consumers,
    } = status;
    json!({
        "observedGeneration": observed_generation, "conditions": conditions, "fingerprint": fingerprint, "url": url,
        "baseline": baseline, "vectorsPerSecond": vectors_per_second, "consumers": consumers,
        "firstConsumers": first_consumers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_findings_give_the_same_status_and_ten_consumers_are_named() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut embedder: Embedder = serde_json::from_value(json!({
            "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Embedder", "metadata": {"name": "m", "generation": 1},
            "spec": {"model": "all-MiniLM-L6-v2"},
        }))
        .unwrap();
        let mut findings = Findings {
            consumers: (0..12).map(|number| format!("team/lane-{number:02}")).collect(),
            ..Findings::default()
        };
        findings.take(Ok(Measured { baseline: Some(0.31), vectors_per_second: Some(90) }));
        let first = compute(&embedder, &findings, at(100));
        assert_eq!((first.consumers, first.first_consumers.len()), (Some(12), 10));
        embedder.status = Some(first.clone());
        assert_eq!(compute(&embedder, &findings, at(200)), first);
        let idle = compute(&embedder, &Findings::default(), at(300));
        assert!(idle.conditions.iter().any(|found| found.type_ == IDLE && found.status == "True"));
        assert_eq!(idle.baseline, Some(0.31), "what was measured stands");
    }
}
