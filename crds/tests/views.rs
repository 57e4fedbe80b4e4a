//! From a manifest to the lane that the parts below know.

use lanekeeper_core::fingerprint::{BUILTIN_MODEL, DocumentPooling, FingerprintFields};
use lanekeeper_core::lane::{LaneKind, Language, Ranking, Reader};
use lanekeeper_core::scope::Role;
use lanekeeper_core::wire::events::TurnRole;
use lanekeeper_core::{LaneUid, Principal};
use lanekeeper_crds::models::{BuiltinModel, FingerprintError};
use lanekeeper_crds::view::EmbedderError;
use lanekeeper_crds::{EmbedderSpec, Lane, Manifest, parse_lane_manifest};
use serde_json::{Value, json};

fn lane(metadata: &Value, spec: &Value) -> Lane {
    let object = json!({"apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Lane", "metadata": metadata, "spec": spec})
        .to_string();
    match parse_lane_manifest(&object, "team").unwrap().remove(0).unwrap() {
        Manifest::Lane(lane) => *lane,
        Manifest::Embedder(_) => unreachable!("a lane was written"),
    }
}

fn uid() -> LaneUid {
    "0193a1b2-0000-7000-8000-000000000001".parse().unwrap()
}

#[test]
fn the_shortest_lane_becomes_a_view_with_every_default() {
    let lane = lane(&json!({"name": "bob"}), &json!({"kind": "personal", "owner": "bob"}));
    let fields = lane.spec.embedder.fingerprint_fields(|_| None).unwrap();
    assert_eq!(fields, FingerprintFields::builtin());
    let view = lane.to_view(uid(), fields.fingerprint()).unwrap();
    assert_eq!(view.name.to_string(), "team/bob");
    assert_eq!(view.uid, uid());
    assert_eq!(view.kind, LaneKind::Personal);
    assert_eq!(view.owner, Some(Principal::user("bob").unwrap()));
    assert_eq!(view.collection, "team.bob");
    assert_eq!(view.projected_roles, [TurnRole::Assistant].into());
    assert_eq!(view.recall.ranking, Ranking::Fused);
    assert_eq!(view.recall.language, Language::English);
    assert_eq!((view.recall.min_score, view.recall.half_life_ms), (None, None));
    assert!(!view.suspend && view.access.is_empty() && view.reads.is_empty() && view.readers.is_empty());
}

#[test]
fn every_field_arrives() {
    let lane = lane(
        &json!({"name": "handbook", "namespace": "docs"}),
        &json!({
            "kind": "corpus", "collection": "pages", "suspend": true,
            "readers": [{"namespace": "team", "name": "*"}, {"namespace": "lab", "name": "ada"}],
            "access": [
                {"user": "ada", "role": "curator", "mayPublish": true},
                {"serviceAccount": {"namespace": "team", "name": "agent"}, "role": "writer"},
            ],
            "projection": {"roles": ["user", "tool", "system", "assistant"]},
            "recall": {"ranking": "rrf", "minScore": 0.25, "halfLife": "30d", "language": "german"},
        }),
    );
    let view = lane.to_view(uid(), FingerprintFields::builtin().fingerprint()).unwrap();
    assert_eq!(view.kind, LaneKind::Corpus);
    assert_eq!(view.owner, None);
    assert_eq!(view.collection, "docs.pages");
    assert!(view.suspend);
    assert_eq!(view.readers, [Reader::Namespace("team".into()), Reader::Lane("lab/ada".parse().unwrap())]);
    assert_eq!(view.access[0].principal.to_string(), "user:ada");
    assert_eq!((view.access[0].role, view.access[0].may_publish), (Role::Curator, true));
    assert_eq!(view.access[1].principal.to_string(), "sa:team/agent");
    assert_eq!((view.access[1].role, view.access[1].may_publish), (Role::Writer, false));
    assert_eq!(view.projected_roles.len(), 4);
    assert_eq!(view.recall.ranking, Ranking::Rrf);
    assert_eq!(view.recall.language, Language::German);
    assert_eq!((view.recall.min_score, view.recall.half_life_ms), (Some(0.25), Some(30 * 86_400_000)));
}

