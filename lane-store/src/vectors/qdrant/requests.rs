//! Requests about one collection, and which collection that is.

use std::future::Future;
use std::time::{Duration, Instant};

use qdrant_client::qdrant as wire;
use qdrant_client::qdrant::points_client::PointsClient;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::super::VectorError;
use super::failure::garbled;
use super::generations::Names;
use super::{QdrantStore, convert};

/// Ids in one request.
pub(super) const IDS_AT_A_TIME: usize = 1000;
/// Points of one page with vectors.
const VECTORS_AT_A_TIME: u32 = 256;
/// Points of one page without.
const SCROLL: u32 = 4096;

impl QdrantStore {
    pub(super) async fn read<M, R, F>(
        &self,
        message: M,
        send: impl Fn(PointsClient<Channel>, Request<M>) -> F,
    ) -> Result<R, VectorError>
    where
        M: Clone,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        self.calls.call(self.limits.read, message, send).await
    }

    /// Writes to every collection that is written to; `message` makes the request for one of them.
    pub(super) async fn write<M, F>(
        &self,
        message: impl Fn(String) -> M,
        send: impl Fn(PointsClient<Channel>, Request<M>) -> F,
    ) -> Result<(), VectorError>
    where
        M: Clone,
        F: Future<Output = Result<Response<wire::PointsOperationResponse>, Status>>,
    {
        let (message, send) = (&message, &send);
        self.as_named(|names| async move {
            for name in names.written() {
                let answer = self.calls.call(self.limits.write, message(name.to_owned()), send).await?;
                convert::applied(answer)?;
            }
            Ok(())
        })
        .await
    }

    /// Runs `call` on the collections as they are named now; once more where they have other names since.
    pub(super) async fn as_named<T, F>(&self, call: impl Fn(Names) -> F) -> Result<T, VectorError>
    where
        F: Future<Output = Result<T, VectorError>>,
    {
        let names = self.generations.names().await?;
        let failed = match call(names.clone()).await {
            Ok(answer) => return Ok(answer),
            Err(failed @ (VectorError::CollectionMissing(_) | VectorError::Refused(_))) => failed,
            Err(failed) => return Err(failed),
        };
        // The operator drops the old collection, and its name from the lane's key, after the exchange.
        if self.generations.read().await.is_err() {
            return Err(failed);
        }
        let renamed = self.generations.names().await?;
        if renamed == names { Err(failed) } else { call(renamed).await }
    }

    /// All points of a collection that pass, page by page.
    pub(super) async fn scroll(
        &self,
        collection: &str,
        filter: Option<wire::Filter>,
        fields: &[&str],
        vectors: bool,
        mut take: impl FnMut(wire::RetrievedPoint) -> Result<(), VectorError>,
    ) -> Result<(), VectorError> {
        let mut offset: Option<wire::PointId> = None;
        loop {
            let page = wire::ScrollPoints {
                collection_name: collection.to_owned(),
                filter: filter.clone(),
                offset: offset.clone(),
                limit: Some(if vectors { VECTORS_AT_A_TIME } else { SCROLL }),
                with_payload: Some(convert::with_payload(fields)),
                with_vectors: Some(convert::with_vectors(vectors)),
                ..wire::ScrollPoints::default()
            };
            let answer = self.read(page, |mut client, request| async move { client.scroll(request).await }).await?;
            let empty = answer.result.is_empty();
            answer.result.into_iter().try_for_each(&mut take)?;
            match answer.next_page_offset {
                None => return Ok(()),
                // It would go round for ever.
                Some(next) if empty || offset.as_ref() == Some(&next) => {
                    return Err(garbled("pages that do not go on"));
                }
                Some(next) => offset = Some(next),
            }
        }
    }

    pub(super) async fn retrieve(
        &self,
        collection: &str,
        ids: &[Uuid],
        vectors: bool,
        mut take: impl FnMut(wire::RetrievedPoint) -> Result<(), VectorError>,
    ) -> Result<(), VectorError> {
        for ids in ids.chunks(IDS_AT_A_TIME) {
            let get = wire::GetPoints {
                collection_name: collection.to_owned(),
                ids: convert::ids(ids),
                with_payload: Some(convert::with_payload(&[])),
                with_vectors: Some(convert::with_vectors(vectors)),
                ..wire::GetPoints::default()
            };
            let answer = self.read(get, |mut client, request| async move { client.get(request).await }).await?;
            answer.result.into_iter().try_for_each(&mut take)?;
        }
        Ok(())
    }

    pub(super) async fn delete_selected(&self, points: wire::PointsSelector) -> Result<(), VectorError> {
        let message = |collection_name| wire::DeletePoints {
            collection_name,
            wait: Some(true),
            points: Some(points.clone()),
            ordering: convert::in_order(),
            ..wire::DeletePoints::default()
        };
        self.write(message, |mut client, request| async move { client.delete(request).await }).await
    }

    pub(super) async fn count_in(&self, collection: &str, exact: bool) -> Result<u64, VectorError> {
        let count = wire::CountPoints {
            collection_name: collection.to_owned(),
            exact: Some(exact),
            ..wire::CountPoints::default()
        };
        let answer = self.read(count, |mut client, request| async move { client.count(request).await }).await?;
        answer.result.map(|result| result.count).ok_or_else(|| garbled("a count without its number"))
    }

    /// Repeats `look` until it gives something, no longer than the operator has. `in_vain` makes the error.
    pub(super) async fn wait_for<T, F>(
        &self,
        look: impl Fn() -> F,
        in_vain: impl FnOnce() -> VectorError,
    ) -> Result<T, VectorError>
    where
        F: Future<Output = Result<Option<T>, VectorError>>,
    {
        let deadline = Instant::now() + self.limits.operator;
        let mut pause = Duration::from_millis(20);
        loop {
            let failed = match look().await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => None,
                Err(failed) if failed.is_transient() => Some(failed),
                Err(failed) => return Err(failed),
            };
            if Instant::now() + pause > deadline {
                return Err(failed.unwrap_or_else(in_vain));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }
}
