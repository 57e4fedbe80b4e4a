//! Checking tokens.
//!
//! What must always hold: the unverified issuer picks one verifier and the unverified key id one of its
//! keys; the algorithm is fixed; nothing else is tried when that fails. Claims are believed after the
//! signature holds and not before. Which check failed is for nobody to learn.
//!
//! In a cluster tokens of every other issuer are the API server's to judge ([`TokenReviewer`]): that is one more
//! verifier, picked by the same rule, and no token is shown to both.

use std::collections::HashMap;
use std::sync::Arc;

use ed25519_dalek::{Signature, VerifyingKey};
use lanekeeper_core::hooks::guard;
use lanekeeper_core::scope::Scope;
use lanekeeper_core::{LaneUid, Principal};

use super::AuthError;
use super::review::{ReviewError, Reviewed, TokenReviewer};
use super::token::{ALG, AUDIENCE, Claims, Header, MAX_BYTES, MAX_LIFETIME_S, TYP, decode};

/// One issuer's keys, by key id.
#[derive(Debug, Clone)]
pub struct Verifier {
    issuer: String,
    keys: HashMap<String, VerifyingKey>,
}

impl Verifier {
    /// An issuer with its keys; more than one while a key is being replaced.
    pub fn new(issuer: impl Into<String>, keys: impl IntoIterator<Item = (String, VerifyingKey)>) -> Self {
        Self { issuer: issuer.into(), keys: keys.into_iter().collect() }
    }
}

/// Every issuer that is believed.
#[derive(Debug, Clone, Default)]
pub struct Verifiers {
    own: HashMap<String, Verifier>,
    reviewer: Option<Arc<dyn TokenReviewer>>,
}

/// Two verifiers claim one issuer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("issuer {issuer} has two verifiers")]
pub struct VerifiersError {
    /// The issuer.
    pub issuer: String,
}

/// What a token that holds says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) principal: Principal,
    pub(crate) bound: Bound,
    pub(crate) narrowed: Option<Scope>,
}

/// What a credential is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bound {
    /// One lane, by what its name was bound to.
    Lane(LaneUid),
    /// Every lane that gives this account a role; `uid` is what the account's name is bound to.
    Account { uid: String },
}

/// Why nobody is known by a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// The token does not hold.
    Auth(AuthError),
    /// Whoever judges it does not answer, or is asked too much. Nothing is known about the token.
    Unavailable,
}

impl From<AuthError> for Unknown {
    fn from(error: AuthError) -> Self {
        Self::Auth(error)
    }
}

impl Verifiers {
    /// One verifier an issuer.
    pub fn new(verifiers: impl IntoIterator<Item = Verifier>) -> Result<Self, VerifiersError> {
        let mut by_issuer = HashMap::new();
        for verifier in verifiers {
            if let Some(other) = by_issuer.insert(verifier.issuer.clone(), verifier) {
                return Err(VerifiersError { issuer: other.issuer });
            }
        }
        Ok(Self { own: by_issuer, reviewer: None })
    }

    /// Tokens of every other issuer are judged by the API server.
    #[must_use]
    pub fn with_reviewer(self, reviewer: Arc<dyn TokenReviewer>) -> Self {
        Self { reviewer: Some(reviewer), ..self }
    }

    /// Who a token is of, at a time.
    pub(crate) async fn authenticate(&self, token: &str, now_ms: i64) -> Result<Credential, Unknown> {
        let Some(reviewer) = self.reviewer.as_ref().filter(|_| token.len() <= MAX_BYTES) else {
            return Ok(self.verify(token, now_ms)?);
        };
        // Not a JWT, or without an issuer: the API server is not asked about whatever somebody sends.
        let issuer = unverified_issuer(token).ok_or(AuthError::Invalid)?;
        if self.own.contains_key(&issuer) {
            return Ok(self.verify(token, now_ms)?);
        }
        match reviewer.review(token).await {
            Ok(Reviewed { principal, account_uid }) => {
                Ok(Credential { principal, bound: Bound::Account { uid: account_uid }, narrowed: None })
            }
            Err(ReviewError::Refused) => Err(AuthError::Invalid.into()),
            Err(ReviewError::Unavailable) => Err(Unknown::Unavailable),
        }
    }

