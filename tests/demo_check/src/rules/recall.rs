//! The decision that holds now is found, told as the log has it, and the answer says what it did not search.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{hits, saved};
use crate::coverage;
use crate::listing::Listing;
use crate::reading::{list, text, texts, value};
use crate::steps::Steps;

pub(super) const STEP: &str = "02-recall";

pub(super) const LANE: &str = "team/bob";
/// The decision of October 7, which replaces that of September 14.
pub(super) const DECISION: &str = "moves to Friday, October 16";
/// How many hits somebody reads who did not ask for more.
const READ: usize = 5;

pub(super) fn judge(steps: &Steps) -> Result<String> {
    let step = steps.get(STEP)?;
    let listing = Listing::of(value(steps.earlier(saved::STEP)?, "/bob_events")?)?;
    let turns = listing.turns()?.len() as u64;
    ensure!(text(step, "/question")?.contains("deadline"), "another question was asked");
    let decision = listing.the_turn_with(DECISION)?;
    let all = value(step, "/answer")?;
    let place = found(all, &listing, decision)?;
    let spoken = value(step, "/spoken")?;
    found(spoken, &listing, decision).context("asked of spoken turns alone")?;

    let complete = coverage::judge(all, coverage::EVERY_ARM, &[(LANE, "own", turns)])?;
    ensure!(!complete, "the lane makes no vectors of a tool's output, yet the answer calls itself complete");
    let left_out = coverage::roles_left_out(value(all, "/coverage/lanes/0/arms/vector")?)?;
    ensure!(left_out == ["tool"], "the vector arm leaves out {left_out:?}, expected the tool's turns");
    let missing = texts(all, "/coverage/missing")?;
    ensure!(missing.iter().any(|gap| gap.contains("tool")), "no gap that is named is about the tool's turns");
    let complete =
        coverage::judge(spoken, coverage::TURN_ARMS, &[(LANE, "own", turns)]).context("asked of spoken turns alone")?;
    ensure!(complete, "asked of spoken turns alone, nothing is left out, yet the answer calls itself incomplete");
    Ok(format!("hit {place} is the decision that holds; incomplete for the tool's turns, complete without them"))
}

/// The place of the decision among the hits; it was found by its own words.
fn found(answer: &Value, listing: &Listing<'_>, decision: &Value) -> Result<usize> {
    hits::judge(answer, LANE, listing)?;
    let hits = list(answer, "/hits")?;
    if let Some(foreign) = hits.iter().find(|hit| hit["lane"] != LANE) {
        anyhow::bail!("a hit stands in {}", foreign["lane"]);
    }
    let place = hits::place(answer, LANE, text(decision, "/id")?)?
        .context("the decision that holds now is not among the hits")?;
    ensure!(place <= READ, "the decision that holds now is hit {place}");
    ensure!(hits[place - 1]["arms"]["turn_text"]["rank"].is_u64(), "its own words did not find it");
    Ok(place)
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::coverage::tests::answer;

    pub(crate) fn step() -> Value {
        let saved = saved::tests::step();
        let decision = hits::tests::hit(LANE, &saved["bob_events"][0]["events"][1], 2.0);
        let spoken = answer(&[(LANE, "own", 161)], json!([decision]));
        let mut all = spoken.clone();
        all["coverage"]["lanes"][0]["arms"]["vector"]["roles_left_out"] = json!(["tool"]);
        all["coverage"]["complete_corpus"] = false.into();
        all["coverage"]["missing"] = json!(["team/bob: vector does not hold turns of the role tool"]);
        json!({"question": "What is the deadline?", "answer": all, "spoken": spoken})
    }

    fn judged(change: impl FnOnce(&mut Value)) -> Result<String> {
        let mut step = step();
        change(&mut step);
        judge(&Steps::of([(saved::STEP, saved::tests::step()), (STEP, step)]))
    }

    #[test]
    fn the_decision_with_true_coverage_holds() {
        assert!(judged(|_| ()).unwrap().starts_with("hit 1 is"));
    }

    #[test]
    fn another_decision_or_a_false_statement_fails() {
        let changes: [crate::rules::BadAnswer; 8] = [
            ("not among the hits", |step| step["answer"]["hits"] = json!([])),
            ("the text of hit", |step| {
                step["answer"]["hits"][0]["text"] = "the deadline is Thursday, October 15".into()
            }),
            ("a hit stands in", |step| step["answer"]["hits"][0]["lane"] = "team/ada".into()),
            ("its own words", |step| step["answer"]["hits"][0]["arms"]["turn_text"]["rank"] = Value::Null),
            ("by arms and counts it is false", |step| {
                step["answer"]["coverage"]["complete_corpus"] = true.into();
                step["answer"]["coverage"]["missing"] = json!([]);
            }),
            ("no gap that is named", |step| step["answer"]["coverage"]["missing"] = json!(["something"])),
            ("its log holds 161", |step| step["answer"]["coverage"]["lanes"][0]["counts"]["events"] = 160.into()),
            ("calls itself incomplete", |step| step["spoken"] = step["answer"].clone()),
        ];
        for (why, change) in changes {
            let error = judged(change).expect_err(why);
            assert!(format!("{error:#}").contains(why), "{why}: {error:#}");
        }
        assert!(judge(&Steps::of([(STEP, step())])).is_err(), "nothing to measure it by");
    }
}
