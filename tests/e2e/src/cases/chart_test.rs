//! `helm test`, twice: what it makes is gone before the second run.

use anyhow::{Result, ensure};

use crate::chart::{self, SYSTEM};
use crate::world::World;

pub(super) async fn run(world: &World) -> Result<()> {
    for round in 1..=2 {
        world.volumes(1).await?;
        chart::test(world).await?;
        let left = world.lanes(SYSTEM).get_opt("lanekeeper-test").await?;
        ensure!(left.is_none(), "the lane of helm test is still there after round {round}");
        let left =
            world.system::<k8s_openapi::api::core::v1::PersistentVolumeClaim>().get_opt("lane-lanekeeper-test").await?;
        ensure!(left.is_none(), "the volume of helm test is still there after round {round}");
    }
    Ok(())
}
