//! `lanekeeper restore`: a backup in a lane's place, or a head that a person accepts.
//!
//! What must always hold: the server is stopped (the data folder's lock is taken); nothing is moved or changed
//! before the backup has been checked as a whole; what stood there before is moved aside, never removed.

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use lanekeeper_core::clock::{Clock as _, SystemClock};
use lanekeeper_core::wire::events::Head;
use lanekeeper_core::{Generation, LaneName, Seq};
use lanekeeper_federation::{FileRegistry, Registry as _, RegistryError};
use lanekeeper_lane_store::{
    BackupManifest, RestoreReport, Standing, StoreError, accept_head, read_manifest, restore, verify_backup,
    verify_file,
};

use crate::failure::Failure;
use crate::local::data::{DataError, DataFolder, UNFINISHED, folder_name, rename};
use crate::local::lane_file::{self, LaneFile, Stage};
use crate::output;

/// What a restore writes. A lane's folder that holds any of it is not empty.
const WRITTEN: [&str; 3] = ["lane.db", "lane.db-wal", "memory"];
/// What goes along into the new folder: the log stays signed by the same key, content hashes keep their meaning.
const KEYS: [&str; 2] = ["log.key", "dedupe.key"];

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["archive", "accept_head"])))]
pub(crate) struct Restore {
    /// The server's data folder. The server must be stopped.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Into which lane. It must exist: start the server once with its manifest.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    lane: LaneName,
    /// A backup, as `lanekeeper backup` wrote it.
    archive: Option<PathBuf>,
    /// Accept this as the head of a log that was rolled back or forked. What lay above it is given up.
    #[arg(long, value_name = "SEQ:HASH", value_parser = head)]
    accept_head: Option<Head>,
    /// Move what the lane holds now aside, into the data folder's retained/.
    #[arg(long, requires = "archive")]
    replace: bool,
    /// Take a backup of another log: of this lane on another machine, or of another lane of the same kind.
    /// Whoever has access to this lane then reads what it holds.
    #[arg(long, requires = "archive")]
    other_log: bool,
}

/// A lane of a data folder that this process holds.
struct Stopped {
    data: DataFolder,
    registry: FileRegistry,
    file: LaneFile,
    folder: PathBuf,
    collection: String,
}

impl Restore {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let stopped = Stopped::open(&self.data, &self.lane)?;
        match (&self.archive, self.accept_head) {
            (_, Some(head)) => stopped.accept(head).await,
            (Some(archive), None) => stopped.restore(archive, self.replace, self.other_log).await,
            (None, None) => Err(Failure::usage("a backup or --accept-head is needed")),
        }
    }
}

impl Stopped {
    fn open(data: &Path, lane: &LaneName) -> Result<Self, Failure> {
        let data = DataFolder::open_existing(data).map_err(|error| Failure::because("restore", &error))?;
        let mut found = lane_file::live(&data.layout).map_err(failed)?.into_iter().filter(|found| found.lane == *lane);
        let Some(first) = found.next() else {
            return Err(Failure::refused(format!(
                "there is no lane {lane} in {}: start the server once with its manifest, stop it, and restore then",
                data.layout.root().display()
            )));
        };
        if found.next().is_some() {
            return Err(Failure::refused(format!(
                "lane {lane} has several folders in {}",
                data.layout.lanes().display()
            )));
        }
        let file = first.file.map_err(|error| Failure::because("restore", &error))?;
        let collection = file.collection().map_err(|error| Failure::because("restore", &error))?;
        let registry =
            FileRegistry::open(data.layout.records()).map_err(|error| Failure::because("restore", &error))?;
        Ok(Self { data, registry, file, folder: first.folder, collection })
    }

    async fn restore(mut self, archive: &Path, replace: bool, other_log: bool) -> Result<(), Failure> {
        let manifest = read_manifest(open(archive)?).map_err(|error| unusable(archive, &error))?;
        let is_other = manifest.log_id != self.file.log_id;
        if is_other {
            self.check_other(&manifest, other_log)?;
        }
        let occupied = self.occupied()?;
        if !occupied.is_empty() && !replace {
            return Err(Failure::refused(format!(
                "lane {} is not empty ({} holds {}); --replace moves that aside first",
                self.file.lane,
                self.folder.display(),
                occupied.join(", ")
            )));
        }
        if is_other || !occupied.is_empty() {
            // Before anything is moved or changed. The restore itself checks once more.
            let report = verify_backup(open(archive)?).await.map_err(|error| unusable(archive, &error))?;
            if !report.ok {
                return Err(Failure::refused(format!("{}: {}", archive.display(), report.statement)));
            }
            if !occupied.is_empty() {
                self.move_aside()?;
            }
        }
        if is_other || self.own_record().await?.is_none() {
            self.take_over(&manifest).await?;
        }
        self.bind(&manifest)?;
        let file = open(archive)?;
        let bar = output::progress::bytes(file.metadata().ok().map(|metadata| metadata.len()), "restore");
        let restored =
            restore(bar.wrap_read(file), &self.folder, &self.registry, &self.collection, self.file.uid).await;
        bar.finish_and_clear();
        let report = restored.map_err(|error| unusable(archive, &error))?;
        output::print(&told(&self.file.lane, &report, self.data.layout.root()))
    }

