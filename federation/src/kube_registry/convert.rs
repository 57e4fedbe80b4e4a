//! Between the object and the record. Every struct is taken apart without `..`: a new field must be thought of.

use kube::api::DynamicObject;
use lanekeeper_core::{Epoch, Generation, Seq};
use lanekeeper_crds::federation_record as crd;
use lanekeeper_crds::{FederationRecordSpec, FederationRecordStatus};
use serde_json::{Value, json};

use crate::record::{Holder, Mode, PublishedHead, Record, RecordSpec, RecordStatus, Writer};
use crate::registry::RegistryError;

/// The record that an object is, or that it is none.
pub(super) fn record(collection: &str, object: &DynamicObject) -> Result<Record, RegistryError> {
    let garbled = |reason: String| RegistryError::Garbled { collection: collection.to_owned(), reason };
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    let spec: FederationRecordSpec =
        serde_json::from_value(spec).map_err(|error| garbled(format!("its spec: {error}")))?;
    let status: FederationRecordStatus = match object.data.get("status") {
        None | Some(Value::Null) => FederationRecordStatus::default(),
        Some(status) => {
            serde_json::from_value(status.clone()).map_err(|error| garbled(format!("its status: {error}")))?
        }
    };
    let record = Record { spec: self::spec(spec).map_err(garbled)?, status: self::status(status).map_err(garbled)? };
    if record.spec.collection != collection {
        return Err(garbled(format!("it names collection {}", record.spec.collection)));
    }
    Ok(record)
}

fn parsed<T: std::str::FromStr>(field: &str, text: &str) -> Result<T, String>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| format!("its {field}: {error}"))
}

fn count(field: &str, number: i64) -> Result<u64, String> {
    u64::try_from(number).map_err(|_| format!("its {field} must not be negative"))
}

fn spec(spec: FederationRecordSpec) -> Result<RecordSpec, String> {
    let FederationRecordSpec { collection, writer, mode, log_id, fingerprint, epoch, generation, readers } = spec;
    let crd::Writer { namespace, name, uid } = writer;
    Ok(RecordSpec {
        collection,
        writer: Writer { namespace, name, uid: parsed("spec.writer.uid", &uid.0)? },
        mode: match mode {
            crd::WriterMode::ReadWrite => Mode::ReadWrite,
            crd::WriterMode::Sealed => Mode::Sealed,
        },
        log_id: parsed("spec.logId", &log_id)?,
        fingerprint: parsed("spec.fingerprint", &fingerprint)?,
        epoch: Epoch(count("spec.epoch", epoch)?),
        generation: Generation(count("spec.generation", generation)?),
        readers: readers.iter().map(|uid| parsed("spec.readers", &uid.0)).collect::<Result<_, _>>()?,
    })
}

fn status(status: FederationRecordStatus) -> Result<RecordStatus, String> {
    let FederationRecordStatus { holder, head, wanted_generation, filled_generation } = status;
    let generation = |field, number: Option<i64>| number.map(|number| count(field, number)).transpose();
    Ok(RecordStatus {
        holder: holder.map(|crd::Holder { id, since_ms, released }| Holder { id, since_ms, released }),
        head: match head {
            None => None,
            Some(crd::PublishedHead { log_id, seq, hash }) => Some(PublishedHead {
                log_id: parsed("status.head.logId", &log_id)?,
                seq: Seq(count("status.head.seq", seq)?),
                hash: parsed("status.head.hash", &hash)?,
            }),
        },
        wanted_generation: generation("status.wantedGeneration", wanted_generation)?.map(Generation),
        filled_generation: generation("status.filledGeneration", filled_generation)?.map(Generation),
    })
}

/// The spec as the object has it.
pub(super) fn spec_json(spec: &RecordSpec) -> Value {
    let RecordSpec { collection, writer, mode, log_id, fingerprint, epoch, generation, readers } = spec;
    let Writer { namespace, name, uid } = writer;
    json!({
        "collection": collection,
        "writer": {"namespace": namespace, "name": name, "uid": uid},
        "mode": match mode {
            Mode::ReadWrite => "read-write",
            Mode::Sealed => "sealed",
        },
        "logId": log_id,
        "fingerprint": fingerprint,
        "epoch": epoch,
        "generation": generation,
        "readers": readers,
    })
}

