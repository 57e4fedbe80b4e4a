//! `make bench-cluster`: what a thousand lanes cost, and how long a store is away when it restarts. Prints the
//! figures with their aims and writes them to docs/benchmarks-cluster.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use lanekeeper_crds::{Lane, conditions};
use serde_json::{Value, json};

use crate::chart::SYSTEM;
use crate::journal::Journal;
use crate::lanes::{condition_of, personal, with};
use crate::node::Node;
use crate::wait::{Seen, until};
use crate::world::World;

const LANES: usize = 1000;
const OPERATOR: &str = "lanekeeper-operator";
const MINUTE: Duration = Duration::from_secs(60);
/// Restarts of each kind; the worst counts.
const RESTARTS: usize = 3;
/// Turns of one save.
const BATCH: usize = 50;
const WITHIN: Duration = Duration::from_secs(600);

/// One line of the table.
struct Figure {
    what: &'static str,
    value: f64,
    unit: &'static str,
    /// At most, if there is an aim.
    aim: Option<f64>,
    how: String,
}

/// Measures all of it on a cluster of our own.
pub(crate) async fn run(world: &World) -> Result<()> {
    let node = world.node.as_ref().context("figures are of a cluster that this run booted")?;
    let mut figures = Vec::new();
    let mut note = |figure: Figure| {
        println!("{}", line(&figure));
        figures.push(figure);
    };
    let space = world.namespace("bench").await?;
    thousand(world, node, &space, &mut note).await?;
    restarts(world, &space, &mut note).await?;
    let page = page(&figures);
    std::fs::write(world.root.join("docs/benchmarks-cluster.md"), page).context("write the figures")?;
    world.clean(&[space]).await
}

async fn thousand(world: &World, node: &Node, space: &str, note: &mut impl FnMut(Figure)) -> Result<()> {
    let spec = with(personal("bob", space, "agent"), json!({"suspend": true}));
    let names: Vec<String> = (0..LANES).map(|number| format!("lane-{number}")).collect();
    let (before, began) = (writes(node).await?, Instant::now());
    let made: Vec<_> = names.iter().map(|name| world.lane(space, name, spec.clone())).collect();
    stream::iter(made).buffer_unordered(16).try_collect::<Vec<Lane>>().await?;
    println!("made {LANES} lanes in {:.0} s", began.elapsed().as_secs_f64());
    until("every lane judged", WITHIN, || async {
        let lanes = world.lanes(space).list(&ListParams::default()).await?.items;
        let judged =
            |lane: &&Lane| condition_of(lane, conditions::READY).is_some_and(|ready| ready.reason == "Suspended");
        let count = lanes.iter().filter(judged).count();
        Ok(if count == LANES { Seen::Yes(()) } else { Seen::NotYet(format!("{count} of {LANES}")) })
    })
    .await?;
    let judged = began.elapsed().as_secs_f64();
    at_rest(node).await?;
    let after = writes(node).await?;
    let by_kind = difference(&before, &after);
    let all: f64 = by_kind.values().sum();
    let most: Vec<String> = by_kind.iter().map(|(kind, count)| format!("{kind} {:.2}", count / LANES as f64)).collect();
    note(Figure {
        what: "API writes per new lane",
        value: all / LANES as f64,
        unit: "writes",
        aim: None,
        how: format!("by the operator, Leases left out: {}", most.join(", ")),
    });
    note(Figure {
        what: "1,000 lanes made and judged",
        value: judged,
        unit: "s",
        aim: None,
        how: "from the first create to the last status, 16 creates at a time".to_owned(),
    });
    note(Figure {
        what: "operator's memory",
        value: resident(world, node).await?,
        unit: "MiB",
        aim: Some(128.0),
        how: format!("resident, the leader, with {LANES} suspended lanes"),
    });
    let before = writes(node).await?;
    tokio::time::sleep(MINUTE).await;
    let idle = difference(&before, &writes(node).await?);
    note(Figure {
        what: "writes in an idle minute",
        value: idle.values().sum(),
        unit: "writes",
        aim: Some(0.0),
        how: "of all of our accounts, Leases left out".to_owned(),
    });

    let pods = operators(world).await?;
    let began = Instant::now();
    for pod in &pods {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        world.system::<Pod>().delete(&pod.name_any(), &now).await?;
    }
    until("every lane looked at by the new operator", WITHIN, || async {
        let old: Vec<Option<String>> = pods.iter().map(ResourceExt::uid).collect();
        ensure!(operators(world).await?.iter().all(|pod| !old.contains(&pod.uid())), "the old ones are still there");
        let count = world.operator_counter_of("reconcile_total", "controller=\"lane\"").await?;
        Ok(if count >= LANES as f64 { Seen::Yes(()) } else { Seen::NotYet(format!("{count} reconciles")) })
    })
    .await?;
    note(Figure {
        what: "all observed after both operators were killed",
        value: began.elapsed().as_secs_f64(),
        unit: "s",
        aim: Some(30.0),
        how: "from the kill, so with the Lease's 15 s and the start of the pods".to_owned(),
    });
    for name in &names {
        world.delete_lane(space, name, true).await?;
    }
    Ok(())
}

