//! `lanekeeper verify [FILE]`

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use http::Method;
use lanekeeper_core::LogId;
use lanekeeper_core::wire::upkeep::VerifyReport;
use lanekeeper_lane_store::{StoreError, verify_backup, verify_export, verify_file};

use crate::client::{Answer, Call, Connection, OneLane};
use crate::failure::Failure;
use crate::local::lane_file::LaneFile;
use crate::output;

/// How every SQLite database starts.
const SQLITE: &[u8] = b"SQLite format 3\0";
/// How every backup starts.
const BACKUP: &[u8] = b"LKBACKUP";
const DATABASE: &str = "lane.db";

#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) lane: OneLane,
    /// Check this instead, without a server: a lane's folder, its lane.db, a backup or an export.
    pub(crate) file: Option<PathBuf>,
}

impl Verify {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let Some(file) = &self.file else { return self.online().await };
        let report = offline(file).await?;
        if self.connection.json {
            let raw = serde_json::to_vec(&report).map_err(|error| Failure::because("the report", &error))?;
            output::print_raw(&raw)?;
        } else {
            output::print(&output::upkeep::verified(&report))?;
        }
        holds(&report)
    }

    async fn online(&self) -> Result<(), Failure> {
        let server = self.connection.open()?;
        let lane = server.lane(self.lane.lane.as_ref()).await?;
        let call = Call::on_lane(Method::POST, &lane, &["verify"]).patient();
        let answer: Answer<VerifyReport> = server.call(call).await?;
        if self.connection.json {
            output::print_raw(&answer.raw)?;
        } else {
            output::print(&output::upkeep::verified(&answer.value))?;
        }
        holds(&answer.value)
    }
}

/// The report has said it; the exit code says it to programs.
const fn holds(report: &VerifyReport) -> Result<(), Failure> {
    if report.ok { Ok(()) } else { Err(Failure::Told) }
}

/// What a file is, by how it starts.
#[derive(Debug, PartialEq, Eq)]
enum Form {
    Database,
    Backup,
    Export,
}

async fn offline(path: &Path) -> Result<VerifyReport, Failure> {
    let database = if path.is_dir() { path.join(DATABASE) } else { path.to_owned() };
    let file = File::open(&database)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", database.display())))?;
    let form = form(&database)?;
    let unreadable = |error: StoreError| Failure::refused(format!("{}: {}", database.display(), error.chain()));
    match form {
        Form::Database => verify_file(&database, expected(&database)).await.map_err(unreadable),
        Form::Backup => {
            let bar = output::progress::bytes(file.metadata().ok().map(|metadata| metadata.len()), "backup");
            let report = verify_backup(bar.wrap_read(file)).await.map_err(unreadable);
            bar.finish_and_clear();
            report
        }
        Form::Export => tokio::task::spawn_blocking(move || verify_export(BufReader::new(file)))
            .await
            .map_err(|error| Failure::because("checking the export", &error))?
            .map_err(unreadable),
    }
}

/// The identity that the log must have: what the program wrote beside it before the log was made. A copy that
/// lies elsewhere is checked against its own.
fn expected(database: &Path) -> Option<LogId> {
    LaneFile::read_unbound(database.parent()?).ok().map(|file| file.log_id)
}

fn form(path: &Path) -> Result<Form, Failure> {
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(SQLITE.len() as u64).read_to_end(&mut start))
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
    if start == SQLITE {
        Ok(Form::Database)
    } else if start.starts_with(BACKUP) {
        Ok(Form::Backup)
    } else if start.first() == Some(&b'{') {
        Ok(Form::Export)
    } else {
        Err(Failure::refused(format!("{} is no lane's database, backup or export", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_how_it_starts() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("file");
        for (bytes, expected) in [
            (b"SQLite format 3\0rest".as_slice(), Form::Database),
            (b"LKBACKUP\x01", Form::Backup),
            (b"{\"lanekeeper_export\":1}", Form::Export),
        ] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(form(&path).unwrap(), expected);
        }
        for other in [b"".as_slice(), b"PK\x03\x04", b"SQLite format 2\0"] {
            std::fs::write(&path, other).unwrap();
            assert!(form(&path).is_err());
        }
    }
}
