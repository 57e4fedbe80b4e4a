//! A store's one right: to read its own record and to report in its status. In the system namespace, so no
//! ownerReference can reach there: the finalizer deletes both.

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use lanekeeper_core::cluster::{self, label};
use serde_json::{Value, json};

use super::{LanePlan, typed};
use crate::error::Error;

fn metadata(plan: &LanePlan<'_>) -> Value {
    let mut labels = plan.labels();
    labels.insert(label::LANE_NAMESPACE.to_owned(), plan.namespace().to_owned());
    json!({
        "name": cluster::lane_role(&plan.name),
        "namespace": plan.config.system_namespace,
        "labels": labels,
    })
}

/// By name: a store sees no other lane's record.
pub fn role(plan: &LanePlan<'_>) -> Result<Role, Error> {
    typed(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": metadata(plan),
        "rules": [
            {
                "apiGroups": [lanekeeper_crds::GROUP], "resources": ["federationrecords"],
                "resourceNames": [plan.collection], "verbs": ["get", "list", "watch"],
            },
            {
                "apiGroups": [lanekeeper_crds::GROUP], "resources": ["federationrecords/status"],
                "resourceNames": [plan.collection], "verbs": ["patch"],
            },
        ],
    }))
}

/// Gives it to the lane's ServiceAccount alone.
pub fn role_binding(plan: &LanePlan<'_>) -> Result<RoleBinding, Error> {
    typed(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": metadata(plan),
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": cluster::lane_role(&plan.name),
        },
        "subjects": [{"kind": "ServiceAccount", "name": plan.object(), "namespace": plan.namespace()}],
    }))
}
