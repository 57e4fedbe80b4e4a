//! A lane whose store is another process: asked over HTTPS, each request attested.
//!
//! What must always hold
//! - One retry, and only of reads, or of what surely was not sent (the connection was refused). A write whose answer
//!   was lost is [`LaneError::CommitUnknown`]: the caller's Idempotency-Key decides.
//! - Each attempt has its own nonce and the same deadline.
//! - A store's error comes back as the same error; anything else it may say is that it is not available.
//! - The lane's circuit counts connections and answers, not errors: a store that refuses is alive.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use lanekeeper_core::attest::{HEADER, Request};
use lanekeeper_core::clock::Clock;
use lanekeeper_core::ids::Hash32;
use lanekeeper_core::lane_client::{
    AppendRequest, ByteStream, Caller, Idempotency, LaneClient, LaneStatus, StoreAnswer, StoreRecall,
};
use lanekeeper_core::wire::encoding::WireEncoding;
use lanekeeper_core::wire::events::{EventPage, SaveResponse};
use lanekeeper_core::wire::forget::{ForgetRequest, ForgetResponse};
use lanekeeper_core::wire::memory::{MemoryHistory, MemoryPage, MemorySaveRequest, MemorySaveResponse};
use lanekeeper_core::wire::problem::{ATTESTATION_REFUSED, Problem};
use lanekeeper_core::wire::store::{
    AppendBody, EncodingOrReason, ForgetBody, ListBody, MemoryBody, Nothing, RecallAnswer, RecallBody, SaveMemoryBody,
    StatusAnswer, path,
};
use lanekeeper_core::wire::upkeep::{ImportReport, RebuildReport, RebuildRequest, VerifyReport};
use lanekeeper_core::{LaneError, LaneName, LaneUid, LogId, Seq};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::attesting::{About, Master};
use super::circuit::{Circuit, Permit};
use super::import;
use super::store_answer::{Kind, Trouble, given_up, paced, read, trouble, unavailable};
use super::store_http::StoreHttp;

/// Time for a read or a save.
const USUAL: Duration = Duration::from_secs(10);
/// Time for a forget: it waits for the vectors of a whole session.
const FORGET: Duration = Duration::from_secs(60);
/// Time for a walk of the whole log, and for what makes all of it again.
const WHOLE: Duration = Duration::from_secs(600);
/// Time for one piece of an import.
const PIECE: Duration = Duration::from_secs(120);
/// Time for the head of a streamed answer, and the longest pause in it.
const STREAM: Duration = Duration::from_secs(60);
/// Time for a state.
const STATUS: Duration = Duration::from_secs(2);
/// A state is asked for once in this time, however many want it.
const STATUS_FRESH: Duration = Duration::from_secs(2);
/// A recall's own deadline comes this much earlier than its caller's, so that a store that hangs is counted.
const EARLIER: Duration = Duration::from_millis(100);
/// The pause before the one retry.
const PAUSE: Duration = Duration::from_millis(50);

/// How stores are reached; shared by all lanes.
#[derive(Debug)]
pub struct StoreLink {
    http: StoreHttp,
    master: Master,
    clock: Arc<dyn Clock>,
}

impl StoreLink {
    /// The client, the key, the clock.
    #[must_use]
    pub fn new(http: StoreHttp, master: Master, clock: Arc<dyn Clock>) -> Self {
        Self { http, master, clock }
    }

    /// One look at the files behind both.
    pub(super) fn look(&self) {
        self.http.look();
        self.master.look();
    }
}

/// See the module's head.
#[derive(Debug)]
pub struct RemoteLane {
    name: LaneName,
    uid: LaneUid,
    log_id: LogId,
    base: String,
    link: Arc<StoreLink>,
    circuit: Circuit,
    status: Mutex<Option<(Instant, LaneStatus)>>,
    asking_status: tokio::sync::Mutex<()>,
}

struct Call<'a> {
    method: http::Method,
    path: &'a str,
    body: Bytes,
    content_type: &'static str,
    caller: Option<&'a Caller>,
    idempotency_key: Option<&'a str>,
    if_match: Option<String>,
    kind: Kind,
    budget: Duration,
}

