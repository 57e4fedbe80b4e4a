//! The command line. Each command's own arguments stand in its own file under `command/`.

use clap::{Parser, Subcommand};

use crate::command;

/// Memory for agents: lanes that remember, prove what they hold, and forget when told to.
#[derive(Debug, Parser)]
#[command(name = "lanekeeper", version, max_term_width = 110, propagate_version = true, infer_long_args = false)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the lanes of a folder of manifests from this machine.
    Local(command::local::Local),
    /// The built-in embedding model: fetch it, say where it is.
    #[command(subcommand)]
    Model(command::model::Model),
    /// Print a token for a principal of a lane.
    Token(command::token::Token),
    /// Save turns.
    Save(command::save::Save),
    /// Ask what is remembered.
    Recall(command::recall::Recall),
    /// Forget events, a session, or curated paragraphs.
    Forget(command::forget::Forget),
    /// Curated memory: read, search, edit, replace.
    #[command(subcommand)]
    Memory(command::memory::Memory),
    /// List events by their place in the log.
    Events(command::events::Events),
    /// List the lanes that the token reaches, and how they are.
    Lanes(command::lanes::Lanes),
    /// Verify a lane's whole log, or, offline, a file.
    Verify(command::verify::Verify),
    /// Make all that is derived again from the log.
    Rebuild(command::rebuild::Rebuild),
    /// Write a lane as JSON Lines.
    Export(command::export::Export),
    /// Read JSON Lines as `export` writes them.
    Import(command::import::Import),
    /// Whether a lane remembers: save a marker, recall it by other words, forget it.
    Check(command::check::Check),
    /// Write a backup of a lane.
    Backup(command::backup::Backup),
    /// Put a backup in a lane's place, or accept the head of a lane that was rolled back. Server stopped.
    Restore(command::restore::Restore),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn no_option_takes_a_token() {
        fn walk(command: &clap::Command) {
            for argument in command.get_arguments() {
                let name = argument.get_id().as_str();
                let takes_value = argument.get_action().takes_values();
                assert!(
                    !takes_value || !name.contains("token") || name.ends_with("_file"),
                    "{name} of {}",
                    command.get_name()
                );
            }
            command.get_subcommands().for_each(walk);
        }
        walk(&Arguments::command());
    }
}
