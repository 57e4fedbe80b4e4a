//! What is remembered of reviewed tokens: by SHA-256, shortly, within a bound; and that a token under review is
//! reviewed once however many ask.
//!
//! What must always hold: nothing is remembered of a call that failed; a token is forgotten when it expires; a full
//! cache forgets the oldest and never refuses.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use lanekeeper_core::clock::Clock;

use crate::auth::{ReviewError, Reviewed};

/// How long a token that holds is not asked about again, milliseconds.
const GOOD_MS: i64 = 30_000;
/// How long one that does not.
const BAD_MS: i64 = 5_000;

pub(super) type TokenHash = [u8; 32];
type Outcome = Result<Reviewed, ReviewError>;
type Running = Shared<BoxFuture<'static, Outcome>>;

/// A review with the token's own end, where it has one.
#[derive(Debug, Clone)]
pub(super) struct Review {
    pub(super) outcome: Outcome,
    pub(super) expires_at_ms: Option<i64>,
}

#[derive(Default)]
struct State {
    known: HashMap<TokenHash, (Outcome, i64)>,
    /// In the order remembered; a hash stands once.
    order: VecDeque<TokenHash>,
    running: HashMap<TokenHash, Running>,
}

pub(super) struct ReviewCache {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
    limit: usize,
}

impl std::fmt::Debug for ReviewCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReviewCache").field("limit", &self.limit).finish_non_exhaustive()
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReviewCache {
    pub(super) fn new(clock: Arc<dyn Clock>, limit: usize) -> Self {
        Self { state: Arc::default(), clock, limit: limit.max(1) }
    }

    /// What is known of a token, or what `review` says of it.
    pub(super) async fn outcome(
        &self,
        hash: TokenHash,
        review: impl FnOnce() -> BoxFuture<'static, Review>,
    ) -> Outcome {
        let running = {
            let mut state = lock(&self.state);
            let now_ms = self.clock.now_ms();
            match state.known.get(&hash) {
                Some((outcome, until_ms)) if now_ms < *until_ms => return outcome.clone(),
                Some(_) | None => {}
            }
            match state.running.get(&hash) {
                Some(running) => running.clone(),
                None => {
                    let running = self.run(hash, review());
                    state.running.insert(hash, running.clone());
                    running
                }
            }
        };
        running.await
    }

    /// In a task of its own: whoever asked first may give up, and the others still wait.
    fn run(&self, hash: TokenHash, review: impl Future<Output = Review> + Send + 'static) -> Running {
        let (state, clock, limit) = (Arc::clone(&self.state), Arc::clone(&self.clock), self.limit);
        let task = tokio::spawn(async move {
            let finished = std::panic::AssertUnwindSafe(review).catch_unwind().await;
            let mut state = lock(&state);
            state.running.remove(&hash);
            let Ok(Review { outcome, expires_at_ms }) = finished else { return Err(ReviewError::Unavailable) };
            let kept_ms = match &outcome {
                Ok(_) => Some(GOOD_MS),
                Err(ReviewError::Refused) => Some(BAD_MS),
                Err(ReviewError::Unavailable) => None,
            };
            if let Some(kept_ms) = kept_ms {
                let until_ms = clock.now_ms().saturating_add(kept_ms).min(expires_at_ms.unwrap_or(i64::MAX));
                remember(&mut state, hash, (outcome.clone(), until_ms), limit);
            }
            outcome
        });
        task.map(|joined| joined.unwrap_or(Err(ReviewError::Unavailable))).boxed().shared()
    }
}