impl<'a> Call<'a> {
    fn json(path: &'a str, caller: &'a Caller, kind: Kind, body: &impl Serialize) -> Result<Self, LaneError> {
        Ok(Self {
            method: http::Method::POST,
            path,
            body: serde_json::to_vec(body).map_err(LaneError::internal)?.into(),
            content_type: "application/json",
            caller: Some(caller),
            idempotency_key: None,
            if_match: None,
            kind,
            budget: USUAL,
        })
    }
}

fn key_of(idempotency: Option<&Idempotency>) -> Option<&str> {
    idempotency.map(|idempotency| idempotency.key.as_str())
}

fn hash_of(idempotency: Option<&Idempotency>) -> Option<Hash32> {
    idempotency.map(|idempotency| Hash32::from_bytes(idempotency.body_sha256))
}

impl RemoteLane {
    /// The lane `name` under this UID and log, whose store answers at `base` (`https://host:port`).
    #[must_use]
    pub fn new(name: LaneName, uid: LaneUid, log_id: LogId, base: impl Into<String>, link: Arc<StoreLink>) -> Self {
        Self {
            name,
            uid,
            log_id,
            base: base.into(),
            link,
            circuit: Circuit::default(),
            status: Mutex::default(),
            asking_status: tokio::sync::Mutex::default(),
        }
    }

    /// Whether its store is not asked at the moment.
    pub(super) fn is_cut_off(&self) -> bool {
        self.circuit.is_open()
    }

    /// One attempt, up to the answer's head.
    async fn attempt(&self, call: &Call<'_>, left: Duration, whole: bool) -> Result<reqwest::Response, AttemptError> {
        let now_ms = self.link.clock.now_ms();
        let deadline_ms = now_ms.saturating_add(i64::try_from(left.as_millis()).unwrap_or(i64::MAX));
        let about = About { lane: self.uid, log_id: self.log_id, caller: call.caller, now_ms, deadline_ms };
        let request = Request {
            method: call.method.as_str(),
            path_and_query: call.path,
            body_sha256: &Sha256::digest(&call.body).into(),
            idempotency_key: call.idempotency_key.map(str::as_bytes),
            if_match: call.if_match.as_deref().map(str::as_bytes),
        };
        let attestation = self.link.master.attest(&about, &request).map_err(AttemptError::Lane)?;
        let mut builder = self
            .link
            .http
            .client()
            .request(call.method.clone(), format!("{}{}", self.base, call.path))
            .header(HEADER, attestation)
            .header(http::header::CONTENT_TYPE, call.content_type)
            .body(call.body.clone());
        if whole {
            builder = builder.timeout(left);
        }
        if let Some(key) = call.idempotency_key {
            builder = builder.header("idempotency-key", key);
        }
        if let Some(version) = &call.if_match {
            builder = builder.header(http::header::IF_MATCH, version);
        }
        match tokio::time::timeout(left, builder.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(AttemptError::Trouble(trouble(&error))),
            Err(_) => Err(AttemptError::Trouble(Trouble::Late)),
        }
    }

