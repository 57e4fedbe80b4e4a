//! O17: a quota of 0 pods, then raised: reason QuotaExceeded with the numbers; Ready without touching the lane.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::lanes::personal;
use crate::world::World;

pub(super) async fn run(world: &World) -> Result<()> {
    world.volumes(1).await?;
    let space = world.namespace("o17").await?;
    let quotas = world.api::<ResourceQuota>(&space);
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(quota)?).await?;
    world.lane(&space, "bob", personal("bob", &space, "agent")).await?;
    let found = world.reason(&space, "bob", "QuotaExceeded", Duration::from_secs(60)).await?;
    ensure!(found.message.contains("none") && found.message.contains('0'), "no numbers: {}", found.message);
    let generation = world.lanes(&space).get("bob").await?.metadata.generation;
    let raised = json!({"spec": {"hard": {"pods": "5"}}});
    quotas.patch("none", &PatchParams::default(), &Patch::Merge(raised)).await?;
    // A StatefulSet's controller backs off to minutes by itself; the operator must not leave it at that.
    world.ready(&space, "bob", Duration::from_secs(120)).await?;
    let lane = world.lanes(&space).get("bob").await?;
    ensure!(lane.metadata.generation == generation, "{} was touched", lane.name_any());
    Ok(())
}
