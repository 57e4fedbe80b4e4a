//! Dates in a question against the day of a turn: D ∈ [0, 1].
//!
//! Read are `D Month [YYYY]`, `Month D[, YYYY]` and `YYYY-MM-DD`; if there is none, `Month [YYYY]`; if
//! there is none of those, `20YY`. A bare "may" counts as a month only after a word that dates follow.
//! English month names; abbreviations only beside a day. Several dates: the best one counts.
//!
//! An exact day d against the turn's day s: exp(−max(s − d, 0)/7) for −1 ≤ s − d ≤ 30 (people tell things
//! afterwards; the day before is for time zones). A month: 1 within it, .5·exp(−days after its end/7) for
//! 14 days. A year: .3. Without a year, the turn's year and the one before are tried. The turn's day is
//! that of its `at_ms` in UTC.

use jiff::civil::Date;
use jiff::tz::TimeZone;

const SCALE_DAYS: f64 = 7.0;
const DAYS_AFTER: i32 = 30;
const DAYS_AFTER_MONTH: i32 = 14;
const MONTH_AFTER: f64 = 0.5;
const YEAR: f64 = 0.3;

/// Words after which a bare "may" is the month.
const BEFORE_MAY: [&str; 11] = ["in", "during", "of", "since", "until", "on", "last", "this", "early", "late", "mid"];

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Day { day: i8, month: i8, year: Option<i16> },
    Month { month: i8, year: Option<i16> },
    Year(i16),
}

/// The dates a question names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dates(Vec<Named>);

impl Dates {
    /// Reads a question.
    #[must_use]
    pub fn read(question: &str) -> Self {
        let words = words(question);
        let days = days(&words);
        if !days.is_empty() {
            return Self(days);
        }
        let months = months(&words);
        if !months.is_empty() {
            return Self(months);
        }
        Self(words.iter().filter_map(|word| word.year().filter(|year| *year >= 2000)).map(Named::Year).collect())
    }

    /// Whether the question names no date.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How well a turn's time fits, 0 to 1.
    #[must_use]
    pub fn score(&self, at_ms: i64) -> f64 {
        let Ok(at) = jiff::Timestamp::from_millisecond(at_ms) else { return 0.0 };
        let day = at.to_zoned(TimeZone::UTC).date();
        self.0.iter().map(|named| named.score(day)).fold(0.0, f64::max)
    }
}

impl Named {
    fn score(self, said: Date) -> f64 {
        match self {
            Self::Day { day, month, year } => years(said, year)
                .filter_map(|year| Date::new(year, month, day).ok())
                .map(|named| after_day(said, named))
                .fold(0.0, f64::max),
            Self::Month { month, year } => years(said, year)
                .filter_map(|year| Date::new(year, month, 1).ok())
                .map(|first| after_month(said, first))
                .fold(0.0, f64::max),
            Self::Year(year) => {
                if said.year() == year {
                    YEAR
                } else {
                    0.0
                }
            }
        }
    }
}

/// The year named, or the turn's and the one before.
fn years(said: Date, named: Option<i16>) -> impl Iterator<Item = i16> {
    let tried = match named {
        Some(year) => [Some(year), None],
        None => [Some(said.year()), said.year().checked_sub(1)],
    };
    tried.into_iter().flatten()
}

fn days_from(from: Date, to: Date) -> i32 {
    from.until(to).map_or(i32::MAX, |span| span.get_days())
}

fn after_day(said: Date, named: Date) -> f64 {
    let days = days_from(named, said);
    if (-1..=DAYS_AFTER).contains(&days) { (-f64::from(days.max(0)) / SCALE_DAYS).exp() } else { 0.0 }
}

fn after_month(said: Date, first: Date) -> f64 {
    if said.first_of_month() == first {
        return 1.0;
    }
    let days = days_from(first.last_of_month(), said);
    if (1..=DAYS_AFTER_MONTH).contains(&days) { MONTH_AFTER * (-f64::from(days) / SCALE_DAYS).exp() } else { 0.0 }
}

/// A run of letters and digits, in lower case, with what stands between it and the one before.
struct Word {
    text: String,
    gap: String,
}

impl Word {
    /// A year of this or the last century.
    fn year(&self) -> Option<i16> {
        let good = self.text.len() == 4 && self.text.bytes().all(|b| b.is_ascii_digit());
        self.text.parse().ok().filter(|year| good && (1900..=2099).contains(year))
    }

    /// A day of a month, `7` or `7th`.
    fn day(&self) -> Option<i8> {
        let digits = self.text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let suffix = &self.text[digits.len()..];
        let good = matches!(digits.len(), 1 | 2) && matches!(suffix, "" | "st" | "nd" | "rd" | "th");
        digits.parse().ok().filter(|day| good && (1..=31).contains(day))
    }

