//! What is wrong with manifests and lanes right now, told once when it comes and once when it goes.
//!
//! Codes are stable and stand in `/readyz` and `lanekeeper lanes`; the words are for the log. Neither holds
//! memory text.

use std::collections::BTreeMap;
use std::fmt;

use lanekeeper_core::LaneName;

/// What a problem is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// The folder of manifests.
    Folder,
    /// One file in it, by name.
    File(String),
    /// One embedder, by name.
    Embedder(String),
    /// One lane.
    Lane(LaneName),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder => f.write_str("the folder of manifests"),
            Self::File(name) => write!(f, "manifest {name}"),
            Self::Embedder(name) => write!(f, "embedder {name}"),
            Self::Lane(name) => write!(f, "lane {name}"),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Stable.
    pub(crate) code: &'static str,
    /// In words.
    pub(crate) text: String,
}

/// All that is wrong, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Problems(BTreeMap<Subject, Vec<Problem>>);

impl Problems {
    pub(crate) fn add(&mut self, subject: Subject, code: &'static str, text: impl Into<String>) {
        let problem = Problem { code, text: text.into() };
        let all = self.0.entry(subject).or_default();
        if !all.contains(&problem) {
            all.push(problem);
        }
    }

    pub(crate) fn extend(&mut self, other: Self) {
        for (subject, problems) in other.0 {
            for Problem { code, text } in problems {
                self.add(subject.clone(), code, text);
            }
        }
    }

    /// Codes about one lane: its own, and those of the whole folder.
    pub(crate) fn codes_of(&self, lane: &LaneName) -> Vec<&'static str> {
        let own = Subject::Lane(lane.clone());
        let all = [&own, &Subject::Folder].into_iter().filter_map(|subject| self.0.get(subject)).flatten();
        all.map(|problem| problem.code).collect()
    }

    #[cfg(test)]
    pub(crate) fn codes(&self) -> Vec<(String, &'static str)> {
        self.0.iter().flat_map(|(subject, all)| all.iter().map(|problem| (subject.to_string(), problem.code))).collect()
    }

    #[cfg(test)]
    pub(crate) fn text(&self, subject: &Subject) -> String {
        self.0.get(subject).into_iter().flatten().map(|problem| problem.text.clone()).collect::<Vec<_>>().join("; ")
    }

    /// What is here and was not in `before`, and what was there and is gone.
    pub(crate) fn since<'a>(&'a self, before: &'a Self) -> (Vec<(&'a Subject, &'a Problem)>, Vec<&'a Subject>) {
        let known =
            |subject: &Subject, problem: &Problem| before.0.get(subject).is_some_and(|all| all.contains(problem));
        let new = self
            .0
            .iter()
            .flat_map(|(subject, all)| all.iter().map(move |problem| (subject, problem)))
            .filter(|(subject, problem)| !known(subject, problem))
            .collect();
        let gone = before.0.keys().filter(|subject| !self.0.contains_key(*subject)).collect();
        (new, gone)
    }

    /// Writes what changed to the log.
    pub(crate) fn tell(&self, before: &Self) {
        let (new, gone) = self.since(before);
        for (subject, Problem { code, text }) in new {
            tracing::warn!(code, "{subject}: {text}");
        }
        for subject in gone {
            tracing::info!("{subject}: in order again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_told_when_it_comes_and_when_it_goes() {
        let lane = |name: &str| Subject::Lane(name.parse().unwrap());
        let (mut before, mut after) = (Problems::default(), Problems::default());
        before.add(Subject::Folder, "a", "x");
        before.add(lane("team/bob"), "b", "x");
        after.add(lane("team/bob"), "b", "x");
        after.add(lane("team/bob"), "c", "y");
        let (new, gone) = after.since(&before);
        assert_eq!(new.iter().map(|(_, problem)| problem.code).collect::<Vec<_>>(), ["c"]);
        assert_eq!(gone, [&Subject::Folder]);
        assert!(after.since(&after).0.is_empty());
        before.extend(after);
        assert_eq!(before.codes_of(&"team/bob".parse().unwrap()), ["b", "c", "a"]);
    }
}
