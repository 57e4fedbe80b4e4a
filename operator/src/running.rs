//! How the operator runs: watches always, works while it leads, gives the Lease back when told to stop.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::client::ClientBuilder;
use lanekeeper_core::cluster::system;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::ask::Ask;
use crate::backoff::Class;
use crate::config::Config;
use crate::context::Context;
use crate::error::chain;
use crate::gate::{Gate, Term, Watches};
use crate::keys::system::ensure;
use crate::leader::Candidate;
use crate::qdrant::Qdrant;
use crate::{controller, probes, qdrant, watching};

/// How often the release's own secrets are looked at when nothing tells of a change.
const KEYS_EVERY: Duration = Duration::from_secs(3600);

/// Runs until `shutdown` is cancelled: then work stops and the Lease is given back. The cluster is the one that the
/// process finds itself in, or the kubeconfig's.
///
/// A rustls provider must be installed.
pub async fn run(config: Config, shutdown: CancellationToken) -> anyhow::Result<()> {
    let cluster = kube::Config::infer().await?;
    run_on(config, cluster, shutdown).await
}

/// [`run`], on a cluster that is given.
pub async fn run_on(config: Config, cluster: kube::Config, shutdown: CancellationToken) -> anyhow::Result<()> {
    if config.network_policies && config.api_server_cidrs.is_empty() {
        anyhow::bail!("--network-policies needs --api-server-cidr: without it no store could reach the API server");
    }
    let gate = Gate { term: Term::default(), watches: Watches::default() };
    let client = ClientBuilder::try_from(cluster.clone())?.with_layer(&gate).build();
    // The Lease alone is written without being the leader.
    let free = ClientBuilder::try_from(cluster)?.build();
    let connect: qdrant::Connect = Box::new(qdrant::client::connect);
    let configured = config.qdrant_url.clone().map(|url| Qdrant::new(url, config.qdrant_secret.clone(), connect));
    let context = Arc::new(Context::new(config, client, gate.watches.clone(), configured, Ask::default()));
    let mut tasks = JoinSet::new();
    // Not the caller's: probes answer until the Lease is given back.
    let stop = CancellationToken::new();
    let (on_probes, on_metrics) = (context.config.probes, context.config.metrics);
    let serving = [
        tokio::spawn(probes::serve(on_probes, probes::probes(Arc::clone(&context)), stop.clone())),
        tokio::spawn(probes::serve(on_metrics, probes::metrics(Arc::clone(&context)), stop.clone())),
    ];
    watching::watch(&context, &mut tasks);
    let leases = Api::<Lease>::namespaced(free, &context.config.system_namespace);
    let identity = format!("{}_{}", context.config.pod_name, uuid::Uuid::new_v4());
    let candidate = Candidate::new(leases, system::OPERATOR, identity, gate.term.clone());
    // Told to stop, `lead` ends by itself, in order.
    let ended = tokio::select! {
        ended = lead(&context, candidate, &shutdown) => ended,
        // A probe that cannot be served, or a watch that ended: only a new process helps.
        ended = first(serving) => Err(anyhow::anyhow!("a port cannot be served: {ended}")),
        _ = tasks.join_next() => Err(anyhow::anyhow!("a watch ended")),
    };
    stop.cancel();
    tasks.shutdown().await;
    ended
}

async fn first(serving: [tokio::task::JoinHandle<std::io::Result<()>>; 2]) -> String {
    let [one, other] = serving;
    let ended = tokio::select! { ended = one => ended, ended = other => ended };
    match ended {
        Ok(Ok(())) => "it ended".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    }
}

async fn lead(context: &Arc<Context>, mut candidate: Candidate, shutdown: &CancellationToken) -> anyhow::Result<()> {
    tokio::select! {
        filled = context.caches()?.wait() => anyhow::ensure!(filled, "a watch ended before it had listed"),
        () = shutdown.cancelled() => return Ok(()),
    }
    context.set_synced();
    tracing::info!("caches are filled");
    loop {
        context.metrics.leading(false);
        tokio::select! {
            () = candidate.win() => {}
            () = shutdown.cancelled() => return Ok(()),
        }
        context.metrics.leading(true);
        let mut workers = JoinSet::new();
        for controller in controller::Controller::ALL {
            controller.queue(context).reset();
        }
        tokio::select! {
            () = candidate.hold() => {}
            () = keep_keys(context, &mut workers) => {}
            () = shutdown.cancelled() => {
                // Nothing is written any more before the Lease is given back.
                workers.shutdown().await;
                candidate.release().await;
                return Ok(());
            }
        }
        workers.shutdown().await;
    }
}

/// Makes the release's keys, then starts the workers, then keeps the keys. Never returns.
async fn keep_keys(context: &Arc<Context>, workers: &mut JoinSet<()>) {
    let mut started = false;
    let mut failures = 0;
    loop {
        let wait = match ensure(&context.client, &context.config.system_namespace, Timestamp::now()).await {
            Ok((keys, due)) => {
                failures = 0;
                let others = context.set_keys(keys);
                if !started {
                    started = true;
                    controller::start(context, workers);
                    context.enqueue_all();
                } else if others {
                    tracing::info!("the keys changed: every lane's Secret is renewed");
                    context.enqueue_lanes();
                }
                let seconds = due.as_second().saturating_sub(Timestamp::now().as_second()).max(1);
                Duration::from_secs(u64::try_from(seconds).unwrap_or(1)).min(KEYS_EVERY)
            }
            Err(error) => {
                tracing::error!(error = chain(&error), "the release's own secrets");
                failures += 1;
                Class::Transient.wait(failures - 1, rand::random())
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            // A change may be one of several: they are looked at together.
            () = context.queues.system.notified() => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
}
