//! Who asks, and what that may be: tokens, the derived scope, and the one way into a lane.
//!
//! What must always hold
//! - A handler reaches a lane only through [`InLane`] or [`InReach`]: the directory, and what is inside a
//!   [`Reached`], are private to this module. A route that takes neither has no lane to touch.
//! - The scope comes from the Lane's current `access` and the token, never from a request. The URL and
//!   `lanes[]` choose among what is reached and never add to it.
//! - Whatever is not reached is 404, like what does not exist.
//!
//! Not here: approvals (Gate and Human are refused); how the API server is asked, and attestation, are the
//! cluster's.

mod gate;
mod lane;
mod mint;
mod reach;
mod review;
mod token;
mod verify;

pub(crate) use gate::{Gate, status as lane_status};
pub(crate) use lane::{
    Backup, Export, Forget, Import, InLane, InReach, MemoryRead, MemoryWrite, Rebuild, Recall, Save, Verify,
};
pub use mint::{Issuer, MintError, MintRequest, mint};
pub(crate) use reach::{Reached, SUSPENDED};
pub use review::{ReviewError, Reviewed, TokenReviewer};
pub use token::MAX_LIFETIME_S;
pub use verify::{Verifier, Verifiers, VerifiersError};

/// Why a credential is refused. The caller learns no more than these three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// No credential came with the request.
    #[error("a token is needed: Authorization: Bearer TOKEN")]
    Missing,
    /// The credential does not hold. Get another.
    #[error("the token is not valid")]
    Invalid,
    /// The credential held once. Get another.
    #[error("the token has expired")]
    Expired,
}

impl AuthError {
    /// The stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Missing => "missing_token",
            Self::Invalid => "invalid_token",
            Self::Expired => "expired_token",
        }
    }
}
