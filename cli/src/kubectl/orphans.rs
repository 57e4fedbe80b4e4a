//! `kubectl lane orphans`

use std::collections::BTreeSet;
use std::fmt::Write as _;

use clap::Args;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use lanekeeper_core::cluster::label;
use lanekeeper_crds::{FederationRecord, Lane};

use super::chain::writer;
use super::cluster::{Cluster, asked};
use crate::failure::Failure;
use crate::output;
use crate::output::plain;

/// Lists what a deleted lane has left: its volume, and its record, which stands for its collection too (a record
/// stays until its vectors are gone). Changes nothing.
#[derive(Debug, Args)]
pub(super) struct Orphans {
    /// Volumes of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

impl Orphans {
    pub(super) async fn run(self, cluster: &Cluster) -> Result<(), Failure> {
        let everything = ListParams::default();
        // First what is left, then what lives: a lane that is made meanwhile is in the second list.
        let records = Api::<FederationRecord>::namespaced(cluster.client.clone(), &cluster.system);
        let records = records.list(&everything).await.map_err(|error| asked("the records", error))?.items;
        let ours = ListParams::default().labels(&format!("{}={}", label::MANAGED_BY, label::LANEKEEPER));
        let volumes = match self.all_namespaces {
            true => Api::<PersistentVolumeClaim>::all(cluster.client.clone()),
            false => Api::<PersistentVolumeClaim>::namespaced(cluster.client.clone(), &cluster.namespace),
        };
        let volumes = volumes.list(&ours).await.map_err(|error| asked("the volumes", error))?.items;
        let lanes = Api::<Lane>::all(cluster.client.clone());
        let lanes = lanes.list(&everything).await.map_err(|error| asked("the lanes of all namespaces", error))?.items;
        output::print(&words(&lanes, &records, &volumes))
    }
}

fn words(lanes: &[Lane], records: &[FederationRecord], volumes: &[PersistentVolumeClaim]) -> String {
    let alive: BTreeSet<String> = lanes.iter().filter_map(|lane| lane.uid()).collect();
    let mut text = String::new();
    for volume in volumes {
        let Some(of) = volume.annotations().get(label::LANE_UID).filter(|of| !alive.contains(*of)) else { continue };
        let name = format!("{}/{}", volume.namespace().unwrap_or_default(), volume.name_any());
        let owner = volume.annotations().get(label::OWNER).map_or("nobody", String::as_str);
        let _ = writeln!(text, "volume  {name}  of a lane that is gone (UID {of}, {})", plain(owner));
    }
    for record in records {
        if alive.contains(&record.spec.writer.uid.0) {
            continue;
        }
        let ends = if record.metadata.deletion_timestamp.is_some() { ", its vectors are being dropped" } else { "" };
        let _ = writeln!(text, "record  {}  of {}, with its vectors{ends}", record.name_any(), writer(record));
    }
    if text.is_empty() {
        return "Nothing is left of lanes that are gone.\n".to_owned();
    }
    text.push_str(
        "\nThe same owner gets one back by a Lane of the same name and `kubectl lane adopt`. Deleting the volume and the \
         record ends that memory for good.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_no_lane_stands_for_is_listed() {
        let lane = |uid: &str| -> Lane {
            serde_json::from_value(json!({
                "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Lane", "metadata": {"name": "bob", "uid": uid},
                "spec": {"kind": "personal", "owner": "bob"},
            }))
            .unwrap()
        };
        let record = |name: &str, uid: &str| -> FederationRecord {
            serde_json::from_value(json!({
                "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "FederationRecord", "metadata": {"name": name},
                "spec": {"collection": name, "writer": {"namespace": "team", "name": "bob", "uid": uid},
                         "mode": "read-write", "logId": "00", "fingerprint": "00", "epoch": 7, "generation": 1},
            }))
            .unwrap()
        };
        let volume = |name: &str, uid: &str| -> PersistentVolumeClaim {
            let annotations = json!({label::LANE_UID: uid, label::OWNER: "personal:bob"});
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "team", "annotations": annotations}}))
                .unwrap()
        };
        let (lanes, records) = ([lane("new")], [record("team.bob", "new"), record("team.old", "gone")]);
        let text = words(&lanes, &records, &[volume("lane-bob", "new"), volume("lane-old", "gone")]);
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.contains("volume  team/lane-old  of a lane that is gone (UID gone, personal:bob)"), "{text}");
        assert!(text.contains("record  team.old  of team/bob (UID gone), with its vectors"), "{text}");
        assert_eq!(
            words(&lanes, &records[..1], &[volume("lane-bob", "new")]),
            "Nothing is left of lanes that are gone.\n"
        );
    }
}
