//! The store protocol must know every word that a lane's errors can hold: what it does not know becomes an internal
//! error on the other side.

use lanekeeper_core::wire::problem::{CONFLICTS, NOT_FOUND};

fn sources(folder: &std::path::Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(std::fs::read_to_string(path).unwrap());
        }
    }
}

/// Every literal after `marker`, up to the quote that ends it.
fn literals(sources: &[String], begin: &str, marker: &str) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        for place in source.split(begin).skip(1) {
            let head: String = place.chars().take(160).collect();
            if let Some((_, rest)) = head.split_once(marker)
                && let Some((word, _)) = rest.split_once('"')
            {
                found.push(word.to_owned());
            }
        }
    }
    found
}

#[test]
fn every_word_of_a_lanes_errors_travels() {
    let mut all = Vec::new();
    sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../lane-store/src"), &mut all);
    let conflicts = literals(&all, "LaneError::Conflict {", "code: \"");
    let missing = literals(&all, "LaneError::NotFound {", "what: \"");
    assert!(conflicts.len() >= 4 && missing.len() >= 6, "the search is broken: {conflicts:?} {missing:?}");
    for code in conflicts {
        assert!(CONFLICTS.contains(&code.as_str()), "core::wire::problem::CONFLICTS lacks {code}");
    }
    for what in missing {
        assert!(NOT_FOUND.contains(&what.as_str()), "core::wire::problem::NOT_FOUND lacks {what}");
    }
}
