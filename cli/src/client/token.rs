//! Where the token comes from: a file, stdin, the environment. Never the command line, which every process
//! of the machine can read.

use std::io::{BufRead as _, Read as _};
use std::path::Path;

use lanekeeper_core::secret::Secret;

use crate::failure::Failure;

/// Holds the token where neither file nor stdin is named.
const VARIABLE: &str = "LANEKEEPER_TOKEN";
/// Far over the longest token a server reads.
const MAX_BYTES: u64 = 16 * 1024;

pub(super) fn read(file: Option<&Path>, stdin: bool) -> Result<Secret<String>, Failure> {
    let (text, from) = match (file, stdin) {
        (Some(path), _) => (from_file(path)?, path.display().to_string()),
        (None, true) => (from_stdin()?, "stdin".to_owned()),
        (None, false) => match std::env::var(VARIABLE) {
            Ok(text) => (text, VARIABLE.to_owned()),
            Err(_) => {
                return Err(Failure::usage(format!(
                    "a token is needed: --token-file FILE, --token-stdin, or {VARIABLE}. `lanekeeper token` prints one"
                )));
            }
        },
    };
    check(&text, &from)
}

fn from_file(path: &Path) -> Result<String, Failure> {
    let open = std::fs::File::open(path);
    let mut text = String::new();
    open.and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text))
        .map_err(|error| Failure::usage(format!("cannot read the token from {}: {error}", path.display())))?;
    Ok(text)
}

/// One line, so that the rest of stdin can be something else.
fn from_stdin() -> Result<String, Failure> {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .take(MAX_BYTES)
        .read_line(&mut line)
        .map_err(|error| Failure::usage(format!("cannot read the token from stdin: {error}")))?;
    Ok(line)
}

/// The form alone; whether it opens anything is the server's to say. The text itself is never repeated.
fn check(text: &str, from: &str) -> Result<Secret<String>, Failure> {
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Failure::usage(format!("{from} holds no token")));
    }
    Ok(Secret::new(token.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_word_and_is_not_repeated_in_errors() {
        assert_eq!(check(" a.b.c\n", "x").unwrap().expose(), "a.b.c");
        for bad in ["", "\n", "two words", "Bearer a.b", "ä"] {
            let Err(Failure::Usage(text)) = check(bad, "the file") else { panic!("{bad:?} was taken") };
            assert_eq!(text, "the file holds no token");
        }
    }

    #[test]
    fn a_file_is_read_and_a_missing_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert!(matches!(read(Some(&path), false), Err(Failure::Usage(text)) if text.contains("token")));
        std::fs::write(&path, "a.b.c\n").unwrap();
        assert_eq!(read(Some(&path), false).unwrap().expose(), "a.b.c");
    }
}
