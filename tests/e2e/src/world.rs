//! What a case works with: the cluster, the chart in it, the programs that speak to both.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use lanekeeper_crds::Lane;
use serde_json::json;

use crate::chart::SYSTEM;
use crate::image::Images;
use crate::node::Node;

/// The cluster and what runs in it.
pub(crate) struct World {
    /// Speaks to the API server.
    pub(crate) client: Client,
    /// As helm and kubectl want it.
    pub(crate) kubeconfig: PathBuf,
    /// The cluster, if this run booted it.
    pub(crate) node: Option<Node>,
    /// `None` where only the kinds are installed.
    pub(crate) images: Option<Images>,
    /// The repository.
    pub(crate) root: PathBuf,
    /// Where programs were built.
    pub(crate) target: PathBuf,
    /// A folder for this run's files.
    pub(crate) scratch: PathBuf,
    /// The program helm.
    pub(crate) helm: PathBuf,
    /// The program kubectl.
    pub(crate) kubectl: PathBuf,
    made: Mutex<Vec<String>>,
}

impl World {
    /// Connects. `node` is the cluster's, if this run booted it; its own helm and kubectl are taken then.
    pub(crate) async fn connect(
        root: PathBuf,
        target: &Path,
        kubeconfig: PathBuf,
        node: Option<Node>,
        images: Option<Images>,
    ) -> Result<Self> {
        let config = Kubeconfig::read_from(&kubeconfig).context("read the kubeconfig")?;
        let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        config.read_timeout = Some(Duration::from_secs(60));
        let client = Client::try_from(config).context("make a client of the API server")?;
        let (helm, kubectl) = match &node {
            Some(node) => {
                let bin = node.path("bin").await?;
                (bin.join("helm"), bin.join("kubectl"))
            }
            None => ("helm".into(), "kubectl".into()),
        };
        let target = std::path::absolute(target)?;
        let scratch = target.join("e2e");
        std::fs::create_dir_all(&scratch).context("make the run's folder")?;
        let world =
            Self { client, kubeconfig, node, images, root, target, scratch, helm, kubectl, made: Mutex::default() };
        world.make_namespace(SYSTEM).await?;
        Ok(world)
    }

    /// A namespace that admits restricted pods only, with a name of its own. It goes when the case ends.
    pub(crate) async fn namespace(&self, case: &str) -> Result<String> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let name = format!("e2e-{case}-{}", &id[..6]);
        self.make_namespace(&name).await?;
        self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(name.clone());
        Ok(name)
    }

    /// Namespaces made since the last call.
    pub(crate) fn take_made(&self) -> Vec<String> {
        std::mem::take(&mut *self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    async fn make_namespace(&self, name: &str) -> Result<()> {
        let namespace: Namespace = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {
                "pod-security.kubernetes.io/enforce": "restricted",
                "pod-security.kubernetes.io/warn": "restricted",
            }},
        }))?;
        match Api::<Namespace>::all(self.client.clone()).create(&PostParams::default(), &namespace).await {
            Ok(_) => Ok(()),
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("make namespace {name}")),
        }
    }

    /// Lanes of a namespace.
    pub(crate) fn lanes(&self, namespace: &str) -> Api<Lane> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Objects of a namespace.
    pub(crate) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Objects of the system namespace.
    pub(crate) fn system<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        self.api(SYSTEM)
    }

    /// Makes a ServiceAccount, unless it is there.
    pub(crate) async fn account(&self, namespace: &str, name: &str) -> Result<()> {
        let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        match self.api::<ServiceAccount>(namespace).create(&PostParams::default(), &account).await {
            Ok(account) => {
                debug_assert_eq!(account.name_any(), name);
                Ok(())
            }
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("make ServiceAccount {namespace}/{name}")),
        }
    }

    /// Makes sure that `count` more lanes find a volume each. On a cluster that is not ours its own
    /// provisioner does.
    pub(crate) async fn volumes(&self, count: usize) -> Result<()> {
        match &self.node {
            Some(node) => node.volumes(count, "2Gi").await,
            None => Ok(()),
        }
    }
}

/// Whether the API server said that it is there already.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Whether the API server said that there is none.
pub(crate) fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