/// The status as the object has it, with null for what is none.
pub(super) fn status_json(status: &RecordStatus) -> Value {
    let RecordStatus { holder, head, wanted_generation, filled_generation } = status;
    json!({
        "holder": holder.as_ref().map(|Holder { id, since_ms, released }| {
            json!({"id": id, "sinceMs": since_ms, "released": released})
        }),
        "head": head.as_ref().map(|PublishedHead { log_id, seq, hash }| {
            json!({"logId": log_id, "seq": seq, "hash": hash})
        }),
        "wantedGeneration": wanted_generation,
        "filledGeneration": filled_generation,
    })
}

#[cfg(test)]
mod tests {
    use kube::api::ApiResource;
    use lanekeeper_core::fingerprint::FingerprintFields;
    use lanekeeper_core::{Hash32, LaneUid, LogId};
    use lanekeeper_crds::FederationRecord;

    use super::*;

    fn whole() -> Record {
        let uid = |n| LaneUid::from_uuid(uuid::Uuid::from_u128(n));
        let log_id = LogId(Hash32::from_bytes([1; 32]));
        Record {
            spec: RecordSpec {
                collection: "team.acme".into(),
                writer: Writer { namespace: "team".into(), name: "acme".into(), uid: uid(7) },
                mode: Mode::Sealed,
                log_id,
                fingerprint: FingerprintFields::builtin().fingerprint(),
                epoch: Epoch(3),
                generation: Generation(4),
                readers: vec![uid(8), uid(9)],
            },
            status: RecordStatus {
                holder: Some(Holder { id: "pod".into(), since_ms: 5, released: true }),
                head: Some(PublishedHead { log_id, seq: Seq(6), hash: Hash32::from_bytes([2; 32]) }),
                wanted_generation: Some(Generation(5)),
                filled_generation: Some(Generation(4)),
            },
        }
    }

    fn object(record: &Record) -> DynamicObject {
        let mut object = DynamicObject::new("team.acme", &ApiResource::erase::<FederationRecord>(&()));
        object.data = json!({"spec": spec_json(&record.spec), "status": status_json(&record.status)});
        object
    }

    #[test]
    fn a_record_comes_back_and_nothing_is_null_where_it_is_none() {
        assert_eq!(record("team.acme", &object(&whole())).unwrap(), whole());
        let empty = Record { status: RecordStatus::default(), ..whole() };
        let mut without = object(&empty);
        assert_eq!(without.data["status"]["holder"], Value::Null);
        assert_eq!(without.data["status"].as_object().unwrap().len(), 4);
        assert_eq!(record("team.acme", &without).unwrap(), empty);
        without.data.as_object_mut().unwrap().remove("status");
        assert_eq!(record("team.acme", &without).unwrap(), empty);
    }

    #[test]
    fn what_is_no_record_is_garbled_with_the_field() {
        let cases: [(&str, Value); 8] = [
            ("/spec", json!(1)),
            ("/spec/collection", json!("team.other")),
            ("/spec/logId", json!("x")),
            ("/spec/epoch", json!(-1)),
            ("/spec/mode", json!("maybe")),
            ("/spec/readers", json!(["x"])),
            ("/status/head/hash", json!("x")),
            ("/status/holder", json!("me")),
        ];
        for (pointer, value) in cases {
            let mut object = object(&whole());
            *object.data.pointer_mut(pointer).unwrap() = value;
            assert!(matches!(record("team.acme", &object), Err(RegistryError::Garbled { .. })), "{pointer}");
        }
        // A newer store may report more: that does not make the record unreadable.
        let mut newer = object(&whole());
        newer.data["status"]["mood"] = json!("good");
        assert!(record("team.acme", &newer).is_ok());
    }
}
