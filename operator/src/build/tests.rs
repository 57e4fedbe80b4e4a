//! Snapshots of every object that is made: a changed line of a pod is a changed line of a review.

use lanekeeper_core::fingerprint::FingerprintFields;
use lanekeeper_crds::{Embedder, Lane};
use serde_json::{Value, json};

use super::*;
use crate::controller::lane::validate::target;

pub(crate) const UID: &str = "0193a1b2-0000-7000-8000-000000000001";

pub(crate) fn config(arguments: &[&str]) -> Config {
    use clap::Parser as _;
    let all = ["lanekeeper-operator", "--image=lanekeeper:1", "--system-namespace=sys"];
    Config::parse_from(all.iter().chain(arguments))
}

pub(crate) fn lane(spec: Value) -> Lane {
    let lane = json!({
        "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Lane",
        "metadata": {"name": "bob", "namespace": "team", "uid": UID, "generation": 1}, "spec": spec,
    });
    lanekeeper_crds::validate_create(&lane).unwrap_or_else(|broken| panic!("{broken:?}"));
    serde_json::from_value(lane).unwrap()
}

fn plan<'a>(lane: &'a Lane, config: &'a Config) -> LanePlan<'a> {
    let fields = FingerprintFields::builtin();
    let name = cluster::managed_embedder(&fields.fingerprint());
    LanePlan {
        lane,
        name: lane.lane_name().unwrap(),
        uid: UID.parse().unwrap(),
        config,
        collection: lane.full_collection().unwrap(),
        embedder: EmbedderTarget {
            url: cluster::embedder_url(&name, &config.system_namespace),
            name,
            is_ours: true,
            is_in_cluster: true,
            fields,
        },
        log_id: "1".repeat(64).parse().unwrap(),
        adopted: None,
        head_seq: 0,
    }
}

fn shortest() -> Lane {
    lane(json!({"kind": "personal", "owner": "bob"}))
}

#[test]
fn the_shortest_lane_becomes_these_objects() {
    let (lane, config) =
        (shortest(), config(&["--network-policies", "--api-server-cidr=10.0.0.1/32", "--api-server-port=6443"]));
    let plan = plan(&lane, &config);
    insta::assert_yaml_snapshot!("stateful_set", stateful_set::stateful_set(&plan, None).unwrap());
    insta::assert_yaml_snapshot!("service", service::service(&plan).unwrap());
    insta::assert_yaml_snapshot!("service_account", service::service_account(&plan).unwrap());
    insta::assert_yaml_snapshot!("role", role::role(&plan).unwrap());
    insta::assert_yaml_snapshot!("role_binding", role::role_binding(&plan).unwrap());
    insta::assert_yaml_snapshot!("network_policy", network_policy::network_policy(&plan).unwrap());
    insta::assert_yaml_snapshot!("volume", volume::volume(&plan, None).unwrap());
    let claim = record::Claim {
        lane: &plan.name,
        uid: plan.uid,
        collection: &plan.collection,
        log_id: plan.log_id,
        fingerprint: plan.embedder.fingerprint(),
        now_s: 1_800_000_000,
        system_namespace: "sys",
        in_qdrant: true,
    };
    let record = record::record(&claim).unwrap();
    lanekeeper_crds::validate_create(&serde_json::to_value(&record).unwrap()).unwrap();
    insta::assert_yaml_snapshot!("record", record);
}

#[test]
fn every_field_that_a_platform_needs_reaches_the_pod() {
    let lane = lane(json!({
        "kind": "corpus", "collection": "notes",
        "storage": {"size": "5Gi", "storageClassName": "fast", "accessMode": "ReadWriteOncePod"},
        "projection": {"roles": ["user", "assistant"]},
        "recall": {"minScore": -0.25, "language": "german"},
        "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}},
        "tolerations": [{"key": "only", "operator": "Exists", "effect": "NoSchedule"}],
        "nodeSelector": {"disk": "ssd"},
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "pull"}],
        "podLabels": {"cost-centre": "42"},
    }));
    let config =
        config(&["--qdrant-url=http://qdrant.vectors.svc:6334", "--image-pull-policy=Never", "--network-policies"]);
    let mut plan = plan(&lane, &config);
    plan.adopted = Some("0193a1b2-0000-7000-8000-000000000009".parse().unwrap());
    insta::assert_yaml_snapshot!("stateful_set_full", stateful_set::stateful_set(&plan, None).unwrap());
    insta::assert_yaml_snapshot!("network_policy_qdrant", network_policy::network_policy(&plan).unwrap());
    insta::assert_yaml_snapshot!("volume_full", volume::volume(&plan, None).unwrap());
    let labels =
        stateful_set::stateful_set(&plan, None).unwrap().spec.unwrap().template.metadata.unwrap().labels.unwrap();
    assert_eq!(labels[label::LANE], "bob", "our labels win");
}

