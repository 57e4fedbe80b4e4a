//! The attestation: how query-service proves to a lane's store who asks, what that may be, and for which
//! very request.
//!
//! `v1.<base64url of a JSON statement>.<base64url of a MAC>`. The MAC is HMAC-SHA256 under the lane's key over
//! a tag and, each with its length before it: the JSON as sent, the method, the path with its query, the
//! SHA-256 of the body, Idempotency-Key, If-Match. A header that is absent and one that is empty differ.
//!
//! What must always hold
//! - Everything here is pure: the clock is handed in, and so is what remembers nonces ([`Nonces`]).
//! - A [`Proven`] is made here alone, after the MAC held, and a nonce is used up last: a refused attestation
//!   consumes nothing.
//! - Nothing is believed of a statement before its MAC held. What is checked before ([`Claimed::read`]) can only
//!   refuse, so that a store does not read the body of whoever guesses.
//!
//! # Caveats
//! - Nonces do not survive a restart of the store: statements issued before its start are refused instead. A
//!   query-service whose clock runs behind is therefore refused for as long as it is behind, once.

use std::collections::{HashSet, VecDeque};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use uuid::Uuid;

use crate::hooks::guard;
use crate::ids::{LaneUid, LogId};
use crate::principal::Principal;
use crate::scope::EffectiveScope;
use crate::secret::Secret;

/// The header's name, as HTTP libraries want it.
pub const HEADER: &str = "lanekeeper-attestation";
/// The one version there is.
pub const VERSION: u32 = 1;
/// How far a statement's time of issue may lie from the store's clock, milliseconds.
pub const SKEW_MS: i64 = 30_000;
/// How long a nonce is remembered, milliseconds. More than twice [`SKEW_MS`], so that a statement is out of date
/// before its nonce is forgotten.
pub const NONCE_MS: i64 = 90_000;
/// Longest header read, bytes. A narrowing scope is the only part that can be long.
pub const MAX_BYTES: usize = 32 * 1024;

const MAC_TAG: &[u8] = b"lanekeeper/attest/v1";
const KEY_TAG: &[u8] = b"lanekeeper/attest/key/v1";
/// Stands for the length of a header that was not sent; no header is that long.
const ABSENT: u64 = u64::MAX;

/// A lane's key, by its version.
#[derive(Debug, Clone)]
pub struct LaneKey {
    version: u32,
    key: Secret<[u8; 32]>,
}

impl LaneKey {
    /// A key as the lane's Secret holds it.
    #[must_use]
    pub const fn new(version: u32, key: [u8; 32]) -> Self {
        Self { version, key: Secret::new(key) }
    }

    /// A lane's key from the master key: HKDF-SHA256 without salt, info = tag ‖ lane UID (16 bytes) ‖ version (u32,
    /// big endian).
    #[must_use]
    pub fn derive(master: &[u8; 32], lane: LaneUid, version: u32) -> Self {
        let info = [KEY_TAG, lane.as_uuid().as_bytes(), &version.to_be_bytes()].concat();
        Self::new(version, hkdf_sha256(master, &info))
    }

    /// Its version.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The bytes, for whoever writes them into the lane's Secret.
    #[must_use]
    pub const fn expose(&self) -> &[u8; 32] {
        self.key.expose()
    }
}

fn hmac_sha256(key: &[u8]) -> Hmac<Sha256> {
    // A key of any length is taken: a long one is hashed, a short one padded.
    let Ok(mac) = <Hmac<Sha256> as KeyInit>::new_from_slice(key) else {
        unreachable!("HMAC takes a key of any length")
    };
    mac
}

/// RFC 5869 with an empty salt, the first 32 bytes.
fn hkdf_sha256(ikm: &[u8], info: &[u8]) -> [u8; 32] {
    let mut okm = [0; 32];
    if Hkdf::<Sha256>::new(None, ikm).expand(info, &mut okm).is_err() {
        unreachable!("32 bytes are far below HKDF's limit")
    }
    okm
}

