//! A lane's token for Qdrant: a JWT under Qdrant's API key that opens the lane's own collections and nothing else,
//! and only while the fence names its epoch.
//!
//! Read in Qdrant's source: a token *without* `access` may do everything, and names are compared before aliases
//! resolve, so alias and physical names all stand in it. The next generation is named ahead: a rebuild must not wait
//! until a renewed Secret reaches the pod.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use k8s_openapi::jiff::Timestamp;
use lanekeeper_core::cluster::qdrant::{FENCE_FIELD, FENCES, fence, physical};
use lanekeeper_core::fingerprint::Fingerprint;
use lanekeeper_core::{Epoch, Generation};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::error::Error;
use crate::keys::certificate::short;

/// How long a token is good, seconds; renewed at half.
pub const TOKEN_S: i64 = 24 * 3600;

/// What a lane may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneToken {
    /// `<namespace>.<collection>`: the alias.
    pub collection: String,
    /// The embedding of the collection.
    pub fingerprint: Fingerprint,
    /// Length of a vector.
    pub dimension: u32,
    /// The generation that is searched.
    pub generation: Generation,
    /// The epoch of the record.
    pub epoch: Epoch,
}

impl LaneToken {
    /// The physical collection of a generation.
    #[must_use]
    pub fn physical(&self, generation: Generation) -> String {
        physical(&self.collection, self.dimension, &self.fingerprint, generation)
    }

    /// The claims, without `exp`.
    #[must_use]
    pub fn claims(&self) -> Value {
        let names = [self.collection.clone(), self.physical(self.generation), self.physical(self.generation.next())];
        let access: Vec<Value> = names.iter().map(|name| json!({"collection": name, "access": "rw"})).collect();
        json!({
            "access": access,
            "value_exists": {
                "collection": FENCES,
                "matches": [{"key": FENCE_FIELD, "value": fence(&self.collection, self.epoch)}],
            },
        })
    }

    /// A token that is good until `exp`, seconds since the epoch.
    #[must_use]
    pub fn mint(&self, api_key: &str, exp: i64) -> String {
        let mut claims = self.claims();
        claims["exp"] = exp.into();
        sign(api_key, &claims)
    }

    /// Keeps the stored token if it says the same, under the same key, and is young enough. Returns it with its
    /// stamp and the time of its renewal.
    pub fn keep_or_mint(
        &self,
        api_key: &str,
        stored: Option<&[u8]>,
        stamp: Option<&str>,
        now: Timestamp,
        renew: bool,
    ) -> Result<(Vec<u8>, String, Timestamp), Error> {
        let about = short(&[api_key.as_bytes(), self.claims().to_string().as_bytes()]);
        if let Some(stored) = stored
            && let Some(stamp) = stamp
            && let Some(exp) = good_until(stamp, &about, &short(&[stored]))
            && (now < renewal(exp) || !renew)
        {
            return Ok((stored.to_vec(), stamp.to_owned(), renewal(exp)));
        }
        let exp = now.as_second().saturating_add(TOKEN_S);
        let token = self.mint(api_key, exp).into_bytes();
        let stamp = format!("{about}.{}.{exp}", short(&[&token]));
        Ok((token, stamp, renewal(exp)))
    }
}

fn renewal(exp: i64) -> Timestamp {
    Timestamp::from_second(exp.saturating_sub(TOKEN_S / 2)).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn good_until(stamp: &str, about: &str, sum: &str) -> Option<i64> {
    let mut parts = stamp.split('.');
    let same = parts.next() == Some(about) && parts.next() == Some(sum);
    let exp = parts.next()?.parse().ok()?;
    (same && parts.next().is_none()).then_some(exp)
}

/// A JWT under HS256.
fn sign(api_key: &str, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&json!({"alg": "HS256", "typ": "JWT"})), part(claims));
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(api_key.as_bytes()) else {
        unreachable!("HMAC takes a key of any length")
    };
    mac.update(signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::fingerprint::FingerprintFields;

    use super::*;

    fn lane() -> LaneToken {
        let fields = FingerprintFields::builtin();
        LaneToken {
            collection: "team.bob".to_owned(),
            fingerprint: fields.fingerprint(),
            dimension: fields.dimension,
            generation: Generation(3),
            epoch: Epoch(7),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn the_claims_field_by_field() {
        let short = FingerprintFields::builtin().fingerprint().short();
        let claims = lane().claims();
        assert_eq!(
            claims["access"],
            json!([
                {"collection": "team.bob", "access": "rw"},
                {"collection": format!("team.bob__384_{short}_g3"), "access": "rw"},
                {"collection": format!("team.bob__384_{short}_g4"), "access": "rw"},
            ])
        );
        assert_eq!(
            claims["value_exists"],
            json!({"collection": "lanekeeper-fence", "matches": [{"key": "holder", "value": "team.bob#7"}]})
        );
        let token = lane().mint("key", 1_800_086_400);
        let parts: Vec<&str> = token.split('.').collect();
        let read = |part: &str| serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
        assert_eq!(read(parts[0]), json!({"alg": "HS256", "typ": "JWT"}));
        let sent = read(parts[1]);
        assert_eq!(sent["exp"], 1_800_086_400);
        assert_eq!(sent["access"].as_array().unwrap().len(), 3, "a token without access may do everything");
        assert_eq!(sent.as_object().unwrap().len(), 3, "{sent}");
        assert_ne!(lane().mint("key", 1), lane().mint("another", 1));
    }

    #[test]
    fn a_token_is_kept_for_half_its_time_and_changes_with_key_epoch_and_generation() {
        let (first, stamp, due) = lane().keep_or_mint("key", None, None, at(0), true).unwrap();
        assert_eq!(due, at(TOKEN_S / 2));
        let kept = |lane: &LaneToken, key: &str, now, renew| {
            lane.keep_or_mint(key, Some(&first), Some(&stamp), now, renew).unwrap().0 == first
        };
        assert!(kept(&lane(), "key", at(TOKEN_S / 2 - 1), true));
        assert!(!kept(&lane(), "key", at(TOKEN_S / 2), true));
        assert!(kept(&lane(), "key", at(TOKEN_S), false), "a suspended lane costs nothing");
        assert!(!kept(&lane(), "another", at(1), true));
        assert!(!kept(&LaneToken { epoch: Epoch(8), ..lane() }, "key", at(1), true));
        assert!(!kept(&LaneToken { generation: Generation(4), ..lane() }, "key", at(1), true));
        let (other, ..) = lane().keep_or_mint("key", Some(b"changed by hand"), Some(&stamp), at(1), true).unwrap();
        assert_ne!(other, b"changed by hand");
    }
}
