//! What runs an Embedder: Deployment, Service, and a volume for the weights where one is asked for. All in the
//! system namespace, owned by the Embedder.

pub mod arguments;
pub mod deployment;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use lanekeeper_core::cluster::{self, label, port};
use lanekeeper_crds::{Embedder, EmbedderSpec};
use serde_json::{Value, json};

use super::{LabelMap, owner, typed};
use crate::config::Config;
use crate::error::Error;

/// An Embedder that runs here.
#[derive(Debug, Clone, Copy)]
pub struct EmbedderPlan<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// As declared.
    pub spec: &'a EmbedderSpec,
    /// What the operator was told.
    pub config: &'a Config,
}

impl<'a> EmbedderPlan<'a> {
    /// From a stored Embedder; `None` if it lacks what every stored object has.
    #[must_use]
    pub fn of(embedder: &'a Embedder, config: &'a Config) -> Option<Self> {
        let name = embedder.metadata.name.as_deref()?;
        let uid = embedder.metadata.uid.as_deref()?;
        Some(Self { name, uid, spec: &embedder.spec, config })
    }

    /// What its objects are called.
    #[must_use]
    pub fn object(&self) -> String {
        cluster::embedder_object(self.name)
    }

    /// Labels of every object.
    #[must_use]
    pub fn labels(&self) -> LabelMap {
        [(label::NAME, label::EMBEDDER), (label::MANAGED_BY, label::LANEKEEPER), (label::EMBEDDER_NAME, self.name)]
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    fn metadata(&self) -> Value {
        json!({
            "name": self.object(),
            "namespace": self.config.system_namespace,
            "labels": self.labels(),
            "ownerReferences": [owner("Embedder", self.name, self.uid)],
        })
    }
}

/// Its address.
pub fn service(plan: &EmbedderPlan<'_>) -> Result<Service, Error> {
    typed(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": plan.metadata(),
        "spec": {
            "selector": {label::NAME: label::EMBEDDER, label::EMBEDDER_NAME: plan.name},
            "ports": [{"name": "http", "port": port::EMBEDDER, "targetPort": "http", "protocol": "TCP"}],
        },
    }))
}

/// The volume for the weights, if one is declared. `stored` is the one there is: its class never changes and its
/// size never falls.
pub fn cache(
    plan: &EmbedderPlan<'_>,
    stored: Option<&PersistentVolumeClaim>,
) -> Result<Option<PersistentVolumeClaim>, Error> {
    let Some(cache) = &plan.spec.cache else { return Ok(None) };
    let there = stored.and_then(|stored| stored.spec.as_ref());
    let size_there = there
        .and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage"))
        .map(|quantity| quantity.0.as_str());
    let size = size_there.map_or(cache.size.as_str(), |there| crate::quantity::larger(there, &cache.size));
    let class = match there {
        Some(spec) => spec.storage_class_name.as_deref(),
        None => cache.storage_class_name.as_deref(),
    };
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
    if let Some(class) = class {
        spec["storageClassName"] = class.into();
    }
    typed(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": plan.metadata(), "spec": spec,
    }))
    .map(Some)
}
