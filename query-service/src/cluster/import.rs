//! An import in pieces: a store's attestation is over the whole body, so a file of any length goes as several
//! requests of bounded size, each an export by itself.
//!
//! # Flow
//! Header, lines, end line: each piece repeats the header and ends with a line of its own. The file's own end line
//! is compared here, with the same words as the store has for it; reports are added up, lines counted as in the
//! file.
//!
//! # Guarantees
//! - At most one piece and one line are held.
//! - What the store would refuse as a whole (no header, a personal file for a corpus lane) it refuses with the
//!   first piece, and nothing more is sent.
//! - A file that breaks off leaves whole pieces; a second import of the same file writes the rest.

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use lanekeeper_core::lane_client::ByteStream;
use lanekeeper_core::wire::upkeep::{ImportError, ImportReport};
use lanekeeper_core::{Hash32, LaneError, limits};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// A piece is sent once it has this many bytes, or lines.
const PIECE_BYTES: usize = 1024 * 1024;
const PIECE_LINES: u64 = 2_000;
/// Longest line: as the store has it. The edge ends a longer one before.
const LINE_BYTES: usize = limits::BODY_BYTES + 64 * 1024;
/// Refusals told one by one.
const ERRORS: usize = 100;
const END: &[u8] = b"{\"lanekeeper_export_end\"";

/// A piece on its way. Boxed: of an async closure nobody can say that it may be sent between threads.
pub(super) type Sending<'s> = BoxFuture<'s, Result<ImportReport, LaneError>>;

/// The last line of an export. The signature is for whoever checks a file offline.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndLine {
    lanekeeper_export_end: u64,
    turns: u64,
    #[serde(default)]
    #[expect(dead_code, reason = "read so that it may stand there")]
    damaged: u64,
    #[serde(default)]
    sha256: Option<Hash32>,
    #[serde(default)]
    #[expect(dead_code, reason = "read so that it may stand there")]
    public_key: Option<Hash32>,
    #[serde(default)]
    #[expect(dead_code, reason = "read so that it may stand there")]
    signature: Option<[Hash32; 2]>,
}

/// What is wrong with the file's end line.
fn judge_end(line: &[u8], turns: u64, before: Hash32) -> Result<(), (&'static str, String)> {
    let end: EndLine = serde_json::from_slice(line).map_err(|_| ("", "is not an end line".to_owned()))?;
    if end.lanekeeper_export_end != 1 {
        return Err(("lanekeeper_export_end", "must be 1: the file is of another version".to_owned()));
    }
    if end.turns != turns {
        let rule =
            format!("must be the number of turn lines before it, which is {turns}: lines are missing or were added");
        return Err(("turns", rule));
    }
    if end.sha256.is_some_and(|declared| declared != before) {
        return Err(("sha256", "must be the SHA-256 of all bytes before this line: the file was changed".to_owned()));
    }
    Ok(())
}

/// Lines of a body, each with its line break as it came.
struct Lines {
    body: ByteStream,
    rest: Bytes,
}

impl Lines {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, LaneError> {
        let mut line = Vec::new();
        loop {
            if self.rest.is_empty() {
                match self.body.next().await {
                    Some(part) => self.rest = part?,
                    None if line.is_empty() => return Ok(None),
                    None => return Ok(Some(line)),
                }
                continue;
            }
            let end = self.rest.iter().position(|byte| *byte == b'\n').map_or(self.rest.len(), |at| at + 1);
            line.extend_from_slice(&self.rest.split_to(end));
            if line.len() > LINE_BYTES + 1 {
                return Err(LaneError::TooLarge { what: "a line".into(), limit: LINE_BYTES });
            }
            if line.last() == Some(&b'\n') {
                return Ok(Some(line));
            }
        }
    }
}

/// Lines on their way, and what became of those before.
struct Pieces {
    header: Vec<u8>,
    piece: Vec<u8>,
    lines: u64,
    /// Of the piece's first line, 1-based, in the file.
    first_line: u64,
    sent: bool,
    report: ImportReport,
}

impl Pieces {
    fn take(&mut self, line: &[u8], number: u64) {
        if self.lines == 0 {
            self.first_line = number;
        }
        self.piece.extend_from_slice(line);
        if line.last() != Some(&b'\n') {
            self.piece.push(b'\n');
        }
        self.lines += 1;
    }

