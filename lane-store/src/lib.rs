//! One lane's engine: the event log, the claim ledger, projection, full text, vectors, curated memory,
//! forget, backup.
//!
//! What must always hold: one writer task a lane ([`writer`]), under a confirmed fence; an acknowledgement
//! follows the durable commit; everything but the log can be made again from it; no text leaves the store
//! but in an answer to an admitted caller.
//! What it does not do: rank over several lanes, know tokens or HTTP, link the operator.

mod append;
mod claims;
mod client;
mod context;
mod error;
mod forget;
mod idempotency;
mod index;
mod keys;
mod list;
pub mod log;
mod memory;
mod opening;
mod projection;
mod rebuild;
mod recall;
mod schema;
#[cfg(feature = "server")]
pub mod server;
mod state;
mod store;
#[cfg(any(test, feature = "test-support"))]
pub mod testing;
mod text;
mod transfer;
mod upkeep;
pub mod vectors;
mod verifying;
mod volume;
mod writer;

pub use error::StoreError;
pub use store::{LaneConfig, LaneParts, LaneSettings, LaneStore};
pub use transfer::accept::{AcceptReport, accept_head};
pub use transfer::backup::BackupManifest;
pub use transfer::check::{verify_backup, verify_export};
pub use transfer::restore::{RestoreReport, Standing, read_manifest, restore};
pub use verifying::verify_file;
pub use volume::Volume;
