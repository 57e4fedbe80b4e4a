//! What can go wrong in a reconcile, and how long to wait before the next try.
//!
//! What must always hold: an error's class is decided here alone, from what the API server said; no text of a
//! Secret or of a memory is in any message.

use crate::backoff::Class;

/// A failed step. The object is tried again after a wait that its class decides.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request to the API server failed.
    #[error("{operation} {object}")]
    Api {
        /// What was tried, such as `apply`.
        operation: &'static str,
        /// `Kind namespace/name`.
        object: String,
        /// Why not.
        #[source]
        source: kube::Error,
    },
    /// An object of the name exists and is not ours. It is left alone until someone removes it.
    #[error("{object} exists and is not this lane's")]
    NotOurs {
        /// `Kind namespace/name`.
        object: String,
    },
    /// Keys are not made yet, or their Secret is unreadable.
    #[error("keys: {reason}")]
    Keys {
        /// Why.
        reason: String,
    },
    /// A certificate could not be made.
    #[error("a certificate cannot be made")]
    Certificate(#[source] rcgen::Error),
    /// An object of ours could not be written as JSON, or lacks what every stored object has.
    #[error("{object} is malformed: {reason}")]
    Malformed {
        /// Which.
        object: String,
        /// Why.
        reason: String,
    },
    /// Something has to end first, such as a pod.
    #[error("waiting for {what}")]
    Waiting {
        /// For what.
        what: String,
    },
    /// Qdrant refused or is away.
    #[error("vector collections: {reason}")]
    Collections {
        /// Why.
        reason: String,
    },
    /// It took too long.
    #[error("not done within {seconds} s")]
    Deadline {
        /// The limit.
        seconds: u64,
    },
    /// The reconcile panicked. A fault of ours: the message is in the log.
    #[error("the reconcile panicked")]
    Panicked,
}

impl Error {
    /// A failed request.
    pub fn api(operation: &'static str, object: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let object = object.into();
        move |source| Self::Api { operation, object, source }
    }

    /// How it is waited.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Api { source, .. } => class_of(source),
            Self::Waiting { .. } => Class::Soon,
            Self::NotOurs { .. } => Class::Edit,
            Self::Malformed { .. } | Self::Panicked => Class::Denied,
            Self::Keys { .. } | Self::Certificate(_) | Self::Collections { .. } | Self::Deadline { .. } => {
                Class::Transient
            }
        }
    }

    /// For metrics: a closed list.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Api { .. } => "api",
            Self::NotOurs { .. } => "not_ours",
            Self::Keys { .. } => "keys",
            Self::Certificate(_) => "certificate",
            Self::Malformed { .. } => "malformed",
            Self::Waiting { .. } => "waiting",
            Self::Collections { .. } => "collections",
            Self::Deadline { .. } => "deadline",
            Self::Panicked => "panic",
        }
    }

    /// Whether the API server says that the object changed under us.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { source: kube::Error::Api(status), .. } if status.code == 409)
    }
}

/// The class of what the API server said.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "kube's enum is not ours, and a new kind of failure is one to try again"
)]
fn class_of(error: &kube::Error) -> Class {
    match error {
        kube::Error::Api(status) if status.is_conflict() => Class::Soon,
        // 400 and 422: the same request will be refused again until the object or a policy changes.
        kube::Error::Api(status) if matches!(status.code, 400 | 401 | 403 | 404 | 405 | 422) => Class::Denied,
        // Everything else never reached it, or says nothing about the request.
        _ => Class::Transient,
    }
}

/// Whether the API server says that there is no such object.
#[must_use]
pub fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

/// Whether the API server refuses because the namespace is on its way out.
#[must_use]
pub fn is_terminating(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status)
        if status.code == 403 && (status.message.contains("being terminated")
            || status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == "NamespaceTerminating")))
}

/// An error and its causes in one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}
