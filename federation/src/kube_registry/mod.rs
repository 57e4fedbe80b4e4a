//! Records as FederationRecord objects in the operator's namespace: the API server's unique names are the lock.
//!
//! What must always hold
//! - A read is a GET of the one object, never from a cache: whoever asks wants to know now.
//! - A write names the resourceVersion that was read. On a conflict the record is read again and the change applied
//!   again, so no other writer's change is lost.
//! - A store writes into a record only while that names its own lane as writer.
//! - Missing is only what the API server says is missing by name. Anything else that is no answer (no connection,
//!   no permission, an unknown kind, a late answer) is unreadable; an object that is no record is garbled.
//!
//! Not here: watching, leases. The server's own words go to the log and not into errors: callers see those.

mod convert;

use std::time::Duration;

use async_trait::async_trait;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use lanekeeper_core::LaneUid;
use lanekeeper_crds::FederationRecord;
use serde_json::{Value, json};

use crate::record::{Record, RecordSpec, RecordStatus};
use crate::registry::{Registry, RegistryError, SpecChange, StatusChange};

/// An answer that takes longer is none. Short beside the 15 s that a confirmation lasts.
const ANSWER_WAIT: Duration = Duration::from_secs(4);
/// How often a change is applied again after a conflict.
const ATTEMPTS: u32 = 8;
/// The field manager of a store.
const STORE: &str = "lanekeeper-store";
/// The field manager of the operator.
const OPERATOR: &str = "lanekeeper-operator";

/// See the module's head.
#[derive(Clone)]
pub struct KubeRegistry {
    api: Api<DynamicObject>,
    manager: &'static str,
    /// The pod and the lane of a store; `None` for the operator.
    store: Option<(String, LaneUid)>,
}

impl std::fmt::Debug for KubeRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeRegistry")
            .field("manager", &self.manager)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl KubeRegistry {
    /// As a lane's store sees it: it reads one record and writes its status. `pod` is the pod's UID, `namespace` the
    /// operator's.
    #[must_use]
    pub fn for_store(client: kube::Client, namespace: &str, pod: impl Into<String>, lane: LaneUid) -> Self {
        Self { api: api(client, namespace), manager: STORE, store: Some((pod.into(), lane)) }
    }

    /// As the operator sees it: it declares records and writes their specs.
    #[must_use]
    pub fn for_operator(client: kube::Client, namespace: &str) -> Self {
        Self { api: api(client, namespace), manager: OPERATOR, store: None }
    }

    async fn load(&self, collection: &str) -> Result<(Record, String), RegistryError> {
        let object = answered(collection, self.api.get(collection)).await?;
        let version = object.metadata.resource_version.clone().unwrap_or_default();
        let record = convert::record(collection, &object)?;
        Ok((record, version))
    }

    /// Applies `change` to what is there until it was written or changed nothing.
    async fn change(
        &self,
        collection: &str,
        part: Part,
        change: impl Fn(&mut Record) + Send,
    ) -> Result<Record, RegistryError> {
        for attempt in 0..ATTEMPTS {
            let (mut record, version) = self.load(collection).await?;
            if let Some((_, lane)) = &self.store
                && record.spec.writer.uid != *lane
            {
                let writer = &record.spec.writer;
                return Err(RegistryError::Taken {
                    collection: collection.to_owned(),
                    holder: format!("{}/{}", writer.namespace, writer.name),
                });
            }
            let before = record.clone();
            change(&mut record);
            if record == before {
                return Ok(record);
            }
            let patch = part.patch(&record, &version);
            let parameters = PatchParams { field_manager: Some(self.manager.to_owned()), ..PatchParams::default() };
            let sent = async {
                match part {
                    Part::Spec => self.api.patch(collection, &parameters, &Patch::Merge(&patch)).await,
                    Part::Status => self.api.patch_status(collection, &parameters, &Patch::Merge(&patch)).await,
                }
            };
            match tokio::time::timeout(ANSWER_WAIT, sent).await {
                Ok(Ok(object)) => return convert::record(collection, &object),
                Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                    tracing::debug!(attempt, "the record changed in between; the change is applied again");
                    tokio::time::sleep(Duration::from_millis(u64::from(attempt) * 20)).await;
                }
                Ok(Err(error)) => return Err(failure(collection, &error)),
                Err(_) => return Err(late()),
            }
        }
        Err(RegistryError::Unreadable { reason: "the record changes faster than it can be written".into() })
    }
}

