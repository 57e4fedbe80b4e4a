//! Installing and uninstalling the chart with helm.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::shell;
use crate::world::World;

/// The release's name.
pub(crate) const RELEASE: &str = "lanekeeper";
/// Its namespace.
pub(crate) const SYSTEM: &str = "lanekeeper-system";
const WAIT: Duration = Duration::from_secs(180);

/// Values of every installation: the image, and less patience than production has.
pub(crate) fn values(world: &World) -> Value {
    let Some(images) = &world.images else {
        // Kinds and roles alone: nothing runs.
        return json!({"operator": {"replicas": 0}, "query": {"replicas": 0}});
    };
    let (repository, tag) = images.product.rsplit_once(':').unwrap_or((&images.product, ""));
    json!({
        "image": {"repository": repository, "tag": tag},
        "operator": {"log": "info,lanekeeper=debug"},
        "query": {"log": "info,lanekeeper=debug"},
    })
}

/// Installs or upgrades, and waits until all of it is ready.
pub(crate) async fn install(world: &World, values: &Value) -> Result<()> {
    let file = world.scratch.join("values.json");
    std::fs::write(&file, values.to_string())?;
    let chart = world.root.join("charts/lanekeeper");
    let arguments = [
        "upgrade".as_ref(),
        "--install".as_ref(),
        RELEASE.as_ref(),
        chart.as_os_str(),
        "--namespace".as_ref(),
        SYSTEM.as_ref(),
        "--values".as_ref(),
        file.as_os_str(),
        "--wait".as_ref(),
        "--timeout=170s".as_ref(),
        "--kubeconfig".as_ref(),
        world.kubeconfig.as_os_str(),
    ];
    // A case may have changed a field by hand (O11 gives the operator a bad image): the chart's value counts again.
    // Only of our own helm: an older one has no such word.
    let ours: &[&std::ffi::OsStr] = if world.node.is_some() { &["--force-conflicts".as_ref()] } else { &[] };
    shell::run(&world.helm, arguments.iter().chain(ours), WAIT).await.map(drop)
}

/// Uninstalls, and waits for what goes with it.
pub(crate) async fn uninstall(world: &World) -> Result<()> {
    let arguments = [
        "uninstall".as_ref(),
        RELEASE.as_ref(),
        "--namespace".as_ref(),
        SYSTEM.as_ref(),
        "--wait".as_ref(),
        "--timeout=120s".as_ref(),
        "--kubeconfig".as_ref(),
        world.kubeconfig.as_os_str(),
    ];
    shell::run(&world.helm, arguments, WAIT).await.map(drop)
}

/// `helm test`: the chart's own check. Returns what its pod printed.
pub(crate) async fn test(world: &World) -> Result<String> {
    let arguments = [
        "test".as_ref(),
        RELEASE.as_ref(),
        "--namespace".as_ref(),
        SYSTEM.as_ref(),
        "--timeout=300s".as_ref(),
        "--kubeconfig".as_ref(),
        world.kubeconfig.as_os_str(),
    ];
    shell::run(&world.helm, arguments, Duration::from_secs(320)).await
}
