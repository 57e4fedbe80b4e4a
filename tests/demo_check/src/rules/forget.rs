//! A forgotten word is found by no question and stands in no byte of the lanes' files; the log keeps the row,
//! its hash, and the event that says who forgot it.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{recall, retry};
use crate::listing::Listing;
use crate::reading::{column, list, number, text, texts, value};
use crate::steps::Steps;

pub(super) const STEP: &str = "06-forget";

/// Turns after a forgotten one that were indexed with it as their context.
const NEIGHBOURS: usize = 2;

pub(super) fn judge(steps: &Steps) -> Result<String> {
    let step = steps.get(STEP)?;
    let word = text(step, "/word")?;
    let holding = hits_with(value(step, "/before")?, word)?;
    ensure!(holding.len() == 1, "before, {} hits hold the word, expected 1", holding.len());
    let id = text(holding[0], "/id")?;
    let files = number(step, "/files_before")?;
    ensure!(files > 0, "the word stood in no file before, so finding none proves nothing");
    let old = Listing::of(value(steps.earlier(retry::STEP)?, "/after")?)?;
    let new = Listing::of(value(step, "/events")?)?;
    receipt(value(step, "/forget")?, id, &old, &new).context("the receipt")?;
    log(id, word, &old, &new).context("the log")?;
    after(value(step, "/after")?, id, word).context("recall afterwards")?;
    let left = number(step, "/files_after")?;
    ensure!(left == 0, "the word still stands {left} times in the files");
    Ok(format!("1 event forgotten with its receipt; the word stood {files} times in the files and stands in none"))
}

fn hits_with<'a>(answer: &'a Value, word: &str) -> Result<Vec<&'a Value>> {
    let (hits, word) = (list(answer, "/hits")?, word.to_lowercase());
    let texts = column(hits, "/text")?;
    Ok(hits.iter().zip(texts).filter(|(_, text)| text.to_lowercase().contains(&word)).map(|(hit, _)| hit).collect())
}

fn receipt(forget: &Value, id: &str, old: &Listing<'_>, new: &Listing<'_>) -> Result<()> {
    ensure!(forget.is_object(), "there is none: nothing was forgotten");
    ensure!(texts(forget, "/events")? == [id], "it names {:?}, expected {id}", texts(forget, "/events")?);
    let receipt = value(forget, "/receipt")?;
    ensure!(number(receipt, "/count")? == 1, "it counts {}", number(receipt, "/count")?);
    let (by, reason) = (text(receipt, "/by")?, text(receipt, "/reason")?);
    ensure!(by == "user:bob" && reason == "customer_request", "it says {by}, {reason}");
    for surface in ["log_text", "full_text", "vectors", "vector_engine_deleted"] {
        let state = text(receipt, &format!("/surfaces/{surface}"))?;
        ensure!(state == "erased" || state == "pending", "{surface} is {state}");
    }
    ensure!(text(receipt, "/surfaces/backups")? == "unreachable", "it claims to reach into backups");
    ensure!(!list(receipt, "/cannot_reach")?.is_empty(), "it does not say what it cannot reach");
    ensure!(texts(receipt, "/stays_readable")?.contains(&"seq"), "it does not say what stays readable");
    let forgotten = old.event(id)?;
    let later =
        |turn: &&&Value| turn["session"] == forgotten["session"] && turn["seq"].as_u64() > forgotten["seq"].as_u64();
    let neighbours = old.turns()?.iter().filter(later).count().min(NEIGHBOURS) as u64;
    let rewritten = number(receipt, "/neighbours_rewritten")?;
    ensure!(rewritten == neighbours, "{rewritten} following turns were made again, expected {neighbours}");
    let event = new.events.last().context("the log is empty")?;
    ensure!(text(event, "/kind")? == "forget", "the log does not end with a forget event");
    for (in_receipt, in_log) in [("/event_id", "/id"), ("/seq", "/seq")] {
        ensure!(value(receipt, in_receipt)? == value(event, in_log)?, "its {in_receipt} is not the log's");
    }
    Ok(())
}

/// The row is empty and in its place; all others are untouched.
fn log(id: &str, word: &str, old: &Listing<'_>, new: &Listing<'_>) -> Result<()> {
    ensure!(new.events.len() == old.events.len() + 1, "{} events became {}", old.events.len(), new.events.len());
    for (was, is) in old.events.iter().zip(&new.events) {
        let seq = number(was, "/seq")?;
        ensure!(
            text(was, "/id")? == text(is, "/id")? && text(was, "/hash")? == text(is, "/hash")?,
            "row {seq} is another"
        );
        let forgotten = is["forgotten"] == true;
        ensure!(forgotten == (was["id"] == id), "row {seq}: forgotten is {forgotten}");
        if forgotten {
            ensure!(is["text"].is_null() && is["speaker"].is_null(), "row {seq} still has its text");
        } else {
            ensure!(was["text"] == is["text"], "the text of row {seq} is another");
        }
    }
    let new = serde_json::to_string(&new.events)?.to_lowercase();
    ensure!(!new.contains(&word.to_lowercase()), "the word is still listed");
    Ok(())
}

