//! The release's own secrets: the master key and the CA.
//!
//! What must always hold: what is there is never overwritten, even if it cannot be read (a new master would end
//! every lane's attestation, a new CA every connection); a secret is in no log and no error.

pub mod certificate;
pub mod system;

use k8s_openapi::api::core::v1::Secret;
use lanekeeper_core::cluster::key;
use lanekeeper_core::secret::Secret as Hidden;

pub use certificate::Authority;

use crate::error::Error;

/// Master key and CA, as they are now.
#[derive(Debug)]
pub struct Keys {
    /// What lanes' keys are derived from.
    pub master: Hidden<[u8; 32]>,
    /// Its version.
    pub version: u32,
    /// What signs certificates.
    pub authority: Authority,
}

impl Keys {
    /// From the two Secrets.
    pub fn read(master: &Secret, authority: &Secret) -> Result<Self, Error> {
        let bytes = bytes(master, key::MASTER)?;
        let whole: [u8; 32] = bytes.try_into().map_err(|_| refused(master, key::MASTER, "must be 32 bytes"))?;
        let version = std::str::from_utf8(self::bytes(master, key::MASTER_VERSION)?)
            .ok()
            .and_then(|text| text.trim().parse::<u32>().ok())
            .filter(|version| *version > 0)
            .ok_or_else(|| refused(master, key::MASTER_VERSION, "must be a whole number above 0"))?;
        let pem = |name: &str| {
            let bytes = self::bytes(authority, name)?;
            std::str::from_utf8(bytes).map_err(|_| refused(authority, name, "must be PEM"))
        };
        let authority = Authority::read(pem(key::TLS_CERTIFICATE)?, pem(key::TLS_KEY)?)
            .map_err(|_| refused(authority, key::TLS_CERTIFICATE, "must be a CA's certificate with its key"))?;
        Ok(Self { master: Hidden::new(whole), version, authority })
    }
}

/// A key of a Secret.
pub fn bytes<'a>(secret: &'a Secret, name: &str) -> Result<&'a [u8], Error> {
    let found = secret.data.as_ref().and_then(|data| data.get(name));
    found.map(|bytes| bytes.0.as_slice()).ok_or_else(|| refused(secret, name, "is missing"))
}

fn refused(secret: &Secret, key: &str, rule: &str) -> Error {
    let name = secret.metadata.name.as_deref().unwrap_or_default();
    Error::Keys { reason: format!("{key} of Secret {name} {rule}") }
}
