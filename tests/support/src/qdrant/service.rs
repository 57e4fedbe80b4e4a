//! What both faces of the server share: who asks, which collection that is, and the engine's calls on threads
//! where they may block.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use qdrant_edge as edge;
use qdrant_edge::{OperationError, UpdateOperation};
use serde_json::Value;
use tonic::Status;

use super::auth::{Access, ValueExists, verify};
use super::convert::{invalid, path, status};
use super::faults::Faults;
use super::storage::{Collection, Shape, Storage};

/// A change of aliases, as Qdrant has it.
#[derive(Debug, Clone)]
pub(super) enum AliasChange {
    Create { alias: String, collection: String },
    Rename { old: String, new: String },
    Delete { alias: String },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Service {
    storage: Storage,
    api_key: RwLock<Option<String>>,
    faults: Faults,
}

impl Service {
    pub(super) fn new(storage: Storage, api_key: Option<String>) -> Self {
        Self { storage, api_key: RwLock::new(api_key), faults: Faults::default() }
    }

    pub(super) fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(super) fn set_api_key(&self, api_key: Option<String>) {
        *self.api_key.write().unwrap_or_else(PoisonError::into_inner) = api_key;
    }

    /// Who asks, by the headers `api-key` and `authorization`.
    pub(super) async fn access(&self, api_key: Option<&str>, authorization: Option<&str>) -> Result<Access, Status> {
        let asked = self.api_key.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(asked) = asked else { return Ok(Access::Everything) };
        let sent = api_key.or_else(|| authorization?.strip_prefix("Bearer "));
        let (access, value_exists) = verify(&asked, sent)?;
        if let Some(value_exists) = value_exists {
            self.must_exist(value_exists).await?;
        }
        Ok(access)
    }

    async fn must_exist(&self, value_exists: ValueExists) -> Result<(), Status> {
        let mut must = Vec::new();
        for pair in value_exists.matches {
            let value = match pair.value {
                Value::String(text) => edge::ValueVariants::String(text),
                Value::Bool(value) => edge::ValueVariants::Bool(value),
                Value::Number(number) => edge::ValueVariants::Integer(
                    number.as_i64().ok_or_else(|| Status::unauthenticated("Invalid API key or JWT"))?,
                ),
                Value::Null | Value::Array(_) | Value::Object(_) => {
                    return Err(Status::unauthenticated("Invalid API key or JWT"));
                }
            };
            let matched = edge::FieldCondition::new_match(path(&pair.key)?, edge::Match::new_value(value));
            must.push(edge::Condition::Field(matched));
        }
        let filter = edge::Filter { should: None, min_should: None, must: Some(must), must_not: None };
        let request = edge::CountRequest { filter: Some(filter), exact: true };
        let failed = "Invalid JWT, stateful validation failed";
        let collection = self
            .find(&value_exists.collection)
            .map_err(|_| Status::permission_denied(format!("Forbidden: {failed}")))?;
        let found = on(collection, move |collection| collection.shard().count(request)).await?;
        if found == 0 { Err(Status::unauthenticated(failed)) } else { Ok(()) }
    }

    /// By name or alias.
    pub(super) fn find(&self, name: &str) -> Result<Arc<Collection>, Status> {
        self.storage
            .read()
            .find(name)
            .cloned()
            .ok_or_else(|| Status::not_found(format!("Not found: Collection `{name}` doesn't exist!")))
    }

    pub(super) async fn ask<T: Send + 'static>(
        &self,
        access: &Access,
        name: &str,
        ask: impl FnOnce(&Collection) -> Result<T, OperationError> + Send + 'static,
    ) -> Result<T, Status> {
        access.read(name)?;
        on(self.find(name)?, ask).await
    }

    pub(super) async fn update(&self, access: &Access, name: &str, operation: UpdateOperation) -> Result<u64, Status> {
        access.write(name)?;
        on(self.find(name)?, move |collection| collection.update(operation)).await
    }

    pub(super) fn create(&self, access: &Access, name: &str, shape: Shape) -> Result<(), Status> {
        access.manage()?;
        let good =
            !name.is_empty() && name.len() <= 255 && !name.chars().any(|c| c.is_control() || "<>:\"/\\|?*".contains(c));
        if !good {
            return Err(invalid(format!("collection name {name:?}")));
        }
        if shape.size == 0 || shape.size > 65_536 {
            return Err(invalid("vectors must have 1 to 65536 dimensions"));
        }
        match self.storage.create(name, shape) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Status::already_exists(format!("Wrong input: Collection `{name}` already exists!"))),
            Err(error) => Err(status(&error)),
        }
    }

    pub(super) fn drop_collection(&self, access: &Access, name: &str) -> Result<bool, Status> {
        access.manage()?;
        self.storage.drop_collection(name).map_err(|error| status(&error))
    }

    /// Those that the caller may see.
    pub(super) fn list(&self, access: &Access) -> Vec<String> {
        let state = self.storage.read();
        state.collections.keys().filter(|name| access.read(name).is_ok()).cloned().collect()
    }

    /// (alias, collection).
    pub(super) fn aliases(&self, access: &Access, of: Option<&str>) -> Result<Vec<(String, String)>, Status> {
        match of {
            Some(name) => {
                access.read(name)?;
                self.find(name)?;
            }
            None => access.read_all()?,
        }
        let state = self.storage.read();
        let pairs = state.aliases.iter().filter(|(_, target)| of.is_none_or(|of| of == target.as_str()));
        Ok(pairs.map(|(alias, target)| (alias.clone(), target.clone())).collect())
    }

    /// All or none.
    pub(super) fn change_aliases(&self, access: &Access, changes: Vec<AliasChange>) -> Result<(), Status> {
        access.manage()?;
        self.storage
            .change_aliases(|aliases, collections| {
                changes.into_iter().try_for_each(|change| apply(change, aliases, collections))
            })
            .map_err(|Refused(status)| status)
    }
}

/// So that a failure of the disk and a refusal are one error.
struct Refused(Status);

impl From<OperationError> for Refused {
    fn from(error: OperationError) -> Self {
        Self(status(&error))
    }
}

fn apply(
    change: AliasChange,
    aliases: &mut BTreeMap<String, String>,
    collections: &BTreeMap<String, Arc<Collection>>,
) -> Result<(), Refused> {
    match change {
        AliasChange::Create { alias, collection } => {
            if !collections.contains_key(&collection) {
                let why = format!("Not found: Collection `{collection}` doesn't exist!");
                return Err(Refused(Status::not_found(why)));
            }
            if collections.contains_key(&alias) {
                let why = format!("Wrong input: Collection `{alias}` already exists!");
                return Err(Refused(Status::already_exists(why)));
            }
            aliases.insert(alias, collection);
        }
        AliasChange::Rename { old, new } => {
            let target = aliases
                .remove(&old)
                .ok_or_else(|| Refused(Status::not_found(format!("Not found: Alias {old} does not exist!"))))?;
            aliases.insert(new, target);
        }
        AliasChange::Delete { alias } => {
            aliases.remove(&alias);
        }
    }
    Ok(())
}

/// Calls the engine where it may block, and where its panics are caught.
async fn on<T: Send + 'static>(
    collection: Arc<Collection>,
    call: impl FnOnce(&Collection) -> Result<T, OperationError> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(move || call(&collection)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(status(&error)),
        Err(error) => Err(Status::internal(format!("Service internal error: {error}"))),
    }
}
