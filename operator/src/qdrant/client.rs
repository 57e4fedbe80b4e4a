//! [`Collections`] over Qdrant's gRPC, the same port that stores use.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::Epoch;
use lanekeeper_core::cluster::qdrant::{FENCE_FIELD, FENCES, fence};
use qdrant_client::qdrant as wire;
use qdrant_client::qdrant::alias_operations::Action;
use qdrant_client::qdrant::collections_client::CollectionsClient;
use qdrant_client::qdrant::points_client::PointsClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};
use uuid::Uuid;

use super::{Collections, Fault};

/// How long one call may take.
const CALL: Duration = Duration::from_secs(10);

/// A server, with a key that may do everything.
#[derive(Debug, Clone)]
pub struct Server {
    channel: Channel,
    api_key: MetadataValue<Ascii>,
}

/// Opens a server; connects with the first call.
pub fn connect(url: &str, api_key: &str) -> Result<Arc<dyn Collections>, Fault> {
    let broken = |error: tonic::transport::Error| Fault::Failed(format!("the URL is unusable: {error}"));
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(broken)?;
    let mut endpoint = endpoint.timeout(CALL).connect_timeout(Duration::from_secs(3));
    if url.starts_with("https:") {
        endpoint = endpoint.tls_config(ClientTlsConfig::new().with_native_roots()).map_err(broken)?;
    }
    Ok(Arc::new(Server { channel: endpoint.connect_lazy(), api_key: header(api_key)? }))
}

fn header(key: &str) -> Result<MetadataValue<Ascii>, Fault> {
    let mut value = MetadataValue::try_from(key)
        .map_err(|_| Fault::Failed("the key holds characters that no header takes".into()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// What a status means. Its text is of the server and about collections; a key never stands in it.
#[expect(clippy::wildcard_enum_match_arm, reason = "the codes of gRPC are fixed: these are all the others")]
fn fault(status: &Status) -> Fault {
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => Fault::Refused,
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::ResourceExhausted => {
            Fault::Unreachable(format!("{:?}", status.code()))
        }
        code => Fault::Failed(format!("{code:?} {}", status.message().chars().take(200).collect::<String>())),
    }
}

impl Server {
    fn ask<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("api-key", self.api_key.clone());
        request
    }

    fn collections(&self) -> CollectionsClient<Channel> {
        CollectionsClient::new(self.channel.clone())
    }

    fn points(&self) -> PointsClient<Channel> {
        PointsClient::new(self.channel.clone())
    }

    async fn exists(&self, name: &str) -> Result<bool, Fault> {
        let request = wire::CollectionExistsRequest { collection_name: name.to_owned() };
        let answer = self.collections().collection_exists(self.ask(request)).await.map_err(|status| fault(&status))?;
        Ok(answer.into_inner().result.is_some_and(|result| result.exists))
    }

    /// Returns whether it was made now.
    async fn create(&self, name: &str, dimension: u32) -> Result<bool, Fault> {
        if self.exists(name).await? {
            return Ok(false);
        }
        let params = wire::VectorParams {
            size: u64::from(dimension),
            distance: wire::Distance::Cosine.into(),
            ..wire::VectorParams::default()
        };
        let create = wire::CreateCollection {
            collection_name: name.to_owned(),
            vectors_config: Some(wire::VectorsConfig { config: Some(wire::vectors_config::Config::Params(params)) }),
            ..wire::CreateCollection::default()
        };
        match self.collections().create(self.ask(create)).await {
            Ok(_) => Ok(true),
            // Somebody was faster; older servers have no code for it.
            Err(status) if status.code() == Code::AlreadyExists || status.message().contains("already exists") => {
                Ok(true)
            }
            Err(status) => Err(fault(&status)),
        }
    }

    async fn index(&self, name: &str, field: &str, kind: wire::FieldType) -> Result<(), Fault> {
        // Times are compared, never looked up.
        let integer =
            wire::IntegerIndexParams { lookup: Some(false), range: Some(true), ..wire::IntegerIndexParams::default() };
        let params = (kind == wire::FieldType::Integer).then_some(wire::PayloadIndexParams {
            index_params: Some(wire::payload_index_params::IndexParams::IntegerIndexParams(integer)),
        });
        let create = wire::CreateFieldIndexCollection {
            collection_name: name.to_owned(),
            wait: Some(true),
            field_name: field.to_owned(),
            field_type: Some(kind.into()),
            field_index_params: params,
            ..wire::CreateFieldIndexCollection::default()
        };
        self.points().create_field_index(self.ask(create)).await.map(drop).map_err(|status| fault(&status))
    }

    async fn indexed(&self, name: &str) -> Result<Vec<String>, Fault> {
        let request = wire::GetCollectionInfoRequest { collection_name: name.to_owned() };
        let answer = self.collections().get(self.ask(request)).await.map_err(|status| fault(&status))?;
        let info = answer.into_inner().result.unwrap_or_default();
        Ok(info.payload_schema.into_keys().collect())
    }

    async fn change_aliases(&self, actions: Vec<Action>) -> Result<(), Fault> {
        let change = wire::ChangeAliases {
            actions: actions.into_iter().map(|action| wire::AliasOperations { action: Some(action) }).collect(),
            timeout: None,
        };
        self.collections().update_aliases(self.ask(change)).await.map(drop).map_err(|status| fault(&status))
    }

    async fn fences_of(&self, collection: &str) -> Result<Vec<wire::RetrievedPoint>, Fault> {
        let get = wire::GetPoints {
            collection_name: FENCES.to_owned(),
            ids: vec![fence_id(collection)],
            with_payload: Some(true.into()),
            ..wire::GetPoints::default()
        };
        self.points().get(self.ask(get)).await.map(|answer| answer.into_inner().result).map_err(|status| fault(&status))
    }
}

/// A collection has one fence.
fn fence_id(collection: &str) -> wire::PointId {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, collection.as_bytes()).to_string().into()
}

