//! The encoder of a fingerprint: a client of the Embedder that makes such vectors.
//!
//! What must always hold: a fingerprint has one client at a time, kept while its Embedder stays what it is; where
//! nothing makes a fingerprint there is an encoder that says so, and recall goes on by text.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use lanekeeper_core::cluster::{embedder_url, managed_embedder};
use lanekeeper_core::encoder::{Baseline, EncodeError, Encoder, Passage, PassageVector, QueryEncoding, Work};
use lanekeeper_core::fingerprint::{Fingerprint, FingerprintFields, QueryPooling};
use lanekeeper_crds::EmbedderSpec;
use lanekeeper_crds::embedder::Runtime;
use lanekeeper_embedder::{ExternalConfig, ExternalEncoder, RemoteConfig, RemoteEncoder};

/// Where an encoder is, and how it is spoken to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Place {
    /// Our own server.
    Ours { url: String },
    /// A server with the OpenAI API.
    OpenAi { url: String, token_file: Option<PathBuf> },
    /// Nowhere.
    Nowhere,
}

/// Where the vectors of a fingerprint are made. `declared` are the Embedders by name.
pub(super) fn place<'a>(
    fingerprint: Fingerprint,
    declared: impl Iterator<Item = (&'a str, &'a EmbedderSpec)>,
    system_namespace: &str,
    tokens: Option<&PathBuf>,
) -> (Place, Option<FingerprintFields>) {
    let here = |name: &str| embedder_url(name, system_namespace);
    let mut found: Vec<_> = declared
        .filter_map(|(name, spec)| {
            let fields = spec.fingerprint_fields().ok()?;
            (fields.fingerprint() == fingerprint).then_some((name, spec, fields))
        })
        .collect();
    // Several may make the same vectors: the first by name, so that all replicas take the same.
    found.sort_by_key(|(name, _, _)| *name);
    let Some((name, spec, fields)) = found.into_iter().next() else {
        let builtin = FingerprintFields::builtin();
        if builtin.fingerprint() == fingerprint {
            // The operator's own for the built-in model; its object may just not have been seen yet.
            return (Place::Ours { url: here(&managed_embedder(&fingerprint)) }, Some(builtin));
        }
        return (Place::Nowhere, None);
    };
    let place = match (spec.runtime, &spec.external) {
        (Runtime::Builtin, _) => Place::Ours { url: here(name) },
        (Runtime::Tei | Runtime::Llamacpp, _) => Place::OpenAi { url: here(name), token_file: None },
        (Runtime::External, Some(external)) => Place::OpenAi {
            url: external.url.clone(),
            token_file: external.api_key_secret.as_ref().and_then(|_| tokens.map(|folder| folder.join(name))),
        },
        (Runtime::External, None) => Place::Nowhere,
    };
    (place, Some(fields))
}

/// Clients, by fingerprint.
#[derive(Debug, Default)]
pub(super) struct Embedders(HashMap<Fingerprint, (Place, Arc<dyn Encoder>)>);

impl Embedders {
    /// The client for a place, the one from before if the place is the same.
    pub(super) fn client(
        &mut self,
        fingerprint: Fingerprint,
        place: Place,
        fields: Option<FingerprintFields>,
    ) -> Arc<dyn Encoder> {
        if let Some((_, encoder)) = self.0.get(&fingerprint).filter(|(known, _)| *known == place) {
            return Arc::clone(encoder);
        }
        let encoder = make(fingerprint, &place, fields);
        self.0.insert(fingerprint, (place, Arc::clone(&encoder)));
        encoder
    }

    /// Drops clients of fingerprints that no lane has.
    pub(super) fn keep(&mut self, wanted: impl Fn(&Fingerprint) -> bool) {
        self.0.retain(|fingerprint, _| wanted(fingerprint));
    }
}

fn make(fingerprint: Fingerprint, place: &Place, fields: Option<FingerprintFields>) -> Arc<dyn Encoder> {
    let made: Result<Arc<dyn Encoder>, String> = match (place, &fields) {
        (Place::Nowhere, _) | (_, None) => Err("no Embedder makes this lane's vectors".to_owned()),
        (Place::Ours { url }, Some(fields)) => {
            let config = RemoteConfig {
                model: fields.model.clone(),
                ..RemoteConfig::new(url, fingerprint, fields.dimension as usize)
            };
            RemoteEncoder::new(config).map(|encoder| Arc::new(encoder) as _).map_err(|error| error.to_string())
        }
        (Place::OpenAi { url, token_file }, Some(fields)) => {
            let mut config = ExternalConfig::new(url, fields.clone());
            config.token_file.clone_from(token_file);
            ExternalEncoder::new(config).map(|encoder| Arc::new(encoder) as _).map_err(|error| error.to_string())
        }
    };
    made.unwrap_or_else(|reason| {
        tracing::warn!(fingerprint = fingerprint.short(), reason, "recall under this fingerprint is by text only");
        Arc::new(Nobody { fingerprint, fields, reason })
    })
}

