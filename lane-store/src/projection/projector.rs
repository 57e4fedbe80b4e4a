//! The projector: takes open claims, has them encoded, writes points, marks them COMPLETE.
//!
//! # Flow
//! 1. Drain the purge outbox: forgotten vectors go first.
//! 2. Read a batch of open claims.
//! 3. Encode the owners' passages.
//! 4. Delete an owner's old points, write the new ones, flush.
//! 5. In one transaction re-check each claim and mark it COMPLETE; what is no longer wanted is deleted from
//!    the engine.
//!
//! An embedder or engine that fails is retried with growing pauses; saves go on meanwhile and
//! `pending_projection` counts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_core::encoder::{EncodeError, Passage, PassageVector, Work, WorkKind};
use lanekeeper_core::hooks::fault;
use lanekeeper_core::{EventId, LaneError};
use sqlx::{Row, SqliteConnection};

use super::passages::{OwnedTurn, passages, read};
use crate::claims::{self, OpenClaim, PROMPT_VERSION, TASK, TASK_VERSION, point_id};
use crate::error::statement;
use crate::store::LaneStore;
use crate::text::windows::split;
use crate::vectors::{Payload, Point, VectorError};

/// Claims of one round.
const BATCH: u32 = 128;
/// Longest pause after failures.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Why a round did not get through.
#[derive(Debug)]
enum Trouble {
    Embedder(EncodeError),
    Engine(VectorError),
    Lane(LaneError),
}

impl Trouble {
    const fn code(&self) -> &'static str {
        match self {
            Self::Embedder(EncodeError::Overloaded) => "embedder_overloaded",
            Self::Embedder(EncodeError::Unavailable { .. }) => "embedder_unavailable",
            Self::Embedder(EncodeError::ModelMismatch { .. }) => "model_mismatch",
            Self::Embedder(EncodeError::Refused { .. }) => "embedder_refused",
            Self::Engine(error) => error.reason(),
            Self::Lane(_) => "lane_not_writable",
        }
    }
}

