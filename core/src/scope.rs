//! What a caller may do in one lane: paths, actions, roles and the one decision function.
//!
//! A [`Scope`] is derived from the Lane's current `access` and the token, never from a request.
//! [`Scope::evaluate`] is total: whatever matches no rule is [`Decision::Deny`].

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{IdError, LaneName, LaneUid, text_serde};
use crate::principal::Principal;

/// What can be asked of a lane. A closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Recall turns; also listing events and seeing the lane.
    Recall,
    /// Append turns.
    Save,
    /// Read curated memory.
    MemoryRead,
    /// Write curated memory.
    MemoryWrite,
    /// Forget turns, sessions or paragraphs.
    Forget,
    /// Export the lane.
    Export,
    /// Import into the lane.
    Import,
    /// Walk the log and check it.
    Verify,
    /// Make the projections again from the log.
    Rebuild,
    /// Take a backup.
    Backup,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 10] = [
        Self::Recall,
        Self::Save,
        Self::MemoryRead,
        Self::MemoryWrite,
        Self::Forget,
        Self::Export,
        Self::Import,
        Self::Verify,
        Self::Rebuild,
        Self::Backup,
    ];

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recall => "recall",
            Self::Save => "save",
            Self::MemoryRead => "memory_read",
            Self::MemoryWrite => "memory_write",
            Self::Forget => "forget",
            Self::Export => "export",
            Self::Import => "import",
            Self::Verify => "verify",
            Self::Rebuild => "rebuild",
            Self::Backup => "backup",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A role in a Lane's `access`. Ordered: each includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// recall, memory_read, verify
    Reader,
    /// and save
    Writer,
    /// and memory_write, forget
    Curator,
    /// every action
    Admin,
}

impl Role {
    /// The actions of the role.
    #[must_use]
    pub fn actions(self) -> BTreeSet<Action> {
        let mut actions = BTreeSet::from([Action::Recall, Action::MemoryRead, Action::Verify]);
        if self >= Self::Writer {
            actions.insert(Action::Save);
        }
        if self >= Self::Curator {
            actions.extend([Action::MemoryWrite, Action::Forget]);
        }
        if self >= Self::Admin {
            actions.extend(Action::ALL);
        }
        actions
    }
}

/// The shared owner's segment under `memory/`.
pub const SHARED_OWNER: &str = "_shared";

/// A checked path: non-empty segments, none of them `.` or `..`, decoded exactly once.
///
/// `/lanes/<namespace>/<name>@<lane-uid>/events`, `…/memory/<owner>/MEMORY.md`,
/// `…/memory/_shared/MEMORY.md`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopePath(Vec<String>);

impl ScopePath {
    /// The path of a lane's events.
    #[must_use]
    pub fn events(lane: &LaneName, uid: LaneUid) -> Self {
        Self(vec!["lanes".into(), lane.namespace().into(), format!("{}@{uid}", lane.name()), "events".into()])
    }

    /// The path of one owner's curated memory. `owner` must be a segment of its own.
    pub fn memory(lane: &LaneName, uid: LaneUid, owner: &str) -> Result<Self, IdError> {
        check_segment(owner)?;
        Ok(Self(vec![
            "lanes".into(),
            lane.namespace().into(),
            format!("{}@{uid}", lane.name()),
            "memory".into(),
            owner.into(),
            "MEMORY.md".into(),
        ]))
    }

    /// Decodes percent-escapes once, then splits and checks.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let rest = text.strip_prefix('/').ok_or_else(|| IdError::new("a path starts with '/'"))?;
        rest.split('/')
            .map(|raw| {
                let segment = percent_decode(raw)?;
                check_segment(&segment)?;
                Ok(segment)
            })
            .collect::<Result<Vec<_>, _>>()
            .map(Self)
    }

    /// The segments.
    #[must_use]
    pub fn segments(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for ScopePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|segment| write!(f, "/{segment}"))
    }
}

