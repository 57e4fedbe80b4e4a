//! Encodings between processes: token states as half-precision numbers, vectors as single-precision ones,
//! little endian, in base64.
//!
//! What must always hold: what is read is finite, of the stated shape, and its offsets lie in its text; a number
//! that half precision cannot hold is refused when it is written, never sent as infinity.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::encoder::{QueryEncoding, TokenState};
use crate::limits::MODEL_TOKENS;

/// Most tokens of one question. Four times what the built-in model reads.
const MAX_TOKENS: usize = 4 * MODEL_TOKENS;
/// Longest vector.
const MAX_DIMENSION: usize = 65_536;

/// Why an encoding cannot be sent or read. Holds nothing of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an encoding {rule}")]
pub struct EncodingError {
    /// The rule that was broken.
    pub rule: &'static str,
}

const fn error(rule: &'static str) -> EncodingError {
    EncodingError { rule }
}

/// A question's encoding as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "snake_case", deny_unknown_fields)]
pub enum WireEncoding {
    /// One state a token.
    States {
        /// The text that the offsets refer to.
        text: String,
        /// Numbers of one state.
        dimension: u32,
        /// Byte ranges in `text`, end exclusive; one a token.
        offsets: Vec<(u32, u32)>,
        /// `offsets.len() × dimension` numbers, half precision, little endian, base64.
        states: String,
    },
    /// One vector, as a server pooled it.
    Pooled {
        /// Single precision, little endian, base64.
        vector: String,
    },
}

impl WireEncoding {
    /// The form in which an encoding is sent.
    pub fn write(encoding: &QueryEncoding) -> Result<Self, EncodingError> {
        match encoding {
            QueryEncoding::Pooled(vector) => Ok(Self::Pooled { vector: write_f32(vector)? }),
            QueryEncoding::States { text, tokens } => {
                let dimension = tokens.first().map_or(0, |token| token.state.len());
                let mut bytes = Vec::with_capacity(tokens.len() * dimension * 2);
                for TokenState { start: _, end: _, state } in tokens {
                    if state.len() != dimension {
                        return Err(error("must have states of one length"));
                    }
                    for value in state {
                        let half = to_half(*value);
                        if half & 0x7c00 == 0x7c00 {
                            return Err(error("must hold numbers that half precision can hold"));
                        }
                        bytes.extend_from_slice(&half.to_le_bytes());
                    }
                }
                Ok(Self::States {
                    text: text.clone(),
                    dimension: u32::try_from(dimension).map_err(|_| error("is too large"))?,
                    offsets: tokens.iter().map(|token| (token.start, token.end)).collect(),
                    states: STANDARD.encode(bytes),
                })
            }
        }
    }

    /// The encoding that was sent, checked.
    pub fn read(self) -> Result<QueryEncoding, EncodingError> {
        match self {
            Self::Pooled { vector } => Ok(QueryEncoding::Pooled(read_f32(&vector)?)),
            Self::States { text, dimension, offsets, states } => {
                let dimension = dimension as usize;
                if offsets.len() > MAX_TOKENS || dimension > MAX_DIMENSION || (dimension == 0 && !offsets.is_empty()) {
                    return Err(error("must have at most 1024 tokens, each with a state"));
                }
                let bytes = STANDARD.decode(&states).map_err(|_| error("must be base64"))?;
                if bytes.len() != offsets.len() * dimension * 2 {
                    return Err(error("must hold one state a token"));
                }
                let mut numbers = bytes.chunks_exact(2).map(|pair| from_half(u16::from_le_bytes([pair[0], pair[1]])));
                let mut tokens = Vec::with_capacity(offsets.len());
                for (start, end) in offsets {
                    if text.get(start as usize..end as usize).is_none() {
                        return Err(error("must have offsets within its text"));
                    }
                    let state: Vec<f32> = numbers.by_ref().take(dimension).collect();
                    if !state.iter().all(|value| value.is_finite()) {
                        return Err(error("must hold finite numbers"));
                    }
                    tokens.push(TokenState { start, end, state });
                }
                Ok(QueryEncoding::States { text, tokens })
            }
        }
    }
}

/// Numbers in single precision, little endian, base64.
pub fn write_f32(numbers: &[f32]) -> Result<String, EncodingError> {
    if !numbers.iter().all(|number| number.is_finite()) {
        return Err(error("must hold finite numbers"));
    }
    Ok(STANDARD.encode(numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>()))
}

/// The numbers that [`write_f32`] wrote; at most 65,536, finite.
pub fn read_f32(text: &str) -> Result<Vec<f32>, EncodingError> {
    if text.len() > MAX_DIMENSION * 6 {
        return Err(error("is too large"));
    }
    let bytes = STANDARD.decode(text).map_err(|_| error("must be base64"))?;
    let (numbers, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(error("must hold whole numbers of 4 bytes"));
    }
    let numbers: Vec<f32> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    if !numbers.iter().all(|number| number.is_finite()) {
        return Err(error("must hold finite numbers"));
    }
    Ok(numbers)
}

