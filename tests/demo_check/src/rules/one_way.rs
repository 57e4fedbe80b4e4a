//! A personal lane reads the handbook; the handbook's curator sees nothing of that lane, not even that it is.

use anyhow::{Context, Result, ensure};

use super::{hits, recall, saved};
use crate::coverage;
use crate::listing::Listing;
use crate::reading::{column, list, number, text, value};
use crate::steps::Steps;

pub(super) const STEP: &str = "04-one-way";

const CORPUS: &str = "team/handbook";
/// The page that answers.
const PAGE: &str = "on a Friday after 13:00";
/// How many hits somebody reads who did not ask for more.
const READ: usize = 5;

pub(super) fn judge(steps: &Steps) -> Result<String> {
    let step = steps.get(STEP)?;
    let saved = steps.earlier(saved::STEP)?;
    let own = Listing::of(value(saved, "/bob_events")?)?;
    let corpus = Listing::of(value(saved, "/handbook_events")?)?;
    let (own_turns, corpus_turns) = (own.turns()?.len() as u64, corpus.turns()?.len() as u64);

    let bob = value(step, "/bob")?;
    hits::judge(bob, recall::LANE, &own).context("Bob's answer")?;
    hits::judge(bob, CORPUS, &corpus).context("Bob's answer")?;
    coverage::judge(bob, coverage::EVERY_ARM, &[(recall::LANE, "own", own_turns), (CORPUS, "read", corpus_turns)])
        .context("Bob's answer")?;
    let page = corpus.the_turn_with(PAGE)?;
    let place =
        hits::place(bob, CORPUS, text(page, "/id")?)?.context("the page that answers is not among Bob's hits")?;
    ensure!(place <= READ, "the page that answers is hit {place}");

    ensure!(
        text(step, "/question")? == text(steps.earlier(recall::STEP)?, "/question")?,
        "the curator was asked another question"
    );
    let shown = column(list(step, "/curator_lanes/lanes")?, "/lane")?;
    ensure!(shown == [CORPUS], "the curator's token shows {shown:?}, expected {CORPUS} alone");
    let curator = value(step, "/curator")?;
    coverage::judge(curator, coverage::EVERY_ARM, &[(CORPUS, "own", corpus_turns)]).context("the curator's answer")?;
    hits::judge(curator, CORPUS, &corpus).context("the curator's answer")?;
    let lanes = column(list(curator, "/hits")?, "/lane")?;
    ensure!(lanes.iter().all(|lane| *lane == CORPUS), "the curator's hits stand in {lanes:?}");

    let refused = value(step, "/curator_refused")?;
    ensure!(refused.get("hits").is_none(), "the curator was let into {}", recall::LANE);
    let (status, code) = (number(refused, "/status")?, text(refused, "/code")?);
    ensure!(
        status == 404 && code == "not_found",
        "the curator was refused with {status} {code}, expected 404 not_found"
    );
    Ok(format!("the page is Bob's hit {place}; to the curator {} does not exist", recall::LANE))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(change: impl FnOnce(&mut Value)) -> Result<String> {
        let saved = saved::tests::step();
        let page = hits::tests::hit(CORPUS, &saved["handbook_events"][0]["events"][1], 2.0);
        let note = hits::tests::hit(recall::LANE, &saved["bob_events"][0]["events"][1], 1.0);
        let answer = coverage::tests::answer;
        let mut step = json!({"question": "What is the deadline?",
            "bob": answer(&[(recall::LANE, "own", 161), (CORPUS, "read", 1)], json!([page, note])),
            "curator_lanes": {"lanes": [{"lane": CORPUS}]},
            "curator": answer(&[(CORPUS, "own", 1)], json!([page])),
            "curator_refused": {"status": 404, "code": "not_found", "detail": "lane not found"}});
        change(&mut step);
        judge(&Steps::of([(saved::STEP, saved), (recall::STEP, recall::tests::step()), (STEP, step)]))
    }

    #[test]
    fn reading_one_way_holds() {
        assert!(judged(|_| ()).is_ok());
    }

    #[test]
    fn not_reading_or_reading_back_fails() {
        let changes: [crate::rules::BadAnswer; 9] = [
            ("not among Bob's hits", |step| drop(step["bob"]["hits"].as_array_mut().unwrap().remove(0))),
            ("it is own, expected read", |step| step["bob"]["coverage"]["lanes"][1]["relation"] = "own".into()),
            ("the text of hit", |step| step["bob"]["hits"][0]["lane"] = recall::LANE.into()),
            ("curator's token shows", |step| step["curator_lanes"]["lanes"][0]["lane"] = recall::LANE.into()),
            ("hits stand in", |step| step["curator"]["hits"] = json!([step["bob"]["hits"][1]])),
            ("coverage names the lanes", |step| step["curator"]["coverage"] = step["bob"]["coverage"].clone()),
            ("was let into", |step| step["curator_refused"] = step["bob"].clone()),
            ("403 not_found", |step| step["curator_refused"]["status"] = 403.into()),
            ("was let into", |step| step["curator_refused"] = json!({"status": 404, "code": "not_found", "hits": []})),
        ];
        for (why, change) in changes {
            let error = judged(change).expect_err(why);
            assert!(format!("{error:#}").contains(why), "{why}: {error:#}");
        }
    }
}
