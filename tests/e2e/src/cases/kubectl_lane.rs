//! `kubectl lane` from outside the cluster: the chain in words, the client commands by a ServiceAccount's token and a
//! forwarded port, what a deleted lane leaves, and its adoption.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use lanekeeper_crds::conditions;

use crate::lanes::personal;
use crate::shell;
use crate::world::World;

const WITHIN: Duration = Duration::from_secs(120);

pub(super) async fn run(world: &World) -> Result<()> {
    world.volumes(1).await?;
    let space = world.namespace("plugin").await?;
    let lane = format!("{space}/bob");
    world.lane(&space, "bob", personal("bob", &space, "agent")).await?;
    world.ready(&space, "bob", WITHIN).await?;
    let uid = world.lanes(&space).get("bob").await?.uid().context("no UID")?;
    world
        .caller(&space, "agent")
        .await?
        .save(&lane, "s", &["the bilge alarm is set to MARKER-5c2"])
        .await?
        .expect(201)?;

    let said = kubectl_lane(world, &["status", &lane]).await?;
    for part in
        ["Ready: yes", "this lane writes", "held by the store's pod", "lane-bob Bound", "Running", "1 lane uses it"]
    {
        ensure!(said.contains(part), "{part:?} is not in:\n{said}");
    }
    let why = kubectl_lane(world, &["why", "bob", "-n", &space]).await?;
    ensure!(why.starts_with(&format!("Lane {lane} is ready")), "{why}");
    let found = kubectl_lane(world, &["recall", "--lane", &lane, "what is the bilge alarm set to"]).await?;
    ensure!(found.contains("MARKER-5c2") && found.contains("coverage"), "{found}");
    let verified = kubectl_lane(world, &["verify", "--lane", &lane]).await?;
    ensure!(verified.contains("rows walked: 2"), "{verified}");
    kubectl_lane(world, &["memory", "cat", "--lane", &lane]).await?;
    kubectl_lane(world, &["forget", "--lane", &lane, "--session", "s", "--yes"]).await?;
    let found = kubectl_lane(world, &["recall", "--lane", &lane, "what is the bilge alarm set to"]).await?;
    ensure!(!found.contains("MARKER-5c2"), "{found}");
    // An account that the lane does not let in gets its token, and nothing with it.
    world.account(&space, "stranger").await?;
    let stranger = format!("{space}/stranger");
    let refused = kubectl_lane(world, &["verify", "--lane", &lane, "--account", &stranger]).await;
    ensure!(refused.is_err(), "a stranger verified: {refused:?}");

    world.delete_lane(&space, "bob", false).await?;
    world.lane_gone(&space, "bob", WITHIN).await?;
    let left = kubectl_lane(world, &["orphans", "-A"]).await?;
    ensure!(
        left.contains(&format!("volume  {space}/lane-bob")) && left.contains(&format!("record  {space}.bob")),
        "{left}"
    );
    world.lane(&space, "bob", personal("bob", &space, "agent")).await?;
    world.reason(&space, "bob", conditions::VOLUME_CONFLICT, WITHIN).await?;
    let why = kubectl_lane(world, &["why", &lane]).await?;
    ensure!(why.contains("lanekeeper.dev/adopt") && why.contains(&uid), "{why}");
    kubectl_lane(world, &["adopt", &lane, "--from", &uid]).await?;
    world.ready(&space, "bob", WITHIN).await?;
    let left = kubectl_lane(world, &["orphans", "-A"]).await?;
    ensure!(!left.contains(&format!("{space}/lane-bob")), "{left}");
    let again = kubectl_lane(world, &["adopt", &lane]).await;
    ensure!(again.is_err(), "what is its own was adopted: {again:?}");
    Ok(())
}

async fn kubectl_lane(world: &World, arguments: &[&str]) -> Result<String> {
    let kubeconfig = world.kubeconfig.to_string_lossy();
    let arguments = arguments.iter().copied().chain(["--kubeconfig", &*kubeconfig]);
    shell::run(world.target.join("debug/kubectl-lane"), arguments, Duration::from_secs(60)).await
}
