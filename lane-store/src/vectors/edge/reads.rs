//! Questions to one shard, in the engine's own terms.

use qdrant_edge as edge;
use qdrant_edge::{EdgeShard, OperationError};
use uuid::Uuid;

use super::super::Found;
use super::convert;

/// Points read at a time where all of them are.
const SCROLL: usize = 4096;

/// At least the `asked` nearest, or all there are; equal scores in any order.
pub(super) fn nearest(
    shard: &EdgeShard,
    vector: &[f32],
    filter: Option<&edge::Filter>,
    asked: usize,
) -> Result<Vec<Found>, OperationError> {
    // The engine makes room for as many as are asked for. Not filtered, the estimate is the number itself.
    let stored = shard.count(edge::CountRequest { filter: None, exact: false })?;
    if stored == 0 {
        return Ok(Vec::new());
    }
    let found = shard.search(edge::SearchRequest {
        query: edge::QueryEnum::Nearest(edge::NamedQuery {
            query: edge::VectorInternal::Dense(vector.to_vec()),
            using: None,
        }),
        filter: filter.cloned(),
        params: None,
        limit: asked.min(stored.saturating_add(1)),
        offset: 0,
        with_payload: Some(edge::WithPayloadInterface::Fields(vec![convert::path(convert::EVENT_ID)])),
        with_vector: None,
        score_threshold: None,
    })?;
    let found = found.into_iter().filter_map(|point| {
        Some(Found {
            id: convert::id(point.id)?,
            event_id: convert::event_id(point.payload.as_ref())?,
            score: point.score,
        })
    });
    Ok(found.collect())
}

/// Of these ids, those that exist.
pub(super) fn existing(shard: &EdgeShard, ids: &[Uuid]) -> Result<Vec<Uuid>, OperationError> {
    let records = shard.retrieve(&convert::ids(ids), Some(false.into()), Some(edge::WithVector::Bool(false)))?;
    Ok(records.into_iter().filter_map(|record| convert::id(record.id)).collect())
}

/// All points that pass, by id.
pub(super) fn scroll(
    shard: &EdgeShard,
    filter: Option<edge::Filter>,
    fields: &[&'static str],
    with_vector: bool,
) -> Result<Vec<edge::Record>, OperationError> {
    let mut all = Vec::new();
    let mut offset = None;
    loop {
        let (records, next) = shard.scroll(edge::ScrollRequest {
            offset,
            limit: Some(SCROLL),
            filter: filter.clone(),
            with_payload: Some(if fields.is_empty() {
                edge::WithPayloadInterface::Bool(false)
            } else {
                edge::WithPayloadInterface::Fields(fields.iter().map(|field| convert::path(field)).collect())
            }),
            with_vector: edge::WithVector::Bool(with_vector),
            order_by: None,
        })?;
        all.extend(records);
        match next {
            Some(next) => offset = Some(next),
            None => return Ok(all),
        }
    }
}
