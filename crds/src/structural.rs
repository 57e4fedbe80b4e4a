//! The structural half of the schema: types, required fields, enums, patterns, bounds, lists that are
//! sets or maps. What kube-cel leaves to the API server, run here.
//!
//! What must always hold: a keyword that is not handled makes the whole schema unusable
//! ([`SchemaError`]), and with it every manifest refused. A rule that is only skipped would let in
//! locally what a cluster refuses. A field that the schema does not have is refused: the API server
//! would prune it, and the author would believe that it does something.
//!
//! Not done here: CEL rules and defaults (kube-cel's), `metadata` (see [`crate::validate`]).

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

use crate::validate::Violation;

/// Why a schema cannot be run: a fault of ours, not of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("schema of {path:?}: {problem}")]
pub(crate) struct SchemaError {
    path: String,
    problem: String,
}

/// Deeper than any schema of ours.
const MAX_DEPTH: usize = 32;

/// One schema node, understood.
#[derive(Debug)]
pub(crate) struct Node {
    shape: Shape,
    allowed: Option<Vec<Value>>,
}

#[derive(Debug)]
enum Shape {
    Object {
        properties: BTreeMap<String, Node>,
        required: Vec<String>,
        additional: Option<Box<Node>>,
        min: Option<u64>,
        max: Option<u64>,
    },
    Array {
        items: Box<Node>,
        min: Option<u64>,
        max: Option<u64>,
        uniqueness: Uniqueness,
    },
    Text(TextShape),
    Integer {
        min: Option<i64>,
        max: Option<i64>,
    },
    Number {
        min: Option<f64>,
        max: Option<f64>,
    },
    Boolean,
    /// A whole number, or a text of that shape.
    IntOrString(TextShape),
}

#[derive(Debug)]
struct TextShape {
    min: Option<u64>,
    max: Option<u64>,
    pattern: Option<Regex>,
    is_time: bool,
}

/// `x-kubernetes-list-type`.
#[derive(Debug)]
enum Uniqueness {
    Atomic,
    Set,
    Map(Vec<String>),
}

/// The keywords of one node; each is taken out once, and none may be left.
struct Keywords<'a> {
    path: &'a str,
    left: Map<String, Value>,
}

impl Keywords<'_> {
    fn fail<T>(&self, problem: impl Into<String>) -> Result<T, SchemaError> {
        Err(SchemaError { path: self.path.to_owned(), problem: problem.into() })
    }

    fn take<T: serde::de::DeserializeOwned>(&mut self, keyword: &str) -> Result<Option<T>, SchemaError> {
        match self.left.remove(keyword) {
            None => Ok(None),
            Some(value) => match serde_json::from_value(value) {
                Ok(value) => Ok(Some(value)),
                Err(error) => self.fail(format!("keyword {keyword}: {error}")),
            },
        }
    }

    fn text(&mut self) -> Result<TextShape, SchemaError> {
        let pattern = match self.take::<String>("pattern")? {
            None => None,
            Some(pattern) => match Regex::new(&pattern) {
                Ok(regex) => Some(regex),
                Err(error) => return self.fail(format!("pattern {pattern:?}: {error}")),
            },
        };
        let is_time = match self.take::<String>("format")?.as_deref() {
            None => false,
            Some("date-time") => true,
            Some(other) => return self.fail(format!("format {other:?} of a string is not understood")),
        };
        Ok(TextShape { min: self.take("minLength")?, max: self.take("maxLength")?, pattern, is_time })
    }

    fn finish(self) -> Result<(), SchemaError> {
        match self.left.keys().next() {
            None => Ok(()),
            Some(keyword) => self.fail(format!("keyword {keyword:?} is not understood")),
        }
    }
}

