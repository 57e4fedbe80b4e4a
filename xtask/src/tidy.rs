//! Habits of the house that no lint checks: how long a file may be, what a module may not be called,
//! what opens it, and which crate may know which.
//!
//! A rule that someone has to break is changed here, where the reason can be read, not worked round.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::sources::{self, Source};

/// Most lines of a module, its tests aside.
const MAX_LINES: usize = 500;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] = ["util", "utils", "common", "helper", "helpers", "misc", "manager", "managers"];

/// Which crates of ours each one may depend on. Dependencies point one way (DESIGN.md §1); a crate that
/// is not listed fails, so that a new one is thought about.
const MAY_DEPEND_ON: [(&str, &[&str]); 12] = [
    ("core", &[]),
    ("telemetry", &[]),
    ("crds", &["core"]),
    ("federation", &["core", "crds"]),
    ("embedder", &["core"]),
    // Never the operator.
    ("lane-store", &["core", "federation", "embedder"]),
    // Reaches a lane only through core's LaneClient, never through the engine.
    ("query-service", &["core", "crds", "embedder", "telemetry"]),
    // Never the engine: it would pull minutes of C++ into a program that only talks to the API server.
    ("operator", &["core", "crds", "federation", "query-service", "embedder", "telemetry"]),
    ("cli", &["core", "crds", "federation", "lane-store", "embedder", "query-service"]),
    ("tests", &["core", "crds", "federation", "lane-store", "embedder", "query-service", "operator", "cli"]),
    ("xtask", &["crds", "query-service"]),
    ("benches", &["core", "crds", "federation", "lane-store", "embedder", "query-service"]),
];

/// What the vocabulary may not know: then every part can use it.
const NOT_IN_CORE: [&str; 8] = ["tokio", "kube", "k8s-openapi", "axum", "sqlx", "reqwest", "hyper", "qdrant-edge"];

/// Where packages and images come from. Written in two pieces, or this file would break its own rule.
const REGISTRIES: [(&str, &str); 10] = [
    ("crates", ".io"),
    ("pypi", ".org"),
    ("pythonhosted", ".org"),
    ("npmjs", ".org"),
    ("npmjs", ".com"),
    ("huggingface", ".co"),
    ("proxy.golang", ".org"),
    ("ghcr", ".io"),
    ("docker", ".io"),
    ("quay", ".io"),
];

/// The material beside the repository, which only tests and benches may reach for.
const SHARED: (&str, &str) = ("../", "shared");

/// A habit that was not kept.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    rule: String,
}

pub(crate) fn run() -> Result<ExitCode> {
    let sources = sources::read_all(&sources::root()?)?;
    let mut findings = Vec::new();
    for source in &sources {
        check_source(source, &mut findings);
    }
    for source in sources.iter().filter(|source| source.path.ends_with("Cargo.toml")) {
        check_dependencies(source, &mut findings)?;
    }
    for Finding { path, rule } in &findings {
        println!("{path}: {rule}");
    }
    if findings.is_empty() {
        println!("tidy: {} files", sources.len());
        return Ok(ExitCode::SUCCESS);
    }
    println!("tidy: {} findings", findings.len());
    Ok(ExitCode::FAILURE)
}

fn check_source(source: &Source, findings: &mut Vec<Finding>) {
    let Source { path, text } = source;
    let mut find = |rule: String| findings.push(Finding { path: path.clone(), rule });
    // The lock file names its registry in every entry, and is no one's prose.
    if path != "Cargo.lock" {
        for (name, ending) in REGISTRIES {
            if text.contains(&format!("{name}{ending}")) {
                find(format!("names a registry ({name})"));
            }
        }
    }
    if !path.ends_with(".rs") {
        return;
    }
    if !text.starts_with("//!") {
        find("must open with `//!`: what it owns, what always holds, what it does not do".to_owned());
    }
    for part in path.trim_end_matches(".rs").split('/') {
        if EMPTY_NAMES.contains(&part) {
            find(format!("is called {part}, which says nothing: name the theme"));
        }
    }
    if is_test(path) {
        return;
    }
    let code = without_tests(text);
    let lines = code.lines().count();
    if lines > MAX_LINES {
        find(format!("has {lines} lines, at most {MAX_LINES}"));
    }
    if code.contains(&format!("{}{}", SHARED.0, SHARED.1)) {
        find("reaches for the shared folder, which only tests and benches may".to_owned());
    }
}

/// Whether the file is compiled for tests or benches only.
fn is_test(path: &str) -> bool {
    path.ends_with("_tests.rs") || path.split('/').any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
}

/// A module up to its inline tests.
fn without_tests(text: &str) -> &str {
    text.find("\n#[cfg(test)]\nmod ").map_or(text, |at| &text[..at])
}

fn check_dependencies(source: &Source, findings: &mut Vec<Finding>) -> Result<()> {
    let manifest: toml::Table = source.text.parse().with_context(|| format!("{} is no TOML", source.path))?;
    // The workspace's own manifest has no package; what lies under `tests` may see every side.
    let Some(folder) = source.path.strip_suffix("/Cargo.toml").filter(|folder| !folder.starts_with("tests/")) else {
        return Ok(());
    };
    let mut find = |rule: String| findings.push(Finding { path: source.path.clone(), rule });
    let allowed: BTreeMap<&str, &[&str]> = MAY_DEPEND_ON.into_iter().collect();
    let Some(allowed) = allowed.get(folder) else {
        find("is a new crate: say in xtask/src/tidy.rs what it may depend on".to_owned());
        return Ok(());
    };
    for name in dependencies(&manifest) {
        if let Some(ours) = name.strip_prefix("lanekeeper-")
            && !allowed.contains(&ours)
        {
            find(format!("may not depend on {name}"));
        }
        if folder == "core" && NOT_IN_CORE.contains(&name.as_str()) {
            find(format!("may not depend on {name}: the vocabulary does no I/O"));
        }
    }
    Ok(())
}