    fn check_other(&self, manifest: &BackupManifest, other_log: bool) -> Result<(), Failure> {
        if !other_log {
            return Err(Failure::refused(format!(
                "the backup is of another log (lane {}, uid {}); --other-log gives lane {} that one, and whoever has access to the lane reads what it holds",
                manifest.lane, manifest.uid, self.file.lane
            )));
        }
        let view = self
            .file
            .manifest
            .to_view(self.file.uid, self.file.embedding.fingerprint())
            .map_err(|error| Failure::because("restore", &error))?;
        if view.kind != manifest.kind {
            return Err(Failure::refused("the backup is of a lane of the other kind (personal, corpus)"));
        }
        Ok(())
    }

    /// What is there of that which a restore replaces.
    fn occupied(&self) -> Result<Vec<&'static str>, Failure> {
        let mut occupied = Vec::new();
        for name in WRITTEN {
            let path = self.folder.join(name);
            let holds = match std::fs::metadata(&path) {
                Ok(metadata) if metadata.is_dir() => {
                    let mut entries = std::fs::read_dir(&path).map_err(|error| cannot("list", &path, &error))?;
                    entries.next().is_some()
                }
                Ok(metadata) => metadata.len() > 0,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
                Err(error) => return Err(cannot("look at", &path, &error)),
            };
            if holds {
                occupied.push(name);
            }
        }
        Ok(occupied)
    }

    /// The whole folder, by one rename; then an empty one with the same keys takes its place. A kill in between
    /// leaves a name whose folder is gone, which no start opens or makes anew.
    fn move_aside(&self) -> Result<(), Failure> {
        let name = folder_name(&self.file.lane, self.file.uid);
        let aside = self.data.layout.retained().join(format!("{name}.replaced-{}", SystemClock.now_ms()));
        let empty = self.data.layout.lanes().join(format!("{UNFINISHED}{name}"));
        std::fs::create_dir(&empty).map_err(|error| cannot("make", &empty, &error))?;
        for name in KEYS {
            let (from, to) = (self.folder.join(name), empty.join(name));
            match std::fs::copy(&from, &to) {
                Ok(_) => {
                    File::open(&to).and_then(|file| file.sync_all()).map_err(|error| cannot("sync", &to, &error))?
                }
                // A lane that was never opened has none.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(cannot("copy", &from, &error)),
            }
        }
        self.file.write(&empty).map_err(failed)?;
        rename(&self.folder, &aside).map_err(failed)?;
        rename(&empty, &self.folder).map_err(failed)?;
        output::note(&format!("What lane {} held is now in {}.", self.file.lane, aside.display()));
        Ok(())
    }

    /// Gives the lane the backup's log: its id, an epoch above all of its rows, and a record without a head. So
    /// too where the record is gone: nobody knows any more what head the log had come to.
    async fn take_over(&mut self, manifest: &BackupManifest) -> Result<(), Failure> {
        let record = self.own_record().await?;
        let known = record.as_ref().map_or(self.file.epoch, |record| record.spec.epoch);
        let generation = record.as_ref().map_or(Generation(1), |record| record.spec.generation);
        let file = LaneFile {
            log_id: manifest.log_id,
            epoch: self.file.epoch.max(known).max(manifest.epoch).next(),
            stage: Stage::New,
            ..self.file.clone()
        };
        // From here on a kill leaves a lane that declares its record anew and starts with this log's id.
        file.write(&self.folder).map_err(failed)?;
        if record.is_some() {
            self.registry.remove(&self.collection).await.map_err(|error| Failure::because("restore", &error))?;
        }
        self.registry
            .declare(file.record(self.collection.clone(), generation))
            .await
            .map_err(|error| Failure::because("restore", &error))?;
        let file = LaneFile { stage: Stage::Active, ..file };
        file.write(&self.folder).map_err(failed)?;
        self.file = file;
        Ok(())
    }

    /// A backup from before the lane was adopted is bound to the UID of then.
    fn bind(&mut self, manifest: &BackupManifest) -> Result<(), Failure> {
        if manifest.uid != self.file.uid && self.file.adopted_from != Some(manifest.uid) {
            self.file.adopted_from = Some(manifest.uid);
            self.file.write(&self.folder).map_err(failed)?;
        }
        Ok(())
    }

    async fn own_record(&self) -> Result<Option<lanekeeper_federation::Record>, Failure> {
        match self.registry.read(&self.collection).await {
            Ok(record) if record.spec.writer.uid == self.file.uid => Ok(Some(record)),
            Ok(record) => Err(Failure::refused(format!(
                "collection {} is written by lane {}/{}",
                self.collection, record.spec.writer.namespace, record.spec.writer.name
            ))),
            Err(RegistryError::Missing { .. }) => Ok(None),
            Err(
                error
                @ (RegistryError::Garbled { .. } | RegistryError::Unreadable { .. } | RegistryError::Taken { .. }),
            ) => Err(Failure::because("restore", &error)),
        }
    }

    async fn accept(self, head: Head) -> Result<(), Failure> {
        if self.own_record().await?.is_none() {
            return self.declare_again(head).await;
        }
        let report = accept_head(&self.folder, &self.registry, &self.collection, self.file.uid, head)
            .await
            .map_err(|error| Failure::refused(format!("not accepted: {}", error.chain())))?;
        let lane = self.file.lane.clone();
        let file = LaneFile { epoch: report.epoch, ..self.file };
        file.write(&self.folder).map_err(failed)?;
        let given_up = report.given_up.map_or_else(String::new, |head| {
            format!(" The head that was known before, seq {}, is given up with all above it.", head.seq)
        });
        output::print(&format!(
            "Lane {lane} goes on from seq {}, in epoch {}.{given_up}\n",
            report.head.seq, report.epoch
        ))
    }

    /// The record is gone: the person who names the log's very head stands for it.
    async fn declare_again(self, head: Head) -> Result<(), Failure> {
        let database = self.folder.join("lane.db");
        let report = verify_file(&database, Some(self.file.log_id))
            .await
            .map_err(|error| Failure::refused(format!("not accepted: {}", error.chain())))?;
        match report.head {
            Some(actual) if actual == head => {}
            Some(actual) => {
                return Err(Failure::refused(format!(
                    "not accepted: the log's head is {}:{}",
                    actual.seq, actual.hash
                )));
            }
            None => return Err(Failure::refused(format!("not accepted: {}", report.statement))),
        }
        let file = LaneFile { epoch: self.file.epoch.next(), ..self.file };
        file.write(&self.folder).map_err(failed)?;
        self.registry
            .declare(file.record(self.collection.clone(), Generation(1)))
            .await
            .map_err(|error| Failure::because("restore", &error))?;
        output::print(&format!(
            "Lane {} has its record again and goes on from seq {}, in epoch {}.\n",
            file.lane, head.seq, file.epoch
        ))
    }
}

