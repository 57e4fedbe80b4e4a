//! The rules of FederationRecord.

use serde_json::{Value, json};

use super::{Case, created, not_alone, object, run, updated, with};

const UID: &str = "0193a1b2-0000-7000-8000-000000000001";
const OTHER_UID: &str = "0193a1b2-0000-7000-8000-000000000002";

fn record() -> Value {
    object(
        "FederationRecord",
        Some("lanekeeper-system"),
        "team.bob",
        json!({
            "collection": "team.bob",
            "writer": {"namespace": "team", "name": "bob", "uid": UID},
            "mode": "read-write",
            "logId": "1".repeat(64),
            "fingerprint": "2".repeat(64),
            "epoch": 3,
            "generation": 2,
        }),
    )
}

fn spec(base: &Value, change: Value) -> Value {
    with(base, json!({ "spec": change }))
}

pub(super) fn cases() -> Vec<Case> {
    let sealed = spec(&record(), json!({"mode": "sealed", "epoch": 4}));
    let writer = "another writer or another log needs a higher epoch, or a sealed record";
    vec![
        created(
            "metadata.name",
            "the record's name must be its collection: the name is the lock",
            record(),
            with(&record(), json!({"metadata": {"name": "team.other"}})),
        ),
        created("spec.collection", "must match", record(), {
            with(&record(), json!({"metadata": {"name": "bob"}, "spec": {"collection": "bob"}}))
        }),
        // Another collection would need another name, which no update can give it: a second lock.
        not_alone(updated(
            "spec.collection",
            "collection is immutable",
            record(),
            record(),
            spec(&record(), json!({"collection": "team.other"})),
        )),
        updated(
            "spec.epoch",
            "epoch never falls",
            record(),
            spec(&record(), json!({"epoch": 4})),
            spec(&record(), json!({"epoch": 2})),
        ),
        updated(
            "spec.generation",
            "generation never falls",
            record(),
            spec(&record(), json!({"generation": 3})),
            spec(&record(), json!({"generation": 1})),
        ),
        updated(
            "spec.epoch",
            writer,
            record(),
            spec(&record(), json!({"writer": {"uid": OTHER_UID}, "epoch": 4})),
            spec(&record(), json!({"writer": {"uid": OTHER_UID}})),
        ),
        updated(
            "spec.epoch",
            writer,
            record(),
            spec(&record(), json!({"logId": "3".repeat(64), "epoch": 4})),
            spec(&record(), json!({"logId": "3".repeat(64)})),
        ),
        updated(
            "spec.epoch",
            "sealing raises the epoch",
            record(),
            sealed.clone(),
            spec(&record(), json!({"mode": "sealed"})),
        ),
        // A hand-over: sealed under epoch 4, then another writer under the same epoch.
        updated(
            "spec.epoch",
            "epoch never falls",
            sealed.clone(),
            spec(&sealed, json!({"writer": {"uid": OTHER_UID}, "mode": "read-write", "generation": 3})),
            spec(&sealed, json!({"writer": {"uid": OTHER_UID}, "mode": "read-write", "epoch": 3})),
        ),
        updated(
            "spec.generation",
            "another fingerprint needs a higher generation",
            record(),
            spec(&record(), json!({"fingerprint": "4".repeat(64), "generation": 3})),
            spec(&record(), json!({"fingerprint": "4".repeat(64)})),
        ),
        created(
            "spec.mode",
            "must be one of: read-write, sealed",
            record(),
            spec(&record(), json!({"mode": "read-only"})),
        ),
        created("spec.writer.uid", "must match", record(), spec(&record(), json!({"writer": {"uid": "x".repeat(36)}}))),
        created("spec.logId", "must match", record(), spec(&record(), json!({"logId": "Z".repeat(64)}))),
        created(
            "spec.readers[1]",
            "stands in the list twice",
            spec(&record(), json!({"readers": [UID, OTHER_UID]})),
            spec(&record(), json!({"readers": [UID, UID]})),
        ),
        created(
            "status.head.seq",
            "must be at least 0",
            {
                with(
                    &record(),
                    json!({"status": {"head": {"logId": "1".repeat(64), "seq": 0, "hash": "1".repeat(64)}}}),
                )
            },
            {
                with(
                    &record(),
                    json!({"status": {"head": {"logId": "1".repeat(64), "seq": -1, "hash": "1".repeat(64)}}}),
                )
            },
        ),
    ]
}

#[test]
fn the_rules_of_federation_record() {
    run(&cases());
}
