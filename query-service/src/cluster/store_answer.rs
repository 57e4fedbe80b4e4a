//! Reading what a store answers, and what it means when there is no answer.
//!
//! What must always hold: an answer has a limit, a break in a stream is an error and not its end, and a write whose
//! answer was lost is never said to have failed.

use std::time::Duration;

use futures::StreamExt as _;
use lanekeeper_core::LaneError;
use lanekeeper_core::lane_client::ByteStream;
use lanekeeper_core::wire::store::ANSWER_BYTES;

/// Largest body of an error.
const PROBLEM_BYTES: usize = 64 * 1024;

/// What a request may be repeated as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Nothing was sent.
    NotSent,
    /// Sent, and no whole answer came.
    Lost,
    /// The deadline passed.
    Late,
}

pub(super) fn unavailable() -> LaneError {
    LaneError::Unavailable { what: "the lane's store".into() }
}

pub(super) fn trouble(error: &reqwest::Error) -> Trouble {
    tracing::debug!(%error, "a store did not answer");
    if error.is_connect() {
        Trouble::NotSent
    } else if error.is_timeout() {
        Trouble::Late
    } else {
        Trouble::Lost
    }
}

pub(super) fn given_up(trouble: Trouble, kind: Kind) -> LaneError {
    match (trouble, kind) {
        (Trouble::NotSent, _) | (Trouble::Lost, Kind::Read) => unavailable(),
        (Trouble::Late, Kind::Read) => LaneError::Deadline,
        (Trouble::Lost | Trouble::Late, Kind::Write) => LaneError::CommitUnknown,
    }
}

/// Status and body, the body within its limit.
pub(super) async fn read(mut response: reqwest::Response) -> Result<(http::StatusCode, Vec<u8>), Trouble> {
    let status = response.status();
    let limit = if status.is_success() { ANSWER_BYTES } else { PROBLEM_BYTES };
    let mut bytes = Vec::new();
    loop {
        match response.chunk().await {
            Ok(None) => return Ok((status, bytes)),
            Ok(Some(part)) if bytes.len() + part.len() <= limit => bytes.extend_from_slice(&part),
            Ok(Some(_)) => {
                tracing::error!(limit, "a store's answer is over its limit");
                return Err(Trouble::Lost);
            }
            Err(error) => return Err(trouble(&error)),
        }
    }
}

/// The answer as it comes; a longer pause or a break ends it with an error, so that nobody takes a part for the whole.
pub(super) fn paced(response: reqwest::Response, pause: Duration) -> ByteStream {
    let broke = || LaneError::Unavailable { what: "the rest of the answer".into() };
    let parts = response.bytes_stream().boxed();
    Box::pin(futures::stream::unfold(Some(parts), move |parts| async move {
        let mut parts = parts?;
        match tokio::time::timeout(pause, parts.next()).await {
            Ok(None) => None,
            Ok(Some(Ok(part))) => Some((Ok(part), Some(parts))),
            Ok(Some(Err(_))) | Err(_) => Some((Err(broke()), None)),
        }
    }))
}
