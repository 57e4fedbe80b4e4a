//! `lanekeeper check`: whether a lane remembers. Saves a marker, asks for it in other words until every arm that
//! holds turns was searched, and forgets it. `helm test` runs it with `--create` in a pod, on a lane of its own.

mod own_lane;

use std::time::{Duration, Instant};

use clap::Args;
use http::Method;
use lanekeeper_core::LaneName;
use lanekeeper_core::wire::events::{SaveRequest, SaveResponse, Turn, TurnRole};
use lanekeeper_core::wire::forget::{ForgetRequest, ForgetResponse};
use lanekeeper_core::wire::recall::{Arm, Filter, LaneCoverage, RecallRequest, RecallResponse};

use self::own_lane::{ApiServer, Wanted};
use super::fresh_key;
use crate::client::{Answer, Call, Connection, Server};
use crate::failure::Failure;
use crate::output;

const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    connection: Connection,
    /// Which lane.
    #[arg(long, env = "LANEKEEPER_LANE", value_name = "NAMESPACE/NAME")]
    lane: LaneName,
    /// Make the lane by the API server of the cluster this runs in, and erase it afterwards.
    #[arg(long, requires = "service_account")]
    create: bool,
    /// Whom the made lane lets in.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    service_account: Option<LaneName>,
    /// Size of the made lane's volume.
    #[arg(long, value_name = "SIZE", default_value = "100Mi")]
    storage: String,
    /// StorageClass of the made lane's volume; default: the cluster's.
    #[arg(long, value_name = "NAME")]
    storage_class: Option<String>,
    /// How long each step may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3600))]
    wait: u64,
}

impl Check {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        // Before anything is made: a token that is missing is found now.
        let server = self.connection.open()?;
        let within = Duration::from_secs(self.wait);
        let Some(account) = self.service_account.as_ref().filter(|_| self.create) else {
            return self.check(&server, within).await;
        };
        let api = ApiServer::of_this_pod()?;
        let wanted = Wanted { account, size: &self.storage, class: self.storage_class.as_deref() };
        let outcome = async {
            api.make(&self.lane, &wanted, within).await?;
            self.check(&server, within).await
        }
        .await;
        // Erased whatever came of it; the first failure is the one that is told.
        let erased = api.erase(&self.lane, within).await;
        outcome.and(erased)
    }

    async fn check(&self, server: &Server, within: Duration) -> Result<(), Failure> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let (session, marker) = (format!("lanekeeper-check-{id}"), format!("LANTERN-{}", &id[..8]));
        self.save(server, &session, &format!("The keeper of the lighthouse noted the word {marker}."), within).await?;
        let outcome = self.found(server, &session, &marker, within).await;
        let forgotten = self.forget(server, &session).await;
        outcome.and(forgotten)?;
        output::print(&format!("Lane {} remembers: saved, recalled by every arm, forgotten.\n", self.lane))
    }

    /// A lane that has just become ready may be unknown to a replica for a moment.
    async fn save(&self, server: &Server, session: &str, text: &str, within: Duration) -> Result<(), Failure> {
        let turn = Turn { role: TurnRole::Assistant, text: text.to_owned(), speaker: None, at: None, metadata: None };
        let request = SaveRequest { session: session.to_owned(), turns: vec![turn], expected_head: None };
        let (key, deadline) = (fresh_key(), Instant::now() + within);
        loop {
            let call = Call::on_lane(Method::POST, &self.lane, &["events"]).body(&request)?.under_key(key.clone());
            match server.call::<SaveResponse>(call).await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() >= deadline => return Err(error.into()),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Until every arm that holds turns was searched: then vectors were made, too.
    async fn found(&self, server: &Server, session: &str, marker: &str, within: Duration) -> Result<(), Failure> {
        let request = RecallRequest {
            query: "what did the lighthouse keeper write down".to_owned(),
            lanes: Some(vec![self.lane.to_string()]),
            surfaces: None,
            top_k: None,
            filter: Filter { session: vec![session.to_owned()], ..Filter::default() },
            ranking: None,
            hop_budget: None,
            explain: false,
            format: None,
        };
        let deadline = Instant::now() + within;
        loop {
            let call = Call::post(&["v1", "recall"]).body(&request)?.repeatable();
            let answer: Answer<RecallResponse> = server.call(call).await?;
            let found = answer.value.hits.iter().any(|hit| hit.text.contains(marker));
            if !found {
                return Err(Failure::refused(format!("lane {} does not find what was saved a moment ago", self.lane)));
            }
            if answer.value.coverage.lanes.iter().any(|lane| lane.lane == self.lane && all_turns_searched(lane)) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                output::note(&output::recall::recall(&answer.value));
                return Err(Failure::refused(format!(
                    "lane {} found the marker, but after {} s still not everything was searched",
                    self.lane, self.wait
                )));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn forget(&self, server: &Server, session: &str) -> Result<(), Failure> {
        let request = ForgetRequest {
            events: None,
            session: Some(session.to_owned()),
            memory: None,
            dry_run: false,
            reason: Some("check".to_owned()),
        };
        let call = Call::on_lane(Method::POST, &self.lane, &["forget"]).body(&request)?.under_key(fresh_key());
        server.call::<ForgetResponse>(call).await?;
        Ok(())
    }
}

/// Whether every arm that holds turns was searched with none left out. An answer to a question about one session is
/// never one about the whole corpus: curated memory is of no session.
fn all_turns_searched(lane: &LaneCoverage) -> bool {
    let wholly = |arm| lane.arms.get(&arm).is_some_and(|arm| arm.searched && arm.reason.is_none());
    lane.counts.pending_projection == 0 && [Arm::TurnText, Arm::WindowText, Arm::Vector].into_iter().all(wholly)
}
