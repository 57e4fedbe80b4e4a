//! The controllers, and the workers that run them.
//!
//! A reconcile is dereference → validate → build → apply → status. Only the first and the last two touch a client.

pub mod embedder;
pub mod lane;
pub mod pods;
pub mod record;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::backoff::{Backoffs, Class};
use crate::context::Context;
use crate::error::{Error, chain};
use crate::queue::{Key, Queue};

/// How long one reconcile may take.
const DEADLINE: Duration = Duration::from_secs(60);

/// What a reconcile leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing until something changes.
    Done,
    /// Look again at this time at the latest, such as for a renewal.
    After(Duration),
    /// It is not as it should be; look again after a wait of the class, which grows.
    Waiting(Class),
}

impl Next {
    /// The earlier of two.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Waiting(class), _) | (_, Self::Waiting(class)) => Self::Waiting(class),
            (Self::After(one), Self::After(two)) => Self::After(one.min(two)),
            (Self::After(one), Self::Done) | (Self::Done, Self::After(one)) => Self::After(one),
            (Self::Done, Self::Done) => Self::Done,
        }
    }
}

/// Which controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Of lanes.
    Lane,
    /// Of embedders.
    Embedder,
    /// Of records.
    Record,
}

impl Controller {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Lane, Self::Embedder, Self::Record];

    /// In metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lane => "lane",
            Self::Embedder => "embedder",
            Self::Record => "record",
        }
    }

    /// Its queue.
    #[must_use]
    pub const fn queue(self, context: &Context) -> &Queue {
        match self {
            Self::Lane => &context.queues.lanes,
            Self::Embedder => &context.queues.embedders,
            Self::Record => &context.queues.records,
        }
    }

    const fn backoffs(self, context: &Context) -> &Backoffs {
        match self {
            Self::Lane => &context.backoffs[0],
            Self::Embedder => &context.backoffs[1],
            Self::Record => &context.backoffs[2],
        }
    }

    async fn reconcile(self, context: &Context, key: &Key) -> Result<Next, Error> {
        match self {
            Self::Lane => lane::reconcile(context, key).await,
            Self::Embedder => embedder::reconcile(context, key).await,
            Self::Record => record::reconcile(context, key).await,
        }
    }
}

/// Starts the workers of every controller. Dropping `tasks` ends them at once.
pub fn start(context: &Arc<Context>, tasks: &mut JoinSet<()>) {
    for controller in Controller::ALL {
        for _ in 0..context.config.concurrency {
            let context = Arc::clone(context);
            tasks.spawn(async move {
                loop {
                    let key = controller.queue(&context).next().await;
                    work(&context, controller, &key).await;
                }
            });
        }
    }
}

/// One key, to its end.
pub async fn work(context: &Context, controller: Controller, key: &Key) {
    let started = Instant::now();
    let span = tracing::info_span!("reconcile", controller = controller.name(), object = %key);
    let run = AssertUnwindSafe(tokio::time::timeout(DEADLINE, controller.reconcile(context, key))).catch_unwind();
    let outcome = match run.instrument(span.clone()).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(Error::Deadline { seconds: DEADLINE.as_secs() }),
        Err(_) => Err(Error::Panicked),
    };
    let (queue, backoffs) = (controller.queue(context), controller.backoffs(context));
    let result = match &outcome {
        Ok(next) => {
            match next {
                Next::Done => backoffs.succeeded(key),
                Next::After(wait) => {
                    backoffs.succeeded(key);
                    // Spread, so that what was made together is not renewed together.
                    queue.add_after(key.clone(), wait.mul_f64(0.9 + 0.1 * rand::random::<f64>()));
                }
                Next::Waiting(class) => queue.add_after(key.clone(), backoffs.failed(key, *class, rand::random())),
            }
            if matches!(next, Next::Waiting(_)) { "waiting" } else { "ok" }
        }
        Err(error) => {
            let wait = backoffs.failed(key, error.class(), rand::random());
            if error.class() == Class::Soon {
                tracing::debug!(parent: &span, error = chain(error), ?wait, "again");
            } else {
                tracing::warn!(parent: &span, error = chain(error), ?wait, "again");
            }
            queue.add_after(key.clone(), wait);
            error.label()
        }
    };
    queue.done(key);
    context.metrics.reconciled(controller.name(), result, started.elapsed());
}
