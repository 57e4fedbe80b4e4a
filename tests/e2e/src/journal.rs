//! A writer that keeps its own journal: what it sent, under which key, and what was acknowledged. Afterwards the
//! log is held against it: nothing acknowledged may be missing, nothing sent may stand twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::api::Caller;

/// A try that failed is made again under the same key, as clients do.
const PAUSE: Duration = Duration::from_millis(200);
/// How long one save may take, tries and all: longer than a pod takes to come back.
const GIVE_UP: Duration = Duration::from_secs(120);

#[derive(Debug, Default)]
struct Entries {
    /// Id of the event, by text.
    acknowledged: BTreeMap<String, String>,
    /// Texts of which no answer is known.
    open: BTreeSet<String>,
    /// What went wrong on the way, by code, for the record.
    refusals: BTreeMap<String, usize>,
    longest_gap: Duration,
}

/// Writers at work.
pub(crate) struct Journal {
    entries: Arc<Mutex<Entries>>,
    stop: Arc<AtomicBool>,
    writers: Vec<JoinHandle<()>>,
    lane: String,
}

/// What the comparison found.
#[derive(Debug)]
pub(crate) struct Audit {
    /// How many saves were acknowledged.
    pub(crate) acknowledged: usize,
    /// The longest time in which one save got no answer.
    pub(crate) longest_gap: Duration,
    /// Refusals on the way, by code.
    pub(crate) refusals: BTreeMap<String, usize>,
}

fn lock(entries: &Mutex<Entries>) -> std::sync::MutexGuard<'_, Entries> {
    entries.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Journal {
    /// Starts `writers` writers, each saving one turn after the other.
    pub(crate) fn start(caller: &Arc<Caller>, lane: &str, writers: usize) -> Self {
        Self::paced(caller, lane, writers, Duration::ZERO)
    }

    /// The same with a pause between one writer's saves: a load that an embedder can follow.
    pub(crate) fn paced(caller: &Arc<Caller>, lane: &str, writers: usize, pause: Duration) -> Self {
        let (entries, stop) = (Arc::new(Mutex::new(Entries::default())), Arc::new(AtomicBool::new(false)));
        let writers = (0..writers)
            .map(|writer| {
                let (caller, lane) = (Arc::clone(caller), lane.to_owned());
                let (entries, stop) = (Arc::clone(&entries), Arc::clone(&stop));
                tokio::spawn(async move {
                    let mut number = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        number += 1;
                        let text = format!("writer {writer} notes number {number} as {}", uuid::Uuid::new_v4());
                        write(&caller, &lane, &format!("journal-{writer}"), &text, &entries).await;
                        tokio::time::sleep(pause).await;
                    }
                })
            })
            .collect();
        Self { entries, stop, writers, lane: lane.to_owned() }
    }

    /// How many saves are acknowledged so far.
    pub(crate) fn acknowledged(&self) -> usize {
        lock(&self.entries).acknowledged.len()
    }

    /// What went wrong so far, by code.
    pub(crate) fn refusals(&self) -> BTreeMap<String, usize> {
        lock(&self.entries).refusals.clone()
    }

    /// Waits until a save was refused with `code`.
    pub(crate) async fn refused(&self, code: &str, within: Duration) -> Result<()> {
        crate::wait::until(&format!("a save refused with {code}"), within, || async move {
            let refusals = self.refusals();
            Ok(if refusals.keys().any(|refusal| refusal.contains(code)) {
                crate::wait::Seen::Yes(())
            } else {
                crate::wait::Seen::NotYet(format!("refusals {refusals:?}"))
            })
        })
        .await
    }

    /// Waits for `more` further acknowledgements: proof that writing goes on.
    pub(crate) async fn progress(&self, more: usize, within: Duration) -> Result<()> {
        let goal = self.acknowledged() + more;
        crate::wait::until(&format!("{more} more acknowledged saves"), within, || async move {
            let now = self.acknowledged();
            let refusals = self.refusals();
            Ok(if now >= goal {
                crate::wait::Seen::Yes(())
            } else {
                crate::wait::Seen::NotYet(format!("{now} of {goal}; refusals {refusals:?}"))
            })
        })
        .await
    }

    /// Stops the writers and holds the log against the journal.
    pub(crate) async fn audit(self, caller: &Caller) -> Result<Audit> {
        self.stop.store(true, Ordering::Relaxed);
        for writer in self.writers {
            writer.await.context("a writer")?;
        }
        caller.verified(&self.lane).await?;
        let mut stored: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for event in caller.events(&self.lane).await? {
            if event["kind"] == "turn" {
                let text = event["text"].as_str().unwrap_or_default().to_owned();
                stored.entry(text).or_default().push(event["id"].as_str().unwrap_or_default().to_owned());
            }
        }
        let entries = lock(&self.entries);
        let Entries { acknowledged, open, refusals, longest_gap } = &*entries;
        for (text, id) in acknowledged {
            match stored.get(text).map(Vec::as_slice) {
                Some([one]) if one == id => {}
                Some(found) => bail!("acknowledged as {id}, stored as {found:?}: {text}"),
                None => bail!("acknowledged as {id} and lost: {text}"),
            }
        }
        // Of the others it is not known; twice is wrong even so.
        for (text, found) in &stored {
            ensure!(found.len() == 1, "stored {} times: {text}", found.len());
            let ours = acknowledged.contains_key(text) || open.contains(text) || !text.starts_with("writer ");
            ensure!(ours, "stored and never sent: {text}");
        }
        Ok(Audit { acknowledged: acknowledged.len(), longest_gap: *longest_gap, refusals: refusals.clone() })
    }
}