async fn restarts(world: &World, space: &str, note: &mut impl FnMut(Figure)) -> Result<()> {
    world.volumes(1).await?;
    world.lane(space, "transcript", personal("bob", space, "agent")).await?;
    world.ready(space, "transcript", WITHIN).await?;
    let lane = format!("{space}/transcript");
    let caller = Arc::new(world.caller(space, "agent").await?);
    let turns = transcript(world)?;
    for batch in turns.chunks(BATCH) {
        let texts: Vec<&str> = batch.iter().map(String::as_str).collect();
        caller.save(&lane, "transcript", &texts).await?.expect(201)?;
    }
    println!("saved {} turns; waiting for their vectors", turns.len());
    until("every vector", 2 * WITHIN, || async {
        let answer = caller.recall("which bus had low voltage", json!({"lanes": [lane]})).await?.expect(200)?;
        let pending = &answer["coverage"]["lanes"][0]["counts"]["pending_projection"];
        Ok(if pending == 0 { Seen::Yes(()) } else { Seen::NotYet(format!("{pending} without vectors")) })
    })
    .await?;
    for (what, grace, aim) in
        [("restart gap after SIGTERM", None, 5.0), ("restart gap after a force-delete", Some(0), 20.0)]
    {
        let mut gaps = Vec::new();
        for _ in 0..RESTARTS {
            let journal = Journal::paced(&caller, &lane, 1, Duration::from_millis(20));
            journal.progress(20, WITHIN).await?;
            let gone = DeleteParams { grace_period_seconds: grace, ..DeleteParams::default() };
            world.api::<Pod>(space).delete("lane-transcript-0", &gone).await?;
            // Some saves still reach the old one; a gap of less than this would be no restart.
            until("the gap", WITHIN, || async {
                let refused = journal.refusals();
                Ok(if refused.is_empty() { Seen::NotYet("no save was refused yet".to_owned()) } else { Seen::Yes(()) })
            })
            .await?;
            journal.progress(20, WITHIN).await?;
            gaps.push(journal.audit(&caller).await?.longest_gap.as_secs_f64());
            world.ready(space, "transcript", WITHIN).await?;
        }
        let worst = gaps.iter().copied().fold(0.0, f64::max);
        let each: Vec<String> = gaps.iter().map(|gap| format!("{gap:.1}")).collect();
        note(Figure {
            what,
            value: worst,
            unit: "s",
            aim: Some(aim),
            how: format!("the longest a save waited, worst of {}; {} turns in the lane", each.join(", "), turns.len()),
        });
    }
    Ok(())
}

