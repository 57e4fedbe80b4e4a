//! Exact BM25. FTS5's own has fixed constants and clamps idf; it only finds candidates.

/// Saturation of repeated terms; retrieval.md §5.
const K1: f64 = 0.9;
/// How much a row's length counts.
const B: f64 = 0.4;

/// How telling a term is: ln(1 + (N − df + ½)/(df + ½)), always over 0.
///
/// `df` and `rows` may come from two reads with a write between them, so `df` is cut to `rows`.
pub(crate) fn idf(df: u64, rows: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a lane never has 2^52 rows")]
    let (df, rows) = (df.min(rows) as f64, rows as f64);
    ((rows - df + 0.5) / (df + 0.5)).ln_1p()
}

/// A term of the question and how often one row holds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TermInRow {
    /// See [`idf`].
    pub(crate) idf: f64,
    /// Occurrences in this row; 0: not held.
    pub(crate) tf: u32,
}

/// The score of one row; 0 where no term matches. `length` and `average_length` in tokens.
pub(crate) fn score(terms: impl IntoIterator<Item = TermInRow>, length: u32, average_length: f64) -> f64 {
    // An average under 1 is that of no rows at all.
    let relative = f64::from(length) / average_length.max(1.0);
    let norm = K1 * (1.0 - B + B * relative);
    terms
        .into_iter()
        .filter(|term| term.tf > 0)
        .map(|term| {
            let tf = f64::from(term.tf);
            term.idf * tf * (K1 + 1.0) / (tf + norm)
        })
        .sum()
}

/// How often a row holds each of `terms` (distinct), and the row's length. `row` is as
/// [`super::analyze::document_tokens`] made it.
pub(crate) fn term_frequencies<'t>(row: impl IntoIterator<Item = &'t str>, terms: &[&str]) -> (Vec<u32>, u32) {
    let places: std::collections::HashMap<&str, usize> =
        terms.iter().enumerate().map(|(place, term)| (*term, place)).collect();
    let mut counts = vec![0; terms.len()];
    let mut length = 0;
    for token in row {
        length += 1;
        if let Some(place) = places.get(token) {
            counts[*place] += 1;
        }
    }
    (counts, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn idf_by_hand() {
        assert!(close(idf(1, 10), (1.0_f64 + 9.5 / 1.5).ln()));
        assert!(close(idf(0, 0), 2.0_f64.ln()));
        assert!(idf(10, 10) > 0.0 && idf(10, 10) < idf(9, 10));
        assert_eq!(idf(11, 10).to_bits(), idf(10, 10).to_bits(), "a df read after a write is cut");
    }

    #[test]
    fn score_by_hand() {
        let terms = [TermInRow { idf: 2.0, tf: 3 }, TermInRow { idf: 5.0, tf: 0 }];
        let expected = 2.0 * 3.0 * 1.9 / (3.0 + 0.9 * (0.6 + 0.4 * 1.5));
        assert!(close(score(terms, 15, 10.0), expected));
        assert!(close(score([TermInRow { idf: 5.0, tf: 0 }], 15, 10.0), 0.0));
        assert!(score(terms, 15, 0.0).is_finite());
    }

    #[test]
    fn counts_of_a_row() {
        assert_eq!(term_frequencies("a b a c".split(' '), &["a", "x", "c"]), (vec![2, 0, 1], 4));
        assert_eq!(term_frequencies([], &["a"]), (vec![0], 0));
    }
}
