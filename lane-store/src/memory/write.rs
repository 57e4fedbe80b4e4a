//! A save: the whole file is replaced. See the flow in [`super`].

use lanekeeper_core::hooks::guard;
use lanekeeper_core::lane::Language;
use lanekeeper_core::lane_client::{Caller, Idempotency};
use lanekeeper_core::limits::MEMORY_BYTES;
use lanekeeper_core::wire::memory::{MemoryDocument, MemorySaveRequest, MemorySaveResponse};
use lanekeeper_core::{EventId, LaneError, Seq};
use serde::{Deserialize, Serialize};

use super::absorb::{absorb, version};
use super::file::{Disk, digest, etag};
use super::rows::{self, FileRow, Origin};
use super::{Cause, blocking, paragraphs};
use crate::idempotency::KeyUse;
use crate::store::LaneStore;
use crate::writer::WriteTx;

/// What an idempotency row keeps of a save: ids and counts, never text and no hash of it.
#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    owner: String,
    event_id: EventId,
    seq: Seq,
    added: u32,
    removed: u32,
    kept_hand_edit: Option<EventId>,
}

/// A save on its way into the writer.
struct Save {
    owner: String,
    text: String,
    if_match: Option<String>,
    disk: Disk,
    principal: String,
    language: Language,
}

impl LaneStore {
    /// Replaces an owner's file. The caller is admitted already, and the owner comes from its scope.
    pub(crate) async fn write_memory(
        &self,
        caller: &Caller,
        owner: &str,
        request: MemorySaveRequest,
        if_match: Option<String>,
        idempotency: Option<Idempotency>,
    ) -> Result<MemorySaveResponse, LaneError> {
        let MemorySaveRequest { text, shared: _ } = request;
        if text.len() > MEMORY_BYTES {
            return Err(LaneError::TooLarge { what: "text".into(), limit: MEMORY_BYTES });
        }
        let folder = self.owner_folder(owner)?;
        let key = idempotency.map(|key| KeyUse::new(caller, "memory", &key, &self.keys));
        let _one_at_a_time = self.memory_lock.lock().await;
        self.settle_file(owner).await?;
        let disk = blocking(move || folder.read()).await?.keepable()?;
        let save = Save {
            owner: owner.to_owned(),
            text,
            if_match,
            disk,
            principal: caller.principal.to_string(),
            language: self.settings().language,
        };
        // From here on the file may lag behind the log, also if this request is given up.
        self.state.set_memory_unwritten(true);
        let saved =
            self.writer()?.write(move |tx| Box::pin(async move { save_in(tx, save, key.as_ref()).await })).await;
        // Also after a refusal: `commit_unknown` may have committed.
        let settled = self.settle_file(owner).await;
        let saved = saved?;
        settled?;
        Ok(saved)
    }
}

async fn save_in(tx: &mut WriteTx, save: Save, key: Option<&KeyUse>) -> Result<MemorySaveResponse, LaneError> {
    let Save { owner, text, if_match, disk, principal, language } = save;
    let row = rows::file_row(tx.conn(), &owner).await?;
    let found = version(&disk, row.as_ref());
    if let Some(key) = key
        && let Some(answer) = key.replay(tx).await?
    {
        let remembered = serde_json::from_str(&answer).map_err(LaneError::internal)?;
        return replayed(tx, remembered, &etag(found)).await;
    }
    let current = etag(found);
    match if_match {
        _ if !guard("memory_if_match") => {}
        Some(expected) if expected != current => return Err(LaneError::PreconditionFailed { current }),
        // An empty file has nothing to lose.
        None if found != digest(b"") => return Err(LaneError::PreconditionRequired { current }),
        Some(_) | None => {}
    }
    let kept = absorb(tx, &owner, &disk, row.as_ref(), language).await?;
    let body = rows::version(&owner, Cause::Save, text);
    let event = rows::append_version(tx, Some(&principal), &body).await?;
    let origin = Origin { seq: event.seq, id: event.id, at_ms: event.at_ms, principal: Some(&principal) };
    let changes = rows::apply(tx, &owner, &paragraphs::texts(&body.text), origin, language).await?;
    let written = digest(body.text.as_bytes());
    let conflict_seq = kept.filter(|kept| kept.conflict).map(|kept| kept.event.seq);
    let row = FileRow { digest: written, event_seq: event.seq, unwritten: true, replaces: disk.digest(), conflict_seq };
    rows::set_file(tx, &owner, &row).await?;
    let kept_hand_edit = kept.map(|kept| kept.event.id);
    if let Some(key) = key {
        let remembered = Remembered {
            owner: owner.clone(),
            event_id: event.id,
            seq: event.seq,
            added: changes.added,
            removed: changes.removed,
            kept_hand_edit,
        };
        let json = serde_json::to_string(&remembered).map_err(LaneError::internal)?;
        // A forget of the save takes the hash of the request too; of the hand edit alone it need not, for
        // the request held none of it.
        key.remember(tx, &json, &[event.seq]).await?;
    }
    Ok(MemorySaveResponse {
        document: MemoryDocument { owner, etag: etag(written), text: body.text },
        event_id: event.id,
        seq: event.seq,
        added: changes.added,
        removed: changes.removed,
        kept_hand_edit,
        forgotten: false,
    })
}

/// The answer of the first time, from its event; the file may have gone on since.
async fn replayed(tx: &mut WriteTx, remembered: Remembered, current: &str) -> Result<MemorySaveResponse, LaneError> {
    let Remembered { owner, event_id, seq, added, removed, kept_hand_edit } = remembered;
    let body = rows::body(tx.conn(), seq).await?;
    let forgotten = body.is_none();
    let (text, etag) = match body {
        Some(body) => {
            let etag = etag(digest(body.text.as_bytes()));
            (body.text, etag)
        }
        None => (String::new(), current.to_owned()),
    };
    let document = MemoryDocument { owner, etag, text };
    Ok(MemorySaveResponse { document, event_id, seq, added, removed, kept_hand_edit, forgotten })
}
