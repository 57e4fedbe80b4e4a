//! Whether a recall's hits are what their lane's log says.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::listing::Listing;
use crate::reading::{list, number, text, value};

/// Every hit of `lane` is an event of its log, told as it stands there; the best come first.
pub(crate) fn judge(answer: &Value, lane: &str, listing: &Listing<'_>) -> Result<()> {
    let mut above = f64::INFINITY;
    for hit in list(answer, "/hits")? {
        let score = value(hit, "/score")?.as_f64().context("a score is no number")?;
        ensure!(score <= above, "a hit with score {score} stands below one with {above}");
        above = score;
        if hit["lane"] != lane {
            continue;
        }
        let event = listing.event(text(hit, "/id")?)?;
        for member in ["seq", "text", "session", "principal", "role", "at", "speaker"] {
            // A listing made by hand for a test may leave some out; the program leaves out none.
            ensure!(
                hit.get(member) == event.get(member),
                "the {member} of hit seq {} is not what the log says",
                number(hit, "/seq")?
            );
        }
    }
    Ok(())
}

/// The place of an event of `lane` among the hits, from 1.
pub(crate) fn place(answer: &Value, lane: &str, id: &str) -> Result<Option<usize>> {
    let is_it = |hit: &Value| hit["lane"] == lane && hit["id"] == id;
    Ok(list(answer, "/hits")?.iter().position(is_it).map(|index| index + 1))
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// An event of a listing as a hit of `lane`.
    pub(crate) fn hit(lane: &str, event: &Value, score: f64) -> Value {
        let mut hit = event.as_object().unwrap().clone();
        for member in ["kind", "hash", "projection", "duplicate_of", "forgotten"] {
            hit.shift_remove(member);
        }
        let ranks = json!({"turn_text": {"score": 3.0, "rank": 1}, "window_text": {"score": 2.0, "rank": 1},
            "vector": {"score": 0.5, "rank": 1}});
        hit.extend([("lane".into(), lane.into()), ("score".into(), score.into()), ("arms".into(), ranks)]);
        hit.into()
    }

    #[test]
    fn a_hit_must_be_what_the_log_holds() {
        let pages = crate::listing::tests::page(&[("s", "user", "p", "a"), ("s", "user", "p", "b")]);
        let listing = Listing::of(&pages).unwrap();
        let good = json!({"hits": [hit("l", listing.events[1], 2.0), hit("other", listing.events[2], 1.5), hit("l", listing.events[2], 1.0)]});
        judge(&good, "l", &listing).unwrap();
        assert_eq!(place(&good, "l", "e3").unwrap(), Some(3));
        let changes: [crate::rules::BadAnswer; 4] = [
            ("the text of hit", |hit| hit["text"] = "A".into()),
            ("e9 is not listed", |hit| hit["id"] = "e9".into()),
            ("the principal of hit", |hit| hit["principal"] = "someone".into()),
            ("stands below", |hit| hit["score"] = 0.5.into()),
        ];
        for (why, change) in changes {
            let mut bad = good.clone();
            change(&mut bad["hits"][0]);
            let error = judge(&bad, "l", &listing).unwrap_err();
            assert!(format!("{error:#}").contains(why), "{why}: {error:#}");
        }
    }
}
