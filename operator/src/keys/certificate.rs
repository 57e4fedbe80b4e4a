//! The CA and the certificates it signs: P-256, renewed when a third of their time is left.
//!
//! Which names, which CA and until when stand in a stamp beside the certificate, so that whether it is still good is
//! read without parsing it. The stamp holds a hash of certificate and key too: a pair changed by hand is issued anew.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use lanekeeper_core::secret::Secret as Hidden;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use sha2::{Digest as _, Sha256};

use crate::apply::hex;
use crate::error::Error;

/// How long a CA is good, seconds.
const AUTHORITY_S: i64 = 10 * 365 * 86_400;
/// How long a certificate is good, seconds.
const LEAF_S: i64 = 90 * 86_400;
/// For clocks that are behind, seconds.
const EARLIER_S: i64 = 300;

/// A CA with its key.
#[derive(Debug)]
pub struct Authority {
    certificate: String,
    issuer: Hidden<Issuer<'static, KeyPair>>,
    id: String,
}

impl Authority {
    /// A new one: certificate and key, PEM.
    pub fn make(now: Timestamp) -> Result<(String, String), Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(Error::Certificate)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = named("Lanekeeper CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        good_for(&mut params, now, AUTHORITY_S);
        let certificate = params.self_signed(&key).map_err(Error::Certificate)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// From PEM.
    pub fn read(certificate: &str, key: &str) -> Result<Self, rcgen::Error> {
        let issuer = Issuer::from_ca_cert_pem(certificate, KeyPair::from_pem(key)?)?;
        let id = short(&[certificate.as_bytes()]);
        Ok(Self { certificate: certificate.to_owned(), issuer: Hidden::new(issuer), id })
    }

    /// Its certificate, PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// What tells it from another.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// A certificate that should be.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// Its DNS names; the first is its common name if it is short enough.
    pub names: &'a [String],
    /// Who signs it.
    pub authority: &'a Authority,
    /// Now.
    pub now: Timestamp,
    /// False: one that is old is left.
    pub renew: bool,
}

/// A certificate that is.
#[derive(Debug)]
pub struct Pair {
    /// PEM.
    pub certificate: Vec<u8>,
    /// PEM.
    pub key: Vec<u8>,
    /// For the annotation beside it.
    pub stamp: String,
    /// When it is to be renewed.
    pub due: Timestamp,
}

/// Keeps what is there (certificate, key and their stamp) if it is what is wanted and young enough.
pub fn keep_or_issue(wanted: &Wanted<'_>, stored: Option<(&[u8], &[u8])>, stamp: Option<&str>) -> Result<Pair, Error> {
    let Wanted { names, authority, now, renew } = wanted;
    let about = short(&[authority.id.as_bytes(), names.join(",").as_bytes()]);
    if let Some((certificate, key)) = stored
        && let Some(until) = stamp.and_then(|stamp| good_until(stamp, &about, &short(&[certificate, key])))
    {
        let due = renewal(until);
        if *now < due || !renew {
            let stamp = stamp.unwrap_or_default().to_owned();
            return Ok(Pair { certificate: certificate.to_vec(), key: key.to_vec(), stamp, due });
        }
    }
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(Error::Certificate)?;
    let mut params = CertificateParams::new(names.to_vec()).map_err(Error::Certificate)?;
    // A common name has at most 64 characters; clients look at the other names.
    params.distinguished_name = named(names.first().filter(|name| name.len() <= 64).map_or("lanekeeper", |name| name));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let until = good_for(&mut params, *now, LEAF_S);
    let signed = params.signed_by(&key, authority.issuer.expose()).map_err(Error::Certificate)?;
    let (certificate, key) = (signed.pem().into_bytes(), key.serialize_pem().into_bytes());
    let stamp = format!("{about}.{}.{until}", short(&[&certificate, &key]));
    Ok(Pair { certificate, key, stamp, due: renewal(until) })
}

/// Seconds since the epoch until which the stamped certificate is good, if it is the one.
fn good_until(stamp: &str, about: &str, sum: &str) -> Option<i64> {
    let mut parts = stamp.split('.');
    let same = parts.next() == Some(about) && parts.next() == Some(sum);
    let until = parts.next()?.parse().ok()?;
    (same && parts.next().is_none()).then_some(until)
}

fn renewal(until: i64) -> Timestamp {
    Timestamp::from_second(until.saturating_sub(LEAF_S / 3)).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn named(name: &str) -> DistinguishedName {
    let mut all = DistinguishedName::new();
    all.push(DnType::CommonName, name);
    all
}

/// Sets the span; returns its end in seconds since the epoch.
fn good_for(params: &mut CertificateParams, now: Timestamp, seconds: i64) -> i64 {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |second: i64| epoch + Duration::from_secs(u64::try_from(second).unwrap_or(0));
    let until = now.as_second().saturating_add(seconds);
    params.not_before = at(now.as_second().saturating_sub(EARLIER_S));
    params.not_after = at(until);
    until
}

/// The first 16 hex digits of the SHA-256 of length-prefixed parts.
pub(crate) fn short(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex(&hash.finalize()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(now: Timestamp) -> Authority {
        let (certificate, key) = Authority::make(now).unwrap();
        Authority::read(&certificate, &key).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn a_good_certificate_is_kept_and_an_old_or_foreign_or_changed_one_is_not() {
        let (ours, other) = (authority(at(0)), authority(at(0)));
        let names = ["lane-bob-0.lane-bob.team.svc".to_owned()];
        let wanted = |now, authority, renew| Wanted { names: &names, authority, now, renew };
        let first = keep_or_issue(&wanted(at(0), &ours, true), None, None).unwrap();
        let again = |wanted: &Wanted<'_>, certificate: &[u8], stamp: &str| {
            keep_or_issue(wanted, Some((certificate, &first.key)), Some(stamp)).unwrap().certificate == certificate
        };
        let (certificate, stamp) = (&first.certificate, first.stamp.as_str());
        assert!(again(&wanted(at(59 * 86_400), &ours, true), certificate, stamp));
        assert!(!again(&wanted(at(61 * 86_400), &ours, true), certificate, stamp), "a third is left");
        assert!(again(&wanted(at(61 * 86_400), &ours, false), certificate, stamp), "a suspended lane costs nothing");
        assert!(!again(&wanted(at(1), &other, true), certificate, stamp), "another CA");
        assert!(!again(&wanted(at(1), &ours, true), b"garbage", stamp), "changed by hand");
        assert!(!again(&wanted(at(1), &ours, true), certificate, "x"), "no stamp");
        let names = ["another.svc".to_owned()];
        assert!(!again(&Wanted { names: &names, authority: &ours, now: at(1), renew: true }, certificate, stamp));
    }

    #[test]
    fn what_is_no_authority_is_refused() {
        let (certificate, key) = Authority::make(at(0)).unwrap();
        assert!(Authority::read(&certificate, &key).is_ok());
        assert!(Authority::read("x", &key).is_err());
        assert!(Authority::read(&certificate, "x").is_err());
    }
}