impl Node {
    /// Understands a schema, or says what it does not understand.
    pub(crate) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        Self::compile_at(schema, "", 0)
    }

    fn compile_at(schema: &Value, path: &str, depth: usize) -> Result<Self, SchemaError> {
        let Some(fields) = schema.as_object() else {
            return Err(SchemaError { path: path.to_owned(), problem: "not an object".to_owned() });
        };
        let mut keywords = Keywords { path, left: fields.clone() };
        if depth > MAX_DEPTH {
            return keywords.fail("nested too deeply");
        }
        // Words for people, and what kube-cel does. The rules' own keywords are closed as well: kube-cel
        // ignores ones it does not know.
        keywords.take::<String>("title")?;
        keywords.take::<String>("description")?;
        keywords.take::<Value>("default")?;
        for rule in keywords.take::<Vec<Map<String, Value>>>("x-kubernetes-validations")?.unwrap_or_default() {
            if let Some(unknown) = rule
                .keys()
                .find(|key| !matches!(key.as_str(), "rule" | "message" | "messageExpression" | "reason" | "fieldPath"))
            {
                return keywords.fail(format!("keyword {unknown:?} of a rule is not understood"));
            }
        }
        let allowed = keywords.take::<Vec<Value>>("enum")?;
        let int_or_string = keywords.take::<bool>("x-kubernetes-int-or-string")?.unwrap_or_default();
        let kind = keywords.take::<String>("type")?;
        let shape = match (kind.as_deref(), int_or_string) {
            (None, true) => Shape::IntOrString(keywords.text()?),
            (Some("object"), false) => Self::compile_object(&mut keywords, path, depth)?,
            (Some("array"), false) => Self::compile_array(&mut keywords, path, depth)?,
            (Some("string"), false) => Shape::Text(keywords.text()?),
            (Some("boolean"), false) => Shape::Boolean,
            (Some("integer"), false) => {
                let (low, high) = match keywords.take::<String>("format")?.as_deref() {
                    None | Some("int64") => (None, None),
                    Some("int32") => (Some(i64::from(i32::MIN)), Some(i64::from(i32::MAX))),
                    Some(other) => return keywords.fail(format!("format {other:?} of an integer is not understood")),
                };
                let min: Option<f64> = keywords.take("minimum")?;
                let max: Option<f64> = keywords.take("maximum")?;
                Shape::Integer { min: whole(&keywords, min)?.or(low), max: whole(&keywords, max)?.or(high) }
            }
            (Some("number"), false) => {
                match keywords.take::<String>("format")?.as_deref() {
                    None | Some("double" | "float") => {}
                    Some(other) => return keywords.fail(format!("format {other:?} of a number is not understood")),
                }
                Shape::Number { min: keywords.take("minimum")?, max: keywords.take("maximum")? }
            }
            (kind, _) => return keywords.fail(format!("type {kind:?} is not understood")),
        };
        keywords.finish()?;
        Ok(Self { shape, allowed })
    }

    fn compile_object(keywords: &mut Keywords<'_>, path: &str, depth: usize) -> Result<Shape, SchemaError> {
        let mut properties = BTreeMap::new();
        for (name, schema) in keywords.take::<Map<String, Value>>("properties")?.unwrap_or_default() {
            let node = Self::compile_at(&schema, &join(path, &name), depth + 1)?;
            properties.insert(name, node);
        }
        let additional = match keywords.take::<Value>("additionalProperties")? {
            None => None,
            Some(schema) => Some(Box::new(Self::compile_at(&schema, &join(path, "*"), depth + 1)?)),
        };
        Ok(Shape::Object {
            properties,
            required: keywords.take("required")?.unwrap_or_default(),
            additional,
            min: keywords.take("minProperties")?,
            max: keywords.take("maxProperties")?,
        })
    }

    fn compile_array(keywords: &mut Keywords<'_>, path: &str, depth: usize) -> Result<Shape, SchemaError> {
        let Some(items) = keywords.take::<Value>("items")? else {
            return keywords.fail("an array without items");
        };
        let keys = keywords.take::<Vec<String>>("x-kubernetes-list-map-keys")?;
        let uniqueness = match (keywords.take::<String>("x-kubernetes-list-type")?.as_deref(), keys) {
            (None | Some("atomic"), None) => Uniqueness::Atomic,
            (Some("set"), None) => Uniqueness::Set,
            (Some("map"), Some(keys)) => Uniqueness::Map(keys),
            (list_type, _) => return keywords.fail(format!("list type {list_type:?} is not understood")),
        };
        Ok(Shape::Array {
            items: Box::new(Self::compile_at(&items, &format!("{path}[*]"), depth + 1)?),
            min: keywords.take("minItems")?,
            max: keywords.take("maxItems")?,
            uniqueness,
        })
    }

    /// Adds what is wrong with `value` to `violations`.
    pub(crate) fn check(&self, value: &Value, path: &str, violations: &mut Vec<Violation>) {
        let mut refuse = |rule: String| violations.push(Violation::new(path, rule));
        match (&self.shape, value) {
            (Shape::Object { properties, required, additional, min, max }, Value::Object(fields)) => {
                bounds(fields.len(), *min, *max, "entries", &mut refuse);
                for name in required.iter().filter(|name| !fields.contains_key(*name)) {
                    violations.push(Violation::new(join(path, name), "required"));
                }
                for (name, value) in fields {
                    let path = join(path, name);
                    match properties.get(name).or(additional.as_deref()) {
                        Some(node) => node.check(value, &path, violations),
                        None => violations.push(Violation::new(path, "unknown field")),
                    }
                }
            }
            (Shape::Array { items, min, max, uniqueness }, Value::Array(values)) => {
                bounds(values.len(), *min, *max, "items", &mut refuse);
                for (index, value) in values.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    if values[..index].iter().any(|earlier| uniqueness.equates(earlier, value)) {
                        violations.push(Violation::new(&path, "stands in the list twice"));
                    }
                    items.check(value, &path, violations);
                }
            }
            (Shape::Text(shape) | Shape::IntOrString(shape), Value::String(text)) => shape.check(text, &mut refuse),
            (Shape::IntOrString(_), Value::Number(number)) if number.as_i64().is_some_and(|n| n >= 0) => {}
            (Shape::Integer { min, max }, Value::Number(number)) => match number.as_i64() {
                None => refuse("must be a whole number".to_owned()),
                Some(number) => {
                    if min.is_some_and(|min| number < min) || max.is_some_and(|max| number > max) {
                        refuse(range_rule(*min, *max));
                    }
                }
            },
            (Shape::Number { min, max }, Value::Number(number)) => {
                let number = number.as_f64();
                let inside = number
                    .is_some_and(|n| n.is_finite() && min.is_none_or(|min| n >= min) && max.is_none_or(|max| n <= max));
                if !inside {
                    refuse(range_rule(*min, *max));
                }
            }
            (Shape::Boolean, Value::Bool(_)) => {}
            // Every other pair is a value of the wrong type; nothing is let in by not being named.
            (shape, value) => refuse(format!("must be {}, not {}", shape.noun(), noun(value))),
        }
        if let Some(allowed) = &self.allowed
            && !allowed.contains(value)
        {
            let names: Vec<String> = allowed.iter().map(plain).collect();
            violations.push(Violation::new(path, format!("must be one of: {}", names.join(", "))));
        }
    }
}

