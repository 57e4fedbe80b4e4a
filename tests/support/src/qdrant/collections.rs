//! The collections service, and the one that says it is well.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;

use qdrant_client::qdrant as wire;
use qdrant_client::qdrant::alias_operations::Action;
use qdrant_client::qdrant::collections_server::Collections;
use qdrant_client::qdrant::qdrant_server::Qdrant;
use qdrant_edge as edge;
use tonic::{Request, Response, Status};

use super::convert::{absent, invalid};
use super::points::{absent_methods, caller};
use super::service::{AliasChange, Service};
use super::storage::Shape;

fn done(result: bool) -> Response<wire::CollectionOperationResponse> {
    Response::new(wire::CollectionOperationResponse { result, time: 0.0 })
}

fn aliases(pairs: Vec<(String, String)>) -> Response<wire::ListAliasesResponse> {
    let description = |(alias_name, collection_name)| wire::AliasDescription { alias_name, collection_name };
    Response::new(wire::ListAliasesResponse { aliases: pairs.into_iter().map(description).collect(), time: 0.0 })
}

fn shape(config: Option<wire::VectorsConfig>) -> Result<Shape, Status> {
    use wire::vectors_config::Config;
    match config.and_then(|config| config.config) {
        Some(Config::Params(params)) => {
            let distance = match params.distance() {
                wire::Distance::Cosine => edge::Distance::Cosine,
                wire::Distance::Euclid => edge::Distance::Euclid,
                wire::Distance::Dot => edge::Distance::Dot,
                wire::Distance::Manhattan => edge::Distance::Manhattan,
                wire::Distance::UnknownDistance => return Err(invalid("vectors.distance is missing")),
            };
            if params.multivector_config.is_some() {
                return Err(absent("several vectors a point"));
            }
            Ok(Shape { size: usize::try_from(params.size).map_err(invalid)?, distance })
        }
        Some(Config::ParamsMap(_)) | None => Err(absent("collections without one unnamed vector a point")),
    }
}

const fn distance(distance: edge::Distance) -> wire::Distance {
    match distance {
        edge::Distance::Cosine => wire::Distance::Cosine,
        edge::Distance::Euclid => wire::Distance::Euclid,
        edge::Distance::Dot => wire::Distance::Dot,
        edge::Distance::Manhattan => wire::Distance::Manhattan,
    }
}

const fn kind(kind: edge::PayloadSchemaType) -> wire::PayloadSchemaType {
    match kind {
        edge::PayloadSchemaType::Keyword => wire::PayloadSchemaType::Keyword,
        edge::PayloadSchemaType::Integer => wire::PayloadSchemaType::Integer,
        edge::PayloadSchemaType::Float => wire::PayloadSchemaType::Float,
        edge::PayloadSchemaType::Geo => wire::PayloadSchemaType::Geo,
        edge::PayloadSchemaType::Text => wire::PayloadSchemaType::Text,
        edge::PayloadSchemaType::Bool => wire::PayloadSchemaType::Bool,
        edge::PayloadSchemaType::Datetime => wire::PayloadSchemaType::Datetime,
        edge::PayloadSchemaType::Uuid => wire::PayloadSchemaType::Uuid,
    }
}