#[test]
fn a_store_of_another_server_is_told_the_fields_and_its_own_base() {
    let (lane, config) = (shortest(), config(&[]));
    let mut plan = plan(&lane, &config);
    let embedder = embedder("own", json!({"model": "m", "runtime": "tei", "dimension": 384}));
    plan.embedder = target("own", &embedder.spec, "sys", embedder.spec.fingerprint_fields().unwrap());
    let set = stateful_set::stateful_set(&plan, None).unwrap();
    let arguments = set.spec.unwrap().template.spec.unwrap().containers.remove(0).args.unwrap();
    assert!(arguments.contains(&"--embedder-url=http://embedder-own.sys.svc:7070/v1".to_owned()), "{arguments:?}");
    let fields = arguments.iter().find_map(|argument| argument.strip_prefix("--embedder-fields=")).unwrap();
    assert_eq!(serde_json::from_str::<FingerprintFields>(fields).unwrap(), plan.embedder.fields);
}

#[test]
fn a_volume_that_is_there_keeps_its_class_and_never_shrinks() {
    let lane = lane(json!({"kind": "personal", "owner": "bob", "storage": {"size": "1Gi", "storageClassName": "new"}}));
    let config = config(&[]);
    let plan = plan(&lane, &config);
    let stored = serde_json::from_value(json!({
        "metadata": {"name": "lane-bob"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "old", "resources": {"requests": {"storage": "3Gi"}}},
    }))
    .unwrap();
    let spec = volume::volume(&plan, Some(&stored)).unwrap().spec.unwrap();
    assert_eq!(spec.storage_class_name.as_deref(), Some("old"));
    assert_eq!(spec.resources.unwrap().requests.unwrap()["storage"].0, "3Gi");
}

#[test]
fn a_log_that_grows_gets_more_time_to_open_and_restarts_no_pod() {
    let (lane, config) = (shortest(), config(&[]));
    let mut plan = plan(&lane, &config);
    let failures = |set: &k8s_openapi::api::apps::v1::StatefulSet| {
        let container = &set.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers[0];
        assert!(container.liveness_probe.is_none(), "it would kill a replay");
        container.startup_probe.as_ref().unwrap().failure_threshold.unwrap()
    };
    let small = stateful_set::stateful_set(&plan, None).unwrap();
    assert_eq!(failures(&small) * 5, 600);
    plan.head_seq = 100_000;
    assert_eq!(stateful_set::stateful_set(&plan, Some(&small)).unwrap(), small);
    plan.head_seq = 1_000_000;
    let large = stateful_set::stateful_set(&plan, Some(&small)).unwrap();
    assert!(failures(&large) * 5 >= 4000);
    plan.head_seq = 0;
    assert_eq!(stateful_set::stateful_set(&plan, Some(&large)).unwrap(), large, "it falls");
}

fn embedder(name: &str, spec: Value) -> Embedder {
    let embedder = json!({
        "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Embedder",
        "metadata": {"name": name, "uid": UID, "generation": 1}, "spec": spec,
    });
    lanekeeper_crds::validate_create(&embedder).unwrap_or_else(|broken| panic!("{broken:?}"));
    serde_json::from_value(embedder).unwrap()
}

