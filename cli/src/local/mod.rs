//! The embedded default: every part in one process, lanes from a folder of manifests.
//!
//! # Flow
//! The data folder is locked, the listeners are bound, the lanes of the data folder are loaded, the folder of
//! manifests is looked at until every file in it counts; then requests are served and the folder is looked at
//! once a second. On SIGTERM or SIGINT: no new requests, running ones get a moment, every store is
//! closed. Five seconds after the signal the process is gone, finished or not: a kill loses nothing either.
//!
//! # Not here
//! TLS and remote callers: tokens travel in the clear, so only loopback is listened on unless somebody says
//! otherwise.

pub(crate) mod data;
mod directory;
pub(crate) mod embedders;
mod folder;
mod lane_client;
pub(crate) mod lane_file;
mod lanes;
mod late_encoder;
mod manifests;
mod problems;
mod serve;
mod supervisor;
#[cfg(test)]
pub(crate) mod world;

pub(crate) use serve::{Options, serve};
