//! The form of our own tokens: a compact JWT with one `typ` and one algorithm (decision 0031).
//!
//! Header and claims are closed: a parameter that is not named here is refused, `crit`, `jwk` and the like
//! with it, and so is a parameter that stands twice.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lanekeeper_core::scope::{Action, PathPattern, Scope};
use lanekeeper_core::{LaneUid, Principal};
use serde::{Deserialize, Serialize};

/// Tells our tokens from any other JWT.
pub(super) const TYP: &str = "lanekeeper-agent+jwt";
/// The one algorithm.
pub(super) const ALG: &str = "EdDSA";
/// Whom a token is for.
pub(super) const AUDIENCE: &str = "lanekeeper";
/// Longest life of a token, seconds.
pub const MAX_LIFETIME_S: i64 = 24 * 3600;
/// Longest token read, bytes. A narrowing scope is the only part that can be long.
pub(super) const MAX_BYTES: usize = 8 * 1024;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub(super) typ: String,
    pub(super) alg: String,
    pub(super) kid: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claims {
    pub(super) iss: String,
    pub(super) aud: String,
    pub(super) sub: Principal,
    pub(super) nbf: i64,
    pub(super) exp: i64,
    pub(super) jti: String,
    /// The lane the token is for, by what its name was bound to.
    pub(super) lane: LaneUid,
    /// Narrows the role's scope; absent: nothing is narrowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) scope: Option<WireScope>,
}

/// A scope from outside. `budget_usd` is read so that it can be refused: nothing here counts money yet, and
/// a limit that is not enforced must not be accepted.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireScope {
    may_touch: BTreeSet<PathPattern>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    may_not_touch: BTreeSet<PathPattern>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    auto_actions: Option<BTreeSet<Action>>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    escalate_actions: BTreeSet<Action>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    budget_usd: Option<serde_json::Value>,
}

impl WireScope {
    /// `None` where the scope asks for what is not there.
    pub(super) fn into_scope(self) -> Option<Scope> {
        let Self { may_touch, may_not_touch, auto_actions, escalate_actions, budget_usd } = self;
        match budget_usd {
            Some(_) => None,
            None => Some(Scope { may_touch, may_not_touch, auto_actions, escalate_actions }),
        }
    }
}

impl From<Scope> for WireScope {
    fn from(scope: Scope) -> Self {
        let Scope { may_touch, may_not_touch, auto_actions, escalate_actions } = scope;
        Self { may_touch, may_not_touch, auto_actions, escalate_actions, budget_usd: None }
    }
}

pub(super) fn encode(part: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(part)
}

/// Strict: no padding, no stray bits, no other alphabet.
pub(super) fn decode(part: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(part).ok()
}