    /// Checks a token at a time.
    pub(crate) fn verify(&self, token: &str, now_ms: i64) -> Result<Credential, AuthError> {
        if token.len() > MAX_BYTES {
            return Err(AuthError::Invalid);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(AuthError::Invalid)?;
        let (header, claims) = signed.split_once('.').ok_or(AuthError::Invalid)?;
        let header: Header = parse(header)?;
        if header.typ != TYP || header.alg != ALG {
            return Err(AuthError::Invalid);
        }
        let claims: Claims = parse(claims)?;
        let key = self.own.get(&claims.iss).and_then(|verifier| verifier.keys.get(&header.kid));
        let signature = decode(signature).and_then(|bytes| Signature::from_slice(&bytes).ok());
        let (Some(key), Some(signature)) = (key, signature) else { return Err(AuthError::Invalid) };
        key.verify_strict(signed.as_bytes(), &signature).map_err(|_| AuthError::Invalid)?;
        check(claims, now_ms)
    }
}

/// The issuer that a token names. It picks who judges, and proves nothing.
fn unverified_issuer(token: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Issued {
        iss: String,
    }
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    serde_json::from_slice::<Issued>(&decode(claims)?).ok().map(|issued| issued.iss)
}

fn parse<T: serde::de::DeserializeOwned>(part: &str) -> Result<T, AuthError> {
    let bytes = decode(part).ok_or(AuthError::Invalid)?;
    serde_json::from_slice(&bytes).map_err(|_| AuthError::Invalid)
}

/// The claims of a token whose signature holds.
fn check(claims: Claims, now_ms: i64) -> Result<Credential, AuthError> {
    let Claims { iss: _, aud, sub, nbf, exp, jti, lane, scope } = claims;
    let lifetime = exp.checked_sub(nbf).ok_or(AuthError::Invalid)?;
    if (aud != AUDIENCE && guard("token_audience"))
        || jti.is_empty()
        || !(1..=MAX_LIFETIME_S).contains(&lifetime)
        || now_ms.div_euclid(1000) < nbf
    {
        return Err(AuthError::Invalid);
    }
    let narrowed = match scope {
        None => None,
        Some(scope) => Some(scope.into_scope().ok_or(AuthError::Invalid)?),
    };
    if now_ms.div_euclid(1000) >= exp && guard("token_expiry") {
        return Err(AuthError::Expired);
    }
    Ok(Credential { principal: sub, bound: Bound::Lane(lane), narrowed })
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer as _, SigningKey};
    use serde_json::{Value, json};

    use super::super::mint::{Issuer, MintError, MintRequest, mint};
    use super::super::token::encode;
    use super::*;

    const NOW_MS: i64 = 1_796_000_000_000;
    const SEED: [u8; 32] = [7; 32];

    fn issuer() -> Issuer {
        Issuer::from_seed("local", &SEED)
    }

    fn verifiers() -> Verifiers {
        Verifiers::new([issuer().verifier()]).unwrap()
    }

    fn request() -> MintRequest {
        MintRequest {
            principal: "user:bob".parse().unwrap(),
            lane: LaneUid::from_uuid(uuid::Uuid::from_u128(7)),
            now_ms: NOW_MS,
            lifetime_s: 3600,
            scope: None,
        }
    }

    fn minted(request: &MintRequest) -> String {
        mint(&issuer(), request).unwrap().expose().clone()
    }

    /// Header and claims of a good token, to be changed and signed again.
    fn parts() -> (Value, Value) {
        let token = minted(&request());
        let mut parts =
            token.split('.').map(|part| serde_json::from_slice(&decode(part).unwrap_or_default()).unwrap_or_default());
        (parts.next().unwrap(), parts.next().unwrap())
    }

    fn signed_with(seed: [u8; 32], header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
        let signature = SigningKey::from_bytes(&seed).sign(signed.as_bytes()).to_bytes();
        format!("{signed}.{}", encode(&signature))
    }

    fn changed(change: impl FnOnce(&mut Value, &mut Value)) -> Result<Credential, AuthError> {
        let (mut header, mut claims) = parts();
        change(&mut header, &mut claims);
        verifiers().verify(&signed_with(SEED, &header, &claims), NOW_MS)
    }

