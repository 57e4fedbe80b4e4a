//! Between this crate's types and the server's messages.
//!
//! What must always hold: nothing of an answer is taken on trust. A number that is not finite, a vector of
//! another length or an answer with a part missing is an error, never a value.

use std::collections::HashMap;

use lanekeeper_core::EventId;
use qdrant_client::qdrant as wire;
use qdrant_client::qdrant::condition::ConditionOneOf;
use qdrant_client::qdrant::r#match::MatchValue;
use qdrant_client::qdrant::point_id::PointIdOptions;
use qdrant_client::qdrant::points_selector::PointsSelectorOneOf;
use qdrant_client::qdrant::value::Kind;
use uuid::Uuid;

use super::super::fields::{AT_MS, EVENT_ID, ROLES, SESSIONS, SPEAKERS};
use super::super::{Found, Payload, Point, VectorError, VectorFilter};
use super::failure::garbled;

fn value(kind: Kind) -> wire::Value {
    wire::Value { kind: Some(kind) }
}

fn list(values: impl Iterator<Item = Kind>) -> wire::Value {
    value(Kind::ListValue(wire::ListValue { values: values.map(value).collect() }))
}

fn strings(values: &[String]) -> wire::Value {
    list(values.iter().cloned().map(Kind::StringValue))
}

