//! The built-in encoder: all-MiniLM-L6-v2 in this process, with token states.
//!
//! What always holds: a passage's vector is the normalised mean over the chunk's own tokens, with
//! context and header read but not pooled; a question comes back as one state for each of its own
//! tokens. The same input gives the same result alone and in a batch, up to rounding.
//!
//! What it deliberately does not do: fetch the model, or weigh a question's tokens: the lane does
//! that, with its own idf.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use lanekeeper_core::LaneUid;
use lanekeeper_core::encoder::{
    Baseline, EncodeError, Encoder, Passage, PassageVector, QueryEncoding, TokenState, Work, WorkKind,
};
use lanekeeper_core::fingerprint::{BUILTIN_MODEL, Fingerprint, FingerprintFields};
use tokio::sync::oneshot;

use crate::baseline::{Measured, Sentences};
use crate::convert::HIDDEN;
use crate::model::{Model, ModelError, Threads};
use crate::pooling;
use crate::scheduler::{Engine, Limits, Scheduler, Step};
use crate::tokens::{PassageTokens, TokenizerError, Tokens, Vocabulary};
use crate::weights::{Installed, WeightsError};

/// Most questions waiting in one lane.
pub const QUERIES_PER_LANE: usize = 64;
/// Most passages waiting in one lane.
pub const PASSAGES_PER_LANE: usize = 512;
/// Longer requests are put into the queue piece by piece, so that their size alone never refuses
/// them.
const PASSAGES_AT_ONCE: usize = 128;

/// Why the built-in encoder cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The model is not there or not whole.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The tokenizer cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The model cannot be used.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// No thread could be started.
    #[error("cannot start the threads of the model")]
    Threads(#[source] std::io::Error),
}

/// How many threads compute.
#[derive(Debug, Clone, Copy)]
pub struct BuiltinOptions {
    /// Batches computed at a time, each on one thread.
    pub threads: usize,
    /// Threads that compute one question, beside those.
    pub query_threads: usize,
}

impl Default for BuiltinOptions {
    /// One batch a core: two batches on a thread each are faster than one batch on two. A question
    /// is answered soonest by two threads; more have too little to do.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { threads: cores, query_threads: cores.min(2) }
    }
}

/// The built-in model, loaded. Cheap to clone; the last clone stops the threads.
#[derive(Debug, Clone)]
pub struct BuiltinEncoder {
    scheduler: Arc<Scheduler<MiniLm>>,
    baseline: Measured,
    fingerprint: Fingerprint,
}

#[derive(Debug)]
enum Job {
    Query(String),
    Passage(Passage),
    /// Nobody asks for this in production: how the reference vectors were pooled.
    #[cfg(test)]
    Sentence(String),
}

#[derive(Debug)]
enum Ready {
    Query { text: String, tokens: Tokens },
    Passage(PassageTokens),
}

#[derive(Debug)]
enum Done {
    Query(QueryEncoding),
    Passage(PassageVector),
}

#[derive(Debug)]
struct MiniLm {
    vocabulary: Vocabulary,
    model: Model,
    /// One entry a seat of the scheduler; the last is that for questions.
    seats: Vec<Threads>,
}

impl MiniLm {
    fn load(installed: &Installed, options: BuiltinOptions) -> Result<Self, OpenError> {
        let tokenizer = installed.tokenizer();
        let json = std::fs::read(&tokenizer).map_err(|source| WeightsError::Read { file: tokenizer, source })?;
        let vocabulary = Vocabulary::from_json(&json)?;
        let model = Model::load(&installed.model())?;
        let mut seats: Vec<Threads> = (0..options.threads.max(1)).map(|_| Threads::new(1)).collect();
        seats.push(Threads::new(options.query_threads.max(1)));
        Ok(Self { vocabulary, model, seats })
    }
}

impl Engine for MiniLm {
    type Job = Job;
    type Ready = Ready;
    type Done = Done;

