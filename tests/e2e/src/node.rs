//! The cluster itself: the one that tests/cluster boots, and what only such a one lets a test do.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;

use crate::shell;

/// Building Kubernetes on a cold cache takes minutes.
const BUILD: Duration = Duration::from_secs(40 * 60);
const SHORT: Duration = Duration::from_secs(120);

/// A cluster that this run booted. Dropping it does not end it: `down` does.
#[derive(Debug)]
pub(crate) struct Node {
    script: PathBuf,
}

impl Node {
    /// The cluster of this repository, whether it runs or not.
    pub(crate) fn at(root: &Path) -> Self {
        Self { script: root.join("tests/cluster/cluster") }
    }

    /// Builds what is missing and boots. A cluster that is up from an earlier run is ended first.
    pub(crate) async fn boot(root: &Path) -> Result<Self> {
        let node = Self::at(root);
        node.call(["build"], BUILD).await?;
        node.call(["down"], SHORT).await?;
        node.call(["up"], Duration::from_secs(180)).await.context("boot the cluster")?;
        Ok(node)
    }

    /// Ends it and takes its files away.
    pub(crate) async fn down(&self) -> Result<()> {
        self.call(["down"], SHORT).await.map(drop)
    }

    /// Where something of it lies: kubeconfig, audit, bin, log, state.
    pub(crate) async fn path(&self, what: &str) -> Result<PathBuf> {
        Ok(self.call(["path", what], SHORT).await?.trim().into())
    }

    /// Imports an image archive.
    pub(crate) async fn load(&self, archive: &Path) -> Result<()> {
        let archive = archive.to_string_lossy().into_owned();
        self.call(["load", &archive], Duration::from_secs(300)).await.map(drop)
    }

    /// Makes `count` more volumes of `size`.
    pub(crate) async fn volumes(&self, count: usize, size: &str) -> Result<()> {
        self.call(["volumes", &count.to_string(), size], SHORT).await.map(drop)
    }

    /// The node offers `count` nvidia.com/gpu from now on.
    pub(crate) async fn gpu(&self, count: u32) -> Result<()> {
        self.call(["gpu", &count.to_string()], SHORT).await.map(drop)
    }

    /// Sends a signal to a part, such as `kube-apiserver`.
    pub(crate) async fn signal(&self, part: &str, signal: &str) -> Result<()> {
        self.call(["signal", part, signal], SHORT).await.map(drop)
    }

    /// Sends a signal to every process of a pod.
    pub(crate) fn signal_pod(&self, uid: &str, signal: Signal) -> Result<()> {
        for pid in self.processes_of(uid)? {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).context("signal a process of a pod")?;
        }
        Ok(())
    }

    /// The processes of a pod: those in its cgroup, which the host sees as its own. At least one.
    #[expect(clippy::unused_self, reason = "only of a cluster that runs on this machine")]
    pub(crate) fn processes_of(&self, uid: &str) -> Result<Vec<i32>> {
        // As the two cgroup drivers write it.
        let names = [uid.to_owned(), uid.replace('-', "_")];
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").context("read /proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            // One that has ended meanwhile is in none.
            let groups = std::fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
            if names.iter().any(|name| groups.contains(name)) {
                found.push(pid);
            }
        }
        ensure!(!found.is_empty(), "no process of the pod with UID {uid} is seen from here");
        Ok(found)
    }

    async fn call<const N: usize>(&self, arguments: [&str; N], within: Duration) -> Result<String> {
        shell::run(&self.script, arguments, within).await
    }
}
