//! A lane's address, and the account its store speaks to the API server with.

use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use lanekeeper_core::cluster::{label, port};
use serde_json::json;

use super::{LanePlan, typed};
use crate::error::Error;

/// Headless: there is one pod, and its name is in its certificate. Its address is published before it is ready, so
/// that a store that only recalls is still found.
pub fn service(plan: &LanePlan<'_>) -> Result<Service, Error> {
    typed(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": plan.owned_metadata(),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": {label::NAME: label::STORE, label::LANE: plan.name.name()},
            "ports": [{"name": "store", "port": port::STORE, "targetPort": "store", "protocol": "TCP"}],
        },
    }))
}

/// Without a token of its own to mount: the pod asks for one.
pub fn service_account(plan: &LanePlan<'_>) -> Result<ServiceAccount, Error> {
    typed(json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": plan.owned_metadata(),
        "automountServiceAccountToken": false,
    }))
}
