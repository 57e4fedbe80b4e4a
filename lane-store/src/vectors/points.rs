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

/// One page of a total order (score, then id), from an engine that orders equal scores as it likes:
/// `nearest(n)` gives at least the `n` nearest, or all there are.
///
/// Where the page's last score may go on beyond what was read, more is read: otherwise which of the equals
/// are seen would hang on the size of the page.
pub(super) fn page(
    limit: usize,
    offset: usize,
    mut nearest: impl FnMut(usize) -> Result<Vec<Found>, VectorError>,
) -> Result<Vec<Found>, VectorError> {
    let wanted = offset.saturating_add(limit);
    if limit == 0 {
        return Ok(Vec::new());
    }
    let mut asked = wanted.saturating_add(1);
    loop {
        let mut found = nearest(asked)?;
        found.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.id.cmp(&b.id)));
        let more = found.len() >= asked;
        let cut = found.get(wanted - 1).map(|found| found.score.to_bits());
        let last = found.last().map(|found| found.score.to_bits());
        if more && cut == last {
            asked = asked.saturating_mul(2);
            continue;
        }
        found.truncate(wanted);
        return Ok(found.split_off(offset.min(found.len())));
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
