//! Judges the demo from the answers that `examples/demo.sh` stored, never from what it prints.
//!
//! What must always hold: a step that is missing, cut off or unreadable has failed; every step is judged,
//! also after one that failed; exit code 0 means that all hold. The rules know the example conversation and
//! the wire's form, and share no code with the program: a fault of ours must not judge itself.
//! What it does not do: run anything, or know that a step was sabotaged.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a judge speaks through both")]

mod coverage;
mod listing;
mod reading;
mod rules;
mod steps;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use self::steps::Steps;

/// Where `examples/demo.sh` puts its answers, seen from the repository's root.
const DEFAULT: &str = "target/demo/steps";

fn main() -> ExitCode {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| DEFAULT.into()));
    let steps = Steps::of_folder(&folder);
    let verdicts: Vec<Verdict> = rules::ALL.iter().map(|(step, judge)| (*step, judge(&steps))).collect();
    print!("{}", table(&verdicts));
    let failed = verdicts.iter().filter(|(_, verdict)| verdict.is_err()).count();
    if failed == 0 {
        return ExitCode::SUCCESS;
    }
    eprintln!("demo-check: {failed} of {} steps do not hold", verdicts.len());
    ExitCode::from(1)
}

type Verdict = (&'static str, Result<String>);

fn table(verdicts: &[Verdict]) -> String {
    let mut text = format!("{:<14} {:<7} {}\n", "step", "judged", "why");
    for (step, verdict) in verdicts {
        let (judged, why) = match verdict {
            Ok(why) => ("holds", why.clone()),
            Err(error) => ("FAILED", format!("{error:#}")),
        };
        // Whatever stands in a stored answer, a verdict is one line.
        let why: String = why.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        text.push_str(&format!("{step:<14} {judged:<7} {why}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_verdict_is_one_line_with_its_cause() {
        let failed = Err(anyhow!("no\nreceipt").context("06-forget"));
        let text = table(&[("01-saved", Ok("213 turns".into())), ("06-forget", failed)]);
        let expected = "step           judged  why\n\
                        01-saved       holds   213 turns\n\
                        06-forget      FAILED  06-forget: no receipt\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn without_any_answers_every_step_fails() {
        let nowhere = Steps::of_folder(&PathBuf::from("/nowhere/at/all"));
        for (step, judge) in rules::ALL {
            assert!(judge(&nowhere).is_err(), "{step}");
        }
    }
}
