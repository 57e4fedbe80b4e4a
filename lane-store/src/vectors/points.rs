//! What every engine checks before it is asked to write anything, and the order in which every engine
//! answers.

use std::collections::HashMap;

use uuid::Uuid;

use super::{Found, Point, VectorError};

/// Refuses a vector that is not one of the collection's.
pub(super) fn check(vector: &[f32], dimension: usize) -> Result<(), VectorError> {
    if vector.len() != dimension {
        return Err(VectorError::Dimension { expected: dimension, actual: vector.len() });
    }
    if vector.iter().all(|value| value.is_finite()) { Ok(()) } else { Err(VectorError::NotFinite) }
}

/// Checks all points, so that a bad one leaves nothing half written, and keeps the last of equal ids in the
/// place of the first.
pub(super) fn checked(points: Vec<Point>, dimension: usize) -> Result<Vec<Point>, VectorError> {
    let mut places: HashMap<Uuid, usize> = HashMap::with_capacity(points.len());
    let mut kept: Vec<Point> = Vec::with_capacity(points.len());
    for point in points {
        check(&point.vector, dimension)?;
        match places.get(&point.id) {
            Some(place) => kept[*place] = point,
            None => {
                places.insert(point.id, kept.len());
                kept.push(point);
            }
        }
    }
    Ok(kept)
}

/// One page of a total order (score, then id), from an engine that orders equal scores as it likes.
///
/// Where the page's last score may go on beyond what was read, more is read: otherwise which of the equals
/// are seen would hang on the size of the page.
#[derive(Debug)]
pub(super) struct Page {
    wanted: usize,
    offset: usize,
    asked: usize,
}

impl Page {
    /// `None` where nothing is asked for.
    pub(super) fn new(limit: usize, offset: usize) -> Option<Self> {
        let wanted = offset.saturating_add(limit);
        (limit > 0).then_some(Self { wanted, offset, asked: wanted.saturating_add(1) })
    }

    /// How many of the nearest the engine must be asked for.
    pub(super) const fn asked(&self) -> usize {
        self.asked
    }

    /// Takes the engine's answer: at least the nearest that were asked for, or all there are. `answered` is
    /// how many came, points that nobody can use included. Gives the page; `None` where more must be asked.
    pub(super) fn take(&mut self, mut found: Vec<Found>, answered: usize) -> Option<Vec<Found>> {
        found.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.id.cmp(&b.id)));
        let more = answered >= self.asked;
        let cut = found.get(self.wanted - 1).map(|found| found.score.to_bits());
        let last = found.last().map(|found| found.score.to_bits());
        if more && cut.is_none_or(|cut| Some(cut) == last) {
            self.asked = self.asked.saturating_mul(2);
            return None;
        }
        found.truncate(self.wanted);
        Some(found.split_off(self.offset.min(found.len())))
    }
}

/// A [`Page`] from an engine that answers at once.
#[cfg(any(test, feature = "edge"))]
pub(super) fn page(
    limit: usize,
    offset: usize,
    mut nearest: impl FnMut(usize) -> Result<Vec<Found>, VectorError>,
) -> Result<Vec<Found>, VectorError> {
    let Some(mut page) = Page::new(limit, offset) else { return Ok(Vec::new()) };
    loop {
        let found = nearest(page.asked())?;
        let answered = found.len();
        if let Some(page) = page.take(found, answered) {
            return Ok(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::EventId;

    use super::*;

    fn found(id: u128, score: f32) -> Found {
        Found { id: Uuid::from_u128(id), event_id: EventId::from_uuid(Uuid::from_u128(id)), score }
    }

    #[test]
    fn pages_of_equal_scores_meet_without_gap_or_repeat() {
        // An engine that gives equals in another order each time it is asked for another number.
        let nearest = |asked: usize| {
            let mut all: Vec<Found> = (0..40).map(|id| found(id, if id < 30 { 0.5 } else { 0.9 })).collect();
            all.rotate_left(asked % 30);
            all.sort_by(|a, b| b.score.total_cmp(&a.score));
            all.truncate(asked);
            Ok(all)
        };
        let whole = page(40, 0, nearest).unwrap();
        let mut pages = Vec::new();
        for offset in (0..42).step_by(7) {
            pages.extend(page(7, offset, nearest).unwrap());
        }
        assert_eq!(pages, whole);
        assert!(page(7, 100, nearest).unwrap().is_empty() && page(0, 0, nearest).unwrap().is_empty());
        assert!(page(usize::MAX, 39, nearest).unwrap().len() == 1);
    }
}
