//! Which encoder a lane gets.
//!
//! What must always hold: a lane keeps the embedding that it was made with. Its vectors mean nothing under
//! another, and moving them is a migration that does not exist yet; so an embedder that is declared anew, or
//! given on the command line, is for lanes made from then on. A lane whose embedding nobody here can run
//! stays open: it saves, recalls by text and says so.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use lanekeeper_core::encoder::Encoder;
use lanekeeper_core::fingerprint::{DocumentPooling, Fingerprint, FingerprintFields, QueryPooling};
use lanekeeper_crds::EmbedderSpec;
use lanekeeper_crds::embedder::Runtime;
use lanekeeper_crds::lane::LaneEmbedder;
use lanekeeper_embedder::{ExternalConfig, ExternalEncoder, ExternalError};

use super::late_encoder::LateEncoder;

/// An external embedder that was given on the command line.
#[derive(Debug, Clone)]
pub(crate) struct GivenEmbedder {
    pub(crate) url: String,
    pub(crate) model: String,
    pub(crate) dimension: u32,
    pub(crate) token_file: Option<PathBuf>,
}

impl GivenEmbedder {
    fn fields(&self) -> FingerprintFields {
        FingerprintFields {
            model: self.model.clone(),
            revision: None,
            weights_sha256: None,
            dimension: self.dimension,
            dtype: None,
            query_prefix: String::new(),
            document_prefix: String::new(),
            document_pooling: Some(DocumentPooling::Server),
            query_pooling: Some(QueryPooling::Server),
            max_tokens: None,
            normalise: None,
        }
    }
}

/// Embedders by name, as manifests declare them now.
pub(crate) type Declared = BTreeMap<String, EmbedderSpec>;

/// An encoder, and what is wrong with it.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) encoder: Arc<dyn Encoder>,
    /// Why it will never encode anything, if so.
    pub(crate) trouble: Option<String>,
}

/// Every encoder of this process.
#[derive(Debug)]
pub(crate) struct Embedders {
    builtin: Arc<LateEncoder>,
    given: Option<(FingerprintFields, Arc<ExternalEncoder>)>,
    /// Clients of declared servers, by what they make and where.
    external: HashMap<(Fingerprint, String), Arc<ExternalEncoder>>,
}

impl Embedders {
    /// With the built-in model, which may come later, and what the command line gives.
    pub(crate) fn new(builtin: Arc<LateEncoder>, given: Option<GivenEmbedder>) -> Result<Self, ExternalError> {
        let given = given
            .map(|given| {
                let fields = given.fields();
                let mut config = ExternalConfig::new(given.url, fields.clone());
                config.token_file = given.token_file;
                Ok::<_, ExternalError>((fields, Arc::new(ExternalEncoder::new(config)?)))
            })
            .transpose()?;
        Ok(Self { builtin, given, external: HashMap::new() })
    }

    /// The embedding of a lane that is made now.
    pub(crate) fn for_new_lane(
        &self,
        embedder: &LaneEmbedder,
        declared: &Declared,
    ) -> Result<FingerprintFields, String> {
        match (&embedder.name, &self.given) {
            // A lane that names no Embedder takes the one that was given.
            (None, Some((fields, _))) => Ok(fields.clone()),
            (None, None) | (Some(_), _) => {
                embedder.fingerprint_fields(|name| declared.get(name)).map_err(|error| crate::failure::chain(&error))
            }
        }
    }

    /// The encoder of an embedding.
    pub(crate) fn choose(&mut self, embedding: &FingerprintFields, declared: &Declared) -> Chosen {
        if *embedding == FingerprintFields::builtin() {
            return Chosen { encoder: self.builtin.clone(), trouble: None };
        }
        if let Some((_, encoder)) = self.given.as_ref().filter(|(fields, _)| fields == embedding) {
            return Chosen { encoder: encoder.clone(), trouble: None };
        }
        match self.declared(embedding, declared) {
            Ok(encoder) => Chosen { encoder, trouble: None },
            Err(why) => {
                let trouble = format!(
                    "was made with embeddings of {} ({}), and {why}; it saves, and recalls by text only",
                    embedding.model,
                    embedding.fingerprint().short()
                );
                let encoder = LateEncoder::new(embedding.clone(), "nothing here makes this lane's embeddings");
                Chosen { encoder: Arc::new(encoder), trouble: Some(trouble) }
            }
        }
    }

    /// A client of the first declared server that makes this embedding.
    fn declared(&mut self, embedding: &FingerprintFields, declared: &Declared) -> Result<Arc<dyn Encoder>, String> {
        let mut why = "no embedder that makes them is declared or given".to_owned();
        for (name, spec) in declared {
            if spec.fingerprint_fields().as_ref() != Ok(embedding) {
                continue;
            }
            match self.client(name, spec, embedding) {
                Ok(encoder) => return Ok(encoder),
                Err(reason) => why = reason,
            }
        }
        Err(why)
    }

