//! What a folder of manifests means, followed over time. Pure: files and the clock are handed in.
//!
//! # Flow of a pass
//! 1. Each file's content counts once it has settled: it has not changed for a second, by its own time or by
//!    ours. Until then the file means what it meant before, so half a file is never read.
//! 2. Every document of every settled file is parsed by its kind's rules.
//! 3. A lane that is new is created; one that differs is checked against its last accepted manifest and
//!    updated, or refused with the rule while the old one stands.
//! 4. A lane that no file mentions is removed when that has been so for five seconds.
//!
//! # Guarantees
//! - A folder that is unreadable, gone, or without any manifest removes nothing.
//! - A file that cannot be read or understood removes no lane that it declared; neither does a document
//!   that is refused.
//! - Two files that name one lane change nothing about it.
//!
//! # Not here
//! Reading files (`folder`), and what a change does (`lanes`). A change is offered again in each pass until
//! [`Follower::set`] or [`Follower::forget`] says that it has happened.

use std::collections::{BTreeMap, BTreeSet};

use lanekeeper_core::LaneName;
use lanekeeper_core::hooks::guard;
use lanekeeper_crds::manifest::{DocumentError, DocumentFault, ObjectName};
use lanekeeper_crds::validate::validate_lane_update;
use lanekeeper_crds::{EmbedderSpec, Lane, Manifest, Violation, parse_lane_manifest};

use super::problems::{Problems, Subject};

/// How long a lane must be gone.
pub(crate) const REMOVED_MS: i64 = 5_000;
/// How long a file must not have changed.
pub(crate) const SETTLED_MS: i64 = 1_000;
/// Of a manifest that names no namespace.
const DEFAULT_NAMESPACE: &str = "default";

/// Now, by a clock that never jumps and by the one that files are stamped with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) steady_ms: i64,
    pub(crate) wall_ms: i64,
}

/// A manifest file as it was found.
#[derive(Debug, Clone)]
pub(crate) struct ObservedFile {
    pub(crate) name: String,
    pub(crate) modified_ms: Option<i64>,
    /// Its text, or why it cannot be read.
    pub(crate) content: Result<String, String>,
}

/// The folder as it was found.
#[derive(Debug, Clone)]
pub(crate) enum Observation {
    Files(Vec<ObservedFile>),
    Unreadable(String),
}

/// What should happen to a lane.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    Create { name: LaneName, lane: Box<Lane>, source: String },
    Update { name: LaneName, lane: Box<Lane>, source: String },
    Remove { name: LaneName },
}

impl Change {
    /// Whose.
    pub(crate) const fn name(&self) -> &LaneName {
        match self {
            Self::Create { name, .. } | Self::Update { name, .. } | Self::Remove { name } => name,
        }
    }
}

/// The outcome of a pass.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    pub(crate) changes: Vec<Change>,
    /// Embedders that are declared now; `None`: that cannot be told.
    pub(crate) embedders: Option<BTreeMap<String, EmbedderSpec>>,
    pub(crate) problems: Problems,
    /// Whether every file that can be read counts as it is.
    pub(crate) settled: bool,
}

/// A lane that exists.
#[derive(Debug)]
struct Known {
    lane: Lane,
    /// The file that declared it last.
    source: String,
    missing_since_ms: Option<i64>,
}

#[derive(Debug, Default)]
enum Declared {
    /// Not settled since we look.
    #[default]
    Unknown,
    /// Cannot be understood: it may mean anything.
    Opaque {
        code: &'static str,
        why: String,
    },
    Documents(Vec<Document>),
}

#[derive(Debug)]
enum Document {
    Lane {
        name: LaneName,
        outcome: Result<Box<Lane>, String>,
    },
    Embedder {
        name: String,
        outcome: Result<Box<EmbedderSpec>, String>,
    },
    /// Refused, and it does not say whose it is.
    Nameless(String),
    /// Of somebody else's API: no lane of ours, whatever it is.
    Foreign(String),
}

#[derive(Debug)]
struct Watched {
    content: Result<String, String>,
    since_ms: i64,
    settled: bool,
    declared: Declared,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    lanes: BTreeMap<LaneName, Known>,
    files: BTreeMap<String, Watched>,
}

/// A file, and what it says about one thing.
type Said<'a, T> = (&'a str, &'a Result<Box<T>, String>);

impl Follower {
    /// A lane exists, under this manifest from this file.
    pub(crate) fn set(&mut self, name: LaneName, lane: Lane, source: String) {
        self.lanes.insert(name, Known { lane, source, missing_since_ms: None });
    }

    /// A lane is no more.
    pub(crate) fn forget(&mut self, name: &LaneName) {
        self.lanes.remove(name);
    }

