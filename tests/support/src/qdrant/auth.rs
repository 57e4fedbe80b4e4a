//! Keys and JWTs, as Qdrant checks them (its documentation, "Security", and `src/common/auth`).
//!
//! - The API key itself may do everything.
//! - A JWT is signed with it (HS256). Without `access` it may do everything too; `access: "r"` reads all,
//!   `"m"` may do everything; a list grants `r` or `rw` on collections by the name that the request uses: an
//!   alias and what it stands for are two names.
//! - `exp` is checked with 30 s of leeway. `value_exists {collection, matches: [{key, value}]}`: a point with
//!   these payload values must be there, at each request.
//! - No key, or one that is neither: Unauthenticated. Another signature, a past `exp`, or a `value_exists`
//!   collection that is not there: PermissionDenied. No such point: Unauthenticated.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use lanekeeper_core::Epoch;
use lanekeeper_core::cluster::qdrant::{FENCE_FIELD, FENCES, fence};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::Sha256;
use tonic::Status;

const LEEWAY_S: u64 = 30;

/// What a caller may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Access {
    Everything,
    ReadEverything,
    /// By name; `true`: may write.
    Collections(BTreeMap<String, bool>),
}

impl Access {
    pub(super) fn read(&self, collection: &str) -> Result<(), Status> {
        match self {
            Self::Everything | Self::ReadEverything => Ok(()),
            Self::Collections(list) if list.contains_key(collection) => Ok(()),
            Self::Collections(_) => Err(denied(format!("Access to collection {collection} is required"))),
        }
    }

    pub(super) fn write(&self, collection: &str) -> Result<(), Status> {
        match self {
            Self::Everything => Ok(()),
            Self::ReadEverything => Err(denied("Write access is required".into())),
            Self::Collections(list) => match list.get(collection) {
                Some(true) => Ok(()),
                Some(false) => Err(denied(format!("Only read access to collection {collection}"))),
                None => Err(denied(format!("Access to collection {collection} is required"))),
            },
        }
    }

    /// Making, dropping and naming collections.
    pub(super) fn manage(&self) -> Result<(), Status> {
        match self {
            Self::Everything => Ok(()),
            Self::ReadEverything | Self::Collections(_) => Err(denied("Global manage access is required".into())),
        }
    }

    pub(super) fn read_all(&self) -> Result<(), Status> {
        match self {
            Self::Everything | Self::ReadEverything => Ok(()),
            Self::Collections(_) => Err(denied("Global access is required".into())),
        }
    }
}

