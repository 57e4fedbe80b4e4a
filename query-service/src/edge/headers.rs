//! Idempotency-Key, If-Match and Content-Type, read strictly.

use axum::extract::FromRequestParts;
use http::header::{CONTENT_TYPE, IF_MATCH};
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use lanekeeper_core::LaneError;
use lanekeeper_core::lane_client::Idempotency;
use lanekeeper_core::limits::IDEMPOTENCY_KEY_BYTES;

use crate::problem::EdgeError;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The Idempotency-Key of the request, if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdempotencyKey(Option<String>);

impl IdempotencyKey {
    /// With the hash of the body that came with it.
    pub(crate) fn with_body(self, body_sha256: [u8; 32]) -> Option<Idempotency> {
        self.0.map(|key| Idempotency { key, body_sha256 })
    }
}

impl<S: Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = EdgeError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, EdgeError> {
        Ok(idempotency_key(&parts.headers)?)
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<IdempotencyKey, LaneError> {
    let Some(bytes) = single(headers, &IDEMPOTENCY_KEY, "Idempotency-Key")? else { return Ok(IdempotencyKey(None)) };
    let good = (1..=IDEMPOTENCY_KEY_BYTES).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    let key = std::str::from_utf8(bytes).ok().filter(|_| good).ok_or_else(|| {
        LaneError::invalid("Idempotency-Key", format!("must be 1 to {IDEMPOTENCY_KEY_BYTES} visible ASCII characters"))
    })?;
    Ok(IdempotencyKey(Some(key.to_owned())))
}

/// The version in If-Match without its quotes, if the request has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IfMatch(pub(crate) Option<String>);

impl<S: Sync> FromRequestParts<S> for IfMatch {
    type Rejection = EdgeError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, EdgeError> {
        Ok(if_match(&parts.headers)?)
    }
}

fn if_match(headers: &HeaderMap) -> Result<IfMatch, LaneError> {
    let invalid = |rule: &str| LaneError::invalid("If-Match", rule);
    let Some(bytes) = single(headers, &IF_MATCH, "If-Match")? else { return Ok(IfMatch(None)) };
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("must be ASCII"))?.trim();
    if text == "*" {
        return Err(invalid("must name the version that is replaced: '*' would replace one that nobody has read"));
    }
    if text.starts_with("W/") {
        return Err(invalid("must be a strong version: '\"VERSION\"', without W/"));
    }
    let version = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match version.filter(|version| !version.is_empty() && version.bytes().all(|b| b.is_ascii_graphic() && b != b'"')) {
        Some(version) => Ok(IfMatch(Some(version.to_owned()))),
        None => Err(invalid("must be one version in double quotes, as ETag gives it")),
    }
}

fn single<'a>(headers: &'a HeaderMap, name: &HeaderName, shown: &str) -> Result<Option<&'a [u8]>, LaneError> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    match values.next() {
        Some(_) => Err(LaneError::invalid(shown, "must be sent once")),
        None => Ok(first.map(http::HeaderValue::as_bytes)),
    }
}

/// Whether the body claims to be one of `types`; parameters such as `charset` do not matter.
pub(crate) fn has_content_type(headers: &HeaderMap, types: &[&str]) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let essence = value.split(';').next().unwrap_or_default().trim();
    types.iter().any(|known| essence.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &str, values: &[&[u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HeaderName::try_from(name).unwrap(), http::HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn an_idempotency_key_is_visible_ascii() {
        let read = |values: &[&[u8]]| idempotency_key(&headers("idempotency-key", values));
        assert_eq!(read(&[]).unwrap().with_body([0; 32]), None);
        assert_eq!(read(&[b"a-1~"]).unwrap().with_body([1; 32]).unwrap().key, "a-1~");
        assert!(read(&[&[b'x'; 255]]).is_ok());
        for bad in [&b""[..], b"a b", "ä".as_bytes(), &[b'x'; 256], b"a\tb"] {
            assert_eq!(read(&[bad]).unwrap_err().code(), "invalid_field", "{bad:?}");
        }
        assert!(read(&[b"a", b"b"]).is_err());
    }

    #[test]
    fn if_match_is_one_strong_version() {
        let read = |value: &[u8]| if_match(&headers("if-match", &[value]));
        assert_eq!(read(b"\"abc\"").unwrap(), IfMatch(Some("abc".into())));
        assert_eq!(if_match(&HeaderMap::new()).unwrap(), IfMatch(None));
        assert!(read(b"*").unwrap_err().to_string().contains("nobody has read"));
        for bad in [&b"abc"[..], b"W/\"abc\"", b"\"a\", \"b\"", b"\"\"", b"\"", b"", "\"ä\"".as_bytes()] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_content_type_may_have_parameters() {
        let is_json =
            |value: &str| has_content_type(&headers("content-type", &[value.as_bytes()]), &["application/json"]);
        assert!(is_json("application/json") && is_json("Application/JSON; charset=utf-8"));
        assert!(!is_json("text/plain") && !is_json("application/jsonx"));
        assert!(!has_content_type(&HeaderMap::new(), &["application/json"]));
    }
}
