//! Every rule of every kind, run without a server: one object that it accepts and one that it refuses,
//! on creation and on update. `every_cel_rule_has_a_case` fails for a rule without such a pair, so a
//! rule that is taken out or added shows here.

mod embedder;
mod federation_record;
mod lane;

use std::collections::BTreeSet;

use lanekeeper_crds::schema::Kind;
use lanekeeper_crds::{validate_create, validate_update};
use serde_json::{Value, json};

/// One rule with an object it accepts and one it refuses. With `old`, both are updates of it.
struct Case {
    /// Where the violation is reported.
    path: &'static str,
    /// What it says: for a CEL rule its whole message.
    rule: &'static str,
    old: Option<Value>,
    accepted: Value,
    refused: Value,
    /// Whether no other rule refuses the same object, so that the case fails when the rule is taken out.
    alone: bool,
}

/// For a rule that cannot be broken without breaking another.
fn not_alone(case: Case) -> Case {
    Case { alone: false, ..case }
}

fn created(path: &'static str, rule: &'static str, accepted: Value, refused: Value) -> Case {
    Case { path, rule, old: None, accepted, refused, alone: true }
}

fn updated(path: &'static str, rule: &'static str, old: Value, accepted: Value, refused: Value) -> Case {
    Case { path, rule, old: Some(old), accepted, refused, alone: true }
}

fn object(kind: &str, namespace: Option<&str>, name: &str, spec: Value) -> Value {
    let mut metadata = json!({"name": name});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    json!({"apiVersion": "lanekeeper.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
}

/// `base` with the fields of `change` put over it; a null takes a field out.
fn with(base: &Value, change: Value) -> Value {
    let mut merged = base.clone();
    merge(&mut merged, change);
    merged
}

fn merge(base: &mut Value, change: Value) {
    match (base, change) {
        (Value::Object(base), Value::Object(change)) => {
            for (name, change) in change {
                if change.is_null() {
                    base.shift_remove(&name);
                } else {
                    merge(base.entry(name).or_insert(Value::Null), change);
                }
            }
        }
        (base, change) => *base = change,
    }
}

fn outcome(old: Option<&Value>, new: &Value) -> Vec<(String, String)> {
    let result = match old {
        Some(old) => validate_update(old, new),
        None => validate_create(new),
    };
    result.err().unwrap_or_default().into_iter().map(|violation| (violation.path, violation.rule)).collect()
}

fn run(cases: &[Case]) {
    for Case { path, rule, old, accepted, refused, alone } in cases {
        if let Some(old) = old {
            assert_eq!(outcome(None, old), [], "{rule}: the old object must be valid itself");
        }
        assert_eq!(outcome(old.as_ref(), accepted), [], "{rule}: must accept {accepted}");
        let found = outcome(old.as_ref(), refused);
        assert!(
            found.iter().any(|(at, text)| at == path && text.contains(rule)),
            "{rule} at {path:?}: must refuse {refused}, found {found:?}"
        );
        let others = found.iter().any(|(_, text)| !text.contains(rule));
        assert!(others != *alone, "{rule}: alone is {alone}, found {found:?}");
    }
}

fn cel_messages(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            for rule in fields.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten() {
                let message = rule["message"].as_str().expect("every rule of ours has a message");
                found.insert(message.to_owned());
            }
            fields.values().for_each(|value| cel_messages(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| cel_messages(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_cel_rule_has_a_case() {
    let mut rules = BTreeSet::new();
    for kind in Kind::ALL {
        cel_messages(&kind.schema(), &mut rules);
    }
    assert!(rules.len() > 30, "only {} rules found: the walk is broken", rules.len());
    let cases: BTreeSet<String> = lane::cases()
        .into_iter()
        .chain(embedder::cases())
        .chain(federation_record::cases())
        .map(|case| case.rule.to_owned())
        .collect();
    let missing: Vec<&String> = rules.difference(&cases).collect();
    assert!(missing.is_empty(), "rules without a case: {missing:#?}");
}

#[test]
fn an_object_of_another_api_or_kind_is_refused() {
    let lane = lane::personal();
    for (change, path) in [
        (json!({"apiVersion": "lanekeeper.dev/v1"}), "apiVersion"),
        (json!({"apiVersion": null}), "apiVersion"),
        (json!({"kind": "Pod"}), "kind"),
        (json!({"kind": null}), "kind"),
    ] {
        assert_eq!(outcome(None, &with(&lane, change.clone()))[0].0, path, "{change}");
    }
    assert_eq!(outcome(None, &json!([])).len(), 1);
}

#[test]
fn an_update_is_of_the_same_object() {
    let lane = lane::personal();
    for (change, path) in [
        (json!({"metadata": {"name": "other"}}), "metadata.name"),
        (json!({"metadata": {"namespace": "other"}}), "metadata.namespace"),
        (json!({"kind": "FederationRecord"}), "kind"),
    ] {
        assert_eq!(outcome(Some(&lane), &with(&lane, change))[0].0, path);
    }
}