    fn full_month(&self) -> Option<i8> {
        MONTHS.iter().position(|month| *month == self.text).and_then(month_number)
    }

    /// A month beside a day, so that `sep` or `mar` can be meant as nothing else.
    fn month_beside_day(&self) -> Option<i8> {
        self.full_month().or_else(|| {
            let short = matches!(self.text.len(), 3) || self.text == "sept";
            MONTHS.iter().position(|month| short && month.starts_with(&self.text)).and_then(month_number)
        })
    }

    /// Whether the gap before this word keeps it together with the one before.
    fn is_close(&self, after_short_month: bool) -> bool {
        !self.gap.is_empty()
            && self
                .gap
                .chars()
                .all(|c| c.is_whitespace() || matches!(c, ',' | '-' | '/') || (after_short_month && c == '.'))
    }
}

fn month_number(index: usize) -> Option<i8> {
    i8::try_from(index + 1).ok()
}

fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut gap = String::new();
    let mut word = String::new();
    for c in text.chars() {
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
            continue;
        }
        if !word.is_empty() {
            words.push(Word { text: std::mem::take(&mut word), gap: std::mem::take(&mut gap) });
        }
        gap.push(c);
    }
    if !word.is_empty() {
        words.push(Word { text: word, gap });
    }
    words
}

fn days(words: &[Word]) -> Vec<Named> {
    let mut found = Vec::new();
    let mut index = 0;
    while index < words.len() {
        let rest = &words[index..];
        match iso_day(rest).or_else(|| day_month(rest)).or_else(|| month_day(rest)) {
            Some((named, used)) => {
                found.push(named);
                index += used;
            }
            None => index += 1,
        }
    }
    found
}

/// A day that exists (29 February exists where no year is named).
fn real_day(day: i8, month: i8, year: Option<i16>) -> Option<Named> {
    Date::new(year.unwrap_or(2000), month, day).ok().map(|_| Named::Day { day, month, year })
}

fn iso_day(words: &[Word]) -> Option<(Named, usize)> {
    let [year, month, day, ..] = words else { return None };
    let number = |word: &Word, text: &str| (word.gap == "-" && text.len() == 2).then(|| text.parse::<i8>().ok())?;
    // `2023-05-07T12:00` is one day too.
    let day_text = day.text.split('t').next().unwrap_or_default();
    let named = real_day(number(day, day_text)?, number(month, &month.text)?, Some(year.year()?))?;
    Some((named, 3))
}

fn day_month(words: &[Word]) -> Option<(Named, usize)> {
    let day = words.first()?.day()?;
    let mut next = 1;
    if words.get(next)?.text == "of" && words[next].is_close(false) {
        next += 1;
    }
    let word = words.get(next).filter(|word| word.is_close(false))?;
    let month = word.month_beside_day()?;
    let (year, used) = year_after(words, next, word.full_month().is_none());
    Some((real_day(day, month, year)?, used))
}

fn month_day(words: &[Word]) -> Option<(Named, usize)> {
    let first = words.first()?;
    let month = first.month_beside_day()?;
    let day = words.get(1).filter(|word| word.is_close(first.full_month().is_none()))?.day()?;
    let (year, used) = year_after(words, 1, false);
    Some((real_day(day, month, year)?, used))
}

/// A year right after the word at `index`, and how many words are then used.
fn year_after(words: &[Word], index: usize, short_month: bool) -> (Option<i16>, usize) {
    let year = words.get(index + 1).filter(|word| word.is_close(short_month)).and_then(Word::year);
    (year, index + 1 + usize::from(year.is_some()))
}

