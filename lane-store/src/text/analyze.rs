//! The analyzer: tokens of a stored text, terms of a question, and the words of a text with offsets.
//!
//! Each blank-separated word gives its pieces, folded and stemmed, and, where it holds any other
//! character, itself unstemmed (DESIGN.md §3; docs/decisions/0040). Both sides of the index go through
//! [`tokens_of`], so what is stored is what is asked for; only stop words are a matter of the question.

use std::collections::HashSet;

use lanekeeper_core::lane::Language;
use rust_stemmers::{Algorithm, Stemmer};

use super::chars::{Class, class, fold};
use super::encode::encode;
use super::lexer::{Piece, PieceKind, RawWord, each_word};
use super::stop_words::{is_negation_head, is_stop};

/// Most distinct terms a question gives. A recall query has at most 3072 characters; a pathological one
/// of two-character tokens could still have as many terms.
pub(crate) const MAX_QUERY_TERMS: usize = 1024;

/// Longest piece that is stemmed, bytes: no word of any language is longer, and the stemmer's time is not
/// bounded by anything else.
const MAX_STEMMED_BYTES: usize = 64;

/// What a term of a question was in its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TermKind {
    /// A piece, stemmed.
    Piece,
    /// Two characters of a script without blanks, or one that stood alone.
    Unspaced,
    /// An emoji.
    Symbol,
    /// A whole word with other characters in it.
    Whole,
}

/// One term of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueryTerm {
    /// As stored: `[a-z0-9]`, at most 64 bytes.
    pub(crate) token: String,
    /// Where it came from.
    pub(crate) kind: TermKind,
}

/// The terms of a question, distinct, in order of first appearance, none a stop word.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct QueryTerms {
    /// At most [`MAX_QUERY_TERMS`].
    pub(crate) terms: Vec<QueryTerm>,
}

impl QueryTerms {
    /// Whether there is anything to search for; if not, coverage says `no_searchable_terms`.
    pub(crate) const fn searchable(&self) -> bool {
        !self.terms.is_empty()
    }

    /// Keeps the `max` terms that the fewest rows hold, in their order. Terms that no row holds go first:
    /// they find nothing.
    pub(crate) fn keep_rarest(&mut self, max: usize, df: impl Fn(&str) -> u64) {
        if self.terms.len() <= max {
            return;
        }
        let mut by_df: Vec<(u64, usize)> = self
            .terms
            .iter()
            .enumerate()
            .map(|(index, term)| match df(&term.token) {
                0 => (u64::MAX, index),
                found => (found, index),
            })
            .collect();
        by_df.sort_unstable();
        let kept: HashSet<usize> = by_df.iter().take(max).map(|(_, index)| *index).collect();
        let mut index = 0;
        self.terms.retain(|_| {
            index += 1;
            kept.contains(&(index - 1))
        });
    }
}

/// A piece of a text, for giving a model's tokens the weight of their word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    /// Byte range in the text.
    pub(crate) start: usize,
    /// Byte range in the text, end exclusive.
    pub(crate) end: usize,
    /// The piece in the form in which spellings are equal, unstemmed; for names.
    pub(crate) folded: String,
    /// The stored tokens it is part of: one, or for scripts without blanks the one or two pairs that hold
    /// this character; none for punctuation.
    pub(crate) tokens: Vec<String>,
    /// A stop word of the language.
    pub(crate) is_stop: bool,
    /// Characters between pieces.
    pub(crate) is_punct: bool,
}

/// The tokens of a stored text, with repeats, in order. Joined by blanks they are what FTS5 gets.
pub(crate) fn document_tokens(text: &str, language: Language) -> Vec<String> {
    let stemmer = stemmer(language);
    let mut out = Vec::with_capacity(text.len() / 5);
    each_word(text, |word| {
        tokens_of(text, word, stemmer.as_ref(), language, |token, _, _| out.push(encode(&token)));
    });
    out
}

