//! Tokens that somebody else judges: in a cluster the API server, by TokenReview.

use futures::future::BoxFuture;
use lanekeeper_core::Principal;

/// What is known of a token that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reviewed {
    /// The ServiceAccount.
    pub principal: Principal,
    /// What its name is bound to: an account that was made anew has another.
    pub account_uid: String,
}

/// Why a token was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// It does not hold, or is not for us.
    #[error("the token is refused")]
    Refused,
    /// Nobody answered, so nothing is known about it.
    #[error("tokens cannot be judged now")]
    Unavailable,
}

/// Judges tokens. What it is shown is a JWT of an issuer that is not ours.
pub trait TokenReviewer: Send + Sync + std::fmt::Debug {
    /// Whose token it is.
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Reviewed, ReviewError>>;
}
