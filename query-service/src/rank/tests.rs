//! Fusion, joining and their invariants.

use std::collections::BTreeMap;

use lanekeeper_core::fingerprint::{Fingerprint, FingerprintFields};
use lanekeeper_core::ids::{EventId, Seq};
use lanekeeper_core::lane::Ranking;
use lanekeeper_core::lane_client::{Candidate, MemoryCandidate, StoreAnswer};
use lanekeeper_core::wire::events::TurnRole;
use lanekeeper_core::wire::memory::Paragraph;
use lanekeeper_core::wire::recall::{Arm, LaneCounts};
use proptest::prelude::*;

use super::*;

const DAY_MS: i64 = 86_400_000;

pub(crate) fn turn(seq: u64, vector: Option<f64>, window: f64, turn: f64) -> Candidate {
    let mut scores = BTreeMap::from([(Arm::WindowText, window), (Arm::TurnText, turn)]);
    let mut ranks = BTreeMap::new();
    if let Some(vector) = vector {
        scores.insert(Arm::Vector, vector);
        ranks.insert(Arm::Vector, 1);
    }
    Candidate {
        event_id: EventId::from_uuid(uuid::Uuid::from_u128(u128::from(seq))),
        seq: Seq(seq),
        at_ms: 0,
        at: "1970-01-01T00:00:00Z".into(),
        role: TurnRole::Assistant,
        speaker: None,
        session: format!("s{seq}"),
        principal: Some("user:bob".into()),
        text: format!("turn {seq}"),
        metadata: None,
        content: [0; 32],
        scores,
        ranks,
        folded: 0,
    }
}

pub(crate) fn paragraph_candidate(position: u32, score: f64) -> MemoryCandidate {
    MemoryCandidate {
        paragraph: Paragraph {
            id: format!("p{position}"),
            owner: "bob".into(),
            position,
            text: format!("paragraph {position}"),
            event_id: EventId::from_uuid(uuid::Uuid::from_u128(9_000 + u128::from(position))),
            seq: Seq(9_000 + u64::from(position)),
            at: "1970-01-01T00:00:00Z".into(),
        },
        score,
        rank: position + 1,
    }
}

pub(crate) fn answer(candidates: Vec<Candidate>) -> StoreAnswer {
    StoreAnswer {
        candidates,
        memory: Vec::new(),
        arms: BTreeMap::new(),
        counts: LaneCounts::default(),
        floor: Some(0.3),
        pooling: Some("idf_weighted".into()),
        has_speakers: false,
        speaker_in_query: None,
    }
}

fn found(lane: usize, answer: StoreAnswer) -> Found {
    Found {
        lane,
        own: lane == 0,
        ranking: Ranking::Fused,
        fingerprint: FingerprintFields::builtin().fingerprint(),
        half_life_ms: None,
        answer,
    }
}

fn other_fingerprint() -> Fingerprint {
    FingerprintFields { model: "another".into(), ..FingerprintFields::builtin() }.fingerprint()
}

fn order(items: &[Ranked]) -> Vec<String> {
    items.iter().map(|ranked| ranked.item.text().to_owned()).collect()
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-9, "{a} is not {b}");
}

#[test]
fn the_terms_of_p3_have_their_weights() {
    let mut best = turn(1, Some(0.9), 8.0, 2.0);
    best.session = "one".into();
    best.speaker = Some("Ann".into());
    best.at_ms = lanekeeper_core::time::parse_rfc3339_ms("2023-05-07T08:00:00Z").unwrap();
    let mut asking = turn(2, Some(0.5), 4.0, 4.0);
    asking.session = "one".into();
    asking.text = "really? ".into();
    let mut lane = found(
        0,
        StoreAnswer { has_speakers: true, speaker_in_query: Some("ann".into()), ..answer(vec![best, asking]) },
    );
    lane.half_life_ms = Some(DAY_MS);
    let now = lanekeeper_core::time::parse_rfc3339_ms("2023-05-08T08:00:00Z").unwrap();
    let items = rank(vec![lane], "what did Ann say on 7 May 2023?", &Steps::all(), now).items;
    assert_eq!(order(&items), ["turn 1", "really? "]);
    let expected = [
        ("vector", 1.5),
        ("window_text", 1.0),
        ("turn_text", 0.125),
        ("session", 0.25),
        ("date", 1.0),
        ("speaker", 0.2),
        ("decay", 0.025),
    ];
    assert_eq!(items[0].terms.len(), expected.len(), "{:?}", items[0].terms);
    for (name, value) in expected {
        near(items[0].terms[name], value);
    }
    near(items[0].score, expected.iter().map(|(_, value)| value).sum());
    near(items[1].terms["vector"], 0.0);
    near(items[1].terms["question"], -0.2);
    // The session's best lifts the other turn of the session too.
    near(items[1].terms["session"], 0.25);
    assert!(!items[1].terms.contains_key("speaker"));
}

