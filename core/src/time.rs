//! RFC 3339 times as callers send them: the text is kept as sent, the instant is used to compute.

use crate::ids::IdError;

/// The instant a text names, in milliseconds since the Unix epoch.
///
/// An offset (or `Z`) is required: a local time without one names no instant. Years 0000 to 9999.
pub fn parse_rfc3339_ms(text: &str) -> Result<i64, IdError> {
    let rule = || IdError::new("must be an RFC 3339 time with an offset, such as 2026-11-30T09:00:00Z");
    // jiff also reads forms that RFC 3339 does not have; the shape is checked first.
    let bytes = text.as_bytes();
    let shaped = bytes.len() >= 20
        && bytes.len() <= 40
        && bytes[..4].iter().all(u8::is_ascii_digit)
        && bytes[4] == b'-'
        && bytes[7] == b'-'
        && matches!(bytes[10], b'T' | b't')
        && bytes[13] == b':'
        && bytes[16] == b':'
        && (matches!(bytes[bytes.len() - 1], b'Z' | b'z') || {
            let tail = &bytes[bytes.len() - 6..];
            matches!(tail[0], b'+' | b'-') && tail[3] == b':'
        });
    if !shaped {
        return Err(rule());
    }
    // Year 9999 at the very end, with a negative offset, lies past what jiff holds.
    text.parse::<jiff::Timestamp>().map(|at| at.as_millisecond()).map_err(|_| rule())
}

/// An instant as RFC 3339 text in UTC with milliseconds.
#[must_use]
pub fn format_rfc3339_ms(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(at) => format!("{at:.3}"),
        Err(_) => "out of range".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_required_and_extremes_are_read() {
        assert_eq!(parse_rfc3339_ms("1970-01-01T00:00:00Z").unwrap(), 0);
        assert_eq!(parse_rfc3339_ms("1970-01-01T14:00:00+14:00").unwrap(), 0);
        assert_eq!(parse_rfc3339_ms("1970-01-01T00:00:00.250Z").unwrap(), 250);
        assert!(parse_rfc3339_ms("9999-12-30T00:00:00Z").is_ok());
        for bad in
            ["2026-11-30T09:00:00", "2026-11-30", "", "yesterday", "2026-13-01T00:00:00Z", "2026-11-30 09:00:00Z"]
        {
            assert!(parse_rfc3339_ms(bad).is_err(), "{bad}");
        }
        assert_eq!(format_rfc3339_ms(250), "1970-01-01T00:00:00.250Z");
    }
}
