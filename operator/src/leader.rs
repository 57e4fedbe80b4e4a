//! One of the replicas works: whoever holds the Lease.
//!
//! 1. A candidate looks every 2 s. It takes a Lease that nobody holds, or that it has seen unchanged for the Lease's
//!    own duration (15 s) by its own clock: no two machines' clocks are compared.
//! 2. The holder renews every 2 s. Its term ends 10 s after it sent the last renewal that succeeded, whatever
//!    the API server or the network do meanwhile.
//! 3. On SIGTERM work stops first, then the Lease is given back, so that the other one starts at once.
//!
//! # Guarantees
//! - All writes stop ([`crate::gate`]) 5 s before another may begin.
//!
//! # Assumptions
//! - Clocks of two machines run at about the same speed.
//!
//! # Errors
//! - None leaves: a failed request is logged and tried again, until the term has ended.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::time::Instant;

use crate::error::{chain, is_missing};
use crate::gate::Term;

/// How long a Lease stands that is not renewed.
pub const LEASE: Duration = Duration::from_secs(15);
/// How long after the last renewal the holder may write.
pub const RENEW: Duration = Duration::from_secs(10);
/// How often is looked or renewed.
pub const RETRY: Duration = Duration::from_secs(2);

/// A replica that leads or would like to.
#[derive(Debug)]
pub struct Candidate {
    leases: Api<Lease>,
    name: String,
    identity: String,
    term: Term,
    /// The holder and time of renewal seen last, and since when.
    seen: Option<(Option<String>, Option<MicroTime>, Instant)>,
}

impl Candidate {
    /// `leases` must not be behind the gate. `identity` must be this process's alone.
    #[must_use]
    pub fn new(leases: Api<Lease>, name: impl Into<String>, identity: String, term: Term) -> Self {
        Self { leases, name: name.into(), identity, term, seen: None }
    }

