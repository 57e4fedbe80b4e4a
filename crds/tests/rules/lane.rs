//! The rules of Lane.

use serde_json::{Value, json};

use super::{Case, created, not_alone, object, outcome, run, updated, with};

pub(super) fn personal() -> Value {
    object("Lane", Some("team"), "bob", json!({"kind": "personal", "owner": "bob"}))
}

fn corpus() -> Value {
    object("Lane", Some("team"), "handbook", json!({"kind": "corpus"}))
}

fn spec(base: &Value, change: Value) -> Value {
    with(base, json!({ "spec": change }))
}

fn named(name: &str) -> Value {
    with(&personal(), json!({"metadata": {"name": name}}))
}

pub(super) fn cases() -> Vec<Case> {
    [names(), immutable(), kinds(), storage(), lists(), pods()].into_iter().flatten().collect()
}

fn names() -> Vec<Case> {
    const LETTERS: &str =
        "a lane's name is lower-case letters, digits and '-', without dots, and does not start or end with '-'";
    vec![
        created(
            "metadata.name",
            "a lane's name has at most 40 characters",
            named(&"a".repeat(40)),
            named(&"a".repeat(41)),
        ),
        created("metadata.name", LETTERS, named("acme-corp"), named("acme.corp")),
    ]
}

fn immutable() -> Vec<Case> {
    let collected = spec(&personal(), json!({"collection": "notes"}));
    const COLLECTION: &str = "collection is immutable, and cannot be added or removed later";
    vec![
        // Another kind always breaks a rule on the owner too, whichever way the owner goes with it.
        not_alone(updated(
            "spec.kind",
            "kind is immutable",
            personal(),
            personal(),
            spec(&personal(), json!({"kind": "corpus", "owner": null})),
        )),
        updated("spec.owner", "owner is immutable", personal(), personal(), spec(&personal(), json!({"owner": "eve"}))),
        updated(
            "spec.collection",
            COLLECTION,
            collected.clone(),
            collected.clone(),
            spec(&collected, json!({"collection": "x"})),
        ),
        updated(
            "spec.collection",
            COLLECTION,
            collected.clone(),
            collected.clone(),
            spec(&collected, json!({"collection": null})),
        ),
        updated("spec.collection", COLLECTION, personal(), personal(), collected),
    ]
}

fn kinds() -> Vec<Case> {
    const OWNER: &str = "a personal lane needs an owner, a corpus lane has none";
    let reads = json!({"reads": [{"namespace": "team", "name": "handbook"}]});
    let readers = json!({"readers": [{"namespace": "team", "name": "*"}]});
    let publishes = |publishes: bool| json!({"access": [{"user": "ada", "role": "writer", "mayPublish": publishes}]});
    vec![
        created("spec.owner", OWNER, personal(), spec(&personal(), json!({"owner": null}))),
        created("spec.owner", OWNER, corpus(), spec(&corpus(), json!({"owner": "bob"}))),
        created(
            "spec.reads",
            "a corpus lane reads no other lane: reads must be empty",
            spec(&corpus(), json!({"reads": []})),
            spec(&corpus(), reads.clone()),
        ),
        created("spec.reads[1]", "stands in the list twice", spec(&personal(), reads), {
            let twice = json!({"namespace": "team", "name": "handbook"});
            spec(&personal(), json!({"reads": [twice, twice]}))
        }),
        created(
            "spec.readers",
            "nobody reads a personal lane: readers must be empty",
            spec(&personal(), json!({"readers": []})),
            spec(&personal(), readers.clone()),
        ),
        created(
            "spec.readers[0].name",
            "must match",
            spec(&corpus(), readers),
            spec(&corpus(), json!({"readers": [{"namespace": "team", "name": "b*"}]})),
        ),
        created(
            "spec.readers[0].namespace",
            "must match",
            spec(&corpus(), json!({"readers": [{"namespace": "team", "name": "bob"}]})),
            spec(&corpus(), json!({"readers": [{"namespace": "*", "name": "bob"}]})),
        ),
        created(
            "spec.access",
            "mayPublish is for corpus lanes only",
            spec(&corpus(), publishes(true)),
            spec(&personal(), publishes(true)),
        ),
        created(
            "spec.access",
            "mayPublish is for corpus lanes only",
            spec(&personal(), publishes(false)),
            spec(&personal(), publishes(true)),
        ),
        created(
            "spec.access[0]",
            "give exactly one of user and serviceAccount",
            spec(
                &personal(),
                json!({"access": [{"serviceAccount": {"namespace": "team", "name": "agent"}, "role": "writer"}]}),
            ),
            spec(&personal(), json!({"access": [{"role": "writer"}]})),
        ),
        created(
            "spec.access[0]",
            "give exactly one of user and serviceAccount",
            spec(&personal(), json!({"access": [{"user": "ada", "role": "reader"}]})),
            spec(
                &personal(),
                json!({"access": [{"user": "ada", "serviceAccount": {"namespace": "team", "name": "agent"}, "role": "reader"}]}),
            ),
        ),
        created(
            "spec.access[0].role",
            "must be one of: reader, writer, curator, admin",
            spec(&personal(), json!({"access": [{"user": "ada", "role": "admin"}]})),
            spec(&personal(), json!({"access": [{"user": "ada", "role": "owner"}]})),
        ),
        created(
            "spec.embedder",
            "give exactly one of model (a built-in model) and name (an Embedder)",
            spec(&personal(), json!({"embedder": {"name": "minilm"}})),
            spec(&personal(), json!({"embedder": {"name": "minilm", "model": "all-MiniLM-L6-v2"}})),
        ),
        created(
            "spec.embedder",
            "give exactly one of model (a built-in model) and name (an Embedder)",
            spec(&personal(), json!({"embedder": {"model": "all-MiniLM-L6-v2"}})),
            spec(&personal(), json!({"embedder": {}})),
        ),
        created(
            "spec.embedder.model",
            "must be one of: all-MiniLM-L6-v2",
            spec(&personal(), json!({"embedder": {"model": "all-MiniLM-L6-v2"}})),
            spec(&personal(), json!({"embedder": {"model": "all-minilm"}})),
        ),
    ]
}

