//! Benchmarks. Each figure is a ratio against a baseline measured in the same run where the aim is a
//! ratio, for these machines are noisy; aims are those of issue 3 §6.

mod model;
mod recall;
mod report;
mod store;

pub use report::{Figure, Report};

use anyhow::Result;

/// What to run.
#[derive(Debug, Default)]
pub struct Options {
    /// Only this part: `store`, `recall`, `model`.
    pub only: Option<String>,
}

/// Runs the wanted parts one after the other; `done` hears of each figure as its part ends. A part that
/// fails does not take the others' figures with it.
pub async fn run(options: &Options, mut done: impl FnMut(&Figure)) -> (Report, Vec<String>) {
    let (mut figures, mut failed) = (Vec::new(), Vec::new());
    for part in ["store", "model", "recall"] {
        if options.only.as_deref().is_some_and(|only| only != part) {
            continue;
        }
        let outcome: Result<Vec<Figure>> = match part {
            "store" => store::run().await,
            "model" => model::run(),
            _ => recall::run().await,
        };
        match outcome {
            Ok(found) => {
                found.iter().for_each(&mut done);
                figures.extend(found);
            }
            Err(error) => failed.push(format!("{part}: {error:#}")),
        }
    }
    (Report::new(figures), failed)
}

/// Median and 99th percentile of some times, milliseconds.
pub(crate) fn percentiles(mut times: Vec<f64>) -> (f64, f64, f64) {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index"
        )]
        let index = ((times.len() as f64 - 1.0) * share).round() as usize;
        times[index]
    };
    (at(0.5), at(0.95), at(0.99))
}
