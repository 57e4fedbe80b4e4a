//! The control test, in the cluster: from a pod with a projected token, against each of two query replicas, a
//! marker saved in lane A is recalled in A by a question that does not name it, and is nowhere in B.
//!
//! On a cluster that is not ours there is no image with this program; then the same steps run from here.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{LogParams, PostParams};
use serde_json::json;

use crate::chart::SYSTEM;
use crate::inside;
use crate::lanes::personal;
use crate::wait::{Seen, until};
use crate::world::World;

pub(super) async fn run(world: &World) -> Result<()> {
    world.volumes(2).await?;
    let space = world.namespace("control").await?;
    for (lane, account) in [("bob", "bobs-agent"), ("ada", "adas-agent")] {
        world.account(&space, account).await?;
        world.lane(&space, lane, personal(lane, &space, account)).await?;
    }
    for lane in ["bob", "ada"] {
        world.ready(&space, lane, Duration::from_secs(120)).await?;
    }
    let bobs = world.callers_of_replicas(&space, "bobs-agent").await?;
    ensure!(bobs.len() >= 2, "two query replicas were asked for, {} are there", bobs.len());
    let adas = world.callers_of_replicas(&space, "adas-agent").await?;
    // Each replica saves and each recalls what another one saved: none of them keeps anything.
    for (number, (saver, (reader, other))) in bobs.iter().zip(bobs.iter().rev().zip(&adas)).enumerate() {
        inside::control(&format!("{space}/bob"), &format!("{space}/ada"), saver, reader, other, number).await?;
    }
    let refused = adas[0].recall("what", json!({"lanes": [format!("{space}/bob")]})).await?;
    ensure!(refused.status == 404, "another's lane answers {} and not 404", refused.status);
    match world.images.as_ref().and_then(|images| images.inside.as_deref()) {
        Some(image) => from_a_pod(world, &space, image).await,
        None => Ok(()),
    }
}

async fn from_a_pod(world: &World, space: &str, image: &str) -> Result<()> {
    let pods = world.api::<Pod>(space);
    let ca = world.system::<k8s_openapi::api::core::v1::ConfigMap>().get("lanekeeper-ca").await?;
    let ca = ca.data.and_then(|data| data.get("ca.crt").cloned()).context("no ca.crt")?;
    let certificate = json!({"metadata": {"name": "lanekeeper-ca"}, "data": {"ca.crt": ca}});
    world
        .api::<k8s_openapi::api::core::v1::ConfigMap>(space)
        .create(&PostParams::default(), &serde_json::from_value(certificate)?)
        .await?;
    let pod = json!({
        "metadata": {"name": "inside"},
        "spec": {
            "serviceAccountName": "bobs-agent", "automountServiceAccountToken": false, "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "inside", "image": image, "imagePullPolicy": "Never",
                "command": ["/bin/e2e", "inside", "--lane", format!("{space}/bob"), "--other", format!("{space}/ada"),
                    "--host", format!("lanekeeper-query.{SYSTEM}.svc"),
                    "--token-file", "/var/run/secrets/lanekeeper/token", "--ca-file", "/etc/lanekeeper/ca/ca.crt"],
                "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/lanekeeper"},
                    {"name": "ca", "mountPath": "/etc/lanekeeper/ca"}],
            }],
            "volumes": [
                {"name": "token", "projected": {"sources": [
                    {"serviceAccountToken": {"audience": "lanekeeper", "expirationSeconds": 600, "path": "token"}}]}},
                {"name": "ca", "configMap": {"name": "lanekeeper-ca"}}],
        },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let phase = until("the end of the pod inside", Duration::from_secs(90), || async {
        let phase = pods.get("inside").await?.status.and_then(|status| status.phase).unwrap_or_default();
        Ok(if phase == "Succeeded" || phase == "Failed" { Seen::Yes(phase) } else { Seen::NotYet(phase) })
    })
    .await?;
    if phase != "Succeeded" {
        let said = pods.logs("inside", &LogParams::default()).await.unwrap_or_default();
        bail!("the control test in a pod failed: {said}");
    }
    Ok(())
}
