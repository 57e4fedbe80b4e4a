//! From the Kubernetes shape of a Lane to the one that the parts below know ([`LaneView`]).
//!
//! The stored type keeps what was written; the view is parsed: principals, names, milliseconds. Every
//! conversion takes the source apart without `..`, so that a new field or value must be thought of.

use lanekeeper_core::fingerprint::{Fingerprint, FingerprintFields};
use lanekeeper_core::ids::IdError;
use lanekeeper_core::lane as core_lane;
use lanekeeper_core::lane::{Access, LaneView, ProjectedRoles, Reader, RecallSettings};
use lanekeeper_core::scope::Role as CoreRole;
use lanekeeper_core::wire::events::TurnRole as CoreTurnRole;
use lanekeeper_core::{LaneName, LaneUid, Principal};

use crate::embedder::EmbedderSpec;
use crate::lane::{
    AccessEntry, Lane, LaneEmbedder, LaneKind, LaneReference, LaneSpec, Language, Projection, Ranking, ReaderReference,
    Recall, Role, TurnRole,
};
use crate::models::{BuiltinModel, FingerprintError};
use crate::pod::ServiceAccountName;

/// Why a Lane has no view. It did not pass its kind's rules: refuse it and wait for an edit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// A name that is none.
    #[error("{field} is no valid name")]
    Name {
        /// The field.
        field: &'static str,
        /// The rule.
        #[source]
        source: IdError,
    },
    /// A half-life that is none.
    #[error("spec.recall.halfLife must be a number from 1 to 99999 with m, h, d or w behind it, such as 30d")]
    HalfLife,
    /// Neither a user nor a ServiceAccount, or both.
    #[error("spec.access[{index}] must name exactly one of user and serviceAccount")]
    AccessEntry {
        /// Which.
        index: usize,
    },
}

/// Why a lane's embedder cannot be known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbedderError {
    /// No such Embedder. Wait for one.
    #[error("there is no Embedder named {name:?}")]
    Unknown {
        /// As declared.
        name: String,
    },
    /// Neither model nor name, or both. Wait for an edit.
    #[error("spec.embedder must give exactly one of model and name")]
    Ambiguous,
    /// The Embedder is there and has no fingerprint. Wait for an edit.
    #[error("the Embedder named {name:?} has no fingerprint")]
    Fingerprint {
        /// As declared.
        name: String,
        /// Why.
        #[source]
        source: FingerprintError,
    },
}

impl LaneEmbedder {
    /// What decides the meaning of the lane's vectors; `named` looks an Embedder up.
    pub fn fingerprint_fields<'a>(
        &self,
        named: impl FnOnce(&str) -> Option<&'a EmbedderSpec>,
    ) -> Result<FingerprintFields, EmbedderError> {
        match (&self.model, &self.name) {
            (Some(model), None) => Ok(BuiltinModel::fingerprint_fields(*model)),
            (None, Some(name)) => named(name)
                .ok_or_else(|| EmbedderError::Unknown { name: name.clone() })?
                .fingerprint_fields()
                .map_err(|source| EmbedderError::Fingerprint { name: name.clone(), source }),
            (Some(_), Some(_)) | (None, None) => Err(EmbedderError::Ambiguous),
        }
    }
}

impl Lane {
    /// `namespace/name`.
    pub fn lane_name(&self) -> Result<LaneName, ViewError> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let name = self.metadata.name.as_deref().unwrap_or_default();
        LaneName::new(namespace, name).map_err(|source| ViewError::Name { field: "metadata", source })
    }

    /// `<namespace>.<collection>`: what the federation record and the vectors' alias are called.
    pub fn full_collection(&self) -> Result<String, ViewError> {
        let name = self.lane_name()?;
        let collection = self.spec.collection.as_deref().unwrap_or(name.name());
        Ok(format!("{}.{collection}", name.namespace()))
    }

    /// The annotation by which a re-created lane asks for a retained one's memory.
    #[must_use]
    pub fn adopts(&self) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(crate::annotations::ADOPT).map(String::as_str)
    }

    /// Whether the annotation that confirms an erasing delete names this very lane.
    #[must_use]
    pub fn confirms_delete(&self, uid: LaneUid) -> bool {
        let confirmed = self.metadata.annotations.as_ref().and_then(|all| all.get(crate::annotations::CONFIRM_DELETE));
        confirmed.is_some_and(|confirmed| *confirmed == uid.to_string())
    }

    /// The lane as the parts below know it, under the UID its name is bound to now and the fingerprint
    /// its embedder resolves to ([`LaneEmbedder::fingerprint_fields`]).
    pub fn to_view(&self, uid: LaneUid, fingerprint: Fingerprint) -> Result<LaneView, ViewError> {
        let LaneSpec {
            kind,
            owner,
            collection: _,
            embedder: _,
            storage: _,
            reads,
            readers,
            access,
            projection: Projection { roles },
            recall,
            deletion_policy: _,
            suspend,
            resources: _,
            tolerations: _,
            node_selector: _,
            priority_class_name: _,
            image_pull_secrets: _,
            pod_labels: _,
        } = &self.spec;
        let name_error = |field| move |source| ViewError::Name { field, source };
        Ok(LaneView {
            name: self.lane_name()?,
            uid,
            kind: (*kind).into(),
            owner: owner.as_deref().map(Principal::user).transpose().map_err(name_error("spec.owner"))?,
            collection: self.full_collection()?,
            fingerprint,
            access: access.iter().enumerate().map(|(index, entry)| entry.view(index)).collect::<Result<_, _>>()?,
            reads: reads
                .iter()
                .map(|LaneReference { namespace, name }| LaneName::new(namespace, name))
                .collect::<Result<_, _>>()
                .map_err(name_error("spec.reads"))?,
            readers: readers
                .iter()
                .map(ReaderReference::view)
                .collect::<Result<_, _>>()
                .map_err(name_error("spec.readers"))?,
            projected_roles: roles.iter().map(|role| CoreTurnRole::from(*role)).collect::<ProjectedRoles>(),
            recall: recall.view()?,
            suspend: *suspend,
        })
    }
}