fn percent_decode(raw: &str) -> Result<String, IdError> {
    let bytes = raw.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        if bytes[index] == b'%' {
            let value = raw
                .get(index + 1..index + 3)
                .filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
                .and_then(|hex| u8::from_str_radix(hex, 16).ok())
                .ok_or_else(|| IdError::new("a '%' in a path must be followed by two hex digits"))?;
            if value == b'/' {
                return Err(IdError::new("a path segment must not hold an escaped '/'"));
            }
            out.push(value);
            index += 3;
        } else {
            out.push(bytes[index]);
            index += 1;
        }
    }
    String::from_utf8(out).map_err(|_| IdError::new("a path must be UTF-8"))
}

fn check_segment(segment: &str) -> Result<(), IdError> {
    if segment.is_empty() || segment == "." || segment == ".." {
        return Err(IdError::new("a path segment must not be empty, '.' or '..'"));
    }
    if segment.contains(['/', '\\', '\0', '*']) {
        return Err(IdError::new("a path segment must not hold '/', '\\', '*' or NUL"));
    }
    Ok(())
}

/// A path, or all paths below one: `**` may stand only last; there is no other wildcard.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathPattern {
    path: ScopePath,
    and_below: bool,
}

impl PathPattern {
    /// Exactly this path.
    #[must_use]
    pub const fn exact(path: ScopePath) -> Self {
        Self { path, and_below: false }
    }

    /// Whether `path` is covered. `/a/**` covers `/a/b`, not `/a` and not `/ab`.
    #[must_use]
    pub fn matches(&self, path: &ScopePath) -> bool {
        if self.and_below {
            path.0.len() > self.path.0.len() && path.0.starts_with(&self.path.0)
        } else {
            path == &self.path
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)?;
        if self.and_below { f.write_str("/**") } else { Ok(()) }
    }
}

impl FromStr for PathPattern {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        match text.strip_suffix("/**") {
            Some("") => Err(IdError::new("a pattern must name at least one segment before '**'")),
            Some(prefix) => Ok(Self { path: ScopePath::parse(prefix)?, and_below: true }),
            None => Ok(Self { path: ScopePath::parse(text)?, and_below: false }),
        }
    }
}
text_serde!(PathPattern);

/// What a caller may do. `budget_usd` of DESIGN.md §5 must be null, so it has no field here; the
/// parser of scopes from outside refuses any other value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// Paths that may be touched.
    pub may_touch: BTreeSet<PathPattern>,
    /// Paths that may not, whatever `may_touch` says.
    #[serde(default)]
    pub may_not_touch: BTreeSet<PathPattern>,
    /// If given, only these actions go through without a person.
    pub auto_actions: Option<BTreeSet<Action>>,
    /// Actions that always need a person.
    #[serde(default)]
    pub escalate_actions: BTreeSet<Action>,
}

/// What [`Scope::evaluate`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// No. To the caller the thing does not exist.
    Deny,
    /// Only with a person's approval.
    Human,
    /// Only with an approval by policy.
    Gate,
    /// Yes.
    Auto,
}

impl Scope {
    /// A scope that allows nothing.
    #[must_use]
    pub const fn nothing() -> Self {
        Self {
            may_touch: BTreeSet::new(),
            may_not_touch: BTreeSet::new(),
            auto_actions: Some(BTreeSet::new()),
            escalate_actions: BTreeSet::new(),
        }
    }

    /// The scope of a role on a lane: its events, the caller's own memory and the shared one.
    pub fn of_role(lane: &LaneName, uid: LaneUid, principal: &Principal, role: Role) -> Result<Self, IdError> {
        let own = ScopePath::memory(lane, uid, &principal.owner_segment())?;
        let shared = ScopePath::memory(lane, uid, SHARED_OWNER)?;
        Ok(Self {
            may_touch: [ScopePath::events(lane, uid), own, shared].map(PathPattern::exact).into(),
            may_not_touch: BTreeSet::new(),
            auto_actions: Some(role.actions()),
            escalate_actions: BTreeSet::new(),
        })
    }

