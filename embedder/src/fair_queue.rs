//! A bounded queue for each lane, served in turn.
//!
//! What always holds: a lane that has waiting work is served once before another is served twice;
//! no lane's part grows beyond the limit; a lane without waiting work takes no memory.

use std::collections::{HashMap, VecDeque};

use lanekeeper_core::LaneUid;

#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    lanes: HashMap<LaneUid, VecDeque<T>>,
    /// Every lane in `lanes` once; the front is served next.
    turns: VecDeque<LaneUid>,
    limit: usize,
}

/// The lane's part of the queue has no room.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl<T> FairQueue<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { lanes: HashMap::new(), turns: VecDeque::new(), limit }
    }

    /// All of `items` or none. `waits` says of queued work whether somebody still waits for it;
    /// what nobody waits for makes room.
    pub(crate) fn push(&mut self, lane: LaneUid, items: Vec<T>, waits: impl Fn(&T) -> bool) -> Result<(), Full> {
        if items.is_empty() {
            return Ok(());
        }
        if let Some(queue) = self.lanes.get_mut(&lane) {
            if queue.len() + items.len() > self.limit {
                queue.retain(waits);
            }
            if queue.len() + items.len() > self.limit {
                return Err(Full);
            }
            queue.extend(items);
        } else if items.len() > self.limit {
            return Err(Full);
        } else {
            self.lanes.insert(lane, items.into());
            self.turns.push_back(lane);
        }
        Ok(())
    }

    /// The next in turn.
    pub(crate) fn pop(&mut self) -> Option<T> {
        // A lane may have been emptied by `push` making room.
        while let Some(lane) = self.turns.pop_front() {
            let Some(queue) = self.lanes.get_mut(&lane) else { continue };
            let item = queue.pop_front();
            if queue.is_empty() {
                self.lanes.remove(&lane);
            } else {
                self.turns.push_back(lane);
            }
            if item.is_some() {
                return item;
            }
        }
        None
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Drops all that waits.
    pub(crate) fn clear(&mut self) {
        self.lanes.clear();
        self.turns.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lane(number: u8) -> LaneUid {
        format!("00000000-0000-4000-8000-0000000000{number:02x}").parse().unwrap()
    }

    #[test]
    fn lanes_are_served_in_turn() {
        let mut queue = FairQueue::new(10);
        queue.push(lane(1), vec!["a1", "a2", "a3"], |_| true).unwrap();
        queue.push(lane(2), vec!["b1"], |_| true).unwrap();
        queue.push(lane(3), vec!["c1", "c2"], |_| true).unwrap();
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, ["a1", "b1", "c1", "a2", "c2", "a3"]);
        assert!(queue.is_empty() && queue.turns.is_empty());
    }

    #[test]
    fn a_full_lane_refuses_the_whole_request_and_no_other_lane() {
        let mut queue = FairQueue::new(3);
        queue.push(lane(1), vec![1, 2], |_| true).unwrap();
        assert_eq!(queue.push(lane(1), vec![3, 4], |_| true), Err(Full));
        queue.push(lane(1), vec![3], |_| true).unwrap();
        queue.push(lane(2), vec![5, 6, 7], |_| true).unwrap();
        assert_eq!(queue.push(lane(3), vec![0; 4], |_| true), Err(Full));
        // Nobody waits for odd numbers any more: they make room.
        queue.push(lane(1), vec![8, 9], |item| item % 2 == 0).unwrap();
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [2, 5, 8, 6, 9, 7]);
    }

    proptest! {
        /// Against the definition: at every pop the served lane has had no more turns since it
        /// began to wait than any other waiting lane, plus one.
        #[test]
        fn no_lane_is_served_twice_before_another_once(pushes in prop::collection::vec((0_u8..5, 1_usize..6), 1..30)) {
            let mut queue = FairQueue::new(usize::MAX);
            let mut left: HashMap<u8, usize> = HashMap::new();
            for (number, count) in pushes {
                queue.push(lane(number), vec![number; count], |_| true).unwrap();
                *left.entry(number).or_default() += count;
            }
            let mut served: HashMap<u8, usize> = HashMap::new();
            while let Some(number) = queue.pop() {
                *left.get_mut(&number).unwrap() -= 1;
                *served.entry(number).or_default() += 1;
                for (other, waiting) in &left {
                    if *waiting > 0 {
                        prop_assert!(served[&number] <= served.get(other).copied().unwrap_or(0) + 1);
                    }
                }
            }
            prop_assert!(left.values().all(|waiting| *waiting == 0));
            prop_assert!(queue.is_empty());
        }
    }
}
