//! Manifests as people write them.

use lanekeeper_crds::manifest::{DocumentError, DocumentFault, MANIFEST_BYTES, ManifestError, ObjectName};
use lanekeeper_crds::validate::{validate_embedder_update, validate_lane_update};
use lanekeeper_crds::{Lane, Manifest, parse_lane_manifest};

const LANE: &str = "apiVersion: lanekeeper.dev/v1alpha1
kind: Lane
metadata: {name: bob}
spec: {kind: personal, owner: bob}
";

fn read(yaml: &str) -> Vec<Result<Manifest, DocumentError>> {
    parse_lane_manifest(yaml, "default").unwrap_or_else(|error| panic!("{error}\n{yaml}"))
}

fn lane(yaml: &str) -> Lane {
    match read(yaml).remove(0) {
        Ok(Manifest::Lane(lane)) => *lane,
        other => panic!("no lane: {other:?}"),
    }
}

/// The one refusal, as a person reads it.
fn refusal(yaml: &str) -> String {
    let outcomes = read(yaml);
    assert_eq!(outcomes.len(), 1);
    outcomes.into_iter().next().unwrap().unwrap_err().to_string()
}

fn file_error(yaml: &str) -> ManifestError {
    parse_lane_manifest(yaml, "default").expect_err(yaml)
}

#[test]
fn the_shortest_useful_lane_has_every_default() {
    let lane = lane(LANE);
    assert_eq!(lane.metadata.namespace.as_deref(), Some("default"));
    insta::assert_snapshot!(serde_saphyr::to_string(&lane).unwrap());
}

#[test]
fn a_namespace_that_is_given_stays() {
    let lane = lane(&LANE.replace("{name: bob}", "{name: bob, namespace: team}"));
    assert_eq!(lane.lane_name().unwrap().to_string(), "team/bob");
}

#[test]
fn several_documents_each_have_their_own_outcome() {
    let bad = LANE.replace("owner: bob", "onwer: bob").replace("name: bob", "name: eve");
    let file = format!(
        "# a comment first\n---\n{LANE}---\n# nothing\n---\n{bad}---\n{}",
        LANE.replace("name: bob", "name: ada")
    );
    let outcomes = read(&file);
    assert_eq!(outcomes.len(), 3);
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok());
    let error = outcomes[1].as_ref().unwrap_err();
    // The object is known although it is refused, so that nobody takes its lane for removed.
    let eve = ObjectName { kind: "Lane", namespace: Some("default".to_owned()), name: "eve".to_owned() };
    assert_eq!(error.object, Some(eve));
    assert_eq!(error.document, 2);
    insta::assert_snapshot!(error.to_string(), @"document 2 (Lane default/eve): spec.onwer: unknown field");
}

#[test]
fn an_embedder_is_read_and_held_against_the_table() {
    let embedder = |spec: &str| {
        format!("apiVersion: lanekeeper.dev/v1alpha1\nkind: Embedder\nmetadata: {{name: e}}\nspec: {spec}\n")
    };
    assert!(matches!(read(&embedder("{model: all-MiniLM-L6-v2}"))[0], Ok(Manifest::Embedder(_))));
    insta::assert_snapshot!(refusal(&embedder("{model: nomic}")), @r#"document 1 (Embedder e): spec.model: "nomic" is not built in; built in are: all-MiniLM-L6-v2"#);
    insta::assert_snapshot!(refusal(&embedder("{model: all-MiniLM-L6-v2, dimension: 768}")), @"document 1 (Embedder e): spec.dimension: must be 384 for this built-in model, or be left out");
}

#[test]
fn another_kind_is_refused_by_name() {
    for (yaml, named) in [
        ("apiVersion: v1\nkind: Secret\n", "kind \"Secret\" of \"v1\""),
        ("apiVersion: v1\nkind: List\nitems: []\n", "kind \"List\" of \"v1\""),
        ("apiVersion: lanekeeper.dev/v1alpha1\nkind: FederationRecord\n", "kind \"FederationRecord\""),
        ("apiVersion: lanekeeper.dev/v2\nkind: Lane\n", "of \"lanekeeper.dev/v2\""),
        ("kind: Lane\n", "of \"\""),
        ("{}", "kind \"\" of \"\""),
    ] {
        let refusal = refusal(yaml);
        assert!(refusal.contains(named), "{yaml}: {refusal}");
    }
    assert_eq!(read("- a\n- b\n")[0].as_ref().unwrap_err().fault, DocumentFault::NotAnObject);
    assert_eq!(read("just words")[0].as_ref().unwrap_err().fault, DocumentFault::NotAnObject);
}

#[test]
fn an_object_stands_in_a_file_once() {
    let outcomes = read(&format!("{LANE}---\n{LANE}"));
    assert!(outcomes[0].is_ok());
    assert_eq!(outcomes[1].as_ref().unwrap_err().fault, DocumentFault::Twice);
    // A lane and an embedder may share a name, and so may lanes of two namespaces.
    let other = LANE.replace("{name: bob}", "{name: bob, namespace: team}");
    assert!(read(&format!("{LANE}---\n{other}")).iter().all(Result::is_ok));
}

#[test]
fn a_key_twice_is_refused_with_its_line() {
    let twice = format!("{}metadata: {{name: eve}}\n", LANE);
    let ManifestError::Yaml { line, problem, .. } = file_error(&twice) else { panic!("no YAML error") };
    assert_eq!(line, 5, "{problem}");
    assert!(problem.contains("metadata"), "{problem}");
    file_error(&LANE.replace("owner: bob", "owner: bob, owner: eve"));
}

#[test]
fn what_is_no_yaml_is_refused() {
    for bad in ["a: [", "a: b: c", "a: *nowhere", "a: !secret b", "<<: {a: b}"] {
        assert!(matches!(file_error(bad), ManifestError::Yaml { .. }), "{bad}");
    }
}

#[test]
fn a_large_file_is_refused_before_it_is_read() {
    let bytes = MANIFEST_BYTES + 1;
    assert_eq!(file_error(&"#".repeat(bytes)), ManifestError::TooLarge { bytes });
    assert_eq!(read(&"#".repeat(MANIFEST_BYTES)), []);
}

#[test]
fn a_bomb_of_aliases_is_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let below = format!("*a{}, ", level - 1).repeat(9);
        bomb.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    let started = std::time::Instant::now();
    assert!(matches!(file_error(&bomb), ManifestError::Yaml { .. }));
    assert!(started.elapsed().as_secs() < 5, "it was expanded first");
    let deep = format!("{}x{}", "[".repeat(200), "]".repeat(200));
    assert!(matches!(file_error(&deep), ManifestError::Yaml { .. }));
}

