//! O12, its first half: the chart is upgraded with nothing changed in a store's template. No store's pod is another one
//! afterwards, and while the query replicas and the operator roll no request fails, not even once.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;

use crate::chart;
use crate::journal::{Journal, Recalls};
use crate::lanes::{personal, with};
use crate::world::World;

const WITHIN: Duration = Duration::from_secs(120);

pub(super) async fn run(world: &World) -> Result<()> {
    world.volumes(1).await?;
    let space = world.namespace("o12").await?;
    world.lane(&space, "bob", personal("bob", &space, "agent")).await?;
    world.ready(&space, "bob", WITHIN).await?;
    let lane = format!("{space}/bob");
    let caller = Arc::new(world.caller(&space, "agent").await?);
    caller.save(&lane, "s", &["the spare anchor weighs forty pounds"]).await?.expect(201)?;
    let (store, replicas) =
        (pods(world, "lane-store", Some(&space)).await?, pods(world, "lanekeeper-query", None).await?);
    let generation = world.api::<StatefulSet>(&space).get("lane-bob").await?.metadata.generation;

    let journal = Journal::paced(&caller, &lane, 2, Duration::from_millis(50));
    let recalls = Recalls::start(&caller, &lane, "what does the spare anchor weigh");
    journal.progress(20, WITHIN).await?;
    let noted = json!({"podAnnotations": {"example.com/release": uuid::Uuid::now_v7().to_string()}});
    let values = with(chart::values(world), json!({"operator": noted, "query": noted}));
    chart::install(world, &values).await?;
    // The old replicas end after the new ones are ready: some more of the load falls into that.
    journal.progress(100, WITHIN).await?;
    let (asked, failed) = recalls.end().await?;
    let audit = journal.audit(&caller).await?;
    chart::install(world, &chart::values(world)).await?;

    let rolled = pods(world, "lanekeeper-query", None).await?;
    ensure!(rolled.iter().all(|pod| !replicas.contains(pod)), "the replicas did not roll: {rolled:?}");
    ensure!(failed.is_empty(), "{} of {asked} recalls failed: {:?}", failed.len(), failed.first());
    ensure!(audit.refusals.is_empty(), "saves failed at first: {audit:?}");
    ensure!(asked >= 20, "too little was asked: {asked}");
    ensure!(pods(world, "lane-store", Some(&space)).await? == store, "the store's pod is another one");
    let now = world.api::<StatefulSet>(&space).get("lane-bob").await?.metadata.generation;
    ensure!(now == generation, "the StatefulSet was changed: generation {now:?} and not {generation:?}");
    Ok(())
}

/// UIDs of the pods of that name that are not on their way out, in order.
async fn pods(world: &World, name: &str, namespace: Option<&str>) -> Result<Vec<String>> {
    let api = namespace.map_or_else(|| world.system::<Pod>(), |namespace| world.api::<Pod>(namespace));
    let listed = api.list(&ListParams::default().labels(&format!("app.kubernetes.io/name={name}"))).await?;
    let alive = listed.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut uids = alive.map(|pod| pod.uid().context("a pod without a UID")).collect::<Result<Vec<_>>>()?;
    uids.sort();
    Ok(uids)
}
