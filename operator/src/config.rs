//! What the operator is told when it starts: flags, each with an environment variable of the same name.
//!
//! Secrets are never among them: those are read from Secrets of the system namespace.

use std::net::SocketAddr;

use lanekeeper_core::cluster::{SYSTEM_NAMESPACE, port, system};

/// How the kubelet gets the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum PullPolicy {
    /// At every start.
    #[value(name = "Always")]
    Always,
    /// If the node lacks it.
    #[value(name = "IfNotPresent")]
    IfNotPresent,
    /// It must be there.
    #[value(name = "Never")]
    Never,
}

impl PullPolicy {
    /// As a pod spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// The command line.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "lanekeeper-operator", about = "Keeps lanes alive on Kubernetes")]
pub struct Config {
    /// The namespace of the release: registry, keys and embedders live here.
    #[arg(long, env = "LANEKEEPER_SYSTEM_NAMESPACE", default_value = SYSTEM_NAMESPACE)]
    pub system_namespace: String,
    /// The image that stores and embedders run.
    #[arg(long, env = "LANEKEEPER_IMAGE")]
    pub image: String,
    /// How the kubelet gets it.
    #[arg(long, env = "LANEKEEPER_IMAGE_PULL_POLICY", value_enum, default_value = "IfNotPresent")]
    pub image_pull_policy: PullPolicy,
    /// Secret of the system namespace for pulling images of embedders. May be given several times.
    #[arg(long = "image-pull-secret", env = "LANEKEEPER_IMAGE_PULL_SECRET", value_delimiter = ',')]
    pub image_pull_secrets: Vec<String>,
    /// The image of text-embeddings-inference, for Embedders of runtime tei.
    #[arg(long, env = "LANEKEEPER_TEI_IMAGE")]
    pub tei_image: Option<String>,
    /// The image of llama.cpp's server, for Embedders of runtime llamacpp.
    #[arg(long, env = "LANEKEEPER_LLAMACPP_IMAGE")]
    pub llamacpp_image: Option<String>,
    /// Where `/healthz` and `/readyz` are served.
    #[arg(long, env = "LANEKEEPER_PROBES", default_value_t = any(port::PROBES))]
    pub probes: SocketAddr,
    /// Where `/metrics` is served.
    #[arg(long, env = "LANEKEEPER_METRICS", default_value_t = any(port::METRICS))]
    pub metrics: SocketAddr,
    /// Qdrant's gRPC endpoint, such as http://qdrant.vectors.svc:6334. Without it each store keeps its vectors itself.
    #[arg(long, env = "LANEKEEPER_QDRANT_URL")]
    pub qdrant_url: Option<String>,
    /// Secret of the system namespace whose key `api-key` is Qdrant's.
    #[arg(long, env = "LANEKEEPER_QDRANT_SECRET", default_value = system::QDRANT)]
    pub qdrant_secret: String,
    /// Make a NetworkPolicy for each lane.
    #[arg(long, env = "LANEKEEPER_NETWORK_POLICIES")]
    pub network_policies: bool,
    /// Where the API server is, for those policies: it is no pod. May be given several times.
    #[arg(long = "api-server-cidr", env = "LANEKEEPER_API_SERVER_CIDR", value_delimiter = ',')]
    pub api_server_cidrs: Vec<String>,
    /// Its ports. May be given several times.
    #[arg(long = "api-server-port", env = "LANEKEEPER_API_SERVER_PORT", value_delimiter = ',')]
    pub api_server_ports: Vec<u16>,
    /// Set the reclaim policy of a retained lane's PersistentVolume to Retain.
    #[arg(long, env = "LANEKEEPER_RETAIN_VOLUMES")]
    pub retain_volumes: bool,
    /// An OTLP endpoint (HTTP) for traces.
    #[arg(long, env = "LANEKEEPER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
    /// How many objects of one kind are worked on at the same time.
    #[arg(long, env = "LANEKEEPER_CONCURRENCY", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub concurrency: u16,
    /// The pod's name, by the downward API; in the Lease it says who leads.
    #[arg(long, env = "POD_NAME", default_value = "lanekeeper-operator")]
    pub pod_name: String,
}

fn any(port: u16) -> SocketAddr {
    (std::net::Ipv6Addr::UNSPECIFIED, port).into()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_flag_has_its_variable() {
        let command = Config::command();
        command.clone().debug_assert();
        for argument in command.get_arguments().filter(|argument| argument.get_id() != "help") {
            assert!(argument.get_env().is_some(), "{} has no variable", argument.get_id());
        }
    }

    #[test]
    fn the_charts_own_command_line_is_understood() {
        let config = Config::parse_from([
            "lanekeeper-operator",
            "--system-namespace=sys",
            "--image=lanekeeper:1",
            "--image-pull-policy=Never",
            "--image-pull-secret=a",
            "--image-pull-secret=b",
            "--probes=[::]:8081",
            "--metrics=[::]:9090",
            "--qdrant-url=http://q.v.svc:6334",
            "--qdrant-secret=lanekeeper-qdrant",
            "--network-policies",
            "--api-server-cidr=0.0.0.0/0",
            "--api-server-cidr=::/0",
            "--api-server-port=443",
            "--api-server-port=6443",
            "--retain-volumes",
            "--otlp-endpoint=http://collector:4318",
        ]);
        assert_eq!(config.image_pull_secrets, ["a", "b"]);
        assert_eq!(config.api_server_ports, [443, 6443]);
        assert_eq!(config.api_server_cidrs, ["0.0.0.0/0", "::/0"]);
        assert_eq!(config.image_pull_policy, PullPolicy::Never);
        assert!(config.network_policies && config.retain_volumes);
    }
}
