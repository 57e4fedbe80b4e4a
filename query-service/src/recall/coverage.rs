//! What was and was not searched. `complete_corpus`, `missing` and the shared parts are made here and
//! nowhere else.
//!
//! Complete means: every lane in scope was searched by every arm of the surfaces asked for, wholly, with
//! no role left out, nothing pending, nothing unattributed, no deadline hit, and every link asked. Whatever
//! a lane does not report counts as not searched.

use std::collections::BTreeMap;

use lanekeeper_core::LaneName;
use lanekeeper_core::lane_client::StoreAnswer;
use lanekeeper_core::wire::recall::{
    Arm, ArmCoverage, Coverage, LaneCounts, LaneCoverage, Relation, SharedPart, Surface,
};

use super::encoding::EmbedderState;
use super::links::FailedLink;

/// How one lane went: its answer, or why there is none.
pub(super) struct LaneState<'a> {
    pub(super) lane: &'a LaneName,
    pub(super) relation: Relation,
    pub(super) answer: Result<&'a StoreAnswer, &'a String>,
}

pub(super) const fn arm_name(arm: Arm) -> &'static str {
    match arm {
        Arm::TurnText => "turn_text",
        Arm::WindowText => "window_text",
        Arm::Vector => "vector",
        Arm::MemoryText => "memory_text",
    }
}

fn arms_of(surfaces: &[Surface]) -> Vec<Arm> {
    let mut arms = Vec::new();
    if surfaces.contains(&Surface::Turns) {
        arms.extend([Arm::TurnText, Arm::WindowText, Arm::Vector]);
    }
    if surfaces.contains(&Surface::Memory) {
        arms.push(Arm::MemoryText);
    }
    arms
}