/// What query-service states. Serialised once, and believed as it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// [`VERSION`].
    pub v: u32,
    /// Which of the lane's keys.
    pub key_version: u32,
    /// The lane that is asked, by what its name is bound to.
    pub lane_uid: LaneUid,
    /// Its log: a store that was given another file refuses.
    pub log_id: LogId,
    /// Who asks; absent where query-service asks for itself (`/v1/store/status`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Principal>,
    /// Set where the lane is read through another lane's `reads`: that lane's UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading_lane: Option<LaneUid>,
    /// What the principal may do; absent exactly where the principal is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<EffectiveScope>,
    /// After this nobody waits for the answer; milliseconds since the epoch.
    pub deadline_ms: i64,
    /// When this was stated; milliseconds since the epoch.
    pub issued_at_ms: i64,
    /// 16 random bytes, used once.
    pub nonce: Uuid,
}

/// The request that a statement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// `POST`, `GET`.
    pub method: &'a str,
    /// As in the request line.
    pub path_and_query: &'a str,
    /// SHA-256 of the whole body, of nothing where there is none.
    pub body_sha256: &'a [u8; 32],
    /// The header, if it was sent.
    pub idempotency_key: Option<&'a [u8]>,
    /// The header, if it was sent.
    pub if_match: Option<&'a [u8]>,
}

fn mac(key: &LaneKey, json: &[u8], request: &Request<'_>) -> Hmac<Sha256> {
    let Request { method, path_and_query, body_sha256, idempotency_key, if_match } = request;
    let mut mac = hmac_sha256(key.key.expose());
    mac.update(MAC_TAG);
    let parts = [
        Some(json),
        Some(method.as_bytes()),
        Some(path_and_query.as_bytes()),
        Some(body_sha256.as_slice()),
        *idempotency_key,
        *if_match,
    ];
    for part in parts {
        match part {
            Some(bytes) => {
                mac.update(&(bytes.len() as u64).to_be_bytes());
                mac.update(bytes);
            }
            None => mac.update(&ABSENT.to_be_bytes()),
        }
    }
    mac
}

/// The header for a statement about a request. `None` only if the statement cannot be written as JSON, which
/// none of its types allows.
#[must_use]
pub fn sign(key: &LaneKey, statement: &Statement, request: &Request<'_>) -> Option<String> {
    let json = serde_json::to_vec(statement).ok()?;
    let mac = mac(key, &json, request).finalize().into_bytes();
    Some(format!("v1.{}.{}", URL_SAFE_NO_PAD.encode(&json), URL_SAFE_NO_PAD.encode(mac)))
}

/// Why an attestation is refused. For the store's log and metric only: the caller learns no more than
/// `attestation_refused`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// No header, or several.
    #[error("there is no attestation, or more than one")]
    Missing,
    /// Not of the form.
    #[error("the attestation is not of the form")]
    Malformed,
    /// Another version of the form.
    #[error("the attestation is of another version")]
    OtherVersion,
    /// A key version that the store does not hold.
    #[error("the attestation is under a key version that the store does not hold")]
    OtherKeyVersion,
    /// For another lane.
    #[error("the attestation is for another lane")]
    OtherLane,
    /// For another log of this lane.
    #[error("the attestation is for another log")]
    OtherLog,
    /// Issued too long ago, or too far ahead.
    #[error("the attestation was issued more than 30 s from now")]
    Stale,
    /// Issued before the store started, so its nonce may have been used.
    #[error("the attestation was issued before the store started")]
    BeforeStart,
    /// Nobody waits any more.
    #[error("the attestation's deadline has passed")]
    DeadlinePassed,
    /// The request is not the one that was attested, or the key is another.
    #[error("the attestation does not fit the request")]
    WrongMac,
    /// Used before.
    #[error("the attestation was used before")]
    Replayed,
    /// More attested requests in 90 s than are remembered.
    #[error("too many attestations to remember")]
    TooMany,
}

