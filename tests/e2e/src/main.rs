//! The product on a real cluster.
//!
//! Boots one node (tests/cluster), or takes the cluster that KUBECONFIG names; installs the chart with helm;
//! runs the cases and prints one line a case as a test runner would, so that `cargo xtask cases` reads them.
//! A case that cannot run here says why: nothing is left out in silence.
//!
//! It judges from outside alone, by the API server, the query service's API and the audit log. It knows no
//! part of the product but the kinds.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line program speaks through both")]

mod api;
mod bench;
mod case;
mod cases;
mod chart;
mod cleanup;
mod evidence;
mod forward;
mod image;
mod inside;
mod journal;
mod lanes;
mod metrics;
mod node;
mod qdrant;
mod shell;
mod wait;
mod world;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

/// The product on a real cluster.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    run: Run,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Runs in a pod: the control test, with the token that was projected into it.
    Inside(inside::Inside),
}

#[derive(Debug, Args)]
struct Run {
    /// Only these cases, by number or name; several are separated by commas.
    #[arg(long, env = "ONLY", value_delimiter = ',')]
    only: Vec<String>,
    /// Say which cases there are, and run none.
    #[arg(long)]
    list: bool,
    /// Measure instead of judge, and write docs/benchmarks-cluster.md.
    #[arg(long, conflicts_with_all = ["only", "list", "kubeconfig"])]
    bench: bool,
    /// Leave the cluster up, and what failed cases made in it.
    #[arg(long, env = "KEEP")]
    keep: bool,
    /// A kubeconfig of a cluster to run on. Default: boot one.
    // Not from the environment: a shell often names a cluster that nobody meant.
    #[arg(long)]
    kubeconfig: Option<std::path::PathBuf>,
    /// The product's image, where the cluster is not ours; it must be able to pull it.
    #[arg(long, env = "LANEKEEPER_E2E_IMAGE", value_name = "REPOSITORY:TAG")]
    image: Option<String>,
    /// Where the programs were built.
    #[arg(long, env = "CARGO_TARGET_DIR", default_value = "target")]
    target: std::path::PathBuf,
}

fn main() -> ExitCode {
    // Exactly one provider, before anything speaks TLS.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("error: a second cryptography provider is linked in");
        return ExitCode::FAILURE;
    }
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome: Result<bool> = runtime.block_on(async {
        match arguments.what {
            Some(What::Inside(inside)) => inside.run().await.map(|()| true),
            None => case::run(arguments.run).await,
        }
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
