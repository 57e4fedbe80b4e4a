//! How a question's encoding becomes one vector.
//!
//! From token states the lane pools with its own idf (retrieval.md §5): a token weighs what its word
//! weighs, stop words, punctuation and known speakers' names weigh nothing. What a server has pooled
//! passes through. Stored vectors are never pooled here.

use lanekeeper_core::encoder::{QueryEncoding, TokenState};
use lanekeeper_core::lane::Language;

use super::analyze::{Word, words_with_offsets};
use super::speakers::KnownSpeakers;

/// Added to every weight, so that a question of stop words alone is still their mean.
const LEAST_WEIGHT: f64 = 1e-4;

/// Why an encoding gives no vector. The vector arm is not searched and coverage says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PoolError {
    /// No token, or the weighted sum is zero.
    #[error("the question's encoding is empty")]
    Empty,
    /// A state or vector is not as long as the model's dimension.
    #[error("the question's encoding has {actual} dimensions, not {expected}")]
    Dimension {
        /// The model's.
        expected: usize,
        /// Found.
        actual: usize,
    },
    /// A number that is infinite or none.
    #[error("the question's encoding holds a number that is not finite")]
    NotFinite,
}

/// What the weights come from.
pub(crate) struct IdfPooling<'a, F> {
    /// Stop words and stemmer.
    pub(crate) language: Language,
    /// Names that weigh nothing.
    pub(crate) speakers: &'a KnownSpeakers,
    /// Bytes at the start of the encoded text that are the model's query prefix, not the question.
    pub(crate) prefix_bytes: usize,
    /// Idf of a stored token in the lane that is searched.
    pub(crate) idf: F,
}

/// The tokens whose idf [`idf_pooled`] will ask for, so that the caller can read all of them at once.
pub(crate) fn idf_tokens(encoding: &QueryEncoding, language: Language) -> Vec<String> {
    match encoding {
        QueryEncoding::Pooled(_) => Vec::new(),
        QueryEncoding::States { text, tokens: _ } => {
            let words = words_with_offsets(text, language);
            let mut tokens: Vec<String> =
                words.into_iter().filter(|word| !word.is_stop).flat_map(|word| word.tokens).collect();
            tokens.sort_unstable();
            tokens.dedup();
            tokens
        }
    }
}

/// The question's vector, pooled by idf where there are token states; length 1.
pub(crate) fn idf_pooled<F: Fn(&str) -> f64>(
    encoding: &QueryEncoding,
    dimension: usize,
    pooling: &IdfPooling<'_, F>,
) -> Result<Vec<f32>, PoolError> {
    match encoding {
        QueryEncoding::Pooled(vector) => pass_through(vector, dimension),
        QueryEncoding::States { text, tokens } => {
            let words = words_with_offsets(text, pooling.language);
            let weights = word_weights(&words, pooling);
            weighted(tokens, dimension, |token| {
                word_of(&words, token).map_or(0.0, |index| weights[index]) + LEAST_WEIGHT
            })
        }
    }
}

/// The question's vector as the plain mean of its tokens; length 1. Kept for measuring what idf adds.
pub(crate) fn mean_pooled(encoding: &QueryEncoding, dimension: usize) -> Result<Vec<f32>, PoolError> {
    match encoding {
        QueryEncoding::Pooled(vector) => pass_through(vector, dimension),
        QueryEncoding::States { text: _, tokens } => weighted(tokens, dimension, |_| 1.0),
    }
}

fn word_weights<F: Fn(&str) -> f64>(words: &[Word], pooling: &IdfPooling<'_, F>) -> Vec<f64> {
    let named = pooling.speakers.covering(words);
    words
        .iter()
        .zip(named)
        .map(|(word, named)| {
            if word.is_punct || word.is_stop || named || word.end <= pooling.prefix_bytes {
                return 0.0;
            }
            // A character of a script without blanks stands in two pairs: the more telling one counts.
            word.tokens.iter().map(|token| (pooling.idf)(token)).fold(0.0, f64::max)
        })
        .collect()
}

/// The word that covers most of a model's token. `words` are in order and do not overlap.
fn word_of(words: &[Word], token: &TokenState) -> Option<usize> {
    let (start, end) = (token.start as usize, token.end as usize);
    let first = words.partition_point(|word| word.end <= start);
    words[first..]
        .iter()
        .enumerate()
        .take_while(|(_, word)| word.start < end)
        // `max_by_key` keeps the last of equals; the earlier word is as good and this is only about order.
        .max_by_key(|(_, word)| word.end.min(end) - word.start.max(start))
        .map(|(index, _)| first + index)
}

fn weighted(
    tokens: &[TokenState],
    dimension: usize,
    weight: impl Fn(&TokenState) -> f64,
) -> Result<Vec<f32>, PoolError> {
    let mut sum = vec![0.0_f64; dimension];
    for token in tokens {
        if token.state.len() != dimension {
            return Err(PoolError::Dimension { expected: dimension, actual: token.state.len() });
        }
        let weight = weight(token);
        for (total, value) in sum.iter_mut().zip(&token.state) {
            *total += weight * f64::from(*value);
        }
    }
    normalised(&sum)
}

fn pass_through(vector: &[f32], dimension: usize) -> Result<Vec<f32>, PoolError> {
    if vector.len() != dimension {
        return Err(PoolError::Dimension { expected: dimension, actual: vector.len() });
    }
    normalised(&vector.iter().map(|value| f64::from(*value)).collect::<Vec<_>>())
}

