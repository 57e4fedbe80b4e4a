//! The files of the repository: what git tracks, and what it would track. Never build outputs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The repository's root.
pub(crate) fn root() -> Result<PathBuf> {
    // The manifest's folder at build time: right wherever the program is started from.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent folder")?;
    Ok(root.to_owned())
}

/// One file.
#[derive(Debug)]
pub(crate) struct Source {
    /// From the root, with `/` between.
    pub(crate) path: String,
    /// Its text; files that are not text are left out.
    pub(crate) text: String,
}

/// Every text file that is tracked or would be, but for deleted ones.
pub(crate) fn read_all(root: &Path) -> Result<Vec<Source>> {
    let listing = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git ls-files did not start")?;
    ensure!(listing.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listing.stderr));
    let listing = String::from_utf8(listing.stdout).context("a path is not UTF-8")?;
    let mut sources = Vec::new();
    for path in listing.split('\0').filter(|path| !path.is_empty()) {
        match std::fs::read(root.join(path)) {
            Ok(bytes) => {
                if let Ok(text) = String::from_utf8(bytes) {
                    sources.push(Source { path: path.to_owned(), text });
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("{path} cannot be read")),
        }
    }
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(sources)
}
