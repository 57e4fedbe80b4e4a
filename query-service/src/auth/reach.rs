//! What a credential reaches among the lanes as they are now. Pure.
//!
//! A token of ours is for one lane UID. It reaches that lane with the principal's current role, and the lanes that
//! this lane reads, where both sides consent. Own is the token's lane; the others come by `reads`, also
//! where the principal has a role of its own there: that role needs its own token.
//!
//! A ServiceAccount's token is for every lane that gives the account a role: those are its own. Where a grant was
//! first used by another account of that name, it does not count: the name was made anew.
//!
//! Into a corpus lane a principal that has access to any personal lane publishes only where the corpus
//! lane's entry says so: else save, import and memory_write leave the role's automatic actions, so the one
//! decision function answers Gate here and in the store alike.

use std::sync::Arc;

use lanekeeper_core::encoder::Encoder;
use lanekeeper_core::hooks::guard;
use lanekeeper_core::lane::{LaneKind, LaneView};
use lanekeeper_core::lane_client::{Caller, LaneClient, require};
use lanekeeper_core::scope::{Action, Decision, EffectiveScope, Role, Scope};
use lanekeeper_core::wire::recall::Relation;
use lanekeeper_core::{LaneError, LaneName, Principal};

use super::verify::{Bound, Credential};
use crate::directory::{LaneDirectory, LaneHandle};

/// The code of a lane that answers nothing because it is suspended.
pub(crate) const SUSPENDED: &str = "lane_suspended";

const PUBLISHING: [Action; 3] = [Action::Save, Action::Import, Action::MemoryWrite];

/// A lane with what the caller may do there. Made here only.
#[derive(Debug, Clone)]
pub(crate) struct Reached {
    handle: Arc<LaneHandle>,
    caller: Caller,
    relation: Relation,
    role: Option<Role>,
}

impl Reached {
    pub(crate) fn view(&self) -> &LaneView {
        &self.handle.view
    }

    pub(crate) fn client(&self) -> &Arc<dyn LaneClient> {
        &self.handle.client
    }

    pub(crate) fn encoder(&self) -> &Arc<dyn Encoder> {
        &self.handle.encoder
    }

    pub(crate) const fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) const fn relation(&self) -> Relation {
        self.relation
    }

    /// The caller's role, where the lane is its own.
    pub(crate) const fn role(&self) -> Option<Role> {
        self.role
    }

    /// A suspended lane answers nothing and keeps everything.
    pub(crate) fn require_active(&self) -> Result<(), LaneError> {
        if self.handle.view.suspend {
            return Err(LaneError::Conflict { code: SUSPENDED, detail: "the lane is suspended".into() });
        }
        Ok(())
    }
}

/// All that a credential reaches, the own lane first, the others by name.
#[derive(Debug)]
pub(crate) struct Reach(Vec<Reached>);

impl Reach {
    pub(super) fn derive(
        credential: &Credential,
        lanes: &[Arc<LaneHandle>],
        directory: &dyn LaneDirectory,
    ) -> Result<Self, LaneError> {
        let bound = |handle: &&Arc<LaneHandle>| match &credential.bound {
            Bound::Lane(uid) => handle.view.uid == *uid || !guard("uid_binding"),
            Bound::Account { .. } => true,
        };
        let mut reached = Vec::new();
        for handle in lanes.iter().filter(bound) {
            let Some(lane) = own(credential, handle, lanes)? else { continue };
            let admitted = match &credential.bound {
                Bound::Lane(_) => true,
                Bound::Account { uid } => {
                    directory.admits_account(handle.view.uid, &credential.principal, uid) || !guard("account_uid")
                }
            };
            if admitted {
                reached.push(lane);
            }
        }
        reached.sort_by(|a, b| a.view().name.cmp(&b.view().name));
        let own_lanes = reached.clone();
        // A suspended lane answers nothing, so nothing is read through it either.
        for reader in own_lanes.iter().filter(|reader| !reader.view().suspend) {
            for handle in lanes {
                let known = reached.iter().any(|lane: &Reached| lane.view().uid == handle.view.uid);
                if !known && reads(&handle.view, reader.view()) {
                    reached.push(by_reads(credential, handle, reader)?);
                }
            }
        }
        reached[own_lanes.len()..].sort_by(|a, b| a.view().name.cmp(&b.view().name));
        Ok(Self(reached))
    }

