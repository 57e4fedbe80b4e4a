//! A lane's Secret: its attestation key, its certificate, its token for Qdrant. Pure over what is stored and the
//! clock; only a new certificate needs chance, which comes from [`crate::keys`].
//!
//! What must always hold: what is still good stays as it is, so that nothing is rotated by a reconcile; a lane's
//! Secret holds nothing of another lane, neither the master key nor Qdrant's.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use lanekeeper_core::attest::LaneKey;
use lanekeeper_core::cluster::{self, key};
use serde_json::json;

use super::{LanePlan, typed};
use crate::error::Error;
use crate::keys::{Keys, certificate};
use crate::qdrant::token::LaneToken;

/// Annotation: which certificate is in it, and until when it is good.
pub const CERTIFICATE: &str = "lanekeeper.dev/certificate";
/// Annotation: which token is in it, and until when it is good.
pub const TOKEN: &str = "lanekeeper.dev/qdrant-token";
/// Annotation: when the attestation key was rotated, seconds since the epoch.
pub const ROTATED: &str = "lanekeeper.dev/rotated";
/// The file of an external embedder's token.
pub const EMBEDDER_TOKEN: &str = "embedder.token";
/// How long the key before stays valid, seconds. A store reads a renewed Secret within some minutes, and an
/// attestation lives 30 s.
pub const PREVIOUS_S: i64 = 3600;

/// What the Secret is made from besides the lane.
#[derive(Debug)]
pub struct Sources<'a> {
    /// The one there is.
    pub stored: Option<&'a Secret>,
    /// Master key and CA.
    pub keys: &'a Keys,
    /// Qdrant's API key and what the lane may do with it, where there is one.
    pub token: Option<(&'a str, &'a LaneToken)>,
    /// The token of an external embedder.
    pub embedder_token: Option<&'a [u8]>,
    /// Now.
    pub now: Timestamp,
    /// False for a lane that is suspended: what is there is left, even if it is old.
    pub renew: bool,
}

/// The Secret, and when it has to be looked at again.
pub fn secret(plan: &LanePlan<'_>, sources: &Sources<'_>) -> Result<(Secret, Option<Timestamp>), Error> {
    let Sources { stored, keys, token, embedder_token, now, renew } = sources;
    let mut parts = Parts { data: BTreeMap::new(), annotations: BTreeMap::new(), due: None };
    let there = Stored(*stored);
    attestation(plan, keys, &there, *now, &mut parts);
    let names = cluster::lane_dns_names(&plan.name);
    let wanted = certificate::Wanted { names: &names, authority: &keys.authority, now: *now, renew: *renew };
    let kept = there.get(key::TLS_CERTIFICATE).zip(there.get(key::TLS_KEY));
    let pair = certificate::keep_or_issue(&wanted, kept, there.annotation(CERTIFICATE))?;
    parts.annotations.insert(CERTIFICATE, pair.stamp);
    parts.data.insert(key::TLS_CERTIFICATE, pair.certificate);
    parts.data.insert(key::TLS_KEY, pair.key);
    parts.data.insert(key::CA_CERTIFICATE, keys.authority.certificate().as_bytes().to_vec());
    parts.due_at(pair.due);
    if let Some((api_key, lane)) = token {
        let kept = there.get(key::QDRANT_JWT);
        let (jwt, stamp, due) = lane.keep_or_mint(api_key, kept, there.annotation(TOKEN), *now, *renew)?;
        parts.data.insert(key::QDRANT_JWT, jwt);
        parts.annotations.insert(TOKEN, stamp);
        parts.due_at(due);
    }
    if let Some(token) = embedder_token {
        parts.data.insert(EMBEDDER_TOKEN, token.to_vec());
    }
    let mut secret: Secret = typed(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": plan.owned_metadata(),
    }))?;
    let Parts { data, annotations, due } = parts;
    secret.data = Some(data.into_iter().map(|(name, bytes)| (name.to_owned(), ByteString(bytes))).collect());
    secret.metadata.annotations = Some(annotations.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
    Ok((secret, if *renew { due } else { None }))
}

struct Parts {
    data: BTreeMap<&'static str, Vec<u8>>,
    annotations: BTreeMap<&'static str, String>,
    due: Option<Timestamp>,
}

impl Parts {
    fn due_at(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

/// The stored Secret; an absent one holds nothing.
struct Stored<'a>(Option<&'a Secret>);

impl<'a> Stored<'a> {
    fn get(&self, name: &str) -> Option<&'a [u8]> {
        Some(&self.0?.data.as_ref()?.get(name)?.0)
    }

    fn annotation(&self, name: &str) -> Option<&'a str> {
        Some(self.0?.metadata.annotations.as_ref()?.get(name)?.as_str())
    }

    /// A key and its version, if both are whole.
    fn key(&self, key: &str, version: &str) -> Option<(u32, [u8; 32])> {
        let version = std::str::from_utf8(self.get(version)?).ok()?.trim().parse().ok()?;
        Some((version, self.get(key)?.try_into().ok()?))
    }
}

fn attestation(plan: &LanePlan<'_>, keys: &Keys, there: &Stored<'_>, now: Timestamp, parts: &mut Parts) {
    let current = LaneKey::derive(keys.master.expose(), plan.uid, keys.version);
    let mut put = |name: &'static str, bytes: Vec<u8>| {
        parts.data.insert(name, bytes);
    };
    put(key::ATTESTATION, current.expose().to_vec());
    put(key::ATTESTATION_VERSION, keys.version.to_string().into_bytes());
    // What was current until now; or what already was the one before.
    let stored = there.key(key::ATTESTATION, key::ATTESTATION_VERSION);
    let (before, since) = match stored {
        Some((version, bytes)) if version != keys.version => (Some((version, bytes)), now.as_second()),
        Some(_) | None => (
            there.key(key::ATTESTATION_PREVIOUS, key::ATTESTATION_VERSION_PREVIOUS),
            there.annotation(ROTATED).and_then(|at| at.parse().ok()).unwrap_or(0),
        ),
    };
    let end = since.saturating_add(PREVIOUS_S);
    if let Some((version, bytes)) = before
        && now.as_second() < end
    {
        put(key::ATTESTATION_PREVIOUS, bytes.to_vec());
        put(key::ATTESTATION_VERSION_PREVIOUS, version.to_string().into_bytes());
        parts.annotations.insert(ROTATED, since.to_string());
        if let Ok(at) = Timestamp::from_second(end) {
            parts.due_at(at);
        }
    }
}
