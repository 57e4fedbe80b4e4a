//! O1: the namespace of Ready lanes is deleted: gone within 60 s; record and volume as each lane's policy says.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, ResourceExt as _};
use lanekeeper_crds::{FederationRecord, annotations};
use serde_json::json;

use crate::lanes::personal;
use crate::wait::{Seen, until};
use crate::world::World;

pub(super) async fn run(world: &World) -> Result<()> {
    world.volumes(2).await?;
    let space = world.namespace("o01").await?;
    for name in ["kept", "erased"] {
        world.lane(&space, name, personal("bob", &space, "agent")).await?;
    }
    for name in ["kept", "erased"] {
        world.ready(&space, name, Duration::from_secs(120)).await?;
    }
    let caller = world.caller(&space, "agent").await?;
    for name in ["kept", "erased"] {
        caller.save(&format!("{space}/{name}"), "s", &["the anchor chain has twelve shackles"]).await?.expect(201)?;
    }
    let erased = world.lanes(&space).get("erased").await?;
    let confirmed = json!({
        "metadata": {"annotations": {annotations::CONFIRM_DELETE: erased.uid().context("no UID")?}},
        "spec": {"deletionPolicy": "Delete"},
    });
    world.change(&space, "erased", confirmed).await?;
    let claims = world.api::<PersistentVolumeClaim>(&space);
    let kept_volume = volume_of(&claims, "lane-kept").await?;
    let erased_volume = volume_of(&claims, "lane-erased").await?;

    world.delete_namespace(&space).await?;
    world.namespace_gone(&space, Duration::from_secs(60)).await?;

    let records = world.system::<FederationRecord>();
    until("the end of the erased lane's record", Duration::from_secs(30), || async {
        let found = records.get_opt(&format!("{space}.erased")).await?;
        Ok(if found.is_none() { Seen::Yes(()) } else { Seen::NotYet("it is there".to_owned()) })
    })
    .await?;
    let record = records.get_opt(&format!("{space}.kept")).await?.context("the retained lane's record is gone")?;
    ensure!(record.spec.writer.name == "kept", "the record names {}", record.spec.writer.name);
    let volumes = Api::<PersistentVolume>::all(world.client.clone());
    let kept = volumes.get_opt(&kept_volume).await?.context("the retained lane's volume is gone")?;
    let policy = kept.spec.and_then(|spec| spec.persistent_volume_reclaim_policy).unwrap_or_default();
    ensure!(policy == "Retain", "the retained lane's volume has the reclaim policy {policy}");
    if let Some(erased) = volumes.get_opt(&erased_volume).await? {
        let policy = erased.spec.and_then(|spec| spec.persistent_volume_reclaim_policy).unwrap_or_default();
        ensure!(policy == "Delete", "the erased lane's volume has the reclaim policy {policy}");
    }
    Ok(())
}

async fn volume_of(claims: &Api<PersistentVolumeClaim>, claim: &str) -> Result<String> {
    let claim = claims.get(claim).await?;
    claim.spec.and_then(|spec| spec.volume_name).context("a Ready lane's claim is bound to no volume")
}
