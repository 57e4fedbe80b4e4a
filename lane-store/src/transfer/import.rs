//! Import: reads the lines of an export and appends the turns that are not here yet.
//!
//! # Flow
//! 1. The header: a file without one, or of a personal lane into a corpus lane, is refused as a whole.
//! 2. Lines are checked one by one; a bad one is refused with its number, field and rule, and the rest go on.
//! 3. Every 100 turns or 1 MiB a batch is one transaction: turns, their origins, and an `imported` event that
//!    names who brought them and from where.
//! 4. The end line is compared with what was read.
//!
//! # Guarantees
//! - `lines = imported + already_present + refused`. A caller that goes away leaves whole batches.
//! - A second import of the same lines writes nothing, also where they were forgotten here in between.
//! - Text, `at` and the instant are those of the origin.
//!
//! # Caveats
//! - Principals are what the file says; the `imported` event is what tells them from ones that a credential
//!   proved.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use lanekeeper_core::hooks::{fault, guard};
use lanekeeper_core::lane::LaneKind;
use lanekeeper_core::lane_client::{ByteStream, Caller};
use lanekeeper_core::wire::upkeep::{ImportError, ImportReport};
use lanekeeper_core::{Hash32, LaneError, LaneName, LogId};
use sha2::{Digest, Sha256};

use super::lines::{self, Header, LINE_BYTES, Refusal, Row};
use super::origins;
use crate::append::append_one;
use crate::index::Indexing;
use crate::log::row::{ImportedBody, ImportedRow, Kind};
use crate::store::LaneStore;
use crate::writer::{NewEvent, WriteTx};

/// Turns of one transaction.
const BATCH_ROWS: usize = 100;
/// And their text, bytes: a batch holds up every save behind it.
const BATCH_BYTES: usize = 1024 * 1024;
/// Refusals told one by one.
const ERRORS: usize = 100;
/// How long a batch waits for room in the writer's queue.
const PATIENCE: Duration = Duration::from_secs(60);

/// A line of the body.
#[derive(Debug)]
enum Line {
    Whole(Vec<u8>),
    TooLong,
}

/// Cuts a body into lines without holding more than one.
struct Lines {
    body: ByteStream,
    chunk: Bytes,
    hasher: Sha256,
    before: Sha256,
}

impl Lines {
    fn new(body: ByteStream) -> Self {
        Self { body, chunk: Bytes::new(), hasher: Sha256::new(), before: Sha256::new() }
    }

    /// The hash of all bytes before the line that was read last.
    fn hash_before(&self) -> Hash32 {
        Hash32::from_bytes(self.before.clone().finalize().into())
    }

    async fn next(&mut self) -> Result<Option<Line>, LaneError> {
        self.before = self.hasher.clone();
        let mut line = Vec::new();
        let mut too_long = false;
        let mut began = false;
        loop {
            if self.chunk.is_empty() {
                match self.body.next().await {
                    Some(chunk) => self.chunk = chunk?,
                    None if began => break,
                    None => return Ok(None),
                }
                continue;
            }
            began = true;
            let newline = self.chunk.iter().position(|byte| *byte == b'\n');
            let part = self.chunk.split_to(newline.map_or(self.chunk.len(), |at| at + 1));
            self.hasher.update(&part);
            let text = if newline.is_some() { &part[..part.len() - 1] } else { &part[..] };
            if line.len() + text.len() > LINE_BYTES {
                too_long = true;
                line = Vec::new();
            }
            if !too_long {
                line.extend_from_slice(text);
            }
            if newline.is_some() {
                break;
            }
        }
        Ok(Some(if too_long { Line::TooLong } else { Line::Whole(line) }))
    }
}

/// What every batch of one import shares.
#[derive(Debug)]
struct Source {
    own_log: LogId,
    log_id: LogId,
    lane: LaneName,
    by: String,
}

/// Turns that become one transaction.
#[derive(Debug, Default)]
struct Batch {
    rows: Vec<Row>,
    bytes: usize,
}

impl LaneStore {
    /// Imports lines. The caller is admitted already.
    pub(crate) async fn import_lines(
        &self,
        caller: &Caller,
        body: ByteStream,
        force_personal: bool,
    ) -> Result<ImportReport, LaneError> {
        let mut lines = Lines::new(body);
        let header = match lines.next().await? {
            Some(Line::Whole(line)) => lines::header(&line)?,
            Some(Line::TooLong) | None => {
                return Err(LaneError::invalid("lanekeeper_export", "the first line must be the header of an export"));
            }
        };
        let personal_into_corpus = header.kind == LaneKind::Personal && self.config.kind == LaneKind::Corpus;
        if personal_into_corpus && !force_personal && guard("personal_into_corpus") {
            return Err(LaneError::Conflict {
                code: "personal_into_corpus",
                detail: format!(
                    "{} is a personal lane, and what is imported here others may read; a person must force it",
                    header.lane
                ),
            });
        }
        let source = Arc::new(Source {
            own_log: self.log_id,
            log_id: header.log_id,
            lane: header.lane.clone(),
            by: caller.principal.to_string(),
        });
        self.import_rows(lines, &header, &source).await
    }

