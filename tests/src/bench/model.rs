//! The built-in model against onnxruntime of its PyPI wheel, on the same texts.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::report::{Aim, Figure};

/// Runs both in turns, three times, and compares the best of each.
pub(crate) fn run() -> Result<Vec<Figure>> {
    let mut ours: f64 = 0.0;
    let mut theirs: f64 = 0.0;
    let mut query_ms = f64::INFINITY;
    for _ in 0..3 {
        let output = Command::new(env!("CARGO"))
            .args(["run", "-q", "-p", "lanekeeper-embedder", "--example", "throughput"])
            .output()
            .context("run the throughput example")?;
        let value: Value = serde_json::from_slice(&output.stdout).context("read the throughput example")?;
        ours = ours.max(value["chunks_per_s"].as_f64().unwrap_or(0.0));
        query_ms = query_ms.min(value["query_ms_p50"].as_f64().unwrap_or(f64::INFINITY));
        let output = Command::new("bash").arg("tests/bench/onnxruntime.sh").output().context("run onnxruntime")?;
        let value: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("read onnxruntime: {}", String::from_utf8_lossy(&output.stderr)))?;
        theirs = theirs.max(value["chunks_per_s"].as_f64().unwrap_or(0.0));
    }
    Ok(vec![
        Figure::new(
            "chunks against onnxruntime",
            ours / theirs,
            "ratio",
            Aim::AtLeast,
            0.85,
            format!("{ours:.0}/s against {theirs:.0}/s, batch 8, 2 threads, best of 3"),
        ),
        Figure::info("encoding a question", query_ms, "ms", "p50, 12 tokens"),
    ])
}