    /// Compares what is there with what was.
    pub(crate) fn observe(&mut self, now: Moment, observation: Observation) -> Pass {
        let mut pass = Pass::default();
        let files = match observation {
            Observation::Unreadable(reason) => {
                self.hold_all();
                pass.settled = true;
                pass.problems.add(
                    Subject::Folder,
                    "manifests_unreadable",
                    format!("{reason}; every lane stays as it is"),
                );
                return pass;
            }
            Observation::Files(files) if files.is_empty() && !self.lanes.is_empty() && guard("emptied_folder") => {
                self.hold_all();
                pass.settled = true;
                pass.problems.add(
                    Subject::Folder,
                    "manifests_emptied",
                    "there is no manifest at all; every lane stays as it is. To delete the last lane leave a file that holds only a comment",
                );
                return pass;
            }
            Observation::Files(files) => files,
        };
        self.watch(now, files);
        pass.settled = self.files.values().all(|file| file.settled);
        let mut mentions: BTreeMap<&LaneName, Vec<Said<'_, Lane>>> = BTreeMap::new();
        // Files that may mean anything, with what is wrong with them.
        let mut opaque: BTreeMap<&str, Option<&'static str>> = BTreeMap::new();
        let mut embedders: BTreeMap<&str, Vec<Said<'_, EmbedderSpec>>> = BTreeMap::new();
        for (file, watched) in &self.files {
            match &watched.declared {
                Declared::Unknown => {
                    opaque.insert(file, None);
                }
                Declared::Opaque { code, why } => {
                    opaque.insert(file, Some(code));
                    pass.problems.add(Subject::File(file.clone()), code, why);
                }
                Declared::Documents(documents) => {
                    for document in documents {
                        match document {
                            Document::Lane { name, outcome } => mentions.entry(name).or_default().push((file, outcome)),
                            Document::Embedder { name, outcome } => {
                                embedders.entry(name).or_default().push((file, outcome))
                            }
                            Document::Foreign(why) => {
                                pass.problems.add(Subject::File(file.clone()), "manifest_foreign", why);
                            }
                            Document::Nameless(why) => {
                                opaque.insert(file, Some("manifest_refused"));
                                pass.problems.add(Subject::File(file.clone()), "manifest_refused", why);
                            }
                        }
                    }
                }
            }
        }
        pass.embedders = Some(declared_embedders(&embedders, &mut pass.problems));
        for (name, said) in &mentions {
            let known = self.lanes.get_mut(*name);
            mentioned(name, said, known, &mut pass);
        }
        for (name, known) in &mut self.lanes {
            if mentions.contains_key(name) {
                known.missing_since_ms = None;
                continue;
            }
            if let Some(code) = opaque.get(known.source.as_str()) {
                known.missing_since_ms = None;
                if let Some(code) = code {
                    let why =
                        format!("{} declared it and cannot be understood now; the lane stays as it was", known.source);
                    pass.problems.add(Subject::Lane(name.clone()), code, why);
                }
                continue;
            }
            let since = *known.missing_since_ms.get_or_insert(now.steady_ms);
            if now.steady_ms - since >= REMOVED_MS {
                pass.changes.push(Change::Remove { name: name.clone() });
            }
        }
        pass
    }

    /// The five seconds run only while the folder can be read.
    fn hold_all(&mut self) {
        self.lanes.values_mut().for_each(|known| known.missing_since_ms = None);
    }

    fn watch(&mut self, now: Moment, files: Vec<ObservedFile>) {
        let names: BTreeSet<String> = files.iter().map(|file| file.name.clone()).collect();
        self.files.retain(|name, _| names.contains(name));
        for ObservedFile { name, modified_ms, content } in files {
            let watched = self.files.entry(name).or_insert_with(|| Watched {
                content: content.clone(),
                since_ms: now.steady_ms,
                settled: false,
                declared: Declared::Unknown,
            });
            if watched.content != content {
                watched.content = content;
                watched.since_ms = now.steady_ms;
                watched.settled = false;
            }
            let old_by_its_time = modified_ms.is_some_and(|at| now.wall_ms - at >= SETTLED_MS);
            if !watched.settled && (old_by_its_time || now.steady_ms - watched.since_ms >= SETTLED_MS) {
                watched.settled = true;
                watched.declared = read(&watched.content);
            }
        }
    }
}