/// The names of all normal and build dependencies, also those of one platform. Those of tests are free.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let tables = |table: &toml::Table| -> Vec<String> {
        ["dependencies", "build-dependencies"]
            .iter()
            .filter_map(|section| table.get(*section)?.as_table())
            .flatten()
            // A renamed dependency is what `package` says, not what it is called here.
            .map(|(name, value)| value.get("package").and_then(toml::Value::as_str).unwrap_or(name).to_owned())
            .collect()
    };
    let platforms = manifest.get("target").and_then(toml::Value::as_table).into_iter().flatten();
    let of_platforms = platforms.filter_map(|(_, table)| table.as_table()).flat_map(tables);
    tables(manifest).into_iter().chain(of_platforms).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let source = Source { path: path.to_owned(), text: text.to_owned() };
        let mut findings = Vec::new();
        check_source(&source, &mut findings);
        if path.ends_with("Cargo.toml") {
            check_dependencies(&source, &mut findings).unwrap();
        }
        findings.into_iter().map(|finding| finding.rule).collect()
    }

    fn one_finding(path: &str, text: &str, rule: &str) {
        let found = findings(path, text);
        assert!(found.len() == 1 && found[0].contains(rule), "{path}: {found:?}");
    }

    #[test]
    fn a_file_has_at_most_500_lines_without_its_tests() {
        let long = format!("//! x\n{}", "// y\n".repeat(499));
        assert_eq!(findings("core/src/a.rs", &long), Vec::<String>::new());
        one_finding("core/src/a.rs", &format!("{long}// z\n"), "has 501 lines");
        assert_eq!(findings("core/tests/a.rs", &format!("{long}// z\n")), Vec::<String>::new());
        assert_eq!(
            findings("core/src/a.rs", &format!("{long}\n#[cfg(test)]\nmod tests {{\n}}\n")),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_file_says_what_it_is_in_its_head_and_in_its_name() {
        one_finding("core/src/a.rs", "use x;\n", "must open with");
        one_finding("core/src/utils.rs", "//! x\n", "is called utils");
        one_finding("core/src/common/mod.rs", "//! x\n", "is called common");
        assert_eq!(findings("core/src/commonplace.rs", "//! x\n"), Vec::<String>::new());
    }

    #[test]
    fn registries_and_the_shared_folder_are_out_of_bounds() {
        one_finding("docs/a.md", &format!("see {}{}", "crates", ".io"), "names a registry");
        assert_eq!(findings("Cargo.lock", &format!("{}{}", "crates", ".io")), Vec::<String>::new());
        let reaches = format!("//! x\nconst PATH: &str = \"{}{}/data\";\n", SHARED.0, SHARED.1);
        one_finding("core/src/a.rs", &reaches, "shared folder");
        assert_eq!(findings("core/tests/a.rs", &reaches), Vec::<String>::new());
        assert_eq!(findings("lane-store/benches/a.rs", &reaches), Vec::<String>::new());
        assert_eq!(findings("embedder/src/model_tests.rs", &reaches), Vec::<String>::new());
        one_finding("embedder/src/contests.rs", &reaches, "shared folder");
    }

    #[test]
    fn dependencies_point_one_way() {
        let depends = |on: &str| format!("[package]\nname = \"x\"\n[dependencies]\n{on}\n");
        one_finding("operator/Cargo.toml", &depends("lanekeeper-lane-store.workspace = true"), "may not depend on");
        one_finding(
            "query-service/Cargo.toml",
            &depends("engine = {package = \"lanekeeper-lane-store\"}"),
            "lane-store",
        );
        one_finding("core/Cargo.toml", &depends("tokio = \"1\""), "no I/O");
        one_finding("core/Cargo.toml", "[target.'cfg(unix)'.dependencies]\nsqlx = \"1\"\n", "no I/O");
        one_finding("novel/Cargo.toml", &depends(""), "is a new crate");
        one_finding("core/inner/Cargo.toml", &depends(""), "is a new crate");
        assert_eq!(findings("tests/demo_check/Cargo.toml", &depends("lanekeeper-core = \"1\"")), Vec::<String>::new());
        assert_eq!(
            findings("cli/Cargo.toml", &depends("lanekeeper-lane-store.workspace = true")),
            Vec::<String>::new()
        );
        let tests_only = "[dev-dependencies]\nlanekeeper-lane-store.workspace = true\n";
        assert_eq!(findings("query-service/Cargo.toml", tests_only), Vec::<String>::new());
    }

    #[test]
    fn this_repository_is_read() {
        let sources = sources::read_all(&sources::root().unwrap()).unwrap();
        assert!(sources.iter().any(|source| source.path == "xtask/src/tidy.rs"));
        assert!(sources.iter().all(|source| !source.path.starts_with("target/")));
    }
}