/// The transcript beside the checkout, or as many sentences of our own where it is not there.
fn transcript(world: &World) -> Result<Vec<String>> {
    let shared = std::env::var_os("LANEKEEPER_SHARED").map_or_else(|| world.root.join("../shared"), Into::into);
    let file = shared.join("data/apollo13.jsonl");
    let Ok(text) = std::fs::read_to_string(&file) else {
        println!("SKIPPED: {} is not there; sentences of our own stand for it", file.display());
        return Ok((0..11_259)
            .map(|number| format!("At step {number} the crew reads valve {} aloud.", number * 7))
            .collect());
    };
    let turn = |line: &str| {
        Ok(serde_json::from_str::<Value>(line)?["text"].as_str().context("a line without text")?.to_owned())
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(turn).collect()
}

/// Writes that succeeded, by kind of object, of every account of the release and of stores. Leases are left out.
async fn writes(node: &Node) -> Result<BTreeMap<String, f64>> {
    let audit = std::fs::read_to_string(node.path("audit").await?).context("read the audit log")?;
    let mut counts = BTreeMap::new();
    for event in audit.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if let Some(kind) = written(&event) {
            *counts.entry(kind).or_default() += 1.0;
        }
    }
    Ok(counts)
}

fn written(event: &Value) -> Option<String> {
    let user = event["user"]["username"].as_str()?;
    let ours = user.starts_with(&format!("system:serviceaccount:{SYSTEM}:lanekeeper-")) || user.contains(":lane-");
    let writes = ["create", "update", "patch", "delete", "deletecollection"].contains(&event["verb"].as_str()?);
    let done = event["responseStatus"]["code"].as_u64()? < 300;
    let object = &event["objectRef"];
    let resource = object["resource"].as_str()?;
    // Questions, though they are asked by POST.
    let asks = ["leases", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews"].contains(&resource);
    let kind = object["subresource"].as_str().map_or_else(|| resource.to_owned(), |sub| format!("{resource}/{sub}"));
    (ours && writes && done && !asks).then_some(kind)
}

/// Until five seconds pass without a write.
async fn at_rest(node: &Node) -> Result<()> {
    until("a cluster at rest", WITHIN, || async {
        let before: f64 = writes(node).await?.values().sum();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let now: f64 = writes(node).await?.values().sum();
        Ok(if now <= before { Seen::Yes(()) } else { Seen::NotYet(format!("{} writes in 5 s", now - before)) })
    })
    .await
}

fn difference(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let more = |(kind, count): (&String, &f64)| (kind.clone(), count - before.get(kind).copied().unwrap_or_default());
    after.iter().map(more).filter(|(_, count)| *count > 0.0).collect()
}

async fn operators(world: &World) -> Result<Vec<Pod>> {
    let selector = ListParams::default().labels(&format!("app.kubernetes.io/name={OPERATOR}"));
    Ok(world.system::<Pod>().list(&selector).await?.items)
}

/// Of the bigger of the two replicas, which is the leader.
async fn resident(world: &World, node: &Node) -> Result<f64> {
    let mut most = 0.0_f64;
    for pod in operators(world).await? {
        for pid in node.processes_of(&pod.uid().context("a pod without a UID")?)? {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let kib =
                status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
            most = most.max(kib.unwrap_or(0.0) / 1024.0);
        }
    }
    Ok(most)
}

fn line(figure: &Figure) -> String {
    let Figure { what, value, unit, aim, how } = figure;
    let (aim, verdict) = match aim {
        Some(aim) => (format!("≤ {aim}"), if value <= aim { "✓" } else { "✗" }),
        None => (String::new(), ""),
    };
    format!("| {what} | {value:.1} {unit} | {aim} | {verdict} | {how} |")
}

fn page(figures: &[Figure]) -> String {
    let today = jiff::Zoned::now().date();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut page = format!(
        "# Benchmarks on a cluster\n\nMade by `make bench-cluster` on {cores} cores, with the whole cluster on the same machine ({today}). \
         A line with ✗ is short of its aim. Double claims 100 times: `make e2e ONLY=O23`.\n\n| figure | value | aim | | how |\n|---|---|---|---|---|\n"
    );
    for figure in figures {
        let _ = writeln!(page, "{}", line(figure));
    }
    page
}