#[test]
fn annotations_are_read() {
    let metadata = json!({"name": "bob", "annotations": {
        "lanekeeper.dev/adopt": "0193a1b2-0000-7000-8000-000000000002",
        "lanekeeper.dev/confirm-delete": "0193a1b2-0000-7000-8000-000000000001",
    }});
    let lane = lane(&metadata, &json!({"kind": "personal", "owner": "bob"}));
    assert_eq!(lane.adopts(), Some("0193a1b2-0000-7000-8000-000000000002"));
    assert!(lane.confirms_delete(uid()));
    // The confirmation names one lane, not whichever has the name now.
    assert!(!lane.confirms_delete("0193a1b2-0000-7000-8000-000000000002".parse().unwrap()));
}

fn embedder(spec: Value) -> EmbedderSpec {
    serde_json::from_value(spec).unwrap()
}

#[test]
fn a_lane_finds_its_named_embedder() {
    let lane =
        lane(&json!({"name": "bob"}), &json!({"kind": "personal", "owner": "bob", "embedder": {"name": "large"}}));
    let large = embedder(json!({"model": "bge-m3", "runtime": "tei", "dimension": 1024}));
    let fields = lane.spec.embedder.fingerprint_fields(|name| (name == "large").then_some(&large)).unwrap();
    assert_eq!(fields.model, "bge-m3");
    assert_eq!(lane.spec.embedder.fingerprint_fields(|_| None), Err(EmbedderError::Unknown { name: "large".into() }));
}

#[test]
fn a_built_in_model_comes_from_the_table() {
    for model in BuiltinModel::ALL {
        assert_eq!(BuiltinModel::by_name(model.name()), Some(model));
        // The name in manifests and the table's name are one.
        assert_eq!(serde_json::to_value(model).unwrap(), model.name());
    }
    let declared = embedder(json!({"model": BUILTIN_MODEL, "dimension": 384, "dtype": "f32", "maxTokens": 256,
        "normalise": true, "pooling": {"query": "idf-weighted", "document": "late-chunk-mean"}}));
    assert_eq!(declared.fingerprint_fields().unwrap(), FingerprintFields::builtin());
    let prefixed = embedder(json!({"model": BUILTIN_MODEL, "queryPrefix": "q: "}));
    assert_ne!(prefixed.fingerprint_fields().unwrap().fingerprint(), FingerprintFields::builtin().fingerprint());
    for (field, value) in [
        ("revision", json!("2")),
        ("weightsSha256", json!("0".repeat(64))),
        ("dimension", json!(768)),
        ("dtype", json!("bf16")),
        ("maxTokens", json!(512)),
        ("normalise", json!(false)),
        ("pooling", json!({"query": "server"})),
        ("pooling", json!({"document": "server"})),
    ] {
        let mut spec = json!({ "model": BUILTIN_MODEL });
        spec[field] = value;
        let error = embedder(spec).fingerprint_fields().unwrap_err();
        assert!(
            matches!(&error, FingerprintError::ContradictsTable { field: at, .. } if at.starts_with(field)),
            "{error}"
        );
    }
    let unknown = embedder(json!({"model": "all-minilm-l6-v2"}));
    assert!(matches!(unknown.fingerprint_fields(), Err(FingerprintError::UnknownModel { .. })));
}

#[test]
fn what_an_external_one_leaves_out_is_undeclared() {
    let external =
        embedder(json!({"model": "m", "runtime": "external", "dimension": 8, "external": {"url": "http://x"}}));
    let fields = external.fingerprint_fields().unwrap();
    assert_eq!((fields.dtype.clone(), fields.max_tokens, fields.document_pooling), (None, None, None));
    let pooled = embedder(json!({"model": "m", "runtime": "external", "dimension": 8, "external": {"url": "http://x"},
        "pooling": {"document": "server"}}));
    let pooled = pooled.fingerprint_fields().unwrap();
    assert_eq!(pooled.document_pooling, Some(DocumentPooling::Server));
    assert_ne!(pooled.fingerprint(), fields.fingerprint());
    // Where it runs is no part of it.
    let moved = embedder(json!({"model": "m", "runtime": "external", "dimension": 8, "external": {"url": "http://y"}}));
    assert_eq!(moved.fingerprint_fields().unwrap().fingerprint(), fields.fingerprint());
}
