//! O8: two lanes share an embedder; one is deleted, then the other: recall works throughout. After the last the
//! workload, its Service and a managed Embedder go; a user's own stays Idle, and so does a user's own Secret.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use lanekeeper_crds::{Embedder, conditions};
use serde_json::json;

use crate::lanes::{personal, with};
use crate::wait::{Seen, throughout, until};
use crate::world::World;

pub(super) async fn run(world: &World) -> Result<()> {
    managed(world).await?;
    own(world).await
}

async fn managed(world: &World) -> Result<()> {
    world.volumes(2).await?;
    let space = world.namespace("o08").await?;
    for name in ["one", "two"] {
        world.lane(&space, name, personal("bob", &space, "agent")).await?;
    }
    for name in ["one", "two"] {
        world.ready(&space, name, Duration::from_secs(180)).await?;
    }
    let used = |lane: lanekeeper_crds::Lane| lane.status.and_then(|status| status.embedder);
    let one = used(world.lanes(&space).get("one").await?).context("lane one names no embedder")?;
    let two = used(world.lanes(&space).get("two").await?).context("lane two names no embedder")?;
    ensure!(one == two, "two lanes of one model have the embedders {one} and {two}");
    let caller = world.caller(&space, "agent").await?;
    caller.save(&format!("{space}/two"), "s", &["the lamp oil is kept in the forepeak"]).await?.expect(201)?;
    complete(&caller, &space).await?;

    world.delete_lane(&space, "one", true).await?;
    world.lane_gone(&space, "one", Duration::from_secs(60)).await?;
    throughout(Duration::from_secs(10), || complete_now(&caller, &space)).await?;
    let embedders = Api::<Embedder>::all(world.client.clone());
    ensure!(embedders.get_opt(&one).await?.is_some(), "the embedder went with the first of two lanes");

    world.delete_lane(&space, "two", true).await?;
    world.lane_gone(&space, "two", Duration::from_secs(60)).await?;
    // Others of the run may use the same model.
    if consumers(world, &one).await? == 0 {
        workload_gone(world, &one).await?;
        until("the end of the managed Embedder", Duration::from_secs(60), || async {
            let found = embedders.get_opt(&one).await?;
            Ok(if found.is_none() { Seen::Yes(()) } else { Seen::NotYet("it is there".to_owned()) })
        })
        .await?;
    }
    Ok(())
}

async fn own(world: &World) -> Result<()> {
    world.volumes(1).await?;
    let space = world.namespace("o08").await?;
    let name = format!("mine-{}", &space[space.len() - 6..]);
    let secret = json!({"metadata": {"name": name}, "stringData": {"key": "mine"}});
    world.system::<Secret>().create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    let embedders = Api::<Embedder>::all(world.client.clone());
    let embedder = json!({"metadata": {"name": name}, "spec": {"model": "all-MiniLM-L6-v2"}});
    embedders.create(&PostParams::default(), &serde_json::from_value(embedder)?).await?;
    let outcome = async {
        let spec = with(personal("bob", &space, "agent"), json!({"embedder": {"name": name}}));
        world.lane(&space, "bob", spec).await?;
        world.ready(&space, "bob", Duration::from_secs(180)).await?;
        world.delete_lane(&space, "bob", true).await?;
        world.lane_gone(&space, "bob", Duration::from_secs(60)).await?;
        workload_gone(world, &name).await?;
        until("condition Idle of the user's Embedder", Duration::from_secs(60), || async {
            let found = embedders.get(&name).await?;
            let conditions = found.status.map(|status| status.conditions).unwrap_or_default();
            let idle = conditions.iter().any(|found| found.type_ == conditions::IDLE && found.status == "True");
            Ok(if idle { Seen::Yes(()) } else { Seen::NotYet(format!("{conditions:?}")) })
        })
        .await?;
        ensure!(world.system::<Secret>().get_opt(&name).await?.is_some(), "the user's Secret is gone");
        anyhow::Ok(())
    }
    .await;
    let _ = embedders.delete(&name, &DeleteParams::default()).await;
    let _ = world.system::<Secret>().delete(&name, &DeleteParams::default()).await;
    outcome
}

async fn complete(caller: &crate::api::Caller, space: &str) -> Result<()> {
    until("an answer that lacks nothing", Duration::from_secs(60), || async {
        Ok(match complete_now(caller, space).await {
            Ok(()) => Seen::Yes(()),
            Err(error) => Seen::NotYet(error.to_string()),
        })
    })
    .await
}

async fn complete_now(caller: &crate::api::Caller, space: &str) -> Result<()> {
    let answer =
        caller.recall("where is the lamp oil", json!({"lanes": [format!("{space}/two")]})).await?.expect(200)?;
    ensure!(answer["hits"].to_string().contains("forepeak"), "not found: {answer}");
    ensure!(answer["coverage"]["complete_corpus"] == true, "something was not searched: {}", answer["coverage"]);
    Ok(())
}

async fn consumers(world: &World, embedder: &str) -> Result<usize> {
    let lanes: Api<lanekeeper_crds::Lane> = Api::all(world.client.clone());
    let lanes = lanes.list(&Default::default()).await?.items;
    let uses = |lane: &&lanekeeper_crds::Lane| {
        lane.status.as_ref().and_then(|status| status.embedder.as_deref()) == Some(embedder)
            && lane.metadata.deletion_timestamp.is_none()
    };
    let using: Vec<String> = lanes.iter().filter(uses).map(ResourceExt::name_any).collect();
    Ok(using.len())
}

async fn workload_gone(world: &World, embedder: &str) -> Result<()> {
    let name = format!("embedder-{embedder}");
    until(&format!("the end of {name}"), Duration::from_secs(60), || async {
        let deployment = world.system::<Deployment>().get_opt(&name).await?.is_some();
        let service = world.system::<Service>().get_opt(&name).await?.is_some();
        Ok(if deployment || service {
            Seen::NotYet(format!("Deployment there: {deployment}, Service there: {service}"))
        } else {
            Seen::Yes(())
        })
    })
    .await
}
