//! The folder beside the checkout that only tests and benches may use.

use std::path::PathBuf;

/// `$LANEKEEPER_SHARED`, else `<repository>/../shared`. `None` prints a visible skip.
#[must_use]
pub fn file(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("LANEKEEPER_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared")), PathBuf::from);
    let file = root.join(path);
    if file.exists() {
        return Some(file);
    }
    #[expect(clippy::print_stderr, reason = "a skip must be seen")]
    {
        eprintln!("SKIPPED: {} is not there; set LANEKEEPER_SHARED", file.display());
    }
    None
}

/// One line of the transcript.
#[derive(Debug, Clone, serde::Deserialize)]
pub struct Line {
    /// Hour.
    pub session: String,
    /// UTC.
    pub at: String,
    /// Who.
    pub speaker: String,
    /// What.
    pub text: String,
}

/// A question and the lines that answer it, 1-based.
#[derive(Debug, Clone, serde::Deserialize)]
pub struct Question {
    /// The question.
    pub query: String,
    /// Any of these counts.
    pub lines: Vec<usize>,
}

fn json_lines<T: serde::de::DeserializeOwned>(path: &str) -> Option<Vec<T>> {
    let text = std::fs::read_to_string(file(path)?).unwrap();
    Some(text.lines().filter(|line| !line.trim().is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// The transcript, if it is there.
#[must_use]
pub fn transcript() -> Option<Vec<Line>> {
    json_lines("data/apollo13.jsonl")
}

/// The questions, if they are there.
#[must_use]
pub fn questions() -> Option<Vec<Question>> {
    json_lines("data/apollo13-queries.jsonl")
}
