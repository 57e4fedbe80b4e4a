//! How many vectors a second: an average that recent work outweighs.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What a new measurement weighs.
const SHARE: f32 = 0.2;

#[derive(Debug, Default)]
pub(super) struct Rate(Mutex<Option<f32>>);

impl Rate {
    /// So many vectors took so long.
    pub(super) fn add(&self, count: usize, time: Duration) {
        if count == 0 || time.is_zero() {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "at most 64")]
        let now = count as f32 / time.as_secs_f32();
        let mut rate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *rate = Some(rate.map_or(now, |before| before + SHARE * (now - before)));
    }

    pub(super) fn per_second(&self) -> Option<f32> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_work_outweighs() {
        let rate = Rate::default();
        assert_eq!(rate.per_second(), None);
        rate.add(10, Duration::from_secs(1));
        assert_eq!(rate.per_second(), Some(10.0));
        rate.add(0, Duration::from_secs(1));
        rate.add(60, Duration::from_secs(1));
        assert_eq!(rate.per_second(), Some(20.0));
    }
}
