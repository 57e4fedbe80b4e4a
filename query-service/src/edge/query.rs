//! Query parameters: every one is known, stands once and is checked; values are never repeated in errors.

use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use lanekeeper_core::LaneError;

use crate::problem::EdgeError;

/// The parameters of a request, decoded.
#[derive(Debug, Default)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl<S: Sync> FromRequestParts<S> for Parameters {
    type Rejection = EdgeError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, EdgeError> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map_err(|_| LaneError::invalid("query string", "must be name=value pairs in UTF-8"))?;
        Ok(Self(pairs))
    }
}

impl Parameters {
    /// The values of the `known` parameters, in that order.
    pub(crate) fn take<const N: usize>(self, known: [&str; N]) -> Result<[Option<String>; N], LaneError> {
        let mut values = [const { None }; N];
        for (name, value) in self.0 {
            let Some(slot) = known.iter().position(|known| *known == name) else {
                let shown: String = name.chars().filter(char::is_ascii_graphic).take(64).collect();
                return Err(LaneError::invalid(shown, "is not a parameter of this route"));
            };
            if values[slot].replace(value).is_some() {
                return Err(LaneError::invalid(known[slot], "must stand once"));
            }
        }
        Ok(values)
    }

    /// For a route without parameters.
    pub(crate) fn none(self) -> Result<(), LaneError> {
        self.take([]).map(|[]| ())
    }
}

/// A whole number within bounds.
pub(crate) fn number(
    name: &str,
    value: Option<String>,
    default: u64,
    bounds: std::ops::RangeInclusive<u64>,
) -> Result<u64, LaneError> {
    let Some(text) = value else { return Ok(default) };
    // `u64::from_str` also takes a leading '+', which is no number here.
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|number| digits && bounds.contains(number)).ok_or_else(|| {
        LaneError::invalid(name, format!("must be a whole number from {} to {}", bounds.start(), bounds.end()))
    })
}

/// `true` or `false`.
pub(crate) fn flag(name: &str, value: Option<String>) -> Result<bool, LaneError> {
    match value.as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(LaneError::invalid(name, "must be true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(pairs: &[(&str, &str)]) -> Parameters {
        Parameters(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn unknown_and_repeated_parameters_are_refused() {
        assert_eq!(parameters(&[("b", "2")]).take(["a", "b"]).unwrap(), [None, Some("2".to_owned())]);
        let unknown = parameters(&[("principal", "eve")]).take(["a"]).unwrap_err();
        assert!(unknown.to_string().starts_with("principal: ") && !unknown.to_string().contains("eve"));
        assert!(parameters(&[("a", "1"), ("a", "2")]).take(["a"]).is_err());
        assert!(parameters(&[("a", "1")]).none().is_err() && parameters(&[]).none().is_ok());
    }

    #[test]
    fn numbers_and_flags_are_strict() {
        let read = |text: &str| number("limit", Some(text.to_owned()), 100, 1..=1000).ok();
        assert_eq!(
            (read("1"), read("1000"), number("limit", None, 100, 1..=1000).ok()),
            (Some(1), Some(1000), Some(100))
        );
        for bad in ["0", "1001", "-1", "+1", "", "1e3", " 1", "99999999999999999999"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert!(flag("force", Some("yes".into())).is_err() && flag("force", Some("true".into())).unwrap());
    }
}
