//! Manifests as people write them: YAML, several documents a file, read without a cluster.
//!
//! What must always hold: an object that comes out has passed the same rules as in a cluster and has
//! every default filled in. Nothing is guessed: a key that stands twice, a field that does not exist,
//! a kind that is not ours is an error that says where.
//!
//! One bad document does not take the others with it: each has its own outcome, and a refused one
//! still says which object it is about, so that its lane is not mistaken for removed. A file that is
//! no YAML has one outcome for all.
//!
//! Not done here: files and folders (the local program's), and what needs several objects, except that
//! one file may not hold an object twice.

use std::collections::HashSet;
use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::schema::Kind;
use crate::validate::{Violation, validate_create, with_defaults};
use crate::{API_VERSION, Embedder, Lane, object_meta};

/// Largest file, bytes.
pub const MANIFEST_BYTES: usize = 256 * 1024;
/// Most documents of a file.
pub const MANIFEST_DOCUMENTS: usize = 256;

/// An object that a manifest declares.
#[derive(Debug, Clone, PartialEq)]
pub enum Manifest {
    /// A lane.
    Lane(Box<Lane>),
    /// An embedder.
    Embedder(Box<Embedder>),
}

/// Which object a document is about, as far as it says so. The parts are as written, valid or not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectName {
    /// `Lane` or `Embedder`.
    pub kind: &'static str,
    /// Of a lane.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name } = self;
        match namespace {
            Some(namespace) => write!(f, "{kind} {namespace}/{name}"),
            None => write!(f, "{kind} {name}"),
        }
    }
}

/// Why a whole file declares nothing. Wait for an edit; what the file declared before stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Too large.
    #[error("the file has {bytes} bytes, at most {MANIFEST_BYTES} are read")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Not YAML, or YAML with a key twice, or built to explode.
    #[error("line {line}, column {column}: {problem}")]
    Yaml {
        /// From 1; 0 if not known.
        line: u64,
        /// From 1; 0 if not known.
        column: u64,
        /// In words.
        problem: String,
    },
}

/// Why one document declares nothing. Wait for an edit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("document {document}{}: {fault}", about(.object.as_ref()))]
pub struct DocumentError {
    /// Which document of the file, from 1.
    pub document: usize,
    /// Which object, if it says so.
    pub object: Option<ObjectName>,
    /// What is wrong.
    pub fault: DocumentFault,
}

fn about(object: Option<&ObjectName>) -> String {
    object.map(|object| format!(" ({object})")).unwrap_or_default()
}

/// What is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentFault {
    /// A list or a single word where an object should be.
    #[error("is no object")]
    NotAnObject,
    /// Of another API, or a kind that is not declared by hand.
    #[error("kind {kind:?} of {api_version:?} is not read here, only Lane and Embedder of {API_VERSION}")]
    OtherKind {
        /// As written.
        api_version: String,
        /// As written.
        kind: String,
    },
    /// It breaks rules.
    #[error("{}", list(.0))]
    Refused(Vec<Violation>),
    /// The file declares the object twice.
    #[error("is declared twice in this file")]
    Twice,
}

fn list(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Reads a file of manifests. A lane that names no namespace gets `default_namespace`.
///
/// `status` and the fields of `metadata` that a server sets are ignored, as a server ignores them.
pub fn parse_lane_manifest(
    yaml: &str,
    default_namespace: &str,
) -> Result<Vec<Result<Manifest, DocumentError>>, ManifestError> {
    let mut seen = HashSet::new();
    let documents = read(yaml)?.into_iter().enumerate().map(|(index, value)| {
        let (object, outcome) = interpret(value, default_namespace);
        let outcome = match &object {
            // A refused document counts too: which of the two was meant is not ours to say.
            Some(object) if !seen.insert(object.clone()) => Err(DocumentFault::Twice),
            Some(_) | None => outcome,
        };
        outcome.map_err(|fault| DocumentError { document: index + 1, object, fault })
    });
    Ok(documents.collect())
}

fn read(yaml: &str) -> Result<Vec<Value>, ManifestError> {
    if yaml.len() > MANIFEST_BYTES {
        return Err(ManifestError::TooLarge { bytes: yaml.len() });
    }
    // Aliases are allowed, within limits that a hand-written file never meets: every expansion counts as
    // if it were written out.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: MANIFEST_DOCUMENTS,
            max_depth: 24,
            max_nodes: 50_000,
            max_events: 100_000,
            max_aliases: 1_000,
            max_anchors: 1_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 20_000,
            max_replay_stack_depth: 16,
        },
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::Error,
        merge_keys: serde_saphyr::MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        // The file is the author's own; a line and column are enough to find the place.
        with_snippet: false,
    };
    serde_saphyr::from_multiple_with_options::<Value>(yaml, options).map_err(|error| {
        let error = error.without_snippet();
        let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
        ManifestError::Yaml { line, column, problem: error.to_string() }
    })
}

fn interpret(mut value: Value, default_namespace: &str) -> (Option<ObjectName>, Result<Manifest, DocumentFault>) {
    let text = |value: &Value, pointer: &str| {
        value.pointer(pointer).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    if !value.is_object() {
        return (None, Err(DocumentFault::NotAnObject));
    }
    let api_version = text(&value, "/apiVersion").unwrap_or_default();
    let kind = text(&value, "/kind").unwrap_or_default();
    let kind = match Kind::by_name(&kind) {
        Some(kind @ (Kind::Lane | Kind::Embedder)) if api_version == API_VERSION => kind,
        Some(_) | None => return (None, Err(DocumentFault::OtherKind { api_version, kind })),
    };
    if let Some(fields) = value.as_object_mut() {
        fields.shift_remove("status");
    }
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| !object_meta::SERVER_FIELDS.contains(&name.as_str()));
        if kind.is_namespaced() && !metadata.contains_key("namespace") {
            metadata.insert("namespace".to_owned(), default_namespace.into());
        }
    }
    let object = text(&value, "/metadata/name").map(|name| ObjectName {
        kind: kind.name(),
        namespace: kind.is_namespaced().then(|| text(&value, "/metadata/namespace")).flatten(),
        name,
    });
    (object, declare(kind, &value).map_err(DocumentFault::Refused))
}

fn declare(kind: Kind, value: &Value) -> Result<Manifest, Vec<Violation>> {
    let value = with_defaults(value)?;
    validate_create(&value)?;
    match kind {
        Kind::Lane => Ok(Manifest::Lane(Box::new(typed(value)?))),
        Kind::Embedder => {
            let embedder: Embedder = typed(value)?;
            // In a cluster a condition of the Embedder; here there is none to read, so it is said at once.
            embedder.spec.fingerprint_fields().map_err(|error| vec![Violation::new("", error.to_string())])?;
            Ok(Manifest::Embedder(Box::new(embedder)))
        }
        Kind::FederationRecord => Err(vec![Violation::new("kind", "is not declared by hand")]),
    }
}

/// The schema was made from the type, so this refuses nothing that has passed it; if the two ever
/// differ, the path says where.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T, Vec<Violation>> {
    serde_path_to_error::deserialize(value)
        .map_err(|error| vec![Violation::new(error.path().to_string(), error.inner().to_string())])
}
