//! Downloads: an answer that is read as it comes, into a file or to stdout.
//!
//! What must always hold: a file that appears under its name is whole. An answer that breaks off leaves
//! nothing, and an existing file is replaced only when that was asked for. Files are 0600.

use std::io::Write as _;
use std::path::Path;

use futures::StreamExt as _;
use indicatif::ProgressBar;
use tempfile::NamedTempFile;

use super::ClientError;
use crate::failure::Failure;
use crate::output;

/// Writes the answer to `path`; gives the number of bytes.
pub(crate) async fn into_file(
    response: reqwest::Response,
    path: &Path,
    overwrite: bool,
    progress: &ProgressBar,
) -> Result<u64, Failure> {
    let cannot = |error: std::io::Error| Failure::refused(format!("cannot write {}: {error}", path.display()));
    if !overwrite && path.try_exists().map_err(cannot)? {
        return Err(exists(path));
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut file = NamedTempFile::new_in(folder).map_err(cannot)?;
    let mut written = 0;
    let mut stream = response.bytes_stream();
    while let Some(part) = stream.next().await {
        let part = part.map_err(broken)?;
        file.write_all(&part).map_err(cannot)?;
        written += part.len() as u64;
        progress.set_position(written);
    }
    file.as_file().sync_all().map_err(cannot)?;
    let placed = if overwrite {
        file.persist(path).map(drop).map_err(|error| error.error)
    } else {
        file.persist_noclobber(path).map(drop).map_err(|error| error.error)
    };
    match placed {
        Ok(()) => Ok(written),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(exists(path)),
        Err(error) => Err(cannot(error)),
    }
}

/// Writes the answer to stdout.
pub(crate) async fn to_stdout(response: reqwest::Response) -> Result<(), Failure> {
    let mut stream = response.bytes_stream();
    while let Some(part) = stream.next().await {
        output::print_bytes(&part.map_err(broken)?)?;
    }
    Ok(())
}

fn broken(source: reqwest::Error) -> Failure {
    ClientError::Broken { what: "the answer", source: source.without_url() }.into()
}

fn exists(path: &Path) -> Failure {
    Failure::refused(format!("{} exists; --overwrite replaces it", path.display()))
}
