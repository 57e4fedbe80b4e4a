//! What each character is to the analyzer.
//!
//! Owns the classes only. Decided on the text as sent, before any normalisation, so that byte offsets
//! stay true; `fold` is applied to the pieces afterwards.

use caseless::Caseless;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The part a character plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Separates words.
    Blank,
    /// Invisible: neither separates nor counts (marks of direction, byte-order mark, joiners, variation selectors).
    Ignored,
    /// Part of a piece, in a script written with blanks between words.
    Letter,
    /// Part of a piece, in a script written without them: cut in two-character tokens.
    Unspaced,
    /// Belongs to the character before it, in whatever script that is.
    Mark,
    /// An emoji or pictograph: a piece of its own.
    Symbol,
    /// Joins pieces to a whole word.
    Other,
}

/// The class of a character.
pub(super) fn class(c: char) -> Class {
    if c.is_ascii() {
        return match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' => Class::Letter,
            '\0'..=' ' | '\x7f' => Class::Blank,
            _ => Class::Other,
        };
    }
    if c.is_whitespace() || c.is_control() || separates(c) {
        Class::Blank
    } else if is_ignored(c) {
        Class::Ignored
    } else if is_apostrophe(c) {
        // U+02BC is a letter to Unicode and an apostrophe to everyone who types it.
        Class::Other
    } else if joins_previous(c) || is_combining_mark(c) {
        Class::Mark
    } else if c.is_alphanumeric() {
        if is_unspaced(c) { Class::Unspaced } else { Class::Letter }
    } else if is_symbol(c) {
        Class::Symbol
    } else {
        Class::Other
    }
}

/// Dashes and ellipses that join sentences, and the punctuation of scripts written without blanks,
/// which stands where others put `, `.
fn separates(c: char) -> bool {
    matches!(c,
        '\u{200B}' | '\u{2014}' | '\u{2015}' | '\u{2026}' | '\u{30FB}'
        | '\u{3001}'..='\u{3003}' | '\u{3008}'..='\u{3020}' | '\u{3030}' | '\u{303D}'
        | '\u{FE10}'..='\u{FE19}' | '\u{FE30}'..='\u{FE4F}'
        | '\u{FF01}' | '\u{FF08}' | '\u{FF09}' | '\u{FF0C}' | '\u{FF1A}' | '\u{FF1B}' | '\u{FF1F}'
        | '\u{FF3B}' | '\u{FF3D}' | '\u{FF5B}' | '\u{FF5D}' | '\u{FF5F}'..='\u{FF65}')
}

fn is_ignored(c: char) -> bool {
    matches!(c,
        '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{180B}'..='\u{180F}'
        | '\u{200C}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
        | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}'
        // Skin tones: the same gesture.
        | '\u{1F3FB}'..='\u{1F3FF}'
        | '\u{E0000}'..='\u{E0FFF}')
}

/// Apostrophes as keyboards and editors write them.
pub(super) fn is_apostrophe(c: char) -> bool {
    matches!(c, '\'' | '\u{2018}' | '\u{2019}' | '\u{201B}' | '\u{2BC}' | '\u{B4}' | '\u{2032}' | '\u{FF07}')
}

fn is_hyphen(c: char) -> bool {
    matches!(c, '\u{2010}'..='\u{2013}' | '\u{2212}' | '\u{FE63}' | '\u{FF0D}')
}

/// Quotes, brackets and sentence marks: they stand round a word without being part of it.
pub(super) fn is_outer(c: char) -> bool {
    is_apostrophe(c)
        || matches!(c,
            '"' | '`' | '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | '.' | ',' | ';' | ':' | '!' | '?'
            | '\u{A1}' | '\u{AB}' | '\u{BB}' | '\u{BF}'
            | '\u{201A}' | '\u{201C}'..='\u{201F}' | '\u{2033}' | '\u{2039}' | '\u{203A}' | '\u{203C}' | '\u{203D}'
            | '\u{2047}'..='\u{2049}' | '\u{27E8}' | '\u{27E9}' | '\u{FF02}' | '\u{FF0E}'
            // Sentence marks of Greek, Armenian, Hebrew, Arabic, Indic, Ethiopic, Burmese and Khmer.
            | '\u{387}' | '\u{589}' | '\u{5BE}' | '\u{5C3}' | '\u{60C}' | '\u{61B}' | '\u{61F}' | '\u{6D4}'
            | '\u{964}' | '\u{965}' | '\u{1361}'..='\u{1368}' | '\u{104A}' | '\u{104B}' | '\u{17D4}' | '\u{17D5}')
}

