//! The rules of our kinds without an API server.
//!
//! Order as the API server has it: metadata and structure first, then, only if those hold, the CEL
//! rules on the object with its defaults filled in. Defaults are filled in on both sides of an update.
//!
//! Guarantee: what passes here passes the API server's admission of the same definition. The reverse
//! does not hold everywhere: an unknown field is refused here and pruned there, and a rule that
//! kube-cel cannot run refuses every object.

use std::sync::LazyLock;

use kube_cel::CompiledSchema;
use serde::Serialize;
use serde_json::Value;

use crate::schema::Kind;
use crate::structural::{Node, SchemaError};
use crate::{API_VERSION, Embedder, Lane, object_meta};

/// A rule that an object breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The field, such as `spec.access[0].role`; empty for the object as a whole.
    pub path: String,
    /// The rule, in words.
    pub rule: String,
}

impl Violation {
    pub(crate) fn new(path: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { path: path.into(), rule: rule.into() }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.path.is_empty() { f.write_str(&self.rule) } else { write!(f, "{}: {}", self.path, self.rule) }
    }
}

/// Whether `object` may be created.
pub fn validate_create(object: &Value) -> Result<(), Vec<Violation>> {
    let kind = kind_of(object)?;
    check(kind, object, None)
}

/// Whether `old` may become `new`. `old` is taken as valid.
pub fn validate_update(old: &Value, new: &Value) -> Result<(), Vec<Violation>> {
    let kind = kind_of(new)?;
    for (path, pointer) in
        [("kind", "/kind"), ("metadata.name", "/metadata/name"), ("metadata.namespace", "/metadata/namespace")]
    {
        if old.pointer(pointer) != new.pointer(pointer) {
            return Err(vec![Violation::new(path, "an update is of the same object")]);
        }
    }
    check(kind, new, Some(old))
}

/// [`validate_update`] on Lanes.
pub fn validate_lane_update(old: &Lane, new: &Lane) -> Result<(), Vec<Violation>> {
    validate_update(&json(old)?, &json(new)?)
}

/// [`validate_update`] on Embedders.
pub fn validate_embedder_update(old: &Embedder, new: &Embedder) -> Result<(), Vec<Violation>> {
    validate_update(&json(old)?, &json(new)?)
}

fn json(object: &impl Serialize) -> Result<Value, Vec<Violation>> {
    serde_json::to_value(object).map_err(|error| vec![Violation::new("", format!("cannot be written: {error}"))])
}

/// The object as the API server would store it: every default of its schema filled in.
pub fn with_defaults(object: &Value) -> Result<Value, Vec<Violation>> {
    let kind = kind_of(object)?;
    Ok(defaulted(&rules(kind).schema, object))
}

/// One kind's schema, ready to run.
struct Rules {
    schema: Value,
    structure: Result<Node, SchemaError>,
    cel: CompiledSchema,
}

fn rules(kind: Kind) -> &'static Rules {
    static LANE: LazyLock<Rules> = LazyLock::new(|| compile(Kind::Lane));
    static EMBEDDER: LazyLock<Rules> = LazyLock::new(|| compile(Kind::Embedder));
    static FEDERATION_RECORD: LazyLock<Rules> = LazyLock::new(|| compile(Kind::FederationRecord));
    match kind {
        Kind::Lane => &LANE,
        Kind::Embedder => &EMBEDDER,
        Kind::FederationRecord => &FEDERATION_RECORD,
    }
}

fn compile(kind: Kind) -> Rules {
    let schema = kind.schema();
    Rules { structure: Node::compile(&schema), cel: kube_cel::compile_schema(&schema), schema }
}

fn kind_of(object: &Value) -> Result<Kind, Vec<Violation>> {
    let Some(fields) = object.as_object() else {
        return Err(vec![Violation::new("", "must be an object")]);
    };
    if fields.get("apiVersion").and_then(Value::as_str) != Some(API_VERSION) {
        return Err(vec![Violation::new("apiVersion", format!("must be {API_VERSION}"))]);
    }
    fields.get("kind").and_then(Value::as_str).and_then(Kind::by_name).ok_or_else(|| {
        let kinds = Kind::ALL.map(Kind::name).join(", ");
        vec![Violation::new("kind", format!("must be one of: {kinds}"))]
    })
}

