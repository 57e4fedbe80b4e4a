//! O11: a bad store image, then a good one: Ready within 60 s without hands.
//!
//! The operator is told by its own argument, so that only stores are concerned.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use lanekeeper_crds::conditions;
use serde_json::json;

use crate::lanes::personal;
use crate::wait::{Seen, until};
use crate::world::World;

pub(super) async fn run(world: &World) -> Result<()> {
    world.volumes(1).await?;
    let space = world.namespace("o11").await?;
    let good = store_image(world, None).await?;
    store_image(world, Some("localhost/lanekeeper:there-is-no-such-image")).await?;
    let outcome = async {
        world.lane(&space, "bob", personal("bob", &space, "agent")).await?;
        let ready = world
            .condition_where(
                &space,
                "bob",
                conditions::READY,
                Duration::from_secs(90),
                "a reason about the image",
                |found| found.status == "False" && found.reason.contains("Image"),
            )
            .await?;
        ensure!(ready.message.contains("there-is-no-such-image"), "the image is not named: {}", ready.message);
        anyhow::Ok(())
    }
    .await;
    store_image(world, Some(&good)).await?;
    outcome?;
    world.ready(&space, "bob", Duration::from_secs(60)).await
}

/// The image that the operator gives to stores; changed if `new`, and then waited for. Returns the one before.
async fn store_image(world: &World, new: Option<&str>) -> Result<String> {
    let deployments = world.system::<Deployment>();
    let operator = deployments.get("lanekeeper-operator").await?;
    let spec = operator.spec.and_then(|spec| spec.template.spec).context("the operator has no pod template")?;
    let container = spec.containers.first().context("the operator has no container")?;
    let mut arguments = container.args.clone().unwrap_or_default();
    let place =
        arguments.iter_mut().find(|argument| argument.starts_with("--image=")).context("no --image argument")?;
    let before = place.trim_start_matches("--image=").to_owned();
    let Some(new) = new else { return Ok(before) };
    *place = format!("--image={new}");
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": container.name, "args": arguments}]}}}});
    deployments.patch("lanekeeper-operator", &PatchParams::default(), &Patch::Strategic(patch)).await?;
    until("the operator's rollout", Duration::from_secs(90), || async {
        let found = deployments.get("lanekeeper-operator").await?;
        let generation = found.metadata.generation;
        let wanted = found.spec.as_ref().and_then(|spec| spec.replicas);
        let status = found.status.context("no status")?;
        let done = status.observed_generation == generation
            && status.updated_replicas == wanted
            && status.replicas == wanted
            && status.available_replicas == wanted;
        Ok(if done {
            Seen::Yes(())
        } else {
            Seen::NotYet(format!("{:?} of {wanted:?} updated", status.updated_replicas))
        })
    })
    .await?;
    Ok(before)
}
