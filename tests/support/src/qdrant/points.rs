//! The points service: data of one collection.

use std::future::Future;
use std::pin::Pin;

use qdrant_client::qdrant as wire;
use qdrant_client::qdrant::points_selector::PointsSelectorOneOf;
use qdrant_client::qdrant::points_server::Points;
use qdrant_edge as edge;
use qdrant_edge::UpdateOperation;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::auth::Access;
use super::convert::{
    absent, dense, filter, invalid, path, payload, point_id, point_ids, wire_id, wire_payload, wire_vectors,
    with_payload, with_vectors,
};
use super::faults::Garble;
use super::service::Service;

/// Methods that are not there. What `async fn` in the trait becomes, written out: a macro cannot be seen
/// through by the attribute on the `impl`.
macro_rules! absent_methods {
    ($($method:ident($request:ty) -> $answer:ty;)*) => { $(
        fn $method<'life0, 'async_trait>(
            &'life0 self,
            _request: Request<$request>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<$answer>, Status>> + Send + 'async_trait>>
        where
            'life0: 'async_trait,
            Self: 'async_trait,
        {
            Box::pin(async { Err($crate::qdrant::convert::absent(stringify!($method))) })
        }
    )* };
}
pub(super) use absent_methods;

/// Who asks.
pub(super) async fn caller(service: &Service, headers: &MetadataMap) -> Result<Access, Status> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    service.access(header("api-key"), header("authorization")).await
}

enum Chosen {
    Ids(Vec<edge::PointId>),
    Filter(edge::Filter),
}

fn chosen(selector: Option<wire::PointsSelector>) -> Result<Chosen, Status> {
    match selector.and_then(|selector| selector.points_selector_one_of) {
        Some(PointsSelectorOneOf::Points(list)) => point_ids(list.ids).map(Chosen::Ids),
        Some(PointsSelectorOneOf::Filter(of)) => filter(of).map(Chosen::Filter),
        None => Err(invalid("PointsSelector is missing")),
    }
}

fn set_payload(request: wire::SetPayloadPoints) -> Result<edge::SetPayloadOp, Status> {
    let (points, filter) = match chosen(request.points_selector)? {
        Chosen::Ids(ids) => (Some(ids), None),
        Chosen::Filter(filter) => (None, Some(filter)),
    };
    let key = request.key.as_deref().map(path).transpose()?;
    Ok(edge::SetPayloadOp { payload: payload(request.payload), points, filter, key })
}

struct Search {
    vector: Vec<f32>,
    filter: Option<wire::Filter>,
    limit: u64,
    offset: u64,
    score_threshold: Option<f32>,
    with_payload: Option<wire::WithPayloadSelector>,
    with_vectors: Option<wire::WithVectorsSelector>,
}

impl Service {
    async fn applied(
        &self,
        access: &Access,
        collection: &str,
        wait: Option<bool>,
        operation: UpdateOperation,
    ) -> Result<Response<wire::PointsOperationResponse>, Status> {
        let number = self.update(access, collection, operation).await?;
        let accepted = self.faults().is(Garble::NotApplied) || wait != Some(true);
        let status = if accepted { wire::UpdateStatus::Acknowledged } else { wire::UpdateStatus::Completed };
        let result = wire::UpdateResult { operation_id: Some(number), status: status.into() };
        Ok(Response::new(wire::PointsOperationResponse {
            result: (!self.faults().is(Garble::NoResult)).then_some(result),
            ..wire::PointsOperationResponse::default()
        }))
    }

    async fn nearest(&self, access: &Access, name: &str, search: Search) -> Result<Vec<wire::ScoredPoint>, Status> {
        let Search { vector, filter: of, limit, offset, score_threshold, with_payload: payload, with_vectors: vectors } =
            search;
        let size = self.find(name).ok().map(|collection| collection.shape.size);
        access.read(name)?;
        if let Some(size) = size.filter(|size| *size != vector.len()) {
            return Err(invalid(format!("Vector dimension error: expected dim: {size}, got {}", vector.len())));
        }
        let (of, payload, vectors) =
            (of.map(filter).transpose()?, with_payload(payload, false)?, with_vectors(vectors)?);
        let (limit, offset) = (count(limit), count(offset));
        let found = self
            .ask(access, name, move |collection| {
                let shard = collection.shard();
                // The engine makes room for as many as are asked for.
                let stored = shard.count(edge::CountRequest { filter: None, exact: true })?;
                if stored == 0 || offset >= stored {
                    return Ok(Vec::new());
                }
                shard.search(edge::SearchRequest {
                    query: edge::QueryEnum::Nearest(edge::NamedQuery {
                        query: edge::VectorInternal::Dense(vector),
                        using: None,
                    }),
                    filter: of,
                    params: None,
                    limit: limit.min(stored - offset),
                    offset,
                    with_payload: Some(payload),
                    with_vector: Some(vectors),
                    score_threshold,
                })
            })
            .await?;
        let garbled = self.faults().is(Garble::NotFinite);
        let point = |point: edge::ScoredPoint| wire::ScoredPoint {
            id: Some(wire_id(point.id)),
            payload: wire_payload(point.payload),
            score: if garbled { f32::NAN } else { point.score },
            version: point.version,
            vectors: wire_vectors(point.vector),
            shard_key: None,
            order_value: None,
        };
        Ok(found.into_iter().map(point).collect())
    }

