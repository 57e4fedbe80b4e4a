//! `lanekeeper events`

use clap::Args;
use http::Method;
use lanekeeper_core::wire::events::EventPage;

use crate::client::{Answer, Call, Connection, OneLane};
use crate::failure::Failure;
use crate::output;

/// Most events a server gives at once.
const PAGE: u64 = 1000;

#[derive(Debug, Args)]
pub(crate) struct Events {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    lane: OneLane,
    /// Events after this place in the log.
    #[arg(long, default_value_t = 0, value_name = "SEQ")]
    after: u64,
    /// At most so many.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// To the end of the log.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

impl Events {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let server = self.connection.open()?;
        let lane = server.lane(self.lane.lane.as_ref()).await?;
        let mut after = self.after;
        let mut left = if self.all { u64::MAX } else { self.limit };
        let more = loop {
            let call = Call::on_lane(Method::GET, &lane, &["events"])
                .query("after", after.to_string())
                .query("limit", left.min(PAGE).to_string());
            let answer: Answer<EventPage> = server.call(call).await?;
            let EventPage { events, next_after, head: _ } = &answer.value;
            if self.connection.json {
                // One answer a line.
                output::print_raw(&answer.raw)?;
            } else {
                let text: String = events.iter().map(output::events::listed).collect();
                output::print(&text)?;
            }
            left = left.saturating_sub(events.len() as u64);
            match next_after {
                // A page that does not get on would be asked for for ever.
                Some(next) if left > 0 && *next > after => after = *next,
                next => break *next,
            }
        };
        if let Some(next) = more {
            output::note(&format!("more: --after {next}"));
        }
        Ok(())
    }
}
