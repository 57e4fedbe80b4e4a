//! Opens the lane `team/idle` under a folder, rests, and prints its own resident memory in MiB.
#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use lanekeeper_core::testing::HashEncoder;
use lanekeeper_lane_store::testing::Stage;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let root = std::env::args().nth(1).map(PathBuf::from).context("which folder")?;
    let stage = Stage::resume(&root, "team/idle", Arc::new(HashEncoder::new())).await;
    let store = stage.open().await;
    store.settle_down().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib: f64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").trim().parse().ok())
        .context("read VmRSS")?;
    println!("{:.1}", kib / 1024.0);
    store.close().await;
    Ok(())
}
