//! Programs that are run to their end: helm, kubectl, the cluster's script. What they print is kept for the
//! error, not shown.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

/// Runs it and returns what it printed on stdout. An error carries what it printed on stderr. One that takes
/// longer than `within` is killed.
pub(crate) async fn run<P, I>(program: P, arguments: I, within: Duration) -> Result<String>
where
    P: AsRef<OsStr>,
    I: IntoIterator,
    I::Item: AsRef<OsStr>,
{
    run_in(Path::new("."), program, arguments, within).await
}

/// [`run`], in a folder.
pub(crate) async fn run_in<P, I>(folder: &Path, program: P, arguments: I, within: Duration) -> Result<String>
where
    P: AsRef<OsStr>,
    I: IntoIterator,
    I::Item: AsRef<OsStr>,
{
    let arguments: Vec<_> = arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
    let shown = || {
        let words = std::iter::once(program.as_ref().to_owned()).chain(arguments.iter().cloned());
        words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    };
    let child = Command::new(program.as_ref())
        .args(&arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = match tokio::time::timeout(within, child).await {
        Ok(output) => output.with_context(|| format!("`{}` did not start", shown()))?,
        Err(_) => bail!("`{}` took longer than {} s", shown(), within.as_secs()),
    };
    if !output.status.success() {
        bail!("`{}`: {}\n{}", shown(), output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{}` printed no UTF-8", shown()))
}
