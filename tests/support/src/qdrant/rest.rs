//! The part of Qdrant's REST interface that an operator uses: collections, payload indexes, aliases, and points
//! enough for a fence and for looking on. Shapes and codes as Qdrant documents them.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use qdrant_edge as edge;
use qdrant_edge::UpdateOperation;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::auth::Access;
use super::convert::{invalid, path};
use super::service::{AliasChange, Service};
use super::storage::Shape;

type Shared = State<Arc<Service>>;

/// A failure as Qdrant words it.
#[derive(Debug)]
struct Failed(Status);

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        Self(status)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let code = match self.0.code() {
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::AlreadyExists => StatusCode::CONFLICT,
            Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
            Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::DeadlineExceeded => StatusCode::REQUEST_TIMEOUT,
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (code, Json(json!({"status": {"error": self.0.message()}, "time": 0.0}))).into_response()
    }
}

type Answer = Result<Json<Value>, Failed>;

fn ok(result: impl Into<Value>, started: Instant) -> Answer {
    Ok(Json(json!({"result": result.into(), "status": "ok", "time": started.elapsed().as_secs_f64()})))
}

fn updated(number: u64, started: Instant) -> Answer {
    ok(json!({"operation_id": number, "status": "completed"}), started)
}

async fn caller(service: &Service, headers: &HeaderMap) -> Result<Access, Failed> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    Ok(service.access(header("api-key"), header("authorization")).await?)
}

fn body<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Failed> {
    serde_json::from_slice(bytes)
        .map_err(|error| Failed(Status::invalid_argument(format!("Format error in JSON body: {error}"))))
}

/// All routes.
pub(super) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/", get(async || Json(json!({"title": "qdrant - test server of lanekeeper"}))))
        .route("/healthz", get(async || "healthz check passed"))
        .route("/readyz", get(async || "all shards are ready"))
        .route("/collections", get(list))
        .route("/collections/aliases", post(change_aliases))
        .route("/collections/{name}", get(info).put(create).delete(drop_collection))
        .route("/collections/{name}/exists", get(exists))
        .route("/collections/{name}/aliases", get(collection_aliases))
        .route("/collections/{name}/index", put(index))
        .route("/collections/{name}/points", put(upsert).post(retrieve))
        .route("/collections/{name}/points/delete", post(delete_points))
        .route("/collections/{name}/points/scroll", post(scroll))
        .route("/collections/{name}/points/count", post(count))
        .route("/aliases", get(all_aliases))
        .with_state(service)
}

async fn list(State(service): Shared, headers: HeaderMap) -> Answer {
    let started = Instant::now();
    let access = caller(&service, &headers).await?;
    let collections: Vec<Value> = service.list(&access).into_iter().map(|name| json!({"name": name})).collect();
    ok(json!({"collections": collections}), started)
}

async fn info(State(service): Shared, Path(name): Path<String>, headers: HeaderMap) -> Answer {
    let started = Instant::now();
    let access = caller(&service, &headers).await?;
    let (info, shape) =
        service.ask(&access, &name, |collection| Ok((collection.shard().info(), collection.shape))).await?;
    let schema: serde_json::Map<String, Value> = info
        .payload_schema
        .into_iter()
        .map(|(key, info)| (key.to_string(), json!({"data_type": info.data_type, "points": info.points})))
        .collect();
    ok(
        json!({
            "status": "green",
            "optimizer_status": "ok",
            "points_count": info.points_count,
            "indexed_vectors_count": info.indexed_vectors_count,
            "segments_count": info.segments_count,
            "config": {"params": {"vectors": {"size": shape.size, "distance": shape.distance}, "shard_number": 1}},
            "payload_schema": schema,
        }),
        started,
    )
}

async fn exists(State(service): Shared, Path(name): Path<String>, headers: HeaderMap) -> Answer {
    let started = Instant::now();
    caller(&service, &headers).await?.read(&name)?;
    ok(json!({"exists": service.find(&name).is_ok()}), started)
}

#[derive(Debug, Deserialize)]
struct Create {
    vectors: Shape,
    sparse_vectors: Option<Value>,
}