#[async_trait]
impl Collections for Server {
    async fn make(&self, name: &str, dimension: u32) -> Result<(), Fault> {
        self.create(name, dimension).await?;
        // Looked at even if it was there: a crash may have come between.
        let there = self.indexed(name).await?;
        for (field, kind) in [
            ("event_id", wire::FieldType::Uuid),
            ("sessions", wire::FieldType::Keyword),
            ("roles", wire::FieldType::Keyword),
            ("speakers", wire::FieldType::Keyword),
            ("at_ms", wire::FieldType::Integer),
        ] {
            if !there.iter().any(|known| known == field) {
                self.index(name, field, kind).await?;
            }
        }
        Ok(())
    }

    async fn alias(&self, alias: &str) -> Result<Option<String>, Fault> {
        let request = self.ask(wire::ListAliasesRequest {});
        let answer = self.collections().list_aliases(request).await.map_err(|status| fault(&status))?;
        let known = answer.into_inner().aliases.into_iter().find(|known| known.alias_name == alias);
        Ok(known.map(|known| known.collection_name))
    }

    async fn point_alias(&self, alias: &str, collection: &str) -> Result<(), Fault> {
        let there = self.alias(alias).await?;
        if there.as_deref() == Some(collection) {
            return Ok(());
        }
        let delete = Action::DeleteAlias(wire::DeleteAlias { alias_name: alias.to_owned() });
        let create = Action::CreateAlias(wire::CreateAlias {
            alias_name: alias.to_owned(),
            collection_name: collection.to_owned(),
        });
        self.change_aliases(there.map(|_| delete).into_iter().chain([create]).collect()).await
    }

    async fn drop_alias(&self, alias: &str) -> Result<(), Fault> {
        if self.alias(alias).await?.is_none() {
            return Ok(());
        }
        self.change_aliases(vec![Action::DeleteAlias(wire::DeleteAlias { alias_name: alias.to_owned() })]).await
    }

    async fn names(&self, prefix: &str) -> Result<Vec<String>, Fault> {
        let request = self.ask(wire::ListCollectionsRequest {});
        let answer = self.collections().list(request).await.map_err(|status| fault(&status))?;
        let all = answer.into_inner().collections.into_iter().map(|collection| collection.name);
        Ok(all.filter(|name| name.starts_with(prefix)).collect())
    }

    async fn drop_collection(&self, name: &str) -> Result<(), Fault> {
        let delete = wire::DeleteCollection { collection_name: name.to_owned(), timeout: None };
        match self.collections().delete(self.ask(delete)).await {
            Ok(_) => Ok(()),
            Err(status) if status.code() == Code::NotFound => Ok(()),
            Err(status) => Err(fault(&status)),
        }
    }

    async fn set_fence(&self, collection: &str, epoch: Epoch) -> Result<(), Fault> {
        let holder = fence(collection, epoch);
        if self.create(FENCES, 1).await? || !self.indexed(FENCES).await?.iter().any(|field| field == FENCE_FIELD) {
            self.index(FENCES, FENCE_FIELD, wire::FieldType::Keyword).await?;
        }
        let stands = self.fences_of(collection).await?.iter().any(|point| {
            point.payload.get(FENCE_FIELD).and_then(|value| value.as_str()).is_some_and(|value| *value == holder)
        });
        if stands {
            return Ok(());
        }
        let payload = [(FENCE_FIELD.to_owned(), wire::Value::from(holder))].into();
        let point = wire::PointStruct { id: Some(fence_id(collection)), payload, vectors: Some(vec![1.0_f32].into()) };
        let upsert = wire::UpsertPoints {
            collection_name: FENCES.to_owned(),
            wait: Some(true),
            points: vec![point],
            ..wire::UpsertPoints::default()
        };
        self.points().upsert(self.ask(upsert)).await.map(drop).map_err(|status| fault(&status))
    }

    async fn drop_fence(&self, collection: &str) -> Result<(), Fault> {
        if !self.exists(FENCES).await? {
            return Ok(());
        }
        let ids = wire::PointsIdsList { ids: vec![fence_id(collection)] };
        let delete = wire::DeletePoints {
            collection_name: FENCES.to_owned(),
            wait: Some(true),
            points: Some(wire::PointsSelector {
                points_selector_one_of: Some(wire::points_selector::PointsSelectorOneOf::Points(ids)),
            }),
            ..wire::DeletePoints::default()
        };
        self.points().delete(self.ask(delete)).await.map(drop).map_err(|status| fault(&status))
    }

    async fn count(&self, name: &str) -> Result<u64, Fault> {
        let count =
            wire::CountPoints { collection_name: name.to_owned(), exact: Some(true), ..wire::CountPoints::default() };
        let answer = self.points().count(self.ask(count)).await.map_err(|status| fault(&status))?;
        Ok(answer.into_inner().result.map_or(0, |result| result.count))
    }

    async fn admits(&self, token: Option<&str>, name: &str) -> Result<bool, Fault> {
        let mut request = Request::new(wire::CountPoints {
            collection_name: name.to_owned(),
            exact: Some(false),
            ..wire::CountPoints::default()
        });
        if let Some(token) = token {
            request.metadata_mut().insert("api-key", header(token)?);
        }
        match self.points().count(request).await {
            Ok(_) => Ok(true),
            Err(status) => match fault(&status) {
                Fault::Refused => Ok(false),
                // It was let in and then found nothing: that is not refused.
                Fault::Failed(_) if status.code() == Code::NotFound => Ok(true),
                other @ (Fault::Unreachable(_) | Fault::Failed(_)) => Err(other),
            },
        }
    }
}
