//! `cargo xtask no-leak`: runs the leak hunt alone and demands that it really ran.
//!
//! The hunt itself is a test over the real process (tests/tests/it/no_leak.rs), so that `make test` has
//! it too: random markers in every field of save, recall, forget and every error path at TRACE.

use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};

pub(crate) fn run() -> Result<ExitCode> {
    let output = Command::new(env!("CARGO"))
        .args(["test", "--workspace", "--test", "it", "--", "no_leak::", "--nocapture"])
        .stderr(Stdio::inherit())
        .output()
        .context("run the leak hunt")?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let ran = text.lines().filter(|line| line.starts_with("test no_leak::") && line.contains("... ")).count();
    if ran == 0 {
        println!("0 passed, 1 failed: the leak hunt did not run");
        return Ok(ExitCode::FAILURE);
    }
    Ok(if output.status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
