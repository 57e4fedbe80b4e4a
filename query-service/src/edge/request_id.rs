//! The request's id: the caller's if it is sane, else our own. It stands in the span, in the answer's
//! header and in every problem.

use http::{HeaderMap, HeaderName};

/// Where it comes in and goes out.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

const LONGEST: usize = 64;

tokio::task_local! {
    static CURRENT: String;
}

/// The id of the request this task works on.
pub(crate) fn current() -> Option<String> {
    CURRENT.try_with(Clone::clone).ok()
}

/// Runs `work` as part of the request.
pub(crate) async fn scope<F: Future>(id: String, work: F) -> F::Output {
    CURRENT.scope(id, work).await
}

/// The caller's id, or a new one. Only characters that are harmless in a log line and a header are taken.
pub(crate) fn of(headers: &HeaderMap) -> String {
    let sane = |text: &str| {
        (1..=LONGEST).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    };
    headers
        .get(HEADER)
        .and_then(|value| value.to_str().ok())
        .filter(|text| sane(text))
        .map_or_else(|| uuid::Uuid::now_v7().to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sane_id_is_taken_over() {
        let of_value = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, value.parse().unwrap());
            of(&headers)
        };
        assert_eq!(of_value("req-1.a_B"), "req-1.a_B");
        for bad in ["", "a b", "a\tb", "{}", &"x".repeat(65)] {
            assert_eq!(of_value(bad).len(), 36, "{bad}");
        }
        assert_ne!(of(&HeaderMap::new()), of(&HeaderMap::new()));
    }
}
