//! Tests of a whole store, in one binary: linking the engine once is enough.

mod forget;
mod guarded;
mod log;
mod memory;
#[path = "../stage/mod.rs"]
mod stage;
mod transfer;
