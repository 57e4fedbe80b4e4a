//! From token states to one vector.
//!
//! What always holds: a vector has length 1, or is all zero if the states were.

use crate::convert::HIDDEN;

/// The mean of the states, scaled to length 1.
pub(crate) fn mean<'a>(states: impl Iterator<Item = &'a [f32]>) -> Vec<f32> {
    let mut sum = vec![0.0_f32; HIDDEN];
    for state in states {
        for (total, value) in sum.iter_mut().zip(state) {
            *total += value;
        }
    }
    // The scale makes dividing by the count needless.
    normalise(&mut sum);
    sum
}

/// Scales a vector to length 1. A zero vector stays as it is, and is reported as `false`.
pub(crate) fn normalise(vector: &mut [f32]) -> bool {
    let norm = dot(vector, vector).sqrt();
    if norm <= 0.0 {
        return false;
    }
    // In f64: the square of a large but finite f32 is not a finite f32.
    for value in vector.iter_mut() {
        *value = (f64::from(*value) / norm) as f32;
    }
    true
}

/// The cosine of two vectors of length 1.
pub(crate) fn dot(left: &[f32], right: &[f32]) -> f64 {
    left.iter().zip(right).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_one_for_tiny_and_huge_numbers() {
        for size in [1e-30_f32, 1.0, 1e30] {
            let mut vector = vec![3.0 * size, 4.0 * size];
            assert!(normalise(&mut vector));
            assert!((vector[0] - 0.6).abs() < 1e-6 && (vector[1] - 0.8).abs() < 1e-6, "{vector:?}");
        }
        let mut zero = vec![0.0; 3];
        assert!(!normalise(&mut zero));
        assert_eq!(zero, [0.0; 3]);
    }
}
