//! Lanes as a person handles them: applied, waited for, deleted.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use lanekeeper_crds::{Lane, annotations, conditions};
use serde_json::{Value, json};

use crate::wait::{Seen, until};
use crate::world::{World, is_missing};

/// The spec of a personal lane that one ServiceAccount of its namespace may do everything with.
pub(crate) fn personal(owner: &str, namespace: &str, account: &str) -> Value {
    json!({
        "kind": "personal", "owner": owner,
        "access": [{"serviceAccount": {"namespace": namespace, "name": account}, "role": "admin"}],
    })
}

/// `base` with the fields of `more` on top.
pub(crate) fn with(mut base: Value, more: Value) -> Value {
    if let (Some(base), Value::Object(more)) = (base.as_object_mut(), more) {
        base.extend(more);
    }
    base
}

impl World {
    /// Makes a lane. The error is the API server's own.
    pub(crate) async fn lane(&self, namespace: &str, name: &str, spec: Value) -> Result<Lane, kube::Error> {
        self.lane_with(namespace, name, spec, json!({})).await
    }

    /// [`World::lane`], with annotations.
    pub(crate) async fn lane_with(
        &self,
        namespace: &str,
        name: &str,
        spec: Value,
        annotations: Value,
    ) -> Result<Lane, kube::Error> {
        let lane = json!({
            "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Lane",
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations}, "spec": spec,
        });
        let lane = serde_json::from_value(lane).map_err(kube::Error::SerdeError)?;
        self.lanes(namespace).create(&PostParams::default(), &lane).await
    }

    /// Changes fields of a lane.
    pub(crate) async fn change(&self, namespace: &str, name: &str, patch: Value) -> Result<Lane, kube::Error> {
        self.lanes(namespace).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
    }

    /// Waits until a condition has this status, for this generation.
    pub(crate) async fn condition(
        &self,
        namespace: &str,
        name: &str,
        kind: &str,
        status: &str,
        within: Duration,
    ) -> Result<conditions::Condition> {
        self.condition_where(namespace, name, kind, within, &format!("{kind}={status}"), |found| found.status == status)
            .await
    }

    /// Waits until a condition is as `right` says.
    pub(crate) async fn condition_where(
        &self,
        namespace: &str,
        name: &str,
        kind: &str,
        within: Duration,
        what: &str,
        right: impl Fn(&conditions::Condition) -> bool,
    ) -> Result<conditions::Condition> {
        let what = format!("{what} of lane {namespace}/{name}");
        let right = &right;
        until(&what, within, || async move {
            let lane = self.lanes(namespace).get(name).await?;
            let generation = lane.metadata.generation;
            let found = condition_of(&lane, kind);
            Ok(match found {
                // A condition of an older spec says nothing about this one.
                Some(found)
                    if found.observed_generation.is_none_or(|seen| Some(seen) >= generation) && right(&found) =>
                {
                    Seen::Yes(found)
                }
                _ => Seen::NotYet(in_words(&lane)),
            })
        })
        .await
    }

    /// Waits until some condition gives this reason, and returns it.
    pub(crate) async fn reason(
        &self,
        namespace: &str,
        name: &str,
        reason: &str,
        within: Duration,
    ) -> Result<conditions::Condition> {
        until(&format!("reason {reason} of lane {namespace}/{name}"), within, || async {
            let lane = self.lanes(namespace).get(name).await?;
            let all = lane.status.iter().flat_map(|status| &status.conditions);
            let mut found =
                all.filter(|found| found.reason == reason || (found.type_ == reason && found.status == "True"));
            Ok(match found.next() {
                Some(found) => Seen::Yes(found.clone()),
                None => Seen::NotYet(in_words(&lane)),
            })
        })
        .await
    }

    /// Waits until the lane takes saves and answers recalls.
    pub(crate) async fn ready(&self, namespace: &str, name: &str, within: Duration) -> Result<()> {
        self.condition(namespace, name, conditions::READY, "True", within).await.map(drop)
    }

    /// Deletes it; where `erase`, with the confirmation that erases its memory. Does not wait.
    pub(crate) async fn delete_lane(&self, namespace: &str, name: &str, erase: bool) -> Result<()> {
        if erase {
            let lane = self.lanes(namespace).get(name).await?;
            let uid = lane.uid().context("a lane without a UID")?;
            let patch = json!({
                "metadata": {"annotations": {annotations::CONFIRM_DELETE: uid}},
                "spec": {"deletionPolicy": "Delete"},
            });
            self.change(namespace, name, patch).await?;
        }
        match self.lanes(namespace).delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("delete lane {namespace}/{name}")),
        }
    }

    /// Waits until it is gone.
    pub(crate) async fn lane_gone(&self, namespace: &str, name: &str, within: Duration) -> Result<()> {
        until(&format!("the end of lane {namespace}/{name}"), within, || async {
            Ok(match self.lanes(namespace).get_opt(name).await? {
                None => Seen::Yes(()),
                Some(lane) => Seen::NotYet(in_words(&lane)),
            })
        })
        .await
    }
}

/// A condition of a lane.
pub(crate) fn condition_of(lane: &Lane, kind: &str) -> Option<conditions::Condition> {
    lane.status.iter().flat_map(|status| &status.conditions).find(|condition| condition.type_ == kind).cloned()
}

/// Its conditions in one line.
pub(crate) fn in_words(lane: &Lane) -> String {
    let conditions: Vec<String> = lane
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .map(|condition| {
            format!("{}={} {} ({})", condition.type_, condition.status, condition.reason, condition.message)
        })
        .collect();
    let deleted = if lane.metadata.deletion_timestamp.is_some() { "being deleted; " } else { "" };
    if conditions.is_empty() { format!("{deleted}no condition") } else { format!("{deleted}{}", conditions.join("; ")) }
}