impl Shape {
    const fn noun(&self) -> &'static str {
        match self {
            Self::Object { .. } => "an object",
            Self::Array { .. } => "a list",
            Self::Text(_) => "a string",
            Self::Integer { .. } => "a whole number",
            Self::Number { .. } => "a number",
            Self::Boolean => "true or false",
            Self::IntOrString(_) => "a string or a whole number from 0",
        }
    }
}

impl TextShape {
    fn check(&self, text: &str, refuse: &mut impl FnMut(String)) {
        bounds(text.chars().count(), self.min, self.max, "characters", refuse);
        if let Some(pattern) = &self.pattern
            && !pattern.is_match(text)
        {
            refuse(format!("must match {pattern}"));
        }
        if self.is_time
            && let Err(error) = lanekeeper_core::time::parse_rfc3339_ms(text)
        {
            refuse(error.rule);
        }
    }
}

impl Uniqueness {
    fn equates(&self, one: &Value, other: &Value) -> bool {
        match self {
            Self::Atomic => false,
            Self::Set => one == other,
            Self::Map(keys) => keys.iter().all(|key| one.get(key) == other.get(key)),
        }
    }
}

fn whole(keywords: &Keywords<'_>, bound: Option<f64>) -> Result<Option<i64>, SchemaError> {
    match bound {
        None => Ok(None),
        // The API server's schema type holds bounds as f64 too; ours are far below 2^53.
        #[expect(clippy::cast_possible_truncation, reason = "whole and under 2^53")]
        Some(bound) if bound.fract() == 0.0 && bound.abs() < 9.0e15 => Ok(Some(bound as i64)),
        Some(bound) => keywords.fail(format!("bound {bound} of an integer is not understood")),
    }
}

fn bounds(count: usize, min: Option<u64>, max: Option<u64>, what: &str, refuse: &mut impl FnMut(String)) {
    let count = count as u64;
    if min.is_some_and(|min| count < min) {
        refuse(format!("needs at least {} {what}", min.unwrap_or_default()));
    }
    if max.is_some_and(|max| count > max) {
        refuse(format!("has {count} {what}, at most {} are allowed", max.unwrap_or_default()));
    }
}

