//! What is generated from the code and committed: the CustomResourceDefinitions, their fields as a page, and the
//! OpenAPI document. `--check` writes nothing and fails on the first difference, so that CI notices a type
//! that was changed without its YAML.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use lanekeeper_crds::schema::Kind;

use crate::sources;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Write nothing; exit with 1 if a committed file is not what the code says.
    #[arg(long)]
    check: bool,
}

/// One generated file.
struct Generated {
    path: String,
    text: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let root = sources::root()?;
    let mut drifted = 0_usize;
    for Generated { path, text } in generate()? {
        if committed(&root, &path)?.as_deref() == Some(text.as_str()) {
            continue;
        }
        drifted += 1;
        if arguments.check {
            println!("{path} is not what the code says");
        } else {
            write(&root, &path, &text)?;
            println!("wrote {path}");
        }
    }
    if arguments.check && drifted > 0 {
        println!("run `cargo xtask codegen` and commit what it writes");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn generate() -> Result<Vec<Generated>> {
    let mut generated = Vec::new();
    for kind in Kind::ALL {
        let text = kind.yaml().with_context(|| format!("the definition of {} cannot be written", kind.name()))?;
        // The chart carries a copy: what lies outside its folder is not in its package.
        generated
            .push(Generated { path: format!("charts/lanekeeper/files/crds/{}", kind.yaml_file()), text: text.clone() });
        generated.push(Generated { path: format!("crds/yaml/{}", kind.yaml_file()), text });
    }
    // Made from the handlers themselves; the wire's authority for everyone who writes a client.
    let openapi = lanekeeper_query_service::openapi_document();
    let text = openapi.to_pretty_json().context("the OpenAPI document cannot be written")?;
    generated.push(Generated { path: "docs/openapi.json".to_owned(), text: format!("{text}\n") });
    generated.push(Generated { path: "docs/reference.md".to_owned(), text: crate::reference::page() });
    Ok(generated)
}

fn committed(root: &Path, path: &str) -> Result<Option<String>> {
    match fs::read_to_string(root.join(path)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{path} cannot be read")),
    }
}

fn write(root: &Path, path: &str, text: &str) -> Result<()> {
    let target = root.join(path);
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder).with_context(|| format!("the folder of {path} cannot be made"))?;
    }
    fs::write(&target, text).with_context(|| format!("{path} cannot be written"))
}