fn storage() -> Vec<Case> {
    let sized = |size: &str| spec(&personal(), json!({"storage": {"size": size}}));
    let classed = spec(&personal(), json!({"storage": {"storageClassName": "fast"}}));
    const GROWS: &str = "storage may grow but not shrink";
    vec![
        updated("spec.storage.size", GROWS, sized("2Gi"), sized("2Gi"), sized("500Mi")),
        updated("spec.storage.size", GROWS, sized("2Gi"), sized("2048Mi"), sized("2047Mi")),
        updated("spec.storage.size", GROWS, sized("2Gi"), sized("2.5Gi"), sized("2G")),
        // Taking the size out is not a way round: the default takes its place.
        updated("spec.storage.size", GROWS, sized("10Gi"), sized("10Gi"), personal()),
        updated("spec.storage.size", GROWS, personal(), sized("2Gi"), sized("1Gi")),
        created("spec.storage.size", "must match", sized("1Ti"), sized("0Gi")),
        created("spec.storage.size", "must match", sized("500M"), sized("-1Gi")),
        created(
            "spec.storage.size",
            "must be a string",
            sized("1"),
            spec(&personal(), json!({"storage": {"size": 1}})),
        ),
        updated(
            "spec.storage.storageClassName",
            "storageClassName is immutable",
            classed.clone(),
            spec(&classed, json!({"storage": {"size": "3Gi"}})),
            spec(&classed, json!({"storage": {"storageClassName": null}})),
        ),
        updated(
            "spec.storage.accessMode",
            "accessMode is immutable",
            personal(),
            spec(&personal(), json!({"storage": {"accessMode": "ReadWriteOnce"}})),
            spec(&personal(), json!({"storage": {"accessMode": "ReadWriteOncePod"}})),
        ),
        created(
            "spec.storage.accessMode",
            "must be one of: ReadWriteOnce, ReadWriteOncePod",
            spec(&personal(), json!({"storage": {"accessMode": "ReadWriteOncePod"}})),
            spec(&personal(), json!({"storage": {"accessMode": "ReadWriteMany"}})),
        ),
    ]
}

