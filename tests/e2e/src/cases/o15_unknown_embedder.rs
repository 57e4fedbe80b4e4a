//! O15: 50 lanes that name an unknown embedder, live for 60 s: at most one Event each, and retries back off.
//! (Ten minutes of it run on an injected clock beside the operator.)

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use lanekeeper_crds::{Lane, conditions};
use serde_json::json;

use crate::lanes::{personal, with};
use crate::world::World;

const LANES: usize = 50;

pub(super) async fn run(world: &World) -> Result<()> {
    world.volumes(LANES).await?;
    let space = world.namespace("o15").await?;
    let names: Vec<String> = (0..LANES).map(|number| format!("lane-{number}")).collect();
    let spec = with(
        personal("bob", &space, "agent"),
        json!({
            "embedder": {"name": "there-is-no-such-embedder"},
            "resources": {"requests": {"cpu": "1m", "memory": "16Mi"}},
        }),
    );
    let made: Vec<_> = names.iter().map(|name| world.lane(&space, name, spec.clone())).collect();
    stream::iter(made).buffer_unordered(16).try_collect::<Vec<Lane>>().await?;
    for name in &names {
        let found =
            world.condition(&space, name, conditions::EMBEDDER_READY, "False", Duration::from_secs(120)).await?;
        ensure!(found.message.contains("there-is-no-such-embedder"), "not named: {}", found.message);
    }
    let counter = "reconcile_total";
    let halves = [world.operator_counter(counter).await?, after(world, counter).await?, after(world, counter).await?];
    let (first, second) = (halves[1] - halves[0], halves[2] - halves[1]);
    // A fixed retry of 5 s would be 300 in each half.
    ensure!(second <= 2.0 * LANES as f64, "{second} reconciles of {LANES} lanes in the second 30 s");
    ensure!(second <= first.max(LANES as f64), "retries do not back off: {first}, then {second}");

    let mut seen: BTreeMap<(String, String), i64> = BTreeMap::new();
    for event in world.api::<Event>(&space).list(&ListParams::default()).await?.items {
        if event.involved_object.kind.as_deref() == Some("Lane") {
            let about = event.involved_object.name.unwrap_or_default();
            let count = i64::from(event.count.unwrap_or(1)).max(1);
            let series = event.series.and_then(|series| series.count).map_or(count, i64::from);
            *seen.entry((about, event.reason.unwrap_or_default())).or_default() += series;
        }
    }
    for ((lane, reason), count) in &seen {
        ensure!(*count <= 1, "lane {lane} has {count} Events with the reason {reason}");
    }
    let embedder = |reason: &str| reason.contains("Embedder");
    for name in &names {
        let count = seen.keys().filter(|(lane, reason)| lane == name && embedder(reason)).count();
        ensure!(count <= 1, "lane {name} has {count} Events about its embedder");
    }
    Ok(())
}

async fn after(world: &World, counter: &str) -> Result<f64> {
    tokio::time::sleep(Duration::from_secs(30)).await;
    world.operator_counter(counter).await
}
