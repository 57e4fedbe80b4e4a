//! `lanekeeper export`

use std::path::PathBuf;

use clap::Args;
use http::Method;

use crate::client::{Call, Connection, OneLane, transfer};
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Export {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    lane: OneLane,
    /// Write here; default: stdout.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace an existing file.
    #[arg(long, requires = "output")]
    overwrite: bool,
}

impl Export {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let server = self.connection.open()?;
        let lane = server.lane(self.lane.lane.as_ref()).await?;
        let response = server.download(Call::on_lane(Method::GET, &lane, &["export"])).await?;
        let Some(path) = &self.output else { return transfer::to_stdout(response).await };
        let bar = output::progress::bytes(response.content_length(), "export");
        let bytes = transfer::into_file(response, path, self.overwrite, &bar).await?;
        bar.finish_and_clear();
        output::note(&format!("Lane {lane} exported to {}, {bytes} bytes.", path.display()));
        Ok(())
    }
}
