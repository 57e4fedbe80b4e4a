//! The choke point: an attestation that is proven for the very request, or 401.
//!
//! What must always hold
//! - [`Attested`] is made here alone, and the [`Caller`] in it comes from the proven statement: no other field of
//!   a request says who asks.
//! - The header is judged before the body is read, and the body before anything of the lane is.
//! - Which check failed is in the log and the metric, never in the answer.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_LENGTH, IF_MATCH};
use axum::http::{HeaderMap, HeaderName};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use lanekeeper_core::attest::{self, Claimed, HEADER, Refused};
use lanekeeper_core::lane_client::Caller;
use lanekeeper_core::wire::problem::Problem;
use lanekeeper_core::wire::store::BODY_BYTES;
use lanekeeper_core::{LaneError, LaneName};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::App;
use super::answer::{Failure, problem};

/// How long a body may take to arrive.
const BODY_WAIT: Duration = Duration::from_secs(30);
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Who asks, as the statement says; without the lane's name, which the store knows itself.
#[derive(Debug, Clone)]
struct Asker {
    principal: lanekeeper_core::Principal,
    scope: lanekeeper_core::scope::EffectiveScope,
    reading_lane: Option<lanekeeper_core::LaneUid>,
}

/// A request whose attestation was proven.
#[derive(Debug, Clone)]
pub(super) struct Attested {
    asker: Option<Asker>,
    lane_uid: lanekeeper_core::LaneUid,
    /// The body that was attested.
    pub(super) body: Bytes,
    /// The header that was attested.
    pub(super) idempotency_key: Option<String>,
    /// The version in If-Match, without its quotes.
    pub(super) if_match: Option<String>,
}

impl Attested {
    /// The caller in the lane of this name. A method of a lane needs one.
    pub(super) fn caller(&self, lane: &LaneName) -> Result<Caller, LaneError> {
        let Some(Asker { principal, scope, reading_lane }) = self.asker.clone() else {
            return Err(LaneError::NotFound { what: "lane" });
        };
        Ok(Caller { principal, lane: lane.clone(), lane_uid: self.lane_uid, scope, reading_lane })
    }

    /// The body as JSON.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, LaneError> {
        let mut deserializer = serde_json::Deserializer::from_slice(&self.body);
        // The parser's own words may quote the body.
        serde_path_to_error::deserialize(&mut deserializer)
            .map_err(|error| LaneError::invalid(error.path().to_string(), "is not of the store protocol"))
    }
}

enum Denied {
    Attestation(Refused),
    Lane(LaneError),
}

impl From<Refused> for Denied {
    fn from(refused: Refused) -> Self {
        Self::Attestation(refused)
    }
}

impl From<LaneError> for Denied {
    fn from(error: LaneError) -> Self {
        Self::Lane(error)
    }
}

/// Lets a request through whose attestation is proven, within its deadline.
pub(super) async fn attest(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let route = request.uri().path().to_owned();
    let response = match app.permits.try_acquire() {
        Err(_) => Failure(LaneError::Overloaded { retry_after_s: 1 }).into_response(),
        Ok(_permit) => match admit(&app, request).await {
            Ok((request, left)) => match tokio::time::timeout(left, next.run(request)).await {
                Ok(response) => response,
                // Nobody waits any more; what a writer was handed it finishes.
                Err(_) => Failure(LaneError::Deadline).into_response(),
            },
            Err(Denied::Lane(error)) => Failure(error).into_response(),
            Err(Denied::Attestation(refused)) => {
                tracing::warn!(reason = refused.reason(), "an attestation is refused: {refused}");
                app.metrics.refused(refused);
                problem(&Problem::attestation_refused())
            }
        },
    };
    app.metrics.answered(&route, &response, started.elapsed());
    response
}

/// The request with its [`Attested`], and the time until its deadline.
async fn admit(app: &App, request: Request) -> Result<(Request, Duration), Denied> {
    let (mut parts, body) = request.into_parts();
    let keys = app.secrets.keys();
    let header = single(&parts.headers, HeaderName::from_static(HEADER))?.ok_or(Refused::Missing)?;
    let header = std::str::from_utf8(header).map_err(|_| Refused::Malformed)?;
    let claimed = Claimed::read(header, &keys, &app.identity, app.clock.now_ms())?;
    let idempotency_key = single(&parts.headers, IDEMPOTENCY_KEY)?;
    let if_match = single(&parts.headers, IF_MATCH)?;
    let body = read(&parts.headers, body).await?;
    let request = attest::Request {
        method: parts.method.as_str(),
        path_and_query: parts.uri.path_and_query().map_or("", |path| path.as_str()),
        body_sha256: &Sha256::digest(&body).into(),
        idempotency_key,
        if_match,
    };
    let now_ms = app.clock.now_ms();
    let proven = {
        let mut nonces = app.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        claimed.prove(&request, now_ms, &mut *nonces)?
    };
    let statement = proven.statement();
    let left = Duration::from_millis(statement.deadline_ms.saturating_sub(now_ms).max(0).unsigned_abs());
    let attested = Attested {
        asker: statement.principal.clone().zip(statement.scope.clone()).map(|(principal, scope)| Asker {
            principal,
            scope,
            reading_lane: statement.reading_lane,
        }),
        lane_uid: statement.lane_uid,
        body,
        idempotency_key: text("Idempotency-Key", idempotency_key)?,
        if_match: text("If-Match", if_match)?.map(unquoted).transpose()?,
    };
    parts.extensions.insert(attested);
    // The body is in the extension: no handler reads one that was not attested.
    Ok((Request::from_parts(parts, Body::empty()), left))
}

/// A header that may stand once at most: of two, one would not be attested.
fn single(headers: &HeaderMap, name: HeaderName) -> Result<Option<&[u8]>, Refused> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    match values.next() {
        Some(_) => Err(Refused::Malformed),
        None => Ok(first.map(axum::http::HeaderValue::as_bytes)),
    }
}

fn text(name: &str, value: Option<&[u8]>) -> Result<Option<String>, LaneError> {
    let invalid = |_| LaneError::invalid(name, "must be ASCII");
    value.map(|bytes| std::str::from_utf8(bytes).map(str::to_owned).map_err(invalid)).transpose()
}

fn unquoted(version: String) -> Result<String, LaneError> {
    let inner = version.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.map(str::to_owned).ok_or_else(|| LaneError::invalid("If-Match", "must be one version in double quotes"))
}

async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, LaneError> {
    let too_large = || LaneError::TooLarge { what: "the body".into(), limit: BODY_BYTES };
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > BODY_BYTES) {
        return Err(too_large());
    }
    let collect = async {
        let mut stream = body.into_data_stream();
        let mut all = BytesMut::new();
        while let Some(part) = stream.next().await {
            let part = part.map_err(|_| LaneError::Unavailable { what: "the rest of the body".into() })?;
            if all.len() + part.len() > BODY_BYTES {
                return Err(too_large());
            }
            all.extend_from_slice(&part);
        }
        Ok(all.freeze())
    };
    match tokio::time::timeout(BODY_WAIT, collect).await {
        Ok(result) => result,
        Err(_) => Err(LaneError::Unavailable { what: "the rest of the body".into() }),
    }
}
