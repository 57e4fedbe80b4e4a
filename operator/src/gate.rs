//! The way every request to the API server takes: a write leaves only while this replica leads, and the start of
//! each watch is noted.
//!
//! What must always hold: no request that changes anything is sent after the term's deadline, and one under way at
//! the deadline is given up. The deadline (10 s after the last renewal was sent) lies 5 s before anybody else may
//! lead (15 s), so what the network still carries has that long to arrive.
//!
//! # Caveats
//! - A process stopped between the check and the send sends when it goes on. The span is that of a function call;
//!   what then arrives is refused where it matters by `resourceVersion` or UID.
//! - The Lease itself is written through a client without this gate.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response};
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// Until when this replica may write.
#[derive(Debug, Clone, Default)]
pub struct Term(Arc<Mutex<Option<Instant>>>);

impl Term {
    /// The deadline, if it has not passed.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).filter(|until| Instant::now() < *until)
    }

    /// Whether this replica leads.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.deadline().is_some()
    }

    /// Begins or prolongs the term.
    pub fn until(&self, deadline: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(deadline);
    }

    /// Ends it at once.
    pub fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Why a write was not sent, or was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotLeading {
    /// It was not sent.
    #[error("this replica does not lead, so it writes nothing")]
    Refused,
    /// The term ended before the answer came.
    #[error("the term ended before the answer to a write")]
    Ended,
}

/// When each watched path was last asked for.
#[derive(Debug, Clone, Default)]
pub struct Watches(Arc<Mutex<HashMap<String, Instant>>>);

impl Watches {
    /// The path whose watch was started longest ago, and how long ago that is. A watch ends after at most 5 minutes
    /// (the client sees to that even if the server does not), so one that was not started anew for much longer
    /// hangs.
    #[must_use]
    pub fn oldest(&self) -> Option<(String, Duration)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = all.iter().min_by_key(|(_, at)| **at)?;
        Some((oldest.0.clone(), oldest.1.elapsed()))
    }

    fn note(&self, path: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), Instant::now());
    }
}

/// Puts the gate round a client's service.
#[derive(Debug, Clone)]
pub struct Gate {
    /// Who may write.
    pub term: Term,
    /// What is watched.
    pub watches: Watches,
}

impl<S> Layer<S> for Gate {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated { gate: self.clone(), inner }
    }
}

/// A service behind the gate.
#[derive(Debug, Clone)]
pub struct Gated<S> {
    gate: Gate,
    inner: S,
}

type Answer<B> = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

impl<S, B> Service<Request<Body>> for Gated<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Answer<B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Answer<B> {
        if request.method() == Method::GET || request.method() == Method::HEAD {
            let query = request.uri().query().unwrap_or_default();
            if query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1") {
                self.gate.watches.note(request.uri().path());
            }
            let answer = self.inner.call(request);
            return Box::pin(async move { answer.await.map_err(Into::into) });
        }
        let Some(deadline) = self.gate.term.deadline() else {
            return Box::pin(async { Err(NotLeading::Refused.into()) });
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            match tokio::time::timeout_at(deadline, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(NotLeading::Ended.into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Mock = tower_test::mock::Mock<Request<Body>, Response<Body>>;
    type Handle = tower_test::mock::Handle<Request<Body>, Response<Body>>;

    fn gated() -> (Gated<Mock>, Handle, Gate) {
        let (inner, handle) = tower_test::mock::pair();
        let gate = Gate { term: Term::default(), watches: Watches::default() };
        (gate.layer(inner), handle, gate)
    }

    fn request(method: Method, uri: &str) -> Request<Body> {
        Request::builder().method(method).uri(uri).body(Body::empty()).unwrap()
    }

    async fn ask(service: &mut Gated<Mock>, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        std::future::poll_fn(|context| service.poll_ready(context)).await?;
        service.call(request).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_leaves_only_within_the_term_and_a_read_always() {
        let (mut service, mut handle, gate) = gated();
        let server = tokio::spawn(async move {
            let mut seen = Vec::new();
            while let Some((request, answer)) = handle.next_request().await {
                seen.push(request.method().clone());
                answer.send_response(Response::new(Body::empty()));
            }
            seen
        });
        for method in [Method::POST, Method::PATCH, Method::PUT, Method::DELETE] {
            let refused = ask(&mut service, request(method, "/api/v1/x")).await.unwrap_err();
            assert_eq!(refused.downcast_ref(), Some(&NotLeading::Refused));
        }
        ask(&mut service, request(Method::GET, "/api/v1/x")).await.unwrap();
        gate.term.until(Instant::now() + Duration::from_secs(10));
        ask(&mut service, request(Method::PATCH, "/api/v1/x")).await.unwrap();
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(ask(&mut service, request(Method::PATCH, "/api/v1/x")).await.is_err(), "after the deadline");
        gate.term.until(Instant::now() + Duration::from_secs(10));
        gate.term.end();
        assert!(ask(&mut service, request(Method::DELETE, "/api/v1/x")).await.is_err(), "after the end");
        drop(service);
        assert_eq!(server.await.unwrap(), [Method::GET, Method::PATCH]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_under_way_is_given_up_at_the_deadline() {
        let (mut service, mut handle, gate) = gated();
        gate.term.until(Instant::now() + Duration::from_secs(10));
        let start = Instant::now();
        let server = tokio::spawn(async move {
            let held = handle.next_request().await;
            std::future::pending::<()>().await;
            drop(held);
        });
        let error = ask(&mut service, request(Method::POST, "/api/v1/x")).await.unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&NotLeading::Ended));
        assert_eq!(start.elapsed(), Duration::from_secs(10));
        server.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_hangs_is_seen_by_its_age() {
        let (mut service, mut handle, gate) = gated();
        tokio::spawn(async move {
            while let Some((_, answer)) = handle.next_request().await {
                answer.send_response(Response::new(Body::empty()));
            }
        });
        assert!(gate.watches.oldest().is_none());
        ask(&mut service, request(Method::GET, "/apis/a?watch=true&x=1")).await.unwrap();
        tokio::time::advance(Duration::from_secs(900)).await;
        ask(&mut service, request(Method::GET, "/apis/b?x=1&watch=true")).await.unwrap();
        ask(&mut service, request(Method::GET, "/apis/a?unwatch=true")).await.unwrap();
        assert_eq!(gate.watches.oldest(), Some(("/apis/a".to_owned(), Duration::from_secs(900))));
    }
}
