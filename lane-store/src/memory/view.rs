//! Reading: files as they are on disk, paragraphs with their place in the log. Writes nothing.
//!
//! The disk is read before the tables. If they differ, the difference is a commit whose file is still to be
//! written (the log's version is shown), a save in between (the disk is read again) or an edit by hand (the
//! disk's version is shown; paragraphs that no event holds yet have seq 0).

use std::collections::BTreeMap;

use caseless::default_case_fold_str;
use lanekeeper_core::lane_client::Caller;
use lanekeeper_core::time::format_rfc3339_ms;
use lanekeeper_core::wire::memory::{MemoryDocument, MemoryPage, Paragraph};
use lanekeeper_core::{EventId, LaneError, Seq};
use sqlx::{Connection, SqliteConnection};

use super::absorb::{Standing, current_text, standing, version};
use super::file::{Disk, etag, owners};
use super::paragraphs::{continued, hand_id, texts};
use super::rows::{self, FileRow};
use super::{blocking, may_read};
use crate::error::statement;
use crate::recall::paragraphs::{StoredParagraph, readable};
use crate::store::LaneStore;
use crate::text::analyze::document_tokens;

/// What a caller may read, by owner.
#[derive(Debug, Default)]
pub(crate) struct Visible {
    pub(crate) documents: Vec<MemoryDocument>,
    pub(crate) paragraphs: Vec<StoredParagraph>,
}

impl LaneStore {
    /// A listing for an empty query, else a literal search. The caller is admitted to the lane already.
    pub(crate) async fn list_memory(&self, caller: &Caller, query: &str) -> Result<MemoryPage, LaneError> {
        let mut conn = self.reader().await?;
        let Visible { documents, paragraphs } = self.visible_memory(&mut conn, caller).await?;
        let paragraphs = paragraphs.into_iter().map(|stored| stored.paragraph);
        if query.trim().is_empty() {
            return Ok(MemoryPage { mode: "listing".into(), documents, paragraphs: paragraphs.collect() });
        }
        let wanted = default_case_fold_str(query);
        let paragraphs: Vec<Paragraph> =
            paragraphs.filter(|paragraph| default_case_fold_str(&paragraph.text).contains(&wanted)).collect();
        let held = |owner: &str| paragraphs.iter().any(|paragraph| paragraph.owner == owner);
        let documents = documents.into_iter().filter(|document| held(&document.owner)).collect();
        Ok(MemoryPage { mode: "search".into(), documents, paragraphs })
    }

    /// Files and paragraphs of the owners that this caller may read; for listing, search and recall alike.
    pub(crate) async fn visible_memory(
        &self,
        conn: &mut SqliteConnection,
        caller: &Caller,
    ) -> Result<Visible, LaneError> {
        let mut disks = self.disks(caller).await?;
        // One snapshot, so that a row and its paragraphs are of one version. It ends when this is dropped.
        let mut snapshot = conn.begin().await.map_err(statement)?;
        let visible = self.visible_in(&mut snapshot, caller, &mut disks).await?;
        snapshot.rollback().await.map_err(statement)?;
        Ok(visible)
    }

    /// The files of every owner with a folder that this caller may read.
    async fn disks(&self, caller: &Caller) -> Result<BTreeMap<String, Disk>, LaneError> {
        let memory = self.volume.memory();
        let names = blocking(move || owners(&memory)).await?;
        let mut folders = Vec::new();
        for name in names {
            if let (true, Ok(folder)) = (may_read(caller, &name), self.owner_folder(&name)) {
                folders.push((name, folder));
            }
        }
        blocking(move || folders.into_iter().map(|(name, folder)| Ok((name, folder.read()?))).collect()).await
    }

    async fn visible_in(
        &self,
        conn: &mut SqliteConnection,
        caller: &Caller,
        disks: &mut BTreeMap<String, Disk>,
    ) -> Result<Visible, LaneError> {
        let mut stored: BTreeMap<String, Vec<StoredParagraph>> = BTreeMap::new();
        for paragraph in readable(conn, caller).await? {
            stored.entry(paragraph.paragraph.owner.clone()).or_default().push(paragraph);
        }
        for owner in rows::owners(conn).await? {
            if may_read(caller, &owner) {
                disks.entry(owner).or_insert(Disk::Missing);
            }
        }
        let mut visible = Visible::default();
        for (owner, disk) in disks {
            let row = rows::file_row(conn, owner).await?;
            let differs = disk.digest().is_some() && disk.digest() != row.map(|row| row.digest);
            if differs && row.is_some_and(|row| row.unwritten) {
                *disk = Disk::Missing;
            } else if differs {
                let folder = self.owner_folder(owner)?;
                *disk = blocking(move || folder.read()).await?;
            }
            if row.is_none() && disk.digest().is_none() {
                continue;
            }
            let rows = stored.remove(owner.as_str()).unwrap_or_default();
            self.show(conn, owner, disk, row.as_ref(), rows, &mut visible).await?;
        }
        Ok(visible)
    }

    async fn show(
        &self,
        conn: &mut SqliteConnection,
        owner: &str,
        disk: &Disk,
        row: Option<&FileRow>,
        stored: Vec<StoredParagraph>,
        visible: &mut Visible,
    ) -> Result<(), LaneError> {
        match disk {
            Disk::TooLarge | Disk::NotAFile => tracing::warn!("a curated file cannot be served; its last version is"),
            Disk::Missing | Disk::Text { .. } | Disk::NotText { .. } => {}
        }
        let text = current_text(conn, disk, row).await?;
        match (standing(disk, row), disk) {
            (Standing::Edited(edited), Disk::Text { digest, modified_ms, .. }) => {
                let language = self.settings().language;
                let mut old: Vec<Option<StoredParagraph>> = stored.into_iter().map(Some).collect();
                let new = texts(edited);
                let places = {
                    let old: Vec<&str> = old.iter().flatten().map(|stored| stored.paragraph.text.as_str()).collect();
                    continued(&old, &new)
                };
                for (position, (text, place)) in new.iter().zip(places).enumerate() {
                    let known = place.and_then(|place| old[place].take());
                    let mut shown = known.unwrap_or_else(|| StoredParagraph {
                        paragraph: Paragraph {
                            id: hand_id(owner, *digest, position),
                            owner: owner.to_owned(),
                            position: 0,
                            text: (*text).to_owned(),
                            event_id: EventId::from_uuid(uuid::Uuid::nil()),
                            seq: Seq(0),
                            at: format_rfc3339_ms(*modified_ms),
                        },
                        at_ms: *modified_ms,
                        tokens: document_tokens(text, language).join(" "),
                    });
                    shown.paragraph.position = u32::try_from(position).unwrap_or(u32::MAX);
                    visible.paragraphs.push(shown);
                }
            }
            _ => visible.paragraphs.extend(stored),
        }
        visible.documents.push(MemoryDocument { owner: owner.to_owned(), etag: etag(version(disk, row)), text });
        Ok(())
    }
}
