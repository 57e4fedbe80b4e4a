//! `POST /v1/recall`

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::events::TurnRole;
use crate::error::LaneError;
use crate::ids::{EventId, LaneName, Seq};
use crate::lane::Ranking;
use crate::limits;
use crate::time::parse_rfc3339_ms;

/// What is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Surface {
    /// Turns of the log.
    Turns,
    /// Paragraphs of curated memory.
    Memory,
}

/// How the answer is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Hits only.
    Json,
    /// Also `prompt`: the hits as fenced, escaped data for a model.
    Prompt,
}

/// Applied inside every arm before its pool is cut. Values of one list are alternatives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// Sessions, literal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub session: Vec<String>,
    /// Roles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub role: Vec<TurnRole>,
    /// Speakers, literal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub speaker: Vec<String>,
    /// Event kinds: `turn`, `memory`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kind: Vec<String>,
    /// RFC 3339, inclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_gte: Option<String>,
    /// RFC 3339, exclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_lt: Option<String>,
}

impl Filter {
    /// Checks lengths and times.
    pub fn check(&self) -> Result<(), LaneError> {
        let lists = [
            ("session", self.session.len()),
            ("role", self.role.len()),
            ("speaker", self.speaker.len()),
            ("kind", self.kind.len()),
        ];
        for (name, count) in lists {
            if count > limits::FILTER_VALUES {
                return Err(LaneError::invalid(
                    format!("filter.{name}"),
                    format!("must hold at most {} values", limits::FILTER_VALUES),
                ));
            }
        }
        for (index, kind) in self.kind.iter().enumerate() {
            if kind != "turn" && kind != "memory" {
                return Err(LaneError::invalid(format!("filter.kind[{index}]"), "must be turn or memory"));
            }
        }
        for (name, value) in [("at_gte", &self.at_gte), ("at_lt", &self.at_lt)] {
            if let Some(text) = value {
                parse_rfc3339_ms(text).map_err(|error| LaneError::invalid(format!("filter.{name}"), error.rule))?;
            }
        }
        Ok(())
    }

    /// Whether nothing is filtered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// `POST /v1/recall`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecallRequest {
    /// The question; cut to 3072 characters, head and tail kept.
    pub query: String,
    /// `namespace/name`; default: every lane of the caller and what those read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<Vec<String>>,
    /// Default: turns and memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surfaces: Option<Vec<Surface>>,
    /// 1 to 50, default 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<i64>,
    /// See [`Filter`].
    #[serde(default)]
    pub filter: Filter,
    /// Default: the lane's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranking: Option<Ranking>,
    /// 0 to 8: how many `[[wikilinks]]` of the hits are asked as one more query each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop_budget: Option<i64>,
    /// Adds score and rank of each arm to each hit.
    #[serde(default)]
    pub explain: bool,
    /// Default `json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
}

impl RecallRequest {
    /// A question with every default.
    #[must_use]
    pub fn new(query: impl Into<String>) -> Self {
        Self {
            query: query.into(),
            lanes: None,
            surfaces: None,
            top_k: None,
            filter: Filter::default(),
            ranking: None,
            hop_budget: None,
            explain: false,
            format: None,
        }
    }

    /// Checks what the types do not; gives `top_k` and `hop_budget`.
    pub fn check(&self) -> Result<(u32, u32), LaneError> {
        if self.query.trim().is_empty() {
            return Err(LaneError::invalid("query", "must not be empty or blank"));
        }
        if let Some(lanes) = &self.lanes
            && (lanes.is_empty() || lanes.len() > limits::LANES_PER_RECALL)
        {
            return Err(LaneError::invalid(
                "lanes",
                format!("must name 1 to {} lanes, or be left out", limits::LANES_PER_RECALL),
            ));
        }
        if self.surfaces.as_ref().is_some_and(Vec::is_empty) {
            return Err(LaneError::invalid("surfaces", "must name a surface, or be left out"));
        }
        self.filter.check()?;
        let top_k = match self.top_k {
            None => limits::TOP_K_DEFAULT,
            Some(value) => u32::try_from(value)
                .ok()
                .filter(|value| (1..=limits::TOP_K_MAX).contains(value))
                .ok_or_else(|| LaneError::invalid("top_k", format!("must be 1 to {}", limits::TOP_K_MAX)))?,
        };
        let hops = match self.hop_budget {
            None => 0,
            Some(value) => u32::try_from(value)
                .ok()
                .filter(|value| *value <= limits::HOP_BUDGET_MAX)
                .ok_or_else(|| LaneError::invalid("hop_budget", format!("must be 0 to {}", limits::HOP_BUDGET_MAX)))?,
        };
        Ok((top_k, hops))
    }
}