    #[test]
    fn a_minted_token_holds_until_it_expires() {
        let token = minted(&request());
        let credential = verifiers().verify(&token, NOW_MS).unwrap();
        assert_eq!(credential.principal.to_string(), "user:bob");
        assert_eq!(credential.bound, Bound::Lane(request().lane));
        assert_eq!(credential.narrowed, None);
        let end = NOW_MS + 3_600_000;
        assert!(verifiers().verify(&token, end - 1).is_ok());
        assert_eq!(verifiers().verify(&token, end), Err(AuthError::Expired));
        assert_eq!(verifiers().verify(&token, NOW_MS - 1000), Err(AuthError::Invalid));
    }

    #[test]
    fn a_narrowing_scope_comes_through_and_a_budget_is_refused() {
        let scope = Scope::of_reads(&"team/bob".parse().unwrap(), request().lane).unwrap();
        let token = minted(&MintRequest { scope: Some(scope.clone()), ..request() });
        assert_eq!(verifiers().verify(&token, NOW_MS).unwrap().narrowed, Some(scope.clone()));
        let with_budget = |budget: Value| {
            changed(|_, claims| {
                claims["scope"] = serde_json::to_value(&scope).unwrap();
                claims["scope"]["budget_usd"] = budget;
            })
        };
        assert!(with_budget(Value::Null).is_ok());
        assert_eq!(with_budget(json!(0)), Err(AuthError::Invalid));
        assert_eq!(with_budget(json!(5.0)), Err(AuthError::Invalid));
    }

    #[test]
    fn every_claim_and_header_parameter_is_required() {
        assert!(changed(|_, _| ()).is_ok());
        for name in ["iss", "aud", "sub", "nbf", "exp", "jti", "lane"] {
            let without = changed(|_, claims| {
                claims.as_object_mut().unwrap().remove(name);
            });
            assert_eq!(without, Err(AuthError::Invalid), "{name}");
        }
        for name in ["typ", "alg", "kid"] {
            let without = changed(|header, _| {
                header.as_object_mut().unwrap().remove(name);
            });
            assert_eq!(without, Err(AuthError::Invalid), "{name}");
        }
    }

    #[test]
    fn each_wrong_value_is_refused() {
        type Change = fn(&mut Value, &mut Value);
        let cases: [(&str, Change); 18] = [
            ("typ", |h, _| h["typ"] = json!("JWT")),
            ("alg none", |h, _| h["alg"] = json!("none")),
            ("alg HS256", |h, _| h["alg"] = json!("HS256")),
            ("alg in another case", |h, _| h["alg"] = json!("eddsa")),
            ("kid", |h, _| h["kid"] = json!("0000000000000000")),
            ("crit", |h, _| h["crit"] = json!(["exp"])),
            ("jwk", |h, _| h["jwk"] = json!({"kty": "OKP"})),
            ("audience", |_, c| c["aud"] = json!("other")),
            ("audience list", |_, c| c["aud"] = json!(["lanekeeper", "other"])),
            ("issuer", |_, c| c["iss"] = json!("elsewhere")),
            ("subject", |_, c| c["sub"] = json!("bob")),
            ("empty jti", |_, c| c["jti"] = json!("")),
            ("too long", |_, c| c["exp"] = json!(c["nbf"].as_i64().unwrap() + 86_401)),
            ("ends before it starts", |_, c| c["exp"] = json!(c["nbf"].as_i64().unwrap())),
            ("overflow", |_, c| {
                c["exp"] = json!(i64::MAX);
                c["nbf"] = json!(i64::MIN);
            }),
            ("text as a time", |_, c| c["exp"] = json!("never")),
            ("unknown claim", |_, c| c["admin"] = json!(true)),
            ("lane by name", |_, c| c["lane"] = json!("team/bob")),
        ];
        for (what, change) in cases {
            assert_eq!(changed(change), Err(AuthError::Invalid), "{what}");
        }
    }

