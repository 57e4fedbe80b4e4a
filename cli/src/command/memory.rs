//! `lanekeeper memory cat|search|save|edit|history`

mod edit;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use http::Method;
use lanekeeper_core::LaneName;
use lanekeeper_core::limits::MEMORY_BYTES;
use lanekeeper_core::scope::SHARED_OWNER;
use lanekeeper_core::wire::memory::{MemoryDocument, MemoryHistory, MemoryPage, MemorySaveRequest, MemorySaveResponse};

use super::fresh_key;
use crate::client::{Answer, Call, ClientError, Connection, OneLane, Server};
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Subcommand)]
pub(crate) enum Memory {
    /// Print the files that the token may read.
    Cat(Cat),
    /// Find paragraphs by literal text.
    Search(Search),
    /// Replace a file as a whole.
    Save(Save),
    /// Edit a file in $VISUAL or $EDITOR.
    Edit(Edit),
    /// List the versions of the files.
    History(History),
}

#[derive(Debug, Args)]
pub(crate) struct Cat {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    lane: OneLane,
    /// Only this owner's file, or _shared.
    #[arg(long)]
    owner: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Search {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    lane: OneLane,
    /// Found literally, without regard to case.
    query: String,
}

#[derive(Debug, Args)]
pub(crate) struct Save {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    lane: OneLane,
    /// The new file; - for stdin. Paragraphs are parted by blank lines.
    file: PathBuf,
    /// The shared file instead of your own.
    #[arg(long)]
    shared: bool,
    /// The version that is replaced, as `memory cat --json` shows it. Default: whatever is there now.
    #[arg(long, value_name = "VERSION")]
    if_match: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Edit {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    lane: OneLane,
    /// The shared file instead of your own.
    #[arg(long)]
    shared: bool,
}

#[derive(Debug, Args)]
pub(crate) struct History {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    lane: OneLane,
}

impl Memory {
    /// How the server is reached, and the lane that is named.
    #[cfg(feature = "kubectl")]
    pub(crate) const fn way(&mut self) -> (&mut Connection, &OneLane) {
        match self {
            Self::Cat(Cat { connection, lane, .. })
            | Self::Search(Search { connection, lane, .. })
            | Self::Save(Save { connection, lane, .. })
            | Self::Edit(Edit { connection, lane, .. })
            | Self::History(History { connection, lane, .. }) => (connection, lane),
        }
    }

    pub(crate) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Cat(cat) => cat.run().await,
            Self::Search(search) => search.run().await,
            Self::Save(save) => save.run().await,
            Self::Edit(edit) => edit.run().await,
            Self::History(history) => history.run().await,
        }
    }
}

impl Cat {
    async fn run(self) -> Result<(), Failure> {
        let server = self.connection.open()?;
        let lane = server.lane(self.lane.lane.as_ref()).await?;
        let answer = page(&server, &lane, "").await?;
        if self.connection.json {
            return output::print_raw(&answer.raw);
        }
        let wanted = |document: &&MemoryDocument| self.owner.as_ref().is_none_or(|owner| *owner == document.owner);
        let documents: Vec<&MemoryDocument> = answer.value.documents.iter().filter(wanted).collect();
        match &self.owner {
            Some(owner) if documents.is_empty() => {
                Err(Failure::refused(format!("there is no memory of {owner} to read")))
            }
            _ => output::print(&output::memory::documents(&documents)),
        }
    }
}

impl Search {
    async fn run(self) -> Result<(), Failure> {
        if self.query.trim().is_empty() {
            return Err(Failure::usage("the query is blank; `lanekeeper memory cat` lists everything"));
        }
        let server = self.connection.open()?;
        let lane = server.lane(self.lane.lane.as_ref()).await?;
        let answer = page(&server, &lane, &self.query).await?;
        if self.connection.json {
            return output::print_raw(&answer.raw);
        }
        output::print(&output::memory::found(&answer.value))
    }
}

