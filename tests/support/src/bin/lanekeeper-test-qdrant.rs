//! The test server as a program, for clusters that cannot have the real image. Not a product: see the crate.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use lanekeeper_test_support::qdrant::QdrantServer;

/// Qdrant's services over its in-process engine, for tests.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where the collections are kept.
    #[arg(long)]
    dir: PathBuf,
    /// Address of the gRPC port.
    #[arg(long, default_value = "0.0.0.0:6334")]
    grpc: SocketAddr,
    /// Address of the REST port.
    #[arg(long, default_value = "0.0.0.0:6333")]
    rest: SocketAddr,
    /// File that holds the API key. Without it no key is asked for.
    #[arg(long)]
    api_key_file: Option<PathBuf>,
}

fn main() -> Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let api_key = arguments
        .api_key_file
        .map(|file| std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display())))
        .transpose()?
        .map(|key| key.trim().to_owned());
    anyhow::ensure!(api_key.as_ref().is_none_or(|key| !key.is_empty()), "the API key is empty");
    let mut server = QdrantServer::start_at(arguments.dir, api_key, arguments.grpc, arguments.rest)?;
    tracing::info!(grpc = %server.url(), rest = %server.rest_url(), "the test server answers");
    server.wait()?;
    server.kill();
    Ok(())
}
