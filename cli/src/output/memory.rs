//! Curated memory for people.

use std::fmt::Write as _;

use lanekeeper_core::wire::memory::{MemoryDocument, MemoryHistory, MemoryPage, MemorySaveResponse, MemoryVersion};

use super::{counted, hanging, plain};

/// The files as they are. One file is shown as it is, several with a head each.
pub(crate) fn documents(documents: &[&MemoryDocument]) -> String {
    match documents {
        [] => String::new(),
        [only] => ended(&plain(&only.text)),
        several => several
            .iter()
            .map(|document| format!("==> {} <==\n{}", plain(&document.owner), ended(&plain(&document.text))))
            .collect::<Vec<_>>()
            .join("\n"),
    }
}

fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

/// The paragraphs that a search found.
pub(crate) fn found(page: &MemoryPage) -> String {
    if page.paragraphs.is_empty() {
        return "Nothing found. The search is literal, without regard to case.\n".to_owned();
    }
    let mut text = String::new();
    for paragraph in &page.paragraphs {
        let _ = writeln!(
            text,
            "{} paragraph {} (#{}, {})\n   {}\n   id {}",
            plain(&paragraph.owner),
            paragraph.position + 1,
            paragraph.seq,
            plain(&paragraph.at),
            hanging(&plain(&paragraph.text), 3),
            plain(&paragraph.id),
        );
    }
    text
}

/// A save.
pub(crate) fn saved(response: &MemorySaveResponse) -> String {
    let MemorySaveResponse { document, event_id, seq, added, removed, kept_hand_edit, forgotten } = response;
    let mut text = format!(
        "Saved memory of {}: {} added, {removed} removed. Event {event_id}, seq {seq}, version {}\n",
        plain(&document.owner),
        counted(u64::from(*added), "paragraph", "paragraphs"),
        plain(&document.etag),
    );
    if *forgotten {
        text.push_str("What was saved then has been forgotten since; nothing was written now.\n");
    }
    if let Some(event) = kept_hand_edit {
        let _ = writeln!(text, "The file had been changed by hand; that version is kept as event {event}.");
    }
    text
}

/// The versions, newest first.
pub(crate) fn history(history: &MemoryHistory) -> String {
    if history.versions.is_empty() {
        return "No versions.\n".to_owned();
    }
    history.versions.iter().map(version).collect()
}

fn version(version: &MemoryVersion) -> String {
    let MemoryVersion { event_id, seq, owner, cause, principal, at, text } = version;
    let body = match text {
        Some(text) => format!("   {}\n", hanging(&plain(text), 3)),
        None => "   (forgotten)\n".to_owned(),
    };
    format!(
        "#{seq} {event_id}  {}  {} of {} by {}\n{body}",
        plain(at),
        plain(cause),
        plain(owner),
        plain(principal.as_deref().unwrap_or("nobody known")),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_file_is_shown_as_it_is_and_several_are_told_apart() {
        let file =
            |owner: &str, text: &str| MemoryDocument { owner: owner.into(), etag: "v1".into(), text: text.into() };
        let (own, shared) = (file("bob", "a\n\nb"), file("_shared", "c\n"));
        assert_eq!(documents(&[&own]), "a\n\nb\n");
        assert_eq!(documents(&[&own, &shared]), "==> bob <==\na\n\nb\n\n==> _shared <==\nc\n");
        assert_eq!(documents(&[]), "");
    }

    #[test]
    fn searches_saves_and_histories() {
        let page = serde_json::from_value(json!({"mode": "search", "documents": [], "paragraphs": [
            {"id": "p1", "owner": "bob", "position": 0, "text": "one\ntwo", "event_id": "01939a00-0000-7000-8000-000000000001", "seq": 4, "at": "2026-11-30T10:00:00Z"}
        ]}))
        .unwrap();
        let save = serde_json::from_value(json!({"document": {"owner": "bob", "etag": "v2", "text": "x"},
            "event_id": "01939a00-0000-7000-8000-000000000002", "seq": 5, "added": 1, "removed": 0,
            "kept_hand_edit": "01939a00-0000-7000-8000-000000000003"}))
        .unwrap();
        let versions = serde_json::from_value(json!({"versions": [
            {"event_id": "01939a00-0000-7000-8000-000000000002", "seq": 5, "owner": "bob", "cause": "save", "principal": "user:bob", "at": "2026-11-30T10:00:00Z", "text": "x"},
            {"event_id": "01939a00-0000-7000-8000-000000000001", "seq": 4, "owner": "bob", "cause": "hand_edit", "principal": null, "at": "2026-11-29T10:00:00Z", "text": null}
        ]}))
        .unwrap();
        insta::assert_snapshot!(format!("{}---\n{}---\n{}", found(&page), saved(&save), history(&versions)));
    }
}
