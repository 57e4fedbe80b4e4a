//! O2: `helm uninstall` with a lane present, the lane deleted, the chart installed again: the deletion completes
//! and nothing Retained is lost.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use kube::ResourceExt as _;
use lanekeeper_crds::annotations;
use serde_json::json;

use crate::api::texts;
use crate::chart;
use crate::lanes::personal;
use crate::world::World;

pub(super) async fn run(world: &World) -> Result<()> {
    world.volumes(1).await?;
    let space = world.namespace("o02").await?;
    world.lane(&space, "bob", personal("bob", &space, "agent")).await?;
    world.ready(&space, "bob", Duration::from_secs(120)).await?;
    let lane = format!("{space}/bob");
    let caller = world.caller(&space, "agent").await?;
    caller.save(&lane, "s", &["the spare rudder lies in shed nine"]).await?.expect(201)?;
    let uid = world.lanes(&space).get("bob").await?.uid().context("no UID")?;
    let master = world.system::<Secret>().get("lanekeeper-master").await?.data;

    chart::uninstall(world).await?;
    ensure!(world.lanes(&space).get_opt("bob").await?.is_some(), "the lane went with the chart");
    world.delete_lane(&space, "bob", false).await?;
    chart::install(world, &chart::values(world)).await?;
    world.lane_gone(&space, "bob", Duration::from_secs(90)).await?;
    let claim = world.api::<PersistentVolumeClaim>(&space).get_opt("lane-bob").await?;
    ensure!(claim.is_some(), "the retained volume is gone");
    ensure!(world.system::<Secret>().get("lanekeeper-master").await?.data == master, "the master key is another one");

    // What was kept opens again.
    let adopt = json!({annotations::ADOPT: uid});
    world.lane_with(&space, "bob", personal("bob", &space, "agent"), adopt).await?;
    world.ready(&space, "bob", Duration::from_secs(120)).await?;
    let caller = world.caller(&space, "agent").await?;
    caller.verified(&lane).await?;
    let found = caller.recall("where is the spare rudder", json!({"lanes": [lane]})).await?.expect(200)?;
    ensure!(texts(&found).iter().any(|text| text.contains("shed nine")), "not found: {found}");
    Ok(())
}
