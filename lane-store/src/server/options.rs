//! The command line of `lanekeeper-store`, as docs/cluster-contract.md has it, and the parts it asks for.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use async_trait::async_trait;
use lanekeeper_core::clock::Clock;
use lanekeeper_core::encoder::Encoder;
use lanekeeper_core::fingerprint::{Fingerprint, FingerprintFields};
use lanekeeper_core::lane::{LaneKind, Language, ProjectedRoles};
use lanekeeper_core::wire::events::TurnRole;
use lanekeeper_core::{LaneName, LaneUid, LogId};
use lanekeeper_embedder::{ExternalConfig, ExternalEncoder, RemoteConfig, RemoteEncoder};
use lanekeeper_federation::{KubeRegistry, Registry};

use super::lane::Opener;
use crate::error::StoreError;
use crate::store::{LaneConfig, LaneParts, LaneSettings, LaneStore};
use crate::vectors::VectorStore;

/// Where a lane's vectors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// On a Qdrant server.
    Qdrant,
    /// In this process, on the lane's volume.
    Edge,
}

fn kind(text: &str) -> Result<LaneKind, &'static str> {
    match text {
        "personal" => Ok(LaneKind::Personal),
        "corpus" => Ok(LaneKind::Corpus),
        _ => Err("must be personal or corpus"),
    }
}

fn language(text: &str) -> Result<Language, &'static str> {
    match text {
        "english" => Ok(Language::English),
        "german" => Ok(Language::German),
        "french" => Ok(Language::French),
        "spanish" => Ok(Language::Spanish),
        "none" => Ok(Language::None),
        _ => Err("must be english, german, french, spanish or none"),
    }
}

fn role(text: &str) -> Result<TurnRole, &'static str> {
    text.parse().map_err(|()| "must be user, assistant, tool or system")
}

fn fields(text: &str) -> Result<FingerprintFields, String> {
    serde_json::from_str(text).map_err(|error| format!("must be the fields of a fingerprint as JSON: {error}"))
}

/// One lane's store, as a server.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "lanekeeper-store", version)]
pub struct Options {
    /// `namespace/name`.
    #[arg(long, env = "LANEKEEPER_LANE")]
    pub lane: LaneName,
    /// What the name is bound to.
    #[arg(long, env = "LANEKEEPER_LANE_UID")]
    pub lane_uid: LaneUid,
    /// `personal` or `corpus`.
    #[arg(long, env = "LANEKEEPER_KIND", value_parser = kind)]
    pub kind: LaneKind,
    /// `<namespace>.<collection>`: the name of the record.
    #[arg(long, env = "LANEKEEPER_COLLECTION")]
    pub collection: String,
    /// The log's identity, 64 hex digits.
    #[arg(long, env = "LANEKEEPER_LOG_ID")]
    pub log_id: LogId,
    /// The embedding that vectors are made with, 64 hex digits.
    #[arg(long, env = "LANEKEEPER_FINGERPRINT")]
    pub fingerprint: Fingerprint,
    /// Length of a vector.
    #[arg(long, env = "LANEKEEPER_DIMENSION")]
    pub dimension: usize,
    /// Roles whose turns get vectors.
    #[arg(long, env = "LANEKEEPER_ROLES", value_delimiter = ',', value_parser = role, default_value = "assistant")]
    pub roles: Vec<TurnRole>,
    /// Stop words and stemmer.
    #[arg(long, env = "LANEKEEPER_LANGUAGE", value_parser = language, default_value = "english")]
    pub language: Language,
    /// The cosine below which a hit that only vectors found is dropped. Left out: measured.
    #[arg(long, env = "LANEKEEPER_MIN_SCORE", allow_negative_numbers = true)]
    pub min_score: Option<f32>,
    /// The UID of the lane whose log is taken over; the operator has checked the owner.
    #[arg(long, env = "LANEKEEPER_ADOPT")]
    pub adopt: Option<LaneUid>,
    /// The lane's volume.
    #[arg(long, env = "LANEKEEPER_DATA", default_value = "/data")]
    pub data: PathBuf,
    /// The lane's Secret as files.
    #[arg(long, env = "LANEKEEPER_SECRETS", default_value = "/etc/lanekeeper/lane")]
    pub secrets: PathBuf,
    /// The operator's namespace, where the record is.
    #[arg(long, env = "LANEKEEPER_SYSTEM_NAMESPACE", default_value = "lanekeeper-system")]
    pub system_namespace: String,
    /// Where vectors are kept.
    #[arg(long, env = "LANEKEEPER_ENGINE", value_enum, default_value = "qdrant")]
    pub engine: Engine,
    /// Qdrant's gRPC address.
    #[arg(long, env = "LANEKEEPER_QDRANT_URL", required_if_eq("engine", "qdrant"))]
    pub qdrant_url: Option<String>,
    /// The CA of a Qdrant over TLS.
    #[arg(long, env = "LANEKEEPER_QDRANT_CA_FILE")]
    pub qdrant_ca_file: Option<PathBuf>,
    /// The lane's embedder: ours, unless --embedder-fields says otherwise.
    #[arg(long, env = "LANEKEEPER_EMBEDDER_URL")]
    pub embedder_url: String,
    /// The fields of the fingerprint as JSON, for a server with the OpenAI API.
    #[arg(long, env = "LANEKEEPER_EMBEDDER_FIELDS", value_parser = fields)]
    pub embedder_fields: Option<FingerprintFields>,
    /// The store protocol and the probes, over TLS.
    #[arg(long, env = "LANEKEEPER_LISTEN", default_value = "[::]:7443")]
    pub listen: SocketAddr,
    /// Metrics, in the clear.
    #[arg(long, env = "LANEKEEPER_METRICS", default_value = "[::]:9090")]
    pub metrics: SocketAddr,
    /// The pod's UID: the holder in the record.
    #[arg(long, env = "POD_UID")]
    pub pod_uid: String,
}