fn api(client: kube::Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client, namespace, &ApiResource::erase::<FederationRecord>(&()))
}

/// Which half is written. Each has its own writer, so each is sent alone.
#[derive(Clone, Copy)]
enum Part {
    Spec,
    Status,
}

impl Part {
    /// A merge patch that holds only if the object is still at `version`. What is none is sent as null: a merge
    /// patch keeps what it does not name.
    fn patch(self, record: &Record, version: &str) -> Value {
        let metadata = json!({"resourceVersion": version});
        match self {
            Self::Spec => json!({"metadata": metadata, "spec": convert::spec_json(&record.spec)}),
            Self::Status => json!({"metadata": metadata, "status": convert::status_json(&record.status)}),
        }
    }
}

async fn answered<T>(
    collection: &str,
    answer: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, RegistryError> {
    match tokio::time::timeout(ANSWER_WAIT, answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failure(collection, &error)),
        Err(_) => Err(late()),
    }
}

fn late() -> RegistryError {
    RegistryError::Unreadable { reason: format!("the API server does not answer within {} s", ANSWER_WAIT.as_secs()) }
}

fn failure(collection: &str, error: &kube::Error) -> RegistryError {
    tracing::debug!(collection, %error, "the API server was asked in vain");
    if let kube::Error::Api(status) = error {
        // An unknown kind or a wrong server is 404 too, and says nothing about the record.
        let by_name = status.details.as_ref().is_some_and(|details| details.name == collection);
        if status.code == 404 && by_name {
            return RegistryError::Missing { collection: collection.to_owned() };
        }
        return RegistryError::Unreadable { reason: format!("the API server answers with status {}", status.code) };
    }
    RegistryError::Unreadable { reason: "the API server cannot be reached, or its answer cannot be read".into() }
}

#[async_trait]
impl Registry for KubeRegistry {
    async fn read(&self, collection: &str) -> Result<Record, RegistryError> {
        self.load(collection).await.map(|(record, _)| record)
    }

    async fn declare(&self, spec: RecordSpec) -> Result<Record, RegistryError> {
        let collection = spec.collection.clone();
        let mut object = DynamicObject::new(&collection, &ApiResource::erase::<FederationRecord>(&()));
        object.data = json!({"spec": convert::spec_json(&spec)});
        let parameters = PostParams { field_manager: Some(self.manager.to_owned()), ..PostParams::default() };
        match tokio::time::timeout(ANSWER_WAIT, self.api.create(&parameters, &object)).await {
            Ok(Ok(object)) => convert::record(&collection, &object),
            // Somebody was first; perhaps ourselves, in a call whose answer was lost.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                let record = self.read(&collection).await?;
                if record.spec.writer.uid == spec.writer.uid {
                    return Ok(record);
                }
                let writer = &record.spec.writer;
                Err(RegistryError::Taken { collection, holder: format!("{}/{}", writer.namespace, writer.name) })
            }
            Ok(Err(error)) => Err(failure(&collection, &error)),
            Err(_) => Err(late()),
        }
    }

    async fn change_spec(&self, collection: &str, change: SpecChange) -> Result<Record, RegistryError> {
        self.change(collection, Part::Spec, move |record| change(&mut record.spec)).await
    }

    async fn change_status(&self, collection: &str, change: StatusChange) -> Result<Record, RegistryError> {
        self.change(collection, Part::Status, move |record: &mut Record| {
            let status: &mut RecordStatus = &mut record.status;
            change(status);
        })
        .await
    }

    async fn remove(&self, collection: &str) -> Result<(), RegistryError> {
        match answered(collection, self.api.delete(collection, &DeleteParams::default())).await {
            Ok(_) | Err(RegistryError::Missing { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn pod(&self) -> Option<&str> {
        self.store.as_ref().map(|(pod, _)| pod.as_str())
    }
}