fn lists() -> Vec<Case> {
    let one = |field: &str, good: Value, bad: Value| {
        (spec(&personal(), json!({ field: good })), spec(&personal(), json!({ field: bad })))
    };
    let case = |path, rule, (accepted, refused)| created(path, rule, accepted, refused);
    let access = |count: usize| {
        (0..count).map(|index| json!({"user": format!("u{index}"), "role": "reader"})).collect::<Value>()
    };
    vec![
        case(
            "spec.projection.roles",
            "needs at least 1",
            one("projection", json!({"roles": ["tool"]}), json!({"roles": []})),
        ),
        case(
            "spec.projection.roles[1]",
            "stands in the list twice",
            one("projection", json!({"roles": ["user", "assistant"]}), json!({"roles": ["user", "user"]})),
        ),
        case(
            "spec.projection.roles[0]",
            "must be one of: user, assistant, tool, system",
            one("projection", json!({"roles": ["system"]}), json!({"roles": ["bot"]})),
        ),
        case(
            "spec.recall.minScore",
            "must be from -1 to 1",
            one("recall", json!({"minScore": 0.35}), json!({"minScore": 1.5})),
        ),
        case(
            "spec.recall.halfLife",
            "must match",
            one("recall", json!({"halfLife": "30d"}), json!({"halfLife": "0d"})),
        ),
        case(
            "spec.recall.halfLife",
            "must match",
            one("recall", json!({"halfLife": "12h"}), json!({"halfLife": "1d12h"})),
        ),
        case(
            "spec.recall.ranking",
            "must be one of: fused, rrf",
            one("recall", json!({"ranking": "rrf"}), json!({"ranking": "bm25"})),
        ),
        case(
            "spec.recall.language",
            "must be one of: english, german, french, spanish, none",
            one("recall", json!({"language": "none"}), json!({"language": "klingon"})),
        ),
        case(
            "spec.deletionPolicy",
            "must be one of: Retain, Delete",
            one("deletionPolicy", json!("Delete"), json!("delete")),
        ),
        case("spec.suspend", "must be true or false", one("suspend", json!(true), json!("yes"))),
        case("spec.access", "has 257 items, at most 256 are allowed", one("access", access(256), access(257))),
        case("spec.owner", "must match", one("owner", json!("bob-2"), json!("Bob"))),
        case("spec.owner", "must match", one("owner", json!("bob"), json!("bob@example.org"))),
        case("spec.owner", "at most 63 are allowed", one("owner", json!("a".repeat(63)), json!("a".repeat(64)))),
        case("spec.collection", "must match", one("collection", json!("notes-2"), json!("notes.2"))),
    ]
}

fn pods() -> Vec<Case> {
    let toleration = |toleration: Value| spec(&personal(), json!({"tolerations": [toleration]}));
    let labels = |labels: Value| spec(&personal(), json!({ "podLabels": labels }));
    const LABELS: &str = "labels under lanekeeper.dev/ and app.kubernetes.io/ are the operator's";
    vec![
        created(
            "spec.tolerations[0]",
            "a toleration without a key needs operator Exists",
            toleration(json!({"operator": "Exists"})),
            toleration(json!({"operator": "Equal", "value": "x"})),
        ),
        created(
            "spec.tolerations[0]",
            "a toleration with operator Exists has no value",
            toleration(json!({"key": "gpu", "value": "yes"})),
            toleration(json!({"key": "gpu", "operator": "Exists", "value": "yes"})),
        ),
        created(
            "spec.tolerations[0]",
            "tolerationSeconds needs effect NoExecute",
            toleration(json!({"key": "gpu", "effect": "NoExecute", "tolerationSeconds": 60})),
            toleration(json!({"key": "gpu", "effect": "NoSchedule", "tolerationSeconds": 60})),
        ),
        created(
            "spec.podLabels",
            LABELS,
            labels(json!({"team": "search"})),
            labels(json!({"lanekeeper.dev/lane": "ada"})),
        ),
        created(
            "spec.podLabels",
            LABELS,
            labels(json!({"cost/app.kubernetes.io": "1"})),
            labels(json!({"app.kubernetes.io/name": "x"})),
        ),
        created("spec.podLabels.team", "must match", labels(json!({"team": "a_b.c"})), labels(json!({"team": "a b"}))),
        created(
            "spec.resources.requests.cpu",
            "must match",
            spec(
                &personal(),
                json!({"resources": {"requests": {"cpu": 2, "memory": "256Mi"}, "limits": {"cpu": "1.5"}}}),
            ),
            spec(&personal(), json!({"resources": {"requests": {"cpu": "two"}}})),
        ),
        created(
            "spec.imagePullSecrets[1]",
            "stands in the list twice",
            spec(&personal(), json!({"imagePullSecrets": [{"name": "a"}, {"name": "b"}]})),
            spec(&personal(), json!({"imagePullSecrets": [{"name": "a"}, {"name": "a"}]})),
        ),
        created(
            "spec.priorityClassName",
            "must match",
            spec(&personal(), json!({"priorityClassName": "system-node-critical"})),
            spec(&personal(), json!({"priorityClassName": "High"})),
        ),
        created(
            "spec.nodeSelector.disk",
            "must be a string",
            spec(&personal(), json!({"nodeSelector": {"disk": "ssd"}})),
            spec(&personal(), json!({"nodeSelector": {"disk": 1}})),
        ),
    ]
}

#[test]
fn the_rules_of_lane() {
    run(&cases());
}

#[test]
fn the_shortest_useful_lane_is_enough() {
    assert_eq!(outcome(None, &personal()), []);
    assert_eq!(outcome(None, &corpus()), []);
    assert_eq!(
        outcome(None, &spec(&personal(), json!({"kind": null}))),
        [("spec.kind".to_owned(), "required".to_owned())]
    );
    let none = object("Lane", Some("team"), "bob", json!(null));
    assert_eq!(outcome(None, &none), [("spec".to_owned(), "must be an object, not null".to_owned())]);
}

