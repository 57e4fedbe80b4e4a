//! Between the protocol's messages and the in-process engine's types. What the engine could do and this does
//! not translate is refused: a condition that is passed over would widen a delete.

use std::collections::HashMap;

use qdrant_client::qdrant as wire;
use qdrant_client::qdrant::condition::ConditionOneOf;
use qdrant_client::qdrant::r#match::MatchValue;
use qdrant_client::qdrant::point_id::PointIdOptions;
use qdrant_client::qdrant::value::Kind;
use qdrant_edge as edge;
use qdrant_edge::external::ordered_float::OrderedFloat;
use serde_json::{Map, Value};
use tonic::Status;

pub(super) fn invalid(what: impl std::fmt::Display) -> Status {
    Status::invalid_argument(format!("Wrong input: {what}"))
}

pub(super) fn absent(what: &str) -> Status {
    Status::unimplemented(format!("the test server does not have {what}"))
}

pub(super) fn path(key: &str) -> Result<edge::JsonPath, Status> {
    key.parse().map_err(|()| invalid(format!("Invalid json path: \'{key}\'")))
}

pub(super) fn point_id(id: Option<wire::PointId>) -> Result<edge::PointId, Status> {
    match id.and_then(|id| id.point_id_options) {
        Some(PointIdOptions::Num(number)) => Ok(edge::PointId::NumId(number)),
        Some(PointIdOptions::Uuid(text)) => {
            text.parse().map(edge::PointId::Uuid).map_err(|_| invalid(format!("Unable to parse UUID: {text}")))
        }
        None => Err(invalid("No ID options provided")),
    }
}

pub(super) fn point_ids(ids: Vec<wire::PointId>) -> Result<Vec<edge::PointId>, Status> {
    ids.into_iter().map(|id| point_id(Some(id))).collect()
}

pub(super) fn wire_id(id: edge::PointId) -> wire::PointId {
    let options = match id {
        edge::PointId::NumId(number) => PointIdOptions::Num(number),
        edge::PointId::Uuid(uuid) => PointIdOptions::Uuid(uuid.to_string()),
    };
    wire::PointId { point_id_options: Some(options) }
}

fn json(value: wire::Value) -> Value {
    match value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::DoubleValue(number)) => number.into(),
        Some(Kind::IntegerValue(number)) => number.into(),
        Some(Kind::StringValue(text)) => text.into(),
        Some(Kind::BoolValue(value)) => value.into(),
        Some(Kind::StructValue(fields)) => {
            Value::Object(fields.fields.into_iter().map(|(name, value)| (name, json(value))).collect())
        }
        Some(Kind::ListValue(list)) => Value::Array(list.values.into_iter().map(json).collect()),
    }
}

pub(super) fn payload(fields: HashMap<String, wire::Value>) -> edge::Payload {
    edge::Payload(fields.into_iter().map(|(name, value)| (name, json(value))).collect::<Map<String, Value>>())
}

pub(super) fn wire_payload(payload: Option<edge::Payload>) -> HashMap<String, wire::Value> {
    payload.into_iter().flat_map(|payload| payload.0).map(|(name, value)| (name, value.into())).collect()
}

fn conditions(list: Vec<wire::Condition>) -> Result<Option<Vec<edge::Condition>>, Status> {
    if list.is_empty() {
        return Ok(None);
    }
    list.into_iter().map(condition).collect::<Result<Vec<_>, _>>().map(Some)
}

pub(super) fn filter(filter: wire::Filter) -> Result<edge::Filter, Status> {
    let wire::Filter { should, must, must_not, min_should } = filter;
    let min_should = min_should
        .map(|wire::MinShould { conditions: list, min_count }| {
            Ok::<_, Status>(edge::MinShould {
                conditions: conditions(list)?.unwrap_or_default(),
                min_count: usize::try_from(min_count).map_err(invalid)?,
            })
        })
        .transpose()?;
    Ok(edge::Filter {
        should: conditions(should)?,
        min_should,
        must: conditions(must)?,
        must_not: conditions(must_not)?,
    })
}

