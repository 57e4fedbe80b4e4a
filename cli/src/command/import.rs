//! `lanekeeper import FILE`

use std::path::{Path, PathBuf};

use clap::Args;
use futures::StreamExt as _;
use http::Method;
use indicatif::ProgressBar;
use lanekeeper_core::wire::upkeep::ImportReport;
use tokio::io::AsyncRead;
use tokio_util::io::ReaderStream;

use crate::client::{Call, Connection, OneLane};
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Import {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    lane: OneLane,
    /// JSON Lines as `export` writes them; - for stdin.
    file: PathBuf,
    /// Let a corpus lane take what was exported from a personal lane: it will be read by others.
    #[arg(long)]
    force_personal: bool,
}

impl Import {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let server = self.connection.open()?;
        let lane = server.lane(self.lane.lane.as_ref()).await?;
        let mut call = Call::on_lane(Method::POST, &lane, &["import"]);
        if self.force_personal {
            call = call.query("force_personal", "true");
        }
        let (body, bar) = body(&self.file).await?;
        let raw = server.upload(call, "application/x-ndjson", body).await?;
        bar.finish_and_clear();
        if self.connection.json {
            return output::print_raw(&raw);
        }
        let report: ImportReport =
            serde_json::from_slice(&raw).map_err(|error| Failure::because("the report cannot be read", &error))?;
        output::print(&output::upkeep::imported(&report))?;
        // The counts say which; the exit code says that it was not all.
        if report.refused > 0 { Err(Failure::Told) } else { Ok(()) }
    }
}

async fn body(path: &Path) -> Result<(reqwest::Body, ProgressBar), Failure> {
    let cannot = |error: std::io::Error| Failure::usage(format!("cannot read {}: {error}", path.display()));
    if path == Path::new("-") {
        let bar = output::progress::bytes(None, "import");
        return Ok((stream(tokio::io::stdin(), bar.clone()), bar));
    }
    let file = tokio::fs::File::open(path).await.map_err(cannot)?;
    let length = file.metadata().await.map_err(cannot)?.len();
    let bar = output::progress::bytes(Some(length), "import");
    Ok((stream(file, bar.clone()), bar))
}

fn stream(reader: impl AsyncRead + Send + Sync + 'static, bar: ProgressBar) -> reqwest::Body {
    let parts = ReaderStream::with_capacity(reader, 64 * 1024).map(move |part| {
        if let Ok(part) = &part {
            bar.inc(part.len() as u64);
        }
        part
    });
    reqwest::Body::wrap_stream(parts)
}