impl AccessEntry {
    fn view(&self, index: usize) -> Result<Access, ViewError> {
        let Self { user, service_account, role, may_publish } = self;
        let principal = match (user, service_account) {
            (Some(user), None) => Principal::user(user),
            (None, Some(ServiceAccountName { namespace, name })) => Principal::service_account(namespace, name),
            (Some(_), Some(_)) | (None, None) => return Err(ViewError::AccessEntry { index }),
        };
        let principal = principal.map_err(|source| ViewError::Name { field: "spec.access", source })?;
        Ok(Access { principal, role: (*role).into(), may_publish: *may_publish })
    }
}

impl ReaderReference {
    fn view(&self) -> Result<Reader, IdError> {
        let Self { namespace, name } = self;
        if name == "*" {
            // Checked as part of a lane's name, so that the namespace is one.
            return LaneName::new(namespace, "any").map(|any| Reader::Namespace(any.namespace().to_owned()));
        }
        LaneName::new(namespace, name).map(Reader::Lane)
    }
}

impl Recall {
    fn view(&self) -> Result<RecallSettings, ViewError> {
        let Self { ranking, min_score, half_life, language } = self;
        #[expect(clippy::cast_possible_truncation, reason = "a cosine; the rules keep it between -1 and 1")]
        let min_score = min_score.map(|score| score as f32);
        Ok(RecallSettings {
            ranking: (*ranking).into(),
            min_score,
            half_life_ms: half_life.as_deref().map(half_life_ms).transpose()?,
            language: (*language).into(),
        })
    }
}

/// A half-life such as `30m`, `12h`, `30d` or `8w`, in milliseconds.
pub fn half_life_ms(text: &str) -> Result<i64, ViewError> {
    const MINUTE: i64 = 60 * 1000;
    let unit = match text.as_bytes().last() {
        Some(b'm') => MINUTE,
        Some(b'h') => 60 * MINUTE,
        Some(b'd') => 24 * 60 * MINUTE,
        Some(b'w') => 7 * 24 * 60 * MINUTE,
        Some(_) | None => return Err(ViewError::HalfLife),
    };
    let digits = &text[..text.len() - 1];
    if digits.len() > 5 || digits.starts_with('0') || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(ViewError::HalfLife);
    }
    let count: i64 = digits.parse().map_err(|_| ViewError::HalfLife)?;
    Ok(count * unit)
}

impl From<LaneKind> for core_lane::LaneKind {
    fn from(kind: LaneKind) -> Self {
        match kind {
            LaneKind::Personal => Self::Personal,
            LaneKind::Corpus => Self::Corpus,
        }
    }
}

impl From<Role> for CoreRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Reader => Self::Reader,
            Role::Writer => Self::Writer,
            Role::Curator => Self::Curator,
            Role::Admin => Self::Admin,
        }
    }
}

impl From<TurnRole> for CoreTurnRole {
    fn from(role: TurnRole) -> Self {
        match role {
            TurnRole::User => Self::User,
            TurnRole::Assistant => Self::Assistant,
            TurnRole::Tool => Self::Tool,
            TurnRole::System => Self::System,
        }
    }
}

impl From<Ranking> for core_lane::Ranking {
    fn from(ranking: Ranking) -> Self {
        match ranking {
            Ranking::Fused => Self::Fused,
            Ranking::Rrf => Self::Rrf,
        }
    }
}

impl From<Language> for core_lane::Language {
    fn from(language: Language) -> Self {
        match language {
            Language::English => Self::English,
            Language::German => Self::German,
            Language::French => Self::French,
            Language::Spanish => Self::Spanish,
            Language::None => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_life_is_a_count_and_a_unit() {
        for (text, ms) in [("1m", 60_000), ("12h", 43_200_000), ("30d", 2_592_000_000), ("2w", 1_209_600_000)] {
            assert_eq!(half_life_ms(text), Ok(ms));
        }
        assert!(half_life_ms("99999w").unwrap() > 0);
        for bad in ["", "d", "0d", "05d", "-1d", "1.5h", "30", "30s", "100000d", "1 d", "1d ", "ä", "1ä", "+1d"] {
            assert_eq!(half_life_ms(bad), Err(ViewError::HalfLife), "{bad}");
        }
    }
}
