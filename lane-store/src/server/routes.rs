//! One POST a method of the lane, and its state. Each reads its body from the attested request.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use lanekeeper_core::LaneError;
use lanekeeper_core::lane_client::{AppendRequest, ByteStream, Caller, EncodingFuture, LaneClient as _, StoreRecall};
use lanekeeper_core::wire::store::{
    AppendBody, EncodingOrReason, ForgetBody, ListBody, MemoryBody, Nothing, RecallAnswer, RecallBody, SaveMemoryBody,
    StatusAnswer, idempotency, path,
};
use lanekeeper_core::wire::upkeep::RebuildRequest;
use serde::Deserialize;

use super::App;
use super::answer::{Failure, json, stream};
use super::attested::{Attested, attest};
use crate::store::LaneStore;

type Answer = Result<Response, Failure>;

/// Every route behind the attestation.
pub(super) fn attested(app: &Arc<App>) -> Router<Arc<App>> {
    Router::new()
        .route(path::APPEND, post(append))
        .route(path::LIST_EVENTS, post(list_events))
        .route(path::RECALL, post(recall))
        .route(path::KNOWN_SPEAKERS, post(known_speakers))
        .route(path::FORGET, post(forget))
        .route(path::MEMORY, post(memory))
        .route(path::SAVE_MEMORY, post(save_memory))
        .route(path::MEMORY_HISTORY, post(memory_history))
        .route(path::VERIFY, post(verify))
        .route(path::REBUILD, post(rebuild))
        .route(path::EXPORT, post(export))
        .route(path::IMPORT, post(import))
        .route(path::BACKUP, post(backup))
        .route(path::STATUS, get(status))
        // On the routes and not round them: what is no route is 404 for everybody.
        .route_layer(from_fn_with_state(Arc::clone(app), attest))
}

/// The open lane and the caller in it.
fn admitted(app: &App, attested: &Attested) -> Result<(Arc<LaneStore>, Caller), LaneError> {
    let store = app.slot.store()?;
    let caller = attested.caller(&store.config().lane)?;
    Ok((store, caller))
}

async fn append(State(app): State<Arc<App>>, Extension(attested): Extension<Attested>) -> Answer {
    let (store, caller) = admitted(&app, &attested)?;
    let AppendBody { save, body_sha256 } = attested.json()?;
    let idempotency = idempotency(attested.idempotency_key, body_sha256)?;
    json(&store.append(&caller, AppendRequest { save, idempotency }).await?)
}

async fn list_events(State(app): State<Arc<App>>, Extension(attested): Extension<Attested>) -> Answer {
    let (store, caller) = admitted(&app, &attested)?;
    let ListBody { after, limit } = attested.json()?;
    json(&store.list_events(&caller, after, limit).await?)
}

async fn recall(State(app): State<Arc<App>>, Extension(attested): Extension<Attested>) -> Answer {
    let (store, caller) = admitted(&app, &attested)?;
    let RecallBody { query, encoding, fingerprint, surfaces, filter, arms_off, idf_pooling, deadline_ms } =
        attested.json()?;
    let encoding = match encoding {
        EncodingOrReason::Reason(reason) => Err(reason),
        EncodingOrReason::Encoding(encoding) => {
            let encoding = encoding.read().map_err(|error| LaneError::invalid("encoding", error.rule))?;
            Ok(Arc::new(encoding))
        }
    };
    let encoding: EncodingFuture = Box::pin(std::future::ready(encoding));
    let request = StoreRecall { query, encoding, fingerprint, surfaces, filter, arms_off, idf_pooling, deadline_ms };
    json(&RecallAnswer::from(store.recall(&caller, request).await?))
}

async fn known_speakers(State(app): State<Arc<App>>, Extension(attested): Extension<Attested>) -> Answer {
    let (store, caller) = admitted(&app, &attested)?;
    let Nothing {} = attested.json()?;
    json(&store.known_speakers(&caller).await?)
}

async fn forget(State(app): State<Arc<App>>, Extension(attested): Extension<Attested>) -> Answer {
    let (store, caller) = admitted(&app, &attested)?;
    let ForgetBody { request, body_sha256 } = attested.json()?;
    let idempotency = idempotency(attested.idempotency_key, body_sha256)?;
    json(&store.forget(&caller, request, idempotency).await?)
}

async fn memory(State(app): State<Arc<App>>, Extension(attested): Extension<Attested>) -> Answer {
    let (store, caller) = admitted(&app, &attested)?;
    let MemoryBody { query } = attested.json()?;
    json(&store.memory(&caller, &query).await?)
}

async fn save_memory(State(app): State<Arc<App>>, Extension(attested): Extension<Attested>) -> Answer {
    let (store, caller) = admitted(&app, &attested)?;
    let SaveMemoryBody { request, body_sha256 } = attested.json()?;
    let idempotency = idempotency(attested.idempotency_key, body_sha256)?;
    json(&store.save_memory(&caller, request, attested.if_match, idempotency).await?)
}

async fn memory_history(State(app): State<Arc<App>>, Extension(attested): Extension<Attested>) -> Answer {
    let (store, caller) = admitted(&app, &attested)?;
    let Nothing {} = attested.json()?;
    json(&store.memory_history(&caller).await?)
}

async fn verify(State(app): State<Arc<App>>, Extension(attested): Extension<Attested>) -> Answer {
    let (store, caller) = admitted(&app, &attested)?;
    let Nothing {} = attested.json()?;
    json(&store.verify(&caller).await?)
}

async fn rebuild(State(app): State<Arc<App>>, Extension(attested): Extension<Attested>) -> Answer {
    let (store, caller) = admitted(&app, &attested)?;
    let request: RebuildRequest = attested.json()?;
    json(&store.rebuild(&caller, request).await?)
}

async fn export(State(app): State<Arc<App>>, Extension(attested): Extension<Attested>) -> Answer {
    let (store, caller) = admitted(&app, &attested)?;
    let Nothing {} = attested.json()?;
    Ok(stream(store.export(&caller).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ImportQuery {
    #[serde(default)]
    force_personal: bool,
}

async fn import(
    State(app): State<Arc<App>>,
    query: Result<Query<ImportQuery>, axum::extract::rejection::QueryRejection>,
    Extension(attested): Extension<Attested>,
) -> Answer {
    let (store, caller) = admitted(&app, &attested)?;
    let Query(ImportQuery { force_personal }) =
        query.map_err(|_| LaneError::invalid("force_personal", "must be true or false"))?;
    let body: ByteStream = Box::pin(futures::stream::iter([Ok(attested.body)]));
    json(&store.import(&caller, body, force_personal).await?)
}

async fn backup(State(app): State<Arc<App>>, Extension(attested): Extension<Attested>) -> Answer {
    let (store, caller) = admitted(&app, &attested)?;
    let Nothing {} = attested.json()?;
    Ok(stream(store.backup(&caller).await?))
}

/// Without a caller: numbers and codes. Attested all the same, so that only query-service and the operator ask.
async fn status(State(app): State<Arc<App>>, Extension(_): Extension<Attested>) -> Answer {
    let store = app.slot.store()?;
    json(&StatusAnswer::from(store.status().await))
}
