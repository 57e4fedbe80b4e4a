//! `lanekeeper save`

mod batches;

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use http::Method;
use lanekeeper_core::LaneName;
use lanekeeper_core::clock::{Clock as _, SystemClock};
use lanekeeper_core::wire::events::{Projection, SaveResponse, Turn, TurnRole};

use self::batches::{Batch, Batches, Defaults};
use super::{fresh_key, role};
use crate::client::{Answer, Call, Connection, OneLane, Server};
use crate::failure::Failure;
use crate::output;

/// Running the same command again saves nothing twice: each batch goes under an Idempotency-Key made from
/// what it holds. To add turns to a file that was saved, put them into another file.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["text", "file"])))]
pub(crate) struct Save {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    lane: OneLane,
    /// The session; in a file each line may name its own.
    #[arg(long, required_unless_present = "file")]
    session: Option<String>,
    /// Who said it: user, assistant, tool, system. In a file: of lines that name none.
    #[arg(long, value_parser = role, default_value = "assistant", value_name = "ROLE")]
    role: TurnRole,
    /// The speaker, where several people share a role.
    #[arg(long, value_name = "NAME")]
    speaker: Option<String>,
    /// When (RFC 3339 with an offset); default: now.
    #[arg(long, value_name = "TIME", conflicts_with = "file")]
    at: Option<String>,
    /// Save it although the same was saved before.
    #[arg(long)]
    again: bool,
    /// JSON Lines, a turn each: {"text": …, "role"?, "speaker"?, "at"?, "metadata"?, "session"?}; - for stdin.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The turn's text.
    text: Option<String>,
}

/// What a run of `save` did.
#[derive(Debug, Default)]
struct Sum {
    events: u64,
    duplicates: u64,
    batches: u64,
    head: u64,
}

impl Save {
    pub(crate) async fn run(mut self) -> Result<(), Failure> {
        let server = self.connection.open()?;
        let lane = server.lane(self.lane.lane.as_ref()).await?;
        match (self.text.take(), self.file.take()) {
            (Some(text), _) => self.one(&server, &lane, text).await,
            (None, Some(file)) => self.all(&server, &lane, &file).await,
            (None, None) => Err(Failure::usage("a text or --file is needed")),
        }
    }

    async fn one(self, server: &Server, lane: &LaneName, text: String) -> Result<(), Failure> {
        let turn = Turn { role: self.role, text, speaker: self.speaker.clone(), at: self.at.clone(), metadata: None };
        let batch = Batch::single(self.session.clone().unwrap_or_default(), turn);
        let answer = self.send(server, lane, batch).await?;
        if self.connection.json {
            return output::print_raw(&answer.raw);
        }
        output::print(&output::events::saved(&answer.value))
    }

    async fn all(self, server: &Server, lane: &LaneName, file: &Path) -> Result<(), Failure> {
        let defaults = Defaults { session: self.session.clone(), role: self.role, speaker: self.speaker.clone() };
        let now_ms = SystemClock.now_ms();
        let total = if file == Path::new("-") {
            None
        } else {
            // All lines are read once before the first is sent: a bad one is found while nothing is saved yet.
            let mut lines = 0;
            for batch in Batches::open(file, defaults.clone())? {
                let batch = batch?;
                batch.check(now_ms)?;
                lines += batch.turns();
            }
            Some(lines)
        };
        let bar = output::progress::items(total, "turns");
        let mut sum = Sum::default();
        for batch in Batches::open(file, defaults)? {
            let batch = batch?;
            batch.check(now_ms)?;
            let turns = batch.turns();
            let answer = self.send(server, lane, batch).await?;
            sum.add(&answer.value);
            bar.inc(turns);
            if self.connection.json {
                // One answer a line.
                output::print_raw(&answer.raw)?;
            }
        }
        bar.finish_and_clear();
        if self.connection.json { Ok(()) } else { output::print(&sum.readable(lane)) }
    }

    async fn send(&self, server: &Server, lane: &LaneName, batch: Batch) -> Result<Answer<SaveResponse>, Failure> {
        let (body, key) = batch.finish(lane)?;
        let key = if self.again { fresh_key() } else { key };
        let call = Call::on_lane(Method::POST, lane, &["events"]).bytes(body).under_key(key);
        Ok(server.call(call).await?)
    }
}

impl Sum {
    fn add(&mut self, response: &SaveResponse) {
        self.batches += 1;
        self.events += response.events.len() as u64;
        self.duplicates +=
            response.events.iter().filter(|event| event.projection == Projection::Duplicate).count() as u64;
        self.head = self.head.max(response.head.seq.0);
    }

    fn readable(&self, lane: &LaneName) -> String {
        let Self { events, duplicates, batches, head } = self;
        if *events == 0 {
            return "The file holds no turn.\n".to_owned();
        }
        format!(
            "{events} events in lane {lane}, {duplicates} of them with the text of an earlier one; {batches} requests; head at seq {head}\n"
        )
    }
}