fn condition(condition: wire::Condition) -> Result<edge::Condition, Status> {
    match condition.condition_one_of.ok_or_else(|| invalid("a condition without content"))? {
        ConditionOneOf::Field(field) => field_condition(field).map(edge::Condition::Field),
        ConditionOneOf::IsEmpty(of) => Ok(edge::Condition::IsEmpty(path(&of.key)?.into())),
        ConditionOneOf::IsNull(of) => Ok(edge::Condition::IsNull(path(&of.key)?.into())),
        ConditionOneOf::HasId(of) => Ok(edge::Condition::HasId(point_ids(of.has_id)?.into_iter().collect())),
        ConditionOneOf::Filter(of) => filter(of).map(edge::Condition::Filter),
        ConditionOneOf::Nested(_) => Err(absent("nested conditions")),
        ConditionOneOf::HasVector(_) => Err(absent("conditions on vectors")),
        ConditionOneOf::Slice(_) => Err(absent("slices")),
    }
}

fn field_condition(field: wire::FieldCondition) -> Result<edge::FieldCondition, Status> {
    let wire::FieldCondition {
        key,
        r#match,
        range,
        geo_bounding_box,
        geo_radius,
        values_count,
        geo_polygon,
        datetime_range,
        is_empty,
        is_null,
    } = field;
    if geo_bounding_box.is_some() || geo_radius.is_some() || geo_polygon.is_some() {
        return Err(absent("places"));
    }
    if datetime_range.is_some() || values_count.is_some() {
        return Err(absent("ranges of dates and counts"));
    }
    let r#match = r#match.map(match_value).transpose()?;
    let range = range.map(|wire::Range { lt, gt, gte, lte }| {
        let bound = |bound: Option<f64>| bound.map(OrderedFloat);
        edge::RangeInterface::Float(edge::Range { lt: bound(lt), gt: bound(gt), gte: bound(gte), lte: bound(lte) })
    });
    if r#match.is_none() && range.is_none() && is_empty.is_none() && is_null.is_none() {
        return Err(invalid("a field condition without content"));
    }
    Ok(edge::FieldCondition {
        key: path(&key)?,
        r#match,
        range,
        geo_bounding_box: None,
        geo_radius: None,
        geo_polygon: None,
        values_count: None,
        is_empty,
        is_null,
    })
}

fn match_value(of: wire::Match) -> Result<edge::Match, Status> {
    let strings = |list: wire::RepeatedStrings| edge::AnyVariants::Strings(list.strings.into_iter().collect());
    let integers = |list: wire::RepeatedIntegers| edge::AnyVariants::Integers(list.integers.into_iter().collect());
    match of.match_value.ok_or_else(|| invalid("a match without content"))? {
        MatchValue::Keyword(text) => Ok(edge::Match::new_value(edge::ValueVariants::String(text))),
        MatchValue::Integer(number) => Ok(edge::Match::new_value(edge::ValueVariants::Integer(number))),
        MatchValue::Boolean(value) => Ok(edge::Match::new_value(edge::ValueVariants::Bool(value))),
        MatchValue::Keywords(list) => Ok(edge::Match::new_any(strings(list))),
        MatchValue::Integers(list) => Ok(edge::Match::new_any(integers(list))),
        MatchValue::ExceptKeywords(list) => Ok(edge::Match::new_except(strings(list))),
        MatchValue::ExceptIntegers(list) => Ok(edge::Match::new_except(integers(list))),
        MatchValue::Text(_)
        | MatchValue::Phrase(_)
        | MatchValue::TextAny(_)
        | MatchValue::Prefix(_)
        | MatchValue::Substring(_) => Err(absent("matches within a text")),
    }
}