impl Options {
    /// What the lane is opened as.
    #[must_use]
    pub fn lane_config(&self) -> LaneConfig {
        LaneConfig {
            folder: self.data.clone(),
            lane: self.lane.clone(),
            uid: self.lane_uid,
            kind: self.kind,
            collection: self.collection.clone(),
            adopt: self.adopt,
            settings: LaneSettings {
                language: self.language,
                projected_roles: self.roles.iter().copied().collect::<ProjectedRoles>(),
                min_score: self.min_score,
            },
        }
    }

    /// The lane's encoder.
    pub fn encoder(&self) -> anyhow::Result<Arc<dyn Encoder>> {
        let Some(fields) = &self.embedder_fields else {
            let config = RemoteConfig::new(&self.embedder_url, self.fingerprint, self.dimension);
            return Ok(Arc::new(RemoteEncoder::new(config).context("--embedder-url")?));
        };
        anyhow::ensure!(
            fields.fingerprint() == self.fingerprint && fields.dimension as usize == self.dimension,
            "--embedder-fields make another fingerprint or dimension than --fingerprint and --dimension"
        );
        let mut config = ExternalConfig::new(&self.embedder_url, fields.clone());
        let token = self.secrets.join("embedder.token");
        config.token_file = token.exists().then_some(token);
        Ok(Arc::new(ExternalEncoder::new(config).context("--embedder-url")?))
    }
}

/// Opens the lane of the command line.
#[derive(Debug)]
struct FromOptions {
    options: Options,
    registry: Arc<dyn Registry>,
    encoder: Arc<dyn Encoder>,
    clock: Arc<dyn Clock>,
}

impl FromOptions {
    async fn vectors(&self) -> Result<Option<Arc<dyn VectorStore>>, StoreError> {
        use crate::vectors::qdrant::{QdrantLimits, QdrantSettings, QdrantStore};
        let (Engine::Qdrant, Some(url)) = (self.options.engine, &self.options.qdrant_url) else {
            return Ok(None);
        };
        let store = QdrantStore::connect(QdrantSettings {
            url: url.clone(),
            credential_file: Some(self.options.secrets.join("qdrant.jwt")),
            ca_file: self.options.qdrant_ca_file.clone(),
            alias: self.options.collection.clone(),
            fingerprint: self.options.fingerprint,
            dimension: self.options.dimension,
            registry: Arc::clone(&self.registry),
            limits: QdrantLimits::default(),
        })
        .await
        .map_err(|error| StoreError::Vectors(error.to_string()))?;
        Ok(Some(store))
    }
}

#[async_trait]
impl Opener for FromOptions {
    async fn open(&self) -> Result<Arc<LaneStore>, StoreError> {
        let parts = LaneParts {
            registry: Arc::clone(&self.registry),
            encoder: Arc::clone(&self.encoder),
            vectors: self.vectors().await?,
            clock: Arc::clone(&self.clock),
        };
        LaneStore::open(self.options.lane_config(), parts).await
    }
}

/// What opens the lane in a cluster: its record through `client`.
pub fn parts(options: &Options, client: kube::Client, clock: Arc<dyn Clock>) -> anyhow::Result<Arc<dyn Opener>> {
    let registry =
        KubeRegistry::for_store(client, &options.system_namespace, options.pod_uid.clone(), options.lane_uid);
    Ok(Arc::new(FromOptions {
        registry: Arc::new(registry),
        encoder: options.encoder()?,
        clock,
        options: options.clone(),
    }))
}
