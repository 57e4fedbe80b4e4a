//! What the server is made to do wrong, and a list of what it was asked.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tonic::{Code, Status};

/// An answer in order of the protocol with nonsense in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Garble {
    /// Scores and vectors with a number that is not finite.
    NotFinite,
    /// Vectors that lack their last number.
    Short,
    /// Results that are left out.
    NoResult,
    /// Pages that lead to themselves.
    Endless,
    /// Writes that are only accepted.
    NotApplied,
}

/// One request of the points service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Name of the method, as the protocol has it in small letters: `upsert`, `query`.
    pub method: &'static str,
    /// The collection as the caller named it.
    pub collection: String,
    /// `wait` of a write.
    pub wait: Option<bool>,
}

#[derive(Debug, Default)]
struct State {
    delay: Duration,
    fail: Option<Code>,
    garble: Option<Garble>,
    seen: Vec<Seen>,
}

/// See the module. Everything holds until it is taken back.
#[derive(Debug, Default)]
pub struct Faults(Mutex<State>);

impl Faults {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every request of the points service waits this long.
    pub fn slow(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// Every request of the points service fails with this code.
    pub fn fail(&self, code: Option<Code>) {
        self.state().fail = code;
    }

    /// Answers of the points service are nonsense.
    pub fn garble(&self, how: Option<Garble>) {
        self.state().garble = how;
    }

    /// What the points service was asked since the last call of this.
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state().seen)
    }

    pub(super) fn is(&self, how: Garble) -> bool {
        self.state().garble == Some(how)
    }

    pub(super) async fn meet(&self, method: &'static str, collection: &str, wait: Option<bool>) -> Result<(), Status> {
        let (delay, fail) = {
            let mut state = self.state();
            state.seen.push(Seen { method, collection: collection.to_owned(), wait });
            (state.delay, state.fail)
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        fail.map_or(Ok(()), |code| Err(Status::new(code, "a test makes it fail")))
    }
}
