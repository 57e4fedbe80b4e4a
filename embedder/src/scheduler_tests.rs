//! The scheduler against an engine whose every step the test controls.

use std::sync::mpsc;
use std::time::Duration;

use super::*;

const LIMITS: Limits = Limits {
    general_threads: 2,
    queries_per_lane: 64,
    passages_per_lane: 512,
    batch_texts: 8,
    batch_tokens: 1024,
    window: 32,
};
const SOON: Duration = Duration::from_secs(20);

fn lane(number: u8) -> LaneUid {
    format!("00000000-0000-4000-8000-0000000000{number:02x}").parse().unwrap()
}

/// Tells every batch to the test and runs it only when the test says so.
struct Gated {
    batches: Mutex<mpsc::Sender<Vec<String>>>,
    gate: Mutex<mpsc::Receiver<()>>,
}

impl Engine for Gated {
    type Job = String;
    type Ready = String;
    type Done = usize;
    fn prepare(&self, job: String) -> Step<String, usize> {
        match job.as_str() {
            "panic while tokenising" => panic!("asked for"),
            "finished" => Step::Finished(Ok(0)),
            _ => Step::Run(job),
        }
    }
    fn tokens(ready: &String) -> usize {
        ready.len()
    }
    fn run(&self, _: usize, batch: &[String]) -> Result<Vec<usize>, EncodeError> {
        let _ = self.batches.lock().unwrap_or_else(PoisonError::into_inner).send(batch.to_vec());
        // A closed gate is an open one: tests that do not care for order drop the sender.
        let _ = self.gate.lock().unwrap_or_else(PoisonError::into_inner).recv();
        assert!(!batch.iter().any(|text| text == "panic"), "asked for");
        if batch.iter().any(|text| text == "fail") {
            return Err(EncodeError::Unavailable { reason: "asked for".into() });
        }
        Ok(batch.iter().map(String::len).collect())
    }
}

fn start(limits: Limits) -> (Scheduler<Gated>, mpsc::Receiver<Vec<String>>, mpsc::Sender<()>) {
    let (batches, seen) = mpsc::channel();
    let (open, gate) = mpsc::channel();
    let engine = Gated { batches: Mutex::new(batches), gate: Mutex::new(gate) };
    (Scheduler::start(engine, limits).unwrap(), seen, open)
}

fn texts(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number:03}")).collect()
}

/// The answers of one call; a closed channel is a lost piece of work.
fn wait(answers: Answers<usize>) -> Vec<Option<Result<usize, EncodeError>>> {
    answers.into_iter().map(|answer| answer.blocking_recv().ok()).collect()
}

#[test]
fn every_job_gets_its_own_answer() {
    let (scheduler, _seen, open) = start(LIMITS);
    drop(open);
    let jobs: Vec<String> = (0..200).map(|length| "x".repeat(length * 7 % 50)).collect();
    let expected: Vec<usize> = jobs.iter().map(String::len).collect();
    let got: Vec<usize> =
        wait(scheduler.passages(lane(1), jobs).unwrap()).into_iter().map(|r| r.unwrap().unwrap()).collect();
    assert_eq!(got, expected);
}

#[test]
fn a_lane_with_500_passages_holds_up_no_other_lane() {
    // One general thread: all order is the scheduler's.
    let (scheduler, seen, open) = start(Limits { general_threads: 1, ..LIMITS });
    let flood = scheduler.passages(lane(1), texts("flood", 500)).unwrap();
    assert_eq!(seen.recv_timeout(SOON).unwrap().len(), 8);
    // The general thread is inside a batch of the flood. A question of another lane starts now,
    // not after that batch.
    let question = scheduler.query(lane(2), "question".into()).unwrap();
    assert_eq!(seen.recv_timeout(SOON).unwrap(), ["question"]);
    // And a passage of another lane waits for the windows that are open, not for the 500.
    let late = scheduler.passages(lane(3), texts("late", 1)).unwrap();
    drop(open);
    assert_eq!(wait(question), [Some(Ok(8))]);
    assert_eq!(wait(late), [Some(Ok(7))]);
    let flood_before_late: usize = seen
        .iter()
        .take_while(|batch| !batch.iter().any(|text| text.starts_with("late")))
        .map(|batch| batch.len())
        .sum();
    // The rest of the first window, and all of the second but the late one.
    assert!(flood_before_late < 2 * LIMITS.window, "{flood_before_late} passages of the flood went first");
    assert!(wait(flood).into_iter().all(|answer| answer == Some(Ok(8))));
}

#[test]
fn questions_go_before_passages() {
    let (scheduler, seen, open) = start(Limits { general_threads: 1, ..LIMITS });
    let passages = scheduler.passages(lane(1), texts("passage", 40)).unwrap();
    let first = seen.recv_timeout(SOON).unwrap();
    assert!(first[0].starts_with("passage"));
    // The thread for questions takes one; the others are there when the general thread is free.
    let mut questions = scheduler.query(lane(1), "q0".into()).unwrap();
    assert_eq!(seen.recv_timeout(SOON).unwrap(), ["q0"]);
    for question in texts("q", 5) {
        questions.extend(scheduler.query(lane(1), question).unwrap());
    }
    open.send(()).unwrap();
    // Whichever of the two threads was let go, what it takes next are the questions.
    assert!(seen.recv_timeout(SOON).unwrap().iter().all(|text| text.starts_with('q')));
    drop(open);
    assert!(wait(questions).into_iter().all(|answer| matches!(answer, Some(Ok(_)))));
    assert!(wait(passages).into_iter().all(|answer| matches!(answer, Some(Ok(_)))));
}

