//! Between this crate's types and the engine's.

use lanekeeper_core::EventId;
use qdrant_edge as edge;
use qdrant_edge::external::ordered_float::OrderedFloat;
use serde_json::{Map, Value, json};
use uuid::Uuid;

pub(super) use super::super::fields::{AT_MS, EVENT_ID, ROLES, SESSIONS, SPEAKERS};
use super::super::{Payload, Point, VectorFilter};

/// A field's path.
pub(super) fn path(field: &'static str) -> edge::JsonPath {
    field.parse().expect("the names above are plain words, and a plain word is a path")
}

pub(super) fn payload(payload: &Payload) -> edge::Payload {
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
        (EVENT_ID, json!(event_id.to_string())),
        ("n", json!(n)),
        ("projection_task", json!(projection_task)),
        ("task_version", json!(task_version)),
        ("prompt_version", json!(prompt_version)),
        ("embed_model", json!(embed_model)),
        ("dim", json!(dim)),
        (SESSIONS, json!(sessions)),
        (ROLES, json!(roles)),
        (SPEAKERS, json!(speakers)),
        (AT_MS, json!(at_ms)),
    ];
    edge::Payload(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<String, Value>>())
}

pub(super) fn point(point: &Point) -> edge::PointStructPersisted {
    let Point { id, vector, payload: stored } = point;
    edge::PointStructPersisted {
        id: edge::PointId::Uuid(*id),
        vector: edge::VectorStructPersisted::Single(vector.clone()),
        payload: Some(payload(stored)),
    }
}

pub(super) fn ids(ids: &[Uuid]) -> Vec<edge::PointId> {
    ids.iter().copied().map(edge::PointId::Uuid).collect()
}

/// Every id is written as a UUID.
pub(super) const fn id(id: edge::PointId) -> Option<Uuid> {
    match id {
        edge::PointId::Uuid(uuid) => Some(uuid),
        edge::PointId::NumId(_) => None,
    }
}

pub(super) fn event_id(payload: Option<&edge::Payload>) -> Option<EventId> {
    payload?.0.get(EVENT_ID)?.as_str()?.parse().ok()
}

pub(super) fn vector(vector: Option<edge::VectorStructInternal>) -> Option<Vec<f32>> {
    match vector? {
        edge::VectorStructInternal::Single(vector) => Some(vector),
        edge::VectorStructInternal::MultiDense(_) | edge::VectorStructInternal::Named(_) => None,
    }
}

fn any(field: &'static str, values: impl IntoIterator<Item = String>) -> edge::Condition {
    let values = edge::AnyVariants::Strings(values.into_iter().collect());
    edge::Condition::Field(edge::FieldCondition::new_match(
        path(field),
        edge::Match::Any(edge::MatchAny { any: values }),
    ))
}

/// Points of any of these events.
pub(super) fn of_events(events: &[EventId]) -> edge::Filter {
    edge::Filter::new_must(any(EVENT_ID, events.iter().map(ToString::to_string)))
}

/// `None` where nothing is filtered: the engine then scans without asking.
pub(super) fn filter(filter: &VectorFilter) -> Option<edge::Filter> {
    let VectorFilter { sessions, roles, speakers, at_gte_ms, at_lt_ms } = filter;
    let mut must = Vec::new();
    for (field, values) in [(SESSIONS, sessions), (ROLES, roles), (SPEAKERS, speakers)] {
        if !values.is_empty() {
            must.push(any(field, values.iter().cloned()));
        }
    }
    if at_gte_ms.is_some() || at_lt_ms.is_some() {
        // Milliseconds of any year that a caller can send are exact as f64.
        #[expect(clippy::cast_precision_loss, reason = "times are within 2^53 ms of the epoch")]
        let bound = |ms: &Option<i64>| ms.map(|ms| OrderedFloat(ms as f64));
        let range = edge::Range { lt: bound(at_lt_ms), gt: None, gte: bound(at_gte_ms), lte: None };
        must.push(edge::Condition::Field(edge::FieldCondition::new_range(path(AT_MS), range)));
    }
    (!must.is_empty()).then_some(edge::Filter { should: None, min_should: None, must: Some(must), must_not: None })
}