fn check(kind: Kind, object: &Value, old: Option<&Value>) -> Result<(), Vec<Violation>> {
    let rules = rules(kind);
    let structure = match &rules.structure {
        Ok(structure) => structure,
        Err(error) => return Err(vec![Violation::new("", error.to_string())]),
    };
    let object = defaulted(&rules.schema, object);
    let mut violations = Vec::new();
    object_meta::check(kind, object.get("metadata"), &mut violations);
    structure.check(&without_header(&object), "", &mut violations);
    if !violations.is_empty() {
        return Err(violations);
    }
    let old = old.map(|old| defaulted(&rules.schema, old));
    match kube_cel::validate_compiled(&rules.cel, &object, old.as_ref()) {
        Ok(()) => Ok(()),
        // Whatever the kind of error, a rule that gave no `true` refuses.
        Err(errors) => Err(errors.into_iter().map(|error| from_cel(error.field_path, error.message)).collect()),
    }
}

fn from_cel(path: String, rule: String) -> Violation {
    // Rules on the root are about the name: it is all of the metadata that CEL sees.
    Violation { path: if path.is_empty() { "metadata.name".to_owned() } else { path }, rule }
}

/// The schema knows nothing of these three: they are the same for every kind.
fn without_header(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        for name in ["apiVersion", "kind", "metadata"] {
            fields.remove(name);
        }
    }
    object
}

fn defaulted(schema: &Value, object: &Value) -> Value {
    let mut object = object.clone();
    drop_defaulted_nulls(schema, &mut object);
    // kube-cel does not fill in below a default it has just filled in, the API server does: run it until
    // nothing changes. Each round fills at least one level, and our schemas have fewer than eight.
    for _ in 0..8 {
        let next = kube_cel::apply_defaults(schema, &object);
        if next == object {
            break;
        }
        object = next;
    }
    object
}

/// As the API server does before it fills in defaults: a null where a default exists is no value.
fn drop_defaulted_nulls(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let empty = serde_json::Map::new();
            let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
            fields.retain(|name, value| {
                !(value.is_null() && properties.get(name).is_some_and(|property| property.get("default").is_some()))
            });
            let additional = schema.get("additionalProperties");
            for (name, value) in fields {
                if let Some(schema) = properties.get(name).or(additional) {
                    drop_defaulted_nulls(schema, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| drop_defaulted_nulls(schema, item));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_of_ours_is_understood_and_every_rule_compiles() {
        fn broken(schema: &CompiledSchema) -> usize {
            schema.compilation_errors().len()
                + schema.properties.values().map(broken).sum::<usize>()
                + schema.items.as_deref().map_or(0, broken)
                + schema.additional_properties.as_deref().map_or(0, broken)
        }
        for kind in Kind::ALL {
            let rules = rules(kind);
            assert!(rules.structure.is_ok(), "{kind:?}: {:?}", rules.structure.as_ref().err());
            assert_eq!(broken(&rules.cel), 0, "{kind:?}");
        }
    }

    #[test]
    fn every_default_of_ours_is_valid_itself() {
        fn walk(schema: &Value, path: &str, seen: &mut usize) {
            if let Some(default) = schema.get("default") {
                let mut violations = Vec::new();
                Node::compile(schema).unwrap().check(&defaulted(schema, default), path, &mut violations);
                assert_eq!(violations, [], "{path}");
                *seen += 1;
            }
            for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                walk(schema, &crate::structural::join(path, name), seen);
            }
        }
        let mut seen = 0;
        for kind in Kind::ALL {
            walk(&kind.schema(), kind.name(), &mut seen);
        }
        assert!(seen > 5, "only {seen} defaults found: the walk is broken");
    }
}
