//! Speaking to a server over HTTP.
//!
//! What must always hold: the token goes to the address that was named and to no other (no redirects, no
//! proxy for loopback), and over plain HTTP only on this machine unless somebody says otherwise. A request
//! that changes something is repeated only under one Idempotency-Key.

mod connection;
mod problem;
mod retry;
mod token;
pub(crate) mod transfer;

#[cfg(feature = "kubectl")]
pub(crate) use connection::Through;
pub(crate) use connection::{Connection, OneLane};
pub(crate) use problem::{ClientError, Problem};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, IF_MATCH};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use lanekeeper_core::LaneName;
use lanekeeper_core::secret::Secret;
use lanekeeper_core::wire::lanes::{LaneList, LaneSummary};
use lanekeeper_core::wire::recall::Relation;
use reqwest::Url;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

use crate::failure::Failure;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// How long an answer may take that no long work stands behind.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// A server, with the token for it.
#[derive(Debug)]
pub(crate) struct Server {
    http: reqwest::Client,
    base: Url,
    token: Secret<String>,
    /// Whether refusals are shown as they came.
    raw: bool,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Call {
    method: Method,
    segments: Vec<String>,
    query: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
    headers: Vec<(HeaderName, String)>,
    repeatable: bool,
    patient: bool,
}

impl Call {
    fn new(method: Method, segments: &[&str]) -> Self {
        let repeatable = method == Method::GET;
        let segments = segments.iter().map(|segment| (*segment).to_owned()).collect();
        Self { method, segments, query: Vec::new(), body: None, headers: Vec::new(), repeatable, patient: false }
    }

    pub(crate) fn get(segments: &[&str]) -> Self {
        Self::new(Method::GET, segments)
    }

    pub(crate) fn post(segments: &[&str]) -> Self {
        Self::new(Method::POST, segments)
    }

    /// A call under `/v1/lanes/{namespace}/{name}`.
    pub(crate) fn on_lane(method: Method, lane: &LaneName, rest: &[&str]) -> Self {
        let mut segments = vec!["v1", "lanes", lane.namespace(), lane.name()];
        segments.extend(rest);
        Self::new(method, &segments)
    }

    pub(crate) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    pub(crate) fn body(mut self, body: &impl Serialize) -> Result<Self, Failure> {
        let bytes = serde_json::to_vec(body).map_err(|error| Failure::because("cannot write the request", &error))?;
        self.body = Some(bytes);
        Ok(self)
    }

    /// The body as bytes that are sent as they are.
    pub(crate) fn bytes(mut self, body: Vec<u8>) -> Self {
        self.body = Some(body);
        self
    }

    /// May be repeated: the key makes all tries one request.
    pub(crate) fn under_key(mut self, key: String) -> Self {
        self.headers.push((IDEMPOTENCY_KEY, key));
        self.repeatable = true;
        self
    }

    /// Changes nothing, so it may be repeated.
    pub(crate) const fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    /// The version that is replaced.
    pub(crate) fn if_match(mut self, version: Option<&str>) -> Self {
        if let Some(version) = version {
            self.headers.push((IF_MATCH, format!("\"{version}\"")));
        }
        self
    }

    /// Long work stands behind it: no limit on the answer's time.
    pub(crate) const fn patient(mut self) -> Self {
        self.patient = true;
        self
    }
}

/// An answer, and as what it was read.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    /// Parsed.
    pub(crate) value: T,
    /// As it came.
    pub(crate) raw: Bytes,
}

