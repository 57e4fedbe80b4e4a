//! The stored answers of each step, read when they are asked for.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde_json::Value;

/// What lies in the folder; a file that could not be read is kept as the reason why.
pub(crate) struct Steps(BTreeMap<String, Result<Value, String>>);

impl Steps {
    /// Reads a folder. One that is not there has no steps.
    pub(crate) fn of_folder(folder: &Path) -> Self {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let files = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "json"));
        let read = |path: &Path| -> Result<Value, String> {
            let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
            serde_json::from_slice(&bytes).map_err(|error| error.to_string())
        };
        Self(files.filter_map(|path| Some((path.file_stem()?.to_str()?.to_owned(), read(&path)))).collect())
    }

    /// The answers of one step.
    pub(crate) fn get(&self, name: &str) -> Result<&Value> {
        match self.0.get(name) {
            Some(Ok(value)) => Ok(value),
            Some(Err(reason)) => Err(anyhow!("{name}.json cannot be read: {reason}")),
            None => Err(anyhow!("{name}.json is not there")),
        }
    }

    /// The answers of an earlier step that this one is measured by.
    pub(crate) fn earlier(&self, name: &str) -> Result<&Value> {
        self.get(name).context("it cannot be judged")
    }

    #[cfg(test)]
    pub(crate) fn of(steps: impl IntoIterator<Item = (&'static str, Value)>) -> Self {
        Self(steps.into_iter().map(|(name, value)| (name.to_owned(), Ok(value))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_cut_off_is_named() {
        let folder = std::env::temp_dir().join(format!("demo-check-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("02-recall.json"), "{\"answer\": {\"hits\"").unwrap();
        std::fs::write(folder.join("03-other-lane.json"), "{}").unwrap();
        let steps = Steps::of_folder(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(steps.get("02-recall").unwrap_err().to_string().starts_with("02-recall.json cannot be read"));
        assert!(steps.get("03-other-lane").is_ok());
        assert_eq!(steps.get("04-one-way").unwrap_err().to_string(), "04-one-way.json is not there");
    }
}
