//! Waiting for a value, with a deadline. Nothing here sleeps for a time and then hopes.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often is looked.
const EVERY: Duration = Duration::from_millis(250);

/// What one look saw.
#[derive(Debug)]
pub(crate) enum Seen<T> {
    /// It is there.
    Yes(T),
    /// Not yet; what is there instead, for the error.
    NotYet(String),
}

/// Looks until it is there. An error of a look counts as not yet: the API server may be away. After `within`
/// the error says what was waited for and what was seen last.
pub(crate) async fn until<T, F, Fut>(what: &str, within: Duration, mut look: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Seen<T>>>,
{
    let deadline = Instant::now() + within;
    loop {
        let last = match look().await {
            Ok(Seen::Yes(value)) => return Ok(value),
            Ok(Seen::NotYet(last)) => last,
            Err(error) => format!("{error:#}"),
        };
        if Instant::now() >= deadline {
            bail!("{what} did not come within {} s; seen last: {last}", within.as_secs());
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Looks for the whole of `during` and fails at the first look that says no.
pub(crate) async fn throughout<F, Fut>(during: Duration, mut look: F) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let deadline = Instant::now() + during;
    while Instant::now() < deadline {
        look().await?;
        tokio::time::sleep(EVERY).await;
    }
    Ok(())
}
