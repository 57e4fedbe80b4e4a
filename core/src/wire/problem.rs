//! Errors of the store protocol: problem+json with the [`LaneError`]'s code, which comes back as the same error
//! ([`Problem`]). The cause of an internal error stays in the store's log.
//!
//! Not here: HTTP, but for the number of each error's status.

use serde::{Deserialize, Serialize};

use crate::error::{FenceReason, LaneError, ReadOnlyReason};
use crate::ids::{Hash32, Seq};
use crate::scope::Action;

/// A [`LaneError`] as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum WireError {
    Invalid { field: String, rule: String },
    NotFound { what: String },
    GateRequired { action: Action },
    HumanRequired { action: Action },
    SinglePrivateOwnerRequired,
    HeadMismatch { actual_seq: Seq, actual_hash: Hash32 },
    IdempotencyConflict,
    IdempotencyInFlight,
    PreconditionFailed { current: String },
    PreconditionRequired { current: String },
    Fence { reason: FenceReason, detail: String },
    BadRow { seq: Seq },
    Rollback,
    Fork,
    CommitUnknown,
    DiskFull,
    Overloaded { retry_after_s: u32 },
    TooLarge { what: String, limit: usize },
    Conflict { code: String, detail: String },
    Unavailable { what: String },
    Deadline,
    Internal,
}

/// What [`LaneError::NotFound`] names. The type holds a constant, so what comes from outside must be one of these.
pub const NOT_FOUND: [&str; 3] = ["lane", "event", "paragraph"];
/// The codes of [`LaneError::Conflict`]; as [`NOT_FOUND`].
pub const CONFLICTS: [&str; 5] =
    ["lane_suspended", "memory_not_a_file", "nothing_to_accept", "personal_into_corpus", "rebuild_running"];

fn known(words: &'static [&'static str], word: &str) -> Option<&'static str> {
    words.iter().find(|known| **known == word).copied()
}

impl From<&LaneError> for WireError {
    fn from(error: &LaneError) -> Self {
        match error.clone() {
            LaneError::Invalid { field, rule } => Self::Invalid { field, rule },
            LaneError::NotFound { what } => Self::NotFound { what: what.to_owned() },
            LaneError::GateRequired { action } => Self::GateRequired { action },
            LaneError::HumanRequired { action } => Self::HumanRequired { action },
            LaneError::SinglePrivateOwnerRequired => Self::SinglePrivateOwnerRequired,
            LaneError::HeadMismatch { actual_seq, actual_hash } => Self::HeadMismatch { actual_seq, actual_hash },
            LaneError::IdempotencyConflict => Self::IdempotencyConflict,
            LaneError::IdempotencyInFlight => Self::IdempotencyInFlight,
            LaneError::PreconditionFailed { current } => Self::PreconditionFailed { current },
            LaneError::PreconditionRequired { current } => Self::PreconditionRequired { current },
            LaneError::Fence { reason, detail } => Self::Fence { reason, detail },
            LaneError::ReadOnly(ReadOnlyReason::BadRow(seq)) => Self::BadRow { seq },
            LaneError::ReadOnly(ReadOnlyReason::Rollback) => Self::Rollback,
            LaneError::ReadOnly(ReadOnlyReason::Fork) => Self::Fork,
            LaneError::CommitUnknown => Self::CommitUnknown,
            LaneError::DiskFull => Self::DiskFull,
            LaneError::Overloaded { retry_after_s } => Self::Overloaded { retry_after_s },
            LaneError::TooLarge { what, limit } => Self::TooLarge { what, limit },
            LaneError::Conflict { code, detail } => Self::Conflict { code: code.to_owned(), detail },
            LaneError::Unavailable { what } => Self::Unavailable { what },
            LaneError::Deadline => Self::Deadline,
            // The cause is in the store's log and goes no further.
            LaneError::Internal { cause: _ } => Self::Internal,
        }
    }
}