/// The one place where coverage is stated.
pub(super) fn state(
    lanes: &[LaneState<'_>],
    surfaces: &[Surface],
    embedders: &[EmbedderState],
    query_cut: bool,
    links: &[FailedLink],
) -> Coverage {
    let asked = arms_of(surfaces);
    let lanes: Vec<LaneCoverage> = lanes.iter().map(|lane| lane_coverage(lane, &asked)).collect();
    let mut missing: Vec<String> = lanes.iter().flat_map(|lane| gaps(lane, &asked)).collect();
    missing.extend(
        links.iter().map(|FailedLink { lane, reason }| format!("{lane}: a link was not asked by every arm ({reason})")),
    );
    Coverage {
        complete_corpus: missing.is_empty(),
        missing,
        shared: shared(&lanes, &asked, embedders),
        lanes,
        query_cut,
    }
}

fn lane_coverage(state: &LaneState<'_>, asked: &[Arm]) -> LaneCoverage {
    let (arms, counts, floor, pooling) = match state.answer {
        Ok(answer) => {
            let mut arms = answer.arms.clone();
            for arm in asked {
                arms.entry(*arm).or_insert_with(|| ArmCoverage::skipped("not_reported"));
            }
            (arms, answer.counts, answer.floor, answer.pooling.clone())
        }
        Err(reason) => {
            let arms: BTreeMap<_, _> = asked.iter().map(|arm| (*arm, ArmCoverage::skipped(reason.as_str()))).collect();
            (arms, LaneCounts::default(), None, None)
        }
    };
    LaneCoverage { lane: state.lane.clone(), relation: state.relation, arms, counts, floor, pooling }
}

/// What is missing in one lane, each a short sentence.
fn gaps(lane: &LaneCoverage, asked: &[Arm]) -> Vec<String> {
    // Destructured without `..`: a new count must decide whether it makes an answer incomplete.
    let LaneCoverage { lane: name, relation: _, arms, counts, floor: _, pooling: _ } = lane;
    let LaneCounts {
        events,
        searchable,
        pending_projection,
        unattributed_excluded,
        // Vectors whose event is gone hide nothing that exists; an unreadable event shows in `searchable`.
        dangling_skipped: _,
        // A folded candidate is shown by its twin.
        folded: _,
    } = *counts;
    let mut gaps: Vec<String> = asked
        .iter()
        .filter_map(|arm| {
            let gap = arm_gap(arms.get(arm)?)?;
            Some(format!("{name}: {} {gap}", arm_name(*arm)))
        })
        .collect();
    if pending_projection > 0 && asked.contains(&Arm::Vector) {
        gaps.push(format!("{name}: {pending_projection} turns wait for their vectors"));
    }
    if unattributed_excluded > 0 {
        gaps.push(format!("{name}: {unattributed_excluded} turns without a principal are left out"));
    }
    if searchable < events && asked.contains(&Arm::TurnText) {
        gaps.push(format!("{name}: {} turns are not found by text", events - searchable));
    }
    gaps
}

fn arm_gap(arm: &ArmCoverage) -> Option<String> {
    let ArmCoverage { searched, reason, roles_left_out } = arm;
    let reason = reason.as_deref();
    if !searched {
        return Some(format!("was not searched ({})", reason.unwrap_or("unknown")));
    }
    if let Some(reason) = reason {
        return Some(format!("was not searched wholly ({reason})"));
    }
    if roles_left_out.is_empty() {
        return None;
    }
    let roles: Vec<&str> = roles_left_out.iter().map(|role| role.as_str()).collect();
    Some(format!("does not hold turns of the role {}", roles.join(", ")))
}

/// Why a link's question was not answered by every arm, if it was not. Roles and pending projections are
/// the lane's own and stated there.
pub(super) fn first_gap(answer: &StoreAnswer, turns: bool) -> Option<String> {
    let surfaces: &[Surface] = if turns { &[Surface::Turns] } else { &[] };
    arms_of(surfaces).into_iter().find_map(|arm| match answer.arms.get(&arm) {
        // Link targets may well hold nothing but stop words; their vectors are still asked.
        Some(ArmCoverage { searched: false, reason: Some(reason), .. }) if reason == "no_searchable_terms" => None,
        Some(ArmCoverage { searched: false, reason, .. }) => Some(reason.clone().unwrap_or_else(|| "unknown".into())),
        Some(ArmCoverage { searched: true, reason, .. }) => reason.clone(),
        None => Some("not_reported".into()),
    })
}

fn shared(lanes: &[LaneCoverage], asked: &[Arm], embedders: &[EmbedderState]) -> Vec<SharedPart> {
    let part = |part: &str, state: &str| SharedPart { part: part.to_owned(), state: state.to_owned() };
    let embedder = match embedders.iter().find_map(|state| state.reason.as_deref()) {
        Some(reason) => reason,
        None if embedders.is_empty() => "not asked",
        None => "ok",
    };
    let mut parts = vec![part("embedder", embedder), part("vectors", &vectors(lanes, asked))];
    if asked.contains(&Arm::MemoryText) {
        // Curated paragraphs have no vectors, by design: said, but nothing is missing.
        parts.push(part("memory", "text only"));
    }
    parts.push(part("approvals", "not configured"));
    parts
}

/// The vector engines as the lanes saw them: a lane's own failure or the embedder's says nothing of them.
fn vectors(lanes: &[LaneCoverage], asked: &[Arm]) -> String {
    if !asked.contains(&Arm::Vector) {
        return "not asked".into();
    }
    let arms: Vec<&ArmCoverage> = lanes
        .iter()
        .filter(|lane| lane.arms.get(&Arm::TurnText).is_some_and(|arm| arm.searched) || lane.pooling.is_some())
        .filter_map(|lane| lane.arms.get(&Arm::Vector))
        .collect();
    let is_embedders = |reason: &str| reason.starts_with("embed");
    let trouble = arms
        .iter()
        .filter(|arm| !arm.searched)
        .find_map(|arm| arm.reason.as_deref().filter(|reason| !is_embedders(reason)));
    match trouble {
        Some(reason) => reason.to_owned(),
        None if arms.iter().any(|arm| arm.searched) => "ok".into(),
        None => "not asked".into(),
    }
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::wire::events::TurnRole;

    use super::super::encoding::Stripping;
    use super::*;
    use crate::rank::tests::answer;

    const TURNS: [Surface; 1] = [Surface::Turns];
    const BOTH: [Surface; 2] = [Surface::Turns, Surface::Memory];

    fn good() -> StoreAnswer {
        let mut answer = answer(Vec::new());
        answer.arms = [Arm::TurnText, Arm::WindowText, Arm::Vector, Arm::MemoryText]
            .map(|arm| (arm, ArmCoverage::searched()))
            .into();
        answer.counts =
            LaneCounts { events: 9, searchable: 9, dangling_skipped: 1, folded: 2, ..LaneCounts::default() };
        answer
    }

    fn embedder(reason: Option<&str>) -> Vec<EmbedderState> {
        vec![EmbedderState { reason: reason.map(str::to_owned), stripping: Stripping::NotNeeded }]
    }

    fn stated(answer: &StoreAnswer, surfaces: &[Surface]) -> Coverage {
        let name = LaneName::new("team", "bob").unwrap();
        let lane = LaneState { lane: &name, relation: Relation::Own, answer: Ok(answer) };
        state(&[lane], surfaces, &embedder(None), false, &[])
    }

    #[test]
    fn nothing_missing_is_complete() {
        let coverage = stated(&good(), &BOTH);
        assert!(coverage.complete_corpus, "{:?}", coverage.missing);
        insta::assert_json_snapshot!("complete", coverage);
    }

    #[test]
    fn each_thing_that_is_missing_makes_it_incomplete() {
        type Change = fn(&mut StoreAnswer);
        let changes: [(&str, Change); 9] = [
            ("pending", |a| a.counts.pending_projection = 3),
            ("unattributed", |a| a.counts.unattributed_excluded = 2),
            ("unreadable", |a| a.counts.searchable = 7),
            ("role left out", |a| {
                a.arms.get_mut(&Arm::Vector).unwrap().roles_left_out = vec![TurnRole::User, TurnRole::Tool]
            }),
            ("arm skipped", |a| {
                a.arms.insert(Arm::TurnText, ArmCoverage::skipped("no_searchable_terms"));
            }),
            ("arm not wholly", |a| a.arms.get_mut(&Arm::Vector).unwrap().reason = Some("rebuilding".into())),
            ("arm without a reason", |a| a.arms.get_mut(&Arm::WindowText).unwrap().searched = false),
            ("arm not reported", |a| {
                a.arms.remove(&Arm::Vector);
            }),
            ("memory skipped", |a| {
                a.arms.insert(Arm::MemoryText, ArmCoverage::skipped("deadline"));
            }),
        ];
        let mut said = BTreeMap::new();
        for (what, change) in changes {
            let mut answer = good();
            change(&mut answer);
            let coverage = stated(&answer, &BOTH);
            assert!(!coverage.complete_corpus, "{what}");
            said.insert(what, coverage.missing);
        }
        insta::assert_json_snapshot!("missing", said);
    }

    #[test]
    fn a_surface_that_was_not_asked_for_is_not_missing() {
        let mut answer = good();
        answer.arms.remove(&Arm::MemoryText);
        assert!(stated(&answer, &TURNS).complete_corpus);
        answer.counts.pending_projection = 5;
        let coverage = stated(&answer, &[Surface::Memory]);
        assert_eq!(coverage.missing, ["team/bob: memory_text was not searched (not_reported)"]);
    }

    #[test]
    fn a_lane_that_failed_is_named_with_every_arm() {
        let name = LaneName::new("team", "bob").unwrap();
        let other = LaneName::new("team", "handbook").unwrap();
        let answer = good();
        let reason = "deadline".to_owned();
        let lanes = [
            LaneState { lane: &name, relation: Relation::Own, answer: Ok(&answer) },
            LaneState { lane: &other, relation: Relation::Read, answer: Err(&reason) },
        ];
        let link = FailedLink { lane: name.clone(), reason: "embedding_timeout".into() };
        insta::assert_json_snapshot!("failed_lane", state(&lanes, &BOTH, &embedder(None), true, &[link]));
    }

    #[test]
    fn the_embedder_and_the_vector_engine_are_told_apart() {
        let name = LaneName::new("team", "bob").unwrap();
        let parts = |vector: ArmCoverage, reason: Option<&str>| -> Vec<String> {
            let mut answer = good();
            answer.arms.insert(Arm::Vector, vector);
            let lane = LaneState { lane: &name, relation: Relation::Own, answer: Ok(&answer) };
            let shared = state(&[lane], &TURNS, &embedder(reason), false, &[]).shared;
            shared.into_iter().map(|part| format!("{}: {}", part.part, part.state)).collect()
        };
        let approvals = "approvals: not configured";
        assert_eq!(parts(ArmCoverage::searched(), None), ["embedder: ok", "vectors: ok", approvals]);
        assert_eq!(
            parts(ArmCoverage::skipped("embedder_overloaded"), Some("embedder_overloaded")),
            ["embedder: embedder_overloaded", "vectors: not asked", approvals]
        );
        assert_eq!(
            parts(ArmCoverage::skipped("vectors_unavailable"), None),
            ["embedder: ok", "vectors: vectors_unavailable", approvals]
        );
    }
}
