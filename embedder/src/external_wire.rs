//! One request to an embeddings server and the judgement of its answer.
//!
//! What always holds: the answer's size is bounded by what the declared vectors can need; each input
//! has exactly one vector, found by its `index`; errors carry a status or a rule, never bytes of the
//! server (it may quote the input) or of the token.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lanekeeper_core::encoder::EncodeError;
use lanekeeper_core::secret::Secret;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{StatusCode, Url};
use serde::{Deserialize, Serialize};

use crate::pooling;

/// Characters that a number in JSON takes at most, generously.
const BYTES_PER_NUMBER: usize = 40;
/// For what stands around the numbers.
const BYTES_AROUND: usize = 64 * 1024;
/// A token file larger than this is none.
const TOKEN_BYTES: usize = 16 * 1024;

/// Why a request brought no vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server has too much to do.
    Overloaded,
    /// The server, the network or the token.
    Unavailable(String),
    /// It serves something else than was declared.
    Mismatch(String),
    /// It refuses the inputs.
    Input(String),
    /// It finds the inputs too large.
    TooLarge,
}

impl From<Failure> for EncodeError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Overloaded => Self::Overloaded,
            Failure::Unavailable(reason) => Self::Unavailable { reason },
            Failure::Mismatch(reason) => Self::ModelMismatch { reason },
            Failure::Input(reason) => Self::Refused { reason },
            Failure::TooLarge => Self::Refused { reason: "the server finds the input too large".into() },
        }
    }
}

/// Where and how to ask.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) client: reqwest::Client,
    pub(crate) url: Url,
    pub(crate) model: String,
    pub(crate) accepted_models: Vec<String>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) dimension: usize,
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    input: &'a [String],
    encoding_format: &'static str,
}

#[derive(Deserialize)]
struct Response {
    data: Vec<Item>,
    model: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    index: usize,
    // `null` is how many servers write what is not a number. f64, so that a number too large for an
    // f32 is the judge's matter and not the parser's.
    embedding: Vec<Option<f64>>,
}

impl Server {
    /// Vectors of length 1 for `inputs`, in their order.
    pub(crate) async fn embed(&self, inputs: &[String], timeout: Duration) -> Result<Vec<Vec<f32>>, Failure> {
        let body = Request { model: &self.model, input: inputs, encoding_format: "float" };
        let mut request = self.client.post(self.url.clone()).timeout(timeout).json(&body);
        if let Some(file) = &self.token_file {
            request = request.header(AUTHORIZATION, bearer(file).await?);
        }
        let response = request.send().await.map_err(|error| unreachable(&error))?;
        judge_status(response.status())?;
        let limit = inputs.len() * self.dimension * BYTES_PER_NUMBER + BYTES_AROUND;
        let bytes = read_bounded(response, limit).await?;
        self.judge(&bytes, inputs.len())
    }

    fn judge(&self, bytes: &[u8], count: usize) -> Result<Vec<Vec<f32>>, Failure> {
        let Response { data, model } = serde_json::from_slice(bytes)
            .map_err(|_| Failure::Unavailable("the server's answer is not what the API prescribes".into()))?;
        if let Some(model) = model.filter(|model| !model.is_empty())
            && !self.accepted_models.contains(&model)
        {
            // The name is the server's own and could be anything: cut, and without control characters.
            let name: String = model.chars().filter(|c| !c.is_control()).take(80).collect();
            return Err(Failure::Mismatch(format!("the server names its model {name:?}")));
        }
        let mut vectors: Vec<Option<Vec<f32>>> = vec![None; count];
        for Item { index, embedding } in data {
            if embedding.len() != self.dimension {
                return Err(Failure::Mismatch(format!(
                    "the server's vectors have {} numbers, declared are {}",
                    embedding.len(),
                    self.dimension
                )));
            }
            let slot = vectors.get_mut(index).filter(|slot| slot.is_none());
            *slot.ok_or_else(|| Failure::Unavailable("the server's indices are not those of the inputs".into()))? =
                Some(unit_vector(&embedding)?);
        }
        vectors
            .into_iter()
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| Failure::Unavailable("the server left inputs out".into()))
    }
}

fn unit_vector(numbers: &[Option<f64>]) -> Result<Vec<f32>, Failure> {
    let mut vector: Vec<f32> = numbers.iter().map(|number| number.map_or(f32::NAN, |value| value as f32)).collect();
    if !vector.iter().all(|number| number.is_finite()) {
        return Err(Failure::Input("the server's vector has a number that is not finite".into()));
    }
    if !pooling::normalise(&mut vector) {
        return Err(Failure::Input("the server's vector is zero".into()));
    }
    Ok(vector)
}

fn judge_status(status: StatusCode) -> Result<(), Failure> {
    let answered = || format!("the server answers with status {}", status.as_u16());
    match status.as_u16() {
        200 => Ok(()),
        429 => Err(Failure::Overloaded),
        401 | 403 => Err(Failure::Unavailable(format!("{}: it does not accept the token", answered()))),
        400 | 422 => Err(Failure::Input(answered())),
        413 => Err(Failure::TooLarge),
        _ => Err(Failure::Unavailable(answered())),
    }
}

/// reqwest's own message may hold the URL; its kind is enough.
fn unreachable(error: &reqwest::Error) -> Failure {
    let reason = if error.is_timeout() {
        "the server does not answer in time"
    } else if error.is_connect() {
        "the server cannot be reached"
    } else {
        "the connection to the server broke"
    };
    Failure::Unavailable(reason.into())
}

async fn read_bounded(mut response: reqwest::Response, limit: usize) -> Result<Vec<u8>, Failure> {
    let too_large = || Failure::Unavailable(format!("the server's answer is larger than {limit} bytes"));
    if response.content_length().is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| unreachable(&error))? {
        if bytes.len() + piece.len() > limit {
            return Err(too_large());
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// The `Authorization` header from the token file.
async fn bearer(file: &Path) -> Result<HeaderValue, Failure> {
    let unusable = |why: &str| Failure::Unavailable(format!("the token file {} {why}", file.display()));
    let text = tokio::fs::read_to_string(file).await.map_err(|error| {
        unusable(if error.kind() == io::ErrorKind::NotFound { "is not there" } else { "cannot be read" })
    })?;
    let token = Secret::new(text);
    let trimmed = token.expose().trim();
    if trimmed.is_empty() || trimmed.len() > TOKEN_BYTES || !trimmed.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(unusable("does not hold one token of visible characters"));
    }
    let mut header =
        HeaderValue::from_str(&format!("Bearer {trimmed}")).map_err(|_| unusable("does not fit a header"))?;
    header.set_sensitive(true);
    Ok(header)
}
