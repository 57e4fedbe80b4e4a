//! Who computes what, and when: the threads in front of the model.
//!
//! Callers put work into a [`FairQueue`] each for questions and passages. One thread takes questions
//! alone, so that a question never waits for a batch of passages to end. The others, the *general*
//! ones, take passages, and questions first while that thread is busy. Passages are taken in fair order, a window of them at a
//! time; a window is tokenised, sorted by length and cut into batches, and the next is opened when
//! it runs out. So a passage waits for no more than its lane's turns before it and one window.
//!
//! What always holds: a caller gets one answer or is told that there will be none (its channel
//! closes), also when the model panics; work whose caller is gone is dropped before it costs a
//! forward pass; nothing here blocks a caller's thread.
//!
//! What it deliberately does not do: know what a question or a vector is. That is the [`Engine`].

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use lanekeeper_core::LaneUid;
use lanekeeper_core::encoder::EncodeError;
use tokio::sync::oneshot;

use crate::fair_queue::{FairQueue, Full};

/// What computes. Called on the scheduler's threads only; may block and may panic.
pub(crate) trait Engine: Send + Sync + 'static {
    /// What a caller asks.
    type Job: Send + 'static;
    /// A job after its cheap part (tokenising).
    type Ready: Send + 'static;
    /// What a caller gets.
    type Done: Send + 'static;

    /// The cheap part.
    fn prepare(&self, job: Self::Job) -> Step<Self::Ready, Self::Done>;
    /// Length of a prepared job; a batch is padded to its longest.
    fn tokens(ready: &Self::Ready) -> usize;
    /// The costly part, for all of a batch; one result each, in order.
    fn run(&self, seat: usize, batch: &[Self::Ready]) -> Result<Vec<Self::Done>, EncodeError>;
}

/// What became of a job's cheap part.
#[derive(Debug)]
pub(crate) enum Step<R, D> {
    /// To be run.
    Run(R),
    /// Nothing to run.
    Finished(Result<D, EncodeError>),
}

/// How much of what at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Threads that take questions and passages.
    pub(crate) general_threads: usize,
    /// Most questions waiting in one lane.
    pub(crate) queries_per_lane: usize,
    /// Most passages waiting in one lane.
    pub(crate) passages_per_lane: usize,
    /// Most texts in one forward pass.
    pub(crate) batch_texts: usize,
    /// Most tokens in one forward pass, padding included; a single text may have more.
    pub(crate) batch_tokens: usize,
    /// Passages that are sorted by length together.
    pub(crate) window: usize,
}

struct Waiting<W, D> {
    work: W,
    answer: oneshot::Sender<Result<D, EncodeError>>,
}

impl<W, D> Waiting<W, D> {
    fn is_awaited(&self) -> bool {
        !self.answer.is_closed()
    }

    fn reply(self, result: Result<D, EncodeError>) {
        // A caller that went away in the meantime wants no answer.
        let _ = self.answer.send(result);
    }
}

type Queued<E> = Waiting<<E as Engine>::Job, <E as Engine>::Done>;
type Prepared<E> = Waiting<<E as Engine>::Ready, <E as Engine>::Done>;

struct State<E: Engine> {
    open: bool,
    /// The thread for questions has some in hand.
    asking: bool,
    queries: FairQueue<Queued<E>>,
    passages: FairQueue<Queued<E>>,
    /// What is left of the window: passages ready to run.
    batches: VecDeque<Vec<Prepared<E>>>,
}

struct Shared<E: Engine> {
    engine: E,
    limits: Limits,
    state: Mutex<State<E>>,
    changed: Condvar,
}

/// What a thread does next.
enum Turn<E: Engine> {
    Queries(Vec<Queued<E>>),
    Tokenise(Vec<Queued<E>>),
    Passages(Vec<Prepared<E>>),
    Stop,
}

/// The answers to one call, in the order of its jobs.
pub(crate) type Answers<D> = Vec<oneshot::Receiver<Result<D, EncodeError>>>;

/// The handle callers share. Dropping it stops the threads after what they run at the moment.
pub(crate) struct Scheduler<E: Engine> {
    shared: Arc<Shared<E>>,
}

impl<E: Engine> std::fmt::Debug for Scheduler<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}

impl<E: Engine> Scheduler<E> {
    /// Starts `limits.general_threads` + 1 threads; the engine sees them as seats, the last being
    /// the one for questions alone.
    pub(crate) fn start(engine: E, limits: Limits) -> std::io::Result<Self> {
        let state = State {
            open: true,
            asking: false,
            queries: FairQueue::new(limits.queries_per_lane),
            passages: FairQueue::new(limits.passages_per_lane),
            batches: VecDeque::new(),
        };
        let shared = Arc::new(Shared { engine, limits, state: Mutex::new(state), changed: Condvar::new() });
        // Made before the threads: if one cannot be started, dropping it stops the others.
        let scheduler = Self { shared };
        for seat in 0..=limits.general_threads {
            let shared = Arc::clone(&scheduler.shared);
            thread::Builder::new().name(format!("embedder-{seat}")).spawn(move || shared.work(seat))?;
        }
        Ok(scheduler)
    }

    /// Queues a question.
    pub(crate) fn query(&self, lane: LaneUid, job: E::Job) -> Result<Answers<E::Done>, EncodeError> {
        self.submit(lane, vec![job], |state| &mut state.queries)
    }

    /// Queues passages, all or none.
    pub(crate) fn passages(&self, lane: LaneUid, jobs: Vec<E::Job>) -> Result<Answers<E::Done>, EncodeError> {
        self.submit(lane, jobs, |state| &mut state.passages)
    }