    /// The scope `reads` gives on its target: recall on the events, memory_read on the shared memory.
    pub fn of_reads(lane: &LaneName, uid: LaneUid) -> Result<Self, IdError> {
        let shared = ScopePath::memory(lane, uid, SHARED_OWNER)?;
        Ok(Self {
            may_touch: [ScopePath::events(lane, uid), shared].map(PathPattern::exact).into(),
            may_not_touch: BTreeSet::new(),
            auto_actions: Some(BTreeSet::from([Action::Recall, Action::MemoryRead])),
            escalate_actions: BTreeSet::new(),
        })
    }

    /// may_not_touch → Deny; nothing in may_touch → Deny; escalated → Human; auto_actions given and
    /// the action not in it → Gate; else Auto.
    #[must_use]
    pub fn evaluate(&self, path: &ScopePath, action: Action) -> Decision {
        if self.may_not_touch.iter().any(|pattern| pattern.matches(path)) {
            return Decision::Deny;
        }
        if !self.may_touch.iter().any(|pattern| pattern.matches(path)) {
            return Decision::Deny;
        }
        if self.escalate_actions.contains(&action) {
            return Decision::Human;
        }
        match &self.auto_actions {
            Some(actions) if !actions.contains(&action) => Decision::Gate,
            _ => Decision::Auto,
        }
    }
}

/// A token's narrowing and the role's scope, both of which must agree: the stricter decision counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectiveScope {
    /// From the Lane's current `access` (or from `reads`).
    pub granted: Scope,
    /// From the token; `None` narrows nothing.
    pub narrowed: Option<Scope>,
}

impl EffectiveScope {
    /// The stricter of both decisions.
    #[must_use]
    pub fn evaluate(&self, path: &ScopePath, action: Action) -> Decision {
        let granted = self.granted.evaluate(path, action);
        let Some(narrowed) = &self.narrowed else { return granted };
        let strictness = |decision| match decision {
            Decision::Deny => 3,
            Decision::Human => 2,
            Decision::Gate => 1,
            Decision::Auto => 0,
        };
        let other = narrowed.evaluate(path, action);
        if strictness(other) > strictness(granted) { other } else { granted }
    }

