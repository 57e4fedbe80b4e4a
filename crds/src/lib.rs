//! The kinds Lane, Embedder and FederationRecord (group `lanekeeper.dev`, version `v1alpha1`): their
//! Rust types, their rules, and the YAML generated from both.
//!
//! What must always hold: a rule stands once, in the schema of its kind. The API server runs it from
//! the generated YAML; [`validate`] runs the very same schema without a server, so a manifest that the
//! local program takes is one that a cluster takes. What is not understood is refused.
//!
//! What this crate does not do: it sees one object at a time. Whatever needs a second object or the
//! namespace (does the target of `reads` exist, who else claims the collection) is checked where
//! those are known.
#![warn(missing_docs)]

pub mod annotations;
pub mod conditions;
pub mod embedder;
pub mod federation_record;
pub mod lane;
pub mod manifest;
pub mod models;
mod object_meta;
pub mod pod;
pub mod quantity;
pub mod schema;
mod structural;
pub mod validate;
pub mod view;

pub use embedder::{Embedder, EmbedderSpec, EmbedderStatus};
pub use federation_record::{FederationRecord, FederationRecordSpec, FederationRecordStatus};
pub use lane::{Lane, LaneSpec, LaneStatus};
pub use manifest::{Manifest, parse_lane_manifest};
pub use validate::{Violation, validate_create, validate_update};

/// The API group of every kind here.
pub const GROUP: &str = "lanekeeper.dev";
/// The one version there is.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of every object here.
pub const API_VERSION: &str = "lanekeeper.dev/v1alpha1";

/// A DNS label: what a namespace, a lane, a collection and a person are called. No dot, so that
/// names can be joined with dots; neither `_` nor `%`, so that no name is a wildcard anywhere.
pub(crate) const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A DNS subdomain: what most Kubernetes objects are called.
pub(crate) const DNS_SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