async fn create(State(service): Shared, Path(name): Path<String>, headers: HeaderMap, bytes: Bytes) -> Answer {
    let started = Instant::now();
    let access = caller(&service, &headers).await?;
    let Create { vectors, sparse_vectors } = body(&bytes)?;
    if sparse_vectors.is_some() {
        return Err(super::convert::absent("sparse vectors").into());
    }
    service.create(&access, &name, vectors)?;
    ok(true, started)
}

async fn drop_collection(State(service): Shared, Path(name): Path<String>, headers: HeaderMap) -> Answer {
    let started = Instant::now();
    let access = caller(&service, &headers).await?;
    ok(service.drop_collection(&access, &name)?, started)
}

fn aliases(pairs: Vec<(String, String)>, started: Instant) -> Answer {
    let aliases: Vec<Value> = pairs
        .into_iter()
        .map(|(alias, collection)| json!({"alias_name": alias, "collection_name": collection}))
        .collect();
    ok(json!({"aliases": aliases}), started)
}

async fn all_aliases(State(service): Shared, headers: HeaderMap) -> Answer {
    let started = Instant::now();
    let access = caller(&service, &headers).await?;
    aliases(service.aliases(&access, None)?, started)
}

async fn collection_aliases(State(service): Shared, Path(name): Path<String>, headers: HeaderMap) -> Answer {
    let started = Instant::now();
    let access = caller(&service, &headers).await?;
    aliases(service.aliases(&access, Some(&name))?, started)
}

#[derive(Debug, Deserialize)]
struct ChangeAliases {
    actions: Vec<AliasAction>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "the names are the wire's")]
enum AliasAction {
    CreateAlias { collection_name: String, alias_name: String },
    DeleteAlias { alias_name: String },
    RenameAlias { old_alias_name: String, new_alias_name: String },
}

async fn change_aliases(State(service): Shared, headers: HeaderMap, bytes: Bytes) -> Answer {
    let started = Instant::now();
    let access = caller(&service, &headers).await?;
    let ChangeAliases { actions } = body(&bytes)?;
    let change = |action| match action {
        AliasAction::CreateAlias { collection_name, alias_name } => {
            AliasChange::Create { alias: alias_name, collection: collection_name }
        }
        AliasAction::DeleteAlias { alias_name } => AliasChange::Delete { alias: alias_name },
        AliasAction::RenameAlias { old_alias_name, new_alias_name } => {
            AliasChange::Rename { old: old_alias_name, new: new_alias_name }
        }
    };
    service.change_aliases(&access, actions.into_iter().map(change).collect())?;
    ok(true, started)
}

#[derive(Debug, Deserialize)]
struct Index {
    field_name: String,
    field_schema: edge::PayloadFieldSchema,
}

async fn index(State(service): Shared, Path(name): Path<String>, headers: HeaderMap, bytes: Bytes) -> Answer {
    let started = Instant::now();
    let access = caller(&service, &headers).await?;
    let Index { field_name, field_schema } = body(&bytes)?;
    let operation = UpdateOperation::FieldIndexOperation(edge::FieldIndexOperations::CreateIndex(edge::CreateIndex {
        field_name: path(&field_name)?,
        field_schema: Some(field_schema),
    }));
    updated(service.update(&access, &name, operation).await?, started)
}

#[derive(Debug, Deserialize)]
struct Upsert {
    points: Vec<RestPoint>,
}

#[derive(Debug, Deserialize)]
struct RestPoint {
    id: edge::PointId,
    vector: Vec<f32>,
    #[serde(default)]
    payload: serde_json::Map<String, Value>,
}

async fn upsert(State(service): Shared, Path(name): Path<String>, headers: HeaderMap, bytes: Bytes) -> Answer {
    let started = Instant::now();
    let access = caller(&service, &headers).await?;
    let Upsert { points } = body(&bytes)?;
    let points = points.into_iter().map(|point| edge::PointStructPersisted {
        id: point.id,
        vector: edge::VectorStructPersisted::Single(point.vector),
        payload: Some(edge::Payload(point.payload)),
    });
    let operation = UpdateOperation::PointOperation(edge::PointOperations::UpsertPoints(
        edge::PointInsertOperations::PointsList(points.collect()),
    ));
    updated(service.update(&access, &name, operation).await?, started)
}

