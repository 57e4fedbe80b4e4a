//! `cargo xtask guards`: takes each guard out by name and demands that its tests fail.
//!
//! The test binaries of `make test` carry the switch (feature `test-hooks`, by way of lanekeeper-tests), so
//! nothing is built twice. A guard without tests, a test that still passes without its guard, and a guard
//! in the sources that the list does not know all fail.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use serde::Deserialize;

/// Longest a single test may run.
const LIMIT: Duration = Duration::from_secs(120);

/// What to run.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only this guard.
    #[arg(long)]
    only: Option<String>,
    /// The list.
    #[arg(long, default_value = "tests/guards.toml")]
    list: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    guard: BTreeMap<String, Guard>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Guard {
    /// What it keeps out.
    keeps_out: String,
    /// `TARGET::test name`, where TARGET is the name of a test binary (a crate for its unit tests).
    tests: Vec<String>,
}

/// Test binaries by target name.
fn binaries() -> Result<BTreeMap<String, PathBuf>> {
    let output = Command::new(env!("CARGO"))
        .args(["test", "--workspace", "--no-run", "--message-format=json"])
        .stderr(Stdio::inherit())
        .output()
        .context("build the tests")?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    let mut found = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let (Some(executable), Some(target), Some(true)) =
            (message["executable"].as_str(), message["target"]["name"].as_str(), message["profile"]["test"].as_bool())
        else {
            continue;
        };
        let package = message["package_id"].as_str().unwrap_or_default();
        let package = package.rsplit('/').next().and_then(|tail| tail.split(['#', '@']).next()).unwrap_or_default();
        let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
        // Integration tests of two crates may share a name: the folder of the crate goes before it.
        let name = if kind == "test" { format!("{package}/{target}") } else { target.to_owned() };
        found.insert(name, PathBuf::from(executable));
    }
    Ok(found)
}

/// Names in `guard("…")` calls of the sources.
fn in_sources() -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for folder in ["core", "crds", "federation", "lane-store", "embedder", "query-service", "cli"] {
        collect(&Path::new(folder).join("src"), &mut found)?;
    }
    Ok(found)
}

fn collect(folder: &Path, found: &mut BTreeSet<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path)?;
            for piece in text.split("guard(\"").skip(1) {
                if let Some(name) = piece.split('"').next() {
                    found.insert(name.to_owned());
                }
            }
        }
    }
    Ok(())
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let list: List = toml::from_str(&std::fs::read_to_string(&arguments.list).context("read the list of guards")?)?;
    let sources = in_sources()?;
    let binaries = binaries()?;
    let mut failed = 0_usize;
    let mut passed = 0_usize;
    for name in &sources {
        if !list.guard.contains_key(name) {
            println!("{name:<24} UNKNOWN: it stands in the sources and not in {}", arguments.list.display());
            failed += 1;
        }
    }
    for (name, Guard { keeps_out, tests }) in &list.guard {
        if arguments.only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        if !sources.contains(name) {
            println!("{name:<24} GONE: no source has it");
            failed += 1;
            continue;
        }
        if tests.is_empty() {
            println!("{name:<24} UNTESTED");
            failed += 1;
        }
        for test in tests {
            let (target, test_name) = test.split_once("::").context("a test is written TARGET::name")?;
            let binary = binaries.get(target).with_context(|| {
                format!(
                    "no test binary {target}; there are {}",
                    binaries.keys().cloned().collect::<Vec<_>>().join(", ")
                )
            })?;
            let fails_without = !passes(binary, test_name, Some(name))?;
            // A test that fails anyway shows nothing: it must pass with the guard in place.
            let passes_with = passes(binary, test_name, None)?;
            if fails_without && passes_with {
                println!("{name:<24} holds    {keeps_out} [{test}]");
                passed += 1;
            } else {
                let why = if passes_with { "still passes without it" } else { "fails with it in place" };
                println!("{name:<24} FAILED   {test} {why}");
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn passes(binary: &Path, test: &str, without: Option<&str>) -> Result<bool> {
    let mut command = Command::new(binary);
    command.args(["--exact", test, "--test-threads=1"]).stderr(Stdio::null()).stdin(Stdio::null());
    if let Some(guard) = without {
        command.env("LANEKEEPER_GUARD_OUT", guard);
    }
    // Without its guard a test may also wait for what never comes: that counts as failed.
    let mut running = command.stdout(Stdio::piped()).spawn().with_context(|| format!("run {}", binary.display()))?;
    let stdout = running.stdout.take().context("the test's output")?;
    // Read while it runs: a full pipe would hold it up.
    let reader = std::thread::spawn(move || std::io::read_to_string(stdout));
    let started = Instant::now();
    let status = loop {
        match running.try_wait()? {
            Some(status) => break status,
            None if started.elapsed() > LIMIT => {
                running.kill()?;
                running.wait()?;
                return Ok(false);
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let text = reader.join().map_err(|_| anyhow!("reading the test's output panicked"))??;
    if text.contains("running 0 tests") {
        bail!("{} has no test {test}", binary.display());
    }
    Ok(status.success())
}
