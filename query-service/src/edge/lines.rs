//! Bodies that stream: an import has no limit as a whole, but each of its lines has the limit of a body,
//! and a pause ends it.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt as _;
use lanekeeper_core::LaneError;
use lanekeeper_core::lane_client::ByteStream;

use crate::app::Limits;

struct Lines {
    body: axum::body::BodyDataStream,
    limit: usize,
    wait: Duration,
    /// Bytes since the last line break.
    open: usize,
    /// 1-based.
    line: u64,
    ended: bool,
}

impl Lines {
    async fn next(&mut self) -> Option<Result<Bytes, LaneError>> {
        if self.ended {
            return None;
        }
        let result = match tokio::time::timeout(self.wait, self.body.next()).await {
            Ok(None) => return None,
            Ok(Some(Ok(part))) => self.count(&part).map(|()| part),
            Ok(Some(Err(_))) | Err(_) => Err(LaneError::Unavailable { what: "the rest of the body".into() }),
        };
        self.ended = result.is_err();
        Some(result)
    }

    fn count(&mut self, part: &[u8]) -> Result<(), LaneError> {
        for (index, piece) in part.split(|byte| *byte == b'\n').enumerate() {
            if index > 0 {
                self.open = 0;
                self.line += 1;
            }
            self.open += piece.len();
            if self.open > self.limit {
                return Err(LaneError::TooLarge { what: format!("line {}", self.line), limit: self.limit });
            }
        }
        Ok(())
    }
}

/// The body as it comes, ended by an error where a line is too long or nothing comes any more.
pub(crate) fn stream(body: Body, limits: &Limits) -> ByteStream {
    let lines = Lines {
        body: body.into_data_stream(),
        limit: limits.body_bytes,
        wait: limits.body_wait,
        open: 0,
        line: 1,
        ended: false,
    };
    Box::pin(futures::stream::unfold(lines, |mut lines| async move {
        let next = lines.next().await?;
        Some((next, lines))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(parts: Vec<Result<&'static str, std::io::Error>>, limit: usize) -> Vec<Result<Bytes, LaneError>> {
        let body = Body::from_stream(futures::stream::iter(parts));
        let limits = Limits { body_bytes: limit, ..Limits::default() };
        stream(body, &limits).collect().await
    }

    #[tokio::test]
    async fn a_line_has_a_limit_and_the_whole_has_none() {
        let all = run(vec![Ok("1234\n12"), Ok("34\n\n"), Ok("1234")], 4).await;
        assert!(all.len() == 3 && all.iter().all(Result::is_ok));
        let cut = run(vec![Ok("1234\n12"), Ok("345\n"), Ok("1")], 4).await;
        assert_eq!(cut.last().unwrap(), &Err(LaneError::TooLarge { what: "line 2".into(), limit: 4 }));
        assert_eq!(cut.len(), 2);
    }

    #[tokio::test]
    async fn a_body_that_breaks_or_stalls_ends_in_an_error() {
        let broken = run(vec![Ok("1\n"), Err(std::io::Error::other("gone")), Ok("2\n")], 9).await;
        assert_eq!(broken.len(), 2);
        assert_eq!(broken[1].as_ref().unwrap_err().code(), "unavailable");
        let body = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let limits = Limits { body_wait: Duration::from_millis(5), ..Limits::default() };
        let stalled: Vec<_> = stream(body, &limits).collect().await;
        assert_eq!(stalled.len(), 1);
        assert!(stalled[0].is_err());
    }
}
