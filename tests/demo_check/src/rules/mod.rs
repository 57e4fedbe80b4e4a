//! One rule a step: what must be true of its stored answers, and of those of the steps before it.

mod chain;
mod forget;
mod hits;
mod one_way;
mod other_lane;
mod recall;
mod retry;
mod saved;

use anyhow::Result;

use crate::steps::Steps;

/// Judges one step; gives what was found in one line.
type Rule = fn(&Steps) -> Result<String>;

/// Every step of the demo, in its order. A step that the demo leaves out fails here.
pub(crate) const ALL: [(&str, Rule); 7] = [
    (saved::STEP, saved::judge),
    (recall::STEP, recall::judge),
    (other_lane::STEP, other_lane::judge),
    (one_way::STEP, one_way::judge),
    (retry::STEP, retry::judge),
    (forget::STEP, forget::judge),
    (chain::STEP, chain::judge),
];

/// What a rule must say, and the change to a good answer that must make it say so.
#[cfg(test)]
type BadAnswer = (&'static str, fn(&mut serde_json::Value));