fn remember(state: &mut State, hash: TokenHash, entry: (Outcome, i64), limit: usize) {
    if state.known.insert(hash, entry).is_some() {
        state.order.retain(|known| *known != hash);
    }
    state.order.push_back(hash);
    while state.known.len() > limit {
        let Some(oldest) = state.order.pop_front() else { return };
        state.known.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use lanekeeper_core::clock::ManualClock;
    use tokio::sync::Notify;

    use super::*;

    struct Stage {
        cache: ReviewCache,
        clock: ManualClock,
        calls: Arc<AtomicUsize>,
    }

    impl Stage {
        fn new(limit: usize) -> Self {
            let clock = ManualClock::new(1_000_000);
            Self { cache: ReviewCache::new(Arc::new(clock.clone()), limit), clock, calls: Arc::default() }
        }

        async fn ask(&self, token: u8, outcome: Outcome, expires_at_ms: Option<i64>) -> Outcome {
            let calls = Arc::clone(&self.calls);
            let review = move || {
                calls.fetch_add(1, Ordering::SeqCst);
                std::future::ready(Review { outcome, expires_at_ms }).boxed()
            };
            self.cache.outcome([token; 32], review).await
        }

        fn calls(&self) -> usize {
            self.calls.load(Ordering::SeqCst)
        }
    }

    fn agent() -> Outcome {
        Ok(Reviewed { principal: "sa:team/agent".parse().unwrap(), account_uid: "u".into() })
    }

    #[tokio::test]
    async fn good_bad_and_unknown_are_remembered_for_their_time() {
        for (outcome, kept_ms) in
            [(agent(), 30_000), (Err(ReviewError::Refused), 5_000), (Err(ReviewError::Unavailable), 0)]
        {
            let stage = Stage::new(10);
            assert_eq!(stage.ask(1, outcome.clone(), None).await, outcome);
            if kept_ms > 0 {
                stage.clock.advance(kept_ms - 1);
                assert_eq!(stage.ask(1, Err(ReviewError::Unavailable), None).await, outcome);
                assert_eq!(stage.calls(), 1);
                stage.clock.advance(1);
            }
            assert_eq!(stage.ask(1, agent(), None).await, agent());
            assert_eq!(stage.calls(), 2);
        }
    }

    #[tokio::test]
    async fn a_token_is_forgotten_when_it_expires() {
        let stage = Stage::new(10);
        stage.ask(1, agent(), Some(1_010_000)).await.unwrap();
        stage.clock.advance(9_999);
        stage.ask(1, agent(), None).await.unwrap();
        assert_eq!(stage.calls(), 1);
        stage.clock.advance(1);
        assert_eq!(stage.ask(1, Err(ReviewError::Refused), None).await, Err(ReviewError::Refused));
    }

    #[tokio::test]
    async fn a_full_cache_forgets_the_oldest() {
        let stage = Stage::new(2);
        for token in [1, 2, 3, 3, 2] {
            stage.ask(token, agent(), None).await.unwrap();
        }
        assert_eq!(stage.calls(), 3);
        stage.ask(1, agent(), None).await.unwrap();
        assert_eq!(stage.calls(), 4);
        let state = lock(&stage.cache.state);
        assert_eq!((state.known.len(), state.order.len(), state.running.len()), (2, 2, 0));
    }

    #[tokio::test]
    async fn one_call_is_in_flight_a_token_and_outlives_who_asked_first() {
        let stage = Stage::new(10);
        let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let slow = |begun: Arc<Notify>, go: Arc<Notify>, calls: Arc<AtomicUsize>| {
            move || {
                async move {
                    calls.fetch_add(1, Ordering::SeqCst);
                    begun.notify_one();
                    go.notified().await;
                    Review { outcome: agent(), expires_at_ms: None }
                }
                .boxed()
            }
        };
        let first = stage.cache.outcome([1; 32], slow(begun.clone(), go.clone(), stage.calls.clone()));
        {
            let mut first = std::pin::pin!(first);
            assert!(futures::poll!(&mut first).is_pending());
            begun.notified().await;
        }
        // The first gave up. Two more ask while the call runs.
        let others = futures::future::join(stage.ask(1, agent(), None), stage.ask(1, agent(), None));
        let mut others = std::pin::pin!(others);
        assert!(futures::poll!(&mut others).is_pending());
        go.notify_one();
        assert_eq!(others.await, (agent(), agent()));
        assert_eq!(stage.calls(), 1);
    }

    #[tokio::test]
    async fn a_review_that_panics_is_no_review() {
        let stage = Stage::new(10);
        let outcome = stage.cache.outcome([1; 32], || async { panic!("a test") }.boxed()).await;
        assert_eq!(outcome, Err(ReviewError::Unavailable));
        assert_eq!(stage.ask(1, agent(), None).await, agent());
    }
}
