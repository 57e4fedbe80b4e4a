//! The lanes a token reaches, for people.

use std::fmt::Write as _;

use lanekeeper_core::lane::{LaneKind, Ranking};
use lanekeeper_core::wire::lanes::{LaneList, LaneSummary};
use lanekeeper_core::wire::recall::Relation;

use super::{counted, plain};

/// All of them, one paragraph each.
pub(crate) fn lanes(list: &LaneList) -> String {
    if list.lanes.is_empty() {
        return "The token reaches no lane.\n".to_owned();
    }
    list.lanes.iter().map(lane).collect()
}

fn lane(summary: &LaneSummary) -> String {
    let LaneSummary { lane, uid, kind, relation, role, ready, writable, reasons, head_seq, counts, ranking, embedder } =
        summary;
    let kind = match kind {
        LaneKind::Personal => "personal",
        LaneKind::Corpus => "corpus",
    };
    let relation = match (relation, role) {
        (Relation::Own, Some(role)) => format!("own, as {}", plain(role)),
        (Relation::Own, None) => "own".to_owned(),
        (Relation::Read, _) => "read".to_owned(),
    };
    let state = match (ready, writable) {
        (true, true) => "ready",
        (true, false) => "recall only",
        (false, _) => "not ready",
    };
    let mut text = format!("{lane}  {kind}  {relation}  {state}\n  uid {uid}\n");
    if !reasons.is_empty() {
        let _ = writeln!(text, "  reasons: {}", plain(&reasons.join(", ")));
    }
    if let Some(counts) = counts {
        let _ = write!(text, "  {}", counted(counts.events, "turn", "turns"));
        if counts.pending_projection > 0 {
            let _ = write!(text, ", {} without vectors yet", counts.pending_projection);
        }
        if let Some(seq) = head_seq {
            let _ = write!(text, ", head at seq {seq}");
        }
        text.push('\n');
    }
    let ranking = match ranking {
        Ranking::Fused => "fused",
        Ranking::Rrf => "rrf",
    };
    let _ = writeln!(text, "  ranking {ranking}, embedder {}", plain(embedder));
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_lane_says_how_it_is() {
        let list = serde_json::from_value(json!({"lanes": [
            {"lane": "team/bob", "uid": "01939a00-0000-7000-8000-000000000001", "kind": "personal", "relation": "own", "role": "admin",
             "ready": true, "writable": true, "reasons": [], "head_seq": 12,
             "counts": {"events": 11, "searchable": 11, "pending_projection": 3, "unattributed_excluded": 0, "dangling_skipped": 0, "folded": 0},
             "ranking": "fused", "embedder": "all-MiniLM-L6-v2 0a1b2c3d"},
            {"lane": "team/handbook", "uid": "01939a00-0000-7000-8000-000000000002", "kind": "corpus", "relation": "read", "role": null,
             "ready": false, "writable": false, "reasons": ["lane_suspended"], "head_seq": null, "counts": null,
             "ranking": "rrf", "embedder": "all-MiniLM-L6-v2 0a1b2c3d"}
        ]}))
        .unwrap();
        insta::assert_snapshot!(lanes(&list));
        assert_eq!(lanes(&LaneList { lanes: Vec::new() }), "The token reaches no lane.\n");
    }
}
