//! A forget's receipt for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lanekeeper_core::wire::forget::{Erasure, ForgetResponse, Receipt};

use super::{counted, plain};

/// What is, or would be, forgotten.
pub(crate) fn forget(response: &ForgetResponse) -> String {
    let ForgetResponse { events, counts, receipt } = response;
    let what = if events.is_empty() && counts.values().all(|count| *count == 0) {
        "nothing".to_owned()
    } else {
        listed(counts, events.len())
    };
    let Some(receipt) = receipt else { return format!("Would forget {what}. Nothing was changed.\n") };
    let Receipt { event_id, seq, at, by, reason, count, surfaces, stays_readable, neighbours_rewritten, cannot_reach } =
        receipt;
    let mut text = format!("Forgot {what}.\n");
    let _ = writeln!(
        text,
        "receipt: event {event_id}, seq {seq}, {} by {}, reason {}",
        plain(at),
        plain(by),
        plain(reason)
    );
    let _ = writeln!(text, "  forgotten: {}", counted(*count, "event", "events"));
    for (surface, erasure) in surfaces {
        let state = match erasure {
            Erasure::Erased => "erased",
            Erasure::Pending => "pending: will go, also across restarts",
            Erasure::Unreachable => "not in reach",
        };
        let _ = writeln!(text, "  {}: {state}", plain(surface));
    }
    let _ = writeln!(text, "  following turns made again without it: {neighbours_rewritten}");
    if !stays_readable.is_empty() {
        let _ = writeln!(text, "  stays readable: {}", plain(&stays_readable.join(", ")));
    }
    for place in cannot_reach {
        let _ = writeln!(text, "  cannot reach: {}", plain(place));
    }
    text
}

/// What people count first, the rest behind it.
fn listed(counts: &BTreeMap<String, u64>, events: usize) -> String {
    let of = |kind: &str| counts.get(kind).copied().unwrap_or_default();
    let mut main = Vec::new();
    for (count, one, many) in [(of("turns"), "turn", "turns"), (of("paragraphs"), "paragraph", "paragraphs")] {
        if count > 0 {
            main.push(counted(count, one, many));
        }
    }
    if main.is_empty() {
        main.push(counted(events as u64, "event", "events"));
    }
    let rest: Vec<String> = counts
        .iter()
        .filter(|(kind, count)| **count > 0 && *kind != "turns" && *kind != "paragraphs")
        .map(|(kind, count)| format!("{} {count}", plain(kind)))
        .collect();
    let rest = if rest.is_empty() { String::new() } else { format!(" ({})", rest.join(", ")) };
    format!("{}{rest}", main.join(" and "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_receipt_says_what_is_gone_what_will_go_and_what_stays() {
        let response = serde_json::from_value(json!({
            "events": ["01939a00-0000-7000-8000-00000000002a"],
            "counts": {"turns": 1, "claims": 1, "promoted": 0, "neighbours": 2},
            "receipt": {"event_id": "01939a00-0000-7000-8000-0000000000ff", "seq": 90, "at": "2026-11-30T10:00:00Z",
                "by": "user:bob", "reason": "user_request", "count": 1,
                "surfaces": {"log_text": "erased", "vectors": "pending", "backups": "unreachable"},
                "stays_readable": ["seq", "id"], "neighbours_rewritten": 2, "cannot_reach": ["backups and exports made before"]}
        }))
        .unwrap();
        insta::assert_snapshot!(forget(&response));
    }

    #[test]
    fn a_dry_run_says_that_nothing_was_changed() {
        let response =
            |counts: serde_json::Value| serde_json::from_value(json!({"events": [], "counts": counts})).unwrap();
        assert_eq!(forget(&response(json!({"turns": 150}))), "Would forget 150 turns. Nothing was changed.\n");
        assert_eq!(forget(&response(json!({}))), "Would forget nothing. Nothing was changed.\n");
    }
}
