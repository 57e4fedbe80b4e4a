//! Which account first used a grant: a ServiceAccount that was deleted and made anew has its old name and another
//! UID, and does not inherit what the old one could do.
//!
//! What must always hold: a grant that is taken back is forgotten, so that giving it again is the way to admit the
//! new account.
//!
//! # Caveats
//! - Each replica remembers for itself and from its own start: it keeps no disk. A grant that nobody used since is
//!   bound by whoever uses it first.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use lanekeeper_core::{LaneUid, Principal};

type Grant = (LaneUid, Principal);

#[derive(Debug, Default)]
pub(super) struct AccountGrants(Mutex<HashMap<Grant, String>>);

impl AccountGrants {
    fn seen(&self) -> std::sync::MutexGuard<'_, HashMap<Grant, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this account is the one that first used the grant.
    pub(super) fn admits(&self, lane: LaneUid, principal: &Principal, account_uid: &str) -> bool {
        let mut seen = self.seen();
        let first = seen.entry((lane, principal.clone())).or_insert_with(|| account_uid.to_owned());
        first == account_uid
    }

    /// Forgets what is granted no longer.
    pub(super) fn keep(&self, granted: &HashSet<Grant>) {
        self.seen().retain(|grant, _| granted.contains(grant));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_account_of_a_grant_counts_until_the_grant_is_taken_back() {
        let grants = AccountGrants::default();
        let lane = |n| LaneUid::from_uuid(uuid::Uuid::from_u128(n));
        let agent: Principal = "sa:team/agent".parse().unwrap();
        assert!(grants.admits(lane(1), &agent, "old") && grants.admits(lane(1), &agent, "old"));
        assert!(!grants.admits(lane(1), &agent, "new"));
        assert!(grants.admits(lane(2), &agent, "new"), "another lane's grant is another grant");
        grants.keep(&HashSet::from([(lane(1), agent.clone())]));
        assert!(!grants.admits(lane(1), &agent, "new"));
        grants.keep(&HashSet::new());
        assert!(grants.admits(lane(1), &agent, "new") && !grants.admits(lane(1), &agent, "old"));
    }
}