    #[test]
    fn another_key_is_not_tried_and_another_signature_never_fits() {
        let (header, claims) = parts();
        assert_eq!(verifiers().verify(&signed_with([8; 32], &header, &claims), NOW_MS), Err(AuthError::Invalid));
        // Two issuers: a token of one, naming the other, is checked with the other's key alone.
        let other = Issuer::from_seed("other", &[9; 32]);
        let both = Verifiers::new([issuer().verifier(), other.verifier()]).unwrap();
        let mut claims_of_other = claims.clone();
        claims_of_other["iss"] = json!("other");
        assert_eq!(both.verify(&signed_with(SEED, &header, &claims_of_other), NOW_MS), Err(AuthError::Invalid));
        assert!(Verifiers::new([issuer().verifier(), issuer().verifier()]).is_err());
        // One character of any part changed.
        let good = minted(&request());
        for index in 0..good.len() {
            let mut bytes = good.clone().into_bytes();
            bytes[index] = if bytes[index] == b'A' { b'B' } else { b'A' };
            let bad = String::from_utf8(bytes).unwrap();
            assert!(verifiers().verify(&bad, NOW_MS).is_err(), "{index}");
        }
    }

    #[test]
    fn garbage_is_refused() {
        let long = format!("{}.{}", "a".repeat(MAX_BYTES), "b");
        for bad in ["", ".", "..", "...", "a.b.c", "a.b.c.d", "é.é.é", long.as_str()] {
            assert_eq!(verifiers().verify(bad, NOW_MS), Err(AuthError::Invalid), "{bad:.20}");
        }
    }

    #[test]
    fn a_token_lives_a_day_at_most() {
        for lifetime_s in [0, -1, MAX_LIFETIME_S + 1] {
            let refused = mint(&issuer(), &MintRequest { lifetime_s, ..request() });
            assert_eq!(refused.err(), Some(MintError::Lifetime { lifetime_s }));
        }
        assert!(mint(&issuer(), &MintRequest { lifetime_s: MAX_LIFETIME_S, ..request() }).is_ok());
        assert!(!format!("{:?}", issuer()).contains("07070707"), "a key must not be printed");
    }

    /// Knows every token as the agent's, and counts.
    #[derive(Debug, Default)]
    struct Fake {
        asked: std::sync::atomic::AtomicUsize,
        answer: Option<ReviewError>,
    }

    impl TokenReviewer for Fake {
        fn review<'a>(&'a self, _token: &'a str) -> futures::future::BoxFuture<'a, Result<Reviewed, ReviewError>> {
            self.asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let reviewed = || Reviewed { principal: "sa:team/agent".parse().unwrap(), account_uid: "u".into() };
            Box::pin(std::future::ready(self.answer.map_or_else(|| Ok(reviewed()), Err)))
        }
    }

    #[tokio::test]
    async fn the_issuer_picks_one_verifier_and_the_other_is_never_asked() {
        let fake = Arc::new(Fake::default());
        let both = verifiers().with_reviewer(fake.clone());
        let asked = || fake.asked.load(std::sync::atomic::Ordering::SeqCst);
        // Ours, good and bad: the API server does not see them.
        assert!(both.authenticate(&minted(&request()), NOW_MS).await.is_ok());
        let (header, mut claims) = parts();
        let forged = signed_with([8; 32], &header, &claims);
        assert_eq!(both.authenticate(&forged, NOW_MS).await, Err(AuthError::Invalid.into()));
        for garbage in ["", "abc", "a.b.c", "e30.e30.e30", &"x".repeat(MAX_BYTES + 1)] {
            assert_eq!(both.authenticate(garbage, NOW_MS).await, Err(AuthError::Invalid.into()), "{garbage:.10}");
        }
        assert_eq!(asked(), 0);
        // Another issuer's, also where it is signed by our key.
        claims["iss"] = json!("https://kubernetes.default.svc");
        let other = signed_with(SEED, &header, &claims);
        let credential = both.authenticate(&other, NOW_MS).await.unwrap();
        assert_eq!(credential.bound, Bound::Account { uid: "u".into() });
        assert_eq!(asked(), 1);
        // Without a reviewer nobody knows it.
        assert_eq!(verifiers().authenticate(&other, NOW_MS).await, Err(AuthError::Invalid.into()));
        for (answer, expected) in
            [(ReviewError::Refused, AuthError::Invalid.into()), (ReviewError::Unavailable, Unknown::Unavailable)]
        {
            let refusing = verifiers().with_reviewer(Arc::new(Fake { answer: Some(answer), ..Fake::default() }));
            assert_eq!(refusing.authenticate(&other, NOW_MS).await, Err(expected));
        }
    }
}
