//! O10: a lane's name at the limit works fully; one over is refused with the number.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::json;

use crate::api::texts;
use crate::lanes::personal;
use crate::world::World;

const LIMIT: usize = 40;

pub(super) async fn refused(world: &World) -> Result<()> {
    let space = world.namespace("o10").await?;
    let spec = json!({"kind": "personal", "owner": "bob", "suspend": true});
    match world.lane(&space, &"n".repeat(LIMIT + 1), spec.clone()).await {
        Ok(_) => bail!("a name of {} characters was taken", LIMIT + 1),
        Err(kube::Error::Api(status)) => {
            ensure!(status.code == 422, "refused with {}: {}", status.code, status.message);
            ensure!(status.message.contains("at most 40 characters"), "the number is missing: {}", status.message);
        }
        Err(error) => return Err(error.into()),
    }
    for bad in ["a.b", "a_b", "A"] {
        ensure!(world.lane(&space, bad, spec.clone()).await.is_err(), "the name {bad} was taken");
    }
    world.lane(&space, &"n".repeat(LIMIT), spec).await?;
    Ok(())
}

pub(super) async fn works(world: &World) -> Result<()> {
    world.volumes(1).await?;
    let space = world.namespace("o10").await?;
    let name = format!("{}-z", "n".repeat(LIMIT - 2));
    world.lane(&space, &name, personal("bob", &space, "agent")).await?;
    world.ready(&space, &name, Duration::from_secs(90)).await?;
    let caller = world.caller(&space, "agent").await?;
    let lane = format!("{space}/{name}");
    caller.save(&lane, "s", &["the ferry to Larvik leaves at ten past seven"]).await?.expect(201)?;
    let found = caller.recall("when does the ferry leave", json!({"lanes": [lane]})).await?.expect(200)?;
    ensure!(texts(&found).iter().any(|text| text.contains("Larvik")), "not found: {found}");
    caller.verified(&lane).await?;
    Ok(())
}
