//! A `MEMORY.md` as paragraphs. Pure: text in, slices of it out.
//!
//! A paragraph is a run of lines that are not blank; a fenced code block is never split, and a fence that is
//! never closed is an ordinary line (else one stray line of backticks would make the rest of the file one
//! record). What must always hold: a paragraph is a slice of the file, byte for byte, without the blank
//! lines round it and without its last line end; taking paragraphs out leaves the others as they are.

use std::collections::{HashMap, VecDeque};

use lanekeeper_core::{EventId, Hash32};
use sha2::{Digest, Sha256};

/// One paragraph and its place in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    /// Without its last line end.
    pub(super) text: &'a str,
    start: usize,
    /// After its last line end.
    line_end: usize,
    /// Where the next paragraph starts, or the end of the file.
    next: usize,
}

/// A line that opens or closes a code block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FenceLine {
    tilde: bool,
    length: usize,
    /// Nothing follows the marks: only such a line closes a block.
    bare: bool,
}

fn is_blank(line: &str) -> bool {
    line.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
}

/// Any indentation counts, for code blocks stand in lists too.
fn fence_line(line: &str) -> Option<FenceLine> {
    let marks = line.trim_start_matches([' ', '\t']);
    let mark = marks.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let rest = marks.trim_start_matches(mark);
    let length = marks.len() - rest.len();
    // Backticks later in the line make it inline code.
    let fence = length >= 3 && !(mark == '`' && rest.contains('`'));
    fence.then(|| FenceLine { tilde: mark == '~', length, bare: is_blank(rest) })
}

/// The lines of a file, and what is known about fences that nothing closes.
struct Lines<'a> {
    text: &'a str,
    spans: Vec<(usize, usize)>,
    /// Per mark: the shortest fence that was found unclosed. A longer one further down is unclosed too, so
    /// that a file full of opened fences is not searched to its end for each.
    unclosed: [usize; 2],
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let mut start = 0;
        let spans = text
            .split_inclusive('\n')
            .map(|line| {
                let span = (start, start + line.len());
                start = span.1;
                span
            })
            .collect();
        Self { text, spans, unclosed: [usize::MAX; 2] }
    }

    fn line(&self, index: usize) -> &'a str {
        let (start, end) = self.spans[index];
        &self.text[start..end]
    }

    /// The line that closes a block opened on `index`.
    fn closing(&mut self, index: usize) -> Option<usize> {
        let opened = fence_line(self.line(index))?;
        let unclosed = usize::from(opened.tilde);
        if opened.length >= self.unclosed[unclosed] {
            return None;
        }
        let found = (index + 1..self.spans.len()).find(|later| {
            fence_line(self.line(*later))
                .is_some_and(|line| line.bare && line.tilde == opened.tilde && line.length >= opened.length)
        });
        if found.is_none() {
            self.unclosed[unclosed] = opened.length;
        }
        found
    }
}

/// The paragraphs of a file, in order.
pub(super) fn split(text: &str) -> Vec<Piece<'_>> {
    let mut lines = Lines::of(text);
    let mut spans: Vec<(usize, usize)> = Vec::new();
    let mut open = false;
    let mut index = 0;
    while index < lines.spans.len() {
        let (start, end) = lines.spans[index];
        if is_blank(lines.line(index)) {
            open = false;
            index += 1;
            continue;
        }
        let last = lines.closing(index).unwrap_or(index);
        let end = if last == index { end } else { lines.spans[last].1 };
        match spans.last_mut().filter(|_| open) {
            Some(span) => span.1 = end,
            None => spans.push((start, end)),
        }
        open = true;
        index = last + 1;
    }
    let starts = spans.iter().skip(1).map(|(start, _)| *start).chain([text.len()]);
    spans
        .iter()
        .zip(starts)
        .map(|((start, line_end), next)| {
            let whole = &text[*start..*line_end];
            let unended = whole.strip_suffix('\n').map_or(whole, |line| line.strip_suffix('\r').unwrap_or(line));
            Piece { text: unended, start: *start, line_end: *line_end, next }
        })
        .collect()
}

