//! The question's encoding: started once per fingerprint, awaited by every lane's vector arm.
//!
//! A future that several lanes share: text is searched while the model works, and a lane whose vector arm
//! never needs it costs nothing. It ends within its budget whatever the embedder does; then it is a reason.
//!
//! An embedder that pools by itself cannot give names no weight, so the names of the lanes' known speakers
//! are stripped from the question first. The lanes are asked for them; one that cannot tell leaves the
//! question as it is, and `ranking` says so.

use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, join_all};
use lanekeeper_core::encoder::{EncodeError, QueryEncoding, Work, WorkKind};
use lanekeeper_core::lane_client::EncodingFuture;
use tokio::time::Instant;

use crate::auth::Reached;

/// Whether speakers' names were taken out of the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stripping {
    /// The lanes weigh the tokens themselves.
    NotNeeded,
    /// Done.
    Stripped,
    /// A lane could not name its speakers.
    Unknown,
}

/// How the encoding under one fingerprint went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EmbedderState {
    /// `None`: it worked.
    pub(crate) reason: Option<String>,
    pub(crate) stripping: Stripping,
}

type Shareable = Shared<BoxFuture<'static, Result<Arc<QueryEncoding>, String>>>;

/// One encoding in the making.
pub(super) struct Encoding {
    future: Shareable,
    state: Arc<OnceLock<EmbedderState>>,
}

impl Encoding {
    /// For the lanes of one fingerprint, of which there is at least one.
    pub(super) fn start(lanes: &[&Reached], question: &str, deadline: Instant) -> Self {
        let state = Arc::new(OnceLock::new());
        let future = encode(
            lanes.iter().map(|lane| (*lane).clone()).collect(),
            question.to_owned(),
            deadline,
            Arc::clone(&state),
        )
        .boxed()
        .shared();
        Self { future, state }
    }

    /// One lane's share of it.
    pub(super) fn future(&self) -> EncodingFuture {
        Box::pin(self.future.clone())
    }

    /// How it went; `None` where no lane awaited it.
    pub(super) fn state(&self) -> Option<EmbedderState> {
        self.state.get().cloned()
    }
}

/// What a lane gets whose vector arm is not asked.
pub(super) fn none(reason: &'static str) -> EncodingFuture {
    Box::pin(std::future::ready(Err(reason.to_owned())))
}

async fn encode(
    lanes: Vec<Reached>,
    question: String,
    deadline: Instant,
    state: Arc<OnceLock<EmbedderState>>,
) -> Result<Arc<QueryEncoding>, String> {
    let Some(first) = lanes.first() else { return Err("no_lane".into()) };
    let encoder = Arc::clone(first.encoder());
    let work = Work { lane: first.view().uid, kind: WorkKind::Query };
    let mut stripping = Stripping::NotNeeded;
    let ours = async {
        if encoder.fingerprint() != first.view().fingerprint {
            return Err("embedder_model_mismatch".to_owned());
        }
        let text = if encoder.has_token_states() {
            question
        } else {
            let (text, done) = strip(&lanes, question).await;
            stripping = done;
            text
        };
        encoder.encode_query(work, &text).await.map(Arc::new).map_err(|error| reason(&error).to_owned())
    };
    let result = match tokio::time::timeout_at(deadline, ours).await {
        Ok(result) => result,
        Err(_) => Err("embedding_timeout".to_owned()),
    };
    // Set once: the future runs once however many lanes share it.
    let _ = state.set(EmbedderState { reason: result.as_ref().err().cloned(), stripping });
    result
}

const fn reason(error: &EncodeError) -> &'static str {
    match error {
        EncodeError::Overloaded => "embedder_overloaded",
        EncodeError::Unavailable { .. } => "embedder_unavailable",
        EncodeError::ModelMismatch { .. } => "embedder_model_mismatch",
        EncodeError::Refused { .. } => "embedder_refused",
    }
}

async fn strip(lanes: &[Reached], question: String) -> (String, Stripping) {
    let asked = join_all(lanes.iter().map(|lane| lane.client().known_speakers(lane.caller()))).await;
    let stripping = if asked.iter().all(Result::is_ok) { Stripping::Stripped } else { Stripping::Unknown };
    let names: Vec<String> = asked.into_iter().filter_map(Result::ok).flatten().collect();
    (without_names(&question, &names), stripping)
}

/// The question without the names, each as a whole word in any case, with the `'s` that follows it. Left
/// as it is where nothing else would remain.
fn without_names(question: &str, names: &[String]) -> String {
    let mut names: Vec<Vec<char>> =
        names.iter().map(|name| folded(name.trim())).filter(|name| !name.is_empty()).collect();
    // The longest first, so that `Ann Lee` does not leave `Lee` behind.
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    let chars: Vec<char> = question.chars().collect();
    let lower: Vec<char> = chars.iter().map(|c| fold(*c)).collect();
    let mut kept = String::with_capacity(question.len());
    let mut index = 0;
    while index < chars.len() {
        let starts_word = index == 0 || !chars[index - 1].is_alphanumeric();
        let name = names.iter().find(|name| {
            let end = index + name.len();
            starts_word && lower[index..].starts_with(name) && !chars.get(end).is_some_and(|c| c.is_alphanumeric())
        });
        match name {
            Some(name) => index = after_possessive(&lower, index + name.len()),
            None => {
                kept.push(chars[index]);
                index += 1;
            }
        }
    }
    let kept = kept.split_whitespace().collect::<Vec<_>>().join(" ");
    if kept.chars().any(char::is_alphanumeric) { kept } else { question.to_owned() }
}

fn after_possessive(lower: &[char], end: usize) -> usize {
    match lower.get(end..) {
        Some(['\'' | '’', 's', rest @ ..]) if !rest.first().is_some_and(|c| c.is_alphanumeric()) => end + 2,
        _ => end,
    }
}

/// One character stays one, so that places in both spellings agree.
fn fold(c: char) -> char {
    let mut lower = c.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(single), None) => single,
        _ => c,
    }
}

fn folded(text: &str) -> Vec<char> {
    text.chars().map(fold).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_as_whole_words_and_nothing_else_does() {
        let names = ["Caroline".to_owned(), "Ann Lee".to_owned(), "Ann".to_owned(), " ".to_owned()];
        for (question, expected) in [
            ("What did Caroline say?", "What did say?"),
            ("caroline's dog and CAROLINE’S cat", "dog and cat"),
            ("did Ann Lee or Ann pay", "did or pay"),
            ("Annual plan, Carolines", "Annual plan, Carolines"),
            ("Caroline", "Caroline"),
            ("Caroline?", "Caroline?"),
            ("", ""),
        ] {
            assert_eq!(without_names(question, &names), expected, "{question}");
        }
        assert_eq!(without_names("anything  at all", &[]), "anything at all");
    }
}