impl Save {
    async fn run(self) -> Result<(), Failure> {
        let text = read(&self.file)?;
        let server = self.connection.open()?;
        let lane = server.lane(self.lane.lane.as_ref()).await?;
        let version = match &self.if_match {
            Some(version) => Some(version.clone()),
            None => current(&server, &lane, self.shared).await?.map(|document| document.etag),
        };
        let answer = replace(&server, &lane, text, self.shared, version.as_deref()).await?;
        told(&self.connection, &answer)
    }
}

impl Edit {
    async fn run(self) -> Result<(), Failure> {
        let server = self.connection.open()?;
        let lane = server.lane(self.lane.lane.as_ref()).await?;
        let before = current(&server, &lane, self.shared).await?;
        let draft = edit::Draft::start(before.as_ref().map_or("", |document| &document.text))?;
        let Some(text) = draft.edited()? else {
            output::note("Nothing changed.");
            return Ok(());
        };
        let version = before.map(|document| document.etag);
        match replace(&server, &lane, text, self.shared, version.as_deref()).await {
            Ok(answer) => told(&self.connection, &answer),
            // Whatever the reason, nobody's typing is thrown away.
            Err(error) => {
                let path = draft.keep()?;
                output::note(&format!("Your text is kept in {}.", path.display()));
                Err(error.into())
            }
        }
    }
}

impl History {
    async fn run(self) -> Result<(), Failure> {
        let server = self.connection.open()?;
        let lane = server.lane(self.lane.lane.as_ref()).await?;
        let call = Call::on_lane(Method::GET, &lane, &["memory", "history"]);
        let answer: Answer<MemoryHistory> = server.call(call).await?;
        if self.connection.json {
            return output::print_raw(&answer.raw);
        }
        output::print(&output::memory::history(&answer.value))
    }
}

async fn page(server: &Server, lane: &LaneName, query: &str) -> Result<Answer<MemoryPage>, ClientError> {
    let mut call = Call::on_lane(Method::GET, lane, &["memory"]);
    if !query.is_empty() {
        call = call.query("query", query);
    }
    server.call(call).await
}

/// The file as it is now: the shared one, or the one that is not shared.
async fn current(server: &Server, lane: &LaneName, shared: bool) -> Result<Option<MemoryDocument>, Failure> {
    let documents = page(server, lane, "").await?.value.documents;
    let mut wanted = documents.into_iter().filter(|document| (document.owner == SHARED_OWNER) == shared);
    let found = wanted.next();
    if wanted.next().is_some() {
        return Err(Failure::refused("the token may read several private files; which one is meant cannot be told"));
    }
    Ok(found)
}

async fn replace(
    server: &Server,
    lane: &LaneName,
    text: String,
    shared: bool,
    version: Option<&str>,
) -> Result<Answer<MemorySaveResponse>, ClientError> {
    let body = serde_json::to_vec(&MemorySaveRequest { text, shared }).unwrap_or_default();
    let call = Call::on_lane(Method::PUT, lane, &["memory"]).bytes(body).if_match(version).under_key(fresh_key());
    server.call(call).await
}

fn told(connection: &Connection, answer: &Answer<MemorySaveResponse>) -> Result<(), Failure> {
    if connection.json {
        return output::print_raw(&answer.raw);
    }
    output::print(&output::memory::saved(&answer.value))
}

fn read(path: &Path) -> Result<String, Failure> {
    let cannot = |error: std::io::Error| Failure::usage(format!("cannot read {}: {error}", path.display()));
    let mut text = String::new();
    let limit = MEMORY_BYTES as u64 + 1;
    if path == Path::new("-") {
        std::io::stdin().lock().take(limit).read_to_string(&mut text).map_err(cannot)?;
    } else {
        std::fs::File::open(path).map_err(cannot)?.take(limit).read_to_string(&mut text).map_err(cannot)?;
    }
    if text.len() > MEMORY_BYTES {
        return Err(Failure::usage(format!("{} is over the limit of {MEMORY_BYTES} bytes", path.display())));
    }
    Ok(text)
}
