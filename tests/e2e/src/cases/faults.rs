//! Under write load: Qdrant, the embedder and the API server go away and come back, and the operator's leader stands
//! still for 40 s. By the client's journal nothing acknowledged is lost or doubled, answers name what they lack, and
//! the audit log has no write of the old leader after the new one's first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use lanekeeper_crds::conditions;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::api::{Caller, texts};
use crate::chart;
use crate::journal::Journal;
use crate::lanes::{personal, with};
use crate::node::Node;
use crate::qdrant::{Qdrant, put_key};
use crate::wait::{Seen, until};
use crate::world::World;

const KEY: &str = "the-key-of-this-run";
const OPERATOR: &str = "lanekeeper-operator";
/// Well over the Lease's 15 s.
const STANDSTILL: Duration = Duration::from_secs(40);
const WITHIN: Duration = Duration::from_secs(120);

pub(super) async fn run(world: &World) -> Result<()> {
    let node = world.node.as_ref().context("a cluster of our own")?;
    let mut qdrant = Qdrant::start(&world.target, world.scratch.join("qdrant-faults"), KEY).await?;
    put_key(world, KEY).await?;
    chart::install(world, &with(chart::values(world), json!({"qdrant": {"url": qdrant.url()}}))).await?;
    let space = world.namespace("faults").await?;
    let outcome = steps(world, node, &space, &mut qdrant).await;
    if outcome.is_ok() {
        world.clean(std::slice::from_ref(&space)).await?;
    }
    chart::install(world, &chart::values(world)).await?;
    outcome
}

async fn steps(world: &World, node: &Node, space: &str, qdrant: &mut Qdrant) -> Result<()> {
    world.volumes(2).await?;
    world.lane(space, "bob", personal("bob", space, "agent")).await?;
    world.ready(space, "bob", WITHIN).await?;
    let lane = format!("{space}/bob");
    let caller = Arc::new(world.caller(space, "agent").await?);
    caller.save(&lane, "s", &["the deck wash pump draws four amperes"]).await?.expect(201)?;
    vectors(&caller, &lane, true).await?;
    let journal = Journal::paced(&caller, &lane, 4, Duration::from_millis(100));
    journal.progress(20, WITHIN).await?;

    qdrant.kill().await?;
    vectors(&caller, &lane, false).await.context("while Qdrant is away")?;
    journal.progress(20, WITHIN).await.context("while Qdrant is away")?;
    qdrant.restart(KEY).await?;
    vectors(&caller, &lane, true).await.context("when Qdrant is back")?;

    let embedder = pods(world, "embedder").await?.pop().context("no embedder")?;
    node.signal_pod(&embedder.uid().context("a pod without a UID")?, Signal::SIGSTOP)?;
    vectors(&caller, &lane, false).await.context("while the embedder stands still")?;
    journal.progress(20, WITHIN).await.context("while the embedder stands still")?;
    node.signal_pod(&embedder.uid().context("a pod without a UID")?, Signal::SIGCONT)?;
    vectors(&caller, &lane, true).await.context("when the embedder is back")?;

    node.signal("kube-apiserver", "STOP").await?;
    // The token was reviewed a moment ago, and no answer needs more from the API server than that.
    let answer = ask(&caller, &lane).await;
    let refused = journal.refused("fence_unconfirmed", Duration::from_secs(60)).await;
    // Whatever came of it: without an API server nothing can be cleaned up.
    node.signal("kube-apiserver", "CONT").await?;
    answer.context("while the API server stands still")?;
    refused.context("no write without a fence that was confirmed in the last 15 s")?;
    journal.progress(20, WITHIN).await.context("when the API server is back")?;

    leader(world, node, space).await?;
    let audit = journal.audit(&caller).await?;
    ensure!(audit.acknowledged >= 100, "too little was saved: {audit:?}");
    vectors(&caller, &lane, true).await.context("at the end")?;
    Ok(())
}

/// The leader stands still, the other takes over and does its work, the first wakes up: no write of it counts.
async fn leader(world: &World, node: &Node, space: &str) -> Result<()> {
    let old = holder(world).await?;
    let pod = world.system::<Pod>().get(&old).await.context("the leader's pod")?;
    let uid = pod.uid().context("a pod without a UID")?;
    let began = Instant::now();
    node.signal_pod(&uid, Signal::SIGSTOP)?;
    let outcome = async {
        until("another leader", Duration::from_secs(60), || async {
            let now = holder(world).await?;
            Ok(if now == old { Seen::NotYet(format!("{now} holds the Lease")) } else { Seen::Yes(()) })
        })
        .await?;
        // It leads in deed: a Lane that nobody has looked at becomes Ready.
        world.lane(space, "ada", personal("ada", space, "agent")).await?;
        world.ready(space, "ada", WITHIN).await
    }
    .await;
    tokio::time::sleep(STANDSTILL.saturating_sub(began.elapsed())).await;
    // What it would have written is written now, if nothing stops it. A change gives it something to write about.
    node.signal_pod(&uid, Signal::SIGCONT)?;
    outcome?;
    world.change(space, "ada", json!({"spec": {"suspend": true}})).await?;
    world.condition(space, "ada", conditions::STORE_READY, "False", WITHIN).await?;
    let new = holder(world).await?;
    ensure!(new != old, "the old leader leads again");
    let audit = std::fs::read_to_string(node.path("audit").await?).context("read the audit log")?;
    let (taken, late) = writes_after_takeover(&audit, &old, &new)?;
    ensure!(late.is_empty(), "after {taken} the old leader wrote: {late:?}");
    Ok(())
}

