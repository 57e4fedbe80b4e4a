//! Which objects to look at, and when.
//!
//! What must always hold: an object is worked on by one worker at a time; what changes meanwhile is not lost; a key
//! that waits twice waits once, for the earlier time.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// An object of the queue's kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// None for kinds of the cluster.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl Key {
    /// An object in a namespace.
    #[must_use]
    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), name: name.into() }
    }

    /// An object of the cluster.
    #[must_use]
    pub fn cluster(name: impl Into<String>) -> Self {
        Self { namespace: None, name: name.into() }
    }

    /// Its namespace, empty where there is none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// When each key that waits is due.
    due: HashMap<Key, Instant>,
    order: BTreeSet<(Instant, Key)>,
    /// Worked on now; and when it is due again, if asked for meanwhile.
    running: HashMap<Key, Option<Instant>>,
}

impl State {
    fn schedule(&mut self, key: Key, at: Instant) {
        if let Some(again) = self.running.get_mut(&key) {
            *again = Some(again.map_or(at, |earlier| earlier.min(at)));
            return;
        }
        if let Some(before) = self.due.get(&key).copied() {
            if before <= at {
                return;
            }
            self.order.remove(&(before, key.clone()));
        }
        self.due.insert(key.clone(), at);
        self.order.insert((at, key));
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Look at it now.
    pub fn add(&self, key: Key) {
        self.add_after(key, Duration::ZERO);
    }

    /// Look at it after a while, or earlier if somebody asks earlier.
    pub fn add_after(&self, key: Key, wait: Duration) {
        self.state().schedule(key, Instant::now() + wait);
        self.changed.notify_one();
    }

    /// The next key that is due. Call [`Queue::done`] for it in any case.
    pub async fn next(&self) -> Key {
        loop {
            let wake = {
                let mut state = self.state();
                let first = state.order.first().cloned();
                match first {
                    Some((at, key)) if at <= Instant::now() => {
                        state.order.pop_first();
                        state.due.remove(&key);
                        state.running.insert(key.clone(), None);
                        if !state.order.is_empty() {
                            // One notification wakes one worker: pass it on.
                            self.changed.notify_one();
                        }
                        return key;
                    }
                    Some((at, _)) => Some(at),
                    None => None,
                }
            };
            match wake {
                Some(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {}
                        () = self.changed.notified() => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// It is no longer worked on.
    pub fn done(&self, key: &Key) {
        let mut state = self.state();
        if let Some(Some(at)) = state.running.remove(key) {
            state.schedule(key.clone(), at);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// How many wait for now or for later.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state().due.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Nobody works on any of it any more. For the start of a new term.
    pub fn reset(&self) {
        *self.state() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::namespaced("team", name)
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_ask_wins_and_a_later_one_is_dropped() {
        let queue = Queue::default();
        queue.add_after(key("a"), Duration::from_secs(60));
        queue.add_after(key("a"), Duration::from_secs(90));
        assert_eq!(queue.len(), 1);
        queue.add(key("a"));
        let start = Instant::now();
        assert_eq!(queue.next().await, key("a"));
        assert_eq!(start.elapsed(), Duration::ZERO);
        queue.done(&key("a"));
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_while_it_is_worked_on_comes_again_and_not_beside_it() {
        let queue = Queue::default();
        queue.add(key("a"));
        queue.next().await;
        queue.add(key("a"));
        assert!(queue.is_empty(), "a second worker would get it");
        queue.done(&key("a"));
        assert_eq!(queue.next().await, key("a"));
        queue.done(&key("a"));
        let none = tokio::time::timeout(Duration::from_secs(3600), queue.next()).await;
        assert!(none.is_err(), "it came a third time");
    }

    #[tokio::test(start_paused = true)]
    async fn every_worker_gets_one() {
        let queue = std::sync::Arc::new(Queue::default());
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let queue = std::sync::Arc::clone(&queue);
                tokio::spawn(async move { queue.next().await })
            })
            .collect();
        tokio::task::yield_now().await;
        for name in ["a", "b", "c", "d"] {
            queue.add_after(key(name), Duration::from_secs(1));
        }
        let mut got = Vec::new();
        for worker in workers {
            got.push(worker.await.unwrap().name);
        }
        got.sort();
        assert_eq!(got, ["a", "b", "c", "d"]);
    }
}
