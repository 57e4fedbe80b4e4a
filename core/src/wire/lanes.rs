//! `GET /v1/lanes`

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::recall::{LaneCounts, Relation};
use crate::ids::{LaneName, LaneUid};
use crate::lane::{LaneKind, Ranking};

/// One lane as its caller sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LaneSummary {
    /// `namespace/name`.
    #[schema(value_type = String)]
    pub lane: LaneName,
    /// What the name is bound to.
    #[schema(value_type = String)]
    pub uid: LaneUid,
    /// Personal or corpus.
    #[schema(value_type = String)]
    pub kind: LaneKind,
    /// Own, or read.
    pub relation: Relation,
    /// The caller's role, where own.
    pub role: Option<String>,
    /// Whether recall works.
    pub ready: bool,
    /// Whether writes work.
    pub writable: bool,
    /// Why not, as stable codes.
    pub reasons: Vec<String>,
    /// Head's seq.
    pub head_seq: Option<u64>,
    /// Counts.
    pub counts: Option<LaneCounts>,
    /// Default ranking.
    pub ranking: Ranking,
    /// Embedding model and first 8 digits of its fingerprint.
    pub embedder: String,
}

/// Answer of `GET /v1/lanes`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LaneList {
    /// By name.
    pub lanes: Vec<LaneSummary>,
}
