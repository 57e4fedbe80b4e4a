//! O26: a store's pod is force-deleted under write load: no acknowledged event is lost or doubled, the chain is
//! whole.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;

use crate::journal::Journal;
use crate::lanes::personal;
use crate::world::World;

const KILLS: usize = 3;

pub(super) async fn run(world: &World) -> Result<()> {
    world.volumes(1).await?;
    let space = world.namespace("o26").await?;
    world.lane(&space, "bob", personal("bob", &space, "agent")).await?;
    world.ready(&space, "bob", Duration::from_secs(120)).await?;
    let caller = Arc::new(world.caller(&space, "agent").await?);
    let journal = Journal::start(&caller, &format!("{space}/bob"), 8);
    journal.progress(50, Duration::from_secs(60)).await?;
    for _ in 0..KILLS {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        world.api::<Pod>(&space).delete("lane-bob-0", &now).await?;
        // Writing goes on: the new pod has taken over.
        journal.progress(50, Duration::from_secs(90)).await?;
    }
    let audit = journal.audit(&caller).await?;
    ensure!(audit.acknowledged >= 50 * (KILLS + 1), "only {} saves were acknowledged", audit.acknowledged);
    // Without one the pod was never away, and nothing was tested.
    ensure!(!audit.refusals.is_empty(), "no save was refused while the store was gone");
    ensure!(audit.longest_gap < Duration::from_secs(60), "a save took {:?}", audit.longest_gap);
    Ok(())
}
