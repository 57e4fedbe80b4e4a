//! A text in a person's editor.
//!
//! The file is 0600 in a folder 0700 of its own, so that an editor's swap and backup files beside it are
//! private too and go with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::failure::Failure;

/// A text being edited.
#[derive(Debug)]
pub(super) struct Draft {
    folder: TempDir,
    before: String,
}

const NAME: &str = "MEMORY.md";

impl Draft {
    pub(super) fn start(text: &str) -> Result<Self, Failure> {
        let cannot = |error: std::io::Error| Failure::refused(format!("cannot make a draft: {error}"));
        let folder = tempfile::Builder::new().prefix("lanekeeper-").tempdir().map_err(cannot)?;
        std::fs::write(folder.path().join(NAME), text).map_err(cannot)?;
        Ok(Self { folder, before: text.to_owned() })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(NAME)
    }

    /// Runs the editor; `None`: it changed nothing.
    pub(super) fn edited(&self) -> Result<Option<String>, Failure> {
        let editor = ["VISUAL", "EDITOR"]
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|text| !text.trim().is_empty()));
        self.edited_with(editor.as_deref().unwrap_or("vi"))
    }

    fn edited_with(&self, editor: &str) -> Result<Option<String>, Failure> {
        let path = self.path();
        // As git does it: the variable may hold arguments, and the shell knows its quoting.
        let status = Command::new("sh")
            .arg("-c")
            .arg(format!("{editor} \"$@\""))
            .arg(editor)
            .arg(&path)
            .status()
            .map_err(|error| Failure::refused(format!("cannot start the editor {editor}: {error}")))?;
        if !status.success() {
            return Err(Failure::refused(format!("the editor {editor} ended with {status}; nothing was saved")));
        }
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Failure::refused(format!("cannot read {} back: {error}", path.display())))?;
        Ok((text != self.before).then_some(text))
    }

    /// Leaves the file where it is and says where.
    pub(super) fn keep(self) -> Result<PathBuf, Failure> {
        let folder: PathBuf = self.folder.keep();
        Ok(Path::new(&folder).join(NAME))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_editor_with_arguments_changes_the_text() {
        let draft = Draft::start("one\n").unwrap();
        assert_eq!(draft.edited_with("sed -i s/one/two/").unwrap().as_deref(), Some("two\n"));
        let path = draft.keep().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn no_change_and_a_failing_editor_save_nothing() {
        let draft = Draft::start("one\n").unwrap();
        assert_eq!(draft.edited_with("true").unwrap(), None);
        assert!(draft.edited_with("false").is_err());
    }
}
