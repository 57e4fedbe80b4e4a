//! Names, ports, paths and labels that two or more parts share in a cluster. The only place they are spelt;
//! docs/cluster-contract.md says what each is for.
//!
//! What must always hold: a name here is made by joining parts that hold no separator of it (namespaces, lanes
//! and collections are DNS labels, without dots), so that no two objects of ours meet in one name.
//!
//! Not here: Kubernetes types, and anything that only one part knows.

use crate::fingerprint::Fingerprint;
use crate::ids::{Epoch, Generation, LaneName};

/// The namespace of a release that was not told otherwise.
pub const SYSTEM_NAMESPACE: &str = "lanekeeper-system";
/// Whom a ServiceAccount's token must be made for.
pub const TOKEN_AUDIENCE: &str = "lanekeeper";

/// Ports that the programs listen on.
pub mod port {
    /// The query service's API (TLS).
    pub const QUERY: u16 = 8443;
    /// `/healthz` and `/readyz` of operator and query service.
    pub const PROBES: u16 = 8081;
    /// `/metrics` of every program.
    pub const METRICS: u16 = 9090;
    /// A store's protocol and probes (TLS).
    pub const STORE: u16 = 7443;
    /// An embedder's API and probes.
    pub const EMBEDDER: u16 = 7070;
    /// Qdrant's gRPC.
    pub const QDRANT: u16 = 6334;
}

/// Labels and annotations on objects that the operator makes.
pub mod label {
    /// What an object is a part of: [`STORE`] or [`EMBEDDER`].
    pub const NAME: &str = "app.kubernetes.io/name";
    /// Who made it: [`LANEKEEPER`].
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// The lane's name, without its namespace.
    pub const LANE: &str = "lanekeeper.dev/lane";
    /// The lane's namespace, on objects that live in another one.
    pub const LANE_NAMESPACE: &str = "lanekeeper.dev/lane-namespace";
    /// What the lane's name was bound to. A label, and an annotation on volumes.
    pub const LANE_UID: &str = "lanekeeper.dev/lane-uid";
    /// Annotation of a volume: the lane's owner, empty on a corpus lane's.
    pub const OWNER: &str = "lanekeeper.dev/owner";
    /// Annotation of a volume: the identity of the log on it.
    pub const LOG_ID: &str = "lanekeeper.dev/log-id";
    /// The Embedder's name.
    pub const EMBEDDER_NAME: &str = "lanekeeper.dev/embedder";
    /// Value of [`MANAGED_BY`].
    pub const LANEKEEPER: &str = "lanekeeper";
    /// Value of [`NAME`] on a lane's objects.
    pub const STORE: &str = "lane-store";
    /// Value of [`NAME`] on an Embedder's objects.
    pub const EMBEDDER: &str = "embedder";
}

/// Objects in the system namespace that there is one of.
pub mod system {
    /// Secret: [`super::key::MASTER`] and [`super::key::MASTER_VERSION`].
    pub const MASTER: &str = "lanekeeper-master";
    /// Secret of the CA, and ConfigMap of its certificate alone.
    pub const CA: &str = "lanekeeper-ca";
    /// Secret of the query service's certificate.
    pub const QUERY_TLS: &str = "lanekeeper-query-tls";
    /// Deployment, Service and ServiceAccount of the query service.
    pub const QUERY: &str = "lanekeeper-query";
    /// Deployment, ServiceAccount and Lease of the operator.
    pub const OPERATOR: &str = "lanekeeper-operator";
    /// Secret of Qdrant's API key, which the user makes.
    pub const QDRANT: &str = "lanekeeper-qdrant";
}

/// Keys of Secrets and of the ConfigMap; also the files' names where they are mounted.
pub mod key {
    /// The master key, 32 bytes.
    pub const MASTER: &str = "master";
    /// Its version, decimal.
    pub const MASTER_VERSION: &str = "version";
    /// A lane's attestation key, 32 bytes.
    pub const ATTESTATION: &str = "attestation.key";
    /// Its version, decimal.
    pub const ATTESTATION_VERSION: &str = "attestation.version";
    /// During a rotation: the key before.
    pub const ATTESTATION_PREVIOUS: &str = "attestation.key.previous";
    /// During a rotation: its version.
    pub const ATTESTATION_VERSION_PREVIOUS: &str = "attestation.version.previous";
    /// A lane's token for Qdrant.
    pub const QDRANT_JWT: &str = "qdrant.jwt";
    /// Qdrant's API key.
    pub const QDRANT_API_KEY: &str = "api-key";
    /// A certificate with its chain, PEM.
    pub const TLS_CERTIFICATE: &str = "tls.crt";
    /// Its private key, PEM.
    pub const TLS_KEY: &str = "tls.key";
    /// The CA's certificate, PEM.
    pub const CA_CERTIFICATE: &str = "ca.crt";
}

/// Paths in a store's pod.
pub mod path {
    /// The lane's volume.
    pub const DATA: &str = "/data";
    /// The lane's Secret.
    pub const LANE_SECRETS: &str = "/etc/lanekeeper/lane";
    /// Liveness of every program.
    pub const HEALTHZ: &str = "/healthz";
    /// Readiness of every program.
    pub const READYZ: &str = "/readyz";
    /// A store's startup: answers once the log is open.
    pub const STARTUPZ: &str = "/startupz";
}

/// Programs of the image.
pub mod program {
    /// A lane's store.
    pub const STORE: &str = "/bin/lanekeeper-store";
    /// An embedder.
    pub const EMBEDDER: &str = "/bin/lanekeeper-embedder";
}