/// Single to half precision, to the nearest, ties to even. Too large becomes infinity.
#[must_use]
pub const fn to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let mantissa = bits & 0x007f_ffff;
    let exponent = ((bits >> 23) & 0xff) as i32 - 112;
    if exponent == 0xff - 112 {
        return sign | 0x7c00 | if mantissa == 0 { 0 } else { 0x0200 };
    }
    if exponent >= 0x1f {
        return sign | 0x7c00;
    }
    // The kept bits, and the number of bits that fall away.
    let (whole, dropped) = if exponent > 0 {
        (((exponent as u32) << 23) | mantissa, 13)
    } else if exponent >= -10 {
        (mantissa | 0x0080_0000, (14 - exponent) as u32)
    } else {
        return sign;
    };
    let half = whole >> dropped;
    let rest = whole & ((1 << dropped) - 1);
    let middle = 1 << (dropped - 1);
    let up = rest > middle || (rest == middle && half & 1 == 1);
    // A carry into the exponent is right: it is the next number, at the end infinity.
    sign | (half + up as u32) as u16
}

/// Half to single precision, exactly.
#[must_use]
pub const fn from_half(half: u16) -> f32 {
    let sign = ((half & 0x8000) as u32) << 16;
    let exponent = ((half >> 10) & 0x1f) as u32;
    let mantissa = (half & 0x03ff) as u32;
    match exponent {
        0 => {
            // 2^-24 for each unit.
            let magnitude = mantissa as f32 * 5.960_464_5e-8;
            f32::from_bits(magnitude.to_bits() | sign)
        }
        0x1f => f32::from_bits(sign | 0x7f80_0000 | (mantissa << 13)),
        _ => f32::from_bits(sign | ((exponent + 112) << 23) | (mantissa << 13)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_comes_back_and_rounding_is_to_the_nearest() {
        for half in 0..=u16::MAX {
            let value = from_half(half);
            if value.is_nan() {
                assert!(from_half(to_half(value)).is_nan());
            } else {
                assert_eq!(to_half(value), half, "{half:#06x} {value}");
            }
        }
        // Between two neighbours: the nearer one, at the middle the even one.
        for half in (0..0x7bff_u16).chain(0x8000..0xfbff) {
            let (low, high) = (f64::from(from_half(half)), f64::from(from_half(half + 1)));
            #[expect(clippy::cast_possible_truncation, reason = "exact: half precision's middles fit single precision")]
            let at = |share: f64| to_half((low + (high - low) * share) as f32);
            assert_eq!(at(0.25), half);
            assert_eq!(at(0.75), half + 1);
            assert_eq!(at(0.5), half + (half & 1));
        }
        assert_eq!((to_half(65_504.0), to_half(65_519.9), to_half(65_520.0)), (0x7bff, 0x7bff, 0x7c00));
        assert_eq!((to_half(1e-10), to_half(-1e-10), to_half(f32::NEG_INFINITY)), (0, 0x8000, 0xfc00));
    }

    fn states() -> QueryEncoding {
        let token = |start, end, state: [f32; 2]| TokenState { start, end, state: state.to_vec() };
        QueryEncoding::States {
            text: "än ol".into(), tokens: vec![token(0, 3, [0.5, -1.25]), token(4, 6, [0.0, 3.0])]
        }
    }

    #[test]
    fn an_encoding_comes_back() {
        for encoding in [
            states(),
            QueryEncoding::Pooled(vec![0.1, -0.2, f32::MIN_POSITIVE]),
            QueryEncoding::States { text: String::new(), tokens: vec![] },
        ] {
            let json = serde_json::to_string(&WireEncoding::write(&encoding).unwrap()).unwrap();
            assert_eq!(serde_json::from_str::<WireEncoding>(&json).unwrap().read().unwrap(), encoding);
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let too_large = |value| {
            WireEncoding::write(&QueryEncoding::States {
                text: "a".into(),
                tokens: vec![TokenState { start: 0, end: 1, state: vec![value] }],
            })
        };
        for value in [65_520.0, f32::INFINITY, f32::NAN] {
            assert!(too_large(value).is_err(), "{value}");
        }
        assert!(WireEncoding::write(&QueryEncoding::Pooled(vec![f32::NAN])).is_err());
        let WireEncoding::States { text, dimension, offsets, states } = WireEncoding::write(&states()).unwrap() else {
            panic!("states are states")
        };
        let make = |dimension, offsets: Vec<(u32, u32)>, states: &str| {
            WireEncoding::States { text: text.clone(), dimension, offsets, states: states.to_owned() }.read()
        };
        assert!(make(dimension, offsets.clone(), &states).is_ok());
        assert!(make(1, offsets.clone(), &states).is_err());
        assert!(make(0, offsets.clone(), "").is_err());
        assert!(make(u32::MAX, offsets.clone(), &states).is_err());
        assert!(make(dimension, vec![(0, 3)], &states).is_err());
        // Past the end, backwards, and within a character.
        for bad in [(4, 7), (3, 0), (1, 3)] {
            assert!(make(dimension, vec![(0, 3), bad], &states).is_err(), "{bad:?}");
        }
        assert!(make(dimension, offsets.clone(), "!").is_err());
        let infinite = STANDARD.encode([0x00, 0x7c].repeat(4));
        assert!(make(dimension, offsets, &infinite).is_err());
        for bad in ["AAA=", "!", &STANDARD.encode(f32::NAN.to_le_bytes()), &"A".repeat(MAX_DIMENSION * 6 + 4)] {
            assert!(read_f32(bad).is_err(), "{bad:.10}");
        }
    }
}
