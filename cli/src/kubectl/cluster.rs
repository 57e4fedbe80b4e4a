//! The API server, as whoever runs the program.

use std::fmt::Debug;
use std::path::PathBuf;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};
use lanekeeper_core::LaneName;
use lanekeeper_crds::Lane;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// A client and the namespaces that count.
pub(super) struct Cluster {
    pub(super) client: Client,
    /// Of a lane that is named without one.
    pub(super) namespace: String,
    /// Of the release.
    pub(super) system: String,
}

/// An object that was looked for.
#[derive(Debug)]
pub(super) enum Part<T> {
    /// It is there.
    Found(T),
    /// It is not.
    Missing,
    /// Whoever asks may not see it, or the answer did not come; in words.
    Unseen(String),
}

impl<T> Part<T> {
    pub(super) const fn found(&self) -> Option<&T> {
        match self {
            Self::Found(object) => Some(object),
            Self::Missing | Self::Unseen(_) => None,
        }
    }
}

impl Cluster {
    pub(super) async fn open(
        file: Option<PathBuf>,
        context: Option<String>,
        namespace: Option<String>,
        system: String,
    ) -> Result<Self, Failure> {
        let unread = |error: &(dyn std::error::Error + 'static)| Failure::because("cannot read the kubeconfig", error);
        let named = file.is_some() || context.is_some();
        let read = file.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
        let config = match (context, read) {
            // Without any, the account of the pod that this runs in.
            (_, Err(_)) if !named => Config::infer().await.map_err(|error| unread(&error))?,
            (_, Err(error)) => return Err(unread(&error)),
            (context, Ok(kubeconfig)) => {
                let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| unread(&error))?
            }
        };
        let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
        let client =
            Client::try_from(config).map_err(|error| Failure::because("cannot make a client of Kubernetes", &error))?;
        Ok(Self { client, namespace, system })
    }

    /// `NAME` in the namespace that counts, or `NAMESPACE/NAME`.
    pub(super) fn lane_name(&self, text: &str) -> Result<LaneName, Failure> {
        let whole = if text.contains('/') { text.to_owned() } else { format!("{}/{text}", self.namespace) };
        whole.parse().map_err(|error| Failure::usage(format!("{text:?} is no lane's name: {error}")))
    }

    pub(super) async fn lane(&self, name: &LaneName) -> Result<Lane, Failure> {
        let lanes = Api::<Lane>::namespaced(self.client.clone(), name.namespace());
        match lanes.get_opt(name.name()).await {
            Ok(Some(lane)) => Ok(lane),
            Ok(None) => Err(Failure::refused(format!("there is no lane {name}"))),
            Err(error) => Err(asked(&format!("lane {name}"), error)),
        }
    }

    /// One object of a namespace.
    pub(super) async fn part<T>(&self, namespace: &str, name: &str) -> Part<T>
    where
        T: Resource<Scope = k8s_openapi::NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
        T::DynamicType: Default,
    {
        seen(Api::<T>::namespaced(self.client.clone(), namespace).get_opt(name).await)
    }
}

/// What came of looking for one object.
pub(super) fn seen<T>(answer: Result<Option<T>, kube::Error>) -> Part<T> {
    match answer {
        Ok(Some(object)) => Part::Found(object),
        Ok(None) => Part::Missing,
        Err(error) => Part::Unseen(words(&error)),
    }
}

/// A failure to get `what`: refused, or the API server was not reached.
pub(super) fn asked(what: &str, error: kube::Error) -> Failure {
    let text = format!("cannot get {what}: {}", words(&error));
    if matches!(error, kube::Error::Api(_)) { Failure::Refused(text) } else { Failure::Unreachable(text) }
}

/// The API server's own words, without the request around them.
pub(super) fn words(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error { status.message.clone() } else { crate::failure::chain(error) }
}