    fn retrieved(&self, record: edge::Record) -> wire::RetrievedPoint {
        let vector = record.vector.map(|vector| match vector {
            edge::VectorStructInternal::Single(mut data) => {
                if self.faults().is(Garble::Short) {
                    data.pop();
                }
                if self.faults().is(Garble::NotFinite) {
                    data[0] = f32::INFINITY;
                }
                edge::VectorStructInternal::Single(data)
            }
            other @ (edge::VectorStructInternal::MultiDense(_) | edge::VectorStructInternal::Named(_)) => other,
        });
        wire::RetrievedPoint {
            id: Some(wire_id(record.id)),
            payload: wire_payload(record.payload),
            vectors: wire_vectors(vector),
            shard_key: None,
            order_value: None,
        }
    }
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[tonic::async_trait]
impl Points for Service {
    async fn upsert(
        &self,
        request: Request<wire::UpsertPoints>,
    ) -> Result<Response<wire::PointsOperationResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        let request = request.into_inner();
        self.faults().meet("upsert", &request.collection_name, request.wait).await?;
        if request.update_filter.is_some() || request.update_mode.is_some_and(|mode| mode != 0) {
            return Err(absent("conditional upserts"));
        }
        let mut points = Vec::with_capacity(request.points.len());
        for point in request.points {
            points.push(edge::PointStructPersisted {
                id: point_id(point.id)?,
                vector: edge::VectorStructPersisted::Single(dense(point.vectors)?),
                payload: Some(payload(point.payload)),
            });
        }
        let operation = UpdateOperation::PointOperation(edge::PointOperations::UpsertPoints(
            edge::PointInsertOperations::PointsList(points),
        ));
        self.applied(&access, &request.collection_name, request.wait, operation).await
    }