/// What becomes of a lane that is mentioned.
fn mentioned(name: &LaneName, said: &[Said<'_, Lane>], known: Option<&mut Known>, pass: &mut Pass) {
    let subject = Subject::Lane(name.clone());
    let stands = if known.is_some() { "; the lane stays as it was" } else { "" };
    let files: BTreeSet<&str> = said.iter().map(|(file, _)| *file).collect();
    if files.len() > 1 {
        let files = files.into_iter().collect::<Vec<_>>().join(" and ");
        pass.problems.add(subject, "manifest_ambiguous", format!("is declared by {files}{stands}"));
        return;
    }
    let refused: Vec<&str> =
        said.iter().filter_map(|(_, outcome)| outcome.as_ref().err()).map(String::as_str).collect();
    let Some((file, Ok(lane))) = said.first().filter(|_| refused.is_empty()) else {
        let file = files.into_iter().collect::<String>();
        pass.problems.add(subject, "manifest_refused", format!("{file}: {}{stands}", refused.join("; ")));
        return;
    };
    let (name, source) = (name.clone(), (*file).to_owned());
    match known {
        None => pass.changes.push(Change::Create { name, lane: lane.clone(), source }),
        Some(known) if known.lane == **lane => known.source = source,
        Some(known) => match validate_lane_update(&known.lane, lane) {
            Ok(()) => pass.changes.push(Change::Update { name, lane: lane.clone(), source }),
            Err(violations) => {
                pass.problems.add(subject, "manifest_refused", format!("{file}: {}{stands}", listed(&violations)));
            }
        },
    }
}

fn listed(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn declared_embedders(
    said: &BTreeMap<&str, Vec<Said<'_, EmbedderSpec>>>,
    problems: &mut Problems,
) -> BTreeMap<String, EmbedderSpec> {
    let mut declared = BTreeMap::new();
    for (name, said) in said {
        let subject = || Subject::Embedder((*name).to_owned());
        match said.as_slice() {
            [(_, Ok(spec))] => {
                declared.insert((*name).to_owned(), (**spec).clone());
            }
            [(file, Err(why))] => problems.add(subject(), "manifest_refused", format!("{file}: {why}")),
            several => {
                let files: BTreeSet<&str> = several.iter().map(|(file, _)| *file).collect();
                let files = files.into_iter().collect::<Vec<_>>().join(" and ");
                problems.add(subject(), "manifest_ambiguous", format!("is declared more than once, by {files}"));
            }
        }
    }
    declared
}

/// What a file means.
fn read(content: &Result<String, String>) -> Declared {
    let text = match content {
        Ok(text) => text,
        Err(why) => return Declared::Opaque { code: "manifest_unreadable", why: why.clone() },
    };
    if text.trim().is_empty() {
        // As a failed write leaves it. A file that is meant to say nothing holds a comment.
        return Declared::Opaque { code: "manifest_empty", why: "is empty; what it declared stays".into() };
    }
    match parse_lane_manifest(text, DEFAULT_NAMESPACE) {
        Err(error) => Declared::Opaque { code: "manifest_refused", why: format!("{error}; what it declared stays") },
        Ok(documents) => Declared::Documents(documents.into_iter().map(document).collect()),
    }
}

fn document(outcome: Result<Manifest, DocumentError>) -> Document {
    match outcome {
        Ok(Manifest::Lane(lane)) => match lane.lane_name() {
            Ok(name) => Document::Lane { name, outcome: Ok(lane) },
            Err(error) => Document::Nameless(crate::failure::chain(&error)),
        },
        Ok(Manifest::Embedder(embedder)) => Document::Embedder {
            name: embedder.metadata.name.unwrap_or_default(),
            outcome: Ok(Box::new(embedder.spec)),
        },
        Err(error) => refused(error),
    }
}

fn refused(error: DocumentError) -> Document {
    let why = error.to_string();
    let DocumentError { document: _, object, fault } = error;
    match object {
        Some(ObjectName { kind: "Embedder", namespace: _, name }) => Document::Embedder { name, outcome: Err(why) },
        Some(ObjectName { kind: _, namespace, name }) => {
            let namespace = namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
            match LaneName::new(namespace, &name) {
                Ok(name) => Document::Lane { name, outcome: Err(why) },
                // No lane can have that name, so none is meant.
                Err(_) => Document::Nameless(why),
            }
        }
        None => match fault {
            DocumentFault::OtherKind { api_version, kind } if is_foreign(&api_version, &kind) => Document::Foreign(why),
            DocumentFault::OtherKind { .. }
            | DocumentFault::NotAnObject
            | DocumentFault::Refused(_)
            | DocumentFault::Twice => Document::Nameless(why),
        },
    }
}

/// Whether a document is certainly not meant as ours. A misspelt version of ours is not certain.
fn is_foreign(api_version: &str, kind: &str) -> bool {
    let ours = api_version.contains(lanekeeper_crds::GROUP) || matches!(kind, "Lane" | "Embedder");
    !ours && !api_version.is_empty() && !kind.is_empty()
}

#[cfg(test)]
mod tests;
