//! `cargo xtask cases`: every number of cases.md against the tests that stand for it.
//!
//! Reads what `make test` printed (target/test-output.txt): a case holds only if each of its tests ran and
//! passed there. Prints the table; a missing, failed or skipped one fails.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use serde::Deserialize;

/// Where to read from.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What the test command printed.
    #[arg(long, default_value = "target/test-output.txt")]
    output: PathBuf,
    /// The map.
    #[arg(long, default_value = "tests/cases.toml")]
    map: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Map {
    /// Numbers that must be there, in order.
    required: Vec<String>,
    /// Tests by number.
    case: BTreeMap<String, Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// What is right, in few words.
    right: String,
    /// Names as the test runner prints them.
    tests: Vec<String>,
}

/// `test NAME ... ok` lines: whether each named test passed. A name that failed anywhere has failed.
pub(crate) fn outcomes(output: &str) -> HashMap<String, bool> {
    let mut found = HashMap::new();
    for line in output.lines() {
        let Some(rest) = line.strip_prefix("test ") else { continue };
        let Some((name, outcome)) = rest.split_once(" ... ") else { continue };
        // A test that prints while it runs puts its text before the outcome: the end of the line counts.
        let passed = outcome.trim_end().ends_with("ok");
        let name = name.trim_end_matches(" - should panic");
        found.entry(name.to_owned()).and_modify(|before: &mut bool| *before &= passed).or_insert(passed);
    }
    found
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let map: Map = toml::from_str(
        &std::fs::read_to_string(&arguments.map).with_context(|| format!("read {}", arguments.map.display()))?,
    )?;
    let output = std::fs::read_to_string(&arguments.output)
        .with_context(|| format!("read {}; run `make test` first", arguments.output.display()))?;
    let outcomes = outcomes(&output);
    let mut missing = 0_usize;
    for number in &map.required {
        let Some(Case { right, tests }) = map.case.get(number) else {
            println!("{number:<5} MISSING  no test is named for it");
            missing += 1;
            continue;
        };
        let bad: Vec<String> = tests
            .iter()
            .filter_map(|test| match outcomes.get(test) {
                Some(true) => None,
                Some(false) => Some(format!("{test} failed")),
                None => Some(format!("{test} did not run")),
            })
            .collect();
        if tests.is_empty() || !bad.is_empty() {
            println!("{number:<5} MISSING  {}", bad.join(", "));
            missing += 1;
        } else {
            println!("{number:<5} passed   {right} [{}]", tests.join(", "));
        }
    }
    for number in map.case.keys().filter(|number| !map.required.contains(number)) {
        println!("{number:<5} UNKNOWN  is not among the required numbers");
        missing += 1;
    }
    println!("{} passed, {missing} failed", map.required.len().saturating_sub(missing));
    Ok(if missing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_read_from_the_end_of_its_line() {
        let found =
            outcomes("test a::b ... ok\ntest c ... seed 5\ntest d ... FAILED\ntest a::b ... ok\nnoise ... ok\n");
        assert_eq!(found.get("a::b"), Some(&true));
        assert_eq!(found.get("c"), Some(&false));
        assert_eq!(found.get("d"), Some(&false));
        assert_eq!(found.len(), 3);
    }
}