#[test]
fn an_embedder_becomes_these_objects() {
    use super::embedder::deployment::{NoDeployment, deployment};
    use super::embedder::{EmbedderPlan, cache, service};
    let images = config(&["--tei-image=tei:1", "--llamacpp-image=llama:1", "--image-pull-secret=pull"]);
    let of = |name: &str, spec: Value, config: &Config| {
        let embedder = embedder(name, spec);
        let plan = EmbedderPlan::of(&embedder, config).unwrap();
        deployment(&plan).unwrap()
    };
    let builtin = of("m-1", json!({"model": "all-MiniLM-L6-v2"}), &images).unwrap();
    assert_eq!(builtin.spec.as_ref().unwrap().replicas, None, "whatever scales it decides");
    insta::assert_yaml_snapshot!("embedder_builtin", builtin);
    let gpu = json!({
        "model": "all-MiniLM-L6-v2", "replicas": 2,
        "gpu": {
            "resourceName": "nvidia.com/gpu", "count": 2, "nodeSelector": {"accelerator": "h200"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "runtimeClassName": "nvidia",
        },
    });
    insta::assert_yaml_snapshot!("embedder_gpu", of("gpu", gpu, &images).unwrap());
    let tei = json!({
        "model": "intfloat/e5-base", "revision": "r1", "dtype": "f16", "dimension": 768, "runtime": "tei",
        "cache": {"size": "10Gi", "storageClassName": "fast"},
    });
    insta::assert_yaml_snapshot!("embedder_tei", of("tei", tei.clone(), &images).unwrap());
    let stored = embedder("tei", tei.clone());
    let plan = EmbedderPlan::of(&stored, &images).unwrap();
    insta::assert_yaml_snapshot!("embedder_service", service(&plan).unwrap());
    insta::assert_yaml_snapshot!("embedder_cache", cache(&plan, None).unwrap());
    let llama = json!({
        "model": "nomic-ai/nomic-embed-text-v1.5-GGUF:Q8_0", "dimension": 768, "maxTokens": 2048, "runtime": "llamacpp",
        "gpu": {},
    });
    insta::assert_yaml_snapshot!("embedder_llamacpp", of("llama", llama, &images).unwrap());
    let external =
        json!({"model": "m", "dimension": 8, "runtime": "external", "external": {"url": "https://x.test/v1"}});
    assert_eq!(of("out", external, &images).unwrap_err(), NoDeployment::External);
    assert_eq!(of("tei", tei, &config(&[])).unwrap_err(), NoDeployment::NoImage("--tei-image"));
}

#[test]
fn a_secret_is_made_once_and_holds_nothing_of_others() {
    use k8s_openapi::api::core::v1::Secret;
    use k8s_openapi::jiff::Timestamp;
    use lanekeeper_core::attest::LaneKey;
    use lanekeeper_core::cluster::key;
    use lanekeeper_core::secret::Secret as Hidden;

    use crate::keys::{Authority, Keys};

    let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
    let keys = |version: u32, master: u8| {
        let (certificate, private) = Authority::make(at(0)).unwrap();
        let authority = Authority::read(&certificate, &private).unwrap();
        Keys { master: Hidden::new([master; 32]), version, authority }
    };
    let (lane, config, first) = (shortest(), config(&[]), keys(1, 7));
    let plan = plan(&lane, &config);
    let make = |stored: Option<&Secret>, keys: &Keys, now: Timestamp| {
        let sources = secret::Sources { stored, keys, token: None, embedder_token: None, now, renew: true };
        secret::secret(&plan, &sources).unwrap()
    };
    let (made, due) = make(None, &first, at(0));
    let data = made.data.clone().unwrap();
    let own = LaneKey::derive(&[7; 32], plan.uid, 1);
    assert_eq!(data[key::ATTESTATION].0, own.expose());
    assert!(data.values().all(|bytes| bytes.0 != [7; 32]), "the master key");
    let names: Vec<&str> = data.keys().map(String::as_str).collect();
    assert_eq!(names, ["attestation.key", "attestation.version", "ca.crt", "tls.crt", "tls.key"]);
    assert_eq!(make(Some(&made), &first, at(3600)).0, made, "a reconcile rotates nothing");
    assert!(due.is_some_and(|due| due > at(50 * 86_400)));

    // The version rises, here with another master: the key before stays for an hour.
    let second = keys(2, 9);
    let (rotated, due) = make(Some(&made), &second, at(7200));
    let data = rotated.data.clone().unwrap();
    assert_eq!(data[key::ATTESTATION].0, LaneKey::derive(&[9; 32], plan.uid, 2).expose());
    assert_eq!(data[key::ATTESTATION_PREVIOUS].0, own.expose());
    assert_eq!(data[key::ATTESTATION_VERSION_PREVIOUS].0, b"1");
    assert_eq!(due, Some(at(7200 + secret::PREVIOUS_S)));
    let (kept, _) = make(Some(&rotated), &second, at(7200 + secret::PREVIOUS_S - 1));
    assert_eq!(kept.data.unwrap()[key::ATTESTATION_PREVIOUS].0, own.expose());
    let (after, _) = make(Some(&rotated), &second, at(7200 + secret::PREVIOUS_S));
    assert!(!after.data.unwrap().contains_key(key::ATTESTATION_PREVIOUS), "the key before stays for ever");
}