/// The terms of a question.
pub(crate) fn query_terms(text: &str, language: Language) -> QueryTerms {
    let stemmer = stemmer(language);
    let mut seen = HashSet::new();
    let mut terms = Vec::new();
    let mut punctuation = Vec::new();
    let mut has_pieces = false;
    each_word(text, |word| {
        has_pieces |= !word.pieces.is_empty();
        tokens_of(text, word, stemmer.as_ref(), language, |token, kind, is_stop| {
            if is_stop || terms.len() + punctuation.len() >= MAX_QUERY_TERMS {
                return;
            }
            let term = QueryTerm { token: encode(&token), kind };
            if seen.insert(term.token.clone()) {
                if word.pieces.is_empty() { &mut punctuation } else { &mut terms }.push(term);
            }
        });
    });
    // `&&` is searched for when it is all that is asked. Beside words it is decoration, and a hit by a
    // lone dash would pass the lane's gate.
    if !has_pieces {
        terms = punctuation;
    }
    QueryTerms { terms }
}

/// The FTS5 query: OR of quoted tokens. Holds no character of the question, so there is no syntax in it.
/// `None` where there is nothing to search for: FTS5 refuses an empty expression.
pub(crate) fn match_expression(terms: &[QueryTerm]) -> Option<String> {
    if terms.is_empty() {
        return None;
    }
    let mut out = String::with_capacity(terms.len() * 16);
    for term in terms {
        if !out.is_empty() {
            out.push_str(" OR ");
        }
        out.push('"');
        out.push_str(&term.token);
        out.push('"');
    }
    Some(out)
}

/// Every piece of a text with its place, and the runs of other characters between them. In order, without
/// overlap; blanks belong to none.
pub(crate) fn words_with_offsets(text: &str, language: Language) -> Vec<Word> {
    let stemmer = stemmer(language);
    let mut out = Vec::new();
    each_word(text, |word| {
        let mut at = word.range.start;
        for (index, piece) in word.pieces.iter().enumerate() {
            push_punctuation(text, at..piece.range.start, &mut out);
            push_piece(text, word, index, stemmer.as_ref(), language, &mut out);
            at = piece.range.end;
        }
        push_punctuation(text, at..word.range.end, &mut out);
    });
    out
}

fn push_punctuation(text: &str, range: std::ops::Range<usize>, out: &mut Vec<Word>) {
    if !range.is_empty() && text[range.clone()].chars().any(|c| class(c) == Class::Other) {
        out.push(Word {
            start: range.start,
            end: range.end,
            folded: String::new(),
            tokens: Vec::new(),
            is_stop: false,
            is_punct: true,
        });
    }
}

fn push_piece(
    text: &str,
    word: &RawWord,
    index: usize,
    stemmer: Option<&Stemmer>,
    language: Language,
    out: &mut Vec<Word>,
) {
    let piece = &word.pieces[index];
    let new =
        |start, end, folded: String, tokens, is_stop| Word { start, end, folded, tokens, is_stop, is_punct: false };
    match piece.kind {
        PieceKind::Run => {
            let folded = fold(&text[piece.range.clone()]);
            let stop = is_stop_piece(text, word, index, &folded, language);
            let tokens = vec![encode(&stem(&folded, stemmer))];
            out.push(new(piece.range.start, piece.range.end, folded, tokens, stop));
        }
        PieceKind::Symbol => {
            let folded = fold(&text[piece.range.clone()]);
            let tokens = vec![encode(&folded)];
            out.push(new(piece.range.start, piece.range.end, folded, tokens, false));
        }
        PieceKind::Unspaced => {
            let units = units(text, piece);
            let pairs: Vec<String> =
                units.windows(2).map(|pair| encode(&format!("{}{}", pair[0].folded, pair[1].folded))).collect();
            for (at, unit) in units.iter().enumerate() {
                let before = at.checked_sub(1).and_then(|at| pairs.get(at));
                let mut tokens: Vec<String> = before.into_iter().chain(pairs.get(at)).cloned().collect();
                if tokens.is_empty() {
                    tokens.push(encode(&unit.folded));
                }
                out.push(new(unit.start, unit.end, unit.folded.clone(), tokens, false));
            }
        }
    }
}

