//! How a command fails, and the exit code that says so: 1 refused, 2 used wrongly, 3 server not reached.

use std::process::ExitCode;

use crate::client::ClientError;
use crate::output;

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Refused or failed, by the server or by this machine.
    Refused(String),
    /// The arguments make no sense together. Change them.
    Usage(String),
    /// The server does not answer. Start it, or correct the address.
    Unreachable(String),
    /// Refused, and the answer goes to stdout as it came (`--json`).
    Raw(bytes::Bytes),
    /// Refused, and the output has said so already (a report of damage).
    Told,
    /// Whoever reads our output has had enough. Not a failure.
    PipeClosed,
}

impl Failure {
    /// Exit code of [`Self::Usage`].
    pub(crate) const USAGE: u8 = 2;

    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self::Refused(text.into())
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    /// A refusal with the error's whole chain of causes.
    pub(crate) fn because(what: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Refused(format!("{what}: {}", chain(error)))
    }

    /// Prints the reason to stderr and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (code, text) = match self {
            Self::PipeClosed => return ExitCode::SUCCESS,
            Self::Told => return ExitCode::from(1),
            Self::Raw(body) => {
                // A closed stdout changes nothing about the refusal.
                let _ = output::print_raw(&body);
                return ExitCode::from(1);
            }
            Self::Refused(text) => (1, text),
            Self::Usage(text) => (Self::USAGE, text),
            Self::Unreachable(text) => (3, text),
        };
        output::complain(&text);
        ExitCode::from(code)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Problem(problem) => match &problem.raw {
                Some(raw) => Self::Raw(raw.clone()),
                None => Self::Refused(problem.readable()),
            },
            ClientError::Unreachable { .. } => Self::Unreachable(chain(&error)),
            ClientError::Broken { .. } | ClientError::NotOurs { .. } => Self::Refused(chain(&error)),
        }
    }
}

/// The error and its causes on one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Some errors print their source themselves.
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the outer")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn causes_are_named_once() {
        assert_eq!(chain(&Outer(std::io::Error::other("the inner"))), "the outer: the inner");
    }
}