fn range_rule<T: std::fmt::Display>(min: Option<T>, max: Option<T>) -> String {
    match (min, max) {
        (Some(min), Some(max)) => format!("must be from {min} to {max}"),
        (Some(min), None) => format!("must be at least {min}"),
        (None, Some(max)) => format!("must be at most {max}"),
        (None, None) => "must be a finite number".to_owned(),
    }
}

const fn noun(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// `spec.access` + `role` = `spec.access.role`.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn violations(schema: &Value, value: &Value) -> Vec<String> {
        let mut violations = Vec::new();
        Node::compile(schema).unwrap().check(value, "x", &mut violations);
        violations.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_not_understood_makes_the_schema_unusable() {
        for schema in [
            json!({"type": "string", "oneOf": []}),
            json!({"type": "string", "format": "email"}),
            json!({"type": "integer", "multipleOf": 2}),
            json!({"type": "string", "pattern": "("}),
            json!({"type": "array"}),
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"}),
            json!({"type": "object", "properties": {"a": {"anyOf": []}}}),
            json!({"type": "object", "additionalProperties": true}),
            json!({"type": "string", "nullable": true}),
            json!({"type": "string", "x-kubernetes-validations": [{"rule": "true", "optionalOldSelf": true}]}),
            json!({"type": "string", "x-kubernetes-validations": "true"}),
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!({}),
            json!(true),
        ] {
            assert!(Node::compile(&schema).is_err(), "{schema}");
        }
    }

    #[test]
    fn every_keyword_accepts_and_refuses() {
        let cases = [
            (json!({"type": "string"}), json!("a"), json!(1), "must be a string, not a number"),
            (json!({"type": "string"}), json!("a"), json!(null), "must be a string, not null"),
            (json!({"type": "boolean"}), json!(true), json!("true"), "must be true or false, not a string"),
            (json!({"type": "integer"}), json!(3), json!(3.5), "must be a whole number"),
            (json!({"type": "integer", "format": "int32"}), json!(3), json!(3_000_000_000_i64), "must be from"),
            (json!({"type": "integer", "minimum": 1, "maximum": 3}), json!(3), json!(4), "must be from 1 to 3"),
            (json!({"type": "number", "minimum": 0.0}), json!(0), json!(-0.1), "must be at least 0"),
            (json!({"type": "string", "minLength": 2}), json!("äö"), json!("ä"), "at least 2 characters"),
            (json!({"type": "string", "maxLength": 2}), json!("äö"), json!("äöü"), "at most 2 are allowed"),
            (json!({"type": "string", "pattern": "^a$"}), json!("a"), json!("a\n"), "must match ^a$"),
            (json!({"type": "string", "enum": ["a", "b"]}), json!("b"), json!("c"), "must be one of: a, b"),
            (
                json!({"type": "string", "format": "date-time"}),
                json!("2026-11-30T09:00:00Z"),
                json!("2026-11-30"),
                "RFC 3339",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
                json!({"a": "b"}),
                json!({}),
                "x.a: required",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}}),
                json!({"a": "b"}),
                json!({"b": "b"}),
                "x.b: unknown field",
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1}),
                json!({"b": "b"}),
                json!({"b": "b", "c": "c"}),
                "at most 1 are allowed",
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
                json!({"b": "b"}),
                json!({"b": 1}),
                "x.b: must be a string",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
                json!(["a", "a"]),
                json!([]),
                "at least 1 items",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
                json!(["a"]),
                json!(["a", "b"]),
                "at most 1 are allowed",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
                json!(["a", "b"]),
                json!(["a", "b", "a"]),
                "x[2]: stands in the list twice",
            ),
            (
                json!({"type": "array", "items": {"type": "object", "additionalProperties": {"type": "string"}},
                    "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
                json!([{"k": "a"}, {"k": "b"}]),
                json!([{"k": "a", "v": "1"}, {"k": "a", "v": "2"}]),
                "x[1]: stands in the list twice",
            ),
            (json!({"x-kubernetes-int-or-string": true, "pattern": "^a$"}), json!(3), json!(-3), "whole number from 0"),
            (json!({"x-kubernetes-int-or-string": true, "pattern": "^a$"}), json!("a"), json!("b"), "must match"),
        ];
        for (schema, good, bad, rule) in cases {
            assert_eq!(violations(&schema, &good), Vec::<String>::new(), "{schema}");
            let found = violations(&schema, &bad);
            assert!(found.len() == 1 && found[0].contains(rule), "{schema}: {found:?}");
        }
    }
}
