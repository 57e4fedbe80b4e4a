//! Who may reach a lane's store, and whom it may reach. Sources are selected by namespace name and pod label
//! together: either alone could be worn by anybody.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use lanekeeper_core::cluster::{label, port, system};
use serde_json::{Value, json};

use super::{LanePlan, typed};
use crate::error::Error;

const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The policy, if the operator was told to make them.
pub fn network_policy(plan: &LanePlan<'_>) -> Result<Option<NetworkPolicy>, Error> {
    if !plan.config.network_policies {
        return Ok(None);
    }
    let here = &plan.config.system_namespace;
    let mut egress = vec![dns()];
    // A rule without addresses would admit all of them.
    if !plan.config.api_server_cidrs.is_empty() {
        egress.push(api_server(&plan.config.api_server_cidrs, &plan.config.api_server_ports));
    }
    if plan.embedder.is_in_cluster {
        egress.push(json!({
            "to": [{
                "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: here}},
                "podSelector": {"matchLabels": {label::NAME: label::EMBEDDER}},
            }],
            "ports": [tcp(port::EMBEDDER)],
        }));
    } else {
        egress.push(address(&plan.embedder.url, 443));
    }
    if let Some(url) = &plan.config.qdrant_url {
        egress.push(address(url, port::QDRANT));
    }
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": plan.owned_metadata(),
        "spec": {
            "podSelector": {"matchLabels": {label::NAME: label::STORE, label::LANE: plan.name.name()}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{
                "from": [{
                    "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: here}},
                    "podSelector": {"matchExpressions": [{
                        "key": label::NAME, "operator": "In", "values": [system::QUERY, system::OPERATOR],
                    }]},
                }],
                "ports": [tcp(port::STORE)],
            }],
            "egress": egress,
        },
    });
    typed(policy).map(Some)
}

fn tcp(port: u16) -> Value {
    json!({"protocol": "TCP", "port": port})
}

fn dns() -> Value {
    json!({
        "to": [{"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: "kube-system"}}}],
        "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
    })
}

/// By address: the API server is no pod.
fn api_server(cidrs: &[String], ports: &[u16]) -> Value {
    let to: Vec<Value> = cidrs.iter().map(|cidr| json!({"ipBlock": {"cidr": cidr}})).collect();
    let ports: &[u16] = if ports.is_empty() { &[443, 6443] } else { ports };
    let ports: Vec<Value> = ports.iter().map(|port| tcp(*port)).collect();
    json!({"to": to, "ports": ports})
}

/// A Service of the cluster by its namespace; an address outside by its port alone, since a policy knows no names.
fn address(url: &str, default_port: u16) -> Value {
    let (host, port) = host_and_port(url, default_port);
    let labels: Vec<&str> = host.split('.').collect();
    match labels.as_slice() {
        [_, namespace, "svc", ..] => json!({
            "to": [{"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: namespace}}}],
            "ports": [tcp(port)],
        }),
        _ => json!({"ports": [tcp(port)]}),
    }
}

fn host_and_port(url: &str, default_port: u16) -> (String, u16) {
    let Ok(url) = reqwest::Url::parse(url) else { return (String::new(), default_port) };
    let port = url.port().unwrap_or(match (url.scheme(), default_port) {
        // Qdrant's own port is what its clients assume.
        (_, port::QDRANT) => port::QDRANT,
        ("http", _) => 80,
        _ => default_port,
    });
    (url.host_str().unwrap_or_default().to_owned(), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_named_by_its_namespace_and_an_outside_address_by_its_port() {
        let inside = address("http://qdrant.vectors.svc.cluster.local:6334", 6334);
        assert_eq!(inside["to"][0]["namespaceSelector"]["matchLabels"][NAMESPACE_NAME], "vectors");
        assert_eq!(inside["ports"][0]["port"], 6334);
        let outside = address("https://models.example.test/v1", 443);
        assert!(outside.get("to").is_none());
        assert_eq!(outside["ports"][0]["port"], 443);
        assert_eq!(host_and_port("http://10.0.0.1:7070/x", 443), ("10.0.0.1".to_owned(), 7070));
        assert_eq!(host_and_port("http://q.v.svc", 6334).1, 6334);
        assert_eq!(host_and_port("http://models.test", 443).1, 80);
    }
}