impl Refused {
    /// A stable label.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::OtherVersion => "other_version",
            Self::OtherKeyVersion => "other_key_version",
            Self::OtherLane => "other_lane",
            Self::OtherLog => "other_log",
            Self::Stale => "stale",
            Self::BeforeStart => "before_start",
            Self::DeadlinePassed => "deadline_passed",
            Self::WrongMac => "wrong_mac",
            Self::Replayed => "replayed",
            Self::TooMany => "too_many",
        }
    }
}

/// What remembers nonces.
pub trait Nonces {
    /// Takes a nonce if it is new. Called after everything else held.
    fn take(&mut self, nonce: Uuid, now_ms: i64) -> Result<(), Refused>;
}

/// Nonces of the last [`NONCE_MS`], in memory, at most so many.
#[derive(Debug)]
pub struct NonceWindow {
    seen: HashSet<Uuid>,
    order: VecDeque<(i64, Uuid)>,
    limit: usize,
}

impl NonceWindow {
    /// Remembers at most `limit` nonces; while it is full everything is refused.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { seen: HashSet::new(), order: VecDeque::new(), limit }
    }
}

impl Nonces for NonceWindow {
    fn take(&mut self, nonce: Uuid, now_ms: i64) -> Result<(), Refused> {
        // A clock that goes backwards forgets nothing.
        while let Some((_, old)) = self.order.front().copied().filter(|(at, _)| now_ms.saturating_sub(*at) > NONCE_MS) {
            self.seen.remove(&old);
            self.order.pop_front();
        }
        if self.seen.contains(&nonce) && guard("nonce") {
            return Err(Refused::Replayed);
        }
        if self.order.len() >= self.limit {
            return Err(Refused::TooMany);
        }
        self.seen.insert(nonce);
        self.order.push_back((now_ms, nonce));
        Ok(())
    }
}

/// Whom a store takes attestations as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreIdentity {
    /// The lane.
    pub lane_uid: LaneUid,
    /// Its log.
    pub log_id: LogId,
    /// When the store started, milliseconds since the epoch.
    pub started_at_ms: i64,
}

/// A header whose statement could be read and is of this store and this moment. Nothing of it is proven.
#[derive(Debug)]
pub struct Claimed<'k> {
    key: &'k LaneKey,
    json: Vec<u8>,
    mac: Vec<u8>,
    statement: Statement,
    started_at_ms: i64,
}

/// A statement whose MAC held for the request and whose nonce was new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proven(Statement);

impl Proven {
    /// What was stated.
    #[must_use]
    pub const fn statement(&self) -> &Statement {
        &self.0
    }
}

fn check_time(statement: &Statement, started_at_ms: i64, now_ms: i64) -> Result<(), Refused> {
    let age = now_ms.checked_sub(statement.issued_at_ms).ok_or(Refused::Stale)?;
    if !(-SKEW_MS..=SKEW_MS).contains(&age) {
        return Err(Refused::Stale);
    }
    if statement.issued_at_ms <= started_at_ms {
        return Err(Refused::BeforeStart);
    }
    if statement.deadline_ms <= now_ms {
        return Err(Refused::DeadlinePassed);
    }
    Ok(())
}

