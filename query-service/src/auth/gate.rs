//! The door: holds the directory and the verifiers, lets a credential in, and shows the rest of the crate
//! nothing of a lane but what the credential reaches.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use lanekeeper_core::LaneError;
use lanekeeper_core::clock::Clock;
use lanekeeper_core::lane_client::LaneStatus;

use super::reach::Reach;
use super::verify::{Unknown, Verifiers};
use super::{AuthError, SUSPENDED};
use crate::directory::LaneDirectory;
use crate::problem::EdgeError;

/// How long a lane has to say how it is.
const STATUS_BUDGET: Duration = Duration::from_secs(2);

pub(crate) struct Gate {
    directory: Arc<dyn LaneDirectory>,
    verifiers: Verifiers,
    clock: Arc<dyn Clock>,
}

impl Gate {
    pub(crate) fn new(directory: Arc<dyn LaneDirectory>, verifiers: Verifiers, clock: Arc<dyn Clock>) -> Self {
        Self { directory, verifiers, clock }
    }

    /// What the request's credential reaches.
    pub(super) async fn reach(&self, headers: &HeaderMap) -> Result<Reach, EdgeError> {
        let token = bearer(headers)?;
        let credential = match self.verifiers.authenticate(token, self.clock.now_ms()).await {
            Ok(credential) => credential,
            Err(Unknown::Auth(error)) => return Err(error.into()),
            Err(Unknown::Unavailable) => {
                return Err(LaneError::Unavailable { what: "the check of tokens".into() }.into());
            }
        };
        // Read after the token was judged, which may have taken a while: access counts as it is now.
        Ok(Reach::derive(&credential, &self.directory.lanes(), self.directory.as_ref())?)
    }

    /// How every lane is, without names: for `/readyz` and metrics, which are not behind a credential.
    pub(crate) async fn nameless_statuses(&self) -> Vec<LaneStatus> {
        join_all(self.directory.lanes().into_iter().map(|lane| async move {
            if lane.view.suspend {
                return unready(SUSPENDED);
            }
            status(lane.client.status()).await
        }))
        .await
    }
}

/// A lane's state; one that does not answer in time is not ready.
pub(crate) async fn status(asked: impl Future<Output = LaneStatus>) -> LaneStatus {
    tokio::time::timeout(STATUS_BUDGET, asked).await.unwrap_or_else(|_| unready("status_timeout"))
}

fn unready(reason: &str) -> LaneStatus {
    LaneStatus { reasons: vec![reason.to_owned()], ..LaneStatus::default() }
}

/// The one token of the one Authorization header.
fn bearer(headers: &HeaderMap) -> Result<&str, AuthError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(AuthError::Missing)?;
    if values.next().is_some() {
        return Err(AuthError::Invalid);
    }
    let value = value.to_str().map_err(|_| AuthError::Invalid)?;
    match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => Ok(token.trim()),
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("bearer") => Err(AuthError::Missing),
        _ => Err(AuthError::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bearer_token_is_read() {
        let headers = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().unwrap());
            }
            headers
        };
        assert_eq!(bearer(&headers(&["Bearer abc"])), Ok("abc"));
        assert_eq!(bearer(&headers(&["bearer  abc"])), Ok("abc"));
        assert_eq!(bearer(&headers(&[])), Err(AuthError::Missing));
        assert_eq!(bearer(&headers(&["Bearer "])), Err(AuthError::Missing));
        assert_eq!(bearer(&headers(&["Basic abc"])), Err(AuthError::Invalid));
        assert_eq!(bearer(&headers(&["abc"])), Err(AuthError::Invalid));
        assert_eq!(bearer(&headers(&["Bearer a", "Bearer b"])), Err(AuthError::Invalid));
    }
}