fn denied(why: String) -> Status {
    Status::permission_denied(format!("Forbidden: {why}"))
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum AccessClaim {
    Global(GlobalMode),
    Collections(Vec<CollectionClaim>),
}

#[derive(Debug, Clone, Copy, Deserialize)]
enum GlobalMode {
    #[serde(rename = "r")]
    Read,
    #[serde(rename = "m")]
    Manage,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
enum CollectionMode {
    #[serde(rename = "r")]
    Read,
    #[serde(rename = "rw")]
    ReadWrite,
}

#[derive(Debug, Deserialize)]
struct CollectionClaim {
    collection: String,
    access: CollectionMode,
    payload: Option<Value>,
}

/// A point that must be there.
#[derive(Debug, Deserialize)]
pub(super) struct ValueExists {
    pub(super) collection: String,
    pub(super) matches: Vec<KeyValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct KeyValue {
    pub(super) key: String,
    pub(super) value: Value,
}

#[derive(Debug, Deserialize)]
struct Claims {
    exp: Option<u64>,
    access: Option<AccessClaim>,
    value_exists: Option<ValueExists>,
}

/// What a key grants, and what must be there for it.
pub(super) fn verify(api_key: &str, sent: Option<&str>) -> Result<(Access, Option<ValueExists>), Status> {
    let Some(sent) = sent else {
        return Err(Status::unauthenticated("Must provide an API key or an Authorization bearer token"));
    };
    // Timing is nothing to a test.
    if sent == api_key {
        return Ok((Access::Everything, None));
    }
    let invalid = || Status::unauthenticated("Invalid API key or JWT");
    let (signed, signature) = sent.rsplit_once('.').ok_or_else(invalid)?;
    let (header, body) = signed.split_once('.').ok_or_else(invalid)?;
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
    let header: Value = decode(header).and_then(|bytes| serde_json::from_slice(&bytes).ok()).ok_or_else(invalid)?;
    if header["alg"] != "HS256" {
        return Err(invalid());
    }
    let signature = decode(signature).ok_or_else(invalid)?;
    if mac(api_key, signed).verify_slice(&signature).is_err() {
        return Err(denied("InvalidSignature".into()));
    }
    let claims: Claims = decode(body).and_then(|bytes| serde_json::from_slice(&bytes).ok()).ok_or_else(invalid)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if claims.exp.is_some_and(|exp| exp + LEEWAY_S < now) {
        return Err(denied("ExpiredSignature".into()));
    }
    let access = match claims.access {
        None | Some(AccessClaim::Global(GlobalMode::Manage)) => Access::Everything,
        Some(AccessClaim::Global(GlobalMode::Read)) => Access::ReadEverything,
        Some(AccessClaim::Collections(list)) => {
            if list.iter().any(|claim| claim.payload.is_some()) {
                return Err(Status::unauthenticated("payload constraints are no longer supported"));
            }
            let mode = |claim: CollectionClaim| (claim.collection, claim.access == CollectionMode::ReadWrite);
            Access::Collections(list.into_iter().map(mode).collect())
        }
    };
    Ok((access, claims.value_exists))
}

fn mac(api_key: &str, signed: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(api_key.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(signed.as_bytes());
    mac
}

/// A JWT over any claims, as only a holder of the API key can make it.
#[must_use]
pub fn mint(api_key: &str, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&json!({"alg": "HS256", "typ": "JWT"})), part(claims));
    let signature = URL_SAFE_NO_PAD.encode(mac(api_key, &signed).finalize().into_bytes());
    format!("{signed}.{signature}")
}

/// What a lane's token grants.
#[derive(Debug, Clone)]
pub struct LaneGrant<'a> {
    /// The full name, which is the alias.
    pub alias: &'a str,
    /// Physical collections.
    pub physical: &'a [String],
    /// Under which the lane may write.
    pub epoch: u64,
    /// How long from now.
    pub lifetime: Duration,
}

/// The token that the operator gives to a lane's store: these collections, and only while the fence point
/// `<alias>#<epoch>` is there.
#[must_use]
pub fn mint_for_lane(api_key: &str, grant: &LaneGrant<'_>) -> String {
    let LaneGrant { alias, physical, epoch, lifetime } = grant;
    let names = std::iter::once(*alias).chain(physical.iter().map(String::as_str));
    let access: Vec<Value> = names.map(|name| json!({"collection": name, "access": "rw"})).collect();
    let exp = (SystemTime::now() + *lifetime).duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    mint(
        api_key,
        &json!({
            "exp": exp,
            "access": access,
            "value_exists": {
                "collection": FENCES,
                "matches": [{"key": FENCE_FIELD, "value": fence(alias, Epoch(*epoch))}],
            },
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "the-api-key";

    fn code(sent: Option<&str>) -> Option<tonic::Code> {
        verify(KEY, sent).err().map(|status| status.code())
    }

    #[test]
    fn what_is_not_a_key_is_unauthenticated_and_what_is_forged_or_old_is_denied() {
        use tonic::Code::{PermissionDenied, Unauthenticated};
        assert_eq!(code(None), Some(Unauthenticated));
        assert_eq!(code(Some("another")), Some(Unauthenticated));
        assert_eq!(code(Some("a.b.c")), Some(Unauthenticated));
        assert_eq!(code(Some(KEY)), None);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(code(Some(&mint("other", &json!({"exp": now + 60})))), Some(PermissionDenied));
        assert_eq!(code(Some(&mint(KEY, &json!({"exp": now - 60})))), Some(PermissionDenied));
        assert_eq!(code(Some(&mint(KEY, &json!({"exp": now - 10})))), None, "within the leeway");
        assert_eq!(code(Some(&mint(KEY, &json!({"exp": now, "access": "x"})))), Some(Unauthenticated));
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        let body = URL_SAFE_NO_PAD.encode("{}");
        assert_eq!(code(Some(&format!("{none}.{body}."))), Some(Unauthenticated));
    }

    #[test]
    fn without_access_a_token_may_do_everything_and_a_list_is_by_name() {
        let grants = |claims: Value| verify(KEY, Some(&mint(KEY, &claims))).unwrap().0;
        assert_eq!(grants(json!({})), Access::Everything);
        assert_eq!(grants(json!({"access": "m"})), Access::Everything);
        let reads = grants(json!({"access": "r"}));
        assert!(reads.read("any").is_ok() && reads.write("any").is_err() && reads.manage().is_err());
        let list = grants(json!({"access": [
            {"collection": "mine", "access": "rw"}, {"collection": "theirs", "access": "r"},
        ]}));
        assert!(list.write("mine").is_ok() && list.read("theirs").is_ok() && list.write("theirs").is_err());
        assert!(list.read("other").is_err() && list.manage().is_err() && list.read_all().is_err());
    }
}
