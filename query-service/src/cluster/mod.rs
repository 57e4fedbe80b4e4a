//! The query service in a cluster: lanes found by watching the API server, stores asked over HTTPS under an
//! attestation, callers known by TokenReview.
//!
//! What must always hold
//! - No state but what can be read again: watches, connections, short caches. Any number of replicas serve.
//! - A lane is asked at the address that its name has, under the UID and the log that its record names.
//! - A lane that is down costs its callers one circuit's wait and names itself in coverage; the others answer.
//!
//! `remote_lane` asks a store, `attesting` signs, `circuit` decides whether to ask; `directory` follows the watches,
//! `embedders` finds the encoder of a fingerprint; `token_review` knows ServiceAccounts; `serve` listens and stops.

mod account_grants;
mod attesting;
mod circuit;
mod directory;
mod embedders;
mod import;
mod metrics;
mod no_store;
mod options;
mod remote_lane;
mod review_cache;
mod serve;
mod store_answer;
mod store_http;
mod tls;
mod token_review;
mod watching;

pub use attesting::{Master, MasterError};
pub use directory::{ClusterDirectory, Surroundings};
pub use options::Options;
pub use remote_lane::{RemoteLane, StoreLink};
pub use serve::{ClusterError, Running, run, start, start_with};
pub use store_http::{StoreHttp, StoreHttpError};
pub use token_review::KubeReviewer;