#[test]
fn speaker_and_question_terms_need_a_lane_with_speakers() {
    let mut candidate = turn(1, Some(0.9), 1.0, 1.0);
    candidate.text = "why?".into();
    candidate.speaker = Some("Ann".into());
    let items = rank(vec![found(0, answer(vec![candidate]))], "Ann?", &Steps::all(), 0).items;
    assert!(!items[0].terms.contains_key("question") && !items[0].terms.contains_key("speaker"));
}

#[test]
fn equal_cosines_count_as_one_and_a_missing_one_as_nothing() {
    let items = rank(
        vec![found(
            0,
            answer(vec![turn(1, Some(0.7), 1.0, 0.0), turn(2, Some(0.7), 1.0, 0.0), turn(3, None, 1.0, 0.0)]),
        )],
        "q",
        &Steps::all(),
        0,
    )
    .items;
    assert_eq!(order(&items), ["turn 2", "turn 1", "turn 3"]);
    near(items[0].terms["vector"], 1.5);
    near(items[2].terms["vector"], 0.0);
}

#[test]
fn only_hits_over_the_gate_leave_a_lane() {
    let weak = turn(1, Some(0.2), 0.0, 0.0);
    let strong = turn(2, Some(0.4), 0.0, 0.0);
    let text = turn(3, Some(0.1), 0.5, 0.0);
    for steps in [Steps::all(), Steps::all().without("score_fusion").unwrap()] {
        let lanes = vec![found(0, answer(vec![weak.clone(), strong.clone(), text.clone()]))];
        let mut seen = order(&rank(lanes, "q", &steps, 0).items);
        seen.sort();
        assert_eq!(seen, ["turn 2", "turn 3"]);
    }
}

#[test]
fn each_step_that_is_off_leaves_its_term_out() {
    for (name, term) in [
        ("vector", "vector"),
        ("window_text", "window_text"),
        ("turn_text", "turn_text"),
        ("session", "session"),
        ("date", "date"),
        ("speaker", "speaker"),
        ("question", "question"),
        ("decay", "decay"),
    ] {
        let mut candidate = turn(1, Some(0.9), 1.0, 1.0);
        candidate.text = "so?".into();
        candidate.speaker = Some("Ann".into());
        let mut lane = found(
            0,
            StoreAnswer { has_speakers: true, speaker_in_query: Some("Ann".into()), ..answer(vec![candidate]) },
        );
        lane.half_life_ms = Some(DAY_MS);
        let with = rank(vec![lane.clone()], "Ann in 2023", &Steps::all(), 0).items;
        assert!(with[0].terms.contains_key(term), "{name}");
        let without = rank(vec![lane], "Ann in 2023", &Steps::all().without(name).unwrap(), 0).items;
        assert!(!without[0].terms.contains_key(term), "{name}");
    }
}

#[test]
fn without_the_window_field_the_own_text_has_its_weight() {
    let steps = Steps::all().without("window_text").unwrap();
    let items = rank(vec![found(0, answer(vec![turn(1, Some(0.9), 0.0, 3.0)]))], "q", &steps, 0).items;
    near(items[0].terms["vector"], 1.0);
    near(items[0].terms["turn_text"], 1.0);
}

#[test]
fn lanes_of_one_fingerprint_are_normalised_together_and_own_lanes_win_ties() {
    // Lane 1's best is worse than lane 0's worst: it does not get a 1 of its own.
    let own = found(0, answer(vec![turn(1, Some(0.9), 0.0, 0.0), turn(2, Some(0.8), 0.0, 0.0)]));
    let read = found(1, answer(vec![turn(3, Some(0.5), 0.0, 0.0), turn(4, Some(0.4), 0.0, 0.0)]));
    let outcome = rank(vec![read, own], "q", &Steps::all(), 0);
    assert_eq!(order(&outcome.items), ["turn 1", "turn 2", "turn 3", "turn 4"]);
    assert_eq!(outcome.lists, 1);
    let tie = |lane| found(lane, answer(vec![turn(lane as u64 + 7, Some(0.9), 1.0, 1.0)]));
    let items = rank(vec![tie(1), tie(0)], "q", &Steps::all(), 0).items;
    near(items[0].score, items[1].score);
    assert!(items[0].own && !items[1].own);
}

