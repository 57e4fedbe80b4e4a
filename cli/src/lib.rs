//! The program `lanekeeper`: the embedded default (`local`), tokens, client commands, offline tools.
//!
//! What must always hold: files are private from their first byte (umask 077 before anything else); a token
//! is read from a file, the environment or stdin, never from the command line; the product of a command goes
//! to stdout, everything else to stderr; nothing a memory holds is logged.
//! What it does not do: anything a part below does. It wires them ([`local`]) and speaks to a server over
//! HTTP ([`client`]).

mod arguments;
mod client;
mod command;
mod failure;
#[cfg(feature = "kubectl")]
mod kubectl;
mod local;
mod logging;
mod output;

use std::process::ExitCode;

use lanekeeper_core::hooks::guard;

use crate::arguments::{Arguments, Command};
use crate::failure::Failure;

/// Runs the program on the process's own arguments.
pub fn main() -> ExitCode {
    start(|arguments: Arguments| {
        let serves = matches!(arguments.command, Command::Local(_));
        (if serves { "info" } else { "warn" }, command::run(arguments.command))
    })
}

/// Runs `kubectl lane` on the process's own arguments.
#[cfg(feature = "kubectl")]
pub fn kubectl_main() -> ExitCode {
    start(|arguments: kubectl::Arguments| ("warn", kubectl::run(arguments)))
}

/// Reads the arguments and does what they say, under the log level that goes with it.
fn start<A, F>(work: impl FnOnce(A) -> (&'static str, F)) -> ExitCode
where
    A: clap::Parser,
    F: Future<Output = Result<(), Failure>>,
{
    // Before anything can make a file. SIGPIPE is already ignored: Rust's start-up does that.
    if guard("private_files") {
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    }
    // One provider for the whole process; a second call finds it installed, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments = match A::try_parse() {
        Ok(arguments) => arguments,
        // Help and version come this way too; clap knows where each belongs.
        Err(error) => {
            let code = error.exit_code();
            let _ = error.print();
            return ExitCode::from(u8::try_from(code).unwrap_or(Failure::USAGE));
        }
    };
    let (level, work) = work(arguments);
    logging::start(level);
    match run(work) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::refused(format!("cannot start the runtime: {error}")))?;
    let outcome = runtime.block_on(work);
    // Work that blocks and has no end of its own (a model, a stalled disk) does not hold the process.
    runtime.shutdown_background();
    outcome
}