    async fn delete(
        &self,
        request: Request<wire::DeletePoints>,
    ) -> Result<Response<wire::PointsOperationResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        let request = request.into_inner();
        self.faults().meet("delete", &request.collection_name, request.wait).await?;
        let operation = UpdateOperation::PointOperation(match chosen(request.points)? {
            Chosen::Ids(ids) => edge::PointOperations::DeletePoints { ids },
            Chosen::Filter(filter) => edge::PointOperations::DeletePointsByFilter(filter),
        });
        self.applied(&access, &request.collection_name, request.wait, operation).await
    }

    async fn get(&self, request: Request<wire::GetPoints>) -> Result<Response<wire::GetResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        let request = request.into_inner();
        self.faults().meet("get", &request.collection_name, None).await?;
        let (ids, payload, vectors) =
            (point_ids(request.ids)?, with_payload(request.with_payload, true)?, with_vectors(request.with_vectors)?);
        let records = self
            .ask(&access, &request.collection_name, move |collection| {
                collection.shard().retrieve(&ids, Some(payload), Some(vectors))
            })
            .await?;
        let result = records.into_iter().map(|record| self.retrieved(record)).collect();
        Ok(Response::new(wire::GetResponse { result, ..wire::GetResponse::default() }))
    }

    async fn set_payload(
        &self,
        request: Request<wire::SetPayloadPoints>,
    ) -> Result<Response<wire::PointsOperationResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        let request = request.into_inner();
        self.faults().meet("set_payload", &request.collection_name, request.wait).await?;
        let (name, wait) = (request.collection_name.clone(), request.wait);
        let operation = UpdateOperation::PayloadOperation(edge::PayloadOps::SetPayload(set_payload(request)?));
        self.applied(&access, &name, wait, operation).await
    }

    async fn overwrite_payload(
        &self,
        request: Request<wire::SetPayloadPoints>,
    ) -> Result<Response<wire::PointsOperationResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        let request = request.into_inner();
        self.faults().meet("overwrite_payload", &request.collection_name, request.wait).await?;
        let (name, wait) = (request.collection_name.clone(), request.wait);
        let operation = UpdateOperation::PayloadOperation(edge::PayloadOps::OverwritePayload(set_payload(request)?));
        self.applied(&access, &name, wait, operation).await
    }

    async fn create_field_index(
        &self,
        request: Request<wire::CreateFieldIndexCollection>,
    ) -> Result<Response<wire::PointsOperationResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        let request = request.into_inner();
        self.faults().meet("create_field_index", &request.collection_name, request.wait).await?;
        let schema = index(&request)?;
        let operation =
            UpdateOperation::FieldIndexOperation(edge::FieldIndexOperations::CreateIndex(edge::CreateIndex {
                field_name: path(&request.field_name)?,
                field_schema: Some(schema),
            }));
        self.applied(&access, &request.collection_name, request.wait, operation).await
    }

    async fn search(&self, request: Request<wire::SearchPoints>) -> Result<Response<wire::SearchResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        let request = request.into_inner();
        self.faults().meet("search", &request.collection_name, None).await?;
        if request.vector_name.is_some_and(|name| !name.is_empty()) || request.sparse_indices.is_some() {
            return Err(absent("named vectors"));
        }
        let search = Search {
            vector: request.vector,
            filter: request.filter,
            limit: request.limit,
            offset: request.offset.unwrap_or(0),
            score_threshold: request.score_threshold,
            with_payload: request.with_payload,
            with_vectors: request.with_vectors,
        };
        let result = self.nearest(&access, &request.collection_name, search).await?;
        Ok(Response::new(wire::SearchResponse { result, ..wire::SearchResponse::default() }))
    }

    async fn query(&self, request: Request<wire::QueryPoints>) -> Result<Response<wire::QueryResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        let request = request.into_inner();
        self.faults().meet("query", &request.collection_name, None).await?;
        if !request.prefetch.is_empty() || request.lookup_from.is_some() || request.using.is_some() {
            return Err(absent("prefetches and named vectors"));
        }
        let variant = request.query.and_then(|query| query.variant);
        let Some(wire::query::Variant::Nearest(wire::VectorInput {
            variant: Some(wire::vector_input::Variant::Dense(dense)),
        })) = variant
        else {
            return Err(absent("queries but for the nearest of a dense vector"));
        };
        let search = Search {
            vector: dense.data,
            filter: request.filter,
            limit: request.limit.unwrap_or(10),
            offset: request.offset.unwrap_or(0),
            score_threshold: request.score_threshold,
            with_payload: request.with_payload,
            with_vectors: request.with_vectors,
        };
        let result = self.nearest(&access, &request.collection_name, search).await?;
        Ok(Response::new(wire::QueryResponse { result, ..wire::QueryResponse::default() }))
    }

    async fn scroll(&self, request: Request<wire::ScrollPoints>) -> Result<Response<wire::ScrollResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        let request = request.into_inner();
        self.faults().meet("scroll", &request.collection_name, None).await?;
        if request.order_by.is_some() {
            return Err(absent("scrolls in another order"));
        }
        if request.limit == Some(0) {
            return Err(invalid("limit must be at least 1"));
        }
        let scroll = edge::ScrollRequest {
            offset: request.offset.map(|id| point_id(Some(id))).transpose()?,
            limit: Some(request.limit.unwrap_or(10) as usize),
            filter: request.filter.map(filter).transpose()?,
            with_payload: Some(with_payload(request.with_payload, true)?),
            with_vector: with_vectors(request.with_vectors)?,
            order_by: None,
        };
        let (records, mut next) =
            self.ask(&access, &request.collection_name, move |collection| collection.shard().scroll(scroll)).await?;
        if self.faults().is(Garble::Endless) {
            next = Some(edge::PointId::NumId(1));
        }
        Ok(Response::new(wire::ScrollResponse {
            next_page_offset: next.map(wire_id),
            result: records.into_iter().map(|record| self.retrieved(record)).collect(),
            ..wire::ScrollResponse::default()
        }))
    }

    async fn count(&self, request: Request<wire::CountPoints>) -> Result<Response<wire::CountResponse>, Status> {
        let access = caller(self, request.metadata()).await?;
        let request = request.into_inner();
        self.faults().meet("count", &request.collection_name, None).await?;
        let of = edge::CountRequest {
            filter: request.filter.map(filter).transpose()?,
            exact: request.exact.unwrap_or(true),
        };
        let count = self.ask(&access, &request.collection_name, move |collection| collection.shard().count(of)).await?;
        Ok(Response::new(wire::CountResponse {
            result: (!self.faults().is(Garble::NoResult)).then_some(wire::CountResult { count: count as u64 }),
            ..wire::CountResponse::default()
        }))
    }

    absent_methods! {
        update_vectors(wire::UpdatePointVectors) -> wire::PointsOperationResponse;
        delete_vectors(wire::DeletePointVectors) -> wire::PointsOperationResponse;
        delete_payload(wire::DeletePayloadPoints) -> wire::PointsOperationResponse;
        clear_payload(wire::ClearPayloadPoints) -> wire::PointsOperationResponse;
        delete_field_index(wire::DeleteFieldIndexCollection) -> wire::PointsOperationResponse;
        create_vector_name(wire::CreateVectorNameRequest) -> wire::PointsOperationResponse;
        delete_vector_name(wire::DeleteVectorNameRequest) -> wire::PointsOperationResponse;
        search_batch(wire::SearchBatchPoints) -> wire::SearchBatchResponse;
        search_groups(wire::SearchPointGroups) -> wire::SearchGroupsResponse;
        recommend(wire::RecommendPoints) -> wire::RecommendResponse;
        recommend_batch(wire::RecommendBatchPoints) -> wire::RecommendBatchResponse;
        recommend_groups(wire::RecommendPointGroups) -> wire::RecommendGroupsResponse;
        discover(wire::DiscoverPoints) -> wire::DiscoverResponse;
        discover_batch(wire::DiscoverBatchPoints) -> wire::DiscoverBatchResponse;
        update_batch(wire::UpdateBatchPoints) -> wire::UpdateBatchResponse;
        query_batch(wire::QueryBatchPoints) -> wire::QueryBatchResponse;
        query_groups(wire::QueryPointGroups) -> wire::QueryGroupsResponse;
        facet(wire::FacetCounts) -> wire::FacetResponse;
        search_matrix_pairs(wire::SearchMatrixPoints) -> wire::SearchMatrixPairsResponse;
        search_matrix_offsets(wire::SearchMatrixPoints) -> wire::SearchMatrixOffsetsResponse;
    }
}