    /// An answer as bytes, with the one retry.
    async fn bytes(&self, call: &Call<'_>) -> Result<Vec<u8>, LaneError> {
        let deadline = Instant::now() + call.budget;
        let mut retried = false;
        loop {
            let permit = self.circuit.admit(Instant::now()).ok_or_else(unavailable)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LaneError::Deadline);
            }
            let outcome = match self.attempt(call, left, true).await {
                Ok(response) => read(response).await,
                Err(AttemptError::Trouble(trouble)) => Err(trouble),
                Err(AttemptError::Lane(error)) => return Err(error),
            };
            match outcome {
                Ok((status, bytes)) => {
                    permit.answered();
                    return if status.is_success() { Ok(bytes) } else { Err(self.judge(status, &bytes)) };
                }
                Err(trouble) => {
                    permit.failed(Instant::now());
                    let again = trouble == Trouble::NotSent || (trouble == Trouble::Lost && call.kind == Kind::Read);
                    if retried || !again || deadline.saturating_duration_since(Instant::now()) <= PAUSE {
                        tracing::warn!(lane = %self.name, ?trouble, "the lane's store does not answer");
                        return Err(given_up(trouble, call.kind));
                    }
                    retried = true;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn ask<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<T, LaneError> {
        let bytes = self.bytes(&call).await?;
        serde_json::from_slice(&bytes).map_err(|_| LaneError::internal("the store's answer is not of the protocol"))
    }

    /// An answer that streams. Its head is waited for once; a read that has begun is not begun again.
    async fn stream(&self, path: &str, caller: &Caller) -> Result<ByteStream, LaneError> {
        let call = Call { budget: STREAM, ..Call::json(path, caller, Kind::Read, &Nothing {})? };
        let mut retried = false;
        loop {
            let permit: Permit<'_> = self.circuit.admit(Instant::now()).ok_or_else(unavailable)?;
            match self.attempt(&call, STREAM, false).await {
                Ok(response) if response.status().is_success() => {
                    permit.answered();
                    return Ok(paced(response, STREAM));
                }
                Ok(response) => match read(response).await {
                    Ok((status, bytes)) => {
                        permit.answered();
                        return Err(self.judge(status, &bytes));
                    }
                    Err(_) => {
                        permit.failed(Instant::now());
                        return Err(unavailable());
                    }
                },
                Err(AttemptError::Lane(error)) => return Err(error),
                Err(AttemptError::Trouble(trouble)) => {
                    permit.failed(Instant::now());
                    if retried || trouble == Trouble::Late {
                        return Err(given_up(trouble, Kind::Read));
                    }
                    retried = true;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// What an error answer says.
    fn judge(&self, status: http::StatusCode, bytes: &[u8]) -> LaneError {
        let Ok(problem) = serde_json::from_slice::<Problem>(bytes) else {
            tracing::warn!(lane = %self.name, status = status.as_u16(), "the answer is not the store's own");
            return unavailable();
        };
        if problem.code == ATTESTATION_REFUSED {
            // Keys or clocks: the caller can do nothing about it, and it may be over soon.
            tracing::error!(lane = %self.name, "the lane's store refuses our attestation; its log says why");
            return unavailable();
        }
        problem.into_lane_error().unwrap_or_else(unavailable)
    }

    /// Sends one piece of an import.
    pub(super) async fn import_piece(
        &self,
        caller: &Caller,
        body: Bytes,
        force_personal: bool,
    ) -> Result<ImportReport, LaneError> {
        let path = format!("{}{}", path::IMPORT, if force_personal { "?force_personal=true" } else { "" });
        self.ask(Call {
            method: http::Method::POST,
            path: &path,
            body,
            content_type: "application/x-ndjson",
            caller: Some(caller),
            idempotency_key: None,
            if_match: None,
            kind: Kind::Write,
            budget: PIECE,
        })
        .await
    }

    async fn status_now(&self) -> LaneStatus {
        let call = Call {
            method: http::Method::GET,
            path: path::STATUS,
            body: Bytes::new(),
            content_type: "application/json",
            caller: None,
            idempotency_key: None,
            if_match: None,
            kind: Kind::Read,
            budget: STATUS,
        };
        match self.ask::<StatusAnswer>(call).await {
            Ok(status) => status.into(),
            Err(error) => LaneStatus { reasons: vec![format!("store_{}", error.code())], ..LaneStatus::default() },
        }
    }
}

enum AttemptError {
    Trouble(Trouble),
    Lane(LaneError),
}

#[async_trait]
impl LaneClient for RemoteLane {
    async fn append(&self, caller: &Caller, request: AppendRequest) -> Result<SaveResponse, LaneError> {
        let AppendRequest { save, idempotency } = request;
        let body = AppendBody { save, body_sha256: hash_of(idempotency.as_ref()) };
        let call = Call::json(path::APPEND, caller, Kind::Write, &body)?;
        self.ask(Call { idempotency_key: key_of(idempotency.as_ref()), ..call }).await
    }

    async fn list_events(&self, caller: &Caller, after: Seq, limit: u32) -> Result<EventPage, LaneError> {
        self.ask(Call::json(path::LIST_EVENTS, caller, Kind::Read, &ListBody { after, limit })?).await
    }

    async fn recall(&self, caller: &Caller, request: StoreRecall) -> Result<StoreAnswer, LaneError> {
        let StoreRecall { query, encoding, fingerprint, surfaces, filter, arms_off, idf_pooling, deadline_ms } =
            request;
        // Its own budget ends it: then the reason is what is sent.
        let encoding = match encoding.await {
            Ok(encoding) => match WireEncoding::write(&encoding) {
                Ok(encoding) => EncodingOrReason::Encoding(encoding),
                Err(error) => {
                    tracing::error!(%error, "the question's encoding cannot be sent");
                    EncodingOrReason::Reason("embedder_refused".into())
                }
            },
            Err(reason) => EncodingOrReason::Reason(reason),
        };
        let left = deadline_ms.saturating_sub(self.link.clock.now_ms());
        let left = Duration::from_millis(u64::try_from(left).unwrap_or(0)).saturating_sub(EARLIER);
        let body = RecallBody { query, encoding, fingerprint, surfaces, filter, arms_off, idf_pooling, deadline_ms };
        let call = Call::json(path::RECALL, caller, Kind::Read, &body)?;
        let answer: RecallAnswer = self.ask(Call { budget: left.min(USUAL), ..call }).await?;
        Ok(answer.into())
    }

    async fn known_speakers(&self, caller: &Caller) -> Result<Vec<String>, LaneError> {
        let call = Call::json(path::KNOWN_SPEAKERS, caller, Kind::Read, &Nothing {})?;
        self.ask(Call { budget: STATUS, ..call }).await
    }

    async fn forget(
        &self,
        caller: &Caller,
        request: ForgetRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<ForgetResponse, LaneError> {
        let kind = if request.dry_run { Kind::Read } else { Kind::Write };
        let body = ForgetBody { request, body_sha256: hash_of(idempotency.as_ref()) };
        let call = Call::json(path::FORGET, caller, kind, &body)?;
        self.ask(Call { idempotency_key: key_of(idempotency.as_ref()), budget: FORGET, ..call }).await
    }

    async fn memory(&self, caller: &Caller, query: &str) -> Result<MemoryPage, LaneError> {
        self.ask(Call::json(path::MEMORY, caller, Kind::Read, &MemoryBody { query: query.to_owned() })?).await
    }

    async fn save_memory(
        &self,
        caller: &Caller,
        request: MemorySaveRequest,
        if_match: Option<String>,
        idempotency: Option<Idempotency>,
    ) -> Result<MemorySaveResponse, LaneError> {
        let body = SaveMemoryBody { request, body_sha256: hash_of(idempotency.as_ref()) };
        let call = Call::json(path::SAVE_MEMORY, caller, Kind::Write, &body)?;
        let if_match = if_match.map(|version| format!("\"{version}\""));
        self.ask(Call { idempotency_key: key_of(idempotency.as_ref()), if_match, ..call }).await
    }

    async fn memory_history(&self, caller: &Caller) -> Result<MemoryHistory, LaneError> {
        self.ask(Call::json(path::MEMORY_HISTORY, caller, Kind::Read, &Nothing {})?).await
    }

    async fn verify(&self, caller: &Caller) -> Result<VerifyReport, LaneError> {
        let call = Call::json(path::VERIFY, caller, Kind::Read, &Nothing {})?;
        self.ask(Call { budget: WHOLE, ..call }).await
    }

    async fn rebuild(&self, caller: &Caller, request: RebuildRequest) -> Result<RebuildReport, LaneError> {
        let call = Call::json(path::REBUILD, caller, Kind::Write, &request)?;
        self.ask(Call { budget: WHOLE, ..call }).await
    }

    async fn export(&self, caller: &Caller) -> Result<ByteStream, LaneError> {
        self.stream(path::EXPORT, caller).await
    }

    async fn import(&self, caller: &Caller, body: ByteStream, force_personal: bool) -> Result<ImportReport, LaneError> {
        import::import(body, |piece| Box::pin(self.import_piece(caller, piece, force_personal))).await
    }

    async fn backup(&self, caller: &Caller) -> Result<ByteStream, LaneError> {
        self.stream(path::BACKUP, caller).await
    }

    async fn status(&self) -> LaneStatus {
        let fresh = || {
            let known = self.status.lock().unwrap_or_else(PoisonError::into_inner);
            known.as_ref().filter(|(at, _)| at.elapsed() < STATUS_FRESH).map(|(_, status)| status.clone())
        };
        if let Some(status) = fresh() {
            return status;
        }
        // One asks, the others take what it brings.
        let _asking = self.asking_status.lock().await;
        if let Some(status) = fresh() {
            return status;
        }
        let status = self.status_now().await;
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), status.clone()));
        status
    }
}