/// The paragraphs' texts.
pub(super) fn texts(text: &str) -> Vec<&str> {
    split(text).into_iter().map(|piece| piece.text).collect()
}

/// The file without some paragraphs and without the blank lines after them.
pub(super) fn without(text: &str, gone: impl Fn(&str) -> bool) -> String {
    let pieces = split(text);
    let kept: Vec<&Piece<'_>> = pieces.iter().filter(|piece| !gone(piece.text)).collect();
    if kept.len() == pieces.len() {
        return text.to_owned();
    }
    let (Some(last), Some(first_of_all)) = (kept.last(), pieces.first()) else { return String::new() };
    let mut rest = text[..first_of_all.start].to_owned();
    for piece in &kept {
        let closes_the_file = std::ptr::eq(*piece, *last) && piece.next != text.len();
        rest.push_str(&text[piece.start..if closes_the_file { piece.line_end } else { piece.next }]);
    }
    rest
}

/// For each new paragraph the old one it continues: equal text, in order.
pub(super) fn continued(old: &[&str], new: &[&str]) -> Vec<Option<usize>> {
    let mut places: HashMap<&str, VecDeque<usize>> = HashMap::new();
    for (index, text) in old.iter().enumerate() {
        places.entry(text).or_default().push_back(index);
    }
    new.iter().map(|text| places.get_mut(text).and_then(VecDeque::pop_front)).collect()
}

/// The id of a paragraph: the random half of the id of the event that first wrote it, and its place there.
/// So the log alone gives it back, and it names a paragraph that is in the history only.
pub(super) fn paragraph_id(event: EventId, position: usize) -> String {
    format!("p-{}-{position}", &event.as_uuid().simple().to_string()[16..])
}

/// The event half and the place in a [`paragraph_id`].
pub(super) fn parse_paragraph_id(id: &str) -> Option<(&str, usize)> {
    let (event, position) = id.strip_prefix("p-")?.split_once('-')?;
    (event.len() == 16).then_some((event, position.parse().ok()?))
}