fn months(words: &[Word]) -> Vec<Named> {
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let Some(month) = word.full_month() else { continue };
        let (year, _) = year_after(words, index, false);
        let bare_may = month == 5 && year.is_none();
        let before = index.checked_sub(1).map(|before| words[before].text.as_str());
        if !bare_may || before.is_some_and(|before| BEFORE_MAY.contains(&before)) {
            found.push(Named::Month { month, year });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(day: &str) -> i64 {
        lanekeeper_core::time::parse_rfc3339_ms(&format!("{day}T12:00:00Z")).unwrap()
    }

    fn score(question: &str, day: &str) -> f64 {
        Dates::read(question).score(ms(day))
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    const fn on(day: i8, month: i8, year: Option<i16>) -> Named {
        Named::Day { day, month, year }
    }

    #[test]
    fn each_form_of_a_day_is_read() {
        for (question, expected) in [
            ("what did she say on 7 May 2023?", on(7, 5, Some(2023))),
            ("the 7th of May, 2023", on(7, 5, Some(2023))),
            ("around 15 October", on(15, 10, None)),
            ("May 7, 2023", on(7, 5, Some(2023))),
            ("on May 7 2023.", on(7, 5, Some(2023))),
            ("the deadline is October 15th", on(15, 10, None)),
            ("Oct. 15, 2024 it was", on(15, 10, Some(2024))),
            ("3 sept 2024", on(3, 9, Some(2024))),
            ("logs of 2023-05-07 please", on(7, 5, Some(2023))),
            ("logs of 2023-05-07T12:00Z please", on(7, 5, Some(2023))),
            ("29 February", on(29, 2, None)),
        ] {
            assert_eq!(Dates::read(question), Dates(vec![expected]), "{question}");
        }
    }

    #[test]
    fn months_count_only_without_a_day_and_years_only_without_a_month() {
        assert_eq!(Dates::read("June 2023"), Dates(vec![Named::Month { month: 6, year: Some(2023) }]));
        assert_eq!(Dates::read("what happened in june"), Dates(vec![Named::Month { month: 6, year: None }]));
        assert_eq!(Dates::read("2023 and June 3"), Dates(vec![on(3, 6, None)]));
        assert_eq!(Dates::read("in 2023"), Dates(vec![Named::Year(2023)]));
        assert_eq!(Dates::read("30 February 2023"), Dates(vec![Named::Month { month: 2, year: Some(2023) }]));
        for nothing in ["in 1970", "20233", "room 2023b", "12", "a plain question", "", "sep", "the 7. May I?"] {
            assert!(Dates::read(nothing).is_empty(), "{nothing}");
        }
    }

    #[test]
    fn may_is_a_month_only_where_a_date_can_stand() {
        for yes in ["in May", "since may", "until May?", "mid-May", "early may", "May 2023", "last May"] {
            assert_eq!(Dates::read(yes).0.len(), 1, "{yes}");
        }
        for no in ["may I ask", "what may happen", "it may in the end"] {
            assert!(Dates::read(no).is_empty(), "{no}");
        }
    }

    #[test]
    fn a_day_counts_from_the_day_before_to_thirty_days_after() {
        let question = "on 7 May 2023";
        near(score(question, "2023-05-06"), 1.0);
        near(score(question, "2023-05-07"), 1.0);
        near(score(question, "2023-05-14"), (-1.0_f64).exp());
        near(score(question, "2023-06-06"), (-30.0_f64 / 7.0).exp());
        near(score(question, "2023-06-07"), 0.0);
        near(score(question, "2023-05-05"), 0.0);
        near(score(question, "2024-05-07"), 0.0);
    }

    #[test]
    fn without_a_year_the_turns_year_and_the_one_before_are_tried() {
        near(score("on 30 December", "2024-01-02"), (-3.0_f64 / 7.0).exp());
        near(score("on 7 May", "2023-05-07"), 1.0);
        near(score("on 7 May", "2024-05-07"), 1.0);
        near(score("in December", "2024-01-07"), 0.5 * (-1.0_f64).exp());
        near(score("on 29 February", "2024-02-29"), 1.0);
        near(score("on 29 February", "2023-02-28"), 0.0);
    }

    #[test]
    fn a_month_counts_within_it_and_fades_for_a_fortnight() {
        near(score("in June 2023", "2023-06-01"), 1.0);
        near(score("in June 2023", "2023-06-30"), 1.0);
        near(score("in June 2023", "2023-07-07"), 0.5 * (-1.0_f64).exp());
        near(score("in June 2023", "2023-07-14"), 0.5 * (-2.0_f64).exp());
        near(score("in June 2023", "2023-07-15"), 0.0);
        near(score("in June 2023", "2023-05-31"), 0.0);
        near(score("in June 2023", "2024-06-10"), 0.0);
        near(score("in June", "2024-06-10"), 1.0);
    }

    #[test]
    fn a_year_counts_a_little_and_of_several_dates_the_best_counts() {
        near(score("in 2023", "2023-12-31"), 0.3);
        near(score("in 2023", "2024-01-01"), 0.0);
        near(score("between 1 March 2023 and 7 May 2023", "2023-05-07"), 1.0);
    }

    proptest! {
        #[test]
        fn a_score_lies_in_its_bounds(question in "\\PC{0,40}", number in 0_u8..40, month in 0_usize..12, at in any::<i64>()) {
            for text in [question.clone(), format!("{question} {number} {} 2023", MONTHS[month])] {
                let score = Dates::read(&text).score(at);
                prop_assert!((0.0..=1.0).contains(&score), "{score}");
            }
        }
    }
}
