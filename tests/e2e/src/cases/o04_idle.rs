//! O4: 20 awake and 130 suspended lanes, idle for a minute: every resourceVersion unchanged, the reconcile counter
//! flat.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt as _;
use kube::api::ListParams;
use lanekeeper_crds::{FederationRecord, Lane};
use serde_json::json;

use crate::lanes::{personal, with};
use crate::wait::{Seen, until};
use crate::world::World;

const AWAKE: usize = 20;
const SUSPENDED: usize = 130;
const IDLE: Duration = Duration::from_secs(60);

pub(super) async fn run(world: &World) -> Result<()> {
    world.volumes(AWAKE).await?;
    let space = world.namespace("o04").await?;
    let small = json!({"resources": {"requests": {"cpu": "1m", "memory": "16Mi"}}});
    let lanes: Vec<(String, serde_json::Value)> = (0..AWAKE)
        .map(|number| (format!("awake-{number}"), with(personal("bob", &space, "agent"), small.clone())))
        .chain((0..SUSPENDED).map(|number| {
            let spec = with(personal("bob", &space, "agent"), json!({"suspend": true}));
            (format!("suspended-{number}"), spec)
        }))
        .collect();
    let made: Vec<_> = lanes.iter().map(|(name, spec)| world.lane(&space, name, spec.clone())).collect();
    stream::iter(made).buffer_unordered(16).try_collect::<Vec<Lane>>().await?;
    for number in 0..AWAKE {
        world.ready(&space, &format!("awake-{number}"), Duration::from_secs(300)).await?;
    }
    // Until nothing moves any more: only then does the minute begin.
    let counter = "reconcile_total";
    until("a cluster at rest", Duration::from_secs(120), || async {
        let (seen, count) = (versions(world, &space).await?, world.operator_counter(counter).await?);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let now = versions(world, &space).await?;
        let reconciled = world.operator_counter(counter).await? - count;
        Ok(if now == seen && reconciled <= 0.0 {
            Seen::Yes(())
        } else {
            Seen::NotYet(format!("{reconciled} reconciles; written: {}", difference(&seen, &now)))
        })
    })
    .await?;
    let before = versions(world, &space).await?;
    let count = world.operator_counter(counter).await?;
    tokio::time::sleep(IDLE).await;
    let after = versions(world, &space).await?;
    ensure!(before == after, "an idle minute wrote: {}", difference(&before, &after));
    let reconciled = world.operator_counter(counter).await? - count;
    ensure!(reconciled <= 0.0, "{reconciled} reconciles in an idle minute");
    Ok(())
}

/// resourceVersion of everything of the lanes, by kind and name.
async fn versions(world: &World, space: &str) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let all = ListParams::default();
    macro_rules! note {
        ($kind:ty, $api:expr) => {
            for object in $api.list(&all).await?.items {
                let name = format!("{} {}", stringify!($kind), object.name_any());
                found.insert(name, object.resource_version().unwrap_or_default());
            }
        };
    }
    note!(Lane, world.lanes(space));
    note!(StatefulSet, world.api::<StatefulSet>(space));
    note!(Secret, world.api::<Secret>(space));
    note!(Service, world.api::<Service>(space));
    note!(ServiceAccount, world.api::<ServiceAccount>(space));
    note!(PersistentVolumeClaim, world.api::<PersistentVolumeClaim>(space));
    note!(NetworkPolicy, world.api::<NetworkPolicy>(space));
    note!(FederationRecord, world.system::<FederationRecord>());
    Ok(found)
}

fn difference(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> String {
    let changed =
        after.iter().filter(|(name, version)| before.get(*name) != Some(version)).map(|(name, _)| name.as_str());
    let gone = before.keys().filter(|name| !after.contains_key(*name)).map(String::as_str);
    changed.chain(gone).take(10).collect::<Vec<_>>().join(", ")
}
