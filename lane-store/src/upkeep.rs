//! Background work of an open store: projector, healing, the full walk, publishing the head, expiry.

use std::sync::{Arc, Weak};
use std::time::Duration;

use lanekeeper_core::Seq;

use crate::projection::projector;
use crate::store::LaneStore;

/// How often upkeep looks.
const TICK: Duration = Duration::from_millis(500);
/// The head is published at most this often, milliseconds.
const PUBLISH_MS: i64 = 60_000;
/// A curated file that could not be written is tried again after this time, milliseconds.
const MEMORY_MS: i64 = 5_000;
/// A process that could not write itself into the record tries again after this time, milliseconds.
const HOLDER_MS: i64 = 5_000;
/// Healing and expiry, milliseconds.
const HOURLY_MS: i64 = 3_600_000;

/// Starts everything.
pub(crate) fn start(store: &Arc<LaneStore>) {
    store.keep(tokio::spawn(first(Arc::downgrade(store), store.stopping())));
    store.keep(tokio::spawn(run(Arc::downgrade(store), store.stopping())));
}

/// Heals before the projector starts, so that it does not work on claims that healing reopens; then walks
/// the whole log.
async fn first(store: Weak<LaneStore>, mut stop: tokio::sync::watch::Receiver<bool>) {
    let Some(strong) = store.upgrade() else { return };
    if let Err(error) = strong.settle_keys().await {
        tracing::warn!(%error, "what was derived under other keys was not made again yet");
    }
    if let Err(error) = strong.heal_vectors().await {
        tracing::warn!(%error, "the vectors were not compared at open");
    }
    projector::start(&strong);
    let walk = async {
        match strong.verify_whole().await {
            Ok(report) if report.ok => {
                tracing::info!(events = report.events, signed_up_to = report.signed_up_to, "the log holds")
            }
            Ok(report) => tracing::error!(statement = %report.statement, "the log does not hold"),
            Err(error) => tracing::warn!(%error, "the log was not walked"),
        }
    };
    tokio::select! {
        () = walk => {}
        _ = stop.changed() => {}
    }
}

async fn run(store: Weak<LaneStore>, mut stop: tokio::sync::watch::Receiver<bool>) {
    let mut published = Seq(0);
    let mut published_ms = i64::MIN;
    let mut hourly_ms: Option<i64> = None;
    let mut memory_ms = i64::MIN;
    let mut holder_ms = i64::MIN;
    loop {
        tokio::select! {
            () = tokio::time::sleep(TICK) => {}
            changed = stop.changed() => if changed.is_err() || *stop.borrow() { return },
        }
        let Some(store) = store.upgrade() else { return };
        let now = store.clock.now_ms();
        let hourly = *hourly_ms.get_or_insert(now);
        // The registry may not have answered at open.
        if now.saturating_sub(holder_ms) >= HOLDER_MS {
            holder_ms = now;
            store.become_holder().await;
        }
        store.bind().await;
        let (seq, _) = store.head();
        if seq != published && now.saturating_sub(published_ms) >= PUBLISH_MS {
            match store.publish_head(false).await {
                Ok(_) => {
                    published = seq;
                    published_ms = now;
                }
                Err(error) => tracing::warn!(%error, "the head was not published"),
            }
        }
        if store.state.wal_holds_erased() {
            store.empty_wal().await;
        }
        // A save that was given up between its commit and its file, or a volume that was full.
        if store.state.memory_unwritten() && now.saturating_sub(memory_ms) >= MEMORY_MS {
            memory_ms = now;
            if let Err(error) = store.heal_memory().await {
                tracing::warn!(%error, "curated files were not brought up to the log");
            }
        }
        if now - hourly >= HOURLY_MS {
            hourly_ms = Some(now);
            store.hourly().await;
        }
    }
}

impl LaneStore {
    /// An empty group: its commit empties the write-ahead log if no reader needs it any more.
    async fn empty_wal(&self) {
        if let Ok(writer) = self.writer() {
            let _ = writer
                .write(|tx| {
                    Box::pin(async move {
                        tx.truncate_wal_after();
                        Ok(())
                    })
                })
                .await;
        }
    }

    async fn hourly(&self) {
        if let Err(error) = self.settle_keys().await {
            tracing::warn!(%error, "what was derived under other keys was not made again yet");
        }
        if let Err(error) = self.heal_vectors().await {
            tracing::warn!(%error, "the vectors were not compared");
        }
        if let Ok(writer) = self.writer() {
            if let Err(error) = writer.write(|tx| Box::pin(crate::idempotency::expire(tx))).await {
                tracing::warn!(%error, "old Idempotency-Keys were not dropped");
            }
            if let Err(error) = writer.write(|tx| Box::pin(crate::claims::retry_refused(tx))).await {
                tracing::warn!(%error, "refused inputs were not let in again");
            }
            self.touched();
        }
    }
}
