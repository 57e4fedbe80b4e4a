//! The lane's own secrets: the key that signs checkpoints and the key that hides content in hashes.
//! Both live on the volume, 0600, and leave it never.

use ed25519_dalek::SigningKey;
use hmac::{Hmac, KeyInit, Mac};
use lanekeeper_core::Hash32;
use lanekeeper_core::secret::Secret;
use sha2::Sha256;

use crate::error::StoreError;
use crate::volume::Volume;

/// Both keys.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    signing: Secret<SigningKey>,
    dedupe: Secret<[u8; 32]>,
}

impl Keys {
    /// Reads them, or makes what is not there.
    pub(crate) fn open(volume: &Volume) -> Result<Self, StoreError> {
        Ok(Self {
            signing: Secret::new(SigningKey::from_bytes(&volume.key("log.key")?)),
            dedupe: Secret::new(volume.key("dedupe.key")?),
        })
    }

    pub(crate) fn signing(&self) -> SigningKey {
        self.signing.expose().clone()
    }

    pub(crate) fn public(&self) -> Hash32 {
        Hash32::from_bytes(self.signing.expose().verifying_key().to_bytes())
    }

    fn mac(&self, tag: &str, bytes: &[u8]) -> [u8; 32] {
        let mut key = [0_u8; 64];
        key[..32].copy_from_slice(self.dedupe.expose());
        let mut mac = Hmac::<Sha256>::new(&key.into());
        mac.update(&(tag.len() as u64).to_be_bytes());
        mac.update(tag.as_bytes());
        mac.update(bytes);
        mac.finalize().into_bytes().into()
    }

    /// A value that tells this dedupe key from another without telling the key.
    pub(crate) fn check(&self) -> [u8; 32] {
        self.mac("check", b"")
    }

    /// The key of the claim ledger: equal for texts that differ in form alone.
    pub(crate) fn content(&self, text: &str) -> [u8; 32] {
        self.mac("content", crate::text::content::normalised_content(text).as_bytes())
    }

    /// What an idempotency row keeps of a body.
    pub(crate) fn body(&self, body_sha256: &[u8; 32]) -> [u8; 32] {
        self.mac("idempotency", body_sha256)
    }

    /// A speaker as the vector engine may see it: deleted vectors linger there, names must not.
    pub(crate) fn speaker(&self, speaker: &str) -> String {
        Hash32::from_bytes(self.mac("speaker", speaker.as_bytes())).to_string()
    }
}
