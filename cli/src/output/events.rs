//! Saved and listed events for people.

use std::fmt::Write as _;

use lanekeeper_core::wire::events::{ListedEvent, Projection, SaveResponse};

use super::{counted, hanging, plain};

const fn projection(projection: Projection) -> &'static str {
    match projection {
        Projection::Complete => "vectors made",
        Projection::Pending => "vectors to come",
        Projection::Duplicate => "same text as an earlier event",
        Projection::Skipped => "text only: its role gets no vectors here",
    }
}

/// One save.
pub(crate) fn saved(response: &SaveResponse) -> String {
    let SaveResponse { events, head } = response;
    let mut text = String::new();
    for event in events {
        let state = if event.forgotten { "forgotten since" } else { projection(event.projection) };
        let _ = write!(
            text,
            "#{} {}  {}; {state}",
            event.seq,
            event.id,
            counted(u64::from(event.chunks), "chunk", "chunks")
        );
        if let Some(earlier) = event.duplicate_of {
            let _ = write!(text, " ({earlier})");
        }
        text.push('\n');
    }
    let _ = writeln!(text, "head: seq {}, hash {}", head.seq, head.hash);
    text
}

/// One event of a listing.
pub(crate) fn listed(event: &ListedEvent) -> String {
    let ListedEvent {
        id,
        seq,
        hash: _,
        kind,
        principal,
        session,
        at,
        role,
        speaker,
        text,
        metadata: _,
        projection: state,
        duplicate_of,
        forgotten,
    } = event;
    let mut line = format!("#{seq} {id}  {}  {}", plain(at), plain(kind));
    if let Some(role) = role {
        let _ = write!(line, "  {}", role.as_str());
    }
    if let Some(speaker) = speaker {
        let _ = write!(line, " ({})", plain(speaker));
    }
    if let Some(session) = session {
        let _ = write!(line, "  session {}", plain(session));
    }
    let _ = write!(line, "  by {}", plain(principal.as_deref().unwrap_or("nobody known")));
    if let Some(state) = state {
        let _ = write!(line, "  {}", projection(*state));
    }
    if let Some(earlier) = duplicate_of {
        let _ = write!(line, " ({earlier})");
    }
    line.push('\n');
    match (forgotten, text) {
        (true, _) => line.push_str("   (forgotten)\n"),
        (false, Some(text)) => {
            let _ = writeln!(line, "   {}", hanging(&plain(text), 3));
        }
        (false, None) => {}
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_save_names_each_event() {
        let response = serde_json::from_value(json!({
            "events": [
                {"id": "01939a00-0000-7000-8000-000000000001", "seq": 2, "hash": "ab".repeat(32), "at": "2026-11-30T10:00:00Z", "projection": "pending", "chunks": 1},
                {"id": "01939a00-0000-7000-8000-000000000002", "seq": 3, "hash": "cd".repeat(32), "at": "2026-11-30T10:00:00Z",
                 "projection": "duplicate", "chunks": 2, "duplicate_of": "01939a00-0000-7000-8000-000000000001"},
                {"id": "01939a00-0000-7000-8000-000000000003", "seq": 4, "hash": "ef".repeat(32), "at": "2026-11-30T10:00:00Z", "projection": "complete", "chunks": 1, "forgotten": true}
            ],
            "head": {"seq": 4, "hash": "ef".repeat(32)}
        }))
        .unwrap();
        insta::assert_snapshot!(saved(&response));
    }

    #[test]
    fn a_listing_shows_text_and_what_was_forgotten() {
        let event = |change: serde_json::Value| {
            let mut event = json!({
                "id": "01939a00-0000-7000-8000-000000000001", "seq": 2, "hash": "ab".repeat(32), "kind": "turn", "principal": "user:bob",
                "session": "s1", "at": "2026-11-30T10:00:00Z", "role": "user", "speaker": "Bob", "text": "one\ntwo", "metadata": null,
                "projection": "skipped", "duplicate_of": null, "forgotten": false
            });
            event.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            listed(&serde_json::from_value(event).unwrap())
        };
        let forgotten = json!({"text": null, "forgotten": true, "projection": null, "role": null, "speaker": null, "principal": null});
        insta::assert_snapshot!(format!("{}{}", event(json!({})), event(forgotten)));
    }
}
