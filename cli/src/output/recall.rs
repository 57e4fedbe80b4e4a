//! A recall's answer for people: each hit with where it stands and what found it, then what was searched
//! and what was not.

use std::fmt::Write as _;

use lanekeeper_core::lane::Ranking;
use lanekeeper_core::wire::recall::{
    Arm, ArmCoverage, ArmScore, Coverage, Hit, LaneCoverage, RecallResponse, Relation, Surface,
};

use super::{counted, hanging, plain};

/// The whole answer.
pub(crate) fn recall(response: &RecallResponse) -> String {
    let RecallResponse { hits, coverage, ranking, recall_id: _, prompt } = response;
    if let Some(prompt) = prompt {
        // Made to be handed to a model: nothing else belongs beside it.
        return format!("{}\n", prompt.trim_end());
    }
    let mut text = String::new();
    if hits.is_empty() {
        text.push_str("Nothing found.\n\n");
    }
    for (index, one) in hits.iter().enumerate() {
        text.push_str(&hit(index + 1, one));
        text.push('\n');
    }
    text.push_str(&covered(coverage));
    let _ = writeln!(text, "ranking: {} — {}", method(ranking.method), plain(&ranking.statement));
    text
}

const fn method(ranking: Ranking) -> &'static str {
    match ranking {
        Ranking::Fused => "fused",
        Ranking::Rrf => "rrf",
    }
}

fn hit(place: usize, hit: &Hit) -> String {
    // Destructured, so that a new member is shown or left out on purpose.
    let Hit {
        lane,
        surface,
        id,
        event_id: _,
        seq,
        at,
        role,
        speaker,
        session,
        owner,
        principal: _,
        text,
        score,
        arms,
        terms,
        decay,
        metadata: _,
        via,
        folded,
    } = hit;
    let mut head = format!("{place}. {lane} #{seq}  {}", plain(at));
    match surface {
        Surface::Turns => {
            if let Some(role) = role {
                let _ = write!(head, "  {}", role.as_str());
            }
        }
        Surface::Memory => {
            let _ = write!(head, "  memory of {}", plain(owner.as_deref().unwrap_or("nobody")));
        }
    }
    if let Some(speaker) = speaker {
        let _ = write!(head, " ({})", plain(speaker));
    }
    if let Some(session) = session {
        let _ = write!(head, "  session {}", plain(session));
    }
    let mut lines = format!("{head}\n   {}\n", hanging(&plain(text), 3));
    let _ = write!(lines, "   score {score:.4}; {}", found_by(arms));
    if let Some(decay) = decay {
        let _ = write!(lines, "; age term {decay:.4}");
    }
    if let Some(terms) = terms {
        let terms: Vec<String> = terms.iter().map(|(name, value)| format!("{} {value:.4}", plain(name))).collect();
        let _ = write!(lines, "; terms: {}", terms.join(", "));
    }
    if *folded > 0 {
        let _ = write!(
            lines,
            "; stands for {} of the same text",
            counted(u64::from(*folded), "other event", "other events")
        );
    }
    if let Some(via) = via {
        let _ = write!(lines, "; by the link [[{}]]", plain(via));
    }
    let _ = writeln!(lines, "\n   id {}", plain(id));
    lines
}

fn found_by(arms: &std::collections::BTreeMap<Arm, ArmScore>) -> String {
    let shown: Vec<String> = arms
        .iter()
        .filter_map(|(arm, ArmScore { score, rank })| match (rank, score) {
            (Some(rank), Some(score)) => Some(format!("{} rank {rank} ({score:.4})", name(*arm))),
            (Some(rank), None) => Some(format!("{} rank {rank}", name(*arm))),
            (None, Some(score)) => Some(format!("{} not listed ({score:.4})", name(*arm))),
            (None, None) => None,
        })
        .collect();
    if shown.is_empty() { "no arm listed it".to_owned() } else { shown.join(", ") }
}

const fn name(arm: Arm) -> &'static str {
    match arm {
        Arm::TurnText => "turn text",
        Arm::WindowText => "window text",
        Arm::Vector => "vector",
        Arm::MemoryText => "memory text",
    }
}

fn covered(coverage: &Coverage) -> String {
    let Coverage { complete_corpus, missing, lanes, shared, query_cut } = coverage;
    let mut text = String::new();
    if *complete_corpus {
        text.push_str("coverage: complete: every lane in scope was searched by every arm\n");
    } else {
        text.push_str("coverage: not complete\n");
        for reason in missing {
            let _ = writeln!(text, "  - {}", plain(reason));
        }
    }
    if *query_cut {
        text.push_str("  the question was cut to its limit, head and tail kept\n");
    }
    for lane in lanes {
        let _ = writeln!(text, "  {}", in_lane(lane));
    }
    let parts: Vec<String> =
        shared.iter().map(|part| format!("{} {}", plain(&part.part), plain(&part.state))).collect();
    if !parts.is_empty() {
        let _ = writeln!(text, "  shared: {}", parts.join(", "));
    }
    text
}

