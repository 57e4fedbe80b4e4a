//! The lane's Secret as files: attestation keys and certificate, renewed in place.
//!
//! What must always hold: what cannot be read is not taken, the last good state stays and the log says so; a
//! certificate counts only with the key that belongs to it. Files are compared by content: the kubelet swaps a
//! whole folder behind a link, and a time stamp can lie.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum_server::tls_rustls::RustlsConfig;
use lanekeeper_core::attest::LaneKey;
use lanekeeper_core::cluster::key;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OnceCell, watch};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// It.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{path} must hold {rule}")]
    Malformed {
        /// It.
        path: String,
        /// The rule.
        rule: &'static str,
    },
    /// Certificate and key make no server.
    #[error("tls.crt and tls.key of {path} cannot be used")]
    Tls {
        /// Their folder.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// See the module's head.
#[derive(Debug)]
pub struct Secrets {
    folder: PathBuf,
    keys: RwLock<Arc<Vec<LaneKey>>>,
    tls: OnceCell<RustlsConfig>,
    /// Of the pair that is served.
    pair: RwLock<[u8; 32]>,
}

impl Secrets {
    /// Reads the attestation keys of a folder.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, SecretsError> {
        let folder = folder.into();
        let keys = RwLock::new(Arc::new(read_keys(&folder)?));
        Ok(Self { folder, keys, tls: OnceCell::new(), pair: RwLock::default() })
    }

    /// The keys that attestations may be under now.
    pub(super) fn keys(&self) -> Arc<Vec<LaneKey>> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The server's TLS, which [`Self::follow`] renews.
    pub(super) async fn tls(&self) -> Result<RustlsConfig, SecretsError> {
        let (certificate, key) = self.read_pair()?;
        let hash = pair_hash(&certificate, &key);
        let config = RustlsConfig::from_pem(certificate, key).await.map_err(|source| self.unusable(source))?;
        *self.pair.write().unwrap_or_else(PoisonError::into_inner) = hash;
        Ok(self.tls.get_or_init(|| async { config }).await.clone())
    }

    fn unusable(&self, source: std::io::Error) -> SecretsError {
        SecretsError::Tls { path: self.folder.display().to_string(), source }
    }

    fn read_pair(&self) -> Result<(Vec<u8>, Vec<u8>), SecretsError> {
        Ok((read(&self.folder.join(key::TLS_CERTIFICATE))?, read(&self.folder.join(key::TLS_KEY))?))
    }

    /// Looks at the files until it is told to stop.
    pub(super) async fn follow(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => self.look().await,
                changed = stop.changed() => if changed.is_err() || *stop.borrow() { return },
            }
        }
    }

    /// One look.
    pub(super) async fn look(&self) {
        match read_keys(&self.folder) {
            Ok(keys) => {
                let known: Vec<_> = self.keys().iter().map(|key| (key.version(), *key.expose())).collect();
                if keys.iter().map(|key| (key.version(), *key.expose())).ne(known) {
                    let versions: Vec<u32> = keys.iter().map(LaneKey::version).collect();
                    tracing::info!(?versions, "the attestation keys were renewed");
                    *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
                }
            }
            Err(error) => tracing::warn!(%error, "the attestation keys stay as they were"),
        }
        if let Err(error) = self.renew_tls().await {
            tracing::warn!(%error, "the certificate stays as it was");
        }
    }

    async fn renew_tls(&self) -> Result<(), SecretsError> {
        let Some(config) = self.tls.get() else { return Ok(()) };
        let (certificate, key) = self.read_pair()?;
        let hash = pair_hash(&certificate, &key);
        if *self.pair.read().unwrap_or_else(PoisonError::into_inner) == hash {
            return Ok(());
        }
        // Read between two writes, the two do not belong together: refused here, and read again.
        config.reload_from_pem(certificate, key).await.map_err(|source| self.unusable(source))?;
        *self.pair.write().unwrap_or_else(PoisonError::into_inner) = hash;
        tracing::info!("the certificate was renewed");
        Ok(())
    }
}

fn pair_hash(certificate: &[u8], key: &[u8]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update((certificate.len() as u64).to_be_bytes());
    hasher.update(certificate);
    hasher.update(key);
    hasher.finalize().into()
}

fn read(path: &Path) -> Result<Vec<u8>, SecretsError> {
    std::fs::read(path).map_err(|source| SecretsError::Read { path: path.display().to_string(), source })
}

/// The key now and, during a rotation, the one before.
fn read_keys(folder: &Path) -> Result<Vec<LaneKey>, SecretsError> {
    let mut keys = vec![read_key(folder, key::ATTESTATION, key::ATTESTATION_VERSION)?];
    match read_key(folder, key::ATTESTATION_PREVIOUS, key::ATTESTATION_VERSION_PREVIOUS) {
        Ok(key) => keys.push(key),
        Err(SecretsError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(keys)
}

fn read_key(folder: &Path, key: &str, version: &str) -> Result<LaneKey, SecretsError> {
    let malformed = |path: &Path, rule| SecretsError::Malformed { path: path.display().to_string(), rule };
    let path = folder.join(key);
    let key: [u8; 32] = read(&path)?.try_into().map_err(|_| malformed(&path, "32 bytes"))?;
    let path = folder.join(version);
    let version = String::from_utf8(read(&path)?).ok().and_then(|text| text.trim().parse().ok());
    Ok(LaneKey::new(version.ok_or_else(|| malformed(&path, "a decimal number"))?, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, suffix: &str, key: &[u8], version: &str) {
        std::fs::write(folder.join(format!("attestation.key{suffix}")), key).unwrap();
        std::fs::write(folder.join(format!("attestation.version{suffix}")), version).unwrap();
    }

    #[tokio::test]
    async fn keys_are_renewed_in_place_and_a_bad_file_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(Secrets::open(folder.path()), Err(SecretsError::Read { .. })));
        write(folder.path(), "", &[1; 32], "1\n");
        let secrets = Secrets::open(folder.path()).unwrap();
        let versions = || secrets.keys().iter().map(LaneKey::version).collect::<Vec<_>>();
        assert_eq!(versions(), [1]);
        write(folder.path(), ".previous", &[1; 32], "1");
        write(folder.path(), "", &[2; 32], "2");
        secrets.look().await;
        assert_eq!(versions(), [2, 1]);
        assert_eq!(secrets.keys()[0].expose(), &[2; 32]);
        for (key, version) in [(&[3; 31][..], "3"), (&[3; 32], "three")] {
            write(folder.path(), "", key, version);
            secrets.look().await;
            assert_eq!(versions(), [2, 1]);
        }
    }
}