impl<'k> Claimed<'k> {
    /// Reads a header and refuses what cannot be meant for this store now.
    pub fn read(header: &str, keys: &'k [LaneKey], store: &StoreIdentity, now_ms: i64) -> Result<Self, Refused> {
        if header.len() > MAX_BYTES {
            return Err(Refused::Malformed);
        }
        let mut parts = header.split('.');
        let (Some(form), Some(json), Some(mac), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Err(Refused::Malformed);
        };
        if form != "v1" {
            return Err(Refused::OtherVersion);
        }
        let decode = |text| URL_SAFE_NO_PAD.decode(text).map_err(|_| Refused::Malformed);
        let (json, mac) = (decode(json)?, decode(mac)?);
        let statement: Statement = serde_json::from_slice(&json).map_err(|_| Refused::Malformed)?;
        if statement.v != VERSION {
            return Err(Refused::OtherVersion);
        }
        if statement.principal.is_some() != statement.scope.is_some()
            || (statement.reading_lane.is_some() && statement.principal.is_none())
        {
            return Err(Refused::Malformed);
        }
        let key = keys.iter().find(|key| key.version == statement.key_version).ok_or(Refused::OtherKeyVersion)?;
        if statement.lane_uid != store.lane_uid && guard("attestation_lane") {
            return Err(Refused::OtherLane);
        }
        if statement.log_id != store.log_id {
            return Err(Refused::OtherLog);
        }
        check_time(&statement, store.started_at_ms, now_ms)?;
        Ok(Self { key, json, mac, statement, started_at_ms: store.started_at_ms })
    }

    /// Proves the statement for a request, and uses up its nonce.
    pub fn prove(self, request: &Request<'_>, now_ms: i64, nonces: &mut impl Nonces) -> Result<Proven, Refused> {
        let Self { key, json, mac: sent, statement, started_at_ms } = self;
        // In constant time; a MAC of another length fails too.
        if mac(key, &json, request).verify_slice(&sent).is_err() && guard("attestation") {
            return Err(Refused::WrongMac);
        }
        // Again: the body took its time.
        check_time(&statement, started_at_ms, now_ms)?;
        nonces.take(statement.nonce, now_ms)?;
        Ok(Proven(statement))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sha2::Digest as _;

    use super::*;
    use crate::ids::Hash32;
    use crate::scope::{Role, Scope};

    const NOW: i64 = 1_796_000_000_000;

    fn lane() -> LaneUid {
        LaneUid::from_uuid(Uuid::from_u128(7))
    }

    fn log() -> LogId {
        LogId(Hash32::from_bytes([1; 32]))
    }

    fn store() -> StoreIdentity {
        StoreIdentity { lane_uid: lane(), log_id: log(), started_at_ms: NOW - 60_000 }
    }

    fn key() -> LaneKey {
        LaneKey::derive(&[9; 32], lane(), 3)
    }

    fn statement() -> Statement {
        let principal = Principal::user("bob").unwrap();
        let name = crate::LaneName::new("team", "bob").unwrap();
        let granted = Scope::of_role(&name, lane(), &principal, Role::Writer).unwrap();
        Statement {
            v: VERSION,
            key_version: 3,
            lane_uid: lane(),
            log_id: log(),
            principal: Some(principal),
            reading_lane: None,
            scope: Some(EffectiveScope { granted, narrowed: None }),
            deadline_ms: NOW + 10_000,
            issued_at_ms: NOW,
            nonce: Uuid::from_u128(1),
        }
    }

    fn body() -> [u8; 32] {
        Sha256::digest(b"body").into()
    }

    fn request(body: &[u8; 32]) -> Request<'_> {
        Request {
            method: "POST",
            path_and_query: "/v1/store/append",
            body_sha256: body,
            idempotency_key: Some(b"key-1"),
            if_match: None,
        }
    }

    fn judge_at(header: &str, request: &Request<'_>, nonces: &mut NonceWindow, now_ms: i64) -> Result<Proven, Refused> {
        Claimed::read(header, &[key()], &store(), now_ms)?.prove(request, now_ms, nonces)
    }

    fn judge(header: &str, request: &Request<'_>) -> Result<Proven, Refused> {
        judge_at(header, request, &mut NonceWindow::new(10), NOW)
    }

    fn signed(statement: &Statement) -> String {
        sign(&key(), statement, &request(&body())).unwrap()
    }

