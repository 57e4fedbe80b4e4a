//! Where log lines go: stderr, filtered by `LANEKEEPER_LOG`.
//!
//! What must always hold: no field of a log line holds memory text, a token or a key. That is the callers'
//! doing; here only the way out is set up.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The variable that says what is logged, such as `info` or `lanekeeper_lane_store=debug`.
pub(crate) const FILTER: &str = "LANEKEEPER_LOG";

/// Starts logging. `default` holds where the variable is not set; a filter that cannot be read counts as the
/// default, with one line that says so.
pub(crate) fn start(default: &str) {
    let fallback = || EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).parse_lossy(default);
    let asked = std::env::var(FILTER).ok().filter(|text| !text.is_empty());
    let (filter, unread) = match asked.as_deref().map(EnvFilter::try_new) {
        None => (fallback(), None),
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (fallback(), Some(error.to_string())),
    };
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .try_init();
    if let (Ok(()), Some(reason)) = (started, unread) {
        tracing::warn!(reason, "{FILTER} cannot be read; logging as by default");
    }
}