/// The id of a paragraph that was written by hand and is in no event yet: good for this very file only.
pub(super) fn hand_id(owner: &str, file: Hash32, position: usize) -> String {
    let mut hasher = Sha256::new();
    hasher.update(b"lanekeeper/memory/hand/v1");
    hasher.update((owner.len() as u64).to_be_bytes());
    hasher.update(owner.as_bytes());
    hasher.update(file.as_bytes());
    hasher.update((position as u64).to_be_bytes());
    let digest = Hash32::from_bytes(hasher.finalize().into()).to_string();
    format!("hand-{}", &digest[..16])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paragraphs_are_parted_by_blank_lines_and_kept_byte_for_byte() {
        let cases: [(&str, &[&str]); 10] = [
            ("", &[]),
            (" \n\t\n\r\n", &[]),
            ("one", &["one"]),
            ("\n\none\n  two  \n\n \t\n\nthree\n\n", &["one\n  two  ", "three"]),
            ("one\r\ntwo\r\n\r\nthree\r\n", &["one\r\ntwo", "three"]),
            ("# Heading\ntext\n\n  indented \n", &["# Heading\ntext", "  indented "]),
            ("\u{feff}bom\0nul\n\n\u{3000}\n\nלום", &["\u{feff}bom\0nul", "\u{3000}", "לום"]),
            ("a\n\n```\nx\n\ny\n```\nafter\n\nb", &["a", "```\nx\n\ny\n```\nafter", "b"]),
            (
                "- item\n    ~~~~sh\n\n```\n\n~~~\n\n    ~~~~~\n\nb",
                &["- item\n    ~~~~sh\n\n```\n\n~~~\n\n    ~~~~~", "b"],
            ),
            ("````md\n```\n\nin\n````\n\nout", &["````md\n```\n\nin\n````", "out"]),
        ];
        for (text, expected) in cases {
            assert_eq!(texts(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_fence_that_is_never_closed_is_a_line() {
        assert_eq!(texts("```\none\n\ntwo"), ["```\none", "two"]);
        assert_eq!(texts("`````\none\n\n```\n\ntwo"), ["`````\none", "```", "two"]);
        assert_eq!(texts("```a`b```\n\n```"), ["```a`b```", "```"]);
        assert_eq!(texts("``\n\n``"), ["``", "``"]);
        // An opening line with a language never closes.
        assert_eq!(texts("```sh\n\n```sh\n\nx"), ["```sh", "```sh", "x"]);
    }

    #[test]
    fn a_file_of_opened_fences_is_read_in_linear_time() {
        let text = "```x\n\n".repeat(40_000);
        let started = std::time::Instant::now();
        assert_eq!(split(&text).len(), 40_000);
        assert!(started.elapsed().as_secs() < 5);
    }

    #[test]
    fn taking_paragraphs_out_leaves_the_rest() {
        let text = "\na\n\n\nb\r\n\r\nc\n\n";
        assert_eq!(without(text, |p| p == "a"), "\nb\r\n\r\nc\n\n");
        assert_eq!(without(text, |p| p == "b"), "\na\n\n\nc\n\n");
        assert_eq!(without(text, |p| p == "c"), "\na\n\n\nb\r\n");
        assert_eq!(without(text, |p| p != "b"), "\nb\r\n");
        assert_eq!(without(text, |_| true), "");
        assert_eq!(without(text, |_| false), text);
    }

    #[test]
    fn equal_texts_continue_in_order() {
        assert_eq!(continued(&["a", "b", "a"], &["a", "c", "a", "a"]), [Some(0), None, Some(2), None]);
        assert_eq!(continued(&[], &["a"]), [None]);
    }

    #[test]
    fn ids_name_event_and_place() {
        let event = EventId::from_uuid(uuid::Uuid::from_u128(0x0190_0000_0000_7000_8abc_def0_1234_5678));
        let id = paragraph_id(event, 12);
        assert_eq!(id, "p-8abcdef012345678-12");
        assert_eq!(parse_paragraph_id(&id), Some(("8abcdef012345678", 12)));
        for bad in ["", "p-", "p-8abcdef012345678", "p-8abc-1", "p-8abcdef012345678-x", "hand-8abcdef012345678"] {
            assert_eq!(parse_paragraph_id(bad), None, "{bad}");
        }
        let file = Hash32::from_bytes([1; 32]);
        assert_ne!(hand_id("bob", file, 0), hand_id("bob", file, 1));
        assert_ne!(hand_id("bob", file, 0), hand_id("eve", file, 0));
    }

    proptest! {
        #[test]
        fn what_is_left_is_what_was_kept(
            lines in proptest::collection::vec(
                prop_oneof![Just(""), Just(" "), Just("a"), Just("b"), Just("```"), Just("```x"), Just("~~~~"), Just("\r")],
                0..24,
            ),
            ended in any::<bool>(),
            gone in any::<[bool; 24]>(),
        ) {
            let mut text = lines.join("\n");
            if ended {
                text.push('\n');
            }
            let before = texts(&text);
            for piece in split(&text) {
                prop_assert_eq!(&text[piece.start..piece.start + piece.text.len()], piece.text);
            }
            // Equal texts go together, so what goes is chosen by text.
            let is_gone = |text: &str| before.iter().position(|other| *other == text).is_some_and(|at| gone[at % 24]);
            let rest = without(&text, is_gone);
            let kept: Vec<&str> = before.iter().copied().filter(|text| !is_gone(text)).collect();
            prop_assert_eq!(texts(&rest), kept);
        }
    }
}