/// When `new` first wrote the Lease, and what `old` wrote with success after that.
fn writes_after_takeover(audit: &str, old: &str, new: &str) -> Result<(String, Vec<String>)> {
    let by = |event: &Value, pod: &str| {
        let names = &event["user"]["extra"]["authentication.kubernetes.io/pod-name"];
        names.as_array().is_some_and(|names| names.iter().any(|name| name == pod))
    };
    let written = |event: &Value| {
        let writes = ["create", "update", "patch", "delete", "deletecollection"];
        let done = event["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300);
        done && event["verb"].as_str().is_some_and(|verb| writes.contains(&verb))
    };
    let time = |event: &Value| event["requestReceivedTimestamp"].as_str().unwrap_or_default().to_owned();
    let events: Vec<Value> = audit.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    // The last term of `new`: it may have led before.
    let lease = |event: &&Value| event["objectRef"]["resource"] == "leases" && event["objectRef"]["name"] == OPERATOR;
    let terms = events.iter().filter(lease).filter(|event| written(event));
    let mut taken = None;
    for event in terms {
        if by(event, old) {
            taken = None;
        } else if by(event, new) && taken.is_none() {
            taken = Some(time(event));
        }
    }
    let taken = taken.context("the audit log has no Lease of the new leader")?;
    // Both are RFC 3339 in UTC with six decimals, so that they compare as text.
    let late = events.iter().filter(|event| written(event) && by(event, old) && time(event) > taken);
    let late = late.map(|event| format!("{} {}", event["verb"], event["requestURI"])).collect();
    Ok((taken, late))
}

/// The pod that holds the operator's Lease.
async fn holder(world: &World) -> Result<String> {
    let lease = world.system::<Lease>().get(OPERATOR).await?;
    let identity = lease.spec.and_then(|spec| spec.holder_identity).context("nobody holds the Lease")?;
    Ok(identity.split('_').next().unwrap_or_default().to_owned())
}

async fn pods(world: &World, name: &str) -> Result<Vec<Pod>> {
    let selector = ListParams::default().labels(&format!("app.kubernetes.io/name={name}"));
    Ok(world.system::<Pod>().list(&selector).await?.items)
}

async fn ask(caller: &Caller, lane: &str) -> Result<Value> {
    let answer = caller.recall("what does the pump draw", json!({"lanes": [lane]})).await?.expect(200)?;
    ensure!(texts(&answer).iter().any(|text| text.contains("four amperes")), "not found: {answer}");
    Ok(answer)
}

/// Until vectors are searched, or not; the turn is found all the while, and coverage says which.
async fn vectors(caller: &Caller, lane: &str, searched: bool) -> Result<()> {
    until(&format!("an answer with vectors searched: {searched}"), WITHIN, || async {
        let answer = ask(caller, lane).await?;
        let coverage = &answer["coverage"];
        let vector = &coverage["lanes"][0]["arms"]["vector"];
        ensure!(vector["searched"] == true || vector["reason"].is_string(), "no reason: {coverage}");
        ensure!(vector["searched"] == true || coverage["complete_corpus"] == false, "called complete: {coverage}");
        Ok(if vector["searched"] == searched { Seen::Yes(()) } else { Seen::NotYet(vector.to_string()) })
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(pod: &str, verb: &str, resource: &str, second: u32, code: u16) -> String {
        json!({"user": {"extra": {"authentication.kubernetes.io/pod-name": [pod]}}, "verb": verb, "requestURI": resource,
               "objectRef": {"resource": resource, "name": OPERATOR}, "responseStatus": {"code": code},
               "requestReceivedTimestamp": format!("2026-12-01T00:00:{second:02}.000000Z")})
        .to_string()
    }

    #[test]
    fn only_what_the_old_one_wrote_after_the_takeover_counts() {
        let lines = [
            event("old", "update", "leases", 1, 200),
            event("old", "patch", "lanes", 2, 200),
            event("new", "update", "leases", 20, 200),
            event("old", "update", "leases", 30, 409),
            event("old", "get", "lanes", 31, 200),
        ];
        let (taken, late) = writes_after_takeover(&lines.join("\n"), "old", "new").unwrap();
        assert!(taken.contains(":20.") && late.is_empty(), "{taken} {late:?}");
        let bad = [&lines[..], &[event("old", "patch", "lanes", 32, 200)]].concat().join("\n");
        assert_eq!(writes_after_takeover(&bad, "old", "new").unwrap().1.len(), 1);
        assert!(writes_after_takeover(&lines[..2].join("\n"), "old", "new").is_err());
    }
}
