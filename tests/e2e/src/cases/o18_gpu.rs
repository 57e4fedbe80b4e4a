//! O18: no GPU node; one without capacity; one tainted; a free one. The reason changes each time and names what is
//! missing; saves are accepted meanwhile. Embedder pods land only where the GPU is.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use lanekeeper_crds::Embedder;
use serde_json::{Value, json};

use crate::lanes::{personal, with};
use crate::world::World;

const LABEL: &str = "e2e.lanekeeper.dev/gpu";
const WITHIN: Duration = Duration::from_secs(90);

pub(super) async fn run(world: &World) -> Result<()> {
    let space = world.namespace("o18").await?;
    let name = format!("gpu-{}", &space[space.len() - 6..]);
    let outcome = steps(world, &space, &name).await;
    // The node as it was, whatever came of it.
    change_node(world, json!({"metadata": {"labels": {LABEL: null}}, "spec": {"taints": null}})).await?;
    if let Some(node) = &world.node {
        node.gpu(0).await?;
    }
    world.clean(std::slice::from_ref(&space)).await?;
    let _ = Api::<Embedder>::all(world.client.clone()).delete(&name, &DeleteParams::default()).await;
    outcome
}

async fn steps(world: &World, space: &str, name: &str) -> Result<()> {
    world.volumes(1).await?;
    let node = world.node.as_ref().context("only on a cluster of our own")?;
    node.gpu(0).await?;
    let embedder = json!({"metadata": {"name": name}, "spec": {
        "model": "all-MiniLM-L6-v2", "gpu": {"nodeSelector": {LABEL: "yes"}},
    }});
    Api::<Embedder>::all(world.client.clone())
        .create(&PostParams::default(), &serde_json::from_value(embedder)?)
        .await?;
    world.lane(space, "bob", with(personal("bob", space, "agent"), json!({"embedder": {"name": name}}))).await?;

    let found = world.reason(space, "bob", "NoMatchingNode", WITHIN).await?;
    ensure!(found.message.contains(LABEL), "the missing label is not named: {}", found.message);
    saved(world, space, 1).await?;

    change_node(world, json!({"metadata": {"labels": {LABEL: "yes"}}})).await?;
    let found = world.reason(space, "bob", "InsufficientGPU", WITHIN).await?;
    ensure!(found.message.contains("nvidia.com/gpu"), "the missing resource is not named: {}", found.message);
    saved(world, space, 2).await?;

    change_node(
        world,
        json!({"spec": {"taints": [{"key": "e2e.lanekeeper.dev/only", "value": "x", "effect": "NoSchedule"}]}}),
    )
    .await?;
    node.gpu(1).await?;
    let found = world.reason(space, "bob", "UntoleratedTaint", WITHIN).await?;
    ensure!(found.message.contains("e2e.lanekeeper.dev/only"), "the taint is not named: {}", found.message);
    saved(world, space, 3).await?;

    change_node(world, json!({"spec": {"taints": null}})).await?;
    world.ready(space, "bob", Duration::from_secs(120)).await?;
    saved(world, space, 4).await?;
    let selector = ListParams::default().labels(&format!("lanekeeper.dev/embedder={name}"));
    for pod in world.system::<Pod>().list(&selector).await?.items {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let node = Api::<Node>::all(world.client.clone()).get(&node).await?;
        ensure!(
            node.labels().get(LABEL).is_some_and(|value| value == "yes"),
            "{} runs on {}",
            pod.name_any(),
            node.name_any()
        );
        let asked = pod.spec.iter().flat_map(|spec| &spec.containers).any(|container| {
            let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
            limits.is_some_and(|limits| limits.contains_key("nvidia.com/gpu"))
        });
        ensure!(asked, "{} asks for no GPU", pod.name_any());
    }
    Ok(())
}

/// A save is accepted although the lane has no vectors yet.
async fn saved(world: &World, space: &str, number: usize) -> Result<()> {
    let caller = world.caller(space, "agent").await?;
    let text = format!("note {number} while the GPU is missing");
    crate::wait::until("an accepted save", WITHIN, || async {
        let answer = caller.save(&format!("{space}/bob"), "s", &[&text]).await?;
        Ok(if answer.status == 201 {
            crate::wait::Seen::Yes(())
        } else {
            crate::wait::Seen::NotYet(format!("{} {}", answer.status, answer.body))
        })
    })
    .await
}

async fn change_node(world: &World, patch: Value) -> Result<()> {
    let nodes = Api::<Node>::all(world.client.clone());
    let node = nodes.list(&ListParams::default()).await?.items.into_iter().next().context("no node")?;
    nodes.patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}
