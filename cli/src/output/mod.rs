//! What a command prints: its product to stdout, anything else to stderr.
//!
//! What must always hold: memory text is untrusted. On its way to a terminal every control character of it
//! is shown, not sent ([`plain`]); `--json` and downloads pass bytes as they came. A reader that goes away
//! (`| head`) ends the command quietly.
//! The functions below this module only make text, so that tests compare it as a whole.

pub(crate) mod events;
pub(crate) mod forget;
pub(crate) mod lanes;
pub(crate) mod memory;
pub(crate) mod progress;
pub(crate) mod recall;
pub(crate) mod upkeep;

use std::io::{ErrorKind, Write as _};

use crate::failure::Failure;

/// Prints to stdout.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Prints bytes to stdout as they are.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    written.map_err(|error| {
        if error.kind() == ErrorKind::BrokenPipe {
            return Failure::PipeClosed;
        }
        Failure::refused(format!("cannot write to stdout: {error}"))
    })
}

/// Prints a server's answer as it came, on a line of its own.
pub(crate) fn print_raw(body: &[u8]) -> Result<(), Failure> {
    print_bytes(&[body.trim_ascii_end(), b"\n"].concat())
}

/// Prints a line to stderr: for people, beside the product.
pub(crate) fn note(text: &str) {
    // A closed stderr leaves nobody to tell.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints why a command failed.
pub(crate) fn complain(text: &str) {
    note(&format!("lanekeeper: {text}"));
}

/// `text` for a terminal: control characters (but line breaks and tabs) and marks that turn the reading
/// direction are shown as escapes, so that a memory cannot draw over the screen or hide itself.
pub(crate) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let turns_direction =
            matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if (c.is_control() && c != '\n' && c != '\t') || turns_direction {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// `text` with every line after the first moved in by `by` spaces.
pub(crate) fn hanging(text: &str, by: usize) -> String {
    let indent = format!("\n{}", " ".repeat(by));
    text.trim_end().split('\n').collect::<Vec<_>>().join(&indent)
}

/// `1 turn`, `2 turns`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_cannot_drive_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\u{7}"), "a\\u{1b}[2Jb\\u{7}");
        assert_eq!(plain("a\r\nb\tc"), "a\\u{d}\nb\tc");
        assert_eq!(plain("\u{202e}gnp.exe"), "\\u{202e}gnp.exe");
        assert_eq!(plain("Grüße, 世界 🎉"), "Grüße, 世界 🎉");
    }

    #[test]
    fn lines_hang() {
        assert_eq!(hanging("a\nb\n", 3), "a\n   b");
        assert_eq!(counted(1, "turn", "turns"), "1 turn");
        assert_eq!(counted(0, "turn", "turns"), "0 turns");
    }
}
