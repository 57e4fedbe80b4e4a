//! `kubectl lane`: what a lane of a cluster is, what it waits for, and the client commands on it.
//!
//! What must always hold: it acts with the rights of the person who runs it and asks for no others; the client
//! commands go the way every caller goes (a ServiceAccount's own token, the query service, the lane's `access`), so
//! that a right on Kubernetes objects is never a right on a memory. What this is not: the operator. It changes one
//! object, and only when told to (`adopt`).

mod adopt;
mod advice;
mod chain;
mod cluster;
mod door;
mod orphans;
mod status;
mod why;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use lanekeeper_core::LaneName;

use self::cluster::Cluster;
use crate::client::Connection;
use crate::command;
use crate::failure::Failure;

/// Lanes of a cluster: how they are, what they wait for, what they remember.
#[derive(Debug, Parser)]
#[command(name = "kubectl-lane", bin_name = "kubectl lane", version, max_term_width = 110, propagate_version = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    verb: Verb,
}

/// Which cluster, and as whom.
#[derive(Debug, Args)]
struct Target {
    /// The kubeconfig; default: KUBECONFIG, or the one in your home.
    #[arg(long, global = true, value_name = "FILE", help_heading = "Cluster")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME", help_heading = "Cluster")]
    context: Option<String>,
    /// Namespace of a lane that is named without one; default: the context's.
    #[arg(short, long, global = true, value_name = "NAME", help_heading = "Cluster")]
    namespace: Option<String>,
    /// Namespace of the release.
    #[arg(
        long,
        global = true,
        env = "LANEKEEPER_SYSTEM_NAMESPACE",
        value_name = "NAME",
        default_value = lanekeeper_core::cluster::SYSTEM_NAMESPACE,
        help_heading = "Cluster"
    )]
    system_namespace: String,
    /// The ServiceAccount that recall, verify, forget and memory ask as; default: the only one in the lane's `access`.
    #[arg(long, global = true, value_name = "NAMESPACE/NAME", help_heading = "Cluster")]
    account: Option<LaneName>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// The whole chain of one lane in words: record, volume, store, vectors, embedder.
    Status(Named),
    /// What a lane waits for, and what to change.
    Why(Named),
    /// Give a lane the memory that is retained under its name.
    Adopt(adopt::Adopt),
    /// Volumes and records whose lane is gone.
    Orphans(orphans::Orphans),
    /// Ask what is remembered.
    Recall(command::recall::Recall),
    /// Verify a lane's whole log, or, offline, a file.
    Verify(command::verify::Verify),
    /// Forget events, a session, or curated paragraphs.
    Forget(command::forget::Forget),
    /// Curated memory: read, search, edit, replace.
    #[command(subcommand)]
    Memory(command::memory::Memory),
}

/// One lane.
#[derive(Debug, Args)]
struct Named {
    /// `NAME`, or `NAMESPACE/NAME`.
    lane: String,
}

impl Verb {
    /// For what asks the query service: the way to it, and the lane that is named.
    fn way(&mut self) -> Option<(&mut Connection, Option<LaneName>)> {
        match self {
            Self::Status(_) | Self::Why(_) | Self::Adopt(_) | Self::Orphans(_) => None,
            Self::Recall(recall) => Some((&mut recall.connection, recall.lanes.first().cloned())),
            Self::Verify(verify) => Some((&mut verify.connection, verify.lane.lane.clone())),
            Self::Forget(forget) => Some((&mut forget.connection, forget.lane.lane.clone())),
            Self::Memory(memory) => {
                let (connection, lane) = memory.way();
                Some((connection, lane.lane.clone()))
            }
        }
    }
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { target, mut verb } = arguments;
    if let Verb::Verify(verify) = verb {
        // Verifying a file asks nobody.
        if verify.file.is_some() {
            return verify.run().await;
        }
        verb = Verb::Verify(verify);
    }
    let Target { kubeconfig, context, namespace, system_namespace, account } = target;
    let cluster = Cluster::open(kubeconfig, context, namespace, system_namespace).await?;
    // Open until the command has ended.
    let mut door = None;
    if let Some((connection, lane)) = verb.way() {
        let (opened, through) = door::open(&cluster, account.as_ref(), lane.as_ref()).await?;
        connection.through = Some(through);
        door = Some(opened);
    }
    let outcome = match verb {
        Verb::Status(named) => status::run(&cluster, &cluster.lane_name(&named.lane)?).await,
        Verb::Why(named) => why::run(&cluster, &cluster.lane_name(&named.lane)?).await,
        Verb::Adopt(adopt) => adopt.run(&cluster).await,
        Verb::Orphans(orphans) => orphans.run(&cluster).await,
        Verb::Recall(recall) => recall.run().await,
        Verb::Verify(verify) => verify.run().await,
        Verb::Forget(forget) => forget.run().await,
        Verb::Memory(memory) => memory.run().await,
    };
    drop(door);
    outcome
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Arguments::command().debug_assert();
    }
}
