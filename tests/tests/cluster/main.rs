//! The parts of a cluster against each other over real sockets, without a cluster: a store's server and its client,
//! the embedder's server and its client, the record and the tokens against an API server that is a small model.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod api_server;
mod embedder;
mod kube_registry;
mod query;
mod stage;
mod store_door;
mod store_lane;
mod words;
