//! How alike unrelated things look under a pooling: the floor for hits that only a vector found.
//!
//! What always holds: a baseline is measured from the encoder it is for, over every pair of the
//! built-in questions and passages (no question is about any passage), or there is none. What is
//! kept on disk counts only for the same fingerprint and the same sentences.
//!
//! What it deliberately does not do: decide what to do with it, or block: until it is known,
//! `get` says `None`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use lanekeeper_core::encoder::{Baseline, Passage, QueryEncoding};
use lanekeeper_core::fingerprint::Fingerprint;
use lanekeeper_core::ids::Hash32;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::baseline_sentences::{PASSAGES, QUESTIONS, STOP_WORDS};
use crate::convert::HIDDEN;
use crate::pooling;

/// Weight of a stop word or a punctuation mark: as lanes pool, never quite 0, so that a question of
/// nothing else still has a direction.
const STOP_WEIGHT: f32 = 1e-4;

/// The built-in sentences.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sentences {
    questions: &'static [&'static str],
    passages: &'static [&'static str],
}

impl Sentences {
    pub(crate) fn builtin() -> Self {
        Self { questions: QUESTIONS, passages: PASSAGES }
    }

    pub(crate) fn questions(self) -> &'static [&'static str] {
        self.questions
    }

    /// As the projection makes them: a header, and the two before as context.
    pub(crate) fn passages(self) -> Vec<Passage> {
        let context = |index: usize| match index {
            0 => String::new(),
            1 => self.passages[0].to_owned(),
            _ => format!("{} {}", self.passages[index - 2], self.passages[index - 1]),
        };
        self.passages
            .iter()
            .enumerate()
            .map(|(index, chunk)| Passage {
                context: context(index),
                header: format!("[log {:08x} 2026-{:02}-{:02}]", index * 0x01f3_9a71, 1 + index % 12, 1 + index % 28),
                chunk: (*chunk).to_owned(),
            })
            .collect()
    }

    /// One vector for a question, as a lane pools it: stop words and punctuation count next to
    /// nothing. The other words weigh the same, since each is rare in so small a collection.
    pub(crate) fn pool_question(self, question: &QueryEncoding) -> Option<Vec<f32>> {
        let (text, tokens) = match question {
            QueryEncoding::Pooled(vector) => return Some(vector.clone()),
            QueryEncoding::States { text, tokens } => (text, tokens),
        };
        let mut sum = vec![0.0; tokens.first().map_or(HIDDEN, |token| token.state.len())];
        for token in tokens {
            let word = word_at(text, token.start as usize, token.end as usize).to_lowercase();
            let is_weak = !word.contains(char::is_alphanumeric) || STOP_WORDS.contains(&word.as_str());
            let weight = if is_weak { STOP_WEIGHT } else { 1.0 };
            for (total, value) in sum.iter_mut().zip(&token.state) {
                *total += weight * value;
            }
        }
        pooling::normalise(&mut sum).then_some(sum)
    }

    fn sha256(self) -> Hash32 {
        let mut hasher = Sha256::new();
        for text in self.questions.iter().chain(self.passages).chain(STOP_WORDS) {
            hasher.update((text.len() as u64).to_be_bytes());
            hasher.update(text.as_bytes());
        }
        Hash32::from_bytes(hasher.finalize().into())
    }
}

/// The whole word that a word piece is part of; a punctuation mark is its own word.
fn word_at(text: &str, start: usize, end: usize) -> &str {
    let (Some(before), Some(piece), Some(after)) = (text.get(..start), text.get(start..end), text.get(end..)) else {
        return "";
    };
    if !piece.contains(char::is_alphanumeric) {
        return piece;
    }
    let head: usize = before.chars().rev().take_while(|c| c.is_alphanumeric()).map(char::len_utf8).sum();
    let tail: usize = after.chars().take_while(|c| c.is_alphanumeric()).map(char::len_utf8).sum();
    &text[start - head..end + tail]
}

/// Mean and 99th percentile of the cosine over every pair; vectors have length 1.
pub(crate) fn measure(questions: &[Vec<f32>], passages: &[Vec<f32>]) -> Option<Baseline> {
    let mut cosines: Vec<f64> = questions
        .iter()
        .flat_map(|question| passages.iter().map(move |passage| pooling::dot(question, passage)))
        .collect();
    if cosines.is_empty() || !cosines.iter().all(|cosine| cosine.is_finite()) {
        return None;
    }
    cosines.sort_by(f64::total_cmp);
    let mean = cosines.iter().sum::<f64>() / cosines.len() as f64;
    let p99 = cosines[(cosines.len() * 99).div_ceil(100) - 1];
    Some(Baseline { mean: mean as f32, p99: p99 as f32, pairs: u32::try_from(cosines.len()).ok()? })
}

/// A baseline that becomes known later. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    value: Arc<OnceLock<Baseline>>,
    kept: Option<Kept>,
}

#[derive(Debug, Clone)]
struct Kept {
    file: PathBuf,
    fingerprint: Fingerprint,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptFile {
    fingerprint: Fingerprint,
    sentences_sha256: Hash32,
    baseline: Baseline,
}

impl Measured {
    /// Known only in this process.
    pub(crate) fn in_memory() -> Self {
        Self { value: Arc::default(), kept: None }
    }

