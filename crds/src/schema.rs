//! The CustomResourceDefinitions as they are installed, and as [`crate::validate`] runs them.
//!
//! What must always hold: the YAML in `crds/yaml`, what the API server gets and what the local program
//! checks are one value, made here. The derive's output is changed in two ways only:
//! - `nullable` is taken out. With it `owner: null` would be stored, and `has(self.owner)` would mean
//!   something else here and there. Without it a null is refused like any other wrong type.
//! - unsigned formats become `int64`; the API server knows no others.

use kube::CustomResourceExt;
use serde_json::Value;

use crate::{Embedder, FederationRecord, Lane};

/// A kind of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// [`crate::Lane`].
    Lane,
    /// [`crate::Embedder`].
    Embedder,
    /// [`crate::FederationRecord`].
    FederationRecord,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Lane, Self::Embedder, Self::FederationRecord];

    /// As `kind` spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lane => "Lane",
            Self::Embedder => "Embedder",
            Self::FederationRecord => "FederationRecord",
        }
    }

    /// The reverse of [`Kind::name`].
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether objects of it live in a namespace.
    #[must_use]
    pub const fn is_namespaced(self) -> bool {
        match self {
            Self::Lane | Self::FederationRecord => true,
            Self::Embedder => false,
        }
    }

    /// The name of its YAML under `crds/yaml`.
    #[must_use]
    pub const fn yaml_file(self) -> &'static str {
        match self {
            Self::Lane => "lane.yaml",
            Self::Embedder => "embedder.yaml",
            Self::FederationRecord => "federation_record.yaml",
        }
    }

    /// The CustomResourceDefinition.
    #[must_use]
    #[expect(clippy::expect_used, reason = "input is our own types only, and every run of the tests makes all three")]
    pub fn definition(self) -> Value {
        let definition = match self {
            Self::Lane => serde_json::to_value(Lane::crd()),
            Self::Embedder => serde_json::to_value(Embedder::crd()),
            Self::FederationRecord => serde_json::to_value(FederationRecord::crd()),
        };
        let mut definition = definition.expect("a definition is plain JSON");
        adapt(&mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
        definition
    }

    /// The OpenAPI schema of its one version.
    #[must_use]
    pub fn schema(self) -> Value {
        self.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take()
    }

    /// The definition as YAML, as it is committed.
    pub fn yaml(self) -> Result<String, serde_saphyr::SerializeError> {
        let body = serde_saphyr::to_string(&self.definition())?;
        Ok(format!(
            "# Generated from crds/src/{}.rs by `cargo xtask codegen`. Do not edit.\n{body}",
            self.yaml_file().trim_end_matches(".yaml")
        ))
    }
}

fn adapt(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            // Only where it is a keyword: a property may be called like one.
            if fields.get("nullable").is_some_and(Value::is_boolean) {
                fields.shift_remove("nullable");
            }
            if let Some(format) = fields.get_mut("format")
                && format.as_str().is_some_and(|format| format.starts_with("uint"))
            {
                *format = "int64".into();
            }
            fields.values_mut().for_each(adapt);
        }
        Value::Array(items) => items.iter_mut().for_each(adapt),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