fn in_lane(coverage: &LaneCoverage) -> String {
    let LaneCoverage { lane, relation, arms, counts, floor, pooling } = coverage;
    let relation = match relation {
        Relation::Own => "own",
        Relation::Read => "read",
    };
    let arms: Vec<String> = arms.iter().map(|(arm, coverage)| searched(*arm, coverage)).collect();
    let mut numbers = vec![counted(counts.events, "turn", "turns"), format!("{} searchable", counts.searchable)];
    let more = [
        (counts.pending_projection, "without vectors yet"),
        (counts.unattributed_excluded, "unattributed, left out"),
        (counts.dangling_skipped, "dangling, skipped"),
        (counts.folded, "folded"),
    ];
    numbers.extend(more.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    let mut text = format!("{lane} ({relation}): {}; {}", arms.join(", "), numbers.join(", "));
    if let Some(floor) = floor {
        let _ = write!(text, "; floor {floor:.3}");
    }
    if let Some(pooling) = pooling {
        let _ = write!(text, "; pooling {}", plain(pooling));
    }
    text
}

fn searched(arm: Arm, coverage: &ArmCoverage) -> String {
    let ArmCoverage { searched, reason, roles_left_out } = coverage;
    let mut text = match (searched, reason) {
        (true, None) => format!("{} searched", name(arm)),
        (true, Some(reason)) => format!("{} searched ({})", name(arm), plain(reason)),
        (false, reason) => {
            format!("{} NOT searched ({})", name(arm), plain(reason.as_deref().unwrap_or("no reason given")))
        }
    };
    if !roles_left_out.is_empty() {
        let roles: Vec<&str> = roles_left_out.iter().map(|role| role.as_str()).collect();
        let _ = write!(text, " without {}", roles.join(" and "));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answer(change: impl FnOnce(&mut Value)) -> String {
        let mut answer = json!({
            "hits": [
                {"lane": "team/bob", "surface": "turns", "id": "01939a00-0000-7000-8000-00000000002a",
                 "event_id": "01939a00-0000-7000-8000-00000000002a", "seq": 42, "at": "2026-11-03T09:14:00+01:00",
                 "role": "assistant", "speaker": "Anna", "session": "standup", "principal": "user:bob",
                 "text": "The release moves to Thursday.\nWe told support.", "score": 0.93421,
                 "arms": {"turn_text": {"score": 7.5, "rank": 1}, "vector": {"score": 0.61, "rank": 3}, "window_text": {"score": 1.5, "rank": null}},
                 "terms": {"session": 0.1}, "decay": 0.02, "metadata": null, "via": "Release", "folded": 2},
                {"lane": "team/handbook", "surface": "memory", "id": "p-7", "event_id": "01939a00-0000-7000-8000-000000000007",
                 "seq": 7, "at": "2026-10-01T08:00:00Z", "role": null, "speaker": null, "session": null, "owner": "_shared",
                 "principal": null, "text": "Releases go out on Thursdays. \u{1b}[31m", "score": 0.5,
                 "arms": {"memory_text": {"score": null, "rank": 1}}, "decay": null, "metadata": null, "folded": 0}
            ],
            "coverage": {
                "complete_corpus": false,
                "missing": ["team/bob: vector: embedder_unavailable"],
                "lanes": [
                    {"lane": "team/bob", "relation": "own",
                     "arms": {"turn_text": {"searched": true}, "window_text": {"searched": true},
                              "vector": {"searched": false, "reason": "embedder_unavailable", "roles_left_out": ["user", "tool"]}},
                     "counts": {"events": 1, "searchable": 1, "pending_projection": 1, "unattributed_excluded": 0, "dangling_skipped": 0, "folded": 2},
                     "floor": null, "pooling": null},
                    {"lane": "team/handbook", "relation": "read",
                     "arms": {"memory_text": {"searched": true, "reason": "text only"}},
                     "counts": {"events": 10, "searchable": 10, "pending_projection": 0, "unattributed_excluded": 0, "dangling_skipped": 0, "folded": 0},
                     "floor": 0.25, "pooling": "idf_weighted"}
                ],
                "shared": [{"part": "embedder", "state": "embedder_unavailable"}, {"part": "approvals", "state": "not configured"}],
                "query_cut": false
            },
            "ranking": {"method": "fused", "arms": ["turn_text"], "statement": "Sums of normalised scores."},
            "recall_id": "01939a00-0000-7000-8000-0000000000ff"
        });
        change(&mut answer);
        recall(&serde_json::from_value(answer).unwrap())
    }

    #[test]
    fn hits_show_their_ranks_and_coverage_what_was_not_searched() {
        insta::assert_snapshot!(answer(|_| ()));
    }

    #[test]
    fn an_empty_answer_says_what_was_searched_all_the_same() {
        insta::assert_snapshot!(answer(|answer| {
            answer["hits"] = json!([]);
            answer["coverage"]["complete_corpus"] = json!(true);
            answer["coverage"]["missing"] = json!([]);
            answer["coverage"]["query_cut"] = json!(true);
            answer["coverage"]["lanes"] = json!([]);
        }));
    }

    #[test]
    fn a_prompt_stands_alone() {
        assert_eq!(answer(|answer| answer["prompt"] = json!("<data>\nx\n</data>\n")), "<data>\nx\n</data>\n");
    }
}