    fn prepare(&self, job: Job) -> Step<Ready, Done> {
        let ready = match job {
            Job::Query(text) => self.vocabulary.query(&text).map(|tokens| Some(Ready::Query { text, tokens })),
            Job::Passage(passage) => self.vocabulary.passage(&passage).map(|tokens| tokens.map(Ready::Passage)),
            #[cfg(test)]
            Job::Sentence(text) => self.vocabulary.sentence(&text).map(|tokens| Some(Ready::Passage(tokens))),
        };
        match ready {
            Ok(Some(ready)) => Step::Run(ready),
            Ok(None) => Step::Finished(Ok(Done::Passage(PassageVector::ChunkTooLong))),
            // The tokenizer's own words may quote the text.
            Err(_) => Step::Finished(Err(EncodeError::Refused { reason: "the text cannot be tokenised".into() })),
        }
    }

    fn tokens(ready: &Ready) -> usize {
        match ready {
            Ready::Query { tokens, .. } => tokens.ids.len(),
            Ready::Passage(tokens) => tokens.ids.len(),
        }
    }

    fn run(&self, seat: usize, batch: &[Ready]) -> Result<Vec<Done>, EncodeError> {
        let ids: Vec<&[u32]> = batch
            .iter()
            .map(|ready| match ready {
                Ready::Query { tokens, .. } => tokens.ids.as_slice(),
                Ready::Passage(tokens) => tokens.ids.as_slice(),
            })
            .collect();
        let states = self
            .model
            .forward(&ids, &self.seats[seat])
            .map_err(|error| EncodeError::Unavailable { reason: error.to_string() })?;
        let done = batch.iter().enumerate().map(|(row, ready)| match ready {
            Ready::Query { text, tokens } => {
                let own = states.of(row, 1..tokens.ids.len() - 1);
                let tokens = tokens
                    .offsets
                    .iter()
                    .zip(own)
                    .map(|(&(start, end), state)| TokenState { start, end, state: state.to_vec() })
                    .collect();
                Done::Query(QueryEncoding::States { text: text.clone(), tokens })
            }
            Ready::Passage(tokens) => {
                Done::Passage(PassageVector::Vector(pooling::mean(states.of(row, tokens.pooled.clone()))))
            }
        });
        Ok(done.collect())
    }
}