    /// The one private memory path (not the shared one) of the lane on which `action` is Auto.
    #[must_use]
    pub fn single_private_owner(&self, lane: &LaneName, uid: LaneUid, action: Action) -> Option<String> {
        let owners: BTreeSet<&str> = self
            .granted
            .may_touch
            .iter()
            .filter(|pattern| !pattern.and_below && self.evaluate(&pattern.path, action) == Decision::Auto)
            .filter_map(|pattern| {
                let owner = pattern.path.0.get(4)?;
                let expected = ScopePath::memory(lane, uid, owner).ok()?;
                (pattern.path == expected && owner != SHARED_OWNER).then_some(owner.as_str())
            })
            .collect();
        match owners.len() {
            1 => owners.first().map(|owner| (*owner).to_owned()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lane() -> (LaneName, LaneUid) {
        (LaneName::new("team", "acme").unwrap(), LaneUid::from_uuid(uuid::Uuid::from_u128(7)))
    }

    #[test]
    fn a_role_reaches_its_own_lane_and_no_other() {
        let (name, uid) = lane();
        let bob = Principal::user("bob").unwrap();
        let scope = Scope::of_role(&name, uid, &bob, Role::Writer).unwrap();
        let events = ScopePath::events(&name, uid);
        assert_eq!(scope.evaluate(&events, Action::Save), Decision::Auto);
        assert_eq!(scope.evaluate(&events, Action::Forget), Decision::Gate);
        // C1, C12: a name that starts alike, and the same name with another UID.
        let longer = ScopePath::events(&LaneName::new("team", "acme-corp").unwrap(), uid);
        let recreated = ScopePath::events(&name, LaneUid::from_uuid(uuid::Uuid::from_u128(8)));
        assert_eq!(scope.evaluate(&longer, Action::Recall), Decision::Deny);
        assert_eq!(scope.evaluate(&recreated, Action::Recall), Decision::Deny);
        let eve = ScopePath::memory(&name, uid, "eve").unwrap();
        assert_eq!(scope.evaluate(&eve, Action::MemoryRead), Decision::Deny);
    }

    #[test]
    fn rules_apply_in_their_order() {
        let (name, uid) = lane();
        let events = ScopePath::events(&name, uid);
        let mut scope = Scope {
            may_touch: [format!("/lanes/team/acme@{uid}/**").parse().unwrap()].into(),
            may_not_touch: BTreeSet::new(),
            auto_actions: None,
            escalate_actions: BTreeSet::new(),
        };
        assert_eq!(scope.evaluate(&events, Action::Forget), Decision::Auto);
        scope.auto_actions = Some([Action::Forget].into());
        assert_eq!(scope.evaluate(&events, Action::Recall), Decision::Gate);
        scope.escalate_actions.insert(Action::Forget);
        assert_eq!(scope.evaluate(&events, Action::Forget), Decision::Human);
        scope.may_not_touch.insert(PathPattern::exact(events.clone()));
        assert_eq!(scope.evaluate(&events, Action::Forget), Decision::Deny);
        assert_eq!(Scope::nothing().evaluate(&events, Action::Recall), Decision::Deny);
    }

    #[test]
    fn the_stricter_of_role_and_token_counts() {
        let (name, uid) = lane();
        let bob = Principal::user("bob").unwrap();
        let events = ScopePath::events(&name, uid);
        let granted = Scope::of_role(&name, uid, &bob, Role::Admin).unwrap();
        let mut narrowed = granted.clone();
        narrowed.auto_actions = Some([Action::Recall].into());
        let both = EffectiveScope { granted: granted.clone(), narrowed: Some(narrowed) };
        assert_eq!(both.evaluate(&events, Action::Recall), Decision::Auto);
        assert_eq!(both.evaluate(&events, Action::Save), Decision::Gate);
        // A token cannot widen: what the role denies stays denied.
        let reader = Scope::of_role(&name, uid, &bob, Role::Reader).unwrap();
        let widened = EffectiveScope { granted: reader, narrowed: Some(granted) };
        assert_eq!(widened.evaluate(&events, Action::Forget), Decision::Gate);
        assert_eq!(widened.single_private_owner(&name, uid, Action::MemoryRead).as_deref(), Some("bob"));
        assert_eq!(widened.single_private_owner(&name, uid, Action::MemoryWrite), None);
    }

    #[test]
    fn paths_are_decoded_once_and_checked_by_segment() {
        assert_eq!(ScopePath::parse("/a/%62").unwrap().to_string(), "/a/b");
        assert_eq!(ScopePath::parse("/a/%2562").unwrap().to_string(), "/a/%62");
        for bad in
            ["a", "/", "/a//b", "/a/.", "/a/..", "/a/%2e%2e", "/a/b%2Fc", "/a/%2f", "/a/%", "/a/%zz", "/a/*", "/a/%+1"]
        {
            assert!(ScopePath::parse(bad).is_err(), "{bad}");
        }
        for bad in ["/a/**/b", "/**", "/a/*", "**"] {
            assert!(bad.parse::<PathPattern>().is_err(), "{bad}");
        }
        let below: PathPattern = "/a/**".parse().unwrap();
        assert!(below.matches(&ScopePath::parse("/a/b/c").unwrap()));
        assert!(!below.matches(&ScopePath::parse("/a").unwrap()));
        assert!(!below.matches(&ScopePath::parse("/ab").unwrap()));
    }

    proptest! {
        #[test]
        fn whatever_is_not_granted_is_denied(path in "(/[a-z@%._-]{0,8}){1,6}", action in 0_usize..10) {
            let (name, uid) = lane();
            let scope = Scope::of_role(&name, uid, &Principal::user("bob").unwrap(), Role::Admin).unwrap();
            if let Ok(path) = ScopePath::parse(&path) {
                prop_assert_eq!(scope.evaluate(&path, Action::ALL[action]), Decision::Deny);
            }
        }
    }
}
