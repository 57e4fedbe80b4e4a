//! Signed checkpoints: the lane's Ed25519 key says "up to seq N the log had this hash".
//!
//! Written at most once a second of activity, inside the group's own transaction, and at close. The
//! public key stands in the log itself (`opened`, `adopted`, `restored`), so that a copy can be checked.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use lanekeeper_core::{Hash32, Seq};

const TAG: &[u8] = b"lanekeeper/log/checkpoint/v1";

/// A signed statement about the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Up to here.
    pub seq: Seq,
    /// The hash of that row.
    pub hash: Hash32,
    /// Rows forgotten by then.
    pub purged: u64,
    /// When, milliseconds since the epoch.
    pub at_ms: i64,
    /// Ed25519 over the rest.
    pub signature: [u8; 64],
}

fn message(seq: Seq, hash: Hash32, purged: u64, at_ms: i64) -> Vec<u8> {
    let mut bytes = TAG.to_vec();
    bytes.extend(seq.0.to_be_bytes());
    bytes.extend(hash.as_bytes());
    bytes.extend(purged.to_be_bytes());
    bytes.extend(at_ms.to_be_bytes());
    bytes
}

impl Checkpoint {
    /// Signs a statement.
    #[must_use]
    pub fn sign(key: &SigningKey, seq: Seq, hash: Hash32, purged: u64, at_ms: i64) -> Self {
        let signature = key.sign(&message(seq, hash, purged, at_ms)).to_bytes();
        Self { seq, hash, purged, at_ms, signature }
    }

    /// Whether `public_key` signed this.
    #[must_use]
    pub fn is_signed_by(&self, public_key: Hash32) -> bool {
        let Self { seq, hash, purged, at_ms, signature } = self;
        VerifyingKey::from_bytes(public_key.as_bytes()).is_ok_and(|key| {
            key.verify_strict(&message(*seq, *hash, *purged, *at_ms), &Signature::from_bytes(signature)).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_statement_is_not_signed() {
        let key = SigningKey::from_bytes(&[7; 32]);
        let public = Hash32::from_bytes(key.verifying_key().to_bytes());
        let good = Checkpoint::sign(&key, Seq(3), Hash32::from_bytes([1; 32]), 0, 9);
        assert!(good.is_signed_by(public));
        let changes: [fn(&mut Checkpoint); 5] = [
            |c| c.seq = Seq(4),
            |c| c.hash = Hash32::from_bytes([2; 32]),
            |c| c.purged = 1,
            |c| c.at_ms = 10,
            |c| c.signature[0] ^= 1,
        ];
        for change in changes {
            let mut changed = good.clone();
            change(&mut changed);
            assert!(!changed.is_signed_by(public));
        }
        assert!(!good.is_signed_by(Hash32::from_bytes([9; 32])));
    }
}