/// Scripts written without blanks: Han, Kana, Bopomofo, Hangul (whose particles stick to the noun),
/// Thai, Lao, Burmese and Khmer.
fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{E00}'..='\u{EFF}' | '\u{1000}'..='\u{109F}' | '\u{1100}'..='\u{11FF}' | '\u{1780}'..='\u{17FF}'
        | '\u{2E80}'..='\u{2FDF}' | '\u{3005}'..='\u{3007}' | '\u{3021}'..='\u{3029}' | '\u{3031}'..='\u{303C}'
        | '\u{3040}'..='\u{30FF}' | '\u{3100}'..='\u{31FF}' | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}'
        | '\u{A960}'..='\u{A97F}' | '\u{AC00}'..='\u{D7FF}' | '\u{F900}'..='\u{FAFF}' | '\u{FF66}'..='\u{FFDC}'
        | '\u{1AFF0}'..='\u{1B16F}' | '\u{20000}'..='\u{3FFFF}')
}

/// Letters to Unicode, but never the start of a character on paper: voiced marks of half-width kana,
/// vowels and finals of decomposed Hangul.
fn joins_previous(c: char) -> bool {
    matches!(c, '\u{FF9E}' | '\u{FF9F}' | '\u{1160}'..='\u{11FF}' | '\u{D7B0}'..='\u{D7FF}')
}

fn is_symbol(c: char) -> bool {
    matches!(c, '\u{2300}'..='\u{23FF}' | '\u{2600}'..='\u{27BF}' | '\u{2B00}'..='\u{2BFF}' | '\u{1F000}'..='\u{1FBFF}')
}

/// The form in which two spellings of a piece or word are equal: without invisible characters, one
/// apostrophe, one hyphen, NFKC, case folded.
pub(super) fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars()
        .filter(|&c| !is_ignored(c))
        .map(|c| {
            if is_apostrophe(c) {
                '\''
            } else if is_hyphen(c) {
                '-'
            } else {
                c
            }
        })
        .nfkc()
        .default_case_fold()
        .nfkc()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_of_a_word() {
        assert_eq!(fold("Don\u{2019}T"), "don't");
        assert_eq!(fold("multi\u{2011}agent"), "multi-agent");
        assert_eq!(fold("Stra\u{df}e"), fold("STRASSE"));
        assert_eq!(fold("cafe\u{301}"), fold("caf\u{e9}"));
        assert_eq!(fold("\u{feff}\u{202e}abc\u{ad}def"), "abcdef");
        assert_eq!(fold("ＧＰＵ"), "gpu");
        assert_ne!(fold("caf\u{e9}"), fold("cafe"), "an accent is part of the word");
    }

    #[test]
    fn classes() {
        for (c, expected) in [
            ('\0', Class::Blank),
            ('\u{feff}', Class::Ignored),
            ('\u{202e}', Class::Ignored),
            ('_', Class::Other),
            ('é', Class::Letter),
            ('節', Class::Unspaced),
            ('ー', Class::Unspaced),
            ('\u{301}', Class::Mark),
            ('\u{ff9e}', Class::Mark),
            ('🎉', Class::Symbol),
            ('。', Class::Blank),
            ('，', Class::Blank),
            ('+', Class::Other),
            ('\u{2019}', Class::Other),
            ('\u{2bc}', Class::Other),
        ] {
            assert_eq!(class(c), expected, "{c:?}");
        }
    }
}
