//! A Lane as the parts below the API server see it: checked, without Kubernetes types.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;
use crate::ids::{IdError, LaneName, LaneUid};
use crate::principal::Principal;
use crate::scope::{Role, Scope};

/// What a lane is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaneKind {
    /// One person's memory; the owner is its admin.
    Personal,
    /// Shared knowledge; nobody is admin without being listed.
    Corpus,
}

/// One entry of `access`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Who.
    pub principal: Principal,
    /// As what.
    pub role: Role,
    /// Whether one who also has a personal lane may write here (corpus lanes only).
    pub may_publish: bool,
}

/// One entry of a corpus lane's `readers`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reader {
    /// Every lane of a namespace.
    Namespace(String),
    /// One lane.
    Lane(LaneName),
}

impl Reader {
    /// Whether the entry covers `lane`.
    #[must_use]
    pub fn covers(&self, lane: &LaneName) -> bool {
        match self {
            Self::Namespace(namespace) => lane.namespace() == namespace,
            Self::Lane(name) => name == lane,
        }
    }
}

/// How hits are fused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ranking {
    /// Sums of normalised scores (the default; retrieval.md's pipeline P3).
    Fused,
    /// Plain reciprocal rank fusion, 1/(60+rank+1).
    Rrf,
}

/// The language of stop words and stemmer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// English stop words, Porter2.
    #[default]
    English,
    /// German stop words and stemmer.
    German,
    /// French stop words and stemmer.
    French,
    /// Spanish stop words and stemmer.
    Spanish,
    /// No stop words and no stemmer (code).
    None,
}

/// Recall settings of a lane.
#[derive(Debug, Clone, PartialEq)]
pub struct RecallSettings {
    /// How hits are fused unless the request says otherwise.
    pub ranking: Ranking,
    /// The cosine below which a hit that only the vector arm found is dropped; `None`: measured.
    pub min_score: Option<f32>,
    /// Half-life of the age term, milliseconds; `None`: no decay.
    pub half_life_ms: Option<i64>,
    /// Stop words and stemmer.
    pub language: Language,
}

/// The roles whose turns get vectors.
pub type ProjectedRoles = BTreeSet<crate::wire::events::TurnRole>;

/// A valid Lane.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneView {
    /// `namespace/name`.
    pub name: LaneName,
    /// What the name is bound to.
    pub uid: LaneUid,
    /// Personal or corpus.
    pub kind: LaneKind,
    /// The person of a personal lane.
    pub owner: Option<Principal>,
    /// `<namespace>.<collection>`.
    pub collection: String,
    /// The embedding this lane's vectors are made with.
    pub fingerprint: Fingerprint,
    /// Who may do what.
    pub access: Vec<Access>,
    /// Lanes this one reads (personal only).
    pub reads: Vec<LaneName>,
    /// Lanes that may read this one (corpus only).
    pub readers: Vec<Reader>,
    /// Roles whose turns get vectors.
    pub projected_roles: ProjectedRoles,
    /// Recall settings.
    pub recall: RecallSettings,
    /// A suspended lane answers nothing and keeps everything.
    pub suspend: bool,
}

impl LaneView {
    /// The current role of a principal, if it has one: the owner of a personal lane is admin; on a
    /// corpus lane only `access` counts. Several entries: the strongest.
    #[must_use]
    pub fn role_of(&self, principal: &Principal) -> Option<Role> {
        if self.kind == LaneKind::Personal && self.owner.as_ref() == Some(principal) {
            return Some(Role::Admin);
        }
        self.access.iter().filter(|entry| &entry.principal == principal).map(|entry| entry.role).max()
    }

    /// The scope of a principal by its current role.
    pub fn scope_of(&self, principal: &Principal) -> Result<Option<Scope>, IdError> {
        self.role_of(principal).map(|role| Scope::of_role(&self.name, self.uid, principal, role)).transpose()
    }

    /// Whether `reader` may read this lane: this must be a corpus lane that lists it, and `reader` a
    /// personal lane that asks for it. Both sides must consent.
    #[must_use]
    pub fn consents_to(&self, reader: &Self) -> bool {
        self.kind == LaneKind::Corpus
            && reader.kind == LaneKind::Personal
            && reader.reads.contains(&self.name)
            && self.readers.iter().any(|entry| entry.covers(&reader.name))
    }
}