#[test]
fn lists_of_other_fingerprints_and_curated_paragraphs_join_by_reciprocal_rank() {
    let mut own = found(0, answer(vec![turn(1, Some(0.9), 5.0, 0.0), turn(2, Some(0.8), 0.0, 0.0)]));
    own.answer.memory = vec![paragraph_candidate(0, 40.0), paragraph_candidate(1, 2.0)];
    let mut other = found(1, answer(vec![turn(3, Some(0.99), 90.0, 9.0)]));
    other.fingerprint = other_fingerprint();
    let outcome = rank(vec![own, other], "q", &Steps::all(), 0);
    assert_eq!(outcome.lists, 3);
    // First places tie at 1/61: own lanes first, the newer of them first.
    assert_eq!(order(&outcome.items), ["paragraph 0", "turn 1", "turn 3", "paragraph 1", "turn 2"]);
    near(outcome.items[0].score, 1.0 / 61.0);
    near(outcome.items[4].score, 1.0 / 62.0);
    assert!(outcome.items[1].terms["within_list"] > 2.0);
}

#[test]
fn an_empty_list_does_not_make_the_others_join() {
    let outcome = rank(vec![found(0, answer(vec![turn(1, Some(0.9), 5.0, 0.0)]))], "q", &Steps::all(), 0);
    assert_eq!(outcome.lists, 1);
    assert!(outcome.items[0].score > 1.0);
    let outcome = rank(vec![], "q", &Steps::all(), 0);
    assert!(outcome.items.is_empty());
}

#[test]
fn plain_rrf_sums_over_the_arms_and_bounds_the_age_factor() {
    let mut candidate = turn(1, Some(0.9), 5.0, 4.0);
    candidate.ranks = BTreeMap::from([(Arm::Vector, 1), (Arm::TurnText, 3)]);
    let mut lane = found(0, answer(vec![candidate]));
    lane.ranking = Ranking::Rrf;
    let plain = rank(vec![lane.clone()], "q", &Steps::all(), 0).items;
    near(plain[0].score, 1.0 / 61.0 + 1.0 / 63.0);
    assert_eq!(plain[0].decay, None);
    lane.half_life_ms = Some(DAY_MS);
    let aged = rank(vec![lane.clone()], "q", &Steps::all(), DAY_MS).items;
    near(aged[0].score, (1.0 / 61.0 + 1.0 / 63.0) * 0.9);
    let ancient = rank(vec![lane.clone()], "q", &Steps::all(), i64::MAX).items;
    near(ancient[0].decay.unwrap(), 0.8);
    // A time ahead of the clock counts as now.
    let future = rank(vec![lane], "q", &Steps::all(), i64::MIN).items;
    near(future[0].decay.unwrap(), 1.0);
}

#[test]
fn a_lane_ranked_by_rrf_beside_fused_ones_is_one_list() {
    let fused = found(0, answer(vec![turn(1, Some(0.9), 5.0, 0.0), turn(2, Some(0.8), 1.0, 0.0)]));
    let mut candidate = turn(3, Some(0.9), 5.0, 4.0);
    candidate.ranks = BTreeMap::from([(Arm::Vector, 1), (Arm::TurnText, 1), (Arm::WindowText, 1)]);
    let mut plain = found(1, answer(vec![candidate]));
    plain.ranking = Ranking::Rrf;
    let items = rank(vec![plain, fused], "q", &Steps::all(), 0).items;
    assert_eq!(order(&items), ["turn 1", "turn 3", "turn 2"]);
    near(items[1].score, 1.0 / 61.0);
}

#[test]
fn a_linked_hit_follows_its_parent_and_moves_nothing_before_it() {
    let main = || {
        rank(
            vec![found(0, answer((1..=6).map(|seq| turn(seq, Some(0.9 - seq as f64 / 50.0), 0.0, 0.0)).collect()))],
            "q",
            &Steps::all(),
            0,
        )
        .items
    };
    let linked = |seq| rank(vec![found(0, answer(vec![turn(seq, Some(0.9), 0.0, 0.0)]))], "x", &Steps::all(), 0).items;
    let plain = hops::join(main(), vec![]);
    assert_eq!(order(&plain), order(&main()));
    let with = hops::join(main(), vec![hops::Linked { parent: 2, target: "plan".into(), items: linked(77) }]);
    assert_eq!(order(&with)[..5], ["turn 1", "turn 2", "turn 3", "turn 77", "turn 4"]);
    assert_eq!(with[3].via.as_deref(), Some("plan"));
    assert_eq!(order(&with)[..3], order(&plain)[..3]);
    near(with[1].score, plain[1].score);
    // Found by the question already, further down: the link lifts it.
    let lifted = hops::join(main(), vec![hops::Linked { parent: 0, target: "plan".into(), items: linked(6) }]);
    assert_eq!(order(&lifted)[..2], ["turn 1", "turn 6"]);
    assert_eq!(lifted.len(), 6);
    // Found by the question before the parent: it stays, and owes nothing to the link.
    let kept = hops::join(main(), vec![hops::Linked { parent: 4, target: "plan".into(), items: linked(1) }]);
    assert_eq!(order(&kept), order(&plain));
    assert_eq!(kept[0].via, None);
}

