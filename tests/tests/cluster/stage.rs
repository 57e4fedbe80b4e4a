//! A certificate authority, a lane's store behind its server, and the client that query-service asks it with.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lanekeeper_core::clock::SystemClock;
use lanekeeper_core::cluster::{lane_dns_names, lane_host};
use lanekeeper_core::encoder::Encoder;
use lanekeeper_core::testing::HashEncoder;
use lanekeeper_lane_store::server::{Opener, Running, Secrets, ServerSettings, start};
use lanekeeper_lane_store::testing::Stage;
use lanekeeper_lane_store::{LaneConfig, LaneParts, LaneStore, StoreError};
use lanekeeper_query_service::cluster::{Master, RemoteLane, StoreHttp, StoreLink};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// The master key of every test.
pub(crate) const MASTER: [u8; 32] = [42; 32];
pub(crate) const VERSION: u32 = 7;

/// A certificate authority.
pub(crate) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Writes a certificate for names, its key and the CA into a folder.
    pub(crate) fn write(&self, folder: &Path, names: Vec<String>) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        std::fs::write(folder.join("tls.crt"), certificate.pem()).unwrap();
        std::fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
        std::fs::write(folder.join("ca.crt"), &self.pem).unwrap();
    }
}

/// Writes the master key into a folder, and a lane's key.
pub(crate) fn write_master(folder: &Path) {
    std::fs::write(folder.join("master"), MASTER).unwrap();
    std::fs::write(folder.join("version"), VERSION.to_string()).unwrap();
}

#[derive(Debug)]
struct FromStage {
    config: LaneConfig,
    parts: LaneParts,
}

#[async_trait]
impl Opener for FromStage {
    async fn open(&self) -> Result<Arc<LaneStore>, StoreError> {
        LaneStore::open(self.config.clone(), self.parts.clone()).await
    }
}

/// A lane behind its server.
pub(crate) struct Served {
    pub(crate) temp: tempfile::TempDir,
    pub(crate) ca: Ca,
    pub(crate) stage: Stage,
    pub(crate) running: Option<Running>,
    pub(crate) link: Arc<StoreLink>,
}

pub(crate) fn install_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

impl Served {
    pub(crate) async fn new(lane: &str) -> Self {
        Self::with(lane, "127.0.0.1:0".parse().unwrap(), Arc::new(HashEncoder::new())).await
    }

    pub(crate) async fn with(lane: &str, listen: SocketAddr, encoder: Arc<dyn Encoder>) -> Self {
        install_tls();
        let temp = tempfile::tempdir().unwrap();
        let stage = Stage::at(temp.path(), lane, encoder).await;
        let ca = Ca::new();
        for folder in ["secrets", "master"] {
            std::fs::create_dir(temp.path().join(folder)).unwrap();
        }
        let secrets = temp.path().join("secrets");
        ca.write(&secrets, lane_dns_names(&stage.lane));
        let key = lanekeeper_core::attest::LaneKey::derive(&MASTER, stage.uid, VERSION);
        std::fs::write(secrets.join("attestation.key"), key.expose()).unwrap();
        std::fs::write(secrets.join("attestation.version"), VERSION.to_string()).unwrap();
        write_master(&temp.path().join("master"));
        let link = link(&secrets.join("ca.crt"), &temp.path().join("master"), &stage, listen);
        let mut served = Self { temp, ca, stage, running: None, link };
        served.start(listen).await;
        served
    }

    /// Starts the server and waits until the lane is open.
    pub(crate) async fn start(&mut self, listen: SocketAddr) {
        let opener = FromStage { config: self.stage.config(), parts: self.stage.parts() };
        let settings = ServerSettings {
            lane_uid: self.stage.uid,
            log_id: self.stage.log_id,
            listen,
            metrics: Some("127.0.0.1:0".parse().unwrap()),
            drain: Duration::from_secs(2),
        };
        let secrets = Secrets::open(self.secrets()).unwrap();
        let running = start(settings, secrets, Arc::new(opener), Arc::new(SystemClock)).await.unwrap();
        until("the lane is open", async || running.slot().store().is_ok()).await;
        self.running = Some(running);
    }

    pub(crate) async fn stop(&mut self) {
        self.running.take().unwrap().stop().await;
    }

    pub(crate) fn secrets(&self) -> PathBuf {
        self.temp.path().join("secrets")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running.as_ref().unwrap().address
    }

    pub(crate) fn store(&self) -> Arc<LaneStore> {
        self.running.as_ref().unwrap().slot().store().unwrap()
    }

    /// `https://HOST:PORT`, by the name in the certificate.
    pub(crate) fn base(&self) -> String {
        format!("https://{}:{}", lane_host(&self.stage.lane), self.address().port())
    }

    pub(crate) fn remote(&self) -> RemoteLane {
        let stage = &self.stage;
        RemoteLane::new(stage.lane.clone(), stage.uid, stage.log_id, self.base(), Arc::clone(&self.link))
    }

    /// A client that is not ours, with the same trust.
    pub(crate) fn stranger(&self) -> reqwest::Client {
        let pem = std::fs::read(self.secrets().join("ca.crt")).unwrap();
        reqwest::Client::builder()
            .tls_certs_only(reqwest::Certificate::from_pem_bundle(&pem).unwrap())
            .resolve(&lane_host(&self.stage.lane), self.address())
            .no_proxy()
            .build()
            .unwrap()
    }

    /// What `/readyz` and its kin say.
    pub(crate) async fn probe(&self, path: &str) -> (u16, serde_json::Value) {
        let answer = self.stranger().get(format!("{}{path}", self.base())).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }
}

/// The way to a lane whose host's name no DNS knows.
pub(crate) fn link(ca: &Path, master: &Path, stage: &Stage, address: SocketAddr) -> Arc<StoreLink> {
    let http = StoreHttp::resolving(ca, vec![(lane_host(&stage.lane), address)]).unwrap();
    Arc::new(StoreLink::new(http, Master::open(master).unwrap(), Arc::new(SystemClock)))
}

/// Waits for something that must come.
pub(crate) async fn until(what: &str, mut happened: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !happened().await {
        assert!(Instant::now() < deadline, "it did not happen: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
