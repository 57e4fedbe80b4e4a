//! Which failures another try may cure, and when it comes.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use super::ClientError;

/// Most tries after the first.
const TRIES: u32 = 8;
/// Of those, where the connection itself fails: a server that is being started again.
const BROKEN_TRIES: u32 = 3;
const FIRST_MS: u64 = 250;
const LONGEST_MS: u64 = 8_000;
/// A server that asks for a longer pause is told no by giving up: nobody waits minutes at a prompt.
const LONGEST_ASKED: Duration = Duration::from_secs(30);

/// How often one request was tried.
#[derive(Debug, Default)]
pub(super) struct Tries(u32);

impl Tries {
    /// How long to wait before the next try; `None`: no further try.
    pub(super) fn after(&mut self, error: &ClientError) -> Option<Duration> {
        let (most, asked) = match error {
            ClientError::Problem(problem) if is_transient(problem.status, &problem.code) => {
                (TRIES, problem.retry_after)
            }
            ClientError::Broken { .. } => (BROKEN_TRIES, None),
            // Nobody listening is an answer of its own at the first try; later the server is restarting.
            ClientError::Unreachable { .. } if self.0 > 0 => (BROKEN_TRIES, None),
            ClientError::Problem(_) | ClientError::Unreachable { .. } | ClientError::NotOurs { .. } => return None,
        };
        if self.0 >= most || asked.is_some_and(|asked| asked > LONGEST_ASKED) {
            return None;
        }
        let backoff = Duration::from_millis((FIRST_MS << self.0).min(LONGEST_MS));
        self.0 += 1;
        Some(jittered(backoff.max(asked.unwrap_or_default()), random()))
    }
}

/// 429, 503 (overloaded, `commit_unknown`, a fence that is not confirmed), and a key whose first request runs
/// still.
fn is_transient(status: StatusCode, code: &str) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::SERVICE_UNAVAILABLE
        || code == "idempotency_in_flight"
}

/// Up to a quarter longer, never shorter: what the server asked for is kept, and callers part.
fn jittered(pause: Duration, random: u8) -> Duration {
    pause + pause.mul_f64(f64::from(random) / 255.0 / 4.0)
}

fn random() -> u8 {
    let mut byte = [0];
    // Without randomness the pause is only less spread.
    let _ = getrandom::fill(&mut byte);
    byte[0]
}

/// Seconds only: our servers send no date.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::Problem;
    use super::*;

    fn refused(status: u16, code: &str, asked: Option<u64>) -> ClientError {
        let body = Bytes::from(format!(r#"{{"code":"{code}","detail":"x"}}"#));
        let status = StatusCode::from_u16(status).unwrap();
        ClientError::Problem(Box::new(Problem::read(status, &body, asked.map(Duration::from_secs), false).unwrap()))
    }

    #[test]
    fn only_what_may_pass_is_tried_again_and_not_for_ever() {
        for (status, code) in
            [(429, "overloaded"), (503, "commit_unknown"), (503, "overloaded"), (409, "idempotency_in_flight")]
        {
            let mut tries = Tries::default();
            let pauses: Vec<_> = std::iter::from_fn(|| tries.after(&refused(status, code, None))).collect();
            assert_eq!(pauses.len(), TRIES as usize, "{code}");
            assert!(pauses[0] >= Duration::from_millis(250) && pauses[7] <= Duration::from_secs(10), "{pauses:?}");
        }
        for (status, code) in [
            (400, "invalid_field"),
            (404, "not_found"),
            (409, "idempotency_conflict"),
            (507, "disk_full"),
            (500, "internal"),
        ] {
            assert_eq!(Tries::default().after(&refused(status, code, None)), None, "{code}");
        }
    }

    #[test]
    fn the_server_is_given_the_time_it_asks_for() {
        assert!(Tries::default().after(&refused(429, "overloaded", Some(7))).unwrap() >= Duration::from_secs(7));
        assert_eq!(Tries::default().after(&refused(429, "overloaded", Some(3_600))), None);
        assert_eq!(jittered(Duration::from_secs(4), 0), Duration::from_secs(4));
        assert_eq!(jittered(Duration::from_secs(4), 255), Duration::from_secs(5));
    }

    #[test]
    fn retry_after_is_seconds() {
        let headers = |value: &str| HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
        assert_eq!(retry_after(&headers("3")), Some(Duration::from_secs(3)));
        assert_eq!(retry_after(&headers("Mon, 30 Nov 2026 00:00:00 GMT")), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