impl From<WireError> for LaneError {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Invalid { field, rule } => Self::Invalid { field, rule },
            WireError::NotFound { what } => match known(&NOT_FOUND, &what) {
                Some(what) => Self::NotFound { what },
                None => Self::internal("the store did not find something that this version does not know"),
            },
            WireError::GateRequired { action } => Self::GateRequired { action },
            WireError::HumanRequired { action } => Self::HumanRequired { action },
            WireError::SinglePrivateOwnerRequired => Self::SinglePrivateOwnerRequired,
            WireError::HeadMismatch { actual_seq, actual_hash } => Self::HeadMismatch { actual_seq, actual_hash },
            WireError::IdempotencyConflict => Self::IdempotencyConflict,
            WireError::IdempotencyInFlight => Self::IdempotencyInFlight,
            WireError::PreconditionFailed { current } => Self::PreconditionFailed { current },
            WireError::PreconditionRequired { current } => Self::PreconditionRequired { current },
            WireError::Fence { reason, detail } => Self::Fence { reason, detail },
            WireError::BadRow { seq } => Self::ReadOnly(ReadOnlyReason::BadRow(seq)),
            WireError::Rollback => Self::ReadOnly(ReadOnlyReason::Rollback),
            WireError::Fork => Self::ReadOnly(ReadOnlyReason::Fork),
            WireError::CommitUnknown => Self::CommitUnknown,
            WireError::DiskFull => Self::DiskFull,
            WireError::Overloaded { retry_after_s } => Self::Overloaded { retry_after_s },
            WireError::TooLarge { what, limit } => Self::TooLarge { what, limit },
            WireError::Conflict { code, detail } => match known(&CONFLICTS, &code) {
                Some(code) => Self::Conflict { code, detail },
                None => Self::internal("the store's conflict has a code that this version does not know"),
            },
            WireError::Unavailable { what } => Self::Unavailable { what },
            WireError::Deadline => Self::Deadline,
            WireError::Internal => Self::internal("the lane's store failed; the cause is in its log"),
        }
    }
}

/// The HTTP status of a lane's error, on the store protocol and on the query API alike.
///
/// Temporary refusals of the fence are 503; those that only a person or the operator can end are 409, so that
/// clients do not retry them.
#[must_use]
pub const fn status(error: &LaneError) -> u16 {
    match error {
        LaneError::Invalid { .. } => 400,
        LaneError::NotFound { .. } => 404,
        LaneError::GateRequired { .. } | LaneError::HumanRequired { .. } | LaneError::SinglePrivateOwnerRequired => 403,
        LaneError::HeadMismatch { .. }
        | LaneError::IdempotencyConflict
        | LaneError::IdempotencyInFlight
        | LaneError::ReadOnly(_)
        | LaneError::Conflict { .. } => 409,
        LaneError::Fence { .. } => {
            if error.is_transient() {
                503
            } else {
                409
            }
        }
        LaneError::PreconditionFailed { .. } => 412,
        LaneError::PreconditionRequired { .. } => 428,
        LaneError::CommitUnknown | LaneError::Unavailable { .. } => 503,
        LaneError::DiskFull => 507,
        LaneError::Overloaded { .. } => 429,
        LaneError::TooLarge { .. } => 413,
        LaneError::Deadline => 504,
        LaneError::Internal { .. } => 500,
    }
}

/// The code of a refused attestation. The reason is in the store's log and metric only.
pub const ATTESTATION_REFUSED: &str = "attestation_refused";

/// The body of every error answer of a store (problem+json).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// `tag:lanekeeper.dev,2026:problem/CODE`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The HTTP status.
    pub status: u16,
    /// The error's code.
    pub code: String,
    /// For people.
    pub detail: String,
    /// The error, where it is one of a lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<WireError>,
}

impl Problem {
    /// A lane's error.
    #[must_use]
    pub fn of(error: &LaneError) -> Self {
        Self {
            kind: format!("tag:lanekeeper.dev,2026:problem/{}", error.code()),
            status: status(error),
            code: error.code().to_owned(),
            detail: error.to_string(),
            error: Some(error.into()),
        }
    }

