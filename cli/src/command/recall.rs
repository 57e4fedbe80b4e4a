//! `lanekeeper recall QUERY`

use clap::{Args, ValueEnum};
use lanekeeper_core::LaneName;
use lanekeeper_core::lane::Ranking;
use lanekeeper_core::wire::events::TurnRole;
use lanekeeper_core::wire::recall::{Filter, Format, RecallRequest, RecallResponse, Surface};

use super::role;
use crate::client::{Answer, Call, Connection};
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Recall {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// The question.
    query: String,
    /// Only this lane; may be given more than once. Default: the token's lane and those it reads.
    #[arg(long = "lane", value_name = "NAMESPACE/NAME")]
    pub(crate) lanes: Vec<LaneName>,
    /// How many hits, 1 to 50.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    top_k: Option<i64>,
    /// Only turns, or only curated memory.
    #[arg(long = "surface", value_enum)]
    surfaces: Vec<SurfaceName>,
    /// Only this session; may be given more than once.
    #[arg(long = "session", value_name = "SESSION", help_heading = "Filters")]
    sessions: Vec<String>,
    /// Only turns of this role: user, assistant, tool, system.
    #[arg(long = "role", value_parser = role, value_name = "ROLE", help_heading = "Filters")]
    roles: Vec<TurnRole>,
    /// Only turns of this speaker.
    #[arg(long = "speaker", value_name = "NAME", help_heading = "Filters")]
    speakers: Vec<String>,
    /// Only from this time on (RFC 3339 with an offset).
    #[arg(long, value_name = "TIME", help_heading = "Filters")]
    from: Option<String>,
    /// Only before this time.
    #[arg(long, value_name = "TIME", help_heading = "Filters")]
    until: Option<String>,
    /// How hits are ranked; default: as the lane says.
    #[arg(long, value_enum)]
    ranking: Option<RankingName>,
    /// How many [[wikilinks]] of the hits are followed, 0 to 8.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    hop_budget: Option<i64>,
    /// Show each arm's score and the terms of the fused score.
    #[arg(long)]
    explain: bool,
    /// Print the hits as fenced data for a model's prompt.
    #[arg(long)]
    prompt: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SurfaceName {
    Turns,
    Memory,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RankingName {
    Fused,
    Rrf,
}

impl Recall {
    fn request(self) -> RecallRequest {
        let surfaces = self.surfaces.iter().map(|surface| match surface {
            SurfaceName::Turns => Surface::Turns,
            SurfaceName::Memory => Surface::Memory,
        });
        let ranking = self.ranking.map(|ranking| match ranking {
            RankingName::Fused => Ranking::Fused,
            RankingName::Rrf => Ranking::Rrf,
        });
        RecallRequest {
            query: self.query,
            // None given is left out; an empty list would mean nothing.
            lanes: (!self.lanes.is_empty()).then(|| self.lanes.iter().map(ToString::to_string).collect()),
            surfaces: (!self.surfaces.is_empty()).then(|| surfaces.collect()),
            top_k: self.top_k,
            filter: Filter {
                session: self.sessions,
                role: self.roles,
                speaker: self.speakers,
                kind: Vec::new(),
                at_gte: self.from,
                at_lt: self.until,
            },
            ranking,
            hop_budget: self.hop_budget,
            explain: self.explain,
            format: self.prompt.then_some(Format::Prompt),
        }
    }

    pub(crate) async fn run(self) -> Result<(), Failure> {
        let server = self.connection.open()?;
        let json = self.connection.json;
        let call = Call::post(&["v1", "recall"]).body(&self.request())?.repeatable();
        let answer: Answer<RecallResponse> = server.call(call).await?;
        if json {
            return output::print_raw(&answer.raw);
        }
        output::print(&output::recall::recall(&answer.value))
    }
}
