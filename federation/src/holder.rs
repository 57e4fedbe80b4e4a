//! Becoming the record's holder.
//!
//! # Flow
//! 1. A new process writes its id into the record's status, once.
//! 2. Where holders are pods ([`Registry::pod`]) it then writes nothing for [`TAKE_OVER_WAIT`], unless there was no
//!    holder before or that one had let go: the one before may have confirmed its fence a moment ago, and a
//!    confirmation carries writes for that long.
//! 3. At its end it marks itself as released, but only if its own wait was over: else the one before it would be
//!    forgotten by whoever comes next.
//!
//! # Guarantees
//! - A holder that is refused never takes the record back: nobody calls [`take_over`] twice after a success.
//! - A container that is started again in the same pod waits for what is left, not anew.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lanekeeper_core::limits::FENCE_FRESH_MS;

use crate::record::{Holder, Record};
use crate::registry::{Registry, RegistryError};

/// How long a new holder writes nothing: as long as a confirmation of the one before may carry a write.
pub const TAKE_OVER_WAIT: Duration = Duration::from_millis(FENCE_FRESH_MS.unsigned_abs());

/// Writes `id` into the record as its holder. The record as it then is, and how long nothing may be written.
pub async fn take_over(
    registry: &dyn Registry,
    collection: &str,
    id: &str,
    now_ms: i64,
) -> Result<(Record, Duration), RegistryError> {
    let wait = Arc::new(Mutex::new(TAKE_OVER_WAIT));
    let (found, id) = (Arc::clone(&wait), id.to_owned());
    let record = registry
        .change_status(
            collection,
            Box::new(move |status| {
                let (holder, wait) = successor(status.holder.as_ref(), &id, now_ms);
                *found.lock().unwrap_or_else(PoisonError::into_inner) = wait;
                status.holder = Some(holder);
            }),
        )
        .await?;
    let wait = *wait.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((record, if registry.pod().is_some() { wait } else { Duration::ZERO }))
}

/// The holder after `before`, and its wait.
fn successor(before: Option<&Holder>, id: &str, now_ms: i64) -> (Holder, Duration) {
    let holder = Holder { id: id.to_owned(), since_ms: now_ms, released: false };
    match before {
        None => (holder, Duration::ZERO),
        Some(before) if before.released => (holder, Duration::ZERO),
        // This pod's container before: the wait is for the pod before that, and began then. A clock that was set
        // in between makes it at most whole again.
        Some(before) if before.id == id => {
            let passed = now_ms.saturating_sub(before.since_ms);
            let left = FENCE_FRESH_MS.saturating_sub(passed).clamp(0, FENCE_FRESH_MS);
            let left = if passed < 0 { FENCE_FRESH_MS } else { left };
            (before.clone(), Duration::from_millis(left.unsigned_abs()))
        }
        Some(_) => (holder, TAKE_OVER_WAIT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(id: &str, since_ms: i64, released: bool) -> Holder {
        Holder { id: id.into(), since_ms, released }
    }

    #[test]
    fn who_was_there_before_decides_the_wait() {
        let now = 1_000_000;
        let seconds = Duration::from_secs;
        let after = |before: Option<Holder>| successor(before.as_ref(), "me", now);
        assert_eq!(after(None), (holder("me", now, false), seconds(0)));
        assert_eq!(after(Some(holder("other", 0, true))), (holder("me", now, false), seconds(0)));
        // Since when the one before has been there says nothing about when it last confirmed.
        assert_eq!(after(Some(holder("other", 0, false))), (holder("me", now, false), seconds(15)));
        assert_eq!(after(Some(holder("me", now - 5_000, false))), (holder("me", now - 5_000, false), seconds(10)));
        assert_eq!(after(Some(holder("me", 0, false))), (holder("me", 0, false), seconds(0)));
        assert_eq!(after(Some(holder("me", now + 9_000, false))).1, seconds(15));
        assert_eq!(after(Some(holder("me", 0, true))), (holder("me", now, false), seconds(0)));
    }
}
