//! Tokens as FTS5 stores them: `[a-z0-9]` only, so that its unicode61 tokenizer sees exactly one token.
//!
//! Injective: `a`–`y` and digits stand for themselves, `z` is `zz`, any other byte `z` and two hex
//! digits. What would be longer than [`MAX_BYTES`] is `zh` and 128 bits of SHA-256: `h` is no hex
//! digit, so a hash is never an escape.

use sha2::{Digest, Sha256};

/// Longest encoded token. FTS5 keeps whole tokens in its index, and a 1 MB one serves nobody.
pub(super) const MAX_BYTES: usize = 64;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Encodes a folded token.
pub(super) fn encode(token: &str) -> String {
    let mut out = String::with_capacity(token.len() + 8);
    for byte in token.bytes() {
        match byte {
            b'a'..=b'y' | b'0'..=b'9' => out.push(char::from(byte)),
            b'z' => out.push_str("zz"),
            _ => {
                out.push('z');
                push_hex(&mut out, byte);
            }
        }
        if out.len() > MAX_BYTES {
            return hashed(token);
        }
    }
    out
}

fn hashed(token: &str) -> String {
    let mut out = String::with_capacity(34);
    out.push_str("zh");
    for byte in Sha256::digest(token.as_bytes()).iter().take(16) {
        push_hex(&mut out, *byte);
    }
    out
}

fn push_hex(out: &mut String, byte: u8) {
    out.push(char::from(HEX[usize::from(byte >> 4)]));
    out.push(char::from(HEX[usize::from(byte & 15)]));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The inverse for what is not hashed.
    fn decode(encoded: &str) -> Option<String> {
        let bytes = encoded.as_bytes();
        let mut out = Vec::new();
        let mut index = 0;
        while index < bytes.len() {
            match (bytes[index], bytes.get(index + 1)) {
                (b'z', Some(b'z')) => {
                    out.push(b'z');
                    index += 2;
                }
                (b'z', Some(b'h')) => return None,
                (b'z', Some(_)) => {
                    out.push(u8::from_str_radix(&encoded[index + 1..index + 3], 16).unwrap());
                    index += 3;
                }
                (byte, _) => {
                    out.push(byte);
                    index += 1;
                }
            }
        }
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn known_encodings_never_move() {
        assert_eq!(encode("hello"), "hello");
        assert_eq!(encode("c++"), "cz2bz2b");
        assert_eq!(encode("zig"), "zzig");
        assert_eq!(encode("节点"), "ze8z8az82ze7z82zb9");
        assert!(encode(&"a".repeat(64)) == "a".repeat(64));
        assert_eq!(encode(&"a".repeat(65)).len(), 34);
    }

    proptest! {
        #[test]
        fn encoding_is_injective_and_bounded(token in "\\PC{0,40}") {
            let encoded = encode(&token);
            prop_assert!(encoded.len() <= MAX_BYTES);
            prop_assert!(encoded.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()));
            if let Some(decoded) = decode(&encoded) {
                prop_assert_eq!(decoded, token);
            }
        }

        #[test]
        fn a_hash_is_no_encoding_of_another_token(token in "[a-z]{60,90}", other in "z?h[0-9a-f]{0,40}") {
            prop_assume!(token != other);
            prop_assert_ne!(encode(&token), encode(&other));
        }
    }
}
