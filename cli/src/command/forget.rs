//! `lanekeeper forget`

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use clap::{ArgGroup, Args};
use http::Method;
use lanekeeper_core::wire::forget::{ForgetMemory, ForgetRequest, ForgetResponse};
use lanekeeper_core::{EventId, LaneName};

use super::fresh_key;
use crate::client::{Answer, Call, Connection, OneLane, Server};
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["events", "session", "paragraphs"])))]
pub(crate) struct Forget {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) lane: OneLane,
    /// This event; may be given more than once.
    #[arg(long = "event", value_name = "ID")]
    events: Vec<EventId>,
    /// All turns of this session.
    #[arg(long)]
    session: Option<String>,
    /// This paragraph of curated memory, with its history; may be given more than once.
    #[arg(long = "paragraph", value_name = "ID", requires = "owner")]
    paragraphs: Vec<String>,
    /// Whose curated memory: an owner, or _shared.
    #[arg(long, requires = "paragraphs")]
    owner: Option<String>,
    /// Kept in the log: a code such as user_request, no text.
    #[arg(long, value_name = "CODE")]
    reason: Option<String>,
    /// Say what would be forgotten and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask, even on a terminal.
    #[arg(long, short)]
    yes: bool,
}

impl Forget {
    fn request(&self, dry_run: bool) -> ForgetRequest {
        let memory = self.owner.clone().map(|owner| ForgetMemory { owner, paragraphs: self.paragraphs.clone() });
        ForgetRequest {
            events: (!self.events.is_empty()).then(|| self.events.clone()),
            session: self.session.clone(),
            memory,
            dry_run,
            reason: self.reason.clone(),
        }
    }

    async fn ask(&self, server: &Server, lane: &LaneName, dry_run: bool) -> Result<Answer<ForgetResponse>, Failure> {
        let call = Call::on_lane(Method::POST, lane, &["forget"]).body(&self.request(dry_run))?;
        // A dry run changes nothing, so it needs no key (and leaves none behind).
        let call = if dry_run { call.repeatable() } else { call.under_key(fresh_key()) };
        Ok(server.call(call).await?)
    }

    pub(crate) async fn run(self) -> Result<(), Failure> {
        let server = self.connection.open()?;
        let lane = server.lane(self.lane.lane.as_ref()).await?;
        let at_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if at_terminal && !self.dry_run && !self.yes {
            let would = self.ask(&server, &lane, true).await?;
            output::note(output::forget::forget(&would.value).trim_end());
            if !confirmed(&lane)? {
                return Err(Failure::refused("nothing was forgotten"));
            }
        }
        let answer = self.ask(&server, &lane, self.dry_run).await?;
        if self.connection.json {
            return output::print_raw(&answer.raw);
        }
        output::print(&output::forget::forget(&answer.value))
    }
}

/// Asks a person. Only `yes` is yes: what is forgotten does not come back.
fn confirmed(lane: &LaneName) -> Result<bool, Failure> {
    let cannot = |error: std::io::Error| Failure::refused(format!("cannot ask: {error}"));
    write!(std::io::stderr().lock(), "Forget this in lane {lane}? It does not come back. (yes/no) ").map_err(cannot)?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(cannot)?;
    Ok(line.trim().eq_ignore_ascii_case("yes"))
}
