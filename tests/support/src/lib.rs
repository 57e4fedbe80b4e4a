//! Servers that only tests use. Nothing of the product depends on this crate.

pub mod qdrant;
