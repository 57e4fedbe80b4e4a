//! The rules of Embedder.

use serde_json::{Value, json};

use super::{Case, created, object, outcome, run, updated, with};

fn builtin() -> Value {
    object("Embedder", None, "minilm", json!({"model": "all-MiniLM-L6-v2"}))
}

fn served() -> Value {
    object(
        "Embedder",
        None,
        "large",
        json!({
            "model": "bge-m3", "runtime": "tei", "dimension": 1024, "revision": "1", "dtype": "f16",
            "weightsSha256": "a".repeat(64), "queryPrefix": "query: ", "documentPrefix": "passage: ",
            "pooling": {"query": "server", "document": "server"}, "maxTokens": 512, "normalise": true,
        }),
    )
}

fn external() -> Value {
    object(
        "Embedder",
        None,
        "hosted",
        json!({
            "model": "text-embedding-3-small", "runtime": "external", "dimension": 1536,
            "external": {"url": "https://embeddings.example/v1", "apiKeySecret": {"name": "embeddings", "key": "token"}},
        }),
    )
}

fn spec(base: &Value, change: Value) -> Value {
    with(base, json!({ "spec": change }))
}

pub(super) fn cases() -> Vec<Case> {
    let named = |name: &str| with(&builtin(), json!({"metadata": {"name": name}}));
    let mut cases = vec![
        created(
            "metadata.name",
            "an embedder's name has at most 40 characters",
            named(&"a".repeat(40)),
            named(&"a".repeat(41)),
        ),
        created(
            "metadata.name",
            "an embedder's name is lower-case letters, digits and '-', without dots, and does not start or end with '-'",
            named("a-b"),
            named("a.b"),
        ),
        created(
            "spec.dimension",
            "dimension is required unless the runtime is builtin",
            served(),
            spec(&served(), json!({"dimension": null})),
        ),
        created("spec.dimension", "must be from 1 to 65536", served(), spec(&served(), json!({"dimension": 0}))),
        created(
            "spec.external",
            "external is required for runtime external, and only there",
            external(),
            spec(&external(), json!({"external": null})),
        ),
        created(
            "spec.external",
            "external is required for runtime external, and only there",
            served(),
            spec(&served(), json!({"external": {"url": "http://localhost:8080"}})),
        ),
        created(
            "spec.pooling",
            "an external server pools by itself: pooling can only be server",
            spec(&external(), json!({"pooling": {"document": "server"}})),
            spec(&external(), json!({"pooling": {"document": "late-chunk-mean"}})),
        ),
        created(
            "spec.pooling",
            "an external server pools by itself: pooling can only be server",
            spec(&external(), json!({"pooling": {"query": "server"}})),
            spec(&external(), json!({"pooling": {"query": "idf-weighted"}})),
        ),
        updated(
            "spec.runtime",
            "runtime cannot change from or to builtin",
            spec(&builtin(), json!({"dimension": 384})),
            spec(&builtin(), json!({"dimension": 384, "replicas": 2})),
            spec(&builtin(), json!({"dimension": 384, "runtime": "tei"})),
        ),
        updated(
            "spec.runtime",
            "runtime cannot change from or to builtin",
            served(),
            spec(&served(), json!({"runtime": "llamacpp"})),
            spec(&served(), json!({"runtime": "builtin"})),
        ),
        created(
            "spec.runtime",
            "must be one of: builtin, tei, llamacpp, external",
            spec(&served(), json!({"runtime": "llamacpp"})),
            spec(&served(), json!({"runtime": "ollama"})),
        ),
        created(
            "spec.gpu.count",
            "must be from 1 to 64",
            spec(&served(), json!({"gpu": {}})),
            spec(&served(), json!({"gpu": {"count": 0}})),
        ),
        created(
            "spec.cache.size",
            "must match",
            spec(&served(), json!({"cache": {"size": "10Gi"}})),
            spec(&served(), json!({"cache": {"size": "a lot"}})),
        ),
        created(
            "spec.weightsSha256",
            "must match",
            served(),
            spec(&served(), json!({"weightsSha256": "A".repeat(64)})),
        ),
    ];
    let runs_here = "replicas, gpu and cache are for embedders that run here, not for an external one";
    for field in [json!({"replicas": 2}), json!({"gpu": {"count": 1}}), json!({"cache": {"size": "1Gi"}})] {
        cases.push(created("spec", runs_here, spec(&served(), field.clone()), spec(&external(), field)));
    }
    for url in ["ftp://x/", "https://user:password@x/", "https://x/?key=secret", "x", "https://a b/"] {
        let refused = spec(&external(), json!({"external": {"url": url}}));
        cases.push(created("spec.external.url", "must match", external(), refused));
    }
    for (field, rule, changed) in [
        ("model", "model is immutable: a new model is a new Embedder", json!("bge-m4")),
        ("revision", "revision is immutable", json!("2")),
        ("weightsSha256", "weightsSha256 is immutable", json!("b".repeat(64))),
        ("dimension", "dimension is immutable", json!(512)),
        ("dtype", "dtype is immutable", json!("f32")),
        ("queryPrefix", "queryPrefix is immutable", json!("q: ")),
        ("documentPrefix", "documentPrefix is immutable", json!("p: ")),
        ("pooling", "pooling is immutable", json!({"query": "idf-weighted"})),
        ("maxTokens", "maxTokens is immutable", json!(256)),
        ("normalise", "normalise is immutable", json!(false)),
    ] {
        let path: &'static str = format!("spec.{field}").leak();
        cases.push(updated(path, rule, served(), served(), spec(&served(), json!({ field: changed }))));
        // Taken out and, from there, put back: the way round `self == oldSelf`.
        if !matches!(field, "model" | "dimension") {
            let without = spec(&served(), json!({ field: null }));
            cases.push(updated(path, rule, served(), served(), without.clone()));
            cases.push(updated(path, rule, without.clone(), without, served()));
        }
    }
    // Where it may be left out at all, dimension cannot be added or taken out either.
    let declared = spec(&builtin(), json!({"dimension": 384}));
    cases.push(updated("spec.dimension", "dimension is immutable", builtin(), builtin(), declared.clone()));
    cases.push(updated("spec.dimension", "dimension is immutable", declared.clone(), declared, builtin()));
    cases
}

#[test]
fn the_rules_of_embedder() {
    run(&cases());
}

#[test]
fn an_embedder_lives_in_no_namespace() {
    let placed = with(&builtin(), json!({"metadata": {"namespace": "team"}}));
    assert_eq!(
        outcome(None, &placed),
        [("metadata.namespace".to_owned(), "Embedder lives in no namespace".to_owned())]
    );
    assert_eq!(outcome(None, &builtin()), []);
}

#[test]
fn what_changes_no_vector_may_change() {
    let changed = spec(&served(), json!({"runtime": "llamacpp", "replicas": 3, "gpu": {"count": 2}, "cache": {}}));
    assert_eq!(outcome(Some(&served()), &changed), []);
}