impl Server {
    /// Sends a request, repeats it where that is safe and may help, and reads the answer.
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: Call) -> Result<Answer<T>, ClientError> {
        let mut tries = retry::Tries::default();
        let raw = loop {
            match self.once(&call).await {
                Ok(raw) => break raw,
                Err(error) => match tries.after(&error).filter(|_| call.repeatable) {
                    Some(pause) => {
                        tracing::info!(pause_ms = pause.as_millis(), reason = error.code(), "trying again");
                        tokio::time::sleep(pause).await;
                    }
                    None => return Err(error),
                },
            }
        };
        let value = serde_json::from_slice(&raw).map_err(|error| ClientError::NotOurs {
            url: self.base.to_string(),
            reason: format!("its answer cannot be read ({error})"),
        })?;
        Ok(Answer { value, raw })
    }

    async fn once(&self, call: &Call) -> Result<Bytes, ClientError> {
        let response = self.send(call, None).await?;
        response.bytes().await.map_err(|source| ClientError::Broken { what: "the answer", source })
    }

    /// Sends a request whose answer is read as it comes.
    pub(crate) async fn download(&self, call: Call) -> Result<reqwest::Response, ClientError> {
        self.send(&call.patient(), None).await
    }

    /// Sends a body as it is made. Never repeated.
    pub(crate) async fn upload(
        &self,
        call: Call,
        content_type: &'static str,
        body: reqwest::Body,
    ) -> Result<Bytes, ClientError> {
        let response = self.send(&call.patient(), Some((content_type, body))).await?;
        response.bytes().await.map_err(|source| ClientError::Broken { what: "the answer", source })
    }

    async fn send(
        &self,
        call: &Call,
        stream: Option<(&'static str, reqwest::Body)>,
    ) -> Result<reqwest::Response, ClientError> {
        let mut request = self.http.request(call.method.clone(), self.url(call));
        // `bearer_auth` marks the header sensitive, so that no debug print shows it.
        request = request.bearer_auth(self.token.expose());
        for (name, value) in &call.headers {
            let value = HeaderValue::try_from(value).map_err(|_| ClientError::NotOurs {
                url: self.base.to_string(),
                reason: format!("the header {name} cannot be sent"),
            })?;
            request = request.header(name, value);
        }
        if let Some((content_type, body)) = stream {
            request = request.header(CONTENT_TYPE, content_type).body(body);
        } else if let Some(body) = &call.body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        if !call.patient {
            request = request.timeout(ANSWER_WAIT);
        }
        let response = request.send().await.map_err(|source| self.not_sent(source))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refusal(response).await)
    }

    fn url(&self, call: &Call) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(&call.segments);
        }
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&call.query);
        }
        url
    }

    fn not_sent(&self, source: reqwest::Error) -> ClientError {
        // The URL is named by us, without the query: a search text may stand in there.
        let source = source.without_url();
        if source.is_connect() {
            return ClientError::Unreachable { url: self.base.to_string(), source };
        }
        ClientError::Broken { what: "the connection", source }
    }

    async fn refusal(&self, response: reqwest::Response) -> ClientError {
        let status = response.status();
        let retry_after = retry::retry_after(response.headers());
        let raw = response.bytes().await.unwrap_or_default();
        match Problem::read(status, &raw, retry_after, self.raw) {
            Some(problem) => ClientError::Problem(Box::new(problem)),
            None => ClientError::NotOurs {
                url: self.base.to_string(),
                reason: format!("it answered {} without saying why in our form", status_text(status)),
            },
        }
    }

    /// The lane that was named, else the one that the token is for.
    pub(crate) async fn lane(&self, named: Option<&LaneName>) -> Result<LaneName, Failure> {
        if let Some(lane) = named {
            return Ok(lane.clone());
        }
        let answer: Answer<LaneList> = self.call(Call::get(&["v1", "lanes"])).await?;
        let own: Vec<LaneSummary> =
            answer.value.lanes.into_iter().filter(|lane| lane.relation == Relation::Own).collect();
        match <[LaneSummary; 1]>::try_from(own) {
            Ok([lane]) => Ok(lane.lane),
            Err(_) => Err(Failure::usage("the token shows no lane of its own: name one with --lane NAMESPACE/NAME")),
        }
    }

    /// How one lane is.
    pub(crate) async fn summary(&self, lane: &LaneName) -> Result<LaneSummary, Failure> {
        let answer: Answer<LaneList> = self.call(Call::get(&["v1", "lanes"])).await?;
        let found = answer.value.lanes.into_iter().find(|summary| &summary.lane == lane);
        found.ok_or_else(|| Failure::refused(format!("the token does not show lane {lane}")))
    }
}

fn status_text(status: StatusCode) -> String {
    status.to_string()
}

#[cfg(test)]
mod tests;