/// The same fields as the in-process engine's.
pub(super) fn payload(payload: &Payload) -> HashMap<String, wire::Value> {
    let Payload {
        event_id,
        n,
        projection_task,
        task_version,
        prompt_version,
        embed_model,
        dim,
        sessions,
        roles,
        speakers,
        at_ms,
    } = payload;
    let fields = [
        (EVENT_ID, value(Kind::StringValue(event_id.to_string()))),
        ("n", value(Kind::IntegerValue((*n).into()))),
        ("projection_task", value(Kind::StringValue(projection_task.clone()))),
        ("task_version", value(Kind::IntegerValue(*task_version))),
        ("prompt_version", value(Kind::IntegerValue(*prompt_version))),
        ("embed_model", value(Kind::StringValue(embed_model.clone()))),
        ("dim", value(Kind::IntegerValue((*dim).into()))),
        (SESSIONS, strings(sessions)),
        (ROLES, strings(roles)),
        (SPEAKERS, strings(speakers)),
        (AT_MS, list(at_ms.iter().copied().map(Kind::IntegerValue))),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(super) fn id(id: Uuid) -> wire::PointId {
    wire::PointId { point_id_options: Some(PointIdOptions::Uuid(id.to_string())) }
}

pub(super) fn ids(ids: &[Uuid]) -> Vec<wire::PointId> {
    ids.iter().copied().map(id).collect()
}

pub(super) fn point(point: &Point) -> wire::PointStruct {
    let Point { id: point_id, vector, payload: stored } = point;
    wire::PointStruct {
        id: Some(id(*point_id)),
        vectors: Some(wire::Vectors::from(vector.clone())),
        payload: payload(stored),
    }
}

/// About how many bytes a point takes on the wire.
pub(super) fn size(point: &Point) -> usize {
    let Payload { sessions, roles, speakers, at_ms, .. } = &point.payload;
    let texts: usize = [sessions, roles, speakers].into_iter().flatten().map(|text| text.len() + 8).sum();
    point.vector.len() * 4 + texts + at_ms.len() * 12 + 512
}

fn condition(of: ConditionOneOf) -> wire::Condition {
    wire::Condition { condition_one_of: Some(of) }
}

fn field(key: &str) -> wire::FieldCondition {
    wire::FieldCondition { key: key.to_owned(), ..wire::FieldCondition::default() }
}

fn any(key: &str, strings: Vec<String>) -> wire::Condition {
    let matched = wire::Match { match_value: Some(MatchValue::Keywords(wire::RepeatedStrings { strings })) };
    condition(ConditionOneOf::Field(wire::FieldCondition { r#match: Some(matched), ..field(key) }))
}

fn all_of(must: Vec<wire::Condition>) -> wire::Filter {
    wire::Filter { must, ..wire::Filter::default() }
}

/// Points of any of these events.
pub(super) fn of_events(events: &[EventId]) -> wire::Filter {
    all_of(vec![any(EVENT_ID, events.iter().map(ToString::to_string).collect())])
}

/// Those of these points that exist. By filter, because a missing id in a list of ids is an error to some
/// operations of the server, after a part of them is done.
pub(super) fn that_exist(points: &[Uuid]) -> wire::PointsSelector {
    let has_id = condition(ConditionOneOf::HasId(wire::HasIdCondition { has_id: ids(points) }));
    by_filter(all_of(vec![has_id]))
}

pub(super) fn by_filter(filter: wire::Filter) -> wire::PointsSelector {
    wire::PointsSelector { points_selector_one_of: Some(PointsSelectorOneOf::Filter(filter)) }
}

pub(super) fn by_ids(points: &[Uuid]) -> wire::PointsSelector {
    wire::PointsSelector {
        points_selector_one_of: Some(PointsSelectorOneOf::Points(wire::PointsIdsList { ids: ids(points) })),
    }
}

/// `None` where nothing is filtered.
pub(super) fn filter(filter: &VectorFilter) -> Option<wire::Filter> {
    let VectorFilter { sessions, roles, speakers, at_gte_ms, at_lt_ms } = filter;
    let mut must = Vec::new();
    for (key, values) in [(SESSIONS, sessions), (ROLES, roles), (SPEAKERS, speakers)] {
        if !values.is_empty() {
            must.push(any(key, values.clone()));
        }
    }
    if at_gte_ms.is_some() || at_lt_ms.is_some() {
        #[expect(clippy::cast_precision_loss, reason = "times are within 2^53 ms of the epoch")]
        let bound = |ms: &Option<i64>| ms.map(|ms| ms as f64);
        let range = wire::Range { lt: bound(at_lt_ms), gt: None, gte: bound(at_gte_ms), lte: None };
        must.push(condition(ConditionOneOf::Field(wire::FieldCondition { range: Some(range), ..field(AT_MS) })));
    }
    (!must.is_empty()).then(|| all_of(must))
}

pub(super) fn with_payload(fields: &[&str]) -> wire::WithPayloadSelector {
    use wire::with_payload_selector::SelectorOptions;
    let options = if fields.is_empty() {
        SelectorOptions::Enable(false)
    } else {
        let fields = fields.iter().map(|field| (*field).to_owned()).collect();
        SelectorOptions::Include(wire::PayloadIncludeSelector { fields })
    };
    wire::WithPayloadSelector { selector_options: Some(options) }
}

pub(super) fn with_vectors(enable: bool) -> wire::WithVectorsSelector {
    use wire::with_vectors_selector::SelectorOptions;
    wire::WithVectorsSelector { selector_options: Some(SelectorOptions::Enable(enable)) }
}

/// Medium: an operation that follows another is not taken before it, also where the collection has replicas.
pub(super) fn in_order() -> Option<wire::WriteOrdering> {
    Some(wire::WriteOrdering { r#type: wire::WriteOrderingType::Medium.into() })
}

/// Every id of ours is a UUID; what somebody else wrote under a number has none.
pub(super) fn read_id(id: Option<wire::PointId>) -> Result<Option<Uuid>, VectorError> {
    match id.and_then(|id| id.point_id_options) {
        Some(PointIdOptions::Uuid(text)) => {
            Uuid::try_parse(&text).map(Some).map_err(|_| garbled("a point's id is no UUID"))
        }
        Some(PointIdOptions::Num(_)) => Ok(None),
        None => Err(garbled("a point without an id")),
    }
}

pub(super) fn read_event(payload: &HashMap<String, wire::Value>) -> Option<EventId> {
    match payload.get(EVENT_ID)?.kind.as_ref()? {
        Kind::StringValue(text) => text.parse().ok(),
        Kind::NullValue(_)
        | Kind::DoubleValue(_)
        | Kind::IntegerValue(_)
        | Kind::BoolValue(_)
        | Kind::StructValue(_)
        | Kind::ListValue(_) => None,
    }
}

/// `None` for a point that is not one of ours: healing deletes it, a search passes it over.
pub(super) fn read_found(point: wire::ScoredPoint) -> Result<Option<Found>, VectorError> {
    if !point.score.is_finite() {
        return Err(garbled("a score that is not finite"));
    }
    let (id, event_id) = (read_id(point.id)?, read_event(&point.payload));
    Ok(id.zip(event_id).map(|(id, event_id)| Found { id, event_id, score: point.score }))
}

pub(super) fn read_vector(vectors: Option<wire::VectorsOutput>, dimension: usize) -> Result<Vec<f32>, VectorError> {
    use wire::vector_output::Vector;
    use wire::vectors_output::VectorsOptions;
    let vector = match vectors.and_then(|vectors| vectors.vectors_options) {
        Some(VectorsOptions::Vector(vector)) => match vector.vector {
            Some(Vector::Dense(dense)) => dense.data,
            // Servers before 1.16.
            #[expect(deprecated, reason = "what older servers answer")]
            None if vector.indices.is_none() && vector.vectors_count.is_none() => vector.data,
            Some(Vector::Sparse(_) | Vector::MultiDense(_)) | None => return Err(garbled("a vector of another kind")),
        },
        Some(VectorsOptions::Vectors(_)) | None => return Err(garbled("a point without its vector")),
    };
    if vector.len() != dimension || !vector.iter().all(|value| value.is_finite()) {
        return Err(garbled("a vector of another length, or with a number that is not finite"));
    }
    Ok(vector)
}

/// What was written is applied, and not only accepted.
pub(super) fn applied(answer: wire::PointsOperationResponse) -> Result<(), VectorError> {
    match answer.result.map(|result| result.status()) {
        Some(wire::UpdateStatus::Completed) => Ok(()),
        Some(
            wire::UpdateStatus::Acknowledged
            | wire::UpdateStatus::WaitTimeout
            | wire::UpdateStatus::ClockRejected
            | wire::UpdateStatus::UnknownUpdateStatus,
        ) => Err(VectorError::Unavailable("the server took a write and has not applied it".into())),
        None => Err(garbled("a write without its result")),
    }
}
