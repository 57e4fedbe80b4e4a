//! Cutting a question that is too long: head and tail stay, a marker stands between.
//!
//! What is asked stands at the start or at the end of a long prompt, so the middle goes.

use lanekeeper_core::limits::QUERY_CHARS;

/// Holds no letter, so that it is never a search term itself.
const MARKER: &str = " […] ";

/// The question, at most [`QUERY_CHARS`] characters long, and whether it was cut.
pub(super) fn cut(query: &str) -> (String, bool) {
    let chars = query.chars().count();
    if chars <= QUERY_CHARS {
        return (query.to_owned(), false);
    }
    let kept = QUERY_CHARS - MARKER.chars().count();
    let head = kept.div_ceil(2);
    let tail = kept - head;
    let text = query.chars().take(head).chain(MARKER.chars()).chain(query.chars().skip(chars - tail)).collect();
    (text, true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn head_and_tail_are_kept() {
        let long = format!("BENCH-100821{}host:8080", "x".repeat(4000));
        let (text, was_cut) = cut(&long);
        assert!(was_cut);
        assert_eq!(text.chars().count(), QUERY_CHARS);
        assert!(text.starts_with("BENCH-100821") && text.ends_with("host:8080") && text.contains(MARKER));
        let at_limit = "ä".repeat(QUERY_CHARS);
        assert_eq!(cut(&at_limit), (at_limit.clone(), false));
        assert!(cut(&format!("{at_limit}ä")).1);
    }

    proptest! {
        #[test]
        fn no_question_is_longer_than_the_limit(part in "\\PC{1,9}", times in 1_usize..2000) {
            let (text, _) = cut(&part.repeat(times));
            prop_assert!(text.chars().count() <= QUERY_CHARS);
        }
    }
}