    /// Returns when this replica leads.
    pub async fn win(&mut self) {
        loop {
            let sent = Instant::now();
            match tokio::time::timeout(RENEW, self.try_win()).await {
                // An answer that took longer than the term would be a term that is over.
                Ok(Ok(true)) if sent.elapsed() < RENEW => {
                    self.term.until(sent + RENEW);
                    tracing::info!(identity = self.identity, "leading");
                    return;
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::warn!(error = chain(&error), "the Lease cannot be read or taken"),
                Err(_) => tracing::warn!("the API server does not answer about the Lease"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Renews until the Lease is lost; then the term has ended.
    pub async fn hold(&mut self) {
        loop {
            tokio::time::sleep(RETRY).await;
            let Some(deadline) = self.term.deadline() else { break };
            let sent = Instant::now();
            match tokio::time::timeout_at(deadline, self.renew()).await {
                Ok(Ok(true)) => self.term.until(sent + RENEW),
                Ok(Ok(false)) => {
                    tracing::warn!("another replica leads");
                    break;
                }
                Ok(Err(error)) => tracing::warn!(error = chain(&error), "the Lease was not renewed"),
                Err(_) => break,
            }
        }
        self.term.end();
        tracing::warn!("no longer leading");
    }

    /// Gives the Lease back, if it is held. Work must have stopped.
    pub async fn release(&mut self) {
        self.term.end();
        let released = tokio::time::timeout(RETRY, async {
            let Some(mut lease) = self.read().await? else { return Ok(()) };
            if !self.is_mine(&lease) {
                return Ok(());
            }
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(Timestamp::now()));
            self.leases.replace(&self.name, &PostParams::default(), &lease).await.map(drop)
        })
        .await;
        match released {
            Ok(Ok(())) => tracing::info!("the Lease is given back"),
            Ok(Err(error)) => tracing::warn!(error = chain(&error), "the Lease was not given back"),
            Err(_) => tracing::warn!("the Lease was not given back in time"),
        }
    }

    async fn read(&self) -> Result<Option<Lease>, kube::Error> {
        match self.leases.get(&self.name).await {
            Ok(lease) => Ok(Some(lease)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_mine(&self, lease: &Lease) -> bool {
        lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) == Some(&self.identity)
    }

    async fn try_win(&mut self) -> Result<bool, kube::Error> {
        let Some(lease) = self.read().await? else {
            let mut lease =
                Lease { metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() }, spec: None };
            self.sign(&mut lease, true);
            return taken(self.leases.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let held = spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
        if held && !self.is_mine(&lease) {
            let now = Instant::now();
            let state = (spec.holder_identity.clone(), spec.renew_time.clone());
            let since = match &self.seen {
                Some((holder, renewed, since)) if (holder, renewed) == (&state.0, &state.1) => *since,
                Some(_) | None => {
                    self.seen = Some((state.0, state.1, now));
                    now
                }
            };
            let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            // Never shorter than our own: a holder of ours counts on it.
            let stands = seconds.map_or(LEASE, Duration::from_secs).max(LEASE);
            if now.duration_since(since) < stands {
                return Ok(false);
            }
        }
        let mut lease = lease;
        self.sign(&mut lease, true);
        taken(self.leases.replace(&self.name, &PostParams::default(), &lease).await)
    }

    /// Whether it is still ours.
    async fn renew(&self) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.read().await? else { return Ok(false) };
        if !self.is_mine(&lease) {
            return Ok(false);
        }
        self.sign(&mut lease, false);
        self.leases.replace(&self.name, &PostParams::default(), &lease).await.map(|_| true)
    }

    fn sign(&self, lease: &mut Lease, taking: bool) {
        let now = MicroTime(Timestamp::now());
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if taking {
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = i32::try_from(LEASE.as_secs()).ok();
        spec.renew_time = Some(now);
    }
}

/// A conflict means that somebody else was faster.
fn taken(answer: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match answer {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response, StatusCode};
    use http_body_util::BodyExt as _;
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// An API server with one Lease, that can be away.
    #[derive(Clone, Default)]
    struct Server {
        lease: Arc<Mutex<Option<Value>>>,
        away: Arc<Mutex<bool>>,
    }

    impl Server {
        fn client(&self) -> Client {
            let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
            let server = self.clone();
            tokio::spawn(async move {
                while let Some((request, answer)) = handle.next_request().await {
                    if *server.away.lock().unwrap() {
                        answer.send_error("away");
                        continue;
                    }
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    let (status, body) = server.answer(&parts.method, &body);
                    answer.send_response(Response::builder().status(status).body(Body::from(body)).unwrap());
                }
            });
            Client::new(service, "sys")
        }

        fn answer(&self, method: &http::Method, body: &[u8]) -> (StatusCode, Vec<u8>) {
            let mut lease = self.lease.lock().unwrap();
            let failure = |code: u16, reason: &str| {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                    "reason": reason, "message": reason});
                (StatusCode::from_u16(code).unwrap(), status.to_string().into_bytes())
            };
            let version =
                |lease: &Value| lease["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
            match (method.as_str(), &*lease) {
                ("GET", None) => failure(404, "NotFound"),
                ("GET", Some(stored)) => (StatusCode::OK, stored.to_string().into_bytes()),
                ("POST", Some(_)) => failure(409, "AlreadyExists"),
                ("PUT", Some(stored))
                    if {
                        let sent: Value = serde_json::from_slice(body).unwrap();
                        sent["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"]
                    } =>
                {
                    failure(409, "Conflict")
                }
                (_, stored) => {
                    let next = stored.as_ref().map_or(1, |stored| version(stored) + 1);
                    let mut sent: Value = serde_json::from_slice(body).unwrap();
                    sent["metadata"]["resourceVersion"] = next.to_string().into();
                    *lease = Some(sent.clone());
                    (StatusCode::OK, sent.to_string().into_bytes())
                }
            }
        }

        fn holder(&self) -> Option<String> {
            self.lease.lock().unwrap().as_ref()?["spec"]["holderIdentity"].as_str().map(str::to_owned)
        }

        fn candidate(&self, identity: &str) -> (Candidate, Term) {
            let term = Term::default();
            let leases = Api::namespaced(self.client(), "sys");
            (Candidate::new(leases, "lanekeeper-operator", identity.to_owned(), term.clone()), term)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_second_waits_and_takes_over_only_after_the_first_may_no_longer_write() {
        let server = Server::default();
        let (mut one, one_term) = server.candidate("one");
        let (mut two, _) = server.candidate("two");
        one.win().await;
        assert_eq!(server.holder().as_deref(), Some("one"));
        let second = tokio::time::timeout(Duration::from_secs(5), two.win()).await;
        assert!(second.is_err(), "both lead");
        // The first stops without a word, as under SIGSTOP.
        let stopped = Instant::now();
        two.win().await;
        assert!(!one_term.is_on(), "two leaders");
        assert!(stopped.elapsed() >= Duration::from_secs(9), "too early: {:?}", stopped.elapsed());
        assert_eq!(server.holder().as_deref(), Some("two"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_renews_and_a_candidate_never_wins_meanwhile() {
        let server = Server::default();
        let (mut one, term) = server.candidate("one");
        let (mut two, _) = server.candidate("two");
        one.win().await;
        tokio::select! {
            () = one.hold() => panic!("lost"),
            () = two.win() => panic!("two leaders"),
            () = tokio::time::sleep(Duration::from_secs(300)) => {}
        }
        assert!(term.is_on());
    }

    #[tokio::test(start_paused = true)]
    async fn the_term_ends_ten_seconds_after_the_last_renewal_when_the_server_is_away() {
        let server = Server::default();
        let (mut one, term) = server.candidate("one");
        one.win().await;
        let won = Instant::now();
        *server.away.lock().unwrap() = true;
        one.hold().await;
        assert!(!term.is_on());
        assert!(won.elapsed() <= RENEW + RETRY, "{:?}", won.elapsed());
        *server.away.lock().unwrap() = false;
        one.win().await;
        assert!(term.is_on(), "it may lead again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_given_back_is_taken_at_once() {
        let server = Server::default();
        let (mut one, term) = server.candidate("one");
        let (mut two, _) = server.candidate("two");
        one.win().await;
        one.release().await;
        assert!(!term.is_on());
        let start = Instant::now();
        two.win().await;
        assert!(start.elapsed() <= RETRY, "{:?}", start.elapsed());
        // What was given back is not given back twice.
        one.release().await;
        assert_eq!(server.holder().as_deref(), Some("two"));
    }
}
