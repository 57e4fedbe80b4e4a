//! Verify, rebuild and import reports for people.

use std::fmt::Write as _;

use lanekeeper_core::wire::upkeep::{ImportReport, RebuildReport, VerifyReport};

use super::plain;

/// A verification. Whether it held is also the exit code.
pub(crate) fn verified(report: &VerifyReport) -> String {
    let VerifyReport {
        ok,
        events,
        purged,
        first_bad_seq,
        reason,
        signed_up_to,
        signature_checked,
        head,
        log_id,
        statement,
    } = report;
    let mut text = format!("{}: {}\n", if *ok { "holds" } else { "DOES NOT HOLD" }, plain(statement));
    let _ = writeln!(text, "  rows walked: {events}, of those forgotten: {purged}");
    if let Some(seq) = first_bad_seq {
        let _ = writeln!(text, "  first bad row: seq {seq}: {}", plain(reason.as_deref().unwrap_or("no reason given")));
    }
    let checked = if *signature_checked { "checked" } else { "not checked: the lane's public key is not at hand" };
    let _ = writeln!(text, "  signed up to seq {signed_up_to} (signatures {checked})");
    if let Some(head) = head {
        let _ = writeln!(text, "  head: seq {}, hash {}", head.seq, head.hash);
    }
    let _ = writeln!(text, "  log {}", plain(log_id));
    text
}

/// A rebuild.
pub(crate) fn rebuilt(report: &RebuildReport) -> String {
    let RebuildReport { turns, text_rows, claims, generation, projecting } = report;
    let vectors = if *projecting { "vectors are being made" } else { "vectors are made" };
    format!(
        "Rebuilt from {turns} turns: {text_rows} text rows, {claims} vector claims, generation {generation}; {vectors}.\n"
    )
}

/// An import. The counts add up: lines = imported + already present + refused.
pub(crate) fn imported(report: &ImportReport) -> String {
    let ImportReport { lines, imported, already_present, refused, errors } = report;
    let mut text =
        format!("{lines} turns read: {imported} imported, {already_present} already present, {refused} refused.\n");
    for error in errors {
        let _ = writeln!(text, "  line {}: {}: {}", error.line, plain(&error.field), plain(&error.rule));
    }
    let shown = errors.len() as u64;
    if *refused > shown {
        let _ = writeln!(text, "  … and {} more", refused - shown);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_read_well() {
        let good = json!({"ok": true, "events": 12, "purged": 1, "first_bad_seq": null, "reason": null, "signed_up_to": 12,
            "signature_checked": true, "head": {"seq": 12, "hash": "ab".repeat(32)}, "log_id": "cd".repeat(32),
            "statement": "12 rows of lane team/bob hold (1 forgotten), signed up to seq 12"});
        let bad = json!({"ok": false, "events": 12, "purged": 0, "first_bad_seq": 7, "reason": "its hash does not fit", "signed_up_to": 5,
            "signature_checked": false, "head": null, "log_id": "cd".repeat(32), "statement": "row 7 does not hold: its hash does not fit"});
        let import = json!({"lines": 10, "imported": 7, "already_present": 1, "refused": 2,
            "errors": [{"line": 4, "field": "at", "rule": "must have an offset"}]});
        let rebuild = json!({"turns": 10, "text_rows": 20, "claims": 9, "generation": 2, "projecting": true});
        insta::assert_snapshot!(
            [
                verified(&serde_json::from_value(good).unwrap()),
                verified(&serde_json::from_value(bad).unwrap()),
                imported(&serde_json::from_value(import).unwrap()),
                rebuilt(&serde_json::from_value(rebuild).unwrap()),
            ]
            .join("---\n")
        );
    }
}
