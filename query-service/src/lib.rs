//! The query API: authenticates, derives the scope, has the question embedded once per fingerprint, fans
//! out, merges, states coverage.
//!
//! What must always hold: a lane is reached through its [`lanekeeper_core::lane_client::LaneClient`] and by
//! no other way, and only by what a credential reaches now; no state is kept between requests but counts.
//! Not here: the store, the model, the kinds; who runs this hands them in as [`Parts`].
//!
//! A route is a file under `routes/` named as its path.

mod app;
mod auth;
#[cfg(feature = "cluster")]
pub mod cluster;
mod directory;
mod edge;
mod metrics;
mod openapi;
mod problem;
pub mod rank;
mod recall;
mod routes;

#[cfg(test)]
mod tests;

pub use app::{App, Limits, Parts};
pub use auth::{
    AuthError, Issuer, MAX_LIFETIME_S, MintError, MintRequest, ReviewError, Reviewed, TokenReviewer, Verifier,
    Verifiers, VerifiersError, mint,
};
pub use directory::{LaneDirectory, LaneHandle};
pub use metrics::metrics_router;
pub use openapi::document as openapi_document;
pub use recall::Budgets;
pub use routes::router;