    fn client(
        &mut self,
        name: &str,
        spec: &EmbedderSpec,
        embedding: &FingerprintFields,
    ) -> Result<Arc<dyn Encoder>, String> {
        let external = match (spec.runtime, &spec.external) {
            (Runtime::External, Some(external)) => external,
            (Runtime::Builtin, _) => {
                return Err(format!(
                    "embedder {name} puts prefixes before texts, which the built-in runtime does not do"
                ));
            }
            (Runtime::Tei | Runtime::Llamacpp | Runtime::External, _) => {
                return Err(format!(
                    "embedder {name} has a runtime that only a cluster starts; declare it as external here"
                ));
            }
        };
        if external.api_key_secret.is_some() {
            return Err(format!(
                "embedder {name} keeps its key in a Secret, which there is none of here; use --embedder-token-file"
            ));
        }
        let key = (embedding.fingerprint(), external.url.clone());
        if let Some(encoder) = self.external.get(&key) {
            return Ok(encoder.clone());
        }
        let config = ExternalConfig::new(external.url.clone(), embedding.clone());
        let encoder = ExternalEncoder::new(config)
            .map_err(|error| format!("embedder {name}: {}", crate::failure::chain(&error)))?;
        let encoder = Arc::new(encoder);
        self.external.insert(key, encoder.clone());
        Ok(encoder)
    }
}

#[cfg(test)]
mod tests {
    use lanekeeper_crds::{Manifest, parse_lane_manifest};

    use super::*;

    fn declared(name: &str, spec: &str) -> Declared {
        let text =
            format!("apiVersion: lanekeeper.dev/v1alpha1\nkind: Embedder\nmetadata: {{name: {name}}}\nspec: {spec}");
        match parse_lane_manifest(&text, "default").unwrap().remove(0).unwrap() {
            Manifest::Embedder(embedder) => Declared::from([(name.to_owned(), embedder.spec)]),
            Manifest::Lane(_) => panic!("not an embedder"),
        }
    }

    fn given() -> GivenEmbedder {
        GivenEmbedder { url: "http://127.0.0.1:9/v1".into(), model: "m".into(), dimension: 8, token_file: None }
    }

    fn embedders(given: Option<GivenEmbedder>) -> Embedders {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Embedders::new(Arc::new(LateEncoder::builtin()), given).unwrap()
    }

    fn named(name: &str) -> LaneEmbedder {
        LaneEmbedder { model: None, name: Some(name.to_owned()) }
    }

    #[test]
    fn a_given_embedder_is_for_lanes_that_name_none() {
        let builtin = FingerprintFields::builtin();
        let none = Declared::new();
        assert_eq!(embedders(None).for_new_lane(&LaneEmbedder::default(), &none).unwrap(), builtin);
        let with = embedders(Some(given()));
        assert_eq!(with.for_new_lane(&LaneEmbedder::default(), &none).unwrap(), given().fields());
        assert!(with.for_new_lane(&named("big"), &none).unwrap_err().contains("big"));
    }

    #[test]
    fn a_lane_keeps_the_embedding_it_was_made_with() {
        let none = Declared::new();
        let mut with = embedders(Some(given()));
        let kept = with.choose(&FingerprintFields::builtin(), &none);
        assert!(kept.trouble.is_none());
        assert_eq!(kept.encoder.fingerprint(), FingerprintFields::builtin().fingerprint());
        // The other way round nothing here makes them, and the lane still has its own fingerprint.
        let orphan = embedders(None).choose(&given().fields(), &none);
        assert!(orphan.trouble.unwrap().contains("no embedder"));
        assert_eq!(orphan.encoder.fingerprint(), given().fields().fingerprint());
        assert!(!orphan.encoder.has_token_states());
    }

    #[test]
    fn declared_servers_are_used_and_what_cannot_run_here_is_said() {
        let external = "{model: m, dimension: 8, runtime: external, external: {url: 'http://127.0.0.1:9/v1'}}";
        let mut all = embedders(None);
        let of = |all: &mut Embedders, spec: &str| {
            let declared = declared("big", spec);
            let fields = all.for_new_lane(&named("big"), &declared).unwrap();
            all.choose(&fields, &declared).trouble
        };
        assert_eq!(of(&mut all, external), None);
        assert!(of(&mut all, "{model: m, dimension: 8, runtime: tei}").unwrap().contains("cluster"));
        let secret = "{model: m, dimension: 8, runtime: external, external: {url: 'http://127.0.0.1:9/v1', apiKeySecret: {name: s, key: k}}}";
        assert!(of(&mut all, secret).unwrap().contains("Secret"));
        assert!(of(&mut all, "{model: all-MiniLM-L6-v2, queryPrefix: 'q: '}").unwrap().contains("prefixes"));
        assert_eq!(of(&mut all, "{model: all-MiniLM-L6-v2}"), None);
    }
}