/// Says that nobody encodes.
#[derive(Debug)]
struct Nobody {
    fingerprint: Fingerprint,
    fields: Option<FingerprintFields>,
    reason: String,
}

#[async_trait]
impl Encoder for Nobody {
    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
    fn dimension(&self) -> usize {
        self.fields.as_ref().map_or(0, |fields| fields.dimension as usize)
    }
    fn model(&self) -> &str {
        self.fields.as_ref().map_or("unknown", |fields| &fields.model)
    }
    fn has_token_states(&self) -> bool {
        // Without a model nothing is stripped from a question for it.
        self.fields.as_ref().is_none_or(|fields| fields.query_pooling == Some(QueryPooling::IdfWeighted))
    }
    fn baseline(&self) -> Option<Baseline> {
        None
    }
    async fn encode_query(&self, _: Work, _: &str) -> Result<QueryEncoding, EncodeError> {
        Err(EncodeError::Unavailable { reason: self.reason.clone() })
    }
    async fn encode_passages(&self, _: Work, _: Vec<Passage>) -> Result<Vec<PassageVector>, EncodeError> {
        Err(EncodeError::Unavailable { reason: self.reason.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: serde_json::Value) -> EmbedderSpec {
        serde_json::from_value(json).unwrap()
    }

    fn at(specs: &[(&str, EmbedderSpec)], fingerprint: Fingerprint) -> Place {
        let tokens = PathBuf::from("/tokens");
        place(fingerprint, specs.iter().map(|(name, spec)| (*name, spec)), "sys", Some(&tokens)).0
    }

    #[test]
    fn the_embedder_of_a_fingerprint_is_found_whatever_it_is_called() {
        let builtin = FingerprintFields::builtin().fingerprint();
        let ours = spec(serde_json::json!({"model": "all-MiniLM-L6-v2"}));
        let tei = spec(serde_json::json!({"model": "m", "dimension": 8, "runtime": "tei"}));
        let external = spec(serde_json::json!({
            "model": "n", "dimension": 8, "runtime": "external",
            "external": {"url": "https://e.example/v1", "apiKeySecret": {"name": "s", "key": "k"}},
        }));
        let of = |spec: &EmbedderSpec| spec.fingerprint_fields().unwrap().fingerprint();
        let specs = [("tei", tei.clone()), ("ours", ours.clone()), ("also-ours", ours), ("ext", external.clone())];
        assert_eq!(at(&specs, builtin), Place::Ours { url: "http://embedder-also-ours.sys.svc:7070".into() });
        assert_eq!(
            at(&specs, of(&tei)),
            Place::OpenAi { url: "http://embedder-tei.sys.svc:7070".into(), token_file: None }
        );
        let token_file = Some(PathBuf::from("/tokens/ext"));
        assert_eq!(at(&specs, of(&external)), Place::OpenAi { url: "https://e.example/v1".into(), token_file });
        let managed = format!("http://embedder-m-{}.sys.svc:7070", builtin.short());
        assert_eq!(at(&[], builtin), Place::Ours { url: managed });
        assert_eq!(at(&[], of(&tei)), Place::Nowhere);
    }

    #[tokio::test]
    async fn a_client_is_kept_while_its_place_is_the_same() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut embedders = Embedders::default();
        let fields = FingerprintFields::builtin();
        let fingerprint = fields.fingerprint();
        let mut client = |url: &str| {
            embedders.client(fingerprint, Place::Ours { url: url.into() }, Some(FingerprintFields::builtin()))
        };
        let first = client("http://127.0.0.1:9");
        assert!(Arc::ptr_eq(&first, &client("http://127.0.0.1:9")));
        assert!(!Arc::ptr_eq(&first, &client("http://127.0.0.1:8")));
        let nobody = embedders.client(fingerprint, Place::Nowhere, None);
        let work = Work {
            lane: lanekeeper_core::LaneUid::from_uuid(uuid::Uuid::nil()),
            kind: lanekeeper_core::encoder::WorkKind::Query,
        };
        assert!(matches!(nobody.encode_query(work, "x").await, Err(EncodeError::Unavailable { .. })));
        assert_eq!(nobody.fingerprint(), fingerprint);
        embedders.keep(|_| false);
        assert!(embedders.0.is_empty());
    }
}
