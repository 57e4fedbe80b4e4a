//! The HTTPS client that stores are asked with: it trusts the operator's CA and nothing else.

use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum StoreHttpError {
    /// The CA's file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// It.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It holds no certificate, or TLS cannot be set up.
    #[error("{path} cannot be used as a CA")]
    Ca {
        /// It.
        path: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// It holds no certificate.
    #[error("{path} holds no certificate")]
    Empty {
        /// It.
        path: String,
    },
}

#[derive(Debug)]
struct Current {
    client: reqwest::Client,
    pem: Vec<u8>,
}

/// See the module's head. Renewed when the CA's file changes.
#[derive(Debug)]
pub struct StoreHttp {
    ca: PathBuf,
    /// Names that resolve to a given address: for tests, where there is no cluster DNS.
    resolve: Vec<(String, std::net::SocketAddr)>,
    current: RwLock<Current>,
}

impl StoreHttp {
    /// A client that trusts the certificates of a file. The process must have installed its rustls provider.
    pub fn open(ca: impl Into<PathBuf>) -> Result<Self, StoreHttpError> {
        Self::resolving(ca, Vec::new())
    }

    /// [`Self::open`], with addresses for names that no DNS knows.
    pub fn resolving(
        ca: impl Into<PathBuf>,
        resolve: Vec<(String, std::net::SocketAddr)>,
    ) -> Result<Self, StoreHttpError> {
        let ca = ca.into();
        let current = RwLock::new(make(&ca, &resolve)?);
        Ok(Self { ca, resolve, current })
    }

    /// The client now.
    pub(super) fn client(&self) -> reqwest::Client {
        self.current.read().unwrap_or_else(PoisonError::into_inner).client.clone()
    }

    /// One look at the file. What cannot be used changes nothing.
    pub(super) fn look(&self) {
        let same = |pem: &[u8]| self.current.read().unwrap_or_else(PoisonError::into_inner).pem == pem;
        if std::fs::read(&self.ca).is_ok_and(|pem| same(&pem)) {
            return;
        }
        match make(&self.ca, &self.resolve) {
            Ok(current) => {
                tracing::info!("the CA of stores was renewed");
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
            }
            Err(error) => tracing::warn!(%error, "the CA of stores stays as it was"),
        }
    }
}

fn make(ca: &Path, resolve: &[(String, std::net::SocketAddr)]) -> Result<Current, StoreHttpError> {
    let path = || ca.display().to_string();
    let pem = std::fs::read(ca).map_err(|source| StoreHttpError::Read { path: path(), source })?;
    let unusable = |source| StoreHttpError::Ca { path: path(), source };
    let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(unusable)?;
    if certificates.is_empty() {
        return Err(StoreHttpError::Empty { path: path() });
    }
    let mut builder = reqwest::Client::builder()
        .tls_certs_only(certificates)
        .https_only(true)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(2))
        // Idle connections go before the store would close them.
        .pool_idle_timeout(Duration::from_secs(30))
        .tcp_keepalive(Duration::from_secs(15));
    for (name, address) in resolve {
        builder = builder.resolve(name, *address);
    }
    let client = builder.build().map_err(unusable)?;
    Ok(Current { client, pem })
}