impl BuiltinEncoder {
    /// Opens the model in a folder, checking its bytes first. Takes some tenths of a second and
    /// blocks; the baseline is measured afterwards, in the background.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        Self::open_with(dir, BuiltinOptions::default())
    }

    /// [`Self::open`] with the number of threads given.
    pub fn open_with(dir: &Path, options: BuiltinOptions) -> Result<Self, OpenError> {
        let started = Instant::now();
        let installed = Installed::check(dir)?;
        let general_threads = options.threads.max(1);
        let engine = MiniLm::load(&installed, options)?;
        let limits = Limits {
            general_threads,
            queries_per_lane: QUERIES_PER_LANE,
            passages_per_lane: PASSAGES_PER_LANE,
            batch_texts: 8,
            batch_tokens: 1024,
            window: 32 * general_threads,
        };
        let scheduler = Scheduler::start(engine, limits).map_err(OpenError::Threads)?;
        let fingerprint = FingerprintFields::builtin().fingerprint();
        let baseline = Measured::kept_in(installed.dir(), fingerprint);
        let encoder = Self { scheduler: Arc::new(scheduler), baseline, fingerprint };
        encoder.measure_baseline().map_err(OpenError::Threads)?;
        tracing::info!(threads = general_threads, ms = started.elapsed().as_millis() as u64, "the model is loaded");
        Ok(encoder)
    }

    /// Measures on a thread of its own, unless the folder holds the result already.
    fn measure_baseline(&self) -> std::io::Result<()> {
        if self.baseline.get().is_some() {
            return Ok(());
        }
        // A lane of its own: in the queue it is one among others.
        let lane = LaneUid::from_uuid(uuid::Uuid::nil());
        let sentences = Sentences::builtin();
        let questions: Result<Vec<_>, _> = sentences
            .questions()
            .iter()
            .map(|text| self.scheduler.passages(lane, vec![Job::Query((*text).to_owned())]))
            .collect();
        let passages = sentences.passages().into_iter().map(Job::Passage).collect();
        let (Ok(questions), Ok(passages)) = (questions, self.scheduler.passages(lane, passages)) else {
            // Never at open, with an empty queue; were it so, there would just be no baseline yet.
            return Ok(());
        };
        let baseline = self.baseline.clone();
        std::thread::Builder::new().name("embedder-baseline".into()).spawn(move || {
            let received = |answer: oneshot::Receiver<Result<Done, EncodeError>>| answer.blocking_recv().ok()?.ok();
            let questions: Option<Vec<_>> = questions.into_iter().flatten().map(received).collect();
            let passages: Option<Vec<_>> = passages.into_iter().map(received).collect();
            let (Some(questions), Some(passages)) = (questions, passages) else {
                tracing::warn!("the baseline could not be measured");
                return;
            };
            let questions = questions.iter().filter_map(|done| match done {
                Done::Query(question) => sentences.pool_question(question),
                Done::Passage(_) => None,
            });
            let passages = passages.into_iter().filter_map(|done| match done {
                Done::Passage(PassageVector::Vector(vector)) => Some(vector),
                Done::Passage(PassageVector::ChunkTooLong) | Done::Query(_) => None,
            });
            baseline.set(&questions.collect::<Vec<_>>(), &passages.collect::<Vec<_>>());
        })?;
        Ok(())
    }

    async fn passages_in_pieces(&self, lane: LaneUid, jobs: Vec<Job>) -> Result<Vec<PassageVector>, EncodeError> {
        let mut vectors = Vec::with_capacity(jobs.len());
        let mut jobs = jobs.into_iter();
        loop {
            let piece: Vec<Job> = jobs.by_ref().take(PASSAGES_AT_ONCE).collect();
            if piece.is_empty() {
                return Ok(vectors);
            }
            let answers = self.scheduler.passages(lane, piece)?;
            for answer in answers {
                match received(answer.await)? {
                    Done::Passage(vector) => vectors.push(vector),
                    Done::Query(_) => return Err(mixed_up()),
                }
            }
        }
    }
}

fn received(answer: Result<Result<Done, EncodeError>, oneshot::error::RecvError>) -> Result<Done, EncodeError> {
    // The channel closes without an answer when the model panics and when the encoder is dropped.
    answer.unwrap_or_else(|_| Err(EncodeError::Unavailable { reason: "the model stopped at this text".into() }))
}

fn mixed_up() -> EncodeError {
    EncodeError::Unavailable { reason: "the model answered another question".into() }
}

#[async_trait]
impl Encoder for BuiltinEncoder {
    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    fn dimension(&self) -> usize {
        HIDDEN
    }

    fn model(&self) -> &str {
        BUILTIN_MODEL
    }

    fn has_token_states(&self) -> bool {
        true
    }

    fn baseline(&self) -> Option<Baseline> {
        self.baseline.get()
    }

    async fn encode_query(&self, work: Work, text: &str) -> Result<QueryEncoding, EncodeError> {
        let job = Job::Query(text.to_owned());
        let answers = match work.kind {
            WorkKind::Query => self.scheduler.query(work.lane, job)?,
            WorkKind::Projection => self.scheduler.passages(work.lane, vec![job])?,
        };
        let Some(answer) = answers.into_iter().next() else { return Err(mixed_up()) };
        match received(answer.await)? {
            Done::Query(encoding) => Ok(encoding),
            Done::Passage(_) => Err(mixed_up()),
        }
    }

    async fn encode_passages(&self, work: Work, passages: Vec<Passage>) -> Result<Vec<PassageVector>, EncodeError> {
        // Whatever the kind of work: passages have one queue.
        self.passages_in_pieces(work.lane, passages.into_iter().map(Job::Passage).collect()).await
    }
}

#[cfg(test)]
#[path = "builtin_tests.rs"]
mod tests;