    #[test]
    fn the_key_is_hkdf_as_the_rfc_has_it() {
        // RFC 5869, test case 3: no salt, no info; the first 32 of its 42 bytes.
        let okm = Hash32::from_bytes(hkdf_sha256(&[0x0b; 22], b""));
        assert_eq!(okm.to_string(), "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d");
        let keys = [
            LaneKey::derive(&[9; 32], lane(), 3),
            LaneKey::derive(&[9; 32], lane(), 4),
            LaneKey::derive(&[8; 32], lane(), 3),
            LaneKey::derive(&[9; 32], LaneUid::from_uuid(Uuid::from_u128(8)), 3),
        ];
        let distinct: HashSet<_> = keys.iter().map(|key| *key.expose()).collect();
        assert_eq!(distinct.len(), keys.len());
        assert!(format!("{:?}", keys[0]).contains("Secret(…)"), "a key must not be printed");
    }

    #[test]
    fn a_statement_holds_once_for_its_request() {
        let header = signed(&statement());
        let mut nonces = NonceWindow::new(10);
        let proven = judge_at(&header, &request(&body()), &mut nonces, NOW + 1).unwrap();
        assert_eq!(proven.statement(), &statement());
        assert_eq!(judge_at(&header, &request(&body()), &mut nonces, NOW + 2), Err(Refused::Replayed));
        // Remembered for as long as the statement could pass otherwise.
        let late = judge_at(
            &signed(&Statement { deadline_ms: i64::MAX, ..statement() }),
            &request(&body()),
            &mut nonces,
            NOW + 30_000,
        );
        assert_eq!(late, Err(Refused::Replayed));
    }

    #[test]
    fn each_part_of_the_request_is_bound() {
        let (body, other) = (body(), [0; 32]);
        let header = signed(&statement());
        let whole = request(&body);
        let changed = [
            Request { method: "GET", ..whole },
            Request { path_and_query: "/v1/store/forget", ..whole },
            Request { path_and_query: "/v1/store/append?", ..whole },
            Request { body_sha256: &other, ..whole },
            Request { idempotency_key: Some(b"key-2"), ..whole },
            Request { idempotency_key: Some(b""), ..whole },
            Request { idempotency_key: None, ..whole },
            Request { if_match: Some(b""), ..whole },
            Request { if_match: Some(b"v1"), ..whole },
            // The bytes of one header moved to the other.
            Request { idempotency_key: None, if_match: Some(b"key-1"), ..whole },
        ];
        for request in changed {
            assert_eq!(judge(&header, &request), Err(Refused::WrongMac), "{request:?}");
        }
        assert!(judge(&header, &whole).is_ok());
    }

