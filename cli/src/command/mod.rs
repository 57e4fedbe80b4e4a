//! The commands, one file each: its arguments and what it does with them.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod forget;
pub(crate) mod import;
pub(crate) mod lanes;
pub(crate) mod local;
pub(crate) mod memory;
pub(crate) mod model;
pub(crate) mod rebuild;
pub(crate) mod recall;
pub(crate) mod restore;
pub(crate) mod save;
pub(crate) mod token;
pub(crate) mod verify;

use crate::arguments::Command;
use crate::failure::Failure;

/// Runs one command to its end.
pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Local(arguments) => arguments.run().await,
        Command::Model(arguments) => arguments.run().await,
        Command::Token(arguments) => arguments.run(),
        Command::Save(arguments) => arguments.run().await,
        Command::Recall(arguments) => arguments.run().await,
        Command::Forget(arguments) => arguments.run().await,
        Command::Memory(arguments) => arguments.run().await,
        Command::Events(arguments) => arguments.run().await,
        Command::Lanes(arguments) => arguments.run().await,
        Command::Verify(arguments) => arguments.run().await,
        Command::Rebuild(arguments) => arguments.run().await,
        Command::Export(arguments) => arguments.run().await,
        Command::Import(arguments) => arguments.run().await,
        Command::Check(arguments) => arguments.run().await,
        Command::Backup(arguments) => arguments.run().await,
        Command::Restore(arguments) => arguments.run().await,
    }
}

/// A key for one run of a command: its tries are one request, another run is another.
fn fresh_key() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// A role by its name on the wire.
fn role(text: &str) -> Result<lanekeeper_core::wire::events::TurnRole, String> {
    text.parse().map_err(|()| "must be user, assistant, tool or system".to_owned())
}
