//! Measures the built-in encoder: `throughput [--threads N] [--query-threads N] [--rounds N]` prints
//! `{"chunks_per_s": …, "chunks_per_cpu_s": …, "query_ms_p50": …, "query_ms_p95_under_load": …}`.
//! The figure by processor seconds also means something on a machine that does other work.
//!
//! 64 synthetic chunks of 512 characters (about 105 tokens), the best of the rounds; then 200
//! questions one after another, alone and beside a flood of chunks.
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::time::Instant;

use anyhow::{Context, bail};
use lanekeeper_core::LaneUid;
use lanekeeper_core::encoder::{Encoder, Passage, Work, WorkKind};
use lanekeeper_embedder::{BuiltinEncoder, BuiltinOptions, model_dir};

const WORDS: &[&str] = &[
    "the",
    "server",
    "returned",
    "an",
    "unexpected",
    "status",
    "while",
    "we",
    "were",
    "migrating",
    "customer",
    "records",
    "to",
    "another",
    "region",
    "and",
    "nobody",
    "noticed",
    "until",
    "Tuesday",
    "because",
    "alerts",
    "had",
    "been",
    "silenced",
    "for",
    "maintenance",
    "deployment",
    "of",
    "version",
    "was",
    "rolled",
    "back",
    "after",
    "review",
    "with",
    "Katharina",
    "from",
    "infrastructure",
    "team",
    "who",
    "suggested",
    "a",
    "smaller",
    "change",
    "first",
    "in",
    "staging",
];

/// Reproducible and without meaning: words drawn by a linear congruence, cut at 512 characters.
fn chunk(number: u64) -> String {
    let mut seed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::new();
    while text.len() < 512 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(WORDS[(seed >> 33) as usize % WORDS.len()]);
        text.push(if seed >> 60 == 0 { '.' } else { ' ' });
    }
    text.truncate(512);
    text
}

fn passages() -> Vec<Passage> {
    (0..64).map(|number| Passage { context: String::new(), header: String::new(), chunk: chunk(number) }).collect()
}

fn milliseconds(mut times: Vec<f64>, share: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    times[((times.len() - 1) as f64 * share) as usize] * 1e3
}

/// What this process has used of the processors, in steps of a hundredth of a second.
fn cpu_seconds() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("Linux only")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).context("too few fields")?.parse::<f64>().context("no number");
    Ok((ticks(11)? + ticks(12)?) / 100.0)
}

async fn ask(encoder: &BuiltinEncoder, lane: LaneUid) -> anyhow::Result<f64> {
    let started = Instant::now();
    let work = Work { lane, kind: WorkKind::Query };
    encoder.encode_query(work, "How do I rotate the TLS certificates of a cluster?").await?;
    Ok(started.elapsed().as_secs_f64())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut options = BuiltinOptions::default();
    let mut rounds = 5;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let number: usize = arguments.next().context("a number after it")?.parse()?;
        match argument.as_str() {
            "--threads" => options.threads = number,
            "--query-threads" => options.query_threads = number,
            "--rounds" => rounds = number,
            other => bail!("no option {other}"),
        }
    }
    let encoder = BuiltinEncoder::open_with(&model_dir()?, options)?;
    let lanes: [LaneUid; 2] =
        ["00000000-0000-4000-8000-000000000001".parse()?, "00000000-0000-4000-8000-000000000002".parse()?];
    let projection = Work { lane: lanes[0], kind: WorkKind::Projection };
    encoder.encode_passages(projection, passages()).await?;
    // The baseline is measured at the first start; it must not be part of the figures.
    while encoder.baseline().is_none() {
        tokio::task::yield_now().await;
    }

    let (mut best, mut best_cpu) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..rounds {
        let (started, cpu) = (Instant::now(), cpu_seconds()?);
        encoder.encode_passages(projection, passages()).await?;
        best = best.min(started.elapsed().as_secs_f64());
        best_cpu = best_cpu.min(cpu_seconds()? - cpu);
    }
    let mut alone = Vec::new();
    for _ in 0..200 {
        alone.push(ask(&encoder, lanes[1]).await?);
    }
    let flood = tokio::spawn({
        let encoder = encoder.clone();
        async move {
            loop {
                if encoder.encode_passages(projection, passages()).await.is_err() {
                    return;
                }
            }
        }
    });
    let mut beside = Vec::new();
    for _ in 0..100 {
        beside.push(ask(&encoder, lanes[1]).await?);
    }
    flood.abort();
    println!(
        "{}",
        serde_json::json!({
            "chunks_per_s": 64.0 / best,
            "chunks_per_cpu_s": 64.0 / best_cpu,
            "query_ms_p50": milliseconds(alone, 0.5),
            "query_ms_p95_under_load": milliseconds(beside, 0.95),
            "threads": options.threads,
            "query_threads": options.query_threads,
        })
    );
    Ok(())
}