/// The kind of a field's index, and of an integer's which of its two halves.
fn index(request: &wire::CreateFieldIndexCollection) -> Result<edge::PayloadFieldSchema, Status> {
    use wire::payload_index_params::IndexParams;
    let params = request.field_index_params.as_ref().and_then(|params| params.index_params.as_ref());
    let declared = request.field_type.map(wire::FieldType::try_from).transpose().map_err(invalid)?;
    let kind = match (declared, params) {
        (Some(kind), _) => kind,
        (None, Some(IndexParams::KeywordIndexParams(_))) => wire::FieldType::Keyword,
        (None, Some(IndexParams::IntegerIndexParams(_))) => wire::FieldType::Integer,
        (None, Some(IndexParams::UuidIndexParams(_))) => wire::FieldType::Uuid,
        (None, Some(IndexParams::BoolIndexParams(_))) => wire::FieldType::Bool,
        (None, Some(IndexParams::FloatIndexParams(_))) => wire::FieldType::Float,
        (
            None,
            Some(
                IndexParams::GeoIndexParams(_) | IndexParams::TextIndexParams(_) | IndexParams::DatetimeIndexParams(_),
            ),
        ) => return Err(absent("indexes of places, texts and dates")),
        (None, None) => return Err(invalid("field type is missing")),
    };
    if let Some(IndexParams::IntegerIndexParams(params)) = params {
        return Ok(edge::PayloadFieldSchema::FieldParams(edge::PayloadSchemaParams::Integer(
            edge::IntegerIndexParams {
                lookup: params.lookup,
                range: params.range,
                ..edge::IntegerIndexParams::default()
            },
        )));
    }
    Ok(edge::PayloadFieldSchema::FieldType(match kind {
        wire::FieldType::Keyword => edge::PayloadSchemaType::Keyword,
        wire::FieldType::Integer => edge::PayloadSchemaType::Integer,
        wire::FieldType::Float => edge::PayloadSchemaType::Float,
        wire::FieldType::Bool => edge::PayloadSchemaType::Bool,
        wire::FieldType::Uuid => edge::PayloadSchemaType::Uuid,
        wire::FieldType::Geo | wire::FieldType::Text | wire::FieldType::Datetime => {
            return Err(absent("indexes of places, texts and dates"));
        }
    }))
}
