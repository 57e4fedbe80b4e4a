//! A server of Qdrant's own services on this machine (tests/support), which pods reach at the host's address. It
//! asks for a key and checks tokens; it is a test part, and `QDRANT_URL` names a real server instead.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use tokio::process::{Child, Command};

use crate::wait::{Seen, until};
use crate::world::World;

/// This machine, as pods see it (tests/cluster/cluster).
const HOST: &str = "10.89.255.1";
/// Holds the key that the operator gives to Qdrant.
pub(crate) const SECRET: &str = "lanekeeper-qdrant";
const PROGRAM: &str = "lanekeeper-test-qdrant";

/// A running server. Dropping it kills it; what it stored stays in its folder.
pub(crate) struct Qdrant {
    program: PathBuf,
    folder: PathBuf,
    grpc: SocketAddr,
    rest: SocketAddr,
    child: Option<Child>,
}

impl Qdrant {
    /// Starts it over an empty folder. `target`: where programs are built.
    pub(crate) async fn start(target: &std::path::Path, folder: PathBuf, key: &str) -> Result<Self> {
        let program = target.join("debug").join(PROGRAM);
        ensure!(program.is_file(), "{} is not built", program.display());
        if folder.exists() {
            std::fs::remove_dir_all(&folder).context("clear Qdrant's folder")?;
        }
        std::fs::create_dir_all(&folder).context("make Qdrant's folder")?;
        let mut qdrant = Self { program, folder, grpc: free()?, rest: free()?, child: None };
        qdrant.restart(key).await?;
        Ok(qdrant)
    }

    /// What the chart is told.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.grpc)
    }

    /// Kills it, if it runs.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().await.context("kill Qdrant")?;
        }
        Ok(())
    }

    /// Kills it and starts it again over the same folder; from now on it asks for `key`.
    pub(crate) async fn restart(&mut self, key: &str) -> Result<()> {
        self.kill().await?;
        let file = self.folder.with_extension("key");
        std::fs::write(&file, key).context("write Qdrant's key")?;
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.folder.with_extension("log"))?;
        let child = Command::new(&self.program)
            .arg("--dir")
            .arg(&self.folder)
            .args(["--grpc", &self.grpc.to_string(), "--rest", &self.rest.to_string()])
            .arg("--api-key-file")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", self.program.display()))?;
        self.child = Some(child);
        let grpc = self.grpc;
        until("an open port of Qdrant", Duration::from_secs(20), || async move {
            tokio::net::TcpStream::connect(grpc).await?;
            Ok(Seen::Yes(()))
        })
        .await
    }
}

/// Makes the Secret that holds the key, or makes it anew.
pub(crate) async fn put_key(world: &World, key: &str) -> Result<()> {
    let secrets = world.system::<Secret>();
    let _ = secrets.delete(SECRET, &DeleteParams::default()).await;
    let secret = json!({"metadata": {"name": SECRET}, "stringData": {"api-key": key}});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    Ok(())
}

/// A port that is free now.
fn free() -> Result<SocketAddr> {
    let listener = TcpListener::bind((HOST, 0)).context("bind the host's address in the cluster")?;
    Ok(listener.local_addr()?)
}
