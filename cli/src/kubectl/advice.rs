//! What to do about a reason, as docs/conditions.md says: the operator's tests hold that page to its closed list of
//! reasons, so that the words here are the page's.

const PAGE: &str = include_str!("../../../docs/conditions.md");

/// The page's words on a reason, without its marks.
pub(super) fn on(reason: &str) -> Option<String> {
    PAGE.lines().find_map(|line| {
        let mut cells = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ");
        let name = cells.next()?.strip_suffix('`')?;
        let words = cells.nth(1)?;
        (name == reason).then(|| words.replace('`', ""))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_pages_words_are_found_by_reason() {
        assert_eq!(super::on("Suspended").unwrap(), "spec.suspend is true: nothing is answered, all is kept.");
        assert!(super::on("ImagePullFailed").unwrap().contains("imagePullSecrets"));
        assert_eq!(super::on("reason"), None);
        assert_eq!(super::on("Nothing"), None);
    }

    #[test]
    fn every_row_of_the_page_can_be_read() {
        let rows: Vec<&str> = super::PAGE.lines().filter(|line| line.starts_with("| `")).collect();
        assert!(rows.len() > 50, "{}", rows.len());
        for row in rows {
            let reason = row.split('`').nth(1).unwrap();
            assert!(super::on(reason).is_some_and(|words| !words.is_empty()), "{row}");
        }
    }
}
