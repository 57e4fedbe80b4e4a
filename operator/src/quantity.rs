//! Quantities such as `2Gi` or `500m`, as numbers that can be compared.

/// In thousandths of a unit; `None` for what is no quantity or too large. Exact for everything that our kinds admit.
#[must_use]
pub fn parse(text: &str) -> Option<i128> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || whole.len() > 18 || fraction.len() > 9 || fraction.contains('.') {
        return None;
    }
    let factor: i128 = match suffix {
        "m" => 1,
        "" => 1000,
        "k" => 1000 * 1000,
        "M" => 1000 * 1000_i128.pow(2),
        "G" => 1000 * 1000_i128.pow(3),
        "T" => 1000 * 1000_i128.pow(4),
        "P" => 1000 * 1000_i128.pow(5),
        "E" => 1000 * 1000_i128.pow(6),
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        "Ti" => 1000 << 40,
        "Pi" => 1000 << 50,
        "Ei" => 1000 << 60,
        _ => return None,
    };
    let whole: i128 = whole.parse().ok()?;
    let mut value = whole.checked_mul(factor)?;
    if !fraction.is_empty() {
        let digits: i128 = fraction.parse().ok()?;
        let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
        // Rounded up, as the API server does below a thousandth.
        value = value
            .checked_add(digits.checked_mul(factor)?.div_euclid(scale) + i128::from((digits * factor) % scale != 0))?;
    }
    Some(value)
}

/// The larger of two sizes, as written. One that cannot be read loses.
#[must_use]
pub fn larger<'a>(one: &'a str, other: &'a str) -> &'a str {
    if parse(other) > parse(one) { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sizes_are_equal_however_they_are_written() {
        for (one, other) in [("2Gi", "2048Mi"), ("1", "1000m"), ("0.5", "500m"), ("1.5Gi", "1536Mi"), ("1k", "1000")] {
            assert_eq!(parse(one), parse(other), "{one} {other}");
            assert!(parse(one).is_some());
        }
        assert!(parse("2Gi") > parse("2G"));
        for bad in ["", "Gi", "1GB", "1..2", "-1", "1 Gi", "abc", ".5"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(larger("2Gi", "3Gi"), "3Gi");
        assert_eq!(larger("2Gi", "2048Mi"), "2Gi");
        assert_eq!(larger("2Gi", "nonsense"), "2Gi");
    }
}
