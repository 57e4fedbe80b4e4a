//! How long to wait before an object is tried again: per object, growing, with jitter, by class of error. kube has
//! none per object.
//!
//! What must always hold: a success forgets; another class starts anew; no wait is longer than its class allows.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::queue::Key;

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Something that is about to end: a pod, a write of somebody else.
    Soon,
    /// The network, the API server, Qdrant.
    Transient,
    /// A change of a quota, a node or an image, of which no watch of ours tells.
    Outside,
    /// Refused: permissions, a policy, a rule.
    Denied,
    /// Somebody has to edit an object that is watched: the wait only guards against a lost watch.
    Edit,
}

impl Class {
    /// First and longest wait.
    const fn bounds(self) -> (Duration, Duration) {
        match self {
            Self::Soon => (Duration::from_millis(250), Duration::from_secs(5)),
            Self::Transient => (Duration::from_secs(1), Duration::from_secs(60)),
            Self::Outside => (Duration::from_secs(3), Duration::from_secs(30)),
            Self::Denied => (Duration::from_secs(5), Duration::from_secs(300)),
            Self::Edit => (Duration::from_secs(10), Duration::from_secs(600)),
        }
    }

    /// The wait after `failures` failures before this one. `chance` is from 0 to 1.
    #[must_use]
    pub fn wait(self, failures: u32, chance: f64) -> Duration {
        let (first, longest) = self.bounds();
        let plain = first.saturating_mul(1_u32.checked_shl(failures.min(20)).unwrap_or(u32::MAX)).min(longest);
        // Downwards only, so that the bound is a bound: 75 % to 100 %.
        plain.mul_f64(0.75 + 0.25 * chance.clamp(0.0, 1.0))
    }
}

/// The failures in a row of each object.
#[derive(Debug, Default)]
pub struct Backoffs(Mutex<HashMap<Key, (Class, u32)>>);

impl Backoffs {
    /// The wait before the next try of `key`, counting this failure.
    pub fn failed(&self, key: &Key, class: Class, chance: f64) -> Duration {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = all.entry(key.clone()).or_insert((class, 0));
        if entry.0 != class {
            *entry = (class, 0);
        }
        let wait = class.wait(entry.1, chance);
        entry.1 = entry.1.saturating_add(1);
        wait
    }

    /// A success.
    pub fn succeeded(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_bound_and_a_success_forgets() {
        let (backoffs, key) = (Backoffs::default(), Key::namespaced("team", "bob"));
        let waits: Vec<f64> = (0..8).map(|_| backoffs.failed(&key, Class::Edit, 1.0).as_secs_f64()).collect();
        assert_eq!(waits, [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0]);
        backoffs.succeeded(&key);
        assert_eq!(backoffs.failed(&key, Class::Edit, 1.0), Duration::from_secs(10));
    }

    #[test]
    fn another_class_starts_anew_and_another_object_has_its_own() {
        let (backoffs, one, other) = (Backoffs::default(), Key::cluster("one"), Key::cluster("other"));
        for _ in 0..5 {
            backoffs.failed(&one, Class::Transient, 1.0);
        }
        assert_eq!(backoffs.failed(&one, Class::Soon, 1.0), Duration::from_millis(250));
        assert_eq!(backoffs.failed(&other, Class::Transient, 1.0), Duration::from_secs(1));
    }

    #[test]
    fn jitter_shortens_and_never_lengthens() {
        for class in [Class::Soon, Class::Transient, Class::Outside, Class::Denied, Class::Edit] {
            for failures in [0, 3, 40, u32::MAX] {
                let (least, most) = (class.wait(failures, 0.0), class.wait(failures, 1.0));
                assert!(least < most && least >= most.mul_f64(0.74) && most <= class.bounds().1, "{class:?}");
            }
        }
    }

    #[test]
    fn fifty_lanes_that_name_an_unknown_embedder_are_tried_less_than_once_a_minute_in_the_end() {
        let (backoffs, key) = (Backoffs::default(), Key::namespaced("team", "bob"));
        let (mut at, mut tries) = (Duration::ZERO, 0);
        while at < Duration::from_secs(600) {
            at += backoffs.failed(&key, Class::Edit, 0.5);
            tries += 1;
        }
        assert!((5..=8).contains(&tries), "{tries} tries in ten minutes");
    }
}