fn told(lane: &LaneName, report: &RestoreReport, data: &Path) -> String {
    let RestoreReport { manifest, verified, memory_files, standing } = report;
    let mut text = format!(
        "Restored lane {lane} from the backup of {}: {} rows, {memory_files} curated files. {}\n",
        manifest.made_at, verified.events, verified.statement
    );
    let published = match standing {
        Standing::Unpublished | Standing::HoldsPublished => return text,
        Standing::Behind { published } | Standing::Forked { published } => published,
    };
    text.push_str(&format!(
        "The lane had come to seq {} before, so it will only be read from. To go on from the backup instead:\n  lanekeeper restore --data {} --lane {lane} --accept-head {}:{}\n",
        published.seq,
        data.display(),
        manifest.head.seq,
        manifest.head.hash
    ));
    text
}

/// `SEQ:HASH`
fn head(text: &str) -> Result<Head, String> {
    let rule = || "must be SEQ:HASH, as `lanekeeper verify` shows them".to_owned();
    let (seq, hash) = text.split_once(':').ok_or_else(rule)?;
    Ok(Head { seq: Seq(seq.parse().map_err(|_| rule())?), hash: hash.parse().map_err(|_| rule())? })
}

fn open(archive: &Path) -> Result<File, Failure> {
    File::open(archive).map_err(|error| Failure::usage(format!("cannot read {}: {error}", archive.display())))
}

fn unusable(archive: &Path, error: &StoreError) -> Failure {
    Failure::refused(format!("{} was not restored: {}", archive.display(), error.chain()))
}

fn cannot(action: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::refused(format!("cannot {action} {}: {error}", path.display()))
}

fn failed(error: DataError) -> Failure {
    Failure::because("restore", &error)
}

#[cfg(test)]
mod tests;
