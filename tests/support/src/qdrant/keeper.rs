//! What the operator does for one lane, with a full key and nothing else of an operator: makes the physical
//! collection a record wants, exchanges the alias once it is filled, drops the old one, moves the fence point.
//! For tests of the store without an operator.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use lanekeeper_core::cluster::qdrant::{FENCE_FIELD, FENCES, fence, physical};
use lanekeeper_core::fingerprint::Fingerprint;
use lanekeeper_core::{Epoch, Generation};
use lanekeeper_federation::Registry;
use qdrant_client::qdrant as wire;
use qdrant_client::qdrant::alias_operations::Action;
use qdrant_client::qdrant::collections_client::CollectionsClient;
use qdrant_client::qdrant::points_client::PointsClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request};
use uuid::Uuid;

/// Collections of a server, with a key that may do everything.
#[derive(Debug, Clone)]
pub struct Collections {
    channel: Channel,
    api_key: Option<MetadataValue<Ascii>>,
}

impl Collections {
    /// `url`: gRPC. Connects with the first call.
    pub fn new(url: &str, api_key: Option<&str>) -> Result<Self> {
        let mut endpoint = Endpoint::from_shared(url.to_owned())?.timeout(Duration::from_secs(20));
        if url.starts_with("https:") {
            endpoint = endpoint.tls_config(ClientTlsConfig::new().with_native_roots())?;
        }
        let api_key = api_key
            .map(|key| {
                let mut value = MetadataValue::try_from(key).context("the API key is no header")?;
                value.set_sensitive(true);
                Ok::<_, anyhow::Error>(value)
            })
            .transpose()?;
        Ok(Self { channel: endpoint.connect_lazy(), api_key })
    }

    fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        if let Some(key) = &self.api_key {
            request.metadata_mut().insert("api-key", key.clone());
        }
        request
    }

    fn collections(&self) -> CollectionsClient<Channel> {
        CollectionsClient::new(self.channel.clone())
    }

    fn points(&self) -> PointsClient<Channel> {
        PointsClient::new(self.channel.clone())
    }

    /// Makes a lane's collection with its payload indexes, if it is not there.
    pub async fn make(&self, name: &str, dimension: usize) -> Result<()> {
        self.make_bare(name, dimension).await?;
        let integer = wire::IntegerIndexParams {
            // Times are compared, never looked up.
            lookup: Some(false),
            range: Some(true),
            ..wire::IntegerIndexParams::default()
        };
        let integer = wire::PayloadIndexParams {
            index_params: Some(wire::payload_index_params::IndexParams::IntegerIndexParams(integer)),
        };
        for (field, kind, params) in [
            ("event_id", wire::FieldType::Uuid, None),
            ("sessions", wire::FieldType::Keyword, None),
            ("roles", wire::FieldType::Keyword, None),
            ("speakers", wire::FieldType::Keyword, None),
            ("at_ms", wire::FieldType::Integer, Some(integer)),
        ] {
            self.index(name, field, kind, params).await?;
        }
        Ok(())
    }

    async fn make_bare(&self, name: &str, dimension: usize) -> Result<()> {
        let params = wire::VectorParams {
            size: dimension as u64,
            distance: wire::Distance::Cosine.into(),
            ..wire::VectorParams::default()
        };
        let create = wire::CreateCollection {
            collection_name: name.to_owned(),
            vectors_config: Some(wire::VectorsConfig { config: Some(wire::vectors_config::Config::Params(params)) }),
            ..wire::CreateCollection::default()
        };
        match self.collections().create(self.request(create)).await {
            Ok(_) => Ok(()),
            Err(status) if status.code() == Code::AlreadyExists => Ok(()),
            // Older servers say it so.
            Err(status) if status.message().contains("already exists") => Ok(()),
            Err(status) => Err(status).with_context(|| format!("make collection {name}")),
        }
    }

    async fn index(
        &self,
        name: &str,
        field: &str,
        kind: wire::FieldType,
        params: Option<wire::PayloadIndexParams>,
    ) -> Result<()> {
        let create = wire::CreateFieldIndexCollection {
            collection_name: name.to_owned(),
            wait: Some(true),
            field_name: field.to_owned(),
            field_type: Some(kind.into()),
            field_index_params: params,
            ..wire::CreateFieldIndexCollection::default()
        };
        self.points().create_field_index(self.request(create)).await.with_context(|| format!("index {field}"))?;
        Ok(())
    }

    /// Points an alias at a collection, in one step.
    pub async fn point_alias(&self, alias: &str, collection: &str) -> Result<()> {
        let delete = Action::DeleteAlias(wire::DeleteAlias { alias_name: alias.to_owned() });
        let create = Action::CreateAlias(wire::CreateAlias {
            alias_name: alias.to_owned(),
            collection_name: collection.to_owned(),
        });
        let known = self.collections().list_aliases(self.request(wire::ListAliasesRequest {})).await?;
        let there = known.into_inner().aliases.iter().any(|known| known.alias_name == alias);
        let actions = there.then_some(delete).into_iter().chain([create]);
        let change = wire::ChangeAliases {
            actions: actions.map(|action| wire::AliasOperations { action: Some(action) }).collect(),
            timeout: None,
        };
        self.collections().update_aliases(self.request(change)).await.context("point the alias")?;
        Ok(())
    }

    /// Drops a collection, if it is there.
    pub async fn remove(&self, name: &str) -> Result<()> {
        let delete = wire::DeleteCollection { collection_name: name.to_owned(), ..wire::DeleteCollection::default() };
        self.collections().delete(self.request(delete)).await.with_context(|| format!("drop collection {name}"))?;
        Ok(())
    }

    /// Names of all collections.
    pub async fn names(&self) -> Result<Vec<String>> {
        let list = self.collections().list(self.request(wire::ListCollectionsRequest {})).await?;
        Ok(list.into_inner().collections.into_iter().map(|collection| collection.name).collect())
    }

    /// Puts the fence point of a lane at an epoch: JWTs of every other epoch are refused from here on.
    pub async fn fence(&self, alias: &str, epoch: u64) -> Result<()> {
        self.make_bare(FENCES, 1).await?;
        self.index(FENCES, FENCE_FIELD, wire::FieldType::Keyword, None).await?;
        let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, alias.as_bytes()).to_string();
        let upsert = wire::UpsertPoints {
            collection_name: FENCES.to_owned(),
            wait: Some(true),
            points: vec![wire::PointStruct {
                id: Some(id.into()),
                payload: [(FENCE_FIELD.to_owned(), fence(alias, Epoch(epoch)).into())].into(),
                vectors: Some(vec![1.0_f32].into()),
            }],
            ..wire::UpsertPoints::default()
        };
        self.points().upsert(self.request(upsert)).await.context("move the fence point")?;
        Ok(())
    }
}