/// Nothing holds the word, and nothing is found by it: neighbours were indexed with it as their context.
fn after(answer: &Value, id: &str, word: &str) -> Result<()> {
    let holding = hits_with(answer, word)?;
    ensure!(holding.is_empty(), "{} hits hold the word", holding.len());
    for hit in list(answer, "/hits")? {
        ensure!(text(hit, "/id")? != id, "the forgotten event is a hit");
        for arm in ["turn_text", "window_text"] {
            let listed = hit["arms"][arm]["rank"].is_u64();
            ensure!(!listed, "{arm} finds seq {} by the word", number(hit, "/seq")?);
        }
    }
    let lanes = list(answer, "/coverage/lanes")?;
    let lane = lanes.iter().find(|lane| lane["lane"] == recall::LANE).context("the lane was not asked")?;
    ensure!(number(lane, "/counts/pending_projection")? == 0, "vectors were still being made");
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::super::hits::tests::hit;
    use super::*;

    const WORD: &str = "Kupferdrossel";

    pub(crate) fn step() -> Value {
        let before = retry::tests::with_notes(1);
        let target = &before[0]["events"][3];
        assert!(target["text"].as_str().unwrap().contains(WORD));
        let mut after = before.clone();
        let events = after[0]["events"].as_array_mut().unwrap();
        events[3]["text"] = Value::Null;
        events[3]["role"] = Value::Null;
        events[3]["forgotten"] = true.into();
        events.push(json!({"id": "e164", "seq": 164, "hash": "h164", "kind": "forget", "principal": "user:bob",
            "session": null, "text": null, "forgotten": false}));
        after[0]["head"] = json!({"seq": 164, "hash": "h164"});
        let mut unrelated = hit(recall::LANE, &before[0]["events"][1], 0.3);
        unrelated["arms"] = json!({"turn_text": {"score": 0.0, "rank": null}, "vector": {"score": 0.4, "rank": 1}});
        let lanes = [(recall::LANE, "own", 162)];
        json!({"word": WORD, "files_before": 4, "files_after": 0, "events": after,
            "before": crate::coverage::tests::answer(&lanes, json!([hit(recall::LANE, target, 2.0), unrelated])),
            "after": crate::coverage::tests::answer(&lanes, json!([unrelated])),
            "forget": {"events": ["e4"], "counts": {"turns": 1}, "receipt": {"event_id": "e164", "seq": 164,
                "at": "2026-11-30T10:00:00Z", "by": "user:bob", "reason": "customer_request", "count": 1,
                "surfaces": {"log_text": "erased", "full_text": "erased", "vectors": "pending",
                    "vector_engine_deleted": "pending", "backups": "unreachable", "exports": "unreachable"},
                "stays_readable": ["seq", "id"], "neighbours_rewritten": 2, "cannot_reach": ["backups"]}}})
    }

    fn judged(change: impl FnOnce(&mut Value)) -> Result<String> {
        let mut step = step();
        change(&mut step);
        judge(&Steps::of([(retry::STEP, retry::tests::step()), (STEP, step)]))
    }

    #[test]
    fn a_word_that_is_gone_with_a_receipt_holds() {
        let told = judged(|_| ()).unwrap();
        assert!(told.contains("stood 4 times"), "{told}");
    }

    #[test]
    fn a_word_that_is_left_anywhere_fails() {
        let changes: [crate::rules::BadAnswer; 15] = [
            // What DEMO_BREAK=forget does: no forget is sent.
            ("nothing was forgotten", |step| {
                step["forget"] = Value::Null;
                step["after"] = step["before"].clone();
                step["events"] = retry::tests::with_notes(1);
                step["files_after"] = 4.into();
            }),
            ("nothing was forgotten", |step| step["forget"] = Value::Null),
            ("in no file before", |step| step["files_before"] = 0.into()),
            ("still stands 1 times", |step| step["files_after"] = 1.into()),
            ("1 hits hold the word", |step| step["after"]["hits"] = step["before"]["hits"].clone()),
            ("window_text finds seq 2", |step| {
                step["after"]["hits"][0]["arms"]["window_text"] = json!({"score": 1.0, "rank": 1})
            }),
            ("still being made", |step| {
                step["after"]["coverage"]["lanes"][0]["counts"]["pending_projection"] = 2.into()
            }),
            ("names [\"e5\"]", |step| step["forget"]["events"] = json!(["e5"])),
            ("expected 2", |step| step["forget"]["receipt"]["neighbours_rewritten"] = 1.into()),
            ("vectors is unreachable", |step| step["forget"]["receipt"]["surfaces"]["vectors"] = "unreachable".into()),
            ("its /seq is not", |step| step["forget"]["receipt"]["seq"] = 163.into()),
            ("still has its text", |step| step["events"][0]["events"][3]["text"] = WORD.into()),
            ("row 4 is another", |step| step["events"][0]["events"][3]["hash"] = "other".into()),
            ("the text of row 6", |step| step["events"][0]["events"][5]["text"] = "two after KUPFERDROSSEL".into()),
            ("row 7: forgotten is true", |step| step["events"][0]["events"][6]["forgotten"] = true.into()),
        ];
        for (why, change) in changes {
            let error = judged(change).expect_err(why);
            assert!(format!("{error:#}").contains(why), "{why}: {error:#}");
        }
    }
}
