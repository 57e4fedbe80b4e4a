//! The conversation went in: every line is an event, in order, by the one who saved it, with its vectors.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::listing::Listing;
use crate::reading::{column, list, number, text, value};
use crate::steps::Steps;

pub(super) const STEP: &str = "01-saved";

/// The fewest turns that count as a conversation worth asking.
const FEWEST: u64 = 150;

/// A lane of the demo: its key in the stored step, who saved into it, and roles it makes no vectors for.
const LANES: [(&str, &str, &str, &[&str]); 3] = [
    ("bob", "team/bob", "sa:team/bobs-agent", &["tool", "system"]),
    ("ada", "team/ada", "user:ada", &["user", "tool", "system"]),
    ("handbook", "team/handbook", "user:ada", &["system"]),
];

pub(super) fn judge(steps: &Steps) -> Result<String> {
    let step = steps.get(STEP)?;
    let mut told = Vec::new();
    for (key, name, principal, without_vectors) in LANES {
        let (lines, repeats) = lane(step, key, principal, without_vectors).with_context(|| format!("lane {name}"))?;
        summary(step, key, name, lines).with_context(|| format!("lane {name}"))?;
        ensure!(key != "bob" || lines >= FEWEST, "{lines} turns are no long conversation");
        told.push(format!("{name} {lines} ({repeats} repeated)"));
    }
    Ok(format!("every line is an event with its vectors: {}", told.join(", ")))
}

/// Lines, answers and the listing tell the same; gives lines and repeats.
fn lane(step: &Value, key: &str, principal: &str, without_vectors: &[&str]) -> Result<(u64, u64)> {
    let lines = number(step, &format!("/{key}_lines"))?;
    let mut answered = Vec::new();
    for save in list(step, &format!("/{key}_saves"))? {
        answered.extend(column(list(save, "/events")?, "/id")?);
    }
    let listing = Listing::of(value(step, &format!("/{key}_events"))?)?;
    let turns = listing.turns()?;
    ensure!(answered.len() as u64 == lines, "{lines} lines gave {} events", answered.len());
    let listed: Vec<&str> = turns.iter().map(|turn| text(turn, "/id")).collect::<Result<_>>()?;
    ensure!(listed == answered, "the log lists other turns than the saves answered, or in another order");
    let mut first_of: HashMap<&str, &str> = HashMap::new();
    let mut repeats = 0;
    for turn in turns {
        let (id, role) = (text(turn, "/id")?, text(turn, "/role")?);
        ensure!(text(turn, "/principal")? == principal, "turn {id} was not written by {principal}");
        let projection = text(turn, "/projection")?;
        let first = *first_of.entry(text(turn, "/text")?).or_insert(id);
        let expected = match (without_vectors.contains(&role), first == id) {
            (true, _) => "skipped",
            (false, true) => "complete",
            (false, false) => "duplicate",
        };
        ensure!(projection == expected, "turn {id} ({role}) is {projection}, expected {expected}");
        if expected == "duplicate" {
            ensure!(text(turn, "/duplicate_of")? == first, "turn {id} is not named a repeat of {first}");
            repeats += 1;
        }
    }
    Ok((lines, repeats))
}

/// The lane's own summary agrees.
fn summary(step: &Value, key: &str, name: &str, lines: u64) -> Result<()> {
    let lanes = list(step, &format!("/{key}_lanes/lanes"))?;
    let lane = lanes.iter().find(|lane| lane["lane"] == name).context("it is not shown to its own token")?;
    ensure!(text(lane, "/relation")? == "own", "it is not its token's own");
    let (events, pending) = (number(lane, "/counts/events")?, number(lane, "/counts/pending_projection")?);
    ensure!(events == lines && pending == 0, "it counts {events} turns, {pending} pending; {lines} were saved");
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::listing::tests::page;

    const AGENT: &str = "sa:team/bobs-agent";

    /// What the demo stores, with a conversation of 160 turns in small.
    pub(crate) fn step() -> Value {
        let filler: Vec<String> = (0..155).map(|n| format!("note {n}")).collect();
        let mut bob: Vec<(&str, &str, &str, &str)> = vec![
            (
                "2026-10-07",
                "assistant",
                AGENT,
                "Decision: the deadline for the ledger cutover moves to Friday, October 16.",
            ),
            ("2026-10-08", "tool", AGENT, "exit code 0"),
            ("2026-10-08", "assistant", AGENT, "Kupferdrossel is the customer"),
            ("2026-10-08", "assistant", AGENT, "one after"),
            ("2026-10-08", "user", AGENT, "two after"),
        ];
        bob.extend(filler.iter().map(|text| ("2026-10-09", "assistant", AGENT, text.as_str())));
        bob.push(("2026-10-09", "assistant", AGENT, "note 3"));
        let ada = [("bread", "assistant", "user:ada", "rye"), ("bread", "assistant", "user:ada", "wheat")];
        let handbook = [("changes", "user", "user:ada", "Nobody deploys to production on a Friday after 13:00.")];
        let mut step = json!({});
        for (key, turns) in [("bob", &bob[..]), ("ada", &ada[..]), ("handbook", &handbook[..])] {
            let pages = page(turns);
            let events: Vec<Value> = pages[0]["events"].as_array().unwrap()[1..].to_vec();
            step[format!("{key}_lines")] = turns.len().into();
            step[format!("{key}_saves")] = json!([{"events": events}]);
            step[format!("{key}_events")] = pages;
            step[format!("{key}_lanes")] = json!({"lanes": [{"lane": format!("team/{key}"), "relation": "own",
                "counts": {"events": turns.len(), "pending_projection": 0}}]});
        }
        step
    }

    fn judged(change: impl FnOnce(&mut Value)) -> Result<String> {
        let mut step = step();
        change(&mut step);
        judge(&Steps::of([(STEP, step)]))
    }

    #[test]
    fn a_conversation_that_went_in_whole_holds() {
        let told = judged(|_| ()).unwrap();
        assert!(told.contains("team/bob 161 (1 repeated), team/ada 2 (0 repeated), team/handbook 1"), "{told}");
    }

    #[test]
    fn what_is_lost_doubled_or_pending_fails() {
        let changes: [crate::rules::BadAnswer; 9] = [
            ("162 lines gave 161 events", |step| step["bob_lines"] = 162.into()),
            ("161 lines gave 160 events", |step| drop(step["bob_saves"][0]["events"].as_array_mut().unwrap().pop())),
            ("in another order", |step| step["bob_saves"][0]["events"].as_array_mut().unwrap().swap(0, 1)),
            ("1 pending", |step| step["ada_lanes"]["lanes"][0]["counts"]["pending_projection"] = 1.into()),
            ("is pending, expected complete", |step| {
                step["bob_events"][0]["events"][1]["projection"] = "pending".into()
            }),
            ("(tool) is complete, expected skipped", |step| {
                step["bob_events"][0]["events"][2]["projection"] = "complete".into()
            }),
            ("is complete, expected duplicate", |step| {
                step["bob_events"][0]["events"][161]["projection"] = "complete".into()
            }),
            ("not named a repeat", |step| step["bob_events"][0]["events"][161]["duplicate_of"] = "e2".into()),
            ("was not written by user:ada", |step| {
                step["handbook_events"][0]["events"][1]["principal"] = "user:bob".into()
            }),
        ];
        for (why, change) in changes {
            let error = judged(change).expect_err(why);
            assert!(format!("{error:#}").contains(why), "{why}: {error:#}");
        }
    }
}
