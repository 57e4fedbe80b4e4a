//! The service as a whole, in process, over fake lanes. What only a real store can show is in the
//! workspace's tests crate.

mod access;
mod edge;
mod fake;
mod matrix;
mod recall;
mod service;