async fn write(caller: &Caller, lane: &str, session: &str, text: &str, entries: &Mutex<Entries>) {
    let key = uuid::Uuid::now_v7().to_string();
    lock(entries).open.insert(text.to_owned());
    let began = Instant::now();
    while began.elapsed() < GIVE_UP {
        let refusal = match caller.save_under(lane, session, &[text], &key).await {
            Ok(answer) if answer.status.as_u16() == 201 => {
                let id = answer.body["events"][0]["id"].as_str().unwrap_or_default().to_owned();
                let mut entries = lock(entries);
                entries.open.remove(text);
                entries.acknowledged.insert(text.to_owned(), id);
                entries.longest_gap = entries.longest_gap.max(began.elapsed());
                return;
            }
            Ok(answer) => {
                let code = answer.body["code"].as_str().unwrap_or("none").to_owned();
                format!("{} {code}", answer.status.as_u16())
            }
            Err(_) => "no connection".to_owned(),
        };
        *lock(entries).refusals.entry(refusal).or_default() += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Recalls without end, until told.
pub(crate) struct Recalls {
    stop: Arc<AtomicBool>,
    task: JoinHandle<(usize, Vec<String>)>,
}

impl Recalls {
    /// Starts one that asks `question`, ten times a second at most.
    pub(crate) fn start(caller: &Arc<Caller>, lane: &str, question: &'static str) -> Self {
        let (stop, caller, lane) = (Arc::new(AtomicBool::new(false)), Arc::clone(caller), lane.to_owned());
        let told = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let (mut asked, mut failed) = (0, Vec::new());
            while !told.load(Ordering::Relaxed) {
                asked += 1;
                match caller.recall(question, json!({"lanes": [lane]})).await {
                    Ok(answer) if answer.status == 200 => {}
                    Ok(answer) => failed.push(format!("{} {}", answer.status, answer.body)),
                    Err(error) => failed.push(format!("{error:#}")),
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            (asked, failed)
        });
        Self { stop, task }
    }

    /// How many were asked, and what went wrong with which.
    pub(crate) async fn end(self) -> Result<(usize, Vec<String>)> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.task.await?)
    }
}
