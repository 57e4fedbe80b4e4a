//! One byte of a copy of the log was changed: verify names that row. The original holds, to its head.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{forget, recall};
use crate::listing::Listing;
use crate::reading::{flag, number, text, value};
use crate::steps::Steps;

pub(super) const STEP: &str = "07-chain";

pub(super) fn judge(steps: &Steps) -> Result<String> {
    let step = steps.get(STEP)?;
    let listing = Listing::of(value(steps.earlier(forget::STEP)?, "/events")?)?;
    let seq = number(step, "/flipped_seq")?;
    ensure!(
        seq == number(listing.the_turn_with(recall::DECISION)?, "/seq")?,
        "row {seq} is not the decision that was to be changed"
    );
    let bytes = number(step, "/differing_bytes")?;
    ensure!(bytes == 1, "copy and original differ in {bytes} bytes, expected 1");
    let copy = value(step, "/copy")?;
    ensure!(!flag(copy, "/ok")?, "the copy is said to hold");
    ensure!(
        number(step, "/copy_exit")? == 1,
        "verifying the copy ended with exit code {}",
        number(step, "/copy_exit")?
    );
    let first_bad = number(copy, "/first_bad_seq")?;
    ensure!(first_bad == seq, "verify names row {first_bad}, and row {seq} was changed");
    ensure!(!text(copy, "/reason")?.is_empty(), "verify does not say what is wrong");
    let original = value(step, "/original")?;
    holds(original, &listing).context("the original")?;
    ensure!(
        number(step, "/original_exit")? == 0,
        "verifying the original ended with exit code {}",
        number(step, "/original_exit")?
    );
    ensure!(text(copy, "/log_id")? == text(original, "/log_id")?, "copy and original are two logs");
    ensure!(number(copy, "/events")? == number(original, "/events")?, "copy and original have not the same rows");
    Ok(format!(
        "one byte of row {seq}, and verify names row {first_bad}; the original's {} rows hold",
        listing.events.len()
    ))
}

fn holds(report: &Value, listing: &Listing<'_>) -> Result<()> {
    ensure!(flag(report, "/ok")?, "does not hold: row {}", report["first_bad_seq"]);
    ensure!(value(report, "/first_bad_seq")?.is_null(), "holds and names a bad row");
    let (events, head) = (number(report, "/events")?, listing.events.len() as u64);
    ensure!(events == head, "has {events} rows, {head} were listed");
    ensure!(text(report, "/head/hash")? == listing.head_hash, "has another head than was listed");
    let (purged, forgotten) =
        (number(report, "/purged")?, listing.events.iter().filter(|event| event["forgotten"] == true).count() as u64);
    ensure!(purged == forgotten, "has {purged} forgotten rows, {forgotten} were listed");
    let signed = number(report, "/signed_up_to")?;
    ensure!(signed == head, "is signed up to seq {signed}, its head is seq {head}");
    ensure!(flag(report, "/signature_checked")?, "has signatures that were not checked");
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn judged(change: impl FnOnce(&mut Value)) -> Result<String> {
        let good = json!({"ok": true, "events": 164, "purged": 1, "first_bad_seq": null, "reason": null, "signed_up_to": 164,
            "signature_checked": true, "head": {"seq": 164, "hash": "h164"}, "log_id": "ab", "statement": "holds"});
        let mut bad = good.clone();
        bad["ok"] = false.into();
        bad["first_bad_seq"] = 2.into();
        bad["reason"] = "its body does not match its commitment".into();
        bad["head"] = Value::Null;
        let mut step = json!({"flipped_seq": 2, "differing_bytes": 1, "copy": bad, "copy_exit": 1, "original": good, "original_exit": 0});
        change(&mut step);
        judge(&Steps::of([(forget::STEP, forget::tests::step()), (STEP, step)]))
    }

    #[test]
    fn the_row_that_was_changed_is_named() {
        assert_eq!(judged(|_| ()).unwrap(), "one byte of row 2, and verify names row 2; the original's 164 rows hold");
    }

    #[test]
    fn another_row_or_none_fails() {
        let changes: [crate::rules::BadAnswer; 12] = [
            // What DEMO_BREAK=chain does: the byte is not changed.
            ("differ in 0 bytes", |step| {
                step["copy"] = step["original"].clone();
                step["copy_exit"] = 0.into();
                step["differing_bytes"] = 0.into();
            }),
            ("said to hold", |step| step["copy"] = step["original"].clone()),
            ("verify names row 3", |step| step["copy"]["first_bad_seq"] = 3.into()),
            ("not the decision", |step| step["flipped_seq"] = 3.into()),
            ("exit code 0", |step| step["copy_exit"] = 0.into()),
            ("differ in 2 bytes", |step| step["differing_bytes"] = 2.into()),
            ("does not hold: row 2", |step| step["original"] = step["copy"].clone()),
            ("has 163 rows", |step| step["original"]["events"] = 163.into()),
            ("has 0 forgotten rows", |step| step["original"]["purged"] = 0.into()),
            ("another head", |step| step["original"]["head"]["hash"] = "other".into()),
            ("signed up to seq 0", |step| step["original"]["signed_up_to"] = 0.into()),
            ("two logs", |step| step["copy"]["log_id"] = "cd".into()),
        ];
        for (why, change) in changes {
            let error = judged(change).expect_err(why);
            assert!(format!("{error:#}").contains(why), "{why}: {error:#}");
        }
    }
}
