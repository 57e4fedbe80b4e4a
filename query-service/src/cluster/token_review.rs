//! ServiceAccount tokens, judged by the API server.
//!
//! What must always hold: a token counts only where the API server says that it is authenticated *and* names our
//! audience; only ServiceAccounts are known this way; an API server that does not answer refuses nobody for good,
//! it is 503.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use lanekeeper_core::Principal;
use lanekeeper_core::clock::Clock;
use lanekeeper_core::cluster::TOKEN_AUDIENCE;
use lanekeeper_core::hooks::guard;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use super::review_cache::{Review, ReviewCache};
use crate::auth::{ReviewError, Reviewed, TokenReviewer};

/// Reviews at a time: whoever sends made-up tokens must not become a load on the API server.
const AT_A_TIME: usize = 32;
/// Tokens remembered.
const REMEMBERED: usize = 10_000;
/// How long a review may take.
const ANSWER_WAIT: Duration = Duration::from_secs(3);

/// See the module's head.
#[derive(Clone)]
pub struct KubeReviewer {
    api: Api<TokenReview>,
    cache: Arc<ReviewCache>,
    permits: Arc<Semaphore>,
}

impl std::fmt::Debug for KubeReviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeReviewer").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl KubeReviewer {
    /// Asks through this client.
    #[must_use]
    pub fn new(client: Client, clock: Arc<dyn Clock>) -> Self {
        Self {
            api: Api::all(client),
            cache: Arc::new(ReviewCache::new(clock, REMEMBERED)),
            permits: Arc::new(Semaphore::new(AT_A_TIME)),
        }
    }

    async fn ask(self, token: String) -> Review {
        let unavailable = Review { outcome: Err(ReviewError::Unavailable), expires_at_ms: None };
        let Ok(_permit) = self.permits.try_acquire() else {
            tracing::warn!("more tokens are under review than are allowed at a time");
            return unavailable;
        };
        let expires_at_ms = expiry_ms(&token);
        let review = TokenReview {
            spec: TokenReviewSpec { audiences: Some(vec![TOKEN_AUDIENCE.to_owned()]), token: Some(token) },
            ..TokenReview::default()
        };
        let outcome = match tokio::time::timeout(ANSWER_WAIT, self.api.create(&PostParams::default(), &review)).await {
            Ok(Ok(TokenReview { status: Some(status), .. })) => judge(&status),
            Ok(Ok(_)) => Err(ReviewError::Unavailable),
            Ok(Err(error)) => {
                // Its words hold the request's path and no token.
                tracing::warn!(%error, "a token could not be reviewed");
                Err(ReviewError::Unavailable)
            }
            Err(_) => {
                tracing::warn!("the API server does not review tokens in time");
                Err(ReviewError::Unavailable)
            }
        };
        Review { outcome, expires_at_ms }
    }
}

fn judge(status: &TokenReviewStatus) -> Result<Reviewed, ReviewError> {
    let authenticated = status.authenticated == Some(true) && status.error.as_deref().unwrap_or_default().is_empty();
    // An authenticator that knows no audiences names none, and a token for everything is not one for us.
    let for_us = status.audiences.as_ref().is_some_and(|all| all.iter().any(|audience| audience == TOKEN_AUDIENCE));
    if !authenticated || (!for_us && guard("audience")) {
        return Err(ReviewError::Refused);
    }
    let user = status.user.as_ref().ok_or(ReviewError::Refused)?;
    let name = user.username.as_deref().unwrap_or_default();
    let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let (namespace, name) = account.ok_or(ReviewError::Refused)?;
    let principal = Principal::service_account(namespace, name).map_err(|_| ReviewError::Refused)?;
    match user.uid.clone().filter(|uid| !uid.is_empty()) {
        Some(account_uid) => Ok(Reviewed { principal, account_uid }),
        None => Err(ReviewError::Refused),
    }
}

/// When a JWT says that it ends. Believed only to forget it earlier.
fn expiry_ms(token: &str) -> Option<i64> {
    #[derive(serde::Deserialize)]
    struct Ends {
        exp: Option<f64>,
    }
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let exp = serde_json::from_slice::<Ends>(&claims).ok()?.exp?;
    #[expect(clippy::cast_possible_truncation, reason = "saturates, and only shortens")]
    let exp_ms = (exp * 1000.0) as i64;
    Some(exp_ms)
}

impl TokenReviewer for KubeReviewer {
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Reviewed, ReviewError>> {
        let hash = Sha256::digest(token).into();
        self.cache.outcome(hash, move || self.clone().ask(token.to_owned()).boxed()).boxed()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(change: impl FnOnce(&mut Value)) -> Result<Reviewed, ReviewError> {
        let mut status = json!({
            "authenticated": true,
            "audiences": ["lanekeeper"],
            "user": {"username": "system:serviceaccount:team:agent", "uid": "u-1"},
        });
        change(&mut status);
        judge(&serde_json::from_value(status).unwrap())
    }

    #[test]
    fn only_an_authenticated_account_with_our_audience_counts() {
        let agent = status(|_| ()).unwrap();
        assert_eq!((agent.principal.to_string(), agent.account_uid), ("sa:team/agent".into(), "u-1".into()));
        type Change = fn(&mut Value);
        let cases: [(&str, Change); 11] = [
            ("not authenticated", |s| s["authenticated"] = json!(false)),
            ("silent", |s| s["authenticated"] = Value::Null),
            ("with an error", |s| s["error"] = json!("expired")),
            ("another audience", |s| s["audiences"] = json!(["https://kubernetes.default.svc"])),
            ("no audience", |s| s["audiences"] = json!([])),
            ("an authenticator without audiences", |s| s["audiences"] = Value::Null),
            ("a person", |s| s["user"]["username"] = json!("bob")),
            ("a node", |s| s["user"]["username"] = json!("system:node:n1")),
            ("a name that is no owner segment", |s| s["user"]["username"] = json!("system:serviceaccount:team:a.b")),
            ("no uid", |s| s["user"]["uid"] = json!("")),
            ("nobody", |s| s["user"] = Value::Null),
        ];
        for (what, change) in cases {
            assert_eq!(status(change), Err(ReviewError::Refused), "{what}");
        }
    }

    #[test]
    fn an_expiry_is_read_and_never_needed() {
        let token = |claims: &str| format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims));
        assert_eq!(expiry_ms(&token(r#"{"exp":1796000000}"#)), Some(1_796_000_000_000));
        for none in ["", "a.b.c", &token("{}"), &token(r#"{"exp":"x"}"#)] {
            assert_eq!(expiry_ms(none), None, "{none}");
        }
    }
}
