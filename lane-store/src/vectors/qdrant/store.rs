//! The trait's answers, in requests.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use lanekeeper_core::{EventId, Generation};
use qdrant_client::qdrant as wire;
use uuid::Uuid;

use super::super::fields::EVENT_ID;
use super::super::points::{Page, check, checked};
use super::super::{Found, Payload, Point, VectorError, VectorFilter, VectorStore};
use super::requests::IDS_AT_A_TIME;
use super::{QdrantStore, convert};

/// Bytes of points in one request.
const MOST_REQUEST_BYTES: usize = 16 * 1024 * 1024;
/// Events in one request.
const EVENTS_AT_A_TIME: usize = 256;

#[async_trait]
impl VectorStore for QdrantStore {
    fn dimension(&self) -> usize {
        self.dimension
    }

    /// 0 until the record has been read once.
    fn generation(&self) -> Generation {
        self.generations.searched()
    }

    async fn upsert(&self, points: Vec<Point>) -> Result<(), VectorError> {
        let points = checked(points, self.dimension)?;
        let mut rest = points.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fitting = rest.iter().take_while(|point| {
                bytes += convert::size(point);
                bytes <= MOST_REQUEST_BYTES
            });
            let (batch, after) = rest.split_at(fitting.count().max(1));
            rest = after;
            let batch: Vec<wire::PointStruct> = batch.iter().map(convert::point).collect();
            let message = |collection_name| wire::UpsertPoints {
                collection_name,
                wait: Some(true),
                points: batch.clone(),
                ordering: convert::in_order(),
                ..wire::UpsertPoints::default()
            };
            self.write(message, |mut client, request| async move { client.upsert(request).await }).await?;
        }
        Ok(())
    }

    async fn set_payload(&self, ids: Vec<Uuid>, payload: Payload) -> Result<(), VectorError> {
        for ids in ids.chunks(IDS_AT_A_TIME) {
            let message = |collection_name| wire::SetPayloadPoints {
                collection_name,
                wait: Some(true),
                payload: convert::payload(&payload),
                points_selector: Some(convert::that_exist(ids)),
                ordering: convert::in_order(),
                ..wire::SetPayloadPoints::default()
            };
            self.write(message, |mut client, request| async move { client.overwrite_payload(request).await }).await?;
        }
        Ok(())
    }

    async fn delete(&self, ids: Vec<Uuid>) -> Result<(), VectorError> {
        for ids in ids.chunks(IDS_AT_A_TIME) {
            self.delete_selected(convert::by_ids(ids)).await?;
        }
        Ok(())
    }

    async fn delete_event(&self, event_id: EventId) -> Result<(), VectorError> {
        self.delete_selected(convert::by_filter(convert::of_events(&[event_id]))).await
    }

    async fn search(
        &self,
        vector: Vec<f32>,
        filter: VectorFilter,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<Found>, VectorError> {
        check(&vector, self.dimension)?;
        let filter = convert::filter(&filter);
        let Some(mut page) = Page::new(limit, offset) else { return Ok(Vec::new()) };
        loop {
            let query = wire::QueryPoints {
                collection_name: self.alias.clone(),
                query: Some(wire::Query {
                    variant: Some(wire::query::Variant::Nearest(wire::VectorInput::from(vector.clone()))),
                }),
                filter: filter.clone(),
                // Approximate pages are not prefixes of each other (docs/decisions/0042).
                params: Some(wire::SearchParams { exact: Some(true), ..wire::SearchParams::default() }),
                limit: Some(page.asked() as u64),
                with_payload: Some(convert::with_payload(&[EVENT_ID])),
                with_vectors: Some(convert::with_vectors(false)),
                ..wire::QueryPoints::default()
            };
            let answer = self.read(query, |mut client, request| async move { client.query(request).await }).await?;
            let answered = answer.result.len();
            let mut found = Vec::with_capacity(answered);
            for point in answer.result {
                found.extend(convert::read_found(point)?);
            }
            if let Some(page) = page.take(found, answered) {
                return Ok(page);
            }
        }
    }

    async fn vectors_of(&self, events: Vec<EventId>) -> Result<HashMap<EventId, Vec<Vec<f32>>>, VectorError> {
        let mut found: HashMap<EventId, Vec<Vec<f32>>> = HashMap::new();
        for events in events.chunks(EVENTS_AT_A_TIME) {
            let filter = Some(convert::of_events(events));
            self.scroll(&self.alias, filter, &[EVENT_ID], true, |point| {
                let vector = convert::read_vector(point.vectors, self.dimension)?;
                if let Some(event) = convert::read_event(&point.payload) {
                    found.entry(event).or_default().push(vector);
                }
                Ok(())
            })
            .await?;
        }
        Ok(found)
    }

    async fn vectors(&self, ids: Vec<Uuid>) -> Result<HashMap<Uuid, Vec<f32>>, VectorError> {
        let mut found = HashMap::with_capacity(ids.len());
        self.retrieve(&self.alias, &ids, true, |point| {
            if let Some(id) = convert::read_id(point.id)? {
                found.insert(id, convert::read_vector(point.vectors, self.dimension)?);
            }
            Ok(())
        })
        .await?;
        Ok(found)
    }

    async fn existing(&self, ids: Vec<Uuid>) -> Result<Vec<Uuid>, VectorError> {
        // Each id once, however often it was asked for.
        let distinct: HashSet<Uuid> = ids.into_iter().collect();
        let distinct: &Vec<Uuid> = &distinct.into_iter().collect();
        self.as_named(|names| async move {
            let mut found = Vec::new();
            self.retrieve(names.newest(), distinct, false, |point| {
                found.extend(convert::read_id(point.id)?);
                Ok(())
            })
            .await?;
            Ok(found)
        })
        .await
    }

    async fn all_ids(&self) -> Result<Vec<Uuid>, VectorError> {
        let (all, of_shadow) = self
            .as_named(|names| async move {
                let mut all = Vec::new();
                self.scroll(names.newest(), None, &[], false, |point| {
                    all.extend(convert::read_id(point.id)?);
                    Ok(())
                })
                .await?;
                Ok((all, names.shadow.is_some()))
            })
            .await?;
        if of_shadow {
            self.generations.compared();
        }
        Ok(all)
    }

    async fn count(&self) -> Result<u64, VectorError> {
        self.as_named(|names| async move { self.count_in(names.newest(), true).await }).await
    }

    /// Nothing is pending: every write was waited for.
    async fn flush(&self) -> Result<(), VectorError> {
        Ok(())
    }

    /// Asks the operator for the next collection and waits until it is there. Where it does not come in time
    /// the answer is [`VectorError::CollectionMissing`], there is no shadow, and the same call may be made
    /// again.
    async fn begin_shadow(&self) -> Result<Generation, VectorError> {
        let wanted = self.generations.want().await?;
        let name = &self.generations.name(wanted);
        self.wait_for(
            || async move { self.count_in(name, false).await.map(Some) },
            || VectorError::CollectionMissing("the operator has not made the next collection yet".into()),
        )
        .await?;
        self.generations.begin(wanted);
        Ok(wanted)
    }

    fn has_shadow(&self) -> bool {
        self.generations.shadow().is_some()
    }

    /// Says in the record that the shadow is filled and waits until the operator has exchanged the collections.
    async fn swap_shadow(&self) -> Result<Generation, VectorError> {
        let offered = self.generations.offer().await?;
        self.wait_for(
            || async move {
                let searched = self.generations.read().await?.spec.generation;
                Ok((searched >= offered).then_some(searched))
            },
            || VectorError::Unavailable("the operator has not exchanged the collections yet".into()),
        )
        .await
    }
}