    /// Kept beside the weights; already known if it is there.
    pub(crate) fn kept_in(dir: &Path, fingerprint: Fingerprint) -> Self {
        let file = dir.join(format!("baseline-{}.json", fingerprint.short()));
        let value = OnceLock::new();
        if let Some(baseline) = read(&file, fingerprint) {
            // A fresh cell takes its first value.
            let _ = value.set(baseline);
        }
        Self { value: Arc::new(value), kept: Some(Kept { file, fingerprint }) }
    }

    pub(crate) fn get(&self) -> Option<Baseline> {
        self.value.get().copied()
    }

    /// Measures from vectors and keeps the result. The first one stays.
    pub(crate) fn set(&self, questions: &[Vec<f32>], passages: &[Vec<f32>]) {
        let Some(baseline) = measure(questions, passages) else { return };
        if self.value.set(baseline).is_err() {
            return;
        }
        tracing::info!(mean = baseline.mean, p99 = baseline.p99, pairs = baseline.pairs, "measured the baseline");
        let Some(Kept { file, fingerprint }) = &self.kept else { return };
        let kept = KeptFile { fingerprint: *fingerprint, sentences_sha256: Sentences::builtin().sha256(), baseline };
        if let Err(error) = write(file, &kept) {
            // A read-only cache is fine: it is measured again at the next start.
            tracing::debug!(file = %file.display(), %error, "the baseline is not kept");
        }
    }
}

fn read(file: &Path, fingerprint: Fingerprint) -> Option<Baseline> {
    let KeptFile { fingerprint: of, sentences_sha256, baseline } =
        serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    let in_range = |cosine: f32| (-1.0..=1.0).contains(&cosine);
    (of == fingerprint
        && sentences_sha256 == Sentences::builtin().sha256()
        && in_range(baseline.mean)
        && in_range(baseline.p99)
        && baseline.pairs > 0)
        .then_some(baseline)
}

fn write(file: &Path, kept: &KeptFile) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer_pretty(&mut temporary, kept)?;
    temporary.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use lanekeeper_core::encoder::TokenState;
    use lanekeeper_core::fingerprint::FingerprintFields;

    use super::*;

    #[test]
    fn the_sentences_are_many_and_distinct() {
        let all: HashSet<_> = QUESTIONS.iter().chain(PASSAGES).collect();
        assert!(QUESTIONS.len() >= 60 && PASSAGES.len() >= 60);
        assert_eq!(all.len(), QUESTIONS.len() + PASSAGES.len());
    }

    #[test]
    fn mean_and_percentile_are_over_every_pair() {
        // Cosines 0, 0.01 … 0.99 with the one question.
        let question = vec![1.0, 0.0];
        let passages: Vec<Vec<f32>> =
            (0..100).map(|step| step as f32 / 100.0).map(|x| vec![x, (1.0 - x * x).sqrt()]).collect();
        let baseline = measure(&[question], &passages).unwrap();
        assert_eq!(baseline.pairs, 100);
        assert!((baseline.mean - 0.495).abs() < 1e-4, "{baseline:?}");
        assert!((baseline.p99 - 0.98).abs() < 1e-4, "99 of 100 are at most this: {baseline:?}");
        assert_eq!(measure(&[], &passages), None);
        assert_eq!(measure(&[vec![f32::NAN, 0.0]], &passages), None);
    }

    #[test]
    fn stop_words_and_punctuation_hardly_count() {
        let text = "What is Ködering, the thing?";
        let token = |word: &str, state: [f32; 2]| {
            let start = text.find(word).unwrap();
            TokenState { start: start as u32, end: (start + word.len()) as u32, state: state.to_vec() }
        };
        let tokens = vec![
            token("What", [5.0, 0.0]),
            token("is", [5.0, 0.0]),
            // A piece of a word counts as the word: "ring" is none by itself.
            token("Köde", [0.0, 1.0]),
            token("ring", [0.0, 1.0]),
            token(",", [5.0, 0.0]),
        ];
        let pooled = Sentences::builtin().pool_question(&QueryEncoding::States { text: text.into(), tokens }).unwrap();
        assert!(pooled[1] > 0.999, "{pooled:?}");
        assert_eq!(word_at(text, text.find("ring").unwrap(), text.find(',').unwrap()), "Ködering");
    }

    #[test]
    fn what_is_kept_counts_for_its_fingerprint_and_sentences_only() {
        let dir = tempfile::tempdir().unwrap();
        let fingerprint = FingerprintFields::builtin().fingerprint();
        let measured = Measured::kept_in(dir.path(), fingerprint);
        assert_eq!(measured.get(), None);
        measured.set(&[vec![1.0, 0.0]], &[vec![0.6, 0.8]]);
        let known = measured.get().unwrap();
        assert!((known.mean - 0.6).abs() < 1e-6);
        assert_eq!(Measured::kept_in(dir.path(), fingerprint).get(), Some(known));

        let file = dir.path().join(format!("baseline-{}.json", fingerprint.short()));
        let good: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        for (field, value) in [
            ("fingerprint", serde_json::json!("0".repeat(64))),
            ("sentences_sha256", serde_json::json!("0".repeat(64))),
            ("baseline", serde_json::json!({"mean": 0.1, "p99": 7.0, "pairs": 1})),
        ] {
            let mut changed = good.clone();
            changed[field] = value;
            std::fs::write(&file, changed.to_string()).unwrap();
            assert_eq!(Measured::kept_in(dir.path(), fingerprint).get(), None, "{field}");
        }
        std::fs::write(&file, good.to_string()).unwrap();
        assert_eq!(Measured::kept_in(dir.path(), fingerprint).get(), Some(known));
    }
}