/// Qdrant's own default: a search gives no payload, a scroll and a retrieve all of it.
pub(super) fn with_payload(
    selector: Option<wire::WithPayloadSelector>,
    default: bool,
) -> Result<edge::WithPayloadInterface, Status> {
    use wire::with_payload_selector::SelectorOptions;
    match selector.and_then(|selector| selector.selector_options) {
        None => Ok(edge::WithPayloadInterface::Bool(default)),
        Some(SelectorOptions::Enable(enable)) => Ok(edge::WithPayloadInterface::Bool(enable)),
        Some(SelectorOptions::Include(include)) => include
            .fields
            .iter()
            .map(|field| path(field))
            .collect::<Result<Vec<_>, _>>()
            .map(edge::WithPayloadInterface::Fields),
        Some(SelectorOptions::Exclude(_)) => Err(absent("payloads by exclusion")),
    }
}

pub(super) fn with_vectors(selector: Option<wire::WithVectorsSelector>) -> Result<edge::WithVector, Status> {
    use wire::with_vectors_selector::SelectorOptions;
    match selector.and_then(|selector| selector.selector_options) {
        None => Ok(edge::WithVector::Bool(false)),
        Some(SelectorOptions::Enable(enable)) => Ok(edge::WithVector::Bool(enable)),
        Some(SelectorOptions::Include(_)) => Err(absent("named vectors")),
    }
}

pub(super) fn dense(vectors: Option<wire::Vectors>) -> Result<Vec<f32>, Status> {
    use wire::vector::Vector;
    use wire::vectors::VectorsOptions;
    match vectors.and_then(|vectors| vectors.vectors_options) {
        Some(VectorsOptions::Vector(vector)) => match vector.vector {
            Some(Vector::Dense(dense)) => Ok(dense.data),
            #[expect(deprecated, reason = "what older clients send")]
            None => Ok(vector.data),
            Some(
                Vector::Sparse(_) | Vector::MultiDense(_) | Vector::Document(_) | Vector::Image(_) | Vector::Object(_),
            ) => Err(absent("vectors that are not dense")),
        },
        Some(VectorsOptions::Vectors(_)) => Err(absent("named vectors")),
        None => Err(invalid("Expected some vectors")),
    }
}

pub(super) fn wire_vectors(vector: Option<edge::VectorStructInternal>) -> Option<wire::VectorsOutput> {
    let data = match vector? {
        edge::VectorStructInternal::Single(data) => data,
        edge::VectorStructInternal::MultiDense(_) | edge::VectorStructInternal::Named(_) => return None,
    };
    let vector = wire::VectorOutput {
        vector: Some(wire::vector_output::Vector::Dense(wire::DenseVector { data })),
        ..wire::VectorOutput::default()
    };
    Some(wire::VectorsOutput { vectors_options: Some(wire::vectors_output::VectorsOptions::Vector(vector)) })
}

/// As the server names failures of its engine.
pub(super) fn status(error: &edge::OperationError) -> Status {
    match error {
        edge::OperationError::PointIdError { .. } => Status::not_found(format!("Not found: {error}")),
        edge::OperationError::ServiceError { .. } | edge::OperationError::InconsistentStorage { .. } => {
            Status::internal(format!("Service internal error: {error}"))
        }
        edge::OperationError::OutOfMemory { .. } => Status::resource_exhausted(error.to_string()),
        edge::OperationError::Cancelled { .. } => Status::cancelled(error.to_string()),
        edge::OperationError::Timeout { .. } => Status::deadline_exceeded(error.to_string()),
        edge::OperationError::WrongVectorDimension { .. }
        | edge::OperationError::VectorNameNotExists { .. }
        | edge::OperationError::TypeError { .. }
        | edge::OperationError::TypeInferenceError { .. }
        | edge::OperationError::ValidationError { .. }
        | edge::OperationError::WrongSparse
        | edge::OperationError::WrongMulti
        | edge::OperationError::MissingRangeIndexForOrderBy { .. }
        | edge::OperationError::MissingMapIndexForFacet { .. }
        | edge::OperationError::VariableTypeError { .. }
        | edge::OperationError::NonFiniteNumber { .. } => invalid(error),
    }
}
