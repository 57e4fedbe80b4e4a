//! Offline checks of what left a lane: an export by its end line, a backup by unpacking and walking it.

use std::io::{BufRead, Read};

use lanekeeper_core::Hash32;
use lanekeeper_core::wire::upkeep::VerifyReport;
use sha2::{Digest, Sha256};

use super::lines::{self, EndLine, Header, LINE_BYTES, Refusal};
use super::restore::{check, unpack};
use crate::error::StoreError;

/// Checks an exported file: each line, the count, the hash, the signature. It proves that the file is as it
/// was written, by the key that it names; that this is the lane's key only the lane's log can tell.
pub fn verify_export(mut file: impl BufRead) -> Result<VerifyReport, StoreError> {
    let mut hasher = Sha256::new();
    let mut next = || -> Result<Option<(Vec<u8>, Hash32)>, StoreError> {
        let before = Hash32::from_bytes(hasher.clone().finalize().into());
        let mut line = Vec::new();
        // One byte more than a line and its end may have, so that one over the limit is seen as such.
        let most = LINE_BYTES as u64 + 2;
        file.by_ref().take(most).read_until(b'\n', &mut line).map_err(|source| StoreError::Io {
            action: "read",
            path: "the export".into(),
            source,
        })?;
        hasher.update(&line);
        if line.is_empty() {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        Ok(Some((line, before)))
    };
    let Some((first, _)) = next()? else {
        return Err(StoreError::Malformed { what: "export", why: "it is empty".into() });
    };
    let header = lines::header(&first)?;
    let mut turns = 0;
    let mut number = 1;
    while let Some((line, before)) = next()? {
        number += 1;
        if lines::is_end(&line) {
            let end = lines::end(&line).and_then(|end| end.against(turns, before).map(|()| end));
            let outcome = match (end, next()?) {
                (Ok(end), None) => match end.signature_holds() {
                    Some(false) => Err(Refusal::new("signature", "must be that of public_key")),
                    Some(true) | None => Ok(end),
                },
                (Ok(_), Some(_)) => Err(Refusal::new("lanekeeper_export_end", "must be the last line")),
                (Err(refusal), _) => Err(refusal),
            };
            return Ok(told(&header, turns, number, outcome));
        }
        let row = if line.len() > LINE_BYTES {
            Err(Refusal::new("", format!("a line must not be over {LINE_BYTES} bytes")))
        } else {
            lines::row(&line, &header, i64::MAX)
        };
        if let Err(refusal) = row {
            return Ok(told(&header, turns, number, Err(refusal)));
        }
        turns += 1;
    }
    let cut = Refusal::new("lanekeeper_export_end", "must be there: the file is cut short");
    Ok(told(&header, turns, number + 1, Err(cut)))
}

fn told(header: &Header, turns: u64, number: u64, outcome: Result<EndLine, Refusal>) -> VerifyReport {
    let Header {
        lanekeeper_export: _,
        log_id,
        lane,
        kind: _,
        exported_at: _,
        head,
        unattributed: _,
        curated_memory: _,
    } = header;
    let (reason, signed) = match &outcome {
        Ok(end) => (None, end.signature_holds() == Some(true)),
        Err(Refusal { field, rule }) => (Some(format!("line {number}: {field} {rule}")), false),
    };
    let statement = match (&outcome, &reason) {
        (Ok(EndLine { damaged, public_key, .. }), _) => {
            let by = match public_key.filter(|_| signed) {
                Some(key) => format!("signed by {key}"),
                None => "not signed".to_owned(),
            };
            let left_out =
                if *damaged > 0 { format!(", {damaged} damaged rows of the log left out") } else { String::new() };
            format!("an export of lane {lane}: {turns} turns as they were written{left_out}, {by}")
        }
        (Err(_), reason) => {
            format!("an export of lane {lane} that does not hold: {}", reason.as_deref().unwrap_or_default())
        }
    };
    VerifyReport {
        ok: outcome.is_ok(),
        events: turns,
        purged: 0,
        first_bad_seq: None,
        reason,
        signed_up_to: head.filter(|_| signed).map_or(0, |head| head.seq.0),
        signature_checked: signed,
        head: *head,
        log_id: log_id.to_string(),
        statement,
    }
}

/// Checks a backup as a restore would, in a temporary folder that is removed again.
pub async fn verify_backup(archive: impl Read + Send + 'static) -> Result<VerifyReport, StoreError> {
    let malformed = |error: String| StoreError::Malformed { what: "backup", why: error };
    let temp = tempfile::tempdir().map_err(|error| malformed(error.to_string()))?;
    let folder = temp.path().to_owned();
    let staged = tokio::task::spawn_blocking(move || unpack(archive, &folder))
        .await
        .map_err(|error| malformed(error.to_string()))??;
    let log_id = staged.manifest.log_id;
    let mut report = check(&staged, log_id).await?;
    let lane = &staged.manifest.lane;
    report.statement = format!("a backup of lane {lane}: {} (against the backup's own log_id)", report.statement);
    Ok(report)
}
