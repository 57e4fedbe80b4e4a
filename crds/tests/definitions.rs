//! The definitions as they are installed. `crds/yaml` is the snapshot: `cargo xtask codegen` writes it,
//! this fails when it is not what the types say.

use std::path::Path;

use lanekeeper_crds::schema::Kind;
use serde_json::Value;

fn committed(kind: Kind) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("yaml").join(kind.yaml_file());
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_committed_yaml_is_what_the_types_say() {
    for kind in Kind::ALL {
        assert_eq!(committed(kind), kind.yaml().unwrap(), "run `cargo xtask codegen`");
    }
}

#[test]
fn the_yaml_reads_back_as_the_definition() {
    for kind in Kind::ALL {
        let read: Value = serde_saphyr::from_str(&committed(kind)).unwrap();
        assert_eq!(read, kind.definition(), "{kind:?}");
    }
}

#[test]
fn a_lane_has_the_names_and_columns_that_the_design_gives_it() {
    let lane = Kind::Lane.definition();
    assert_eq!(lane["metadata"]["name"], "lanes.lanekeeper.dev");
    assert_eq!(lane["spec"]["names"]["shortNames"], serde_json::json!(["ln"]));
    assert_eq!(lane["spec"]["scope"], "Namespaced");
    let columns: Vec<&str> = lane["spec"]["versions"][0]["additionalPrinterColumns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns, ["Kind", "Owner", "Ready", "Reason", "Events", "Points", "Embedder", "Age"]);
    assert_eq!(Kind::Embedder.definition()["spec"]["scope"], "Cluster");
}

#[test]
fn every_kind_has_a_status_of_its_own() {
    for kind in Kind::ALL {
        let definition = kind.definition();
        let version = &definition["spec"]["versions"][0];
        assert_eq!(version["name"], "v1alpha1");
        assert_eq!(version["subresources"], serde_json::json!({"status": {}}), "{kind:?}");
    }
}

/// What the API server asks of a schema, as far as it can be told without one.
#[test]
fn the_schemas_are_structural_and_bounded() {
    fn walk(schema: &Value, path: &str, in_status: bool) {
        let fields = schema.as_object().unwrap_or_else(|| panic!("{path}: no object"));
        for keyword in ["nullable", "oneOf", "anyOf", "allOf", "not", "$ref", "uniqueItems"] {
            assert!(!fields.contains_key(keyword), "{path}: {keyword}");
        }
        let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
        // The cost of a CEL rule is estimated from the bounds of what it reads; unbounded is refused.
        if !in_status {
            match kind {
                "string" if !fields.contains_key("enum") => {
                    assert!(fields.contains_key("maxLength"), "{path}: no maxLength");
                }
                "array" => assert!(fields.contains_key("maxItems"), "{path}: no maxItems"),
                "object" if fields.contains_key("additionalProperties") => {
                    assert!(fields.contains_key("maxProperties"), "{path}: no maxProperties");
                }
                _ => {}
            }
        }
        if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
            assert!(!fields.contains_key("additionalProperties"), "{path}: both kinds of properties");
            for (name, schema) in properties {
                walk(schema, &format!("{path}.{name}"), in_status || (path.is_empty() && name == "status"));
            }
        }
        for keyword in ["items", "additionalProperties"] {
            if let Some(schema) = fields.get(keyword) {
                walk(schema, &format!("{path}.{keyword}"), in_status);
            }
        }
    }
    for kind in Kind::ALL {
        walk(&kind.schema(), "", false);
    }
}