    const fn is_full(&self) -> bool {
        self.piece.len() >= PIECE_BYTES || self.lines >= PIECE_LINES
    }

    fn refuse(&mut self, line: u64, field: &str, rule: impl Into<String>) {
        self.report.lines += 1;
        self.report.refused += 1;
        self.tell(ImportError { line, field: field.to_owned(), rule: rule.into() });
    }

    fn tell(&mut self, error: ImportError) {
        if self.report.errors.len() < ERRORS {
            self.report.errors.push(error);
        }
    }

    async fn send<'s>(&mut self, send: &impl Fn(Bytes) -> Sending<'s>) -> Result<(), LaneError> {
        let mut body = self.header.clone();
        body.append(&mut self.piece);
        let sha256 = Hash32::from_bytes(Sha256::digest(&body).into());
        let turns = std::mem::take(&mut self.lines);
        let end = serde_json::json!({"lanekeeper_export_end": 1, "turns": turns, "sha256": sha256});
        body.extend_from_slice(end.to_string().as_bytes());
        body.push(b'\n');
        self.sent = true;
        let ImportReport { lines, imported, already_present, refused, errors } = send(body.into()).await?;
        self.report.lines += lines;
        self.report.imported += imported;
        self.report.already_present += already_present;
        self.report.refused += refused;
        for ImportError { line, field, rule } in errors {
            // The piece's line 2 is its first after the header.
            self.tell(ImportError { line: self.first_line + line.saturating_sub(2), field, rule });
        }
        Ok(())
    }
}

