//! Annotations and labels by which a person talks to whoever runs the lanes. One place, so that the
//! operator, the local program and the docs spell them alike.

/// On a re-created Lane: the UID of the retained lane whose memory it asks for. Heeded only if the
/// owner is the same.
pub const ADOPT: &str = "lanekeeper.dev/adopt";
/// On a Lane with `deletionPolicy: Delete`: its own UID, without which deleting it acts as Retain.
pub const CONFIRM_DELETE: &str = "lanekeeper.dev/confirm-delete";
/// Label on an Embedder that the operator made for `embedder.model`; such a one goes with its last
/// consumer. Value `true`.
pub const MANAGED: &str = "lanekeeper.dev/managed";
/// Prefix of every label and annotation that is ours. Pods are selected by such labels, so nobody
/// may set one through `podLabels`.
pub const PREFIX: &str = "lanekeeper.dev/";
