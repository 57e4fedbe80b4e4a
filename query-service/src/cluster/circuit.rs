//! Whether a lane's store is worth asking.
//!
//! After [`FAILURES`] failures in a row nobody is let through for [`OPEN`]; then one request tries, and the others
//! wait for how it goes. A request that was given up says nothing and makes room for the next to try.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Failures in a row that open the circuit.
const FAILURES: u32 = 5;
/// How long it stays open.
pub(super) const OPEN: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    open_until: Option<Instant>,
    probing: bool,
}

/// One lane's circuit.
#[derive(Debug, Default)]
pub(super) struct Circuit(Mutex<State>);

/// Leave for one request.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    circuit: &'a Circuit,
    probe: bool,
    reported: bool,
}

impl Circuit {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leave to ask, or none while the circuit is open.
    pub(super) fn admit(&self, now: Instant) -> Option<Permit<'_>> {
        let mut state = self.state();
        let probe = match state.open_until {
            None => false,
            Some(until) if now < until || state.probing => return None,
            Some(_) => true,
        };
        state.probing |= probe;
        Some(Permit { circuit: self, probe, reported: false })
    }

    /// Whether it is open, for metrics.
    pub(super) fn is_open(&self) -> bool {
        self.state().open_until.is_some()
    }
}

impl Permit<'_> {
    /// The store answered, whatever it said.
    pub(super) fn answered(mut self) {
        self.reported = true;
        *self.circuit.state() = State::default();
    }

    /// The store did not answer.
    pub(super) fn failed(mut self, now: Instant) {
        self.reported = true;
        let mut state = self.circuit.state();
        state.failures = state.failures.saturating_add(1);
        if self.probe {
            state.probing = false;
        }
        if self.probe || state.failures >= FAILURES {
            state.open_until = Some(now + OPEN);
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.probe && !self.reported {
            self.circuit.state().probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_in_a_row_and_one_request_tries_again() {
        let circuit = Circuit::default();
        let start = Instant::now();
        for _ in 0..FAILURES - 1 {
            circuit.admit(start).unwrap().failed(start);
        }
        circuit.admit(start).unwrap().answered();
        for _ in 0..FAILURES {
            assert!(!circuit.is_open());
            circuit.admit(start).unwrap().failed(start);
        }
        assert!(circuit.is_open());
        assert!(circuit.admit(start + OPEN / 2).is_none());
        let later = start + OPEN;
        let probe = circuit.admit(later).unwrap();
        assert!(circuit.admit(later).is_none(), "one tries, the others do not");
        probe.failed(later);
        assert!(circuit.admit(later + OPEN / 2).is_none(), "one failed try keeps it open");
        let later = later + OPEN;
        drop(circuit.admit(later).unwrap());
        let probe = circuit.admit(later).expect("a try that was given up makes room");
        probe.answered();
        assert!(!circuit.is_open());
        // From here on it is as new.
        for _ in 0..FAILURES - 1 {
            circuit.admit(later).unwrap().failed(later);
        }
        assert!(circuit.admit(later).is_some());
    }

    #[test]
    fn requests_let_in_before_it_opened_do_not_close_a_probe() {
        let circuit = Circuit::default();
        let start = Instant::now();
        let early: Vec<_> = (0..8).map(|_| circuit.admit(start).unwrap()).collect();
        for permit in early {
            permit.failed(start);
        }
        let probe = circuit.admit(start + OPEN).unwrap();
        assert!(circuit.admit(start + OPEN).is_none());
        probe.answered();
        assert!(circuit.admit(start + OPEN).is_some());
    }
}
