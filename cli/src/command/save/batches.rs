//! A file of turns as requests.
//!
//! What must always hold: the same file gives the same requests under the same keys, so that a second run
//! doubles nothing; turns keep their order; a request stays under the server's limits of turns and bytes.
//! A key holds the place of the batch in the file: two batches of equal content are two.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use lanekeeper_core::LaneName;
use lanekeeper_core::limits::{BODY_BYTES, TURNS_PER_SAVE};
use lanekeeper_core::wire::events::{SaveRequest, Turn, TurnRole};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::failure::Failure;

/// Longest line that can be a turn: text may be escaped on both sides, so the request is not much smaller.
const LINE_BYTES: u64 = 8 * BODY_BYTES as u64;
/// Room for what stands round the turns.
const ENVELOPE_BYTES: usize = 64;

/// What a line that does not say so is taken to be.
#[derive(Debug, Clone)]
pub(super) struct Defaults {
    pub(super) session: Option<String>,
    pub(super) role: TurnRole,
    pub(super) speaker: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    session: Option<String>,
    role: Option<TurnRole>,
    text: String,
    speaker: Option<String>,
    at: Option<String>,
    metadata: Option<Map<String, Value>>,
}

/// Turns of one session that go in one request.
#[derive(Debug)]
pub(super) struct Batch {
    request: SaveRequest,
    /// Of the first turn, from 1; 0: not from a file.
    first_line: u64,
    bytes: usize,
}

impl Batch {
    /// One turn that stands in no file.
    pub(super) fn single(session: String, turn: Turn) -> Self {
        Self { request: SaveRequest { session, turns: vec![turn], expected_head: None }, first_line: 0, bytes: 0 }
    }

    pub(super) fn turns(&self) -> u64 {
        self.request.turns.len() as u64
    }

    /// The server's own rules, before anything is sent.
    pub(super) fn check(&self, now_ms: i64) -> Result<(), Failure> {
        let from = self.first_line;
        self.request.check(now_ms).map_err(|error| {
            Failure::refused(format!("in the request that starts at line {from}: {error}. Nothing of it was saved"))
        })
    }

    /// The request's body and its key.
    pub(super) fn finish(self, lane: &LaneName) -> Result<(Vec<u8>, String), Failure> {
        let body =
            serde_json::to_vec(&self.request).map_err(|error| Failure::because("cannot write the request", &error))?;
        let lane = lane.to_string();
        let mut hasher = Sha256::new();
        for part in [b"lanekeeper-save-v1".as_slice(), lane.as_bytes(), &self.first_line.to_be_bytes(), &body] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        let key = hasher.finalize().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        Ok((body, key))
    }
}

/// The batches of a file, in order.
pub(super) struct Batches {
    input: Box<dyn BufRead>,
    name: String,
    defaults: Defaults,
    line: u64,
    /// Read already and of the next batch.
    held: Option<(String, Turn, usize, u64)>,
    ended: bool,
}

impl Batches {
    /// `-` is stdin.
    pub(super) fn open(path: &Path, defaults: Defaults) -> Result<Self, Failure> {
        let input: Box<dyn BufRead> = if path == Path::new("-") {
            Box::new(std::io::stdin().lock())
        } else {
            let file =
                File::open(path).map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
            Box::new(BufReader::with_capacity(1 << 16, file))
        };
        Ok(Self::of(input, path.display().to_string(), defaults))
    }

    fn of(input: Box<dyn BufRead>, name: String, defaults: Defaults) -> Self {
        Self { input, name, defaults, line: 0, held: None, ended: false }
    }

    fn refuse(&self, why: impl std::fmt::Display) -> Failure {
        Failure::refused(format!("{}, line {}: {why}", self.name, self.line))
    }

    /// The next turn with its session, its size in a request and its line.
    fn turn(&mut self) -> Result<Option<(String, Turn, usize, u64)>, Failure> {
        if let Some(held) = self.held.take() {
            return Ok(Some(held));
        }
        loop {
            let mut bytes = Vec::new();
            let mut limited = std::io::Read::take(&mut self.input, LINE_BYTES + 1);
            let read = limited.read_until(b'\n', &mut bytes);
            self.line += 1;
            let read = read.map_err(|error| self.refuse(error))?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 > LINE_BYTES {
                return Err(self.refuse(format!("is over {LINE_BYTES} bytes")));
            }
            if !bytes.trim_ascii().is_empty() {
                return self.parse(&bytes).map(Some);
            }
        }
    }

    fn parse(&self, bytes: &[u8]) -> Result<(String, Turn, usize, u64), Failure> {
        let line: Line = serde_json::from_slice(bytes).map_err(|error| self.refuse(explain(&error)))?;
        let Line { session, role, text, speaker, at, metadata } = line;
        let session = session
            .or_else(|| self.defaults.session.clone())
            .ok_or_else(|| self.refuse("names no session; give one for all with --session"))?;
        let turn = Turn {
            role: role.unwrap_or(self.defaults.role),
            text,
            speaker: speaker.or_else(|| self.defaults.speaker.clone()),
            at,
            metadata,
        };
        let size = serde_json::to_vec(&turn).map_err(|error| self.refuse(error))?.len() + 1;
        Ok((session, turn, size, self.line))
    }

