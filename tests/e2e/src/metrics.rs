//! Counters of the operator's replicas, read through the API server.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;

use crate::chart::SYSTEM;
use crate::world::World;

impl World {
    /// The sum over all replicas and labels of a counter of the operator.
    pub(crate) async fn operator_counter(&self, name: &str) -> Result<f64> {
        self.operator_counter_of(name, "").await
    }

    /// The same over the series that have this label, written as Prometheus writes it.
    pub(crate) async fn operator_counter_of(&self, name: &str, label: &str) -> Result<f64> {
        let selector = ListParams::default().labels("app.kubernetes.io/name=lanekeeper-operator");
        let pods = self.system::<Pod>().list(&selector).await?.items;
        let mut sum = None;
        for pod in pods {
            let pod = pod.metadata.name.context("a pod without a name")?;
            let path = format!("/api/v1/namespaces/{SYSTEM}/pods/{pod}:9090/proxy/metrics");
            let request = http::Request::get(path).body(Vec::new())?;
            let text = self.client.request_text(request).await?;
            for line in text.lines().filter(|line| !line.starts_with('#')) {
                let (series, value) = line.rsplit_once(' ').unwrap_or((line, ""));
                let found = series.split('{').next().unwrap_or(series);
                if !series.contains(label) {
                    continue;
                }
                if found == name || found == format!("lanekeeper_{name}") || found.ends_with(&format!("_{name}")) {
                    *sum.get_or_insert(0.0) +=
                        value.parse::<f64>().with_context(|| format!("the value of {series}"))?;
                }
            }
        }
        sum.with_context(|| format!("the operator has no counter {name}"))
    }
}
