//! The event log: rows and their hashes, checkpoints, verification.
//!
//! What must always hold: a row's hash covers everything but salt and body, which the commitment covers;
//! each row names the hash before it; the first one names the log's id. So a forget can take salt and body
//! away and the chain still proves itself.

pub mod checkpoint;
pub mod row;
pub mod verify;
