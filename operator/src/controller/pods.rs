//! Why a pod is not ready, with a look at the nodes where the scheduler names no taint.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::ListParams;

use crate::causes;
use crate::context::Context;
use crate::error::chain;
use crate::status::Finding;

/// What the pod waits for. Without the right to list nodes a taint is told without its name.
pub async fn cause(context: &Context, pod: &Pod) -> Finding {
    if !causes::needs_nodes(pod) {
        return causes::of_pod(pod);
    }
    match Api::<Node>::all(context.client.clone()).list(&ListParams::default().limit(500)).await {
        Ok(nodes) => causes::of_pod_on(pod, &nodes.items),
        Err(error) => {
            tracing::debug!(error = chain(&error), "nodes cannot be listed");
            causes::of_pod(pod)
        }
    }
}