#[test]
fn an_alias_of_moderate_use_is_read() {
    let yaml = LANE.replace("{kind: personal, owner: bob}", "\n  kind: personal\n  owner: &me bob\n  collection: *me");
    assert_eq!(lane(&yaml).spec.collection.as_deref(), Some("bob"));
}

#[test]
fn words_that_yaml_takes_for_other_types_are_no_names() {
    // As in a cluster: `no` is false there, and false is no name.
    for owner in ["no", "true", "12", "1.5", "null", "~", "\"\""] {
        let refusal = refusal(&LANE.replace("owner: bob", &format!("owner: {owner}")));
        assert!(refusal.contains("spec.owner"), "{owner}: {refusal}");
    }
    assert_eq!(lane(&LANE.replace("owner: bob", "owner: \"12\"")).spec.owner.as_deref(), Some("12"));
}

#[test]
fn what_a_server_sets_is_ignored() {
    let exported = LANE.replace(
        "{name: bob}",
        "{name: bob, uid: 0b0c, resourceVersion: \"7\", generation: 2, creationTimestamp: \"2026-11-30T09:00:00Z\"}",
    ) + "status: {events: 3, whatever: true}\n";
    assert_eq!(lane(&exported), lane(LANE));
}

#[test]
fn several_broken_rules_are_all_named() {
    let yaml = LANE.replace("{kind: personal, owner: bob}", "{kind: group, owner: Bob, suspend: maybe}");
    insta::assert_snapshot!(refusal(&yaml));
}

#[test]
fn an_edited_manifest_is_held_against_the_one_before() {
    let before = lane(LANE);
    let grown = lane(&LANE.replace("owner: bob", "owner: bob, storage: {size: 3Gi}"));
    assert_eq!(validate_lane_update(&before, &grown), Ok(()));
    let shrunk = validate_lane_update(&grown, &before).unwrap_err();
    assert_eq!(shrunk[0].to_string(), "spec.storage.size: storage may grow but not shrink");
    let embedder = |spec: &str| {
        let yaml =
            format!("apiVersion: lanekeeper.dev/v1alpha1\nkind: Embedder\nmetadata: {{name: e}}\nspec: {spec}\n");
        match read(&yaml).remove(0) {
            Ok(Manifest::Embedder(embedder)) => *embedder,
            other => panic!("no embedder: {other:?}"),
        }
    };
    let (plain, prefixed) =
        (embedder("{model: all-MiniLM-L6-v2}"), embedder("{model: all-MiniLM-L6-v2, queryPrefix: q}"));
    assert_eq!(validate_embedder_update(&plain, &plain), Ok(()));
    let refused = validate_embedder_update(&plain, &prefixed).unwrap_err();
    assert_eq!(refused[0].to_string(), "spec.queryPrefix: queryPrefix is immutable");
}