/// Sends a body piece by piece.
pub(super) async fn import<'s>(
    body: ByteStream,
    send: impl Fn(Bytes) -> Sending<'s>,
) -> Result<ImportReport, LaneError> {
    let mut lines = Lines { body, rest: Bytes::new() };
    let Some(mut header) = lines.next().await? else {
        return Err(LaneError::invalid("lanekeeper_export", "the first line must be the header of an export"));
    };
    let mut hasher = Sha256::new_with_prefix(&header);
    if header.last() != Some(&b'\n') {
        header.push(b'\n');
    }
    let mut pieces =
        Pieces { header, piece: Vec::new(), lines: 0, first_line: 2, sent: false, report: ImportReport::default() };
    let (mut number, mut turns, mut ended) = (1, 0, false);
    while let Some(line) = lines.next().await? {
        number += 1;
        if ended {
            pieces.refuse(number, "", "must not follow the end line");
        } else if line.trim_ascii_start().starts_with(END) {
            ended = true;
            let before = Hash32::from_bytes(hasher.clone().finalize().into());
            if let Err((field, rule)) = judge_end(&line, turns, before) {
                pieces.refuse(number, field, rule);
            }
        } else {
            turns += 1;
            pieces.take(&line, number);
            if pieces.is_full() {
                pieces.send(&send).await?;
            }
        }
        hasher.update(&line);
    }
    // The header is judged by the store, so it sees one also where nothing follows.
    if pieces.lines > 0 || !pieces.sent {
        pieces.send(&send).await?;
    }
    if !ended {
        pieces.refuse(number + 1, "lanekeeper_export_end", "the file has no end line: it may be cut short");
    }
    pieces.report.errors.sort_by_key(|error| error.line);
    Ok(pieces.report)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn body(text: &str, chunk: usize) -> ByteStream {
        let chunks: Vec<_> = text.as_bytes().chunks(chunk).map(|part| Ok(Bytes::copy_from_slice(part))).collect();
        Box::pin(futures::stream::iter(chunks))
    }

    /// Takes every line of a piece, and refuses those that say so; checks the piece's own end line.
    fn store(piece: &[u8]) -> ImportReport {
        let text = std::str::from_utf8(piece).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "HEADER");
        let end = lines.last().unwrap();
        let before = &text[..text.len() - end.len() - 1];
        let turns = lines.len() as u64 - 2;
        judge_end(end.as_bytes(), turns, Hash32::from_bytes(Sha256::digest(before).into())).unwrap();
        let mut report = ImportReport { lines: turns, imported: turns, ..ImportReport::default() };
        for (index, _) in lines.iter().enumerate().filter(|(_, line)| **line == "BAD") {
            report.imported -= 1;
            report.refused += 1;
            report.errors.push(ImportError { line: index as u64 + 1, field: "f".into(), rule: "r".into() });
        }
        report
    }

    async fn run(text: &str, chunk: usize) -> (Result<ImportReport, LaneError>, usize) {
        let pieces = Mutex::new(0);
        let report = import(body(text, chunk), |piece| {
            *pieces.lock().unwrap() += 1;
            Box::pin(std::future::ready(Ok(store(&piece))))
        })
        .await;
        (report, pieces.into_inner().unwrap())
    }

    fn ended(rows: &str) -> String {
        let text = format!("HEADER\n{rows}");
        let turns = rows.lines().count();
        let sha256 = Hash32::from_bytes(Sha256::digest(&text).into());
        format!("{text}{{\"lanekeeper_export_end\":1,\"turns\":{turns},\"sha256\":\"{sha256}\"}}\n")
    }

    #[tokio::test]
    async fn a_long_file_goes_in_pieces_and_lines_count_as_in_the_file() {
        let mut rows = "row\n".repeat(4_500);
        rows.push_str("BAD\n");
        let text = ended(&rows);
        for chunk in [1, 7, 100_000] {
            let (report, pieces) = run(&text, chunk).await;
            let report = report.unwrap();
            assert_eq!((report.lines, report.imported, report.refused, pieces), (4_501, 4_500, 1, 3));
            assert_eq!(report.errors, [ImportError { line: 4_502, field: "f".into(), rule: "r".into() }]);
        }
        let big = "x".repeat(700_000);
        let (report, pieces) = run(&ended(&format!("{big}\n{big}\n{big}\n")), 10_000).await;
        assert_eq!((report.unwrap().imported, pieces), (3, 2));
    }

    #[tokio::test]
    async fn the_files_own_end_line_is_compared() {
        let good = ended("row\nrow\n");
        assert_eq!(run(&good, 10).await.0.unwrap().refused, 0);
        let said = async |text: &str| {
            let report = run(text, 10).await.0.unwrap();
            assert_eq!(report.lines, report.imported + report.already_present + report.refused);
            report.errors.iter().map(|error| (error.line, error.field.clone())).collect::<Vec<_>>()
        };
        assert_eq!(said(&good.replace("\"turns\":2", "\"turns\":3")).await, [(4, "turns".into())]);
        assert_eq!(said(&good.replacen("row", "wow", 1)).await, [(4, "sha256".into())]);
        assert_eq!(said("HEADER\nrow\nrow").await, [(4, "lanekeeper_export_end".into())]);
        assert_eq!(said(&format!("{good}more\n")).await, [(5, String::new())]);
        assert_eq!(
            said("HEADER\n{\"lanekeeper_export_end\":2,\"turns\":0}\n").await,
            [(2, "lanekeeper_export_end".into())]
        );
        // A file made by hand may leave the hash out, and its last line break.
        assert_eq!(said("HEADER\nrow\n{\"lanekeeper_export_end\":1,\"turns\":1}").await, []);
    }

    #[tokio::test]
    async fn the_store_judges_the_header_and_a_refusal_ends_it() {
        assert_eq!(run("", 1).await.0.unwrap_err().code(), "invalid_field");
        assert_eq!(run("HEADER", 3).await.1, 1);
        let calls = Mutex::new(0);
        let rows = "row\n".repeat(10_000);
        let refused = import(body(&ended(&rows), 1_000), |_| {
            *calls.lock().unwrap() += 1;
            Box::pin(std::future::ready(Err(LaneError::DiskFull)))
        })
        .await;
        assert_eq!((refused.unwrap_err(), *calls.lock().unwrap()), (LaneError::DiskFull, 1));
        let broken: ByteStream =
            Box::pin(futures::stream::iter([Ok(Bytes::from("HEADER\nrow\n")), Err(LaneError::Deadline)]));
        let taken = |piece: Bytes| -> Sending<'static> { Box::pin(std::future::ready(Ok(store(&piece)))) };
        assert_eq!(import(broken, taken).await, Err(LaneError::Deadline));
    }
}
