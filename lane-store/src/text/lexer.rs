//! Words and pieces of a text, with byte offsets into it.
//!
//! A word is what stands between blanks. It has pieces (runs of letters, digits and marks of one
//! script kind; each emoji) and is itself a token where other characters join or decorate them.
//! Nothing is folded, stemmed or dropped here.

use std::ops::Range;

use super::chars::{Class, class, is_apostrophe, is_outer};

/// What a piece is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PieceKind {
    /// A run of letters and digits.
    Run,
    /// A run in a script without blanks.
    Unspaced,
    /// One emoji.
    Symbol,
}

/// A run inside a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) range: Range<usize>,
    pub(super) kind: PieceKind,
}

/// A word with its pieces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RawWord {
    /// From blank to blank.
    pub(super) range: Range<usize>,
    /// In order.
    pub(super) pieces: Vec<Piece>,
    /// The word without what stands round it, where it holds other characters than its pieces do.
    pub(super) whole: Option<Range<usize>>,
    /// Whether apostrophes are all that joins the pieces of `whole`.
    pub(super) joined_by_apostrophes: bool,
}

/// Calls `each` with every word. One buffer serves all of them: a 1 MB text costs no memory per word.
pub(super) fn each_word(text: &str, mut each: impl FnMut(&RawWord)) {
    let mut word = RawWord::default();
    let mut start = None;
    for (index, c) in text.char_indices() {
        if class(c) == Class::Blank {
            if let Some(from) = start.take() {
                fill(text, from..index, &mut word);
                each(&word);
            }
        } else if start.is_none() {
            start = Some(index);
        }
    }
    if let Some(from) = start {
        fill(text, from..text.len(), &mut word);
        each(&word);
    }
}

fn fill(text: &str, range: Range<usize>, word: &mut RawWord) {
    word.range = range.clone();
    word.pieces.clear();
    let body = &text[range.clone()];
    // Set by an apostrophe or any other joining character, so that `a'b` has two pieces of one kind.
    let mut open = false;
    for (offset, c) in body.char_indices() {
        let at = range.start + offset;
        let end = at + c.len_utf8();
        let kind = match class(c) {
            Class::Letter => PieceKind::Run,
            Class::Unspaced => PieceKind::Unspaced,
            Class::Symbol => {
                word.pieces.push(Piece { range: at..end, kind: PieceKind::Symbol });
                open = false;
                continue;
            }
            // A mark without a letter before it is a run of its own.
            Class::Mark => match word.pieces.last() {
                Some(piece) if open => piece.kind,
                Some(_) | None => PieceKind::Run,
            },
            Class::Ignored => continue,
            Class::Other | Class::Blank => {
                open = false;
                continue;
            }
        };
        match word.pieces.last_mut() {
            Some(piece) if open && piece.kind == kind => piece.range.end = end,
            Some(_) | None => word.pieces.push(Piece { range: at..end, kind }),
        }
        open = true;
    }
    word.whole = whole(text, range, word.pieces.is_empty());
    word.joined_by_apostrophes = word
        .whole
        .as_ref()
        .is_some_and(|whole| text[whole.clone()].chars().all(|c| class(c) != Class::Other || is_apostrophe(c)));
}

/// The part of a word that is a token of its own.
fn whole(text: &str, range: Range<usize>, no_pieces: bool) -> Option<Range<usize>> {
    let body = &text[range.clone()];
    if no_pieces {
        // `->` and `>=` differ by what would be stripped; "```" and "..." are nothing but that.
        let says_something = body.chars().any(|c| class(c) == Class::Other && !is_outer(c));
        return says_something.then_some(range);
    }
    let around = |c: char| is_outer(c) || matches!(class(c), Class::Ignored | Class::Symbol);
    let left = body.trim_start_matches(around);
    let start = range.start + body.len() - left.len();
    let inner = left.trim_end_matches(around);
    inner.chars().any(|c| class(c) == Class::Other).then(|| start..start + inner.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lex(text: &str) -> Vec<(Vec<&str>, Option<&str>)> {
        let mut out = Vec::new();
        each_word(text, |word| {
            out.push((
                word.pieces.iter().map(|piece| &text[piece.range.clone()]).collect(),
                word.whole.clone().map(|whole| &text[whole]),
            ));
        });
        out
    }

    #[test]
    fn pieces_and_wholes() {
        for (text, pieces, whole) in [
            ("hello", vec!["hello"], None),
            ("\"hello,\"", vec!["hello"], None),
            ("C++", vec!["C"], Some("C++")),
            ("(`C++`).", vec!["C"], Some("C++")),
            ("v2.5", vec!["v2", "5"], Some("v2.5")),
            ("a'b", vec!["a", "b"], Some("a'b")),
            ("GB/s", vec!["GB", "s"], Some("GB/s")),
            ("host:8080", vec!["host", "8080"], Some("host:8080")),
            ("-rf", vec!["rf"], Some("-rf")),
            ("max_connections", vec!["max", "connections"], Some("max_connections")),
            ("GPU节点", vec!["GPU", "节点"], None),
            ("shipped🎉🎉", vec!["shipped", "🎉", "🎉"], None),
            ("v2.5🎉", vec!["v2", "5", "🎉"], Some("v2.5")),
            (">=", vec![], Some(">=")),
            ("```", vec![], None),
            ("...", vec![], None),
            ("caf\u{65}\u{301}", vec!["caf\u{65}\u{301}"], None),
            ("\u{feff}abc", vec!["abc"], None),
        ] {
            assert_eq!(lex(text), vec![(pieces, whole)], "{text}");
        }
        assert_eq!(lex("a\0b").len(), 2);
        assert_eq!(lex("他说，今天").len(), 2);
        assert!(lex(" \u{2003}\n").is_empty());
    }
}
