//! O22: a Retained lane of bob is re-created under the same name by eve: condition VolumeConflict, and nothing is
//! recalled; then by bob: adopted when asked, chain verified.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use lanekeeper_crds::{annotations, conditions};
use serde_json::json;

use crate::api::texts;
use crate::lanes::personal;
use crate::wait::{Seen, throughout, until};
use crate::world::World;

const WITHIN: Duration = Duration::from_secs(120);

pub(super) async fn run(world: &World) -> Result<()> {
    world.volumes(2).await?;
    let space = world.namespace("o22").await?;
    let lane = format!("{space}/diary");
    world.lane(&space, "diary", personal("bob", &space, "bobs-agent")).await?;
    world.ready(&space, "diary", WITHIN).await?;
    let uid = world.lanes(&space).get("diary").await?.uid().context("no UID")?;
    let bob = world.caller(&space, "bobs-agent").await?;
    bob.save(&lane, "s", &["the harbour pilot is called Ingrid"]).await?.expect(201)?;
    let before = bob.verified(&lane).await?;
    world.delete_lane(&space, "diary", false).await?;
    world.lane_gone(&space, "diary", WITHIN).await?;

    // Eve asks for it by name, and then by UID as well.
    for asked in [json!({}), json!({annotations::ADOPT: uid})] {
        world.lane_with(&space, "diary", personal("eve", &space, "eves-agent"), asked).await?;
        world.reason(&space, "diary", conditions::VOLUME_CONFLICT, WITHIN).await?;
        let eve = world.caller(&space, "eves-agent").await?;
        throughout(Duration::from_secs(5), || async {
            let answer = eve.recall("what is the harbour pilot called", json!({})).await?;
            ensure!(texts(&answer.body).is_empty() && !answer.body.to_string().contains("Ingrid"), "{}", answer.body);
            let saved = eve.save(&lane, "s", &["mine now"]).await?;
            ensure!(saved.status != 201, "eve wrote into bob's volume: {}", saved.body);
            Ok(())
        })
        .await?;
        world.delete_lane(&space, "diary", true).await?;
        world.lane_gone(&space, "diary", WITHIN).await?;
    }

    // Bob, unasked: a new lane is not the old one.
    world.lane(&space, "diary", personal("bob", &space, "bobs-agent")).await?;
    world.reason(&space, "diary", conditions::VOLUME_CONFLICT, WITHIN).await?;
    world.change(&space, "diary", json!({"metadata": {"annotations": {annotations::ADOPT: uid}}})).await?;
    world.ready(&space, "diary", WITHIN).await?;
    let bob = world.caller(&space, "bobs-agent").await?;
    // Without a write of bob's: the adoption itself is an event.
    let after = until("the adoption in the log", WITHIN, || async {
        let after = bob.verified(&lane).await?;
        Ok(if after["events"].as_u64() > before["events"].as_u64() {
            Seen::Yes(after)
        } else {
            Seen::NotYet(after.to_string())
        })
    })
    .await?;
    ensure!(after["log_id"] == before["log_id"], "another log: {after}");
    let found = bob.recall("what is the harbour pilot called", json!({"lanes": [lane]})).await?.expect(200)?;
    ensure!(texts(&found).iter().any(|text| text.contains("Ingrid")), "not found: {found}");
    Ok(())
}
