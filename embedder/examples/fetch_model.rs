//! Puts the built-in model into this machine's cache and says where it is.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use lanekeeper_embedder::{Progress, fetch};

fn main() -> std::process::ExitCode {
    let mut last = None;
    let installed = fetch(|progress| {
        let line = match progress {
            Progress::Waiting => "waiting for another process".to_owned(),
            Progress::Downloading { bytes, total } => format!("downloading, {} %", (bytes * 100 / total).min(100)),
            Progress::Unpacking => "unpacking".to_owned(),
            Progress::Converting => "converting".to_owned(),
            Progress::Done => return,
        };
        if last.as_ref() != Some(&line) {
            eprintln!("model: {line}");
            last = Some(line);
        }
    });
    match installed {
        Ok(installed) => {
            println!("{}", installed.dir().display());
            std::process::ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("model: {error}");
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                eprintln!("  because: {cause}");
                source = cause.source();
            }
            std::process::ExitCode::FAILURE
        }
    }
}