#[derive(Debug, Deserialize)]
struct Chosen {
    points: Option<Vec<edge::PointId>>,
    filter: Option<edge::Filter>,
}

async fn delete_points(State(service): Shared, Path(name): Path<String>, headers: HeaderMap, bytes: Bytes) -> Answer {
    let started = Instant::now();
    let access = caller(&service, &headers).await?;
    let operation = UpdateOperation::PointOperation(match body(&bytes)? {
        Chosen { points: Some(ids), filter: None } => edge::PointOperations::DeletePoints { ids },
        Chosen { points: None, filter: Some(filter) } => edge::PointOperations::DeletePointsByFilter(filter),
        Chosen { points: Some(_), filter: Some(_) } | Chosen { points: None, filter: None } => {
            return Err(invalid("either points or filter").into());
        }
    });
    updated(service.update(&access, &name, operation).await?, started)
}

fn record(record: edge::Record) -> Value {
    let vector = match record.vector {
        Some(edge::VectorStructInternal::Single(vector)) => json!(vector),
        Some(edge::VectorStructInternal::MultiDense(_) | edge::VectorStructInternal::Named(_)) | None => Value::Null,
    };
    json!({"id": record.id, "payload": record.payload.map(|payload| payload.0), "vector": vector})
}

#[derive(Debug, Deserialize)]
struct Retrieve {
    ids: Vec<edge::PointId>,
    with_payload: Option<bool>,
    #[serde(default)]
    with_vector: bool,
}

async fn retrieve(State(service): Shared, Path(name): Path<String>, headers: HeaderMap, bytes: Bytes) -> Answer {
    let started = Instant::now();
    let access = caller(&service, &headers).await?;
    let Retrieve { ids, with_payload, with_vector } = body(&bytes)?;
    let payload = edge::WithPayloadInterface::Bool(with_payload.unwrap_or(true));
    let records = service
        .ask(&access, &name, move |collection| {
            collection.shard().retrieve(&ids, Some(payload), Some(edge::WithVector::Bool(with_vector)))
        })
        .await?;
    ok(records.into_iter().map(record).collect::<Vec<_>>(), started)
}

#[derive(Debug, Deserialize)]
struct Scroll {
    offset: Option<edge::PointId>,
    limit: Option<usize>,
    filter: Option<edge::Filter>,
    with_payload: Option<bool>,
    #[serde(default)]
    with_vector: bool,
}

async fn scroll(State(service): Shared, Path(name): Path<String>, headers: HeaderMap, bytes: Bytes) -> Answer {
    let started = Instant::now();
    let access = caller(&service, &headers).await?;
    let Scroll { offset, limit, filter, with_payload, with_vector } = body(&bytes)?;
    if limit == Some(0) {
        return Err(invalid("limit must be at least 1").into());
    }
    let request = edge::ScrollRequest {
        offset,
        limit: Some(limit.unwrap_or(10)),
        filter,
        with_payload: Some(edge::WithPayloadInterface::Bool(with_payload.unwrap_or(true))),
        with_vector: edge::WithVector::Bool(with_vector),
        order_by: None,
    };
    let (records, next) = service.ask(&access, &name, move |collection| collection.shard().scroll(request)).await?;
    let points: Vec<Value> = records.into_iter().map(record).collect();
    ok(json!({"points": points, "next_page_offset": next}), started)
}

#[derive(Debug, Deserialize)]
struct Count {
    filter: Option<edge::Filter>,
}

async fn count(State(service): Shared, Path(name): Path<String>, headers: HeaderMap, bytes: Bytes) -> Answer {
    let started = Instant::now();
    let access = caller(&service, &headers).await?;
    let Count { filter } = body(&bytes)?;
    let request = edge::CountRequest { filter, exact: true };
    let count = service.ask(&access, &name, move |collection| collection.shard().count(request)).await?;
    ok(json!({"count": count}), started)
}
