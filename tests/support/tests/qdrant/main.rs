//! The Qdrant engine of the lane store over a real socket: the conformance suite, and what a server does wrong.
//!
//! The server is this crate's, over Qdrant's in-process engine. `QDRANT_URL` (with `QDRANT_API_KEY`) points the
//! conformance suite at a real one as well, with `--include-ignored`; without that those runs are listed as ignored.

mod conformance;
mod faults;
mod keys;
mod lane;
mod rest;
mod stage;
