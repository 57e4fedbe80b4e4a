//! `make bench`: measures, prints ratios against a baseline in the same run, writes target/bench.json and
//! docs/benchmarks.md. `--check` compares the ratios with those recorded in docs/benchmarks.json.
#![expect(clippy::print_stdout, reason = "a command line program prints")]

use std::process::ExitCode;

use anyhow::Result;
use lanekeeper_tests::bench::{self, Options};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let only = arguments.iter().position(|argument| argument == "--only").and_then(|at| arguments.get(at + 1)).cloned();
    let check = arguments.iter().any(|argument| argument == "--check");
    let (report, failed) = bench::run(&Options { only }, |figure| println!("{}", figure.line())).await;
    report.write()?;
    for part in &failed {
        println!("FAILED: {part}");
    }
    if !failed.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    if check {
        let worse = report.worse_than_recorded()?;
        for line in &worse {
            println!("WORSE: {line}");
        }
        println!("{} passed, {} failed", report.figures.len() - worse.len(), worse.len());
        return Ok(if worse.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    report.record()?;
    Ok(ExitCode::SUCCESS)
}