/// Does for one lane what its record asks for, until it is dropped.
#[derive(Debug)]
pub struct Keeper(tokio::task::JoinHandle<()>);

impl Keeper {
    /// Makes the collection of the record's generation and its alias, then follows the record.
    pub async fn start(
        collections: Collections,
        registry: Arc<dyn Registry>,
        alias: String,
        dimension: usize,
        fingerprint: Fingerprint,
    ) -> Result<Self> {
        let size = u32::try_from(dimension).context("the dimension")?;
        let name = move |alias: &str, generation| physical(alias, size, &fingerprint, generation);
        let searched = registry.read(&alias).await?.spec.generation;
        let first = name(&alias, searched);
        collections.make(&first, dimension).await?;
        collections.point_alias(&alias, &first).await?;
        Ok(Self(tokio::spawn(async move {
            loop {
                if let Err(error) = follow(&collections, registry.as_ref(), &alias, dimension, &name).await {
                    tracing::warn!(%error, "the record is looked at again");
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn follow(
    collections: &Collections,
    registry: &dyn Registry,
    alias: &str,
    dimension: usize,
    name: &impl Fn(&str, Generation) -> String,
) -> Result<()> {
    let record = registry.read(alias).await?;
    let searched = record.spec.generation;
    let Some(wanted) = record.status.wanted_generation.filter(|wanted| *wanted > searched) else { return Ok(()) };
    let next = name(alias, wanted);
    if !collections.names().await?.contains(&next) {
        collections.make(&next, dimension).await?;
    }
    if record.status.filled_generation == Some(wanted) {
        // In this order: whoever reads the higher generation finds it behind the alias.
        collections.point_alias(alias, &next).await?;
        registry.change_spec(alias, Box::new(move |spec| spec.generation = spec.generation.max(wanted))).await?;
        collections.remove(&name(alias, searched)).await?;
    }
    Ok(())
}