/// The finalizer of a Lane.
pub const LANE_FINALIZER: &str = "lanekeeper.dev/lane";
/// The finalizer of a FederationRecord whose collection lives in Qdrant.
pub const RECORD_FINALIZER: &str = "lanekeeper.dev/collection";

/// What a lane's StatefulSet, Services, Secret, ServiceAccount, NetworkPolicy and volume are called, in its namespace.
#[must_use]
pub fn lane_object(lane: &str) -> String {
    format!("lane-{lane}")
}

/// What a lane's Role and RoleBinding are called, in the system namespace.
#[must_use]
pub fn lane_role(lane: &LaneName) -> String {
    format!("lane-{}.{}", lane.namespace(), lane.name())
}

/// A lane's one pod.
#[must_use]
pub fn lane_pod(lane: &str) -> String {
    format!("lane-{lane}-0")
}

/// The host of a lane's pod, as its certificate names it.
#[must_use]
pub fn lane_host(lane: &LaneName) -> String {
    let (namespace, name) = (lane.namespace(), lane.name());
    format!("lane-{name}-0.lane-{name}.{namespace}.svc")
}

/// Every DNS name in a store's certificate; the first is [`lane_host`].
#[must_use]
pub fn lane_dns_names(lane: &LaneName) -> Vec<String> {
    let service = format!("lane-{}.{}.svc", lane.name(), lane.namespace());
    vec![lane_host(lane), service]
}

/// Where a lane's store is asked.
#[must_use]
pub fn store_url(lane: &LaneName) -> String {
    format!("https://{}:{}", lane_host(lane), port::STORE)
}

/// Every DNS name in the query service's certificate.
#[must_use]
pub fn query_dns_names(system_namespace: &str) -> Vec<String> {
    let name = system::QUERY;
    vec![
        format!("{name}.{system_namespace}.svc"),
        name.to_owned(),
        format!("{name}.{system_namespace}"),
        format!("{name}.{system_namespace}.svc.cluster.local"),
    ]
}

/// What an Embedder's Deployment, Service and cache volume are called, in the system namespace.
#[must_use]
pub fn embedder_object(embedder: &str) -> String {
    format!("embedder-{embedder}")
}

/// The Embedder that the operator makes for a built-in model.
#[must_use]
pub fn managed_embedder(fingerprint: &Fingerprint) -> String {
    format!("m-{}", fingerprint.short())
}

/// Where an Embedder that runs in the cluster is asked.
#[must_use]
pub fn embedder_url(embedder: &str, system_namespace: &str) -> String {
    format!("http://{}.{system_namespace}.svc:{}", embedder_object(embedder), port::EMBEDDER)
}

/// Names in Qdrant.
pub mod qdrant {
    use super::{Epoch, Fingerprint, Generation};

    /// The collection whose points are the fences of all lanes.
    pub const FENCES: &str = "lanekeeper-fence";
    /// The keyword field of a fence.
    pub const FENCE_FIELD: &str = "holder";

    /// The physical collection of a generation.
    #[must_use]
    pub fn physical(collection: &str, dimension: u32, fingerprint: &Fingerprint, generation: Generation) -> String {
        format!("{collection}__{dimension}_{}_g{generation}", fingerprint.short())
    }

    /// Every physical collection of `collection` starts like this, and none of another's: a full name holds
    /// no `_`.
    #[must_use]
    pub fn physical_prefix(collection: &str) -> String {
        format!("{collection}__")
    }

    /// The value of a fence: which collection, under which epoch.
    #[must_use]
    pub fn fence(collection: &str, epoch: Epoch) -> String {
        format!("{collection}#{epoch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::FingerprintFields;
    use crate::limits::LANE_NAME_CHARS;

    #[test]
    fn no_name_is_longer_than_kubernetes_takes() {
        let lane = LaneName::new(&"n".repeat(63), &"l".repeat(LANE_NAME_CHARS)).unwrap();
        // A StatefulSet's pods get a label of 11 more characters, and labels have at most 63.
        assert!(lane_object(lane.name()).len() <= 52);
        assert!(lane_pod(lane.name()).len() <= 63);
        assert!(lane_host(&lane).split('.').all(|label| label.len() <= 63));
        assert!(embedder_object(&"e".repeat(40)).len() <= 63);
        assert!(lane_role(&lane).len() <= 253);
    }

    #[test]
    fn a_collections_physical_names_are_told_from_anothers() {
        let fingerprint = FingerprintFields::builtin().fingerprint();
        let name = qdrant::physical("team.bob", 384, &fingerprint, Generation(2));
        assert_eq!(name, format!("team.bob__384_{}_g2", fingerprint.short()));
        assert!(name.starts_with(&qdrant::physical_prefix("team.bob")));
        assert!(!name.starts_with(&qdrant::physical_prefix("team.bo")));
        assert_eq!(qdrant::fence("team.bob", Epoch(7)), "team.bob#7");
    }

    #[test]
    fn a_store_is_asked_under_a_name_of_its_certificate() {
        let lane: LaneName = "team/bob".parse().unwrap();
        assert!(lane_dns_names(&lane).iter().any(|name| store_url(&lane) == format!("https://{name}:7443")));
        assert!(query_dns_names(SYSTEM_NAMESPACE).contains(&"lanekeeper-query.lanekeeper-system.svc".to_owned()));
    }
}