#[tonic::async_trait]
impl Collections for Service {
    async fn get(
        &self,
        request: Request<wire::GetCollectionInfoRequest>,
    ) -> Result<Response<wire::GetCollectionInfoResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        let name = request.into_inner().collection_name;
        let (info, shape) =
            self.ask(&access, &name, |collection| Ok((collection.shard().info(), collection.shape))).await?;
        let params = wire::VectorParams {
            size: shape.size as u64,
            distance: distance(shape.distance).into(),
            ..wire::VectorParams::default()
        };
        let vectors = wire::VectorsConfig { config: Some(wire::vectors_config::Config::Params(params)) };
        let schema: HashMap<String, wire::PayloadSchemaInfo> = info
            .payload_schema
            .into_iter()
            .map(|(key, info)| {
                let info = wire::PayloadSchemaInfo {
                    data_type: kind(info.data_type).into(),
                    params: None,
                    points: Some(info.points as u64),
                };
                (key.to_string(), info)
            })
            .collect();
        let result = wire::CollectionInfo {
            status: wire::CollectionStatus::Green.into(),
            optimizer_status: Some(wire::OptimizerStatus { ok: true, error: String::new() }),
            segments_count: info.segments_count as u64,
            points_count: Some(info.points_count as u64),
            indexed_vectors_count: Some(info.indexed_vectors_count as u64),
            config: Some(wire::CollectionConfig {
                params: Some(wire::CollectionParams {
                    shard_number: 1,
                    vectors_config: Some(vectors),
                    ..wire::CollectionParams::default()
                }),
                ..wire::CollectionConfig::default()
            }),
            payload_schema: schema,
            ..wire::CollectionInfo::default()
        };
        Ok(Response::new(wire::GetCollectionInfoResponse { result: Some(result), time: 0.0 }))
    }

    async fn list(
        &self,
        request: Request<wire::ListCollectionsRequest>,
    ) -> Result<Response<wire::ListCollectionsResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        let collections = Self::list(self, &access).into_iter().map(|name| wire::CollectionDescription { name });
        Ok(Response::new(wire::ListCollectionsResponse { collections: collections.collect(), time: 0.0 }))
    }

    async fn create(
        &self,
        request: Request<wire::CreateCollection>,
    ) -> Result<Response<wire::CollectionOperationResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        let request = request.into_inner();
        if request.sparse_vectors_config.is_some() {
            return Err(absent("sparse vectors"));
        }
        Self::create(self, &access, &request.collection_name, shape(request.vectors_config)?)?;
        Ok(done(true))
    }

    async fn delete(
        &self,
        request: Request<wire::DeleteCollection>,
    ) -> Result<Response<wire::CollectionOperationResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        self.drop_collection(&access, &request.into_inner().collection_name).map(done)
    }

    async fn update_aliases(
        &self,
        request: Request<wire::ChangeAliases>,
    ) -> Result<Response<wire::CollectionOperationResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        let change = |operation: wire::AliasOperations| match operation.action {
            Some(Action::CreateAlias(create)) => {
                Ok(AliasChange::Create { alias: create.alias_name, collection: create.collection_name })
            }
            Some(Action::RenameAlias(rename)) => {
                Ok(AliasChange::Rename { old: rename.old_alias_name, new: rename.new_alias_name })
            }
            Some(Action::DeleteAlias(delete)) => Ok(AliasChange::Delete { alias: delete.alias_name }),
            None => Err(invalid("an alias operation without an action")),
        };
        let changes = request.into_inner().actions.into_iter().map(change).collect::<Result<_, Status>>()?;
        self.change_aliases(&access, changes)?;
        Ok(done(true))
    }

    async fn list_collection_aliases(
        &self,
        request: Request<wire::ListCollectionAliasesRequest>,
    ) -> Result<Response<wire::ListAliasesResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        self.aliases(&access, Some(&request.into_inner().collection_name)).map(aliases)
    }

    async fn list_aliases(
        &self,
        request: Request<wire::ListAliasesRequest>,
    ) -> Result<Response<wire::ListAliasesResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        self.aliases(&access, None).map(aliases)
    }

    async fn collection_exists(
        &self,
        request: Request<wire::CollectionExistsRequest>,
    ) -> Result<Response<wire::CollectionExistsResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        let name = request.into_inner().collection_name;
        access.read(&name)?;
        let exists = self.find(&name).is_ok();
        Ok(Response::new(wire::CollectionExistsResponse { result: Some(wire::CollectionExists { exists }), time: 0.0 }))
    }

    absent_methods! {
        update(wire::UpdateCollection) -> wire::CollectionOperationResponse;
        collection_cluster_info(wire::CollectionClusterInfoRequest) -> wire::CollectionClusterInfoResponse;
        update_collection_cluster_setup(wire::UpdateCollectionClusterSetupRequest)
            -> wire::UpdateCollectionClusterSetupResponse;
        create_shard_key(wire::CreateShardKeyRequest) -> wire::CreateShardKeyResponse;
        delete_shard_key(wire::DeleteShardKeyRequest) -> wire::DeleteShardKeyResponse;
        list_shard_keys(wire::ListShardKeysRequest) -> wire::ListShardKeysResponse;
    }
}

#[tonic::async_trait]
impl Qdrant for Service {
    async fn health_check(
        &self,
        _: Request<wire::HealthCheckRequest>,
    ) -> Result<Response<wire::HealthCheckReply>, Status> {
        Ok(Response::new(wire::HealthCheckReply {
            title: "qdrant - test server of lanekeeper".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            commit: None,
        }))
    }
}
