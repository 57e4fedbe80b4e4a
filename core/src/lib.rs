//! Lanekeeper's vocabulary: ids, principals, scope, fingerprints, the wire types and the questions
//! one part asks another ([`lane_client`], [`encoder`]).
//!
//! What must always hold: nothing here does I/O, and nothing here knows tokio, kube, axum or sqlx.
//! Text from outside becomes one of these types by parsing; a value of such a type is valid.
#![warn(missing_docs)]

pub mod attest;
pub mod clock;
pub mod cluster;
pub mod encoder;
pub mod error;
pub mod fingerprint;
pub mod hooks;
pub mod ids;
pub mod lane;
pub mod lane_client;
pub mod limits;
pub mod principal;
pub mod scope;
pub mod secret;
#[cfg(feature = "test-support")]
pub mod testing;
pub mod time;
pub mod wire;

pub use error::LaneError;
pub use ids::{Epoch, EventId, Generation, Hash32, LaneName, LaneUid, LogId, Seq};
pub use principal::Principal;
