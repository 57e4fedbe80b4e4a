//! What can go wrong with a lane, as every caller of [`crate::lane_client::LaneClient`] sees it.
//!
//! Each variant has one stable code. The text is for callers: nothing internal, nothing of any
//! memory stands in it.

use crate::ids::{Hash32, Seq};
use crate::scope::Action;

/// Why the fence refuses a write (DESIGN.md §3). Each is a code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FenceReason {
    /// No confirmation, or the last one is older than 15 s.
    Unconfirmed,
    /// The registry has no record of the collection.
    RecordMissing,
    /// The record cannot be read as one.
    RecordGarbled,
    /// The registry itself cannot be read.
    RegistryUnreadable,
    /// The record names another lane as writer.
    OtherWriter,
    /// The record's mode allows no write.
    NotWritable,
    /// The record's log_id is not this log's.
    OtherLog,
    /// The record's fingerprint is not the one this store projects with.
    OtherFingerprint,
    /// The record's epoch is not the one this store writes under.
    OtherEpoch,
    /// Another process is the record's holder.
    OtherHolder,
}

impl FenceReason {
    /// The stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unconfirmed => "fence_unconfirmed",
            Self::RecordMissing => "fence_record_missing",
            Self::RecordGarbled => "fence_record_garbled",
            Self::RegistryUnreadable => "fence_registry_unreadable",
            Self::OtherWriter => "fence_other_writer",
            Self::NotWritable => "fence_not_writable",
            Self::OtherLog => "fence_other_log",
            Self::OtherFingerprint => "fence_other_fingerprint",
            Self::OtherEpoch => "fence_other_epoch",
            Self::OtherHolder => "fence_other_holder",
        }
    }
}

/// Why a store only reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadOnlyReason {
    /// A row of the log fails verification.
    BadRow(Seq),
    /// The log lacks a head that was published: an older copy of the file.
    Rollback,
    /// The log has another hash at a published head.
    Fork,
}

impl ReadOnlyReason {
    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::BadRow(_) => "log_damaged",
            Self::Rollback => "log_rolled_back",
            Self::Fork => "log_forked",
        }
    }
}

/// A refused or failed request to a lane.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// The caller must change the named field.
    #[error("{field}: {rule}")]
    Invalid {
        /// JSON path of the field, such as `turns[3].at`.
        field: String,
        /// The rule that was broken.
        rule: String,
    },
    /// There is no such thing for this caller.
    #[error("{what} not found")]
    NotFound {
        /// What was asked for, in general words.
        what: &'static str,
    },
    /// The caller's role does not include the action: an approval by policy would be needed.
    #[error("{action} needs an approval that this caller does not have")]
    GateRequired {
        /// The action.
        action: Action,
    },
    /// A person must approve each such request.
    #[error("{action} needs a person's approval")]
    HumanRequired {
        /// The action.
        action: Action,
    },
    /// A curated save without exactly one private owner path.
    #[error("the scope must allow memory_write on exactly one private owner path of this lane")]
    SinglePrivateOwnerRequired,
    /// `expected_head` is not the log's head; nothing was written. Read the head and decide again.
    #[error("the head is seq {actual_seq}, not the expected one")]
    HeadMismatch {
        /// The head's seq.
        actual_seq: Seq,
        /// The head's hash.
        actual_hash: Hash32,
    },
    /// The Idempotency-Key was used with another body.
    #[error("this Idempotency-Key was used with another body")]
    IdempotencyConflict,
    /// The first request under this Idempotency-Key has not finished. Retry.
    #[error("a request with this Idempotency-Key is still running")]
    IdempotencyInFlight,
    /// If-Match names another version; nothing was written.
    #[error("the document has changed since the version named in If-Match")]
    PreconditionFailed {
        /// The version now.
        current: String,
    },
    /// The document exists, so If-Match must say which version is replaced.
    #[error("If-Match is required to replace an existing document")]
    PreconditionRequired {
        /// The version now.
        current: String,
    },
    /// The fence does not confirm this writer; nothing was written.
    #[error("the write fence refuses: {detail}")]
    Fence {
        /// Which check failed.
        reason: FenceReason,
        /// In words.
        detail: String,
    },
    /// The log needs a person: recall goes on, writes do not.
    #[error("the lane is read-only: {}", .0.code())]
    ReadOnly(ReadOnlyReason),
    /// COMMIT failed and the outcome is not known. Retry with the same Idempotency-Key.
    #[error("the commit's outcome is unknown; retry with the same Idempotency-Key")]
    CommitUnknown,
    /// The volume is full; nothing was written.
    #[error("the lane's volume is full")]
    DiskFull,
    /// Too much at once; nothing was written.
    #[error("too many requests; retry after {retry_after_s} s")]
    Overloaded {
        /// When to try again, seconds.
        retry_after_s: u32,
    },
    /// Too large.
    #[error("{what} is over the limit of {limit}")]
    TooLarge {
        /// What.
        what: String,
        /// The limit, in its unit.
        limit: usize,
    },
    /// The request is at odds with what the lane is doing.
    #[error("{detail}")]
    Conflict {
        /// A stable code.
        code: &'static str,
        /// In words.
        detail: String,
    },
    /// A needed part does not answer. Retry.
    #[error("{what} is not available")]
    Unavailable {
        /// Which part.
        what: String,
    },
    /// The deadline passed.
    #[error("the deadline passed")]
    Deadline,
    /// A fault of ours. The cause is in the log under the request id.
    #[error("internal error")]
    Internal {
        /// For the log only, never for the caller; holds no memory text.
        cause: String,
    },
}

impl LaneError {
    /// The stable code, part of the API.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "invalid_field",
            Self::NotFound { .. } => "not_found",
            Self::GateRequired { .. } => "gate_required",
            Self::HumanRequired { .. } => "human_required",
            Self::SinglePrivateOwnerRequired => "single_private_owner_required",
            Self::HeadMismatch { .. } => "head_mismatch",
            Self::IdempotencyConflict => "idempotency_conflict",
            Self::IdempotencyInFlight => "idempotency_in_flight",
            Self::PreconditionFailed { .. } => "precondition_failed",
            Self::PreconditionRequired { .. } => "precondition_required",
            Self::Fence { reason, .. } => reason.code(),
            Self::ReadOnly(reason) => reason.code(),
            Self::CommitUnknown => "commit_unknown",
            Self::DiskFull => "disk_full",
            Self::Overloaded { .. } => "overloaded",
            Self::TooLarge { .. } => "too_large",
            Self::Conflict { code, .. } => code,
            Self::Unavailable { .. } => "unavailable",
            Self::Deadline => "deadline",
            Self::Internal { .. } => "internal",
        }
    }

    /// A bad field.
    pub fn invalid(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), rule: rule.into() }
    }

    /// A fault of ours, with its cause for the log.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        Self::Internal { cause: cause.to_string() }
    }

    /// Whether the same request may succeed later without a change.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::CommitUnknown
                | Self::Overloaded { .. }
                | Self::Unavailable { .. }
                | Self::Deadline
                | Self::IdempotencyInFlight
                | Self::Fence { reason: FenceReason::Unconfirmed | FenceReason::RegistryUnreadable, .. }
        )
    }
}
