//! Another lane of the same process answers the same question with nothing, although it holds turns and was
//! searched wholly.

use anyhow::{Result, ensure};

use super::{recall, saved};
use crate::coverage;
use crate::listing::Listing;
use crate::reading::{column, list, text, value};
use crate::steps::Steps;

pub(super) const STEP: &str = "03-other-lane";

const LANE: &str = "team/ada";

pub(super) fn judge(steps: &Steps) -> Result<String> {
    let step = steps.get(STEP)?;
    ensure!(
        text(step, "/question")? == text(steps.earlier(recall::STEP)?, "/question")?,
        "it was asked another question"
    );
    let turns = Listing::of(value(steps.earlier(saved::STEP)?, "/ada_events")?)?.turns()?.len() as u64;
    ensure!(turns > 0, "an empty lane proves nothing by an empty answer");
    let lanes = column(list(step, "/lanes/lanes")?, "/lane")?;
    ensure!(lanes == [LANE], "Ada's token shows {lanes:?}, expected {LANE} alone");
    let answer = value(step, "/answer")?;
    let hits = list(answer, "/hits")?;
    ensure!(hits.is_empty(), "{} hits, of {:?}", hits.len(), column(hits, "/lane")?);
    ensure!(
        coverage::judge(answer, coverage::EVERY_ARM, &[(LANE, "own", turns)])?,
        "the empty answer calls itself incomplete"
    );
    Ok(format!("no hit, and all {turns} turns of {LANE} were searched by every arm"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(change: impl FnOnce(&mut Value)) -> Result<String> {
        let mut step = json!({"question": "What is the deadline?", "lanes": {"lanes": [{"lane": LANE}]},
            "answer": coverage::tests::answer(&[(LANE, "own", 2)], json!([]))});
        change(&mut step);
        judge(&Steps::of([(saved::STEP, saved::tests::step()), (recall::STEP, recall::tests::step()), (STEP, step)]))
    }

    #[test]
    fn an_empty_answer_of_a_lane_that_was_searched_holds() {
        assert!(judged(|_| ()).is_ok());
    }

    #[test]
    fn a_leak_or_an_unsearched_lane_fails() {
        let changes: [crate::rules::BadAnswer; 6] = [
            // What DEMO_BREAK=scope does: Bob answers in Ada's place.
            ("Ada's token shows", |step| {
                *step = json!({"question": "What is the deadline?", "lanes": {"lanes": [{"lane": "team/bob"}]},
                "answer": recall::tests::step()["answer"]})
            }),
            ("Ada's token shows", |step| step["lanes"]["lanes"] = json!([{"lane": LANE}, {"lane": "team/bob"}])),
            ("1 hits, of", |step| step["answer"]["hits"] = json!([{"lane": "team/bob"}])),
            ("its log holds 2", |step| step["answer"]["coverage"]["lanes"][0]["counts"]["events"] = 163.into()),
            ("does not say why", |step| {
                step["answer"]["coverage"]["lanes"][0]["arms"]["vector"]["searched"] = false.into()
            }),
            ("another question", |step| step["question"] = "What is the weather?".into()),
        ];
        for (why, change) in changes {
            let error = judged(change).expect_err(why);
            assert!(format!("{error:#}").contains(why), "{why}: {error:#}");
        }
    }
}
