//! Windows of a turn: 512 characters, 100 overlap, cut where no character on paper is torn.
//!
//! Deterministic in the text alone, so a rebuild makes the same points. A window may end inside a word:
//! the overlap holds the word whole. A grapheme that is longer than a window is cut inside.

use std::ops::Range;

use lanekeeper_core::limits::{WINDOW_CHARS, WINDOW_OVERLAP_CHARS};
use unicode_segmentation::UnicodeSegmentation;

/// Byte ranges of the windows of a text, in order. None for a text of blanks alone, and none of the windows
/// is: there is nothing to encode in it.
pub(crate) fn windows(text: &str) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut start = 0;
    while start < text.len() {
        // One character more than a window decides whether its end is a border. No further look is ever
        // needed, which keeps a 1 MB line linear, and one of combining marks alone too.
        let rest = &text[start..];
        let seen = byte_of_char(rest, WINDOW_CHARS + 1).unwrap_or(rest.len());
        let cut = cut(&rest[..seen], seen == rest.len());
        let end = start + cut.end;
        if !text[start..end].trim().is_empty() {
            out.push(start..end);
        }
        if end == text.len() {
            break;
        }
        start += cut.next;
    }
    out
}

struct Cut {
    end: usize,
    next: usize,
}

/// The end of the window that begins at 0, and where the next one begins. `last`: the text ends with `seen`.
fn cut(seen: &str, last: bool) -> Cut {
    let mut borders = Vec::with_capacity(WINDOW_CHARS);
    let mut chars = 0;
    for (offset, grapheme) in seen.grapheme_indices(true) {
        chars += grapheme.chars().count();
        let end = offset + grapheme.len();
        // The last grapheme of a cut view may go on.
        if chars > WINDOW_CHARS || (end == seen.len() && !last) {
            break;
        }
        borders.push((end, chars));
    }
    let Some(&(end, chars)) = borders.last() else {
        let end = byte_of_char(seen, WINDOW_CHARS).unwrap_or(seen.len());
        return Cut { end, next: end };
    };
    let back = chars.saturating_sub(WINDOW_OVERLAP_CHARS);
    // The last border that leaves at least the overlap, but always past 0.
    let next = borders.iter().rev().find(|(_, at)| *at <= back && *at > 0).map_or(end, |(offset, _)| *offset);
    Cut { end, next }
}

fn byte_of_char(text: &str, index: usize) -> Option<usize> {
    text.char_indices().nth(index).map(|(offset, _)| offset)
}

/// Halves of a chunk that has too many tokens, cut at the border nearest its middle. `None` for a chunk of
/// one character or none: it cannot be made smaller.
pub(crate) fn split(chunk: &str) -> Option<(&str, &str)> {
    let middle = chunk.len() / 2;
    let nearest = |borders: &mut dyn Iterator<Item = usize>| {
        borders.filter(|offset| *offset > 0 && *offset < chunk.len()).min_by_key(|offset| offset.abs_diff(middle))
    };
    nearest(&mut chunk.grapheme_indices(true).map(|(offset, _)| offset))
        .or_else(|| nearest(&mut chunk.char_indices().map(|(offset, _)| offset)))
        .map(|offset| chunk.split_at(offset))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use proptest::prelude::*;

    use super::*;

    fn chars(text: &str, range: &Range<usize>) -> usize {
        text[range.clone()].chars().count()
    }

    #[test]
    fn short_texts_are_one_window() {
        assert_eq!(windows("hello"), vec![0..5]);
        assert_eq!(windows(&"a".repeat(512)), vec![0..512]);
        assert!(windows("").is_empty() && windows(" \n\t ").is_empty());
    }

    #[test]
    fn windows_overlap_by_100() {
        assert_eq!(windows(&"a".repeat(513)), vec![0..512, 412..513]);
        assert_eq!(windows(&"a".repeat(1000)), vec![0..512, 412..924, 824..1000]);
    }

    #[test]
    fn no_grapheme_is_torn() {
        let text = "👩‍💻e\u{301}".repeat(200);
        let borders: std::collections::HashSet<usize> =
            text.grapheme_indices(true).map(|(offset, _)| offset).chain([text.len()]).collect();
        let windows = windows(&text);
        assert!(windows.len() > 1);
        for window in &windows {
            assert!(borders.contains(&window.start) && borders.contains(&window.end));
            assert!(chars(&text, window) <= 512);
        }
    }

    #[test]
    fn c22_a_megabyte_in_one_line_is_fast_and_its_end_is_held() {
        for unit in ["a", "e\u{301}", "\u{301}", "節", "🇩🇪", "👩‍💻", "\r\n", " "] {
            let text = format!("{}marker", unit.repeat(1_000_000 / unit.len()));
            let started = Instant::now();
            let windows = windows(&text);
            assert!(started.elapsed().as_millis() < 900, "{unit:?}: {:?}", started.elapsed());
            assert!(text[windows.last().unwrap().clone()].ends_with("marker"));
            assert!(windows.iter().all(|window| chars(&text, window) <= 512));
        }
    }

    #[test]
    fn splitting_always_ends() {
        assert_eq!(split("abcd"), Some(("ab", "cd")));
        assert_eq!(split("節点"), Some(("節", "点")));
        assert_eq!(split("a👩‍💻"), Some(("a", "👩‍💻")));
        assert!(split("👩‍💻").is_some(), "one grapheme is cut inside");
        assert_eq!(split("節"), None);
        assert_eq!(split(""), None);
    }

    proptest! {
        #[test]
        fn windows_hold_every_character(text in "(\\PC|\\s){0,1500}") {
            let windows = windows(&text);
            let mut held = vec![false; text.len()];
            let mut before = 0..0;
            for window in windows {
                prop_assert!(window.start > before.start || before == (0..0));
                prop_assert!(window.end > before.end);
                prop_assert!(chars(&text, &window) <= 512);
                held[window.clone()].fill(true);
                before = window;
            }
            for (offset, c) in text.char_indices() {
                prop_assert!(held[offset] || c.is_whitespace(), "{:?} at {}", c, offset);
            }
        }

        #[test]
        fn halves_make_the_whole(text in "\\PC{0,40}") {
            if let Some((left, right)) = split(&text) {
                prop_assert!(!left.is_empty() && !right.is_empty());
                prop_assert_eq!(format!("{left}{right}"), text);
            } else {
                prop_assert!(text.chars().count() <= 1);
            }
        }
    }
}