    #[test]
    fn each_field_of_the_statement_is_bound() {
        type Change = fn(&mut Statement);
        let changes: [(&str, Change, Refused); 12] = [
            ("v", |s| s.v = 2, Refused::OtherVersion),
            ("key_version", |s| s.key_version = 2, Refused::OtherKeyVersion),
            ("lane", |s| s.lane_uid = LaneUid::from_uuid(Uuid::from_u128(8)), Refused::OtherLane),
            ("log", |s| s.log_id = LogId(Hash32::from_bytes([2; 32])), Refused::OtherLog),
            ("principal", |s| s.principal = Principal::user("eve").ok(), Refused::WrongMac),
            ("no principal", |s| s.principal = None, Refused::Malformed),
            ("no scope", |s| s.scope = None, Refused::Malformed),
            ("reader", |s| s.reading_lane = Some(lane()), Refused::WrongMac),
            (
                "scope",
                |s| s.scope = Some(EffectiveScope { granted: Scope::nothing(), narrowed: None }),
                Refused::WrongMac,
            ),
            ("deadline", |s| s.deadline_ms += 1, Refused::WrongMac),
            ("issued_at", |s| s.issued_at_ms += 1, Refused::WrongMac),
            ("nonce", |s| s.nonce = Uuid::from_u128(2), Refused::WrongMac),
        ];
        let good = signed(&statement());
        let mac = good.rsplit('.').next().unwrap();
        for (what, change, refused) in changes {
            let mut changed = statement();
            change(&mut changed);
            // The old MAC on a changed statement, as somebody between the two could send it.
            let json = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&changed).unwrap());
            assert_eq!(judge(&format!("v1.{json}.{mac}"), &request(&body())), Err(refused), "{what}");
        }
    }

    #[test]
    fn of_another_key_stale_early_and_late_are_refused() {
        let other = sign(&LaneKey::new(3, [5; 32]), &statement(), &request(&body())).unwrap();
        assert_eq!(judge(&other, &request(&body())), Err(Refused::WrongMac));
        let with = |change: fn(&mut Statement)| {
            let mut changed = statement();
            change(&mut changed);
            judge(&signed(&changed), &request(&body())).map(drop)
        };
        assert_eq!(with(|s| s.issued_at_ms -= 30_000), Ok(()));
        assert_eq!(with(|s| s.issued_at_ms -= 30_001), Err(Refused::Stale));
        assert_eq!(with(|s| s.issued_at_ms += 30_000), Ok(()));
        assert_eq!(with(|s| s.issued_at_ms += 30_001), Err(Refused::Stale));
        assert_eq!(with(|s| s.issued_at_ms = i64::MIN), Err(Refused::Stale));
        assert_eq!(with(|s| s.deadline_ms = NOW), Err(Refused::DeadlinePassed));
        let young = StoreIdentity { started_at_ms: NOW, ..store() };
        let keys = [key()];
        assert_eq!(Claimed::read(&signed(&statement()), &keys, &young, NOW + 1).err(), Some(Refused::BeforeStart));
        // The body took longer than the deadline.
        let mut nonces = NonceWindow::new(10);
        let claimed = Claimed::read(&signed(&statement()), &keys, &store(), NOW);
        let late = claimed.unwrap().prove(&request(&body()), NOW + 10_000, &mut nonces);
        assert_eq!(late, Err(Refused::DeadlinePassed));
        assert!(nonces.order.is_empty(), "a refused attestation uses up no nonce");
    }

    #[test]
    fn both_keys_of_a_rotation_are_taken() {
        let (old, new) = (key(), LaneKey::derive(&[10; 32], lane(), 4));
        let keys = [new, old];
        assert!(Claimed::read(&signed(&statement()), &keys, &store(), NOW).is_ok());
    }

    #[test]
    fn nonces_are_forgotten_in_time_and_never_over_the_limit() {
        let mut nonces = NonceWindow::new(2);
        let nonce = Uuid::from_u128;
        nonces.take(nonce(1), 0).unwrap();
        nonces.take(nonce(2), 0).unwrap();
        assert_eq!(nonces.take(nonce(3), NONCE_MS), Err(Refused::TooMany));
        assert_eq!(nonces.take(nonce(1), NONCE_MS), Err(Refused::Replayed));
        nonces.take(nonce(3), NONCE_MS + 1).unwrap();
        assert_eq!(nonces.seen.len(), 1);
    }

    #[test]
    fn a_form_that_is_none_is_refused() {
        let good = signed(&statement());
        let v2 = good.replacen("v1", "v2", 1);
        assert_eq!(judge(&v2, &request(&body())), Err(Refused::OtherVersion));
        for bad in ["", "v1", "v1..", "v1.e30.", &format!("{good}.x"), &format!("{good}="), &"x".repeat(MAX_BYTES + 1)]
        {
            assert!(judge(bad, &request(&body())).is_err(), "{bad:.40}");
        }
    }

    proptest! {
        #[test]
        fn no_changed_byte_passes(index in 0_usize..600, bit in 0_u8..8) {
            let good = signed(&statement());
            let mut bytes = good.clone().into_bytes();
            let index = index % bytes.len();
            bytes[index] ^= 1 << bit;
            if let Ok(changed) = String::from_utf8(bytes) {
                prop_assert!(judge(&changed, &request(&body())).is_err());
            }
        }
    }
}
