//! The service's certificate, renewed in place.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use axum_server::tls_rustls::RustlsConfig;
use lanekeeper_core::cluster::key;
use sha2::{Digest as _, Sha256};

/// Certificate and key of a folder. One that does not belong to the other changes nothing.
#[derive(Debug)]
pub(super) struct Certificate {
    folder: PathBuf,
    config: RustlsConfig,
    served: Mutex<[u8; 32]>,
}

fn read(folder: &Path) -> std::io::Result<(Vec<u8>, Vec<u8>, [u8; 32])> {
    let (certificate, key) =
        (std::fs::read(folder.join(key::TLS_CERTIFICATE))?, std::fs::read(folder.join(key::TLS_KEY))?);
    let mut hasher = Sha256::new();
    hasher.update((certificate.len() as u64).to_be_bytes());
    hasher.update(&certificate);
    hasher.update(&key);
    let hash = hasher.finalize().into();
    Ok((certificate, key, hash))
}

impl Certificate {
    pub(super) async fn open(folder: &Path) -> std::io::Result<Self> {
        let (certificate, key, hash) = read(folder)?;
        let config = RustlsConfig::from_pem(certificate, key).await?;
        Ok(Self { folder: folder.to_owned(), config, served: Mutex::new(hash) })
    }

    pub(super) fn config(&self) -> RustlsConfig {
        self.config.clone()
    }

    /// One look at the files.
    pub(super) async fn look(&self) {
        let renewed = async {
            let (certificate, key, hash) = read(&self.folder)?;
            if *self.served.lock().unwrap_or_else(PoisonError::into_inner) == hash {
                return Ok(false);
            }
            self.config.reload_from_pem(certificate, key).await?;
            *self.served.lock().unwrap_or_else(PoisonError::into_inner) = hash;
            Ok::<_, std::io::Error>(true)
        };
        match renewed.await {
            Ok(true) => tracing::info!("the certificate was renewed"),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the certificate stays as it was"),
        }
    }
}
