//! The header that stands before a chunk when it is encoded: which event, and when.

use lanekeeper_core::EventId;

/// `[log <last 8 hex digits of the event id> <YYYY-MM-DD>]`, the day in UTC so that a rebuild anywhere
/// makes the same vector.
pub(crate) fn header(event_id: EventId, at_ms: i64) -> String {
    let time = lanekeeper_core::time::format_rfc3339_ms(at_ms);
    // Years outside 0000–9999 have a sign and six digits; the day ends at the T all the same.
    let day = time.split('T').next().unwrap_or_default();
    format!("[log {} {day}]", event_id.tail8())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_the_id_and_the_day() {
        let id: EventId = "0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b".parse().unwrap();
        assert_eq!(header(id, 0), "[log 2e3f4a5b 1970-01-01]");
        assert_eq!(header(id, 1_796_083_199_999), "[log 2e3f4a5b 2026-11-30]");
    }

    #[test]
    fn c23_extreme_times_have_a_header() {
        let id: EventId = "0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b".parse().unwrap();
        for at in [i64::MIN, -62_167_300_000_000, 253_402_300_799_999, i64::MAX] {
            assert!(header(id, at).starts_with("[log 2e3f4a5b "), "{}", header(id, at));
        }
    }
}
