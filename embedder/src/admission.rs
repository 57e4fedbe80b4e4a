//! How much of a lane may wait at an external server.
//!
//! What always holds: a lane never has more than the limit admitted; what was admitted is given
//! back when its guard is dropped, also when the caller goes away.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lanekeeper_core::LaneUid;
use lanekeeper_core::encoder::EncodeError;

#[derive(Debug)]
pub(crate) struct Admission {
    limit: usize,
    lanes: Mutex<HashMap<LaneUid, usize>>,
}

#[derive(Debug)]
pub(crate) struct Admitted<'a> {
    admission: &'a Admission,
    lane: LaneUid,
    count: usize,
}

impl Admission {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, lanes: Mutex::default() }
    }

    pub(crate) fn admit(&self, lane: LaneUid, count: usize) -> Result<Admitted<'_>, EncodeError> {
        let mut lanes = self.lanes();
        let waiting = lanes.get(&lane).copied().unwrap_or(0);
        if waiting + count > self.limit {
            return Err(EncodeError::Overloaded);
        }
        lanes.insert(lane, waiting + count);
        Ok(Admitted { admission: self, lane, count })
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<LaneUid, usize>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let mut lanes = self.admission.lanes();
        let left = lanes.get(&self.lane).copied().unwrap_or(0).saturating_sub(self.count);
        if left == 0 {
            lanes.remove(&self.lane);
        } else {
            lanes.insert(self.lane, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(number: u8) -> LaneUid {
        format!("00000000-0000-4000-8000-0000000000{number:02x}").parse().unwrap()
    }

    #[test]
    fn a_lane_has_its_own_room_and_gets_it_back() {
        let admission = Admission::new(3);
        let two = admission.admit(lane(1), 2).unwrap();
        assert_eq!(admission.admit(lane(1), 2).unwrap_err(), EncodeError::Overloaded);
        let one = admission.admit(lane(1), 1).unwrap();
        let other = admission.admit(lane(2), 3).unwrap();
        drop(two);
        let again = admission.admit(lane(1), 2).unwrap();
        drop((one, other, again));
        assert!(admission.lanes().is_empty());
    }
}