#[test]
fn a_full_lane_is_overloaded_and_others_are_not() {
    let (scheduler, seen, open) = start(Limits { general_threads: 1, queries_per_lane: 2, ..LIMITS });
    // Both threads are inside the model.
    let mut held = scheduler.passages(lane(9), texts("held", 1)).unwrap();
    seen.recv_timeout(SOON).unwrap();
    held.extend(scheduler.query(lane(9), "held".into()).unwrap());
    seen.recv_timeout(SOON).unwrap();
    let kept = [scheduler.query(lane(1), "a".into()).unwrap(), scheduler.query(lane(1), "b".into()).unwrap()];
    assert_eq!(scheduler.query(lane(1), "c".into()).unwrap_err(), EncodeError::Overloaded);
    let other = scheduler.query(lane(2), "d".into()).unwrap();
    assert_eq!(scheduler.passages(lane(1), texts("p", 513)).unwrap_err(), EncodeError::Overloaded);
    let [first, second] = kept;
    // A caller that went away makes room.
    drop(second);
    let again = scheduler.query(lane(1), "c".into()).unwrap();
    drop(open);
    for answers in [held, first, other, again] {
        assert!(wait(answers).into_iter().all(|answer| matches!(answer, Some(Ok(_)))));
    }
}

#[test]
fn work_that_nobody_waits_for_is_not_run() {
    let (scheduler, seen, open) = start(Limits { general_threads: 1, ..LIMITS });
    let first = scheduler.passages(lane(1), texts("first", 1)).unwrap();
    seen.recv_timeout(SOON).unwrap();
    let mut gone = scheduler.passages(lane(1), texts("gone", 30)).unwrap();
    let kept = gone.remove(29);
    drop(gone);
    open.send(()).unwrap();
    assert_eq!(seen.recv_timeout(SOON).unwrap(), ["gone029"]);
    drop(open);
    assert_eq!(wait(vec![kept]), [Some(Ok(7))]);
    assert_eq!(wait(first), [Some(Ok(8))]);
    drop(scheduler);
    assert_eq!(seen.iter().count(), 0);
}

#[test]
fn a_panic_is_told_to_its_callers_and_stops_nothing() {
    let (scheduler, _seen, open) = start(Limits { general_threads: 1, ..LIMITS });
    drop(open);
    for _ in 0..3 {
        assert_eq!(wait(scheduler.passages(lane(1), vec!["panic".into()]).unwrap()), [None]);
        assert_eq!(wait(scheduler.query(lane(1), "panic while tokenising".into()).unwrap()), [None]);
    }
    assert_eq!(wait(scheduler.passages(lane(1), vec!["fine".into()]).unwrap()), [Some(Ok(4))]);
    assert_eq!(wait(scheduler.query(lane(1), "fine".into()).unwrap()), [Some(Ok(4))]);
}

#[test]
fn an_error_of_the_engine_reaches_the_whole_batch() {
    let (scheduler, _seen, open) = start(Limits { general_threads: 1, ..LIMITS });
    drop(open);
    let answers = wait(scheduler.passages(lane(1), vec!["good".into(), "fail".into(), "finished".into()]).unwrap());
    assert!(matches!(answers[1], Some(Err(EncodeError::Unavailable { .. }))));
    assert_eq!(answers[2], Some(Ok(0)), "finished while tokenising: not part of the batch");
}

#[test]
fn dropping_the_scheduler_ends_all_waiting() {
    let (scheduler, seen, open) = start(Limits { general_threads: 1, ..LIMITS });
    let running = scheduler.passages(lane(1), texts("running", 1)).unwrap();
    seen.recv_timeout(SOON).unwrap();
    let waiting = scheduler.passages(lane(2), texts("waiting", 3)).unwrap();
    drop(scheduler);
    assert_eq!(wait(waiting), [None, None, None]);
    drop(open);
    assert_eq!(wait(running), [Some(Ok(10))]);
    // The threads end, and with them the engine that holds the sender.
    assert!(matches!(seen.recv_timeout(SOON), Err(mpsc::RecvTimeoutError::Disconnected)));
}

#[test]
fn batches_are_of_similar_length() {
    let batches = |lengths: &[usize], texts, tokens| -> Vec<Vec<usize>> {
        let ready: Vec<Prepared<Gated>> =
            lengths.iter().map(|&length| Waiting { work: "x".repeat(length), answer: oneshot::channel().0 }).collect();
        into_batches::<Gated>(ready, texts, tokens)
            .iter()
            .map(|batch| batch.iter().map(|waiting| waiting.work.len()).collect())
            .collect()
    };
    assert_eq!(batches(&[100, 10, 101, 240, 12, 99, 11], 3, 1024), [vec![10, 11, 12], vec![99, 100, 101], vec![240]]);
    // By padded tokens; what is alone over the limit still runs, alone.
    assert_eq!(batches(&[50, 50, 50, 240], 8, 100), [vec![50, 50], vec![50], vec![240]]);
    assert_eq!(batches(&[], 8, 100), Vec::<Vec<usize>>::new());
}

#[test]
fn many_questions_are_taken_by_all_threads() {
    let (scheduler, seen, open) = start(Limits { general_threads: 1, batch_texts: 1, ..LIMITS });
    let answers: Vec<_> = texts("q", 3).into_iter().map(|text| scheduler.query(lane(1), text).unwrap()).collect();
    // Both threads are inside the model with one each.
    assert_eq!(seen.recv_timeout(SOON).unwrap().len(), 1);
    assert_eq!(seen.recv_timeout(SOON).unwrap().len(), 1);
    assert!(matches!(seen.try_recv(), Err(mpsc::TryRecvError::Empty)));
    drop(open);
    assert!(answers.into_iter().flat_map(wait).all(|answer| answer == Some(Ok(4))));
}