/// All tokens of one word, folded and not yet encoded: `each(token, kind, is a stop word)`.
fn tokens_of(
    text: &str,
    word: &RawWord,
    stemmer: Option<&Stemmer>,
    language: Language,
    mut each: impl FnMut(String, TermKind, bool),
) {
    // Whether all pieces after the first are stop words (`don't`, `Caroline's`), or, in French, all before the
    // last (`l'eau`): such a word says no more than its pieces do.
    let (mut tail_stops, mut head_stops) = (true, language == Language::French);
    for (index, piece) in word.pieces.iter().enumerate() {
        let mut stop = false;
        match piece.kind {
            PieceKind::Run => {
                let folded = fold(&text[piece.range.clone()]);
                stop = is_stop_piece(text, word, index, &folded, language);
                each(stem(&folded, stemmer), TermKind::Piece, stop);
            }
            PieceKind::Symbol => each(fold(&text[piece.range.clone()]), TermKind::Symbol, false),
            PieceKind::Unspaced => {
                let units = units(text, piece);
                if let [only] = units.as_slice() {
                    each(only.folded.clone(), TermKind::Unspaced, false);
                }
                for pair in units.windows(2) {
                    each(format!("{}{}", pair[0].folded, pair[1].folded), TermKind::Unspaced, false);
                }
            }
        }
        tail_stops &= stop || index == 0;
        head_stops &= stop || index + 1 == word.pieces.len();
    }
    if let Some(whole) = &word.whole {
        let contraction = word.joined_by_apostrophes && word.pieces.len() > 1 && (tail_stops || head_stops);
        if !contraction {
            each(fold(&text[whole.clone()]), TermKind::Whole, false);
        }
    }
}

fn is_stop_piece(text: &str, word: &RawWord, index: usize, folded: &str, language: Language) -> bool {
    if is_stop(folded, language) {
        return true;
    }
    // `don` in `don't`. The next piece is `t`, and `joined_by_apostrophes` says what stands between.
    word.joined_by_apostrophes
        && is_negation_head(folded, language)
        && word.pieces.get(index + 1).is_some_and(|next| text[next.range.clone()].eq_ignore_ascii_case("t"))
}

fn stemmer(language: Language) -> Option<Stemmer> {
    let algorithm = match language {
        Language::English => Algorithm::English,
        Language::German => Algorithm::German,
        Language::French => Algorithm::French,
        Language::Spanish => Algorithm::Spanish,
        Language::None => return None,
    };
    Some(Stemmer::create(algorithm))
}

/// The stem of a folded piece. Left as it is: what has no Latin letter (another script), what has a digit
/// (a version, a hash), and what is too long to be a word.
fn stem(folded: &str, stemmer: Option<&Stemmer>) -> String {
    let is_word = folded.len() <= MAX_STEMMED_BYTES
        && folded.chars().all(|c| !c.is_numeric())
        && folded.chars().any(|c| c.is_ascii_alphabetic() || matches!(c, '\u{C0}'..='\u{24F}'));
    match stemmer {
        // A stem of nothing would be a token that every such word shares.
        Some(stemmer) if is_word => match stemmer.stem(folded) {
            stemmed if stemmed.is_empty() => folded.to_owned(),
            stemmed => stemmed.into_owned(),
        },
        Some(_) | None => folded.to_owned(),
    }
}

/// A character on paper of a script without blanks.
struct Unit {
    start: usize,
    end: usize,
    folded: String,
}

fn units(text: &str, piece: &Piece) -> Vec<Unit> {
    let body = &text[piece.range.clone()];
    let mut starts: Vec<usize> = body
        .char_indices()
        .filter(|(offset, c)| *offset == 0 || class(*c) == Class::Unspaced)
        .map(|(offset, _)| offset)
        .collect();
    starts.push(body.len());
    starts
        .windows(2)
        .map(|pair| Unit {
            start: piece.range.start + pair[0],
            end: piece.range.start + pair[1],
            folded: fold(&body[pair[0]..pair[1]]),
        })
        .collect()
}

#[cfg(test)]
mod tests;
