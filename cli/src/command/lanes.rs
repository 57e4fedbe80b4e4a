//! `lanekeeper lanes`

use clap::Args;
use lanekeeper_core::wire::lanes::LaneList;

use crate::client::{Answer, Call, Connection};
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Lanes {
    #[command(flatten)]
    connection: Connection,
}

impl Lanes {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let server = self.connection.open()?;
        let answer: Answer<LaneList> = server.call(Call::get(&["v1", "lanes"])).await?;
        if self.connection.json {
            return output::print_raw(&answer.raw);
        }
        output::print(&output::lanes::lanes(&answer.value))
    }
}
