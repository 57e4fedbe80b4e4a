//! `lanekeeper backup FILE`

use std::path::PathBuf;

use clap::Args;
use http::Method;

use crate::client::{Call, Connection, OneLane, transfer};
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Backup {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    lane: OneLane,
    /// Write the archive here.
    file: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    overwrite: bool,
}

impl Backup {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let server = self.connection.open()?;
        let lane = server.lane(self.lane.lane.as_ref()).await?;
        let response = server.download(Call::on_lane(Method::GET, &lane, &["backup"])).await?;
        let bar = output::progress::bytes(response.content_length(), "backup");
        let bytes = transfer::into_file(response, &self.file, self.overwrite, &bar).await?;
        bar.finish_and_clear();
        output::note(&format!(
            "Lane {lane} backed up to {path}, {bytes} bytes. `lanekeeper verify {path}` checks it offline.",
            path = self.file.display()
        ));
        Ok(())
    }
}
