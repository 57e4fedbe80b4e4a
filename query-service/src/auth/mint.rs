//! Making tokens. Used by `lanekeeper token`; the serving side never mints.

use std::fmt;

use ed25519_dalek::{Signer as _, SigningKey};
use lanekeeper_core::scope::Scope;
use lanekeeper_core::secret::Secret;
use lanekeeper_core::{LaneUid, Principal};
use sha2::{Digest as _, Sha256};

use super::token::{ALG, AUDIENCE, Claims, Header, MAX_LIFETIME_S, TYP, encode};
use super::verify::Verifier;

/// A name and a signing key. The key's id is made from its public half, so it needs no storing.
pub struct Issuer {
    name: String,
    kid: String,
    key: SigningKey,
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("name", &self.name).field("kid", &self.kid).finish_non_exhaustive()
    }
}

impl Issuer {
    /// From the 32 bytes of an Ed25519 seed.
    #[must_use]
    pub fn from_seed(name: impl Into<String>, seed: &[u8; 32]) -> Self {
        let key = SigningKey::from_bytes(seed);
        Self { name: name.into(), kid: key_id(key.verifying_key().as_bytes()), key }
    }

    /// What checks this issuer's tokens.
    #[must_use]
    pub fn verifier(&self) -> Verifier {
        Verifier::new(self.name.clone(), [(self.kid.clone(), self.key.verifying_key())])
    }
}

fn key_id(public: &[u8; 32]) -> String {
    Sha256::digest(public).iter().take(8).fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// What a token is to say.
#[derive(Debug, Clone)]
pub struct MintRequest {
    /// For whom.
    pub principal: Principal,
    /// For which lane.
    pub lane: LaneUid,
    /// From when, milliseconds since the epoch.
    pub now_ms: i64,
    /// For how long, seconds; at most [`MAX_LIFETIME_S`].
    pub lifetime_s: i64,
    /// Narrows what the principal's role allows.
    pub scope: Option<Scope>,
}

/// Why there is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// Ask for a shorter life.
    #[error("a token lives 1 to {MAX_LIFETIME_S} seconds, not {lifetime_s}")]
    Lifetime {
        /// What was asked for.
        lifetime_s: i64,
    },
    /// The token could not be written as JSON; a fault of ours.
    #[error("the token cannot be encoded")]
    Encoding,
}

/// Signs a token.
pub fn mint(issuer: &Issuer, request: &MintRequest) -> Result<Secret<String>, MintError> {
    if !(1..=MAX_LIFETIME_S).contains(&request.lifetime_s) {
        return Err(MintError::Lifetime { lifetime_s: request.lifetime_s });
    }
    let nbf = request.now_ms.div_euclid(1000);
    let claims = Claims {
        iss: issuer.name.clone(),
        aud: AUDIENCE.into(),
        sub: request.principal.clone(),
        nbf,
        exp: nbf.saturating_add(request.lifetime_s),
        jti: uuid::Uuid::now_v7().to_string(),
        lane: request.lane,
        scope: request.scope.clone().map(Into::into),
    };
    let header = Header { typ: TYP.into(), alg: ALG.into(), kid: issuer.kid.clone() };
    let part = |json: serde_json::Result<Vec<u8>>| json.map(|json| encode(&json)).map_err(|_| MintError::Encoding);
    let signed = format!("{}.{}", part(serde_json::to_vec(&header))?, part(serde_json::to_vec(&claims))?);
    let signature = encode(&issuer.key.sign(signed.as_bytes()).to_bytes());
    Ok(Secret::new(format!("{signed}.{signature}")))
}
