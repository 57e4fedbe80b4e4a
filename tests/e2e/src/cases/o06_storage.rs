//! O6: storage 2Gi → 500Mi is refused at admission with the reason; → 2048Mi, which is equal, is allowed.

use anyhow::{Result, bail, ensure};
use serde_json::json;

use crate::world::World;

pub(super) async fn run(world: &World) -> Result<()> {
    let space = world.namespace("o06").await?;
    let spec = json!({"kind": "personal", "owner": "bob", "suspend": true, "storage": {"size": "2Gi"}});
    world.lane(&space, "bob", spec).await?;
    let size = |size: &str| json!({"spec": {"storage": {"size": size}}});
    match world.change(&space, "bob", size("500Mi")).await {
        Ok(_) => bail!("2Gi became 500Mi"),
        Err(kube::Error::Api(status)) => {
            ensure!(status.code == 422, "refused with {}: {}", status.code, status.message);
            ensure!(
                status.message.contains("storage may grow but not shrink"),
                "the reason is missing: {}",
                status.message
            );
            ensure!(status.message.contains("spec.storage.size"), "the field is missing: {}", status.message);
        }
        Err(error) => return Err(error.into()),
    }
    let lane = world.change(&space, "bob", size("2048Mi")).await?;
    ensure!(lane.spec.storage.size == "2048Mi", "stored as {}", lane.spec.storage.size);
    world.change(&space, "bob", size("3Gi")).await?;
    match world.change(&space, "bob", size("2Gi")).await {
        Ok(_) => bail!("3Gi became 2Gi"),
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(()),
        Err(error) => Err(error.into()),
    }
}
