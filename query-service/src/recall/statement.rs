//! How the hits were ranked, said in one sentence. Made here and nowhere else.

use std::collections::BTreeSet;

use lanekeeper_core::lane::Ranking;
use lanekeeper_core::wire::recall::{Arm, Coverage, RankingStatement};

use super::encoding::{EmbedderState, Stripping};
use crate::rank::Steps;

/// What the sentence is about.
pub(super) struct Facts<'a> {
    pub(super) coverage: &'a Coverage,
    /// Of each lane in scope.
    pub(super) rankings: Vec<Ranking>,
    /// A lane has a half-life.
    pub(super) ages: bool,
    pub(super) steps: Steps,
    /// Lists joined.
    pub(super) lists: usize,
    /// Links were to be followed.
    pub(super) links: bool,
    pub(super) embedders: &'a [EmbedderState],
}

pub(super) fn state(facts: &Facts<'_>) -> RankingStatement {
    let arms: BTreeSet<Arm> = facts
        .coverage
        .lanes
        .iter()
        .flat_map(|lane| lane.arms.iter().filter(|(_, arm)| arm.searched).map(|(arm, _)| *arm))
        .collect();
    let fused = facts.steps.score_fusion && facts.rankings.contains(&Ranking::Fused);
    let plain = !facts.steps.score_fusion || facts.rankings.contains(&Ranking::Rrf);
    let mut parts = Vec::new();
    if fused {
        parts.push(fused_part(facts, &arms));
    }
    if plain {
        let lanes = if fused { "lanes set to rrf are" } else { "hits are" };
        let age = if facts.ages && facts.steps.decay { ", times 0.8 to 1 by age" } else { "" };
        parts.push(format!("{lanes} ordered by the sum of 1/(60 + rank + 1) over the arms that found them{age}"));
    }
    if fused && facts.lists > 1 {
        parts.push(format!(
            "{} lists whose scores do not compare (curated paragraphs, lanes of other embeddings) are joined by 1/(60 + rank + 1)",
            facts.lists
        ));
    }
    if facts.links {
        parts.push("what a link led to follows the hit that holds the link".into());
    }
    parts.extend(stripping_part(facts.embedders));
    parts.push("ties go to own lanes, then to the newer".into());
    let mut statement = parts.join("; ");
    if let Some(first) = statement.get_mut(0..1) {
        first.make_ascii_uppercase();
    }
    statement.push('.');
    let method = if fused { Ranking::Fused } else { Ranking::Rrf };
    RankingStatement { method, arms: arms.into_iter().collect(), statement }
}

fn fused_part(facts: &Facts<'_>, arms: &BTreeSet<Arm>) -> String {
    let Steps {
        score_fusion: _,
        idf_pooling,
        vector: _,
        window_text,
        turn_text: _,
        date,
        session,
        speaker,
        question,
        decay,
    } = facts.steps;
    let (vector_weight, turn_weight) = if window_text { ("1.5", "0.25") } else { ("1", "1") };
    let mut terms = Vec::new();
    if arms.contains(&Arm::Vector) {
        let pooled = if idf_pooling { "" } else { ", question tokens unweighted" };
        terms.push(format!("vector {vector_weight}{pooled}"));
    }
    if arms.contains(&Arm::WindowText) {
        terms.push("window text 1".into());
    }
    if arms.contains(&Arm::TurnText) {
        terms.push(format!("turn text {turn_weight}"));
    }
    let rest = [
        (session, "session 0.25"),
        (date, "date named in the question 1"),
        (speaker, "speaker named in the question 0.2"),
        (question, "turns that ask -0.2"),
        (decay && facts.ages, "age up to 0.05"),
    ];
    terms.extend(rest.into_iter().filter(|(on, _)| *on).map(|(_, term)| term.to_owned()));
    format!("turns are ordered by the sum of scores normalised over all lanes of one embedding ({})", terms.join(", "))
}

fn stripping_part(embedders: &[EmbedderState]) -> Option<String> {
    let any = |stripping| embedders.iter().any(|state| state.stripping == stripping);
    if any(Stripping::Unknown) {
        return Some(
            "the embedder gives pooled vectors only and a lane could not name its speakers, so names in the question \
             may have pulled its vector"
                .into(),
        );
    }
    any(Stripping::Stripped).then(|| {
        "the embedder gives pooled vectors only, so speakers' names were stripped from the question before it was embedded"
            .into()
    })
}
