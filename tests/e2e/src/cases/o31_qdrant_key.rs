//! O31: the Secret of the Qdrant key is deleted and made again, with another key, under load: a condition at once,
//! no failed recall (text only while the key is refused, and coverage says so), picked up without a restart.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::api::Caller;
use crate::chart;
use crate::journal::{Journal, Recalls};
use crate::lanes::{condition_of, in_words, personal, with};
use crate::qdrant::{Qdrant, SECRET, put_key};
use crate::wait::{Seen, until};
use crate::world::World;

pub(super) async fn run(world: &World) -> Result<()> {
    let folder = world.scratch.join("qdrant");
    let mut qdrant = Qdrant::start(&world.target, folder, "first-key-of-this-run").await?;
    put_key(world, "first-key-of-this-run").await?;
    let values = with(chart::values(world), json!({"qdrant": {"url": qdrant.url()}}));
    chart::install(world, &values).await?;
    let space = world.namespace("o31").await?;
    let outcome = steps(world, &space, &mut qdrant).await;
    // Its lanes must be gone before the chart goes back to vectors without Qdrant; on failure the evidence first.
    if outcome.is_ok() {
        world.clean(std::slice::from_ref(&space)).await?;
    }
    chart::install(world, &chart::values(world)).await?;
    outcome
}

async fn steps(world: &World, space: &str, qdrant: &mut Qdrant) -> Result<()> {
    world.volumes(1).await?;
    world.lane(space, "bob", personal("bob", space, "agent")).await?;
    world.ready(space, "bob", Duration::from_secs(120)).await?;
    let lane = format!("{space}/bob");
    let caller = Arc::new(world.caller(space, "agent").await?);
    caller.save(&lane, "s", &["the deck wash pump draws four amperes"]).await?.expect(201)?;
    complete(&caller, &lane).await?;
    let pods = uids(world, space).await?;

    let journal = Journal::paced(&caller, &lane, 2, Duration::from_millis(100));
    let recalls = Recalls::start(&caller, &lane, "what does the pump draw");
    journal.progress(10, Duration::from_secs(60)).await?;
    world.system::<Secret>().delete(SECRET, &DeleteParams::default()).await?;
    qdrant.restart("second-key-of-this-run").await?;
    // At once: within what a watch and one reconcile take.
    until("a condition about the key", Duration::from_secs(15), || async {
        let found = world.lanes(space).get("bob").await?;
        let said = ["CollectionReady", "FenceEnforced"].into_iter().filter_map(|kind| condition_of(&found, kind));
        let named = said.into_iter().any(|found| found.status != "True" && found.message.contains(SECRET));
        Ok(if named { Seen::Yes(()) } else { Seen::NotYet(in_words(&found)) })
    })
    .await?;
    until("coverage that says so", Duration::from_secs(30), || async {
        let answer = caller.recall("what does the pump draw", json!({"lanes": [lane]})).await?.expect(200)?;
        ensure!(answer["hits"].to_string().contains("four amperes"), "not found by text: {answer}");
        let coverage = &answer["coverage"];
        Ok(if coverage["complete_corpus"] == false { Seen::Yes(()) } else { Seen::NotYet(coverage.to_string()) })
    })
    .await?;
    journal.progress(10, Duration::from_secs(60)).await.context("saves go on without the key")?;

    put_key(world, "second-key-of-this-run").await?;
    // The load goes on until the new key is in use: no question may fail on the way there.
    until("vectors searched under the new key", Duration::from_secs(120), || async {
        let answer = caller.recall("what does the pump draw", json!({"lanes": [lane]})).await?.expect(200)?;
        let coverage = &answer["coverage"];
        let searched = coverage["lanes"][0]["arms"]["vector"]["searched"] == true;
        Ok(if searched { Seen::Yes(()) } else { Seen::NotYet(coverage.to_string()) })
    })
    .await?;
    journal.progress(10, Duration::from_secs(60)).await?;
    let (asked, failed) = recalls.end().await?;
    let audit = journal.audit(&caller).await?;
    complete(&caller, &lane).await.context("the new key is picked up")?;
    ensure!(failed.is_empty(), "{} of {asked} recalls failed: {:?}", failed.len(), failed.first());
    ensure!(asked > 20 && audit.acknowledged >= 30, "too little was asked: {asked} recalls, {audit:?}");
    ensure!(uids(world, space).await? == pods, "a pod was restarted");
    Ok(())
}

async fn complete(caller: &Caller, lane: &str) -> Result<Value> {
    until("an answer that lacks nothing", Duration::from_secs(90), || async {
        let answer = caller.recall("what does the pump draw", json!({"lanes": [lane]})).await?.expect(200)?;
        Ok(if answer["coverage"]["complete_corpus"] == true {
            Seen::Yes(answer)
        } else {
            Seen::NotYet(answer["coverage"].to_string())
        })
    })
    .await
}

/// UIDs and restarts of every pod that must stay.
async fn uids(world: &World, space: &str) -> Result<Vec<(String, i32)>> {
    let mut found = Vec::new();
    let all = ListParams::default();
    let system = world.system::<Pod>().list(&all).await?.items;
    let lanes = world.api::<Pod>(space).list(&all).await?.items;
    for pod in system.into_iter().chain(lanes) {
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let restarts = statuses.map(|status| status.restart_count).sum();
        found.push((pod.uid().unwrap_or_default(), restarts));
    }
    found.sort();
    Ok(found)
}
