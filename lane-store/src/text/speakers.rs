//! Known speakers named in a question.
//!
//! A name counts as a word or a run of words, whatever its case and spelling, never as part of one. Where
//! one name stands inside a longer one (`Ann` in `Mary Ann`), only the longer is named.

use std::collections::BTreeSet;
use std::ops::Range;

use lanekeeper_core::lane::Language;

use super::analyze::{Word, words_with_offsets};

/// The known speakers of a lane, ready to be looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KnownSpeakers {
    /// Name as saved, and its folded pieces; longest first.
    names: Vec<(String, Vec<String>)>,
}

impl KnownSpeakers {
    /// Names without a letter, digit or emoji are never found in a question and left out.
    pub(crate) fn new<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Self {
        let mut names: Vec<(String, Vec<String>)> = names
            .into_iter()
            .map(|name| {
                let name = name.as_ref();
                (name.to_owned(), pieces(&words_with_offsets(name, Language::None)))
            })
            .filter(|(_, pieces)| !pieces.is_empty())
            .collect();
        names.sort_by(|(name, pieces), (other, others)| others.len().cmp(&pieces.len()).then_with(|| name.cmp(other)));
        Self { names }
    }

    /// Whether there are any.
    pub(crate) const fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Each place where a name stands: the name as saved, and the range of `words` (which may hold
    /// punctuation) that it covers. Places do not overlap.
    fn places(&self, words: &[Word]) -> Vec<(&str, Range<usize>)> {
        let spoken: Vec<(usize, &str)> = words
            .iter()
            .enumerate()
            .filter(|(_, word)| !word.is_punct)
            .map(|(index, word)| (index, word.folded.as_str()))
            .collect();
        let mut taken = vec![false; spoken.len()];
        let mut places = Vec::new();
        for (name, pieces) in &self.names {
            for (at, run) in spoken.windows(pieces.len()).enumerate() {
                let free = !taken[at..at + pieces.len()].iter().any(|taken| *taken);
                if free && run.iter().map(|(_, word)| word).eq(pieces) {
                    taken[at..at + pieces.len()].fill(true);
                    places.push((name.as_str(), run[0].0..run[run.len() - 1].0 + 1));
                }
            }
        }
        places
    }

    /// For each of `words`, whether it is part of a known speaker's name.
    pub(crate) fn covering(&self, words: &[Word]) -> Vec<bool> {
        let mut covered = vec![false; words.len()];
        for (_, range) in self.places(words) {
            covered[range].fill(true);
        }
        covered
    }

    /// The one known speaker whose name stands in the question; `None` where none or several do. Spellings
    /// that differ only in case are one name: the first by order of characters is given.
    pub(crate) fn named_in(&self, question: &str) -> Option<&str> {
        let words = words_with_offsets(question, Language::None);
        let names: BTreeSet<&str> = self.places(&words).into_iter().map(|(name, _)| name).collect();
        match names.len() {
            1 => names.first().copied(),
            _ => None,
        }
    }
}

fn pieces(words: &[Word]) -> Vec<String> {
    words.iter().filter(|word| !word.is_punct).map(|word| word.folded.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_name_as_a_word() {
        let known = KnownSpeakers::new(["Caroline", "Mel", "Mary Ann", "Ann", "李雷", "C-3PO", "???"]);
        for (question, expected) in [
            ("What did Caroline say?", Some("Caroline")),
            ("what did CAROLINE's sister do", Some("Caroline")),
            ("Carolines", None),
            ("Melanie and mel", Some("Mel")),
            ("Caroline or Mel?", None),
            ("when did mary ann leave", Some("Mary Ann")),
            ("when did ann leave", Some("Ann")),
            ("ann and mary ann", None),
            ("李雷昨天说什么", Some("李雷")),
            ("did c-3po beep", Some("C-3PO")),
            ("nobody ???", None),
            ("", None),
        ] {
            assert_eq!(known.named_in(question), expected, "{question}");
        }
        assert_eq!(KnownSpeakers::new(["bob", "Bob"]).named_in("ask BOB"), Some("Bob"));
        assert_eq!(KnownSpeakers::default().named_in("ask Bob"), None);
        assert!(KnownSpeakers::default().is_empty() && !known.is_empty());
    }
}
