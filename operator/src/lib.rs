//! The operator: makes the cluster be as Lanes and Embedders say.
//!
//! # What must always hold
//! - Writes are the leader's alone, and stop before another may lead ([`gate`], [`leader`]).
//! - What is made is a pure function of what is declared and known ([`build`]); a controller only reads, applies and
//!   reports ([`controller`]).
//! - A write is sent only where something differs ([`apply`]): an idle lane costs none.
//! - Of two lanes that claim one collection the registry names one ([`controller::lane::claim`]).
//! - What is a lane's memory is erased only when its deletion was confirmed by its UID ([`finalize`]).
//!
//! What it does not do: hand-over, rollout budgets, scaling of embedders, and anything a store does by itself.
#![warn(missing_docs)]

pub mod apply;
pub mod ask;
pub mod backoff;
pub mod build;
pub mod cache;
pub mod causes;
pub mod config;
pub mod context;
pub mod controller;
pub mod error;
pub mod events;
pub mod finalize;
pub mod gate;
pub mod keys;
pub mod leader;
pub mod metrics;
pub mod probes;
pub mod qdrant;
pub mod quantity;
pub mod queue;
mod running;
pub mod status;
pub mod watching;

pub use config::Config;
pub use running::{run, run_on};
