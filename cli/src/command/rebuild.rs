//! `lanekeeper rebuild`

use std::time::Duration;

use clap::Args;
use http::Method;
use lanekeeper_core::LaneName;
use lanekeeper_core::wire::upkeep::{RebuildReport, RebuildRequest};

use crate::client::{Answer, Call, Connection, OneLane, Server};
use crate::failure::Failure;
use crate::output;

/// How often the lane is asked how far it is.
const POLL: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(crate) struct Rebuild {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    lane: OneLane,
    /// Also make the vector collection anew on disk, so that deleted vectors are physically gone.
    #[arg(long)]
    erase_vectors: bool,
    /// Do not wait for the vectors.
    #[arg(long)]
    no_wait: bool,
}

impl Rebuild {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let server = self.connection.open()?;
        let lane = server.lane(self.lane.lane.as_ref()).await?;
        let call = Call::on_lane(Method::POST, &lane, &["rebuild"])
            .body(&RebuildRequest { erase_vectors: self.erase_vectors })?
            .patient();
        let answer: Answer<RebuildReport> = server.call(call).await?;
        if self.connection.json {
            output::print_raw(&answer.raw)?;
        } else {
            output::print(&output::upkeep::rebuilt(&answer.value))?;
        }
        if answer.value.projecting && !self.no_wait {
            wait(&server, &lane).await?;
        }
        Ok(())
    }
}

/// Until no turn waits for its vectors. Ctrl-C ends the waiting, not the work.
async fn wait(server: &Server, lane: &LaneName) -> Result<(), Failure> {
    let mut most = 0;
    let bar = output::progress::items(Some(0), "vectors");
    loop {
        let summary = server.summary(lane).await?;
        let pending = summary.counts.map(|counts| counts.pending_projection);
        match pending {
            Some(0) => break,
            Some(pending) => {
                most = pending.max(most);
                bar.set_length(most);
                bar.set_position(most - pending);
                bar.set_message(summary.reasons.join(", "));
            }
            // Not counted just now (busy, or not ready): ask again.
            None => bar.set_message(summary.reasons.join(", ")),
        }
        tokio::time::sleep(POLL).await;
    }
    bar.finish_and_clear();
    output::note("Every turn has its vectors.");
    Ok(())
}