    async fn import_rows(
        &self,
        mut lines: Lines,
        header: &Header,
        source: &Arc<Source>,
    ) -> Result<ImportReport, LaneError> {
        let mut report = ImportReport::default();
        let mut batch = Batch::default();
        let mut number = 1;
        let mut turn_lines = 0;
        let mut ended = false;
        while let Some(line) = lines.next().await? {
            number += 1;
            let outcome = match line {
                Line::TooLong | Line::Whole(_) if ended => Err(Refusal::new("", "must not follow the end line")),
                Line::TooLong => {
                    turn_lines += 1;
                    Err(Refusal::new("", format!("a line must not be over {LINE_BYTES} bytes")))
                }
                Line::Whole(line) if lines::is_end(&line) => {
                    ended = true;
                    match lines::end(&line).and_then(|end| end.against(turn_lines, lines.hash_before())) {
                        Ok(()) => continue,
                        Err(refusal) => Err(refusal),
                    }
                }
                Line::Whole(line) => {
                    turn_lines += 1;
                    lines::row(&line, header, self.clock.now_ms()).map(|row| (row, line.len()))
                }
            };
            report.lines += 1;
            match outcome {
                Ok((row, bytes)) => {
                    batch.bytes += bytes;
                    batch.rows.push(row);
                    if batch.rows.len() >= BATCH_ROWS || batch.bytes >= BATCH_BYTES {
                        self.import_batch(std::mem::take(&mut batch), source, &mut report).await?;
                    }
                }
                Err(refusal) => refuse(&mut report, number, refusal),
            }
        }
        if !batch.rows.is_empty() {
            self.import_batch(batch, source, &mut report).await?;
        }
        if !ended {
            report.lines += 1;
            let rule = "the file has no end line: it may be cut short";
            refuse(&mut report, number + 1, Refusal::new("lanekeeper_export_end", rule));
        }
        Ok(report)
    }

    async fn import_batch(
        &self,
        batch: Batch,
        source: &Arc<Source>,
        report: &mut ImportReport,
    ) -> Result<(), LaneError> {
        let rows = Arc::new(batch.rows);
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(20);
        let (imported, already_present) = loop {
            let (rows, source, indexing) = (rows.clone(), source.clone(), self.indexing());
            let written = self
                .writer()?
                .write(move |tx| Box::pin(async move { import_in(tx, &indexing, &rows, &source).await }))
                .await;
            match written {
                // A full queue wrote nothing, and an import is in no hurry: savers come first.
                Err(LaneError::Overloaded { .. }) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                other => break other?,
            }
        };
        let _ = fault("import_batch");
        report.imported += imported;
        report.already_present += already_present;
        if imported > 0 {
            self.touched();
        }
        Ok(())
    }
}

fn refuse(report: &mut ImportReport, line: u64, refusal: Refusal) {
    report.refused += 1;
    if report.errors.len() < ERRORS {
        let Refusal { field, rule } = refusal;
        report.errors.push(ImportError { line, field, rule });
    }
}

/// One batch in one transaction: how many were written, and how many were here already.
async fn import_in(
    tx: &mut WriteTx,
    indexing: &Indexing,
    rows: &[Row],
    source: &Source,
) -> Result<(u64, u64), LaneError> {
    let mut written = Vec::new();
    let mut known = 0;
    for row in rows {
        if origins::is_known(tx.conn(), source.own_log, row).await? {
            known += 1;
            continue;
        }
        let Row { origin_log, origin_id, principal, session, turn, at_ms } = row;
        let (_, seq, _, _, _) =
            append_one(tx, indexing, principal.as_deref(), session, turn, Some(*at_ms), "turn").await?;
        origins::remember(tx, *origin_log, origin_id, seq).await?;
        let log_id = (*origin_log != source.log_id).then_some(*origin_log);
        written.push(ImportedRow { seq: seq.0, id: origin_id.clone(), log_id });
    }
    let imported = written.len() as u64;
    if imported > 0 {
        let body = ImportedBody { log_id: source.log_id, lane: source.lane.to_string(), rows: written };
        let body = serde_json::to_vec(&body).map_err(LaneError::internal)?;
        let principal = Some(source.by.clone());
        tx.append(NewEvent { kind: Kind::Imported, at_ms: None, principal, session: None, body }).await?;
    }
    Ok((imported, known))
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    async fn cut(chunks: &[&[u8]]) -> Vec<Result<Vec<u8>, ()>> {
        let chunks: Vec<_> = chunks.iter().map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
        let mut lines = Lines::new(Box::pin(stream::iter(chunks)));
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push(match line {
                Line::Whole(line) => Ok(line),
                Line::TooLong => Err(()),
            });
        }
        found
    }

    #[tokio::test]
    async fn lines_are_cut_wherever_the_chunks_end() {
        let text = b"one\n\r\n\ntwo\r\nlast";
        let whole = cut(&[text]).await;
        assert_eq!(whole, [&b"one"[..], b"\r", b"", b"two\r", b"last"].map(|line| Ok(line.to_vec())));
        for at in 0..text.len() {
            assert_eq!(cut(&[&text[..at], b"", &text[at..]]).await, whole, "{at}");
        }
        assert!(cut(&[]).await.is_empty());
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_passed_over_and_the_next_one_read() {
        let long = vec![b'x'; LINE_BYTES];
        assert_eq!(cut(&[&long, b"\nnext"]).await, [Ok(long.clone()), Ok(b"next".to_vec())]);
        assert_eq!(cut(&[&long, b"x", &long, b"\nnext\n"]).await, [Err(()), Ok(b"next".to_vec())]);
    }
}
