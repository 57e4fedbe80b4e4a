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

/// Runs all parts.
pub async fn run(options: &Options) -> Result<Report> {
    let wanted = |name: &str| options.only.as_deref().is_none_or(|only| only == name);
    let mut figures = Vec::new();
    if wanted("store") {
        figures.extend(store::run().await?);
    }
    if wanted("recall") {
        figures.extend(recall::run().await?);
    }
    if wanted("model") {
        figures.extend(model::run()?);
    }
    Ok(Report::new(figures))
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