    fn submit(
        &self,
        lane: LaneUid,
        jobs: Vec<E::Job>,
        queue: impl Fn(&mut State<E>) -> &mut FairQueue<Queued<E>>,
    ) -> Result<Answers<E::Done>, EncodeError> {
        let (queued, answers) = jobs
            .into_iter()
            .map(|work| {
                let (answer, receiver) = oneshot::channel();
                (Waiting { work, answer }, receiver)
            })
            .unzip();
        let mut state = self.shared.state();
        queue(&mut state).push(lane, queued, Waiting::is_awaited).map_err(|Full| EncodeError::Overloaded)?;
        drop(state);
        // All of them: the one woken first may be one that does not take this kind of work.
        self.shared.changed.notify_all();
        Ok(answers)
    }
}

impl<E: Engine> Drop for Scheduler<E> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.open = false;
        // Closes the callers' channels.
        state.queries.clear();
        state.passages.clear();
        state.batches.clear();
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl<E: Engine> Shared<E> {
    /// The lock survives a panic: no code that holds it can leave the state half changed.
    fn state(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread's life. A panic ends the turn, not the thread: the work it had in hand is dropped,
    /// which tells its callers.
    fn work(&self, seat: usize) {
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.turn(seat))) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => tracing::error!(seat, "the model panicked; its callers are told and the thread goes on"),
            }
        }
    }

    /// One turn; `false` to stop.
    fn turn(&self, seat: usize) -> bool {
        match self.next(seat) {
            Turn::Queries(queries) => {
                for batch in
                    into_batches::<E>(self.tokenise(queries), self.limits.batch_texts, self.limits.batch_tokens)
                {
                    self.run(seat, batch);
                }
            }
            Turn::Tokenise(passages) => {
                let ready = self.tokenise(passages);
                // A few passages are shared among the threads rather than put in one batch.
                let share = ready.len().div_ceil(self.limits.general_threads.max(1));
                let texts = self.limits.batch_texts.min(share);
                let batches = into_batches::<E>(ready, texts, self.limits.batch_tokens);
                let mut state = self.state();
                if state.open {
                    state.batches.extend(batches);
                }
                drop(state);
                self.changed.notify_all();
            }
            Turn::Passages(batch) => self.run(seat, batch),
            Turn::Stop => return false,
        }
        true
    }

    /// Waits for something to do.
    fn next(&self, seat: usize) -> Turn<E> {
        let general = seat < self.limits.general_threads;
        let mut state = self.state();
        if !general {
            state.asking = false;
        }
        loop {
            if !state.open {
                return Turn::Stop;
            }
            if !state.queries.is_empty() && (!general || state.asking) {
                state.asking = true;
                let queries = take_awaited(&mut state.queries, self.limits.batch_texts);
                if !state.queries.is_empty() {
                    // There is more than this thread takes: the general ones may help now.
                    self.changed.notify_all();
                }
                return Turn::Queries(queries);
            }
            if general {
                // The next window is opened while the others still have a batch each to run.
                if state.batches.len() < self.limits.general_threads && !state.passages.is_empty() {
                    return Turn::Tokenise(take_awaited(&mut state.passages, self.limits.window));
                }
                if let Some(mut batch) = state.batches.pop_front() {
                    batch.retain(Waiting::is_awaited);
                    return Turn::Passages(batch);
                }
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn tokenise(&self, queued: Vec<Queued<E>>) -> Vec<Prepared<E>> {
        let mut ready = Vec::with_capacity(queued.len());
        for Waiting { work, answer } in queued {
            match self.engine.prepare(work) {
                Step::Run(work) => ready.push(Waiting { work, answer }),
                Step::Finished(result) => Waiting { work: (), answer }.reply(result),
            }
        }
        ready
    }

    fn run(&self, seat: usize, batch: Vec<Prepared<E>>) {
        if batch.is_empty() {
            return;
        }
        let (work, answers): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|Waiting { work, answer }| (work, Waiting { work: (), answer })).unzip();
        match self.engine.run(seat, &work) {
            Ok(results) => {
                debug_assert_eq!(results.len(), answers.len(), "one result each");
                for (answer, result) in answers.into_iter().zip(results) {
                    answer.reply(Ok(result));
                }
            }
            Err(error) => {
                for answer in answers {
                    answer.reply(Err(error.clone()));
                }
            }
        }
    }
}

/// Up to `most` in fair order, those that nobody waits for left out.
fn take_awaited<J, D>(queue: &mut FairQueue<Waiting<J, D>>, most: usize) -> Vec<Waiting<J, D>> {
    std::iter::from_fn(|| queue.pop()).filter(Waiting::is_awaited).take(most).collect()
}

/// Texts of similar length side by side, as many in a batch as the limits allow, one at least.
fn into_batches<E: Engine>(mut ready: Vec<Prepared<E>>, texts: usize, tokens: usize) -> Vec<Vec<Prepared<E>>> {
    ready.sort_by_key(|waiting| E::tokens(&waiting.work));
    let mut batches: Vec<Vec<Prepared<E>>> = Vec::new();
    for waiting in ready {
        // Ascending, so the newcomer is what the batch would be padded to.
        let length = E::tokens(&waiting.work);
        match batches.last_mut() {
            Some(batch) if batch.len() < texts && length * (batch.len() + 1) <= tokens => batch.push(waiting),
            Some(_) | None => batches.push(vec![waiting]),
        }
    }
    batches
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
