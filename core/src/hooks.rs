//! Places where a test can take one guard out or make one step fail.
//!
//! Without the feature `test-hooks` every function here is a constant: the product has no switch.
//! With it, `LANEKEEPER_GUARD_OUT` names a guard that then lets everything pass, and
//! `LANEKEEPER_FAULT` is `point=action` pairs parted by commas; see [`fault`].

/// Whether the named guard stands. Always true without `test-hooks`.
#[cfg(not(feature = "test-hooks"))]
#[inline(always)]
#[must_use]
pub const fn guard(_name: &'static str) -> bool {
    true
}

/// What [`fault`] asks of the place that called it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Go on.
    None,
    /// Fail as if the operation had.
    Error,
    /// Take this many milliseconds longer.
    SlowMs(u64),
}

/// What a test wants to happen at `point`. Always [`Fault::None`] without `test-hooks`.
#[cfg(not(feature = "test-hooks"))]
#[inline(always)]
#[must_use]
pub const fn fault(_point: &'static str) -> Fault {
    Fault::None
}

#[cfg(feature = "test-hooks")]
mod on {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{LazyLock, Mutex};

    use super::Fault;

    static OUT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("LANEKEEPER_GUARD_OUT").ok());
    static FAULTS: LazyLock<Mutex<HashMap<String, (String, AtomicU64)>>> = LazyLock::new(|| {
        let text = std::env::var("LANEKEEPER_FAULT").unwrap_or_default();
        Mutex::new(
            text.split(',')
                .filter_map(|pair| pair.split_once('='))
                .map(|(point, action)| (point.to_owned(), (action.to_owned(), AtomicU64::new(0))))
                .collect(),
        )
    });

    /// Whether the named guard stands.
    #[must_use]
    pub fn guard(name: &'static str) -> bool {
        OUT.as_deref() != Some(name)
    }

    /// Sets or clears (`None`) a fault from within a test process.
    pub fn set_fault(point: &str, action: Option<&str>) {
        let mut faults = FAULTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match action {
            Some(action) => {
                faults.insert(point.to_owned(), (action.to_owned(), AtomicU64::new(0)));
            }
            None => {
                faults.remove(point);
            }
        }
    }

    /// Actions: `abort`, `abort@N` (the Nth time), `error`, `error@N`, `slow:MS`.
    #[must_use]
    pub fn fault(point: &'static str) -> Fault {
        let faults = FAULTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some((action, calls)) = faults.get(point) else { return Fault::None };
        let call = calls.fetch_add(1, Ordering::SeqCst) + 1;
        let (what, at) = match action.split_once('@') {
            Some((what, at)) => (what, at.parse().unwrap_or(1)),
            None => (action.as_str(), 0),
        };
        if at != 0 && call != at {
            return Fault::None;
        }
        if let Some(ms) = what.strip_prefix("slow:") {
            return Fault::SlowMs(ms.parse().unwrap_or(0));
        }
        match what {
            // As kill -9: no destructor, no flush.
            "abort" => std::process::abort(),
            "error" => Fault::Error,
            _ => Fault::None,
        }
    }
}

#[cfg(feature = "test-hooks")]
pub use on::{fault, guard, set_fault};
