//! The command line of `lanekeeper-query`, as docs/cluster-contract.md has it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use ed25519_dalek::VerifyingKey;
use lanekeeper_core::Hash32;

use crate::auth::{Verifier, Verifiers};

/// The query API in a cluster.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "lanekeeper-query", version)]
pub struct Options {
    /// The operator's namespace: records, embedders.
    #[arg(long, env = "LANEKEEPER_SYSTEM_NAMESPACE", default_value = "lanekeeper-system")]
    pub system_namespace: String,
    /// The API.
    #[arg(long, env = "LANEKEEPER_LISTEN", default_value = "[::]:8443")]
    pub listen: SocketAddr,
    /// `/healthz` and `/readyz`.
    #[arg(long, env = "LANEKEEPER_PROBES", default_value = "[::]:8081")]
    pub probes: SocketAddr,
    /// Metrics.
    #[arg(long, env = "LANEKEEPER_METRICS", default_value = "[::]:9090")]
    pub metrics: SocketAddr,
    /// The folder of `tls.crt`, `tls.key` and `ca.crt`.
    #[arg(long, env = "LANEKEEPER_TLS", default_value = "/etc/lanekeeper/tls")]
    pub tls: PathBuf,
    /// The folder of `master` and `version`.
    #[arg(long, env = "LANEKEEPER_MASTER", default_value = "/etc/lanekeeper/master")]
    pub master: PathBuf,
    /// JSON of own tokens' issuers: `{"ISSUER": {"KEY-ID": "64 hex digits of an Ed25519 public key"}}`.
    #[arg(long, env = "LANEKEEPER_ISSUERS")]
    pub issuers: Option<PathBuf>,
    /// A folder with bearer tokens of external embedders: a file each, named like the Embedder.
    #[arg(long, env = "LANEKEEPER_EMBEDDER_TOKENS")]
    pub embedder_tokens: Option<PathBuf>,
    /// Requests under /v1 that are worked on at once; one more is told to come again.
    #[arg(long, env = "LANEKEEPER_CONCURRENT_REQUESTS", default_value_t = 256)]
    pub concurrent_requests: usize,
    /// Seconds between "not ready" and the end of listening: as long as it takes until nobody sends here any more.
    #[arg(long, env = "LANEKEEPER_DRAIN_DELAY_SECONDS", default_value_t = 5)]
    pub drain_delay_seconds: u64,
    /// No TLS. For tests: the address must be loopback.
    #[arg(long, env = "LANEKEEPER_INSECURE_HTTP")]
    pub insecure_http: bool,
    /// Qdrant's address. Stores talk to it; here it is not used and may be given all the same.
    #[arg(long, env = "LANEKEEPER_QDRANT_URL")]
    pub qdrant_url: Option<String>,
    /// Where traces go (OTLP over HTTP). Without it there are none.
    #[arg(long, env = "LANEKEEPER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
}

impl Options {
    /// See [`Self::drain_delay_seconds`].
    #[must_use]
    pub const fn drain_delay(&self) -> Duration {
        Duration::from_secs(self.drain_delay_seconds)
    }

    /// The issuers of own tokens.
    pub fn verifiers(&self) -> anyhow::Result<Verifiers> {
        match &self.issuers {
            None => Ok(Verifiers::default()),
            Some(path) => issuers(path).with_context(|| format!("--issuers {}", path.display())),
        }
    }
}

fn issuers(path: &Path) -> anyhow::Result<Verifiers> {
    let issuers: BTreeMap<String, BTreeMap<String, Hash32>> = serde_json::from_slice(&std::fs::read(path)?)?;
    let mut verifiers = Vec::new();
    for (issuer, keys) in issuers {
        let keys = keys
            .into_iter()
            .map(|(kid, key)| {
                let key = VerifyingKey::from_bytes(key.as_bytes())
                    .with_context(|| format!("key {kid} of issuer {issuer} is no Ed25519 public key"))?;
                Ok((kid, key))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        verifiers.push(Verifier::new(issuer, keys));
    }
    Ok(Verifiers::new(verifiers)?)
}
