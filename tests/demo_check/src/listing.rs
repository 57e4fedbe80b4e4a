//! A lane's log as it was listed: what every other answer is measured by.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::reading::{list, number, text, value};

/// The pages of one listing, joined and checked.
pub(crate) struct Listing<'a> {
    /// By seq, from 1 without a gap.
    pub(crate) events: Vec<&'a Value>,
    /// The hash of the last one.
    pub(crate) head_hash: &'a str,
}

impl<'a> Listing<'a> {
    /// Refuses pages that leave something out, name something twice, or end before the head.
    pub(crate) fn of(pages: &'a Value) -> Result<Self> {
        let pages = list(pages, "")?;
        let last = pages.last().context("the listing has no page")?;
        let mut events = Vec::new();
        for page in pages {
            events.extend(list(page, "/events")?);
        }
        for (index, event) in events.iter().enumerate() {
            let seq = number(event, "/seq")?;
            ensure!(seq == index as u64 + 1, "the listing has seq {seq} where {} belongs", index + 1);
        }
        let ids: BTreeSet<&str> = events.iter().map(|event| text(event, "/id")).collect::<Result<_>>()?;
        ensure!(ids.len() == events.len(), "an id is listed twice");
        ensure!(value(last, "/next_after")?.is_null(), "the listing ends before the log does");
        let head = number(last, "/head/seq")?;
        ensure!(head == events.len() as u64, "{} events are listed and the head is seq {head}", events.len());
        let head_hash = text(last, "/head/hash")?;
        let last_hash = events.last().map(|event| text(event, "/hash")).transpose()?;
        ensure!(last_hash == Some(head_hash), "the head's hash is not that of the last event");
        Ok(Self { events, head_hash })
    }

    /// The turns, forgotten ones too.
    pub(crate) fn turns(&self) -> Result<Vec<&'a Value>> {
        let kinds: Vec<&str> = self.events.iter().map(|event| text(event, "/kind")).collect::<Result<_>>()?;
        Ok(self.events.iter().zip(kinds).filter(|(_, kind)| *kind == "turn").map(|(event, _)| *event).collect())
    }

    /// The only turn whose text holds `part`.
    pub(crate) fn the_turn_with(&self, part: &str) -> Result<&'a Value> {
        let mut found =
            self.turns()?.into_iter().filter(|turn| turn["text"].as_str().is_some_and(|text| text.contains(part)));
        let turn = found.next().with_context(|| format!("no turn of the listing holds “{part}”"))?;
        ensure!(found.next().is_none(), "several turns of the listing hold “{part}”");
        Ok(turn)
    }

    pub(crate) fn event(&self, id: &str) -> Result<&'a Value> {
        self.events.iter().find(|event| event["id"] == id).copied().with_context(|| format!("event {id} is not listed"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A page with an `opened` event and then these turns (session, role, principal, text).
    pub(crate) fn page(turns: &[(&str, &str, &str, &str)]) -> Value {
        let opened = json!({"id": "e1", "seq": 1, "hash": "h1", "kind": "opened", "principal": "system", "session": null,
            "role": null, "text": null, "projection": null, "duplicate_of": null, "forgotten": false});
        let mut events = vec![opened];
        for (session, role, principal, text) in turns {
            let seq = events.len() + 1;
            let earlier = events.iter().find(|event| event["text"] == *text).map(|event| event["id"].clone());
            let projection = match (*role, &earlier) {
                ("tool", _) => "skipped",
                (_, Some(_)) => "duplicate",
                (_, None) => "complete",
            };
            events.push(json!({"id": format!("e{seq}"), "seq": seq, "hash": format!("h{seq}"), "kind": "turn",
                "principal": principal, "session": session, "role": role, "text": text,
                "projection": projection, "duplicate_of": earlier, "forgotten": false}));
        }
        let head = json!({"seq": events.len(), "hash": format!("h{}", events.len())});
        json!([{"events": events, "next_after": null, "head": head}])
    }

    #[test]
    fn a_whole_listing_is_taken_and_one_with_a_hole_is_not() {
        let good = page(&[("s", "user", "p", "a"), ("s", "user", "p", "b")]);
        let listing = Listing::of(&good).unwrap();
        assert_eq!((listing.events.len(), listing.turns().unwrap().len(), listing.head_hash), (3, 2, "h3"));
        assert_eq!(listing.the_turn_with("b").unwrap()["id"], "e3");
        assert!(listing.the_turn_with("c").is_err() && listing.event("e9").is_err());
        let changes: [fn(&mut Value); 6] = [
            |pages| pages[0]["events"][1]["seq"] = 7.into(),
            |pages| pages[0]["events"][1]["id"] = "e3".into(),
            |pages| pages[0]["head"]["seq"] = 4.into(),
            |pages| pages[0]["head"]["hash"] = "other".into(),
            |pages| pages[0]["next_after"] = 3.into(),
            |pages| *pages = json!([]),
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut bad = good.clone();
            change(&mut bad);
            assert!(Listing::of(&bad).is_err(), "change {index}");
        }
    }
}
