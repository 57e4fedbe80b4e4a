//! Values of a stored answer by their JSON pointer. What is missing or of another type is an error that names
//! it: a rule never takes a default for an answer.

use anyhow::{Context, Result};
use serde_json::Value;

pub(crate) fn value<'a>(json: &'a Value, pointer: &str) -> Result<&'a Value> {
    json.pointer(pointer).with_context(|| format!("{pointer} is missing"))
}

pub(crate) fn text<'a>(json: &'a Value, pointer: &str) -> Result<&'a str> {
    value(json, pointer)?.as_str().with_context(|| format!("{pointer} is no text"))
}

pub(crate) fn number(json: &Value, pointer: &str) -> Result<u64> {
    value(json, pointer)?.as_u64().with_context(|| format!("{pointer} is no whole number"))
}

pub(crate) fn flag(json: &Value, pointer: &str) -> Result<bool> {
    value(json, pointer)?.as_bool().with_context(|| format!("{pointer} is neither true nor false"))
}

pub(crate) fn list<'a>(json: &'a Value, pointer: &str) -> Result<&'a [Value]> {
    value(json, pointer)?.as_array().map(Vec::as_slice).with_context(|| format!("{pointer} is no list"))
}

/// A list of texts.
pub(crate) fn texts<'a>(json: &'a Value, pointer: &str) -> Result<Vec<&'a str>> {
    let texts = list(json, pointer)?.iter().map(|one| one.as_str());
    texts.collect::<Option<_>>().with_context(|| format!("{pointer} holds what is no text"))
}

/// The same text of each element of a list.
pub(crate) fn column<'a>(rows: &'a [Value], pointer: &str) -> Result<Vec<&'a str>> {
    rows.iter().map(|row| text(row, pointer)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_missing_or_of_another_type_is_named() {
        let answer = json!({"hits": [{"id": "a", "seq": 3}], "complete": "true", "missing": ["x", 1], "none": null});
        assert_eq!(text(&answer, "/hits/0/id").unwrap(), "a");
        assert_eq!(number(&answer, "/hits/0/seq").unwrap(), 3);
        assert_eq!(column(list(&answer, "/hits").unwrap(), "/id").unwrap(), ["a"]);
        let refused = [
            text(&answer, "/hits/1/id").err(),
            flag(&answer, "/complete").err(),
            texts(&answer, "/missing").err(),
            list(&answer, "/none").err(),
            number(&answer, "/hits/0/id").err(),
        ];
        for error in refused {
            assert!(error.is_some_and(|error| error.to_string().starts_with('/')));
        }
    }
}