#[test]
fn c02_a_name_that_could_be_a_wildcard_is_refused() {
    for name in ["a_b", "a%b", "_", "%", "*", "a*", "A", "ä", "a/b", "a\nb", ""] {
        for object in [
            named(name),
            with(&personal(), json!({"metadata": {"namespace": name}})),
            spec(&personal(), json!({"owner": name})),
            spec(&personal(), json!({"collection": name})),
            spec(&personal(), json!({"reads": [{"namespace": "team", "name": name}]})),
            spec(&personal(), json!({"reads": [{"namespace": name, "name": "handbook"}]})),
            spec(&personal(), json!({"access": [{"user": name, "role": "reader"}]})),
            spec(
                &personal(),
                json!({"access": [{"serviceAccount": {"namespace": "team", "name": name}, "role": "reader"}]}),
            ),
            spec(&personal(), json!({"embedder": {"name": name}})),
        ] {
            assert!(!outcome(None, &object).is_empty(), "{object}");
        }
    }
}

#[test]
fn o06_storage_never_shrinks_and_equal_is_allowed() {
    let sized = |size: &str| spec(&personal(), json!({"storage": {"size": size}}));
    let found = outcome(Some(&sized("2Gi")), &sized("500Mi"));
    assert_eq!(found, [("spec.storage.size".to_owned(), "storage may grow but not shrink".to_owned())]);
    assert_eq!(outcome(Some(&sized("2Gi")), &sized("2048Mi")), []);
    assert_eq!(outcome(Some(&sized("2048Mi")), &sized("2Gi")), []);
    // The largest and smallest sizes that the pattern lets in can be compared.
    assert_eq!(outcome(Some(&sized("1")), &sized("999999999999.999Pi")), []);
}

#[test]
fn o10_a_name_at_the_limit_works_and_one_over_is_refused_with_the_number() {
    assert_eq!(outcome(None, &named(&"a".repeat(40))), []);
    let found = outcome(None, &named(&"a".repeat(41)));
    assert_eq!(found, [("metadata.name".to_owned(), "a lane's name has at most 40 characters".to_owned())]);
}

#[test]
fn an_unknown_field_is_refused_with_its_path() {
    for (change, path) in [
        (json!({"sepc": {}}), "sepc"),
        (json!({"metadata": {"nmae": "x"}}), "metadata.nmae"),
        (json!({"spec": {"onwer": "eve"}}), "spec.onwer"),
        (json!({"spec": {"storage": {"sise": "1Gi"}}}), "spec.storage.sise"),
        (json!({"spec": {"access": [{"user": "ada", "role": "reader", "expires": "x"}]}}), "spec.access[0].expires"),
    ] {
        let found = outcome(None, &with(&personal(), change));
        assert_eq!(found, [(path.to_owned(), "unknown field".to_owned())]);
    }
}

#[test]
fn a_null_is_no_value_where_there_is_a_default_and_no_text_elsewhere() {
    let mut lane = personal();
    lane["spec"]["storage"] = Value::Null;
    assert_eq!(outcome(None, &lane), []);
    lane["spec"]["collection"] = Value::Null;
    assert_eq!(outcome(None, &lane), [("spec.collection".to_owned(), "must be a string, not null".to_owned())]);
}

#[test]
fn metadata_is_checked_as_the_server_does() {
    let labelled = |labels: Value| with(&personal(), json!({"metadata": {"labels": labels}}));
    assert_eq!(outcome(None, &labelled(json!({"team": "a"}))), []);
    assert_eq!(outcome(None, &labelled(json!({"team": "a b"})))[0].0, "metadata.labels.team");
    assert_eq!(outcome(None, &labelled(json!({"a b": "x"})))[0].0, "metadata.labels");
    let without_namespace = with(&personal(), json!({"metadata": {"namespace": null}}));
    assert_eq!(outcome(None, &without_namespace), [("metadata.namespace".to_owned(), "required".to_owned())]);
    let without_name = with(&personal(), json!({"metadata": {"name": null}}));
    assert_eq!(outcome(None, &without_name), [("metadata.name".to_owned(), "required".to_owned())]);
    let large = with(&personal(), json!({"metadata": {"annotations": {"note": "x".repeat(256 * 1024)}}}));
    assert_eq!(outcome(None, &large)[0].0, "metadata.annotations");
    let server_set = with(&personal(), json!({"metadata": {"uid": "x", "generation": 3, "managedFields": [{}]}}));
    assert_eq!(outcome(None, &server_set), []);
}
