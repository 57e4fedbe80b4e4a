//! Reads a folder of manifests as it is right now.
//!
//! Links are followed (a mounted ConfigMap is made of them), folders are not. Names that start with a dot
//! are an editor's or a mount's own.

use std::io::{ErrorKind, Read as _};
use std::path::Path;
use std::time::UNIX_EPOCH;

use lanekeeper_crds::manifest::MANIFEST_BYTES;

use super::manifests::{Observation, ObservedFile};

const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// All manifests, by name.
pub(crate) fn scan(folder: &Path) -> Observation {
    let unreadable =
        |error: std::io::Error| Observation::Unreadable(format!("{} cannot be read: {error}", folder.display()));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return unreadable(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        // A listing that breaks off says nothing about what it did not get to.
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return unreadable(error),
        };
        let Ok(name) = entry.file_name().into_string() else { continue };
        if is_manifest(&name) {
            files.extend(read(&entry.path(), name));
        }
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Observation::Files(files)
}

fn is_manifest(name: &str) -> bool {
    let ending = Path::new(name).extension().and_then(|ending| ending.to_str());
    !name.starts_with('.') && ending.is_some_and(|ending| ENDINGS.contains(&ending))
}

/// `None` where it is no file, or no longer there.
fn read(path: &Path, name: String) -> Option<ObservedFile> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {
            let modified = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            let modified_ms = modified.and_then(|since| i64::try_from(since.as_millis()).ok());
            match text(path) {
                Ok(text) => Some(ObservedFile { name, modified_ms, content: Ok(text) }),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => {
                    Some(ObservedFile { name, modified_ms, content: Err(format!("cannot be read: {error}")) })
                }
            }
        }
        Ok(_) => None,
        // Removed since it was listed. A link whose target is gone is not the same: its name is still there.
        Err(error) if error.kind() == ErrorKind::NotFound && path.symlink_metadata().is_err() => None,
        Err(error) => Some(ObservedFile { name, modified_ms: None, content: Err(format!("cannot be read: {error}")) }),
    }
}

fn text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    // One byte more than is taken, so that the parser sees that it is too large.
    std::fs::File::open(path)?.take(MANIFEST_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(observation: &Observation) -> Vec<(&str, bool)> {
        match observation {
            Observation::Files(files) => files.iter().map(|file| (file.name.as_str(), file.content.is_ok())).collect(),
            Observation::Unreadable(reason) => panic!("{reason}"),
        }
    }

    #[test]
    fn manifests_are_files_by_their_ending() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["b.yaml", "a.yml", "c.json", ".hidden.yaml", "bob.yaml~", "notes.md", "yaml", "#d.yaml#"] {
            std::fs::write(at(name), "x").unwrap();
        }
        std::fs::create_dir(at("folder.yaml")).unwrap();
        symlink(at("notes.md"), at("linked.yaml")).unwrap();
        symlink(at("nowhere"), at("dangling.yaml")).unwrap();
        std::fs::write(at("binary.yaml"), [0xff, 0xfe]).unwrap();
        let seen = scan(folder.path());
        let expected = [
            ("a.yml", true),
            ("b.yaml", true),
            ("binary.yaml", false),
            ("c.json", true),
            ("dangling.yaml", false),
            ("linked.yaml", true),
        ];
        assert_eq!(names(&seen), expected);
    }

    #[test]
    fn a_folder_that_is_gone_or_none_is_unreadable() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        for path in [folder.path().join("gone"), file] {
            assert!(matches!(scan(&path), Observation::Unreadable(_)), "{}", path.display());
        }
    }
}
