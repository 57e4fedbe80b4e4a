//! What an answer of the server means for the store: ask again, wait for a key or a collection, or have a
//! person look.
//!
//! What must always hold: no text of the server's message goes into an error. It may repeat what a request
//! held (names of sessions among it), and these errors are logged and reach coverage.

use std::error::Error;

use tonic::{Code, Status};

use super::super::VectorError;

/// The server answered, and not with what was asked for.
pub(super) fn failure(status: &Status) -> VectorError {
    match status.code() {
        Code::Unauthenticated => VectorError::Refused("not known, or no longer in force (Unauthenticated)".into()),
        Code::PermissionDenied => {
            VectorError::Refused("it is out of date, or does not name this collection (PermissionDenied)".into())
        }
        Code::NotFound => VectorError::CollectionMissing("the server does not have the lane's collection".into()),
        code @ (Code::InvalidArgument | Code::OutOfRange | Code::Unimplemented | Code::AlreadyExists) => {
            VectorError::Storage(if status.message().contains("dimension error") {
                "the server's collection has vectors of another dimension".into()
            } else {
                format!("the server refused a request as invalid ({code:?})")
            })
        }
        Code::Unavailable if is_transport(status) => VectorError::Unavailable("the server cannot be reached".into()),
        // A server that restarts, is overloaded, has no room or no replica, or whose answer cannot be read.
        code @ (Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss) => VectorError::Unavailable(format!("the server answered {code:?}")),
    }
}

/// An answer in order of the protocol that cannot be one. `what` is a phrase of ours.
pub(super) fn garbled(what: &'static str) -> VectorError {
    VectorError::Unavailable(format!("the server's answer cannot be read: {what}"))
}

/// The key is refused: the file may hold a new one.
pub(super) fn is_refusal(status: &Status) -> bool {
    matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied)
}

/// The connection broke under the request. All requests of the store may be sent twice.
pub(super) fn is_broken(status: &Status) -> bool {
    status.code() == Code::Unavailable || is_transport(status)
}

fn is_transport(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<tonic::transport::Error>() {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every code, with whether the same call may succeed later and the word that coverage gets.
    #[test]
    fn every_code_is_transient_or_for_a_person() {
        let cases = [
            (Code::Ok, true, "vector_engine_unavailable"),
            (Code::Cancelled, true, "vector_engine_unavailable"),
            (Code::Unknown, true, "vector_engine_unavailable"),
            (Code::InvalidArgument, false, "vector_engine_failed"),
            (Code::DeadlineExceeded, true, "vector_engine_unavailable"),
            (Code::NotFound, true, "collection_missing"),
            (Code::AlreadyExists, false, "vector_engine_failed"),
            (Code::PermissionDenied, true, "vector_engine_refused"),
            (Code::ResourceExhausted, true, "vector_engine_unavailable"),
            (Code::FailedPrecondition, true, "vector_engine_unavailable"),
            (Code::Aborted, true, "vector_engine_unavailable"),
            (Code::OutOfRange, false, "vector_engine_failed"),
            (Code::Unimplemented, false, "vector_engine_failed"),
            (Code::Internal, true, "vector_engine_unavailable"),
            (Code::Unavailable, true, "vector_engine_unavailable"),
            (Code::DataLoss, true, "vector_engine_unavailable"),
            (Code::Unauthenticated, true, "vector_engine_refused"),
        ];
        for (code, transient, reason) in cases {
            let error = failure(&Status::new(code, "session s-secret of user bob"));
            assert_eq!((error.is_transient(), error.reason()), (transient, reason), "{code:?}");
            assert!(!format!("{error} {error:?}").contains("secret"), "the server's words stay out: {error}");
        }
        let other = failure(&Status::invalid_argument("Wrong input: Vector dimension error: expected dim: 4, got 3"));
        assert!(other.to_string().contains("another dimension"));
    }

    #[test]
    fn refusals_and_broken_connections_are_known() {
        assert!(is_refusal(&Status::unauthenticated("")) && is_refusal(&Status::permission_denied("")));
        assert!(!is_refusal(&Status::not_found("")) && !is_refusal(&Status::unavailable("")));
        assert!(is_broken(&Status::unavailable("")) && !is_broken(&Status::internal("")));
    }
}
