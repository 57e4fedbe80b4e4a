//! Recall on the transcript: time against encoding plus a bare vector query, evidence recall with each step
//! left out, and how long the store takes to open.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use axum::Router;
use lanekeeper_core::encoder::{Encoder, QueryEncoding, Work, WorkKind};
use lanekeeper_lane_store::vectors::{VectorFilter, VectorStore};
use lanekeeper_query_service::rank::Steps;
use serde_json::{Value, json};

use super::percentiles;
use super::report::{Aim, Figure};
use crate::shared::{Line, questions, transcript};
use crate::world::{LaneSpec, World, call};

const LANE: &str = "apollo/thirteen";

/// Saves the transcript and waits for its vectors.
pub(crate) async fn loaded(lines: &[Line]) -> Option<(World, String)> {
    let encoder = crate::builtin()?;
    let world = World::new(encoder, vec![LaneSpec::personal(LANE, "flight")]).await;
    let token = world.token(LANE, "user:flight");
    let mut batch: Vec<Value> = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        batch.push(json!({"role": "assistant", "text": line.text, "speaker": line.speaker, "at": line.at}));
        if batch.len() == 256 || lines.get(index + 1).is_none_or(|next| next.session != line.session) {
            let body = json!({"session": line.session, "turns": std::mem::take(&mut batch)});
            world.post(&format!("/v1/lanes/{LANE}/events"), &token, body).await.expect(201);
        }
    }
    world.settle().await;
    Some((world, token))
}

async fn hits(router: &Router, token: &str, query: &str, ranking: &str) -> Vec<Value> {
    let body = json!({"query": query, "top_k": 5, "ranking": ranking}).to_string().into_bytes();
    let answer = call(router, http::Method::POST, "/v1/recall", Some(token), &[], body).await.expect(200);
    answer["hits"].as_array().cloned().unwrap_or_default()
}

async fn evidence(router: &Router, token: &str, lines: &[Line], ranking: &str) -> f64 {
    let questions = questions().unwrap_or_default();
    let mut found = 0.0;
    let mut all = 0.0;
    for question in &questions {
        let wanted: HashSet<&str> = question.lines.iter().map(|line| lines[line - 1].text.as_str()).collect();
        let hits = hits(router, token, &question.query, ranking).await;
        all += 1.0;
        if hits.iter().any(|hit| hit["text"].as_str().is_some_and(|text| wanted.contains(text))) {
            found += 1.0;
        }
    }
    found / all
}

pub(crate) async fn run() -> Result<Vec<Figure>> {
    let Some(lines) = transcript() else { return Ok(vec![]) };
    let loading = Instant::now();
    let Some((world, token)) = loaded(&lines).await else { return Ok(vec![]) };
    let loading = loading.elapsed().as_secs_f64();
    let mut figures =
        vec![Figure::info("transcript saved and projected", loading, "s", format!("{} turns, one lane", lines.len()))];
    let queries: Vec<String> = questions().unwrap_or_default().into_iter().map(|question| question.query).collect();

    // Interleaved, so that both see the same noise.
    let running = world.lane(LANE).clone();
    let copied = tempfile::tempdir()?;
    copy(&running.folder.join("vectors"), copied.path())?;
    let vectors = lanekeeper_lane_store::vectors::open_edge(copied.path(), world.encoder.dimension()).await?;
    let work = Work { lane: running.view.uid, kind: WorkKind::Query };
    let (mut recall_ms, mut bare_ms) = (Vec::new(), Vec::new());
    for round in 0..26 {
        for query in &queries {
            let from = Instant::now();
            hits(&world.router, &token, query, "fused").await;
            let recall = from.elapsed().as_secs_f64() * 1e3;
            let from = Instant::now();
            bare(world.encoder.as_ref(), vectors.as_ref(), work, query).await?;
            let bare = from.elapsed().as_secs_f64() * 1e3;
            if round > 0 {
                recall_ms.push(recall);
                bare_ms.push(bare);
            }
        }
    }
    let (r50, r95, r99) = percentiles(recall_ms);
    let (b50, _, b99) = percentiles(bare_ms);
    figures.push(Figure::new(
        "recall p50 against encode + bare query",
        r50 / b50,
        "ratio",
        Aim::AtMost,
        1.5,
        format!("{r50:.1} ms against {b50:.1} ms"),
    ));
    figures.push(Figure::new(
        "recall p99 against encode + bare query",
        r99 / b99,
        "ratio",
        Aim::AtMost,
        2.0,
        format!("{r99:.1} ms against {b99:.1} ms"),
    ));
    figures.push(Figure::new(
        "recall p95",
        r95,
        "ms",
        Aim::AtMost,
        50.0,
        "through the router, transcript of 11,259 turns",
    ));

    let fused = evidence(&world.router_with(Steps::all()), &token, &lines, "fused").await;
    let rrf = evidence(&world.router_with(Steps::all()), &token, &lines, "rrf").await;
    figures.push(Figure::new(
        "evidence recall@5, fused",
        fused,
        "share",
        Aim::AtLeast,
        rrf,
        "16 questions of the transcript; the aim is that of rrf",
    ));
    figures.push(Figure::info("evidence recall@5, rrf", rrf, "share", "the same questions"));
    for step in Steps::NAMES {
        let router = world.router_with(Steps::all().without(step)?);
        let value = evidence(&router, &token, &lines, "fused").await;
        figures.push(Figure::info(
            &format!("evidence recall@5 without {step}"),
            value,
            "share",
            "fused, one step left out",
        ));
    }

    figures.push(open(world).await?);
    Ok(figures)
}

/// The engine allows one opener a folder, so the baseline asks a copy.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            std::fs::copy(&path, &target)?;
        }
    }
    Ok(())
}

/// What a recall cannot do without: the question encoded, one vector query.
async fn bare(encoder: &dyn Encoder, vectors: &dyn VectorStore, work: Work, query: &str) -> Result<()> {
    let encoding = encoder.encode_query(work, query).await?;
    let mut vector = vec![0.0_f32; encoder.dimension()];
    match encoding {
        QueryEncoding::Pooled(pooled) => vector = pooled,
        QueryEncoding::States { tokens, .. } => {
            for token in &tokens {
                vector.iter_mut().zip(&token.state).for_each(|(sum, value)| *sum += value);
            }
        }
    }
    vectors.search(vector, VectorFilter::default(), 100, 0).await?;
    Ok(())
}

/// Opening a closed store with the transcript in it, vectors and all.
async fn open(world: World) -> Result<Figure> {
    let running = world.lane(LANE).clone();
    world.close().await;
    let parts = lanekeeper_lane_store::LaneParts {
        registry: world.registry.clone(),
        encoder: world.encoder.clone(),
        vectors: None,
        clock: Arc::new(lanekeeper_core::clock::SystemClock),
    };
    let config = running.store.config().clone();
    drop(running);
    let mut world = world;
    world.forget_handles();
    let from = Instant::now();
    let store = lanekeeper_lane_store::LaneStore::open(config, parts).await?;
    let seconds = from.elapsed().as_secs_f64();
    store.close().await;
    Ok(Figure::new(
        "open with the transcript",
        seconds,
        "s",
        Aim::AtMost,
        2.0,
        "11,259 turns, until it serves; the full walk goes on behind",
    ))
}
