//! A lane's status: computed from what was found, compared with what is stored, written only if it differs.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams};
use kube::core::DeserializeGuard;
use kube::{Api, Resource as _};
use lanekeeper_crds::conditions::{Condition, READY, VOLUME_CONFLICT};
use lanekeeper_crds::{Lane, LaneStatus};
use serde_json::{Value, json};

use super::findings::{Findings, ready};
use crate::apply::FIELD_MANAGER;
use crate::context::Context;
use crate::error::{Error, is_missing};
use crate::queue::Key;
use crate::status::{Finding, Reason, Transition, finding_of, transitions};

/// The status that should be.
#[must_use]
pub fn compute(lane: &Lane, findings: &Findings, now: Timestamp) -> LaneStatus {
    let before = lane.status.clone().unwrap_or_default();
    let generation = lane.metadata.generation;
    let parts: Vec<(&'static str, Finding)> = findings
        .parts()
        .into_iter()
        .map(|(kind, finding)| {
            // What was not looked at stays as it is said to be.
            let finding = finding.cloned().or_else(|| finding_of(&before.conditions, kind));
            (kind, finding.unwrap_or_else(|| Finding::no(Reason::Pending, "not looked at yet")))
        })
        .collect();
    let ready = ready(findings.spec.as_ref(), &parts);
    let mut conditions = vec![ready.condition(READY, generation, &before.conditions, now)];
    conditions.extend(parts.iter().map(|(kind, finding)| finding.condition(kind, generation, &before.conditions, now)));
    if let Some(message) = &findings.conflict {
        let conflict = Finding::yes(Reason::VolumeConflict, message.clone());
        conditions.push(conflict.condition(VOLUME_CONFLICT, generation, &before.conditions, now));
    }
    LaneStatus {
        observed_generation: generation,
        conditions,
        events: findings.events.or(before.events),
        points: findings.points.or(before.points),
        embedder: findings.embedder_name.clone().or(before.embedder),
        fingerprint: findings.fingerprint.map(|fingerprint| fingerprint.to_string()).or(before.fingerprint),
        collection: findings.collection_name.clone().or(before.collection),
    }
}

/// Writes it, and tells of transitions.
pub async fn report(context: &Context, key: &Key, lane: &Lane, findings: &Findings) -> Result<(), Error> {
    let status = compute(lane, findings, Timestamp::now());
    if lane.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let before = lane.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let news = transitions(before, &status.conditions);
    write(context, key, lane.metadata.uid.as_deref(), status_json(&status)).await?;
    context.events.tell(&lane.object_ref(&()), &news).await;
    Ok(())
}

/// Every field, so that one that is gone goes: a merge patch keeps what it does not name.
fn status_json(status: &LaneStatus) -> Value {
    let LaneStatus { observed_generation, conditions, events, points, embedder, fingerprint, collection } = status;
    json!({
        "observedGeneration": observed_generation, "conditions": conditions, "events": events, "points": points,
        "embedder": embedder, "fingerprint": fingerprint, "collection": collection,
    })
}

async fn write(context: &Context, key: &Key, uid: Option<&str>, status: Value) -> Result<(), Error> {
    // With the UID: a re-created lane of the name is another one.
    let patch = json!({"metadata": {"uid": uid}, "status": status});
    let lanes = Api::<DeserializeGuard<Lane>>::namespaced(context.client.clone(), key.namespace());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match lanes.patch_status(&key.name, &params, &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(Error::api("write the status of", format!("Lane {key}"))(error)),
    }
}

/// The status of a Lane of which only the metadata can be read.
pub async fn report_unreadable(
    context: &Context,
    key: &Key,
    metadata: &ObjectMeta,
    finding: &Finding,
) -> Result<(), Error> {
    // The guard keeps no status, so what is said already is asked for.
    let kind = ApiResource::erase::<Lane>(&());
    let lanes = Api::<DynamicObject>::namespaced_with(context.client.clone(), key.namespace(), &kind);
    let stored = lanes.get_opt(&key.name).await.map_err(Error::api("get", format!("Lane {key}")))?;
    let before = stored.and_then(|stored| {
        serde_json::from_value::<Vec<Condition>>(stored.data.pointer("/status/conditions")?.clone()).ok()
    });
    let before = before.unwrap_or_default();
    let condition = finding.condition(READY, metadata.generation, &before, Timestamp::now());
    if before.contains(&condition) {
        return Ok(());
    }
    let conditions = [condition];
    let news = transitions(&before, &conditions);
    let status = json!({"observedGeneration": metadata.generation, "conditions": conditions});
    write(context, key, metadata.uid.as_deref(), status).await?;
    let about = ObjectReference {
        api_version: Some(lanekeeper_crds::API_VERSION.to_owned()),
        kind: Some("Lane".to_owned()),
        name: Some(key.name.clone()),
        namespace: key.namespace.clone(),
        uid: metadata.uid.clone(),
        ..ObjectReference::default()
    };
    // Ready=False is no Event where another condition says why; here it is the only one.
    let news = if news.is_empty() {
        vec![Transition {
            kind: READY.to_owned(),
            good: false,
            reason: finding.reason.as_str().to_owned(),
            message: finding.message.clone(),
        }]
    } else {
        news
    };
    context.events.tell(&about, &news).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lane(status: Option<LaneStatus>) -> Lane {
        let mut lane: Lane = serde_json::from_value(json!({
            "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Lane",
            "metadata": {"name": "bob", "namespace": "team", "generation": 3},
            "spec": {"kind": "personal", "owner": "bob"},
        }))
        .unwrap();
        lane.status = status;
        lane
    }

    #[test]
    fn the_same_findings_give_the_same_status_at_any_time() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let findings = Findings {
            embedder: Some(Finding::no(Reason::EmbedderUnknown, "there is no Embedder named x")),
            conflict: Some("another's".to_owned()),
            events: Some(7),
            ..Findings::default()
        };
        let first = compute(&lane(None), &findings, at(100));
        assert_eq!(compute(&lane(Some(first.clone())), &findings, at(200)), first, "an idle lane would be written");
        // What was not looked at this time stays.
        let less = compute(&lane(Some(first.clone())), &Findings { events: None, ..findings }, at(200));
        assert_eq!(less, first);
        let well = compute(&lane(Some(first)), &Findings::default(), at(300));
        assert!(!well.conditions.iter().any(|condition| condition.type_ == VOLUME_CONFLICT), "an old conflict stays");
        assert!(well.conditions.iter().all(|condition| condition.observed_generation == Some(3)));
    }
}
