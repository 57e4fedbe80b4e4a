//! Whether a recall's coverage statement is true of itself, and of the lanes that belong into it.
//!
//! `complete_corpus` is worked out here anew from the arms and counts, by the design's own words, and
//! compared with what the answer says of itself.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::reading::{flag, list, number, text, texts, value};

/// The arms that a question is put to which names no surface.
pub(crate) const EVERY_ARM: &[&str] = &["turn_text", "window_text", "vector", "memory_text"];
/// The arms of a question about turns alone.
pub(crate) const TURN_ARMS: &[&str] = &["turn_text", "window_text", "vector"];

/// Judges a coverage statement; gives whether the answer is complete.
///
/// `arms`: those that the question is put to. `lanes`: name, relation and number of turns of each lane that the caller is to see, and no other.
pub(crate) fn judge(answer: &Value, arms: &[&str], lanes: &[(&str, &str, u64)]) -> Result<bool> {
    let stated = list(answer, "/coverage/lanes")?;
    let names: Vec<&str> = stated.iter().map(|lane| text(lane, "/lane")).collect::<Result<_>>()?;
    let mut expected: Vec<&str> = lanes.iter().map(|(name, _, _)| *name).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    expected.sort_unstable();
    ensure!(sorted == expected, "coverage names the lanes {names:?}, expected {expected:?}");
    let mut whole = true;
    for (name, relation, turns) in lanes {
        let lane = stated.iter().find(|lane| lane["lane"] == *name).context("a lane is not named")?;
        whole &= judge_lane(lane, arms, relation, *turns).with_context(|| format!("coverage of {name}"))?;
    }
    for (part, state) in [("embedder", "ok"), ("vectors", "ok"), ("approvals", "not configured")] {
        let stated = list(answer, "/coverage/shared")?.iter().find(|shared| shared["part"] == part);
        let stated = stated.with_context(|| format!("coverage does not name the shared part {part}"))?;
        ensure!(text(stated, "/state")? == state, "{part} is {}, expected {state}", text(stated, "/state")?);
    }
    let complete = flag(answer, "/coverage/complete_corpus")?;
    let missing = texts(answer, "/coverage/missing")?;
    ensure!(complete == missing.is_empty(), "complete_corpus is {complete} and missing is {missing:?}");
    ensure!(complete == whole, "complete_corpus is {complete}, by arms and counts it is {whole}; missing: {missing:?}");
    ensure!(!text(answer, "/ranking/statement")?.is_empty(), "the ranking says nothing");
    Ok(complete)
}

fn judge_lane(lane: &Value, arms: &[&str], relation: &str, turns: u64) -> Result<bool> {
    ensure!(text(lane, "/relation")? == relation, "it is {}, expected {relation}", text(lane, "/relation")?);
    let events = number(lane, "/counts/events")?;
    ensure!(events == turns, "it counts {events} turns, its log holds {turns}");
    let mut whole = number(lane, "/counts/searchable")? == events;
    whole &= number(lane, "/counts/pending_projection")? == 0;
    whole &= number(lane, "/counts/unattributed_excluded")? == 0;
    for name in arms {
        let arm = value(lane, &format!("/arms/{name}"))?;
        let searched = flag(arm, "/searched")?;
        let reason = arm.get("reason").and_then(Value::as_str);
        ensure!(searched || reason.is_some(), "{name} was not searched and does not say why");
        whole &= searched && reason.is_none() && roles_left_out(arm)?.is_empty();
    }
    Ok(whole)
}

