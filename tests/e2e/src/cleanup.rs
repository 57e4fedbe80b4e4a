//! After a case: its lanes with their memory, then its namespaces. That they go is part of what is tested.

use std::time::Duration;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};

use crate::wait::{Seen, until};
use crate::world::{World, is_missing};

const WITHIN: Duration = Duration::from_secs(120);

impl World {
    /// Takes away everything the case made. The error names what stayed.
    pub(crate) async fn clean(&self, namespaces: &[String]) -> Result<()> {
        let mut problems = Vec::new();
        for namespace in namespaces {
            if let Err(error) = self.clean_one(namespace).await {
                problems.push(format!("{error:#}"));
            }
        }
        for namespace in namespaces {
            if let Err(error) = self.namespace_gone(namespace, WITHIN).await {
                problems.push(format!("{error:#}"));
            }
        }
        if problems.is_empty() { Ok(()) } else { bail!("cleaning up: {}", problems.join("; ")) }
    }

    async fn clean_one(&self, namespace: &str) -> Result<()> {
        let lanes = self.lanes(namespace).list(&ListParams::default()).await?.items;
        for lane in &lanes {
            if lane.metadata.deletion_timestamp.is_none() {
                self.delete_lane(namespace, &lane.name_any(), true).await?;
            }
        }
        self.delete_namespace(namespace).await
    }

    /// Deletes a namespace. Does not wait.
    pub(crate) async fn delete_namespace(&self, namespace: &str) -> Result<()> {
        match Api::<Namespace>::all(self.client.clone()).delete(namespace, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until it is gone.
    pub(crate) async fn namespace_gone(&self, namespace: &str, within: Duration) -> Result<()> {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        until(&format!("the end of namespace {namespace}"), within, || async {
            Ok(match namespaces.get_opt(namespace).await? {
                None => Seen::Yes(()),
                Some(found) => {
                    let why = found.status.and_then(|status| status.conditions).unwrap_or_default();
                    let why: Vec<String> = why.into_iter().filter_map(|condition| condition.message).collect();
                    Seen::NotYet(why.join("; "))
                }
            })
        })
        .await
    }
}