#[test]
fn wikilinks_are_read_literally() {
    assert_eq!(hops::wikilinks("see [[Plan B]] and [[plan#costs|the costs]], [[Plan B]]"), ["Plan B", "plan"]);
    assert_eq!(hops::wikilinks("[[a [[b]] c]]"), ["b"]);
    for none in ["[[", "[[]]", "[[ ]]", "[one]", "[[open", "]] [[", "[[|x]]", "[[a\nb]]"] {
        assert!(hops::wikilinks(none).is_empty(), "{none}");
    }
}

fn any_score() -> impl Strategy<Value = f64> {
    prop_oneof![4 => 0.0..50.0_f64, 1 => Just(0.0), 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => -5.0..0.0_f64]
}

prop_compose! {
    fn any_turn()(seq in 1_u64..60, vector in proptest::option::of(any_score()), window in any_score(), own in any_score(),
                  session in 0_u8..4, at_ms in any::<i64>(), text in "[a-z ?]{1,12}", speaker in proptest::option::of("[AB]")) -> Candidate {
        let mut candidate = turn(seq, vector, window, own);
        candidate.session = format!("s{session}");
        candidate.at_ms = at_ms;
        candidate.text = text;
        candidate.speaker = speaker;
        if window > 0.0 {
            candidate.ranks.insert(Arm::WindowText, u32::try_from(seq).unwrap_or(1));
        }
        candidate
    }
}

prop_compose! {
    fn any_found(lane: usize)(mut candidates in proptest::collection::vec(any_turn(), 0..25), paragraphs in 0_u32..4, rrf in any::<bool>(),
                              other in any::<bool>(), half_life_ms in proptest::option::of(any::<i64>()), has_speakers in any::<bool>()) -> Found {
        candidates.sort_by_key(|candidate| candidate.seq);
        candidates.dedup_by_key(|candidate| candidate.seq);
        let mut found = found(lane, StoreAnswer { has_speakers, speaker_in_query: has_speakers.then(|| "A".into()), ..answer(candidates) });
        found.answer.memory = (0..paragraphs).map(|position| paragraph_candidate(position, 1.0)).collect();
        found.ranking = if rrf { Ranking::Rrf } else { Ranking::Fused };
        if other {
            found.fingerprint = other_fingerprint();
        }
        found.half_life_ms = half_life_ms;
        found
    }
}

fn any_lanes() -> impl Strategy<Value = Vec<Found>> {
    (any_found(0), any_found(1), any_found(2)).prop_map(|(a, b, c)| vec![a, b, c])
}

proptest! {
    #[test]
    fn scores_are_finite_and_the_order_is_total_and_does_not_depend_on_the_order_of_lanes(lanes in any_lanes(), now in any::<i64>()) {
        let items = rank(lanes.clone(), "what did A say in May 2023", &Steps::all(), now).items;
        for pair in items.windows(2) {
            prop_assert_eq!(total_order(&pair[0], &pair[1]), Ordering::Less);
        }
        prop_assert!(items.iter().all(|ranked| ranked.score.is_finite()));
        let reversed: Vec<Found> = lanes.into_iter().rev().collect();
        let again = rank(reversed, "what did A say in May 2023", &Steps::all(), now).items;
        prop_assert_eq!(order(&items), order(&again));
    }

    // C32 with links: what is followed for a smaller top_k leaves the first places of a larger one alone.
    #[test]
    fn links_of_later_hits_never_move_earlier_ones(lanes in any_lanes(), small in 1_usize..10, more in 0_usize..10,
                                                   finds in proptest::collection::vec((0_usize..20, proptest::collection::vec(1_u64..60, 0..5)), 0..6)) {
        let main = rank(lanes, "q", &Steps::all(), 0).items;
        let linked = |top_k: usize| -> Vec<hops::Linked> {
            finds.iter().filter(|(parent, _)| *parent < top_k.min(main.len())).map(|(parent, seqs)| hops::Linked {
                parent: *parent,
                target: "t".into(),
                items: seqs.iter().map(|seq| Ranked { lane: 0, own: true, item: Item::Turn(turn(*seq, Some(0.9), 0.0, 0.0)), score: 1.0,
                                                     terms: BTreeMap::new(), decay: None, via: None }).collect(),
            }).collect()
        };
        let cut = |top_k: usize| -> Vec<(String, f64)> {
            hops::join(main.clone(), linked(top_k)).into_iter().take(top_k).map(|ranked| (ranked.item.id(), ranked.score)).collect()
        };
        let large = cut(small + more);
        let short = cut(small);
        prop_assert_eq!(&large[..short.len()], &short[..]);
    }
}
