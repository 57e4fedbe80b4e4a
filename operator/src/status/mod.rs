//! Conditions: what is said about an object, and when it is written.
//!
//! What must always hold: a status is written only where it says something new; a condition's time moves only when
//! its status does; reasons come from one closed list ([`reason::Reason`]).

pub mod reason;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use lanekeeper_crds::conditions::Condition;

pub use reason::Reason;

/// Longest message of a condition, characters; the API server takes 32768 bytes.
const MESSAGE_CHARS: usize = 1024;

/// What a condition says now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether it holds.
    pub holds: bool,
    /// Why.
    pub reason: Reason,
    /// In words, for whoever reads it; what is missing by name.
    pub message: String,
}

impl Finding {
    /// It holds.
    pub fn yes(reason: Reason, message: impl Into<String>) -> Self {
        Self { holds: true, reason, message: message.into() }
    }

    /// It does not.
    pub fn no(reason: Reason, message: impl Into<String>) -> Self {
        Self { holds: false, reason, message: message.into() }
    }

    /// As the API server stores it. `before`: the conditions there are.
    #[must_use]
    pub fn condition(&self, kind: &str, generation: Option<i64>, before: &[Condition], now: Timestamp) -> Condition {
        let status = if self.holds { "True" } else { "False" };
        let since = before
            .iter()
            .find(|condition| condition.type_ == kind && condition.status == status)
            .map_or(Time(now), |condition| condition.last_transition_time.clone());
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: self.reason.as_str().to_owned(),
            message: self.message.chars().take(MESSAGE_CHARS).collect(),
            observed_generation: generation,
            last_transition_time: since,
        }
    }
}

/// A condition as a finding, if its reason is one of ours.
#[must_use]
pub fn finding_of(conditions: &[Condition], kind: &str) -> Option<Finding> {
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    let reason = Reason::by_name(&found.reason)?;
    Some(Finding { holds: found.status == "True", reason, message: found.message.clone() })
}

/// A change that people should hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The condition.
    pub kind: String,
    /// Whether it is good news.
    pub good: bool,
    /// Why.
    pub reason: String,
    /// In words.
    pub message: String,
}

/// What became of `before`: problems that are new, and Ready. One Event each, so `Ready=False`, which only repeats
/// another condition's reason, is none.
#[must_use]
pub fn transitions(before: &[Condition], after: &[Condition]) -> Vec<Transition> {
    let known = |condition: &Condition| {
        before.iter().any(|old| {
            (&old.type_, &old.status, &old.reason) == (&condition.type_, &condition.status, &condition.reason)
        })
    };
    let is_ready = |condition: &Condition| condition.type_ == lanekeeper_crds::conditions::READY;
    after
        .iter()
        .filter(|condition| !known(condition))
        .filter_map(|condition| {
            let good = condition.status == "True";
            let problem = Reason::by_name(&condition.reason).is_none_or(Reason::is_problem);
            let news = if is_ready(condition) {
                // Ready=True with another reason is no new readiness.
                good && !before.iter().any(|old| is_ready(old) && old.status == "True")
            } else {
                problem && (!good || condition.type_ == lanekeeper_crds::conditions::VOLUME_CONFLICT)
            };
            news.then(|| Transition {
                kind: condition.type_.clone(),
                good: is_ready(condition),
                reason: condition.reason.clone(),
                message: condition.message.clone(),
            })
        })
        // VolumeConflict says itself twice, in a condition of its own and in VolumeReady.
        .fold(Vec::new(), |mut all, next| {
            if !all.iter().any(|earlier: &Transition| earlier.reason == next.reason) {
                all.push(next);
            }
            all
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn the_time_moves_with_the_status_and_not_with_the_message() {
        let first = Finding::no(Reason::Starting, "a").condition("Ready", Some(1), &[], at(100));
        let second =
            Finding::no(Reason::NotReady, "b").condition("Ready", Some(2), std::slice::from_ref(&first), at(200));
        assert_eq!(second.last_transition_time, first.last_transition_time);
        let third = Finding::yes(Reason::Ready, "").condition("Ready", Some(2), std::slice::from_ref(&second), at(300));
        assert_eq!(third.last_transition_time.0, at(300));
    }

    #[test]
    fn an_event_for_each_new_problem_and_for_ready_and_for_nothing_else() {
        let condition = |kind: &str, finding: Finding| finding.condition(kind, Some(1), &[], at(1));
        let unknown = condition("EmbedderReady", Finding::no(Reason::EmbedderUnknown, "no Embedder x"));
        let not_ready = condition("Ready", Finding::no(Reason::EmbedderUnknown, "no Embedder x"));
        let starting = condition("StoreReady", Finding::no(Reason::Starting, "starts"));
        let first = transitions(&[], &[unknown.clone(), not_ready.clone(), starting.clone()]);
        assert_eq!(first.iter().map(|event| event.reason.as_str()).collect::<Vec<_>>(), ["EmbedderUnknown"]);
        assert_eq!(transitions(&[unknown.clone(), not_ready.clone()], &[unknown.clone(), not_ready.clone()]), []);
        let ready = condition("Ready", Finding::yes(Reason::NoQdrant, "ready"));
        let now = transitions(&[not_ready], std::slice::from_ref(&ready));
        assert!(now.len() == 1 && now[0].good, "{now:?}");
        let otherwise = condition("Ready", Finding::yes(Reason::Ready, "ready"));
        assert_eq!(transitions(&[ready], &[otherwise]), []);
    }

    #[test]
    fn reasons_are_distinct_words_that_kubernetes_takes_and_each_is_documented() {
        let page = include_str!("../../../docs/conditions.md");
        for reason in Reason::ALL {
            let name = reason.as_str();
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "{name}");
            assert_eq!(Reason::by_name(name), Some(reason), "two reasons are called {name}");
            assert!(page.contains(&format!("| `{name}` |")), "docs/conditions.md does not say what to do about {name}");
        }
    }
}
