//! O27: 20 restarts of a store under load, every other one with kill −9 while it opens: no "locked" error, and it
//! recovers each time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, LogParams};

use crate::journal::Journal;
use crate::lanes::personal;
use crate::wait::{Seen, until};
use crate::world::World;

const RESTARTS: usize = 20;
const POD: &str = "lane-bob-0";

pub(super) async fn run(world: &World) -> Result<()> {
    world.volumes(1).await?;
    let space = world.namespace("o27").await?;
    world.lane(&space, "bob", personal("bob", &space, "agent")).await?;
    world.ready(&space, "bob", Duration::from_secs(120)).await?;
    let caller = Arc::new(world.caller(&space, "agent").await?);
    let journal = Journal::start(&caller, &format!("{space}/bob"), 4);
    journal.progress(20, Duration::from_secs(60)).await?;
    let pods = world.api::<Pod>(&space);
    for restart in 0..RESTARTS {
        let before = pods.get(POD).await?.uid().context("a pod without a UID")?;
        // In order, and by force; by force a second time as soon as the next one's process runs, which is while
        // it opens its file and makes or upgrades its schema.
        let grace = if restart % 2 == 0 { None } else { Some(0) };
        delete(&pods, grace).await?;
        if restart % 2 == 1 {
            until("the next pod's process", Duration::from_secs(60), || async {
                let Some(pod) = pods.get_opt(POD).await? else { return Ok(Seen::NotYet("no pod".to_owned())) };
                let new = pod.uid().is_some_and(|uid| uid != before);
                let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
                let runs =
                    statuses.iter().any(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()));
                Ok(if new && runs { Seen::Yes(()) } else { Seen::NotYet(format!("new {new}, runs {runs}")) })
            })
            .await?;
            delete(&pods, Some(0)).await?;
        }
        journal.progress(5, Duration::from_secs(90)).await.with_context(|| format!("after restart {restart}"))?;
        let log = pods.logs(POD, &LogParams::default()).await.unwrap_or_default();
        ensure!(!log.contains("database is locked"), "restart {restart}: the store says that its file is locked");
    }
    let audit = journal.audit(&caller).await?;
    let locked: Vec<&String> = audit.refusals.keys().filter(|refusal| refusal.contains("locked")).collect();
    ensure!(locked.is_empty(), "saves were refused with {locked:?}");
    ensure!(audit.acknowledged >= 20 + 5 * RESTARTS, "only {} saves were acknowledged", audit.acknowledged);
    Ok(())
}

async fn delete(pods: &kube::Api<Pod>, grace: Option<u32>) -> Result<()> {
    pods.delete(POD, &DeleteParams { grace_period_seconds: grace, ..DeleteParams::default() }).await?;
    Ok(())
}