fn normalised(sum: &[f64]) -> Result<Vec<f32>, PoolError> {
    let length = sum.iter().map(|value| value * value).sum::<f64>().sqrt();
    if !length.is_finite() {
        return Err(PoolError::NotFinite);
    }
    if length == 0.0 {
        return Err(PoolError::Empty);
    }
    #[expect(clippy::cast_possible_truncation, reason = "vectors are stored and compared as f32")]
    let vector = sum.iter().map(|value| (value / length) as f32).collect();
    Ok(vector)
}

/// Cosine of two vectors of one length; 0 where either has no direction.
pub(crate) fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let (mut dot, mut aa, mut bb) = (0.0_f64, 0.0_f64, 0.0_f64);
    for (x, y) in a.iter().zip(b) {
        let (x, y) = (f64::from(*x), f64::from(*y));
        dot += x * y;
        aa += x * x;
        bb += y * y;
    }
    if aa == 0.0 || bb == 0.0 { 0.0 } else { dot / (aa.sqrt() * bb.sqrt()) }
}

#[cfg(test)]
mod tests {
    use super::super::encode::encode;
    use super::*;

    /// One basis vector a token, so that the pooled vector shows the weights.
    fn states(text: &str, tokens: &[&str]) -> QueryEncoding {
        let mut at = 0;
        let count = tokens.len();
        let tokens = tokens
            .iter()
            .enumerate()
            .map(|(index, token)| {
                let start = at + text[at..].find(token).unwrap();
                at = start + token.len();
                let mut state = vec![0.0; count];
                state[index] = 1.0;
                TokenState { start: u32::try_from(start).unwrap(), end: u32::try_from(at).unwrap(), state }
            })
            .collect();
        QueryEncoding::States { text: text.into(), tokens }
    }

    fn pool(text: &str, tokens: &[&str], speakers: &[&str], idf: &[(&str, f64)]) -> Vec<f32> {
        let speakers = KnownSpeakers::new(speakers);
        let lookup = |token: &str| {
            idf.iter().find(|(stem, _)| encode(stem) == token).unwrap_or_else(|| panic!("asked for {token}")).1
        };
        let pooling = IdfPooling { language: Language::English, speakers: &speakers, prefix_bytes: 0, idf: lookup };
        idf_pooled(&states(text, tokens), tokens.len(), &pooling).unwrap()
    }

    #[test]
    fn a_word_piece_weighs_what_its_word_weighs() {
        // "deployments" is cut in two by the model; both have the idf of "deploy".
        let vector = pool(
            "What did Caroline's deployments break?",
            &["What", "did", "Caroline", "'", "s", "deploy", "ments", "break", "?"],
            &["caroline"],
            &[("deploy", 3.0), ("break", 4.0)],
        );
        let length = (9.0_f32 + 9.0 + 16.0).sqrt();
        for (index, expected) in [0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 3.0, 4.0, 0.0].into_iter().enumerate() {
            assert!((vector[index] - expected / length).abs() < 1e-4, "{index}: {vector:?}");
        }
    }

    #[test]
    fn stop_words_alone_are_their_mean() {
        let vector = pool("the of", &["the", "of"], &[], &[]);
        assert!((vector[0] - vector[1]).abs() < 1e-6 && (vector[0] - 0.5_f32.sqrt()).abs() < 1e-6);
    }

    #[test]
    fn c28_a_character_without_blanks_takes_its_more_telling_pair() {
        let vector = pool("数据库", &["数", "据", "库"], &[], &[("数据", 1.0), ("据库", 2.0)]);
        assert!((vector[1] / vector[0] - 2.0).abs() < 1e-3 && (vector[2] - vector[1]).abs() < 1e-6);
    }

    #[test]
    fn a_prefix_is_not_the_question() {
        let encoding = states("query: disk", &["query", ":", "disk"]);
        let speakers = KnownSpeakers::default();
        let pooling =
            IdfPooling { language: Language::English, speakers: &speakers, prefix_bytes: 7, idf: |_: &str| 5.0 };
        let vector = idf_pooled(&encoding, 3, &pooling).unwrap();
        assert!(vector[0] < 1e-3 && vector[2] > 0.999);
        assert_eq!(idf_tokens(&encoding, Language::English), ["disk", "queri"]);
    }

    #[test]
    fn mean_and_pass_through_have_length_one() {
        let mean = mean_pooled(&states("a b", &["a", "b"]), 2).unwrap();
        assert!((mean[0] - mean[1]).abs() < 1e-6);
        let passed = mean_pooled(&QueryEncoding::Pooled(vec![3.0, 4.0]), 2).unwrap();
        assert!((passed[0] - 0.6).abs() < 1e-6 && (passed[1] - 0.8).abs() < 1e-6);
        assert!((cosine(&[3.0, 4.0], &[6.0, 8.0]) - 1.0).abs() < 1e-9 && cosine(&[0.0], &[1.0]) == 0.0);
    }

    #[test]
    fn what_is_no_vector_is_said() {
        let dimension = PoolError::Dimension { expected: 3, actual: 2 };
        assert_eq!(mean_pooled(&QueryEncoding::Pooled(vec![1.0, 0.0]), 3), Err(dimension));
        assert_eq!(mean_pooled(&QueryEncoding::Pooled(vec![0.0, 0.0]), 2), Err(PoolError::Empty));
        assert_eq!(mean_pooled(&QueryEncoding::Pooled(vec![f32::NAN, 0.0]), 2), Err(PoolError::NotFinite));
        let none = QueryEncoding::States { text: String::new(), tokens: Vec::new() };
        assert_eq!(mean_pooled(&none, 2), Err(PoolError::Empty));
    }
}