    fn batch(&mut self) -> Result<Option<Batch>, Failure> {
        let Some((session, turn, size, first_line)) = self.turn()? else { return Ok(None) };
        // A session's name may double in size where it is escaped.
        let envelope = ENVELOPE_BYTES + 6 * session.len();
        let mut batch = Batch {
            request: SaveRequest { session, turns: vec![turn], expected_head: None },
            first_line,
            bytes: envelope + size,
        };
        while let Some(next) = self.turn()? {
            let fits = next.0 == batch.request.session
                && batch.request.turns.len() < TURNS_PER_SAVE
                && batch.bytes + next.2 < BODY_BYTES;
            if !fits {
                self.held = Some(next);
                break;
            }
            batch.bytes += next.2;
            batch.request.turns.push(next.1);
        }
        Ok(Some(batch))
    }
}

impl Iterator for Batches {
    type Item = Result<Batch, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.batch().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Says what is wrong without repeating a value: it is memory.
fn explain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let names_a_field_only =
        ["missing field", "unknown field", "duplicate field"].iter().any(|start| text.starts_with(start));
    if names_a_field_only {
        return text.split(" at line ").next().unwrap_or_default().to_owned();
    }
    let what =
        if error.is_data() { "a value has the wrong type, or is none of those allowed" } else { "is no JSON object" };
    format!("{what} (column {})", error.column())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn batches(text: &str, session: Option<&str>) -> Result<Vec<Batch>, Failure> {
        let defaults = Defaults { session: session.map(Into::into), role: TurnRole::Assistant, speaker: None };
        Batches::of(Box::new(Cursor::new(text.as_bytes().to_vec())), "turns.jsonl".into(), defaults).collect()
    }

    fn refused(text: &str) -> String {
        match batches(text, Some("s")) {
            Err(Failure::Refused(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    fn lane() -> LaneName {
        "team/bob".parse().unwrap()
    }

    #[test]
    fn batches_hold_256_turns_and_one_session() {
        let text: String = (0..300).map(|n| format!("{{\"text\": \"turn {n}\"}}\n")).collect();
        let all = batches(&text, Some("s")).unwrap();
        assert_eq!(all.iter().map(Batch::turns).collect::<Vec<_>>(), [256, 44]);
        assert_eq!(all[1].first_line, 257);
        let two = batches(
            "{\"text\":\"a\"}\n\n{\"text\":\"b\",\"session\":\"t\"}\n{\"text\":\"c\",\"session\":\"t\"}",
            Some("s"),
        )
        .unwrap();
        let seen: Vec<_> =
            two.iter().map(|batch| (batch.request.session.as_str(), batch.turns(), batch.first_line)).collect();
        assert_eq!(seen, [("s", 1, 1), ("t", 2, 3)]);
    }

    #[test]
    fn batches_stay_under_the_limit_of_bytes() {
        let line = format!("{{\"text\": \"{}\"}}\n", "x\\n".repeat(50_000));
        let all = batches(&line.repeat(20), Some("s")).unwrap();
        assert_eq!(all.iter().map(Batch::turns).sum::<u64>(), 20);
        for batch in all {
            let (body, _) = batch.finish(&lane()).unwrap();
            assert!(body.len() < BODY_BYTES, "{}", body.len());
        }
    }

    #[test]
    fn one_turn_that_is_too_large_is_the_servers_to_refuse() {
        let line = format!("{{\"text\": \"{}\"}}\n", "x".repeat(BODY_BYTES + 5));
        assert_eq!(batches(&line, Some("s")).unwrap().len(), 1);
    }

    #[test]
    fn the_same_file_gives_the_same_keys_and_equal_batches_are_two() {
        let text: String = "{\"text\": \"same\"}\n".repeat(512);
        let keys = || -> Vec<String> {
            batches(&text, Some("s")).unwrap().into_iter().map(|batch| batch.finish(&lane()).unwrap().1).collect()
        };
        let (first, second) = (keys(), keys());
        assert_eq!(first, second);
        assert_ne!(first[0], first[1], "a file may say the same thing twice");
        assert_eq!(first[0].len(), 64);
        let other = batches(&text, Some("t")).unwrap().remove(0).finish(&lane()).unwrap().1;
        assert_ne!(first[0], other);
        let elsewhere = batches(&text, Some("s")).unwrap().remove(0).finish(&"team/ada".parse().unwrap()).unwrap().1;
        assert_ne!(first[0], elsewhere);
    }

    #[test]
    fn a_bad_line_is_named_without_its_text() {
        assert_eq!(
            refused("{\"text\":\"a\"}\n{\"txt\":\"SECRET\"}"),
            "turns.jsonl, line 2: unknown field `txt`, expected one of `session`, `role`, `text`, `speaker`, `at`, `metadata`"
        );
        for bad in [
            "{\"text\":\"a\",\"role\":\"SECRET\"}",
            "{\"text\":\"SECRET",
            "\"SECRET\"",
            "{\"text\":\"a\",\"metadata\":\"SECRET\"}",
            "SECRET",
        ] {
            let why = refused(bad);
            assert!(why.starts_with("turns.jsonl, line 1: ") && !why.contains("SECRET"), "{why}");
        }
        assert!(matches!(batches("{\"text\":\"a\"}", None), Err(Failure::Refused(why)) if why.contains("--session")));
    }

    #[test]
    fn the_servers_rules_are_checked_before_anything_is_sent() {
        let all = batches("{\"text\":\"a\"}\n{\"text\":\" \"}", Some("s")).unwrap();
        let Err(Failure::Refused(why)) = all[0].check(0) else { panic!("a blank turn was taken") };
        assert!(why.contains("line 1") && why.contains("turns[1].text"), "{why}");
    }
}
