//! A save that is sent twice under one Idempotency-Key is one event, and both answers are the same.

use anyhow::{Context, Result, ensure};

use crate::listing::Listing;
use crate::reading::{list, text, value};
use crate::steps::Steps;

pub(super) const STEP: &str = "05-retry";

pub(super) fn judge(steps: &Steps) -> Result<String> {
    let step = steps.get(STEP)?;
    let listing = |when: &str| -> Result<Listing<'_>> {
        Listing::of(value(step, &format!("/{when}"))?).with_context(|| format!("the listing {when}"))
    };
    let (before, between, after) = (listing("before")?, listing("between")?, listing("after")?);
    let [first, retry] = [list(step, "/first/events")?, list(step, "/retry/events")?];
    ensure!(first.len() == 1 && retry.len() == 1, "the answers name {} and {} events", first.len(), retry.len());
    let id = text(&first[0], "/id")?;
    ensure!(
        between.events.len() == before.events.len() + 1,
        "the first save made {} events of {}",
        between.events.len(),
        before.events.len()
    );
    ensure!(between.events.last().is_some_and(|event| event["id"] == id), "the first answer names another event");
    for member in ["id", "seq", "hash"] {
        ensure!(first[0].get(member) == retry[0].get(member), "the retry was answered with another {member}");
    }
    ensure!(value(step, "/first/head")? == value(step, "/retry/head")?, "the retry was answered with another head");
    ensure!(
        after.events.len() == between.events.len() && after.head_hash == between.head_hash,
        "the retry made {} events of {}",
        after.events.len(),
        between.events.len()
    );
    Ok(format!("{} events before, {} after the save and after its retry", before.events.len(), after.events.len()))
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::super::saved;
    use super::*;
    use crate::listing::tests::page;

    const NOTE: (&str, &str, &str, &str) = ("2026-11-25", "assistant", "sa:team/bobs-agent", "handover note");

    /// A listing with more turns behind those of the first step.
    pub(crate) fn with_notes(count: usize) -> Value {
        let step = saved::tests::step();
        let events = step["bob_events"][0]["events"].as_array().unwrap().clone();
        let text = |event: &Value, member: &str| event[member].as_str().unwrap().to_owned();
        let saved: Vec<[String; 4]> = events[1..]
            .iter()
            .map(|event| ["session", "role", "principal", "text"].map(|member| text(event, member)))
            .collect();
        let mut turns: Vec<_> =
            saved.iter().map(|[a, b, c, d]| (a.as_str(), b.as_str(), c.as_str(), d.as_str())).collect();
        turns.extend(std::iter::repeat_n(NOTE, count));
        page(&turns)
    }

    pub(crate) fn step() -> Value {
        let answer = json!({"events": [{"id": "e163", "seq": 163, "hash": "h163", "projection": "pending"}],
            "head": {"seq": 163, "hash": "h163"}});
        json!({"before": with_notes(0), "first": answer, "between": with_notes(1), "retry": answer, "after": with_notes(1)})
    }

    fn judged(change: impl FnOnce(&mut Value)) -> Result<String> {
        let mut step = step();
        change(&mut step);
        judge(&Steps::of([(STEP, step)]))
    }

    #[test]
    fn one_event_for_two_sends_holds() {
        assert_eq!(judged(|_| ()).unwrap(), "162 events before, 163 after the save and after its retry");
    }

    #[test]
    fn a_second_event_fails() {
        let changes: [crate::rules::BadAnswer; 6] = [
            // What DEMO_BREAK=idem does: the same turn under another key.
            ("another id", |step| {
                step["retry"] = json!({"events": [{"id": "e164", "seq": 164, "hash": "h164", "projection": "duplicate"}],
                    "head": {"seq": 164, "hash": "h164"}});
                step["after"] = with_notes(2);
            }),
            ("the retry made", |step| step["after"] = with_notes(2)),
            ("another id", |step| step["retry"]["events"][0]["id"] = "e9".into()),
            ("another head", |step| step["retry"]["head"]["seq"] = 164.into()),
            ("made 162 events of 162", |step| step["between"] = step["before"].clone()),
            ("/retry/events is missing", |step| step["retry"] = json!({"status": 409, "code": "idempotency_conflict"})),
        ];
        for (why, change) in changes {
            let error = judged(change).expect_err(why);
            assert!(format!("{error:#}").contains(why), "{why}: {error:#}");
        }
    }
}
