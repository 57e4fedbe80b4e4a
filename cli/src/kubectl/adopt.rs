//! `kubectl lane adopt LANE`

use clap::Args;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use lanekeeper_core::cluster::{label, lane_object};
use lanekeeper_crds::{Lane, annotations};
use serde_json::json;

use super::cluster::{Cluster, Part, asked};
use crate::failure::Failure;
use crate::output;

/// Asks for the memory of an earlier lane of the same name. The operator gives it to the same owner alone.
#[derive(Debug, Args)]
pub(super) struct Adopt {
    /// `NAME`, or `NAMESPACE/NAME`: a Lane that exists and whose volume is an earlier one's.
    lane: String,
    /// Only this lane's memory, by the UID it had. Default: whichever the volume holds.
    #[arg(long, value_name = "UID")]
    from: Option<String>,
}

impl Adopt {
    pub(super) async fn run(self, cluster: &Cluster) -> Result<(), Failure> {
        let name = cluster.lane_name(&self.lane)?;
        let lane = cluster.lane(&name).await?;
        let object = lane_object(name.name());
        let volume = match cluster.part::<PersistentVolumeClaim>(name.namespace(), &object).await {
            Part::Found(volume) => volume,
            Part::Missing => {
                return Err(Failure::refused(format!(
                    "there is no volume {object} in {}: nothing is retained under this name",
                    name.namespace()
                )));
            }
            Part::Unseen(why) => return Err(Failure::refused(format!("cannot look at the volume {object}: {why}"))),
        };
        let from = retained(&volume, &lane, self.from.as_deref())?;
        // The very Lane that was looked at: its resourceVersion stands in the change.
        let patch = json!({"metadata": {
            "annotations": {annotations::ADOPT: from},
            "resourceVersion": lane.metadata.resource_version,
        }});
        Api::<Lane>::namespaced(cluster.client.clone(), name.namespace())
            .patch(name.name(), &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map_err(|error| asked(&format!("the change to lane {name}"), error))?;
        output::print(&format!(
            "Lane {name} asks for the memory of UID {from}. The operator gives it to the same owner alone: kubectl lane \
             why {name}\n"
        ))
    }
}

/// The UID of the lane whose memory is on the volume, if it is another's than this lane's.
fn retained(volume: &PersistentVolumeClaim, lane: &Lane, wanted: Option<&str>) -> Result<String, Failure> {
    let name = volume.name_any();
    let of = volume.annotations().get(label::LANE_UID);
    let of = of.ok_or_else(|| Failure::refused(format!("the volume {name} bears no lane's stamp")))?;
    if lane.uid().as_ref() == Some(of) {
        return Err(Failure::refused(format!("the volume {name} is this lane's own already")));
    }
    if let Some(wanted) = wanted.filter(|wanted| wanted != of) {
        return Err(Failure::refused(format!("the volume {name} holds the memory of UID {of}, not of {wanted}")));
    }
    Ok(of.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_lanes_memory_is_adopted_and_only_the_one_that_was_meant() {
        let volume = |uid: Option<&str>| -> PersistentVolumeClaim {
            let annotations = uid.map_or(json!({}), |uid| json!({label::LANE_UID: uid}));
            serde_json::from_value(json!({"metadata": {"name": "lane-bob", "annotations": annotations}})).unwrap()
        };
        let lane: Lane = serde_json::from_value(json!({
            "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Lane", "metadata": {"name": "bob", "uid": "new"},
            "spec": {"kind": "personal", "owner": "bob"},
        }))
        .unwrap();
        assert_eq!(retained(&volume(Some("old")), &lane, None).unwrap(), "old");
        assert_eq!(retained(&volume(Some("old")), &lane, Some("old")).unwrap(), "old");
        assert!(retained(&volume(Some("old")), &lane, Some("older")).is_err());
        assert!(retained(&volume(Some("new")), &lane, None).is_err());
        assert!(retained(&volume(None), &lane, None).is_err());
    }
}