/// Roles that an arm does not hold.
pub(crate) fn roles_left_out(arm: &Value) -> Result<Vec<&str>> {
    // Left out of the answer where there is none.
    if arm.get("roles_left_out").is_none() { Ok(Vec::new()) } else { texts(arm, "/roles_left_out") }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A complete coverage with a ranking statement and these hits.
    pub(crate) fn answer(lanes: &[(&str, &str, u64)], hits: Value) -> Value {
        let searched = json!({"searched": true});
        let lanes: Vec<Value> = lanes
            .iter()
            .map(|(name, relation, turns)| {
                json!({"lane": name, "relation": relation, "floor": 0.25, "pooling": "idf_weighted",
                    "arms": {"turn_text": searched, "window_text": searched, "vector": searched, "memory_text": searched},
                    "counts": {"events": turns, "searchable": turns, "pending_projection": 0,
                        "unattributed_excluded": 0, "dangling_skipped": 0, "folded": 0}})
            })
            .collect();
        json!({"hits": hits, "ranking": {"method": "fused", "arms": [], "statement": "Sums of normalised scores."},
            "coverage": {"complete_corpus": true, "missing": [], "lanes": lanes, "query_cut": false,
                "shared": [{"part": "embedder", "state": "ok"}, {"part": "vectors", "state": "ok"},
                    {"part": "memory", "state": "text only"}, {"part": "approvals", "state": "not configured"}]}})
    }

    const LANES: [(&str, &str, u64); 2] = [("team/bob", "own", 9), ("team/handbook", "read", 3)];

    fn changed(change: impl FnOnce(&mut Value)) -> Result<bool> {
        let mut answer = answer(&LANES, json!([]));
        change(&mut answer["coverage"]);
        judge(&answer, EVERY_ARM, &LANES)
    }

    #[test]
    fn complete_and_incomplete_are_both_believed_where_they_are_true() {
        assert!(changed(|_| ()).unwrap());
        let gaps: [fn(&mut Value); 6] = [
            |lane| lane["arms"]["vector"]["roles_left_out"] = json!(["tool"]),
            |lane| lane["arms"]["vector"]["reason"] = "rebuilding".into(),
            |lane| lane["arms"]["turn_text"] = json!({"searched": false, "reason": "no_searchable_terms"}),
            |lane| lane["counts"]["pending_projection"] = 1.into(),
            |lane| lane["counts"]["searchable"] = 8.into(),
            |lane| lane["counts"]["unattributed_excluded"] = 1.into(),
        ];
        for (index, gap) in gaps.iter().enumerate() {
            let said = changed(|coverage| {
                gap(&mut coverage["lanes"][0]);
                coverage["complete_corpus"] = false.into();
                coverage["missing"] = json!(["team/bob: something"]);
            });
            assert!(!said.unwrap(), "gap {index}");
            assert!(changed(|coverage| gap(&mut coverage["lanes"][0])).is_err(), "gap {index} was hidden");
        }
    }

    #[test]
    fn an_arm_that_was_not_asked_is_no_gap() {
        let mut answer = answer(&LANES, json!([]));
        answer["coverage"]["lanes"][0]["arms"]["memory_text"] = json!({"searched": false, "reason": "not_requested"});
        assert!(judge(&answer, TURN_ARMS, &LANES).unwrap());
        assert!(judge(&answer, EVERY_ARM, &LANES).is_err());
    }

    #[test]
    fn a_statement_that_is_not_true_is_refused() {
        let lies: [fn(&mut Value); 8] = [
            |coverage| coverage["complete_corpus"] = false.into(),
            |coverage| coverage["missing"] = json!(["team/bob: something"]),
            |coverage| coverage["lanes"][1]["lane"] = "team/ada".into(),
            |coverage| coverage["lanes"] = json!([coverage["lanes"][0]]),
            |coverage| coverage["lanes"][1]["relation"] = "own".into(),
            |coverage| coverage["lanes"][0]["counts"]["events"] = 10.into(),
            |coverage| coverage["lanes"][0]["arms"]["vector"] = Value::Null,
            |coverage| coverage["shared"][0]["state"] = "embedder_unavailable".into(),
        ];
        for (index, lie) in lies.iter().enumerate() {
            assert!(changed(lie).is_err(), "lie {index}");
        }
    }
}
