//! What a server answers when it refuses, and what else can go wrong on the way.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use lanekeeper_core::wire::events::Head;
use serde::Deserialize;

use crate::output::plain;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The server refused.
    #[error("{}", .0.readable())]
    Problem(Box<Problem>),
    /// Nobody listens there.
    #[error("no server answers at {url}; start one with `lanekeeper local`, or name another with --url")]
    Unreachable {
        /// Where.
        url: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// It broke off.
    #[error("{what} broke off")]
    Broken {
        /// What.
        what: &'static str,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// Something answers there that is no Lanekeeper.
    #[error("{url} does not speak Lanekeeper's API: {reason}")]
    NotOurs {
        /// Where.
        url: String,
        /// In words.
        reason: String,
    },
}

impl ClientError {
    /// A short code, for the log.
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Problem(problem) => &problem.code,
            Self::Unreachable { .. } => "unreachable",
            Self::Broken { .. } => "broken_off",
            Self::NotOurs { .. } => "not_ours",
        }
    }
}

/// A problem+json answer, with what the client decides by.
#[derive(Debug)]
pub(crate) struct Problem {
    /// Of the answer itself.
    pub(crate) status: StatusCode,
    /// Stable.
    pub(crate) code: String,
    detail: String,
    errors: Vec<FieldError>,
    limit: Option<u64>,
    /// The version now, where an If-Match did not fit.
    pub(crate) current: Option<String>,
    head: Option<Head>,
    request_id: Option<String>,
    /// From the header.
    pub(crate) retry_after: Option<Duration>,
    /// As it came, where that is what is to be shown.
    pub(crate) raw: Option<Bytes>,
}

#[derive(Debug, Deserialize)]
struct FieldError {
    field: String,
    rule: String,
}

/// The wire's form. A server may add members; those are no error.
#[derive(Deserialize)]
struct Wire {
    code: String,
    detail: String,
    #[serde(default)]
    errors: Vec<FieldError>,
    limit: Option<u64>,
    current: Option<String>,
    head: Option<Head>,
    request_id: Option<String>,
}

impl Problem {
    pub(super) fn read(status: StatusCode, body: &Bytes, retry_after: Option<Duration>, raw: bool) -> Option<Self> {
        let Wire { code, detail, errors, limit, current, head, request_id } = serde_json::from_slice(body).ok()?;
        let raw = raw.then(|| body.clone());
        Some(Self { status, code, detail, errors, limit, current, head, request_id, retry_after, raw })
    }

    /// For people: what, which field, what would be right.
    pub(crate) fn readable(&self) -> String {
        let mut text = format!("refused ({} {}): {}", self.status.as_u16(), self.code, self.detail);
        for FieldError { field, rule } in &self.errors {
            // With one field the detail has said so already.
            if !self.detail.contains(rule) {
                text.push_str(&format!("\n  {field}: {rule}"));
            }
        }
        if let Some(limit) = self.limit.filter(|limit| !self.detail.contains(&limit.to_string())) {
            text.push_str(&format!("\n  the limit is {limit}"));
        }
        if let Some(current) = &self.current {
            text.push_str(&format!("\n  the version now is {current}"));
        }
        if let Some(head) = &self.head {
            text.push_str(&format!("\n  the head is seq {}, hash {}", head.seq, head.hash));
        }
        if let Some(id) = self.request_id.as_ref().filter(|_| self.status.is_server_error()) {
            text.push_str(&format!("\n  the server's log has the cause under request id {id}"));
        }
        plain(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(status: u16, body: &str) -> Option<Problem> {
        Problem::read(StatusCode::from_u16(status).unwrap(), &Bytes::copy_from_slice(body.as_bytes()), None, false)
    }

    #[test]
    fn a_problem_is_read_with_its_code_and_fields() {
        let body = r#"{"type":"tag:x","title":"Bad Request","status":400,"code":"invalid_field","detail":"turns[3].at: must be a time",
            "errors":[{"field":"turns[3].at","rule":"must be a time"},{"field":"session","rule":"must not be blank"}],"request_id":"r1"}"#;
        insta::assert_snapshot!(problem(400, body).unwrap().readable(), @r"
        refused (400 invalid_field): turns[3].at: must be a time
          session: must not be blank
        ");
        let body = r#"{"code":"internal","detail":"internal error","request_id":"r2","new_member":1}"#;
        insta::assert_snapshot!(problem(500, body).unwrap().readable(), @r"
        refused (500 internal): internal error
          the server's log has the cause under request id r2
        ");
        let body = r#"{"code":"too_large","detail":"the body is over the limit of 1048576","limit":1048576}"#;
        assert_eq!(
            problem(413, body).unwrap().readable(),
            "refused (413 too_large): the body is over the limit of 1048576"
        );
    }

    #[test]
    fn what_is_no_problem_is_none() {
        for other in ["", "<html>", "{}", r#"{"error":"x"}"#, "[]"] {
            assert!(problem(502, other).is_none(), "{other}");
        }
    }
}
