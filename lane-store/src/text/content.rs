//! The form of a text under which two saves are the same content.
//!
//! NFKC → newlines → whitespace folded → casefold (DESIGN.md §3), then NFKC again because folding can
//! undo it. The caller takes the HMAC under the lane's dedupe key; nothing here is a hash.

use caseless::Caseless;
use unicode_normalization::UnicodeNormalization;

/// The normalised content. Every run of blanks, newlines of any kind included, is one space; none stand at
/// the ends.
pub(crate) fn normalised_content(text: &str) -> String {
    // A newline is a blank once it is folded, so both steps are one pass: CRLF, CR, LF, NEL and the
    // separators U+2028 and U+2029 are all whitespace to Unicode.
    let mut folded = String::with_capacity(text.len());
    for c in text.nfkc() {
        if c.is_whitespace() {
            if !folded.is_empty() && !folded.ends_with(' ') {
                folded.push(' ');
            }
        } else {
            folded.push(c);
        }
    }
    folded.truncate(folded.trim_end_matches(' ').len());
    folded.chars().default_case_fold().nfkc().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn same_content() {
        for (a, b) in [
            ("a\r\nb\rc\nd", "a b c d"),
            ("  Hello\t World \n", "hello world"),
            ("cafe\u{301}", "CAF\u{c9}"),
            ("Straße", "STRASSE"),
            ("ＧＰＵ 節点", "gpu 節点"),
            ("a\u{2028}b\u{a0}c", "A B C"),
        ] {
            assert_eq!(normalised_content(a), normalised_content(b), "{a:?}");
        }
    }

    #[test]
    fn c17_near_equality_is_not_equality() {
        for (a, b) in [
            ("the deadline is October 15th", "the deadline is October 16th"),
            ("99.9 %", "99.5 %"),
            ("do it", "don't do it"),
            ("ab", "a b"),
            ("a\0b", "ab"),
            ("x", "x."),
            ("rm -rf", "rm rf"),
            ("\u{feff}a", "a"),
        ] {
            assert_ne!(normalised_content(a), normalised_content(b), "{a:?}");
        }
    }

    proptest! {
        #[test]
        fn normalising_twice_is_normalising_once(text in "\\PC{0,60}|[\\s\\PC]{0,60}") {
            let once = normalised_content(&text);
            prop_assert_eq!(normalised_content(&once), once.clone());
            prop_assert!(!once.starts_with(' ') && !once.ends_with(' '));
        }
    }
}
