//! `metadata` as the API server checks it for every kind. No definition has it in its schema, so
//! without a server it has to be checked here.
//!
//! The rules that only our kinds have (no dots, 40 characters) are CEL rules of the kinds.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::schema::Kind;
use crate::structural::{Node, SchemaError};
use crate::validate::Violation;
use crate::{DNS_LABEL, DNS_SUBDOMAIN};

/// Set by the server, or about objects that only a cluster has. In a manifest they are ignored, so
/// that the output of `kubectl get --output yaml` can be used as one.
pub(crate) const SERVER_FIELDS: [&str; 11] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Most bytes of all annotations together.
const ANNOTATION_BYTES: usize = 256 * 1024;

pub(crate) fn check(kind: Kind, metadata: Option<&Value>, violations: &mut Vec<Violation>) {
    static SHAPE: LazyLock<Result<Node, SchemaError>> = LazyLock::new(|| {
        Node::compile(&json!({
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "maxLength": 253, "pattern": DNS_SUBDOMAIN},
                "namespace": {"type": "string", "maxLength": 63, "pattern": DNS_LABEL},
                "labels": {"type": "object", "additionalProperties": {
                    "type": "string", "maxLength": 63, "pattern": crate::pod::LABEL_VALUE}},
                "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
            }
        }))
    });
    let mut metadata = metadata.cloned().unwrap_or_else(|| json!({}));
    if let Some(fields) = metadata.as_object_mut() {
        fields.retain(|name, _| !SERVER_FIELDS.contains(&name.as_str()));
    }
    match &*SHAPE {
        Ok(shape) => shape.check(&metadata, "metadata", violations),
        Err(error) => violations.push(Violation::new("metadata", error.to_string())),
    }
    match (kind.is_namespaced(), metadata.get("namespace")) {
        (true, None) => violations.push(Violation::new("metadata.namespace", "required")),
        (false, Some(_)) => {
            violations.push(Violation::new("metadata.namespace", format!("{} lives in no namespace", kind.name())));
        }
        (true, Some(_)) | (false, None) => {}
    }
    for map in ["labels", "annotations"] {
        for key in metadata.get(map).and_then(Value::as_object).into_iter().flat_map(serde_json::Map::keys) {
            if !is_qualified_name(key) {
                violations.push(Violation::new(format!("metadata.{map}"), format!("{key:?} is no valid key")));
            }
        }
    }
    let annotations = metadata.get("annotations").and_then(Value::as_object);
    let bytes: usize =
        annotations.into_iter().flatten().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > ANNOTATION_BYTES {
        violations.push(Violation::new(
            "metadata.annotations",
            format!("has {bytes} bytes, at most {ANNOTATION_BYTES} are allowed"),
        ));
    }
}

/// `name` or `prefix/name`.
fn is_qualified_name(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let alphanumeric_ends = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    let name_is_good = name.len() <= 63
        && alphanumeric_ends(name)
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    let prefix_is_good = prefix.is_none_or(|prefix| {
        prefix.len() <= 253
            && prefix.split('.').all(|label| {
                alphanumeric_ends(label)
                    && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            })
    });
    name_is_good && prefix_is_good
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_qualified_names() {
        for good in ["a", "lanekeeper.dev/adopt", "a.b-c/D_e.f"] {
            assert!(is_qualified_name(good), "{good}");
        }
        for bad in ["", "/", "a/", "/a", "a/b/c", "A.b/c", "a..b/c", "-a", "a_", "a b", &"x".repeat(64)] {
            assert!(!is_qualified_name(bad), "{bad}");
        }
    }
}
