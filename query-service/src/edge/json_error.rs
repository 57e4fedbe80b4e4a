//! From a JSON error to a field and a rule that repeat nothing of what was sent.
//!
//! serde's messages quote the offending value ("invalid type: string "…", expected …"), and a value may be
//! memory text, so only the expected half is passed on; the path stops at `metadata`, whose keys are the
//! caller's own data. An unknown field's own name is said, since that is what has to go.

use lanekeeper_core::LaneError;
use serde_path_to_error::{Path, Segment};

pub(super) fn explain(path: &Path, error: &serde_json::Error) -> LaneError {
    let field = field(path);
    let message = error.to_string();
    let quoted = || message.split('`').nth(1).map(shown).unwrap_or_default();
    if message.starts_with("unknown field") {
        // Here the path ends in the field already; for a missing or repeated one it ends before it.
        let name = quoted();
        let known = field == name || field.ends_with(&format!(".{name}"));
        let field = if known { field } else { child(&field, &name) };
        return LaneError::invalid(field, format!("is not a field here{}", expected(&message, "; there is ")));
    }
    if message.starts_with("missing field") {
        return LaneError::invalid(child(&field, &quoted()), "is required");
    }
    if message.starts_with("duplicate field") {
        return LaneError::invalid(child(&field, &quoted()), "must stand once");
    }
    let field = if field.is_empty() { "body".to_owned() } else { field };
    LaneError::invalid(field, rule(error, &message))
}

fn rule(error: &serde_json::Error, message: &str) -> String {
    use serde_json::error::Category;
    // JSON escapes of half a surrogate pair are legal JSON and no text.
    if message.contains("surrogate") || message.starts_with("unexpected end of hex escape") {
        return "must not hold half of a surrogate pair (an escape from \\ud800 to \\udfff that stands alone)".into();
    }
    match error.classify() {
        Category::Eof => "must be complete JSON".into(),
        Category::Syntax | Category::Io if message.starts_with("invalid unicode") => "must be UTF-8".into(),
        Category::Syntax | Category::Io => "must be JSON".into(),
        Category::Data => {
            let known = ["invalid type", "invalid value", "invalid length", "unknown variant"];
            let expected = expected(message, "must be ");
            if known.iter().any(|start| message.starts_with(start)) && !expected.is_empty() {
                expected
            } else if known.iter().any(|start| message.starts_with(start)) {
                "has a value that is not allowed".into()
            } else {
                // A newtype's own parser: its message states the rule and holds no value.
                without_place(message).to_owned()
            }
        }
    }
}

/// What serde says it expected, which comes from our types.
fn expected(message: &str, before: &str) -> String {
    // The last one: a quoted value could hold the words itself.
    match message.rsplit_once(", expected ") {
        Some((_, expected)) => {
            let words = without_place(expected).replace('`', "").replace("one of ", "one of: ");
            format!("{before}{}", plain(&words))
        }
        None => String::new(),
    }
}

/// Rust's words in those of JSON.
fn plain(words: &str) -> &str {
    match words {
        "i64" | "u64" | "i32" | "u32" => "a whole number",
        "a sequence" => "a list",
        "a map" => "an object",
        words if words.starts_with("struct ") => "an object",
        words => words,
    }
}

fn without_place(message: &str) -> &str {
    message.rsplit_once(" at line ").map_or(message, |(before, _)| before)
}

/// `turns[3].at`; nothing below `metadata`.
fn field(path: &Path) -> String {
    let mut out = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                out.push('[');
                out.push_str(&index.to_string());
                out.push(']');
            }
            Segment::Map { key } => {
                out = child(&out, &shown(key));
                if key == "metadata" {
                    break;
                }
            }
            Segment::Enum { variant } => out = child(&out, &shown(variant)),
            Segment::Unknown => break,
        }
    }
    out
}

fn child(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") }
}

/// A name that came from outside, made short and plain.
fn shown(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '?' }).take(64).collect()
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::wire::events::SaveRequest;
    use lanekeeper_core::wire::forget::ForgetRequest;
    use lanekeeper_core::wire::recall::RecallRequest;
    use proptest::prelude::*;

    use super::super::body::parse_for_test;

    fn refused<T: serde::de::DeserializeOwned + std::fmt::Debug>(body: &str) -> String {
        parse_for_test::<T>(body.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn the_field_and_the_rule_are_named() {
        let save = |turn: &str| {
            refused::<SaveRequest>(&format!(
                "{{\"session\":\"s\",\"turns\":[{{\"role\":\"user\",\"text\":\"a\"}},{turn}]}}"
            ))
        };
        assert_eq!(save(r#"{"role":"user","text":7}"#), "turns[1].text: must be a string");
        assert_eq!(
            save(r#"{"role":"boss","text":"a"}"#),
            "turns[1].role: must be one of: user, assistant, tool, system"
        );
        assert_eq!(save(r#"{"role":"user"}"#), "turns[1].text: is required");
        assert_eq!(save(r#"{"role":"user","text":"a","text":"b"}"#), "turns[1].text: must stand once");
        assert!(save(r#"{"role":"user","text":"a","lane":"x"}"#).starts_with("turns[1].lane: is not a field here"));
        // C21
        for lone in [r"\ud800", r"\ud800x", r"\udc00", r"\ud800\u0041"] {
            let said = save(&format!(r#"{{"role":"user","text":"a{lone}"}}"#));
            assert!(said.starts_with("turns[1].text: must not hold half"), "{said}");
        }
        let in_metadata = save(r#"{"role":"user","text":"a","metadata":{"private key":"\ud800"}}"#);
        assert!(in_metadata.starts_with("turns[1].metadata: must not hold half"), "{in_metadata}");
        let filter = refused::<RecallRequest>(r#"{"query":"q","filter":{"user_id":"x"}}"#);
        assert!(filter.starts_with("filter.user_id: is not a field here; there is one of: session, role"), "{filter}");
        assert!(refused::<RecallRequest>("{").starts_with("body: must be complete JSON"));
        assert_eq!(refused::<RecallRequest>("nope"), "body: must be JSON");
        assert_eq!(
            refused::<RecallRequest>(r#"{"query":"q"} {}"#),
            "body: must be one JSON value with nothing after it"
        );
        assert!(refused::<RecallRequest>("[]").starts_with("body: must be an object"));
        assert!(refused::<RecallRequest>(r#"{"query":"q","top_k":1000000000000000000000}"#).starts_with("top_k: "));
        let id = refused::<ForgetRequest>(r#"{"events":["nope"]}"#);
        assert_eq!(id, "events[0]: must be a UUID in its hyphenated form");
        assert_eq!(
            parse_for_test::<RecallRequest>(b"{\"query\":\"\xff\"}").unwrap_err().to_string(),
            "query: must be UTF-8"
        );
    }

    proptest! {
        #[test]
        fn no_value_is_ever_repeated(secret in "[a-z]{3}SECRET[a-z]{3}", shape in 0_usize..6) {
            let body = [
                format!(r#"{{"query":["{secret}"]}}"#),
                format!(r#"{{"query":"q","top_k":"{secret}, expected {secret}"}}"#),
                format!(r#"{{"query":"q","surfaces":["{secret}"]}}"#),
                format!(r#"{{"query":"q","filter":"{secret}"}}"#),
                format!(r#"{{"query":"{secret}\ud800"}}"#),
                format!(r#""{secret}""#),
            ];
            let said = refused::<RecallRequest>(&body[shape]);
            prop_assert!(!said.contains(&secret), "{said}");
        }
    }
}