/// One way of finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// Full text of the turn.
    TurnText,
    /// Full text of the turn and the two before it.
    WindowText,
    /// Vectors.
    Vector,
    /// Literal text of curated paragraphs.
    MemoryText,
}

/// What one arm made of a hit (with `explain`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArmScore {
    /// The exact raw score (cosine, BM25); null where the arm was not searched.
    pub score: Option<f64>,
    /// 1-based rank in the arm's own list; null where the arm did not list it.
    pub rank: Option<u32>,
}

/// One memory found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Hit {
    /// The lane it stands in.
    #[schema(value_type = String)]
    pub lane: LaneName,
    /// Turns or memory.
    pub surface: Surface,
    /// The event's id, or the paragraph's id.
    pub id: String,
    /// The event that wrote it.
    #[schema(value_type = String)]
    pub event_id: EventId,
    /// Its place in the log.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// When, as sent.
    pub at: String,
    /// Of a turn.
    pub role: Option<TurnRole>,
    /// Of a turn.
    pub speaker: Option<String>,
    /// Of a turn.
    pub session: Option<String>,
    /// Of a paragraph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Who wrote it.
    pub principal: Option<String>,
    /// As sent.
    pub text: String,
    /// The fused score; comparable within this answer only.
    pub score: f64,
    /// Which arms found it; with `explain` every arm's score and rank, else ranks only.
    pub arms: BTreeMap<Arm, ArmScore>,
    /// The named terms of the fused score, with `explain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<BTreeMap<String, f64>>,
    /// The age term that entered the score; null where the lane has no half-life.
    pub decay: Option<f64>,
    /// The caller's own.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
    /// The wikilink that led here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// Other events with the same content that this hit stands for.
    pub folded: u32,
}

/// Whether an arm was searched, and if not, why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArmCoverage {
    /// Whether it was searched.
    pub searched: bool,
    /// A stable reason where it was not, or not wholly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Roles whose turns this arm does not hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles_left_out: Vec<TurnRole>,
}

impl ArmCoverage {
    /// Searched wholly.
    #[must_use]
    pub const fn searched() -> Self {
        Self { searched: true, reason: None, roles_left_out: Vec::new() }
    }

    /// Not searched.
    #[must_use]
    pub fn skipped(reason: impl Into<String>) -> Self {
        Self { searched: false, reason: Some(reason.into()), roles_left_out: Vec::new() }
    }
}

/// Counts of one lane, of what this caller may see.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LaneCounts {
    /// Turns not forgotten.
    pub events: u64,
    /// Of those, found by text.
    pub searchable: u64,
    /// Turns whose vectors are not made yet.
    pub pending_projection: u64,
    /// Turns without a principal, left out.
    pub unattributed_excluded: u64,
    /// Vector hits whose event is gone or unreadable, skipped.
    pub dangling_skipped: u64,
    /// Candidates folded into one of equal content.
    pub folded: u64,
}

/// Whether the lane is the caller's own or read through `reads`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Relation {
    /// By access.
    Own,
    /// By `reads`.
    Read,
}

/// What was searched in one lane.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LaneCoverage {
    /// The lane.
    #[schema(value_type = String)]
    pub lane: LaneName,
    /// Own or read.
    pub relation: Relation,
    /// Each arm.
    pub arms: BTreeMap<Arm, ArmCoverage>,
    /// Counts.
    pub counts: LaneCounts,
    /// The floor under which a vector-only hit was dropped.
    pub floor: Option<f32>,
    /// How vectors were pooled: `idf_weighted`, `server`, or null without a vector arm.
    pub pooling: Option<String>,
}

/// A part all lanes share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SharedPart {
    /// `embedder`, `vectors`, `approvals`.
    pub part: String,
    /// `ok`, `not configured`, or a stable reason.
    pub state: String,
}

/// What was and was not searched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Coverage {
    /// True only if every lane in scope was searched by every arm with nothing left out.
    pub complete_corpus: bool,
    /// Why not, each a short sentence; empty if complete.
    pub missing: Vec<String>,
    /// Per lane.
    pub lanes: Vec<LaneCoverage>,
    /// Shared parts by name.
    pub shared: Vec<SharedPart>,
    /// Whether the query was cut to its limit.
    pub query_cut: bool,
}

/// How hits were ranked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RankingStatement {
    /// Which.
    pub method: Ranking,
    /// Arms that took part.
    pub arms: Vec<Arm>,
    /// One sentence.
    pub statement: String,
}

/// Answer of `POST /v1/recall`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecallResponse {
    /// Best first.
    pub hits: Vec<Hit>,
    /// What was searched.
    pub coverage: Coverage,
    /// How it was ranked.
    pub ranking: RankingStatement,
    /// UUIDv7 of this recall, for the log.
    pub recall_id: String,
    /// With `format: prompt`: the hits as data for a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}
