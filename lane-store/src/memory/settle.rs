//! From the log to the disk: what is committed and not yet written is written.

use lanekeeper_core::hooks::{Fault, fault};
use lanekeeper_core::{EventId, LaneError};
use sqlx::SqliteConnection;

use super::absorb::{conflict, version_bytes};
use super::blocking;
use super::file::{Disk, OwnerFolder, Replaced, digest};
use super::rows::{self, FileRow};
use crate::append::event_id;
use crate::error::{StoreError, statement};
use crate::store::LaneStore;

/// How often a file may change under our hands before we give up for now.
const TRIES: usize = 4;

impl LaneStore {
    /// Writes an owner's file if it is unwritten. The memory lock is held.
    pub(super) async fn settle_file(&self, owner: &str) -> Result<(), LaneError> {
        let folder = self.owner_folder(owner)?;
        for _ in 0..TRIES {
            let mut conn = self.reader().await?;
            let row = rows::file_row(&mut conn, owner).await?.filter(|row| row.unwritten);
            let Some(row) = row else { return Ok(()) };
            failpoint("memory_committed")?;
            let written = self.write_out(&mut conn, &folder, row).await?;
            drop(conn);
            match written {
                Replaced::Done => {
                    failpoint("memory_renamed")?;
                    return self.mark_written(owner, row).await;
                }
                Replaced::Changed(bytes) => self.keep_late_edit(owner, row, &bytes).await?,
            }
        }
        Err(LaneError::Unavailable { what: "the curated file, which someone is writing to,".into() })
    }

    async fn write_out(
        &self,
        conn: &mut SqliteConnection,
        folder: &OwnerFolder,
        row: FileRow,
    ) -> Result<Replaced, LaneError> {
        let FileRow { digest: expected, event_seq, unwritten: _, replaces, conflict_seq } = row;
        let body = rows::body(conn, event_seq).await?;
        let text = body.map(|body| body.text).filter(|text| digest(text.as_bytes()) == expected);
        let Some(text) = text else {
            return Err(LaneError::internal("the last version of a curated file does not match its digest"));
        };
        let kept = match conflict_seq {
            Some(seq) => rows::body(conn, seq).await?.zip(event_id(conn, seq).await?),
            None => None,
        };
        let here = folder.clone();
        let beside = blocking(move || here.conflicts()).await?;
        let forgotten = forgotten_of(conn, &beside).await?;
        let folder = folder.clone();
        blocking(move || {
            // The old bytes are safe beside the file before the file goes.
            if let Some((body, event)) = kept {
                folder.keep_conflict(event, &version_bytes(&body))?;
            }
            for event in forgotten {
                folder.drop_conflict(event)?;
            }
            folder.replace(&text, replaces)
        })
        .await
    }

    async fn mark_written(&self, owner: &str, row: FileRow) -> Result<(), LaneError> {
        let name = owner.to_owned();
        let marked = self
            .writer()?
            .write(move |tx| {
                Box::pin(async move {
                    sqlx::query(
                        "UPDATE memory_files SET unwritten = 0, replaces = NULL, conflict_seq = NULL
                         WHERE owner = ? AND event_seq = ?",
                    )
                    .bind(name)
                    .bind(row.event_seq.0.cast_signed())
                    .execute(tx.conn())
                    .await
                    .map_err(statement)?;
                    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM memory_files WHERE unwritten = 1)")
                        .fetch_one(tx.conn())
                        .await
                        .map_err(statement)
                })
            })
            .await;
        match marked {
            Ok(others) => self.state.set_memory_unwritten(others),
            // File and log agree; that they do is found out again next time.
            Err(error) => tracing::warn!(code = error.code(), "a written curated file is not marked as such yet"),
        }
        Ok(())
    }

    /// Someone edited the file after the commit: the edit is kept, the committed version stands.
    async fn keep_late_edit(&self, owner: &str, row: FileRow, bytes: &[u8]) -> Result<(), LaneError> {
        let body = conflict(owner, bytes);
        let found = digest(bytes);
        let owner = owner.to_owned();
        self.writer()?
            .write(move |tx| {
                Box::pin(async move {
                    let event = rows::append_version(tx, None, &body).await?;
                    let row = FileRow { replaces: Some(found), conflict_seq: Some(event.seq), ..row };
                    rows::set_file(tx, &owner, &row).await
                })
            })
            .await
    }

    /// Brings every file up to the log: after a kill, a volume that was full, a removed file. What cannot be
    /// written now never keeps a lane from opening: reads go by the log meanwhile.
    pub(crate) async fn heal_memory(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.memory_lock.lock().await;
        if self.state.read_only().is_some() {
            return Ok(());
        }
        let mut conn = self.reader().await?;
        let owners = rows::owners(&mut conn).await?;
        drop(conn);
        let mut healed = true;
        for owner in owners {
            if let Err(error) = self.heal_owner(&owner).await {
                healed = false;
                tracing::warn!(code = error.code(), "a curated file is behind the log");
            }
        }
        self.state.set_memory_unwritten(!healed);
        Ok(())
    }

    async fn heal_owner(&self, owner: &str) -> Result<(), LaneError> {
        let folder = self.owner_folder(owner)?;
        let here = folder.clone();
        let disk = blocking(move || {
            here.drop_leftovers()?;
            here.read()
        })
        .await?;
        self.settle_file(owner).await?;
        if disk != Disk::Missing {
            return Ok(());
        }
        let mut conn = self.reader().await?;
        let Some(row) = rows::file_row(&mut conn, owner).await? else { return Ok(()) };
        self.write_out(&mut conn, &folder, row).await.map(drop)
    }
}

fn failpoint(point: &'static str) -> Result<(), LaneError> {
    match fault(point) {
        Fault::Error => Err(LaneError::Unavailable { what: "the curated file on the volume".into() }),
        Fault::None | Fault::SlowMs(_) => Ok(()),
    }
}

/// Of these events those whose body is gone.
async fn forgotten_of(conn: &mut SqliteConnection, events: &[EventId]) -> Result<Vec<EventId>, LaneError> {
    let mut forgotten = Vec::new();
    for event in events {
        let gone: Option<bool> = sqlx::query_scalar("SELECT body IS NULL FROM events WHERE id = ?")
            .bind(event.as_uuid().as_bytes().as_slice())
            .fetch_optional(&mut *conn)
            .await
            .map_err(statement)?;
        if gone == Some(true) {
            forgotten.push(*event);
        }
    }
    Ok(forgotten)
}