    /// All lanes, own first.
    pub(crate) fn lanes(&self) -> &[Reached] {
        &self.0
    }

    /// The lane of this name, if it is reached.
    pub(super) fn lane(&self, name: &LaneName) -> Result<&Reached, LaneError> {
        self.0.iter().find(|lane| &lane.view().name == name).ok_or(LaneError::NotFound { what: "lane" })
    }

    /// The lanes of a recall: those named, each of which must be reached, or all that may be recalled.
    pub(crate) fn for_recall(self, named: Option<&[String]>) -> Result<Vec<Reached>, LaneError> {
        let decide = |lane: &Reached| lane.caller.on_events(Action::Recall);
        let Some(named) = named else {
            // Why nothing is left is said by the strictest of what was reached, never by what was not.
            let refused = self.0.iter().map(decide).find(|decision| *decision != Decision::Auto);
            let lanes: Vec<Reached> = self.0.into_iter().filter(|lane| decide(lane) == Decision::Auto).collect();
            return match (lanes.is_empty(), refused) {
                (false, _) => Ok(lanes),
                (true, refused) => {
                    require(refused.unwrap_or(Decision::Deny), Action::Recall)?;
                    Ok(lanes)
                }
            };
        };
        let mut names = Vec::new();
        for (index, text) in named.iter().enumerate() {
            let name: LaneName = text.parse().map_err(|error: lanekeeper_core::ids::IdError| {
                LaneError::invalid(format!("lanes[{index}]"), error.rule)
            })?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
            .iter()
            .map(|name| {
                let lane = self.lane(name)?;
                if guard("scope_deny") {
                    require(decide(lane), Action::Recall)?;
                }
                Ok(lane.clone())
            })
            .collect()
    }
}

fn reads(target: &LaneView, reader: &LaneView) -> bool {
    target.consents_to(reader) || (reader.reads.contains(&target.name) && !guard("reads_consent"))
}

fn scope_fault(error: lanekeeper_core::ids::IdError) -> LaneError {
    LaneError::internal(format!("a scope cannot be derived: {}", error.rule))
}

fn own(
    credential: &Credential,
    handle: &Arc<LaneHandle>,
    lanes: &[Arc<LaneHandle>],
) -> Result<Option<Reached>, LaneError> {
    let Some(mut granted) = handle.view.scope_of(&credential.principal).map_err(scope_fault)? else {
        return Ok(None);
    };
    if publishing_is_gated(&handle.view, &credential.principal, lanes) && guard("publish_gate") {
        // `of_role` always lists its actions; a scope that did not would allow all, so start from all.
        let allowed = granted.auto_actions.get_or_insert_with(|| Action::ALL.into());
        allowed.retain(|action| !PUBLISHING.contains(action));
    }
    let role = handle.view.role_of(&credential.principal);
    Ok(Some(reached(credential, handle, granted, None, Relation::Own, role)))
}

fn by_reads(credential: &Credential, handle: &Arc<LaneHandle>, reader: &Reached) -> Result<Reached, LaneError> {
    let granted = Scope::of_reads(&handle.view.name, handle.view.uid).map_err(scope_fault)?;
    Ok(reached(credential, handle, granted, Some(reader), Relation::Read, None))
}

fn reached(
    credential: &Credential,
    handle: &Arc<LaneHandle>,
    granted: Scope,
    reader: Option<&Reached>,
    relation: Relation,
    role: Option<Role>,
) -> Reached {
    let caller = Caller {
        principal: credential.principal.clone(),
        lane: handle.view.name.clone(),
        lane_uid: handle.view.uid,
        scope: EffectiveScope { granted, narrowed: credential.narrowed.clone() },
        reading_lane: reader.map(|reader| reader.view().uid),
    };
    Reached { handle: Arc::clone(handle), caller, relation, role }
}

fn publishing_is_gated(lane: &LaneView, principal: &Principal, lanes: &[Arc<LaneHandle>]) -> bool {
    let may_publish = lane.access.iter().any(|entry| &entry.principal == principal && entry.may_publish);
    let has_personal =
        || lanes.iter().any(|other| other.view.kind == LaneKind::Personal && other.view.role_of(principal).is_some());
    lane.kind == LaneKind::Corpus && !may_publish && has_personal()
}
