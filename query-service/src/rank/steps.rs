//! The steps of the ranking, each with a name under which a benchmark can leave it out.
//!
//! Not on the wire: a caller chooses a ranking, an operator of a benchmark chooses steps.

use lanekeeper_core::wire::recall::Arm;

/// Which steps take part. All do in the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// Sums of normalised scores; off: every lane is ranked by plain reciprocal ranks.
    pub score_fusion: bool,
    /// Question tokens weighted by the lane's idf; off: their mean.
    pub idf_pooling: bool,
    /// The vector arm.
    pub vector: bool,
    /// The field that holds a turn and the two before it; off: the own text field takes its weight.
    pub window_text: bool,
    /// The turn's own text field.
    pub turn_text: bool,
    /// Dates in the question against the turn's day.
    pub date: bool,
    /// The best candidate of a session lifts the others of it.
    pub session: bool,
    /// The one known speaker named in the question.
    pub speaker: bool,
    /// Turns that ask are answers less often.
    pub question: bool,
    /// Age, where the lane has a half-life.
    pub decay: bool,
}

/// No step has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no ranking step is named {name}; there are {}", Steps::NAMES.join(", "))]
pub struct UnknownStep {
    /// The name asked for.
    pub name: String,
}

impl Default for Steps {
    fn default() -> Self {
        Self::all()
    }
}

impl Steps {
    /// Every step's name.
    pub const NAMES: [&'static str; 10] = [
        "score_fusion",
        "idf_pooling",
        "vector",
        "window_text",
        "turn_text",
        "date",
        "session",
        "speaker",
        "question",
        "decay",
    ];

    /// Every step on.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            score_fusion: true,
            idf_pooling: true,
            vector: true,
            window_text: true,
            turn_text: true,
            date: true,
            session: true,
            speaker: true,
            question: true,
            decay: true,
        }
    }

    /// These steps without the named one.
    pub fn without(mut self, name: &str) -> Result<Self, UnknownStep> {
        let step = match name {
            "score_fusion" => &mut self.score_fusion,
            "idf_pooling" => &mut self.idf_pooling,
            "vector" => &mut self.vector,
            "window_text" => &mut self.window_text,
            "turn_text" => &mut self.turn_text,
            "date" => &mut self.date,
            "session" => &mut self.session,
            "speaker" => &mut self.speaker,
            "question" => &mut self.question,
            "decay" => &mut self.decay,
            _ => return Err(UnknownStep { name: name.to_owned() }),
        };
        *step = false;
        Ok(self)
    }

    /// The arms the store is asked to leave out.
    #[must_use]
    pub fn arms_off(&self) -> Vec<Arm> {
        [(self.vector, Arm::Vector), (self.window_text, Arm::WindowText), (self.turn_text, Arm::TurnText)]
            .into_iter()
            .filter_map(|(on, arm)| (!on).then_some(arm))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_switches_one_step_off() {
        let mut seen = std::collections::HashSet::new();
        for name in Steps::NAMES {
            let steps = Steps::all().without(name).unwrap();
            assert_ne!(steps, Steps::all(), "{name}");
            assert!(seen.insert(format!("{steps:?}")), "{name}");
        }
        assert!(Steps::all().without("rerank").unwrap_err().to_string().contains("window_text"));
    }
}