    /// A refused attestation.
    #[must_use]
    pub fn attestation_refused() -> Self {
        Self {
            kind: format!("tag:lanekeeper.dev,2026:problem/{ATTESTATION_REFUSED}"),
            status: 401,
            code: ATTESTATION_REFUSED.to_owned(),
            detail: "the attestation is refused".to_owned(),
            error: None,
        }
    }

    /// The lane's error, if it is one.
    #[must_use]
    pub fn into_lane_error(self) -> Option<LaneError> {
        self.error.map(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_error() -> Vec<LaneError> {
        let fence = |reason| LaneError::Fence { reason, detail: "why".into() };
        let mut all = vec![
            LaneError::invalid("turns[3].at", "must be a time"),
            LaneError::GateRequired { action: Action::Forget },
            LaneError::HumanRequired { action: Action::Import },
            LaneError::SinglePrivateOwnerRequired,
            LaneError::HeadMismatch { actual_seq: Seq(4), actual_hash: Hash32::from_bytes([1; 32]) },
            LaneError::IdempotencyConflict,
            LaneError::IdempotencyInFlight,
            LaneError::PreconditionFailed { current: "v2".into() },
            LaneError::PreconditionRequired { current: "v2".into() },
            LaneError::ReadOnly(ReadOnlyReason::BadRow(Seq(u64::MAX))),
            LaneError::ReadOnly(ReadOnlyReason::Rollback),
            LaneError::ReadOnly(ReadOnlyReason::Fork),
            LaneError::CommitUnknown,
            LaneError::DiskFull,
            LaneError::Overloaded { retry_after_s: 7 },
            LaneError::TooLarge { what: "the body".into(), limit: 1_048_576 },
            LaneError::Unavailable { what: "the lane".into() },
            LaneError::Deadline,
        ];
        all.extend(NOT_FOUND.map(|what| LaneError::NotFound { what }));
        all.extend(CONFLICTS.map(|code| LaneError::Conflict { code, detail: "why".into() }));
        all.extend(
            [
                FenceReason::Unconfirmed,
                FenceReason::RecordMissing,
                FenceReason::RecordGarbled,
                FenceReason::RegistryUnreadable,
                FenceReason::OtherWriter,
                FenceReason::NotWritable,
                FenceReason::OtherLog,
                FenceReason::OtherFingerprint,
                FenceReason::OtherEpoch,
                FenceReason::OtherHolder,
            ]
            .map(fence),
        );
        all
    }

    fn over_the_wire(error: &LaneError) -> LaneError {
        let json = serde_json::to_string(&Problem::of(error)).unwrap();
        serde_json::from_str::<Problem>(&json).unwrap().into_lane_error().unwrap()
    }

    #[test]
    fn every_error_comes_back_the_same() {
        for error in every_error() {
            assert_eq!(over_the_wire(&error), error);
            let problem = Problem::of(&error);
            assert!(problem.kind.ends_with(error.code()) && (400..600).contains(&problem.status), "{problem:?}");
        }
    }

    #[test]
    fn an_internal_cause_stays_where_it_is() {
        let error = LaneError::internal("SECRET-CAUSE");
        assert!(!serde_json::to_string(&Problem::of(&error)).unwrap().contains("SECRET-CAUSE"));
        assert_eq!(over_the_wire(&error).code(), "internal");
    }

    #[test]
    fn what_this_version_does_not_know_is_an_internal_error() {
        for json in [r#"{"kind":"not_found","what":"moon"}"#, r#"{"kind":"conflict","code":"other","detail":""}"#] {
            let error: WireError = serde_json::from_str(json).unwrap();
            assert_eq!(LaneError::from(error).code(), "internal");
        }
        assert!(Problem::attestation_refused().into_lane_error().is_none());
    }
}