/// Runs until the store closes.
pub(crate) async fn run(store: std::sync::Weak<LaneStore>, mut stop: tokio::sync::watch::Receiver<bool>) {
    let mut pause = Duration::from_millis(100);
    loop {
        let Some(strong) = store.upgrade() else { return };
        let wake = strong.projector_wake.clone();
        let notified = wake.notified();
        // An embedder that hangs must not hold up the close: what is cut off is as after a crash.
        let outcome = tokio::select! {
            outcome = strong.project_once() => outcome,
            _ = stop.wait_for(|stopping| *stopping) => return,
        };
        drop(strong);
        let wait = match outcome {
            Ok(true) => {
                pause = Duration::from_millis(100);
                if *stop.borrow() {
                    return;
                }
                continue;
            }
            Ok(false) => {
                pause = Duration::from_millis(100);
                Duration::from_secs(3600)
            }
            Err(code) => {
                if let Some(store) = store.upgrade() {
                    store.state.set_projection_trouble(Some(code));
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
                pause
            }
        };
        // With nothing to do a save wakes it; in trouble only time does, or a storm of saves would be a
        // storm of retries.
        let in_trouble = outcome.is_err();
        tokio::select! {
            () = notified, if !in_trouble => {}
            () = tokio::time::sleep(wait) => {}
            changed = stop.changed() => if changed.is_err() || *stop.borrow() { return },
        }
    }
}

impl LaneStore {
    /// One round. `true`: there may be more to do.
    async fn project_once(&self) -> Result<bool, &'static str> {
        let outcome = self.round().await;
        match outcome {
            Ok(more) => {
                self.state.set_projection_trouble(None);
                Ok(more)
            }
            Err(trouble) => {
                match &trouble {
                    Trouble::Embedder(error) => tracing::warn!(%error, "projection waits"),
                    Trouble::Engine(error) => tracing::warn!(%error, "projection waits"),
                    Trouble::Lane(LaneError::Internal { cause }) => tracing::error!(%cause, "projection waits"),
                    Trouble::Lane(error) => tracing::warn!(%error, "projection waits"),
                }
                Err(trouble.code())
            }
        }
    }

    async fn round(&self) -> Result<bool, Trouble> {
        let drained = self.drain_outbox().await?;
        let mut conn = self.reader().await.map_err(Trouble::Lane)?;
        let open = claims::open(&mut conn, self.encoder.fingerprint(), BATCH).await.map_err(Trouble::Lane)?;
        if open.is_empty() {
            drop(conn);
            self.finish_shadow().await?;
            return Ok(false);
        }
        let settings = self.settings();
        let mut turns = Vec::new();
        let mut stale = Vec::new();
        for claim in open {
            if !claim.running {
                stale.push(claim);
                continue;
            }
            let turn = read(&mut conn, claim.owner, &settings.projected_roles).await.map_err(Trouble::Lane)?;
            // A claim whose owner is gone is released by the forget; one that raced us is seen next round.
            if let Some(turn) = turn {
                turns.push((claim, turn));
            }
        }
        let progressed = !turns.is_empty() || !stale.is_empty();
        let mut payloads = Vec::new();
        for (claim, turn) in &turns {
            payloads.push(self.payload(&mut conn, claim, turn.id).await.map_err(Trouble::Lane)?);
        }
        let mut refreshed = Vec::new();
        for claim in stale {
            let id = crate::append::event_id(&mut conn, claim.owner).await.map_err(Trouble::Lane)?;
            if let Some(id) = id {
                let payload = self.payload(&mut conn, &claim, id).await.map_err(Trouble::Lane)?;
                refreshed.push((claim, payload));
            }
        }
        drop(conn);
        self.refresh_payloads(refreshed).await?;
        if !turns.is_empty() {
            self.project_or_part(turns, payloads).await?;
        }
        Ok(progressed || drained)
    }

    /// Deletes forgotten vectors, durably, then their outbox rows.
    async fn drain_outbox(&self) -> Result<bool, Trouble> {
        let mut conn = self.reader().await.map_err(Trouble::Lane)?;
        let rows: Vec<Vec<u8>> = sqlx::query_scalar("SELECT event_id FROM purge_outbox LIMIT 1000")
            .fetch_all(&mut *conn)
            .await
            .map_err(|error| Trouble::Lane(statement(error)))?;
        drop(conn);
        if rows.is_empty() {
            return Ok(false);
        }
        for row in &rows {
            if let Ok(id) = uuid::Uuid::from_slice(row) {
                self.vectors.delete_event(EventId::from_uuid(id)).await.map_err(Trouble::Engine)?;
            }
        }
        self.vectors.flush().await.map_err(Trouble::Engine)?;
        let _ = fault("outbox_flushed");
        self.write_in(move |tx| {
            Box::pin(async move {
                for row in rows {
                    sqlx::query("DELETE FROM purge_outbox WHERE event_id = ?")
                        .bind(row)
                        .execute(tx.conn())
                        .await
                        .map_err(statement)?;
                }
                Ok(())
            })
        })
        .await?;
        Ok(true)
    }

    async fn write_in<T, F>(&self, work: F) -> Result<T, Trouble>
    where
        T: Send + 'static,
        F: for<'t> FnOnce(&'t mut crate::writer::WriteTx) -> futures::future::BoxFuture<'t, Result<T, LaneError>>
            + Send
            + 'static,
    {
        self.writer().map_err(Trouble::Lane)?.write(work).await.map_err(Trouble::Lane)
    }

    /// Sessions, roles, speakers and times of every holder, so that filters inside the engine see them all.
    async fn payload(
        &self,
        conn: &mut SqliteConnection,
        claim: &OpenClaim,
        event_id: EventId,
    ) -> Result<Payload, LaneError> {
        let rows = sqlx::query(
            "SELECT t.session, t.role, t.speaker, t.at_ms FROM claim_events e JOIN turns t ON t.seq = e.seq WHERE e.content = ?",
        )
        .bind(claim.content.as_slice())
        .fetch_all(conn)
        .await
        .map_err(statement)?;
        let mut sessions = BTreeSet::new();
        let mut roles = BTreeSet::new();
        let mut speakers = BTreeSet::new();
        let mut times = BTreeSet::new();
        for row in rows {
            sessions.insert(row.try_get::<String, _>(0).map_err(statement)?);
            roles.insert(row.try_get::<String, _>(1).map_err(statement)?);
            if let Some(speaker) = row.try_get::<Option<String>, _>(2).map_err(statement)? {
                speakers.insert(self.keys.speaker(&speaker));
            }
            times.insert(row.try_get::<i64, _>(3).map_err(statement)?);
        }
        Ok(Payload {
            event_id,
            n: 0,
            projection_task: TASK.to_owned(),
            task_version: TASK_VERSION,
            prompt_version: PROMPT_VERSION,
            embed_model: self.encoder.model().to_owned(),
            dim: u32::try_from(self.encoder.dimension()).unwrap_or(u32::MAX),
            sessions: sessions.into_iter().collect(),
            roles: roles.into_iter().collect(),
            speakers: speakers.into_iter().collect(),
            at_ms: times.into_iter().collect(),
        })
    }

    async fn refresh_payloads(&self, refreshed: Vec<(OpenClaim, Payload)>) -> Result<(), Trouble> {
        if refreshed.is_empty() {
            return Ok(());
        }
        let mut done = Vec::new();
        for (claim, payload) in refreshed {
            for n in 0..claim.points {
                let payload = Payload { n, ..payload.clone() };
                self.vectors
                    .set_payload(vec![point_id(payload.event_id, n)], payload)
                    .await
                    .map_err(Trouble::Engine)?;
            }
            done.push((claim.content, claim.token, payload.at_ms.len()));
        }
        self.vectors.flush().await.map_err(Trouble::Engine)?;
        self.write_in(move |tx| {
            Box::pin(async move {
                for (content, token, holders) in done {
                    // A holder that came or went meanwhile leaves the mark standing.
                    sqlx::query(
                        "UPDATE claims SET payload_stale = 0 WHERE content = ? AND token = ?
                         AND ? = (SELECT count(DISTINCT t.at_ms) FROM claim_events e JOIN turns t ON t.seq = e.seq WHERE e.content = claims.content)",
                    )
                    .bind(content.as_slice())
                    .bind(token.as_slice())
                    .bind(i64::try_from(holders).unwrap_or(i64::MAX))
                    .execute(tx.conn())
                    .await
                    .map_err(statement)?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Projects a batch; where the embedder refuses an input, each turn alone, so that one bad text does not
    /// hold up the others. A refused one is tried a few times and then counted as pending until upkeep.
    async fn project_or_part(&self, turns: Vec<(OpenClaim, OwnedTurn)>, payloads: Vec<Payload>) -> Result<(), Trouble> {
        match self.project(turns.clone(), payloads.clone()).await {
            Err(Trouble::Embedder(EncodeError::Refused { .. })) => {}
            other => return other,
        }
        for (turn, payload) in turns.into_iter().zip(payloads) {
            let content = turn.0.content;
            match self.project(vec![turn], vec![payload]).await {
                Err(Trouble::Embedder(EncodeError::Refused { .. })) => {
                    self.write_in(move |tx| Box::pin(claims::refused(tx, content))).await?;
                }
                other => other?,
            }
        }
        Ok(())
    }

    async fn project(&self, turns: Vec<(OpenClaim, OwnedTurn)>, payloads: Vec<Payload>) -> Result<(), Trouble> {
        let states = self.encoder.has_token_states();
        let per_turn: Vec<Vec<Passage>> = turns.iter().map(|(_, turn)| passages(turn, states)).collect();
        let vectors = self.encode(per_turn).await?;
        let mut points = Vec::new();
        let mut finished = Vec::new();
        for (((claim, turn), payload), vectors) in turns.into_iter().zip(payloads).zip(vectors) {
            // Fewer points than before must not leave old ones behind.
            self.vectors.delete_event(turn.id).await.map_err(Trouble::Engine)?;
            let count = u32::try_from(vectors.len()).unwrap_or(u32::MAX);
            for (n, vector) in (0_u32..).zip(vectors) {
                points.push(Point { id: point_id(turn.id, n), vector, payload: Payload { n, ..payload.clone() } });
            }
            finished.push((claim, turn.id, count));
        }
        self.vectors.upsert(points).await.map_err(Trouble::Engine)?;
        let _ = fault("points_written");
        self.vectors.flush().await.map_err(Trouble::Engine)?;
        let _ = fault("points_flushed");
        let unwanted: Vec<EventId> = self
            .write_in(move |tx| {
                Box::pin(async move {
                    let mut unwanted = Vec::new();
                    for (claim, id, count) in finished {
                        if !claims::complete(tx, &claim, count).await? {
                            unwanted.push((claim, id));
                        }
                    }
                    let mut gone = Vec::new();
                    for (claim, id) in unwanted {
                        // The same event may still own the content under a new token: it is projected again.
                        let owns: i64 = sqlx::query_scalar("SELECT count(*) FROM claims WHERE owner_seq = ?")
                            .bind(claim.owner.0.cast_signed())
                            .fetch_one(tx.conn())
                            .await
                            .map_err(statement)?;
                        if owns == 0 {
                            gone.push(id);
                        }
                    }
                    Ok(gone)
                })
            })
            .await?;
        for id in unwanted {
            self.vectors.delete_event(id).await.map_err(Trouble::Engine)?;
        }
        Ok(())
    }

    /// Vectors of each turn's passages; a chunk that is too long for the model is halved until it fits.
    async fn encode(&self, per_turn: Vec<Vec<Passage>>) -> Result<Vec<Vec<Vec<f32>>>, Trouble> {
        let work = Work { lane: self.config.uid, kind: WorkKind::Projection };
        // (turn, place within the turn, passage); halving keeps the order by appending a digit to the place.
        let mut todo: Vec<(usize, Vec<u32>, Passage)> = Vec::new();
        for (turn, passages) in per_turn.into_iter().enumerate() {
            for (place, passage) in (0_u32..).zip(passages) {
                todo.push((turn, vec![place], passage));
            }
        }
        let turns = todo.iter().map(|(turn, _, _)| turn + 1).max().unwrap_or(0);
        let mut done: Vec<Vec<(Vec<u32>, Vec<f32>)>> = vec![Vec::new(); turns];
        while !todo.is_empty() {
            let rest = todo.split_off(todo.len().min(256));
            let batch = std::mem::replace(&mut todo, rest);
            let texts: Vec<Passage> = batch.iter().map(|(_, _, passage)| passage.clone()).collect();
            let vectors = self.encoder.encode_passages(work, texts).await.map_err(Trouble::Embedder)?;
            for ((turn, place, passage), vector) in batch.into_iter().zip(vectors) {
                match vector {
                    PassageVector::Vector(vector) => done[turn].push((place, vector)),
                    PassageVector::ChunkTooLong => {
                        let Some((left, right)) = split(&passage.chunk) else { continue };
                        for (half, chunk) in [(0, left), (1, right)] {
                            let mut place = place.clone();
                            place.push(half);
                            todo.push((turn, place, Passage { chunk: chunk.to_owned(), ..passage.clone() }));
                        }
                    }
                }
            }
        }
        Ok(done
            .into_iter()
            .map(|mut vectors| {
                vectors.sort_by(|a, b| a.0.cmp(&b.0));
                vectors.into_iter().map(|(_, vector)| vector).collect()
            })
            .collect())
    }

    /// With no claim open, a shadow is whole: it becomes the one that is searched.
    async fn finish_shadow(&self) -> Result<(), Trouble> {
        if self.vectors.has_shadow() {
            let generation = self.vectors.swap_shadow().await.map_err(Trouble::Engine)?;
            tracing::info!(generation = generation.0, "the rebuilt vectors are searched from here on");
        }
        self.settle_mark().await.map_err(Trouble::Lane)
    }
}

/// Keeps the type of a store handle in one place.
pub(crate) fn start(store: &Arc<LaneStore>) {
    store.keep(tokio::spawn(run(Arc::downgrade(store), store.stopping())));
}
