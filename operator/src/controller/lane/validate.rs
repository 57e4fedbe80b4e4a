//! From a Lane that can be read to one whose parts are known. Pure over the caches.

use lanekeeper_core::cluster::{embedder_url, managed_embedder};
use lanekeeper_core::fingerprint::FingerprintFields;
use lanekeeper_core::{LaneName, LaneUid};
use lanekeeper_crds::conditions::READY;
use lanekeeper_crds::embedder::Runtime;
use lanekeeper_crds::{Embedder, EmbedderSpec, Lane};

use crate::build::EmbedderTarget;
use crate::cache::find;
use crate::context::Context;
use crate::queue::Key;
use crate::status::{Finding, Reason, finding_of};

/// A lane whose parts are known.
#[derive(Debug, Clone)]
pub struct ValidatedLane {
    /// `namespace/name`.
    pub name: LaneName,
    /// What the name is bound to.
    pub uid: LaneUid,
    /// `<namespace>.<collection>`.
    pub collection: String,
    /// What makes its vectors.
    pub embedder: EmbedderTarget,
    /// How that is.
    pub embedder_finding: Finding,
    /// The Secret and key of an external embedder's token.
    pub embedder_secret: Option<(String, String)>,
}

/// Why it is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalid {
    /// A field of the Lane.
    Spec(Finding),
    /// Its embedder.
    Embedder {
        /// As declared.
        name: String,
        /// Why.
        finding: Finding,
    },
}

/// Checks it.
pub fn validate(context: &Context, lane: &Lane) -> Result<ValidatedLane, Invalid> {
    let spec = |message: String| Invalid::Spec(Finding::no(Reason::InvalidSpec, message));
    let name = lane.lane_name().map_err(|error| spec(crate::error::chain(&error)))?;
    let uid = lane.metadata.uid.as_deref().unwrap_or_default();
    let uid = uid.parse().map_err(|error| spec(format!("metadata.uid: {error}")))?;
    let collection = lane.full_collection().map_err(|error| spec(crate::error::chain(&error)))?;
    let found = |name: &str| {
        let caches = context.caches().ok()?;
        let guarded = find(&caches.embedders, &Key::cluster(name))?;
        guarded.0.as_ref().ok().cloned()
    };
    let here = &context.config.system_namespace;
    let (embedder, finding, secret) = match (lane.spec.embedder.model, &lane.spec.embedder.name) {
        (Some(model), None) => {
            let fields = model.fingerprint_fields();
            let name = managed_embedder(&fields.fingerprint());
            let known = found(&name);
            let target = in_cluster(&name, here, true, fields);
            (target, state_of(known.as_ref(), &name), None)
        }
        (None, Some(name)) => {
            let invalid = |reason, message: String| Invalid::Embedder {
                name: name.clone(),
                finding: Finding::no(reason, message),
            };
            let known = found(name)
                .ok_or_else(|| invalid(Reason::EmbedderUnknown, format!("there is no Embedder named {name}")))?;
            let fields = known
                .spec
                .fingerprint_fields()
                .map_err(|error| invalid(Reason::EmbedderInvalid, format!("Embedder {name}: {error}")))?;
            let target = target(name, &known.spec, here, fields);
            let secret = known.spec.external.as_ref().and_then(|external| external.api_key_secret.as_ref());
            let secret = secret.map(|secret| (secret.name.clone(), secret.key.clone()));
            (target, state_of(Some(&known), name), secret)
        }
        (Some(_), Some(_)) | (None, None) => {
            return Err(spec("spec.embedder: give exactly one of model and name".to_owned()));
        }
    };
    Ok(ValidatedLane { name, uid, collection, embedder, embedder_finding: finding, embedder_secret: secret })
}

/// Where an Embedder of this spec is asked, and how.
#[must_use]
pub fn target(name: &str, spec: &EmbedderSpec, system_namespace: &str, fields: FingerprintFields) -> EmbedderTarget {
    match (spec.runtime, &spec.external) {
        (Runtime::Builtin, _) => in_cluster(name, system_namespace, true, fields),
        (Runtime::External, Some(external)) => EmbedderTarget {
            name: name.to_owned(),
            url: external.url.clone(),
            is_ours: false,
            is_in_cluster: false,
            fields,
        },
        (Runtime::Tei | Runtime::Llamacpp | Runtime::External, _) => in_cluster(name, system_namespace, false, fields),
    }
}

fn in_cluster(name: &str, system_namespace: &str, is_ours: bool, fields: FingerprintFields) -> EmbedderTarget {
    let base = embedder_url(name, system_namespace);
    // The base of the OpenAI API, behind which `/embeddings` is put.
    let url = if is_ours { base } else { format!("{base}/v1") };
    EmbedderTarget { name: name.to_owned(), url, is_ours, is_in_cluster: true, fields }
}

/// What the Embedder's own controller found.
fn state_of(embedder: Option<&Embedder>, name: &str) -> Finding {
    let conditions = embedder.and_then(|found| found.status.as_ref()).map(|status| status.conditions.as_slice());
    match conditions.and_then(|conditions| finding_of(conditions, READY)) {
        // It was idle until this lane came.
        Some(Finding { reason: Reason::Idle, .. }) | None => {
            Finding::no(Reason::EmbedderStarting, format!("Embedder {name} is being made"))
        }
        Some(Finding { holds, reason, message }) => {
            Finding { holds, reason, message: format!("Embedder {name}: {message}") }
        }
    }
}
