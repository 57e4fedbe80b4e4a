//! Records as files, one JSON file a collection, for the embedded default.
//!
//! What must always hold: a record is replaced whole (temp file, fsync, rename, fsync of the folder), and
//! every change happens under an exclusive lock on `registry.lock`, so two processes never lose an update.
//! Files are 0600 and folders 0700 from their first byte.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use crate::record::{Record, RecordSpec};
use crate::registry::{Registry, RegistryError, SpecChange, StatusChange};

/// A folder of records.
#[derive(Debug, Clone)]
pub struct FileRegistry {
    folder: PathBuf,
}

impl FileRegistry {
    /// Opens (and if needed makes) the folder.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, RegistryError> {
        let folder = folder.into();
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(|error| unreadable(&folder, &error))?;
        Ok(Self { folder })
    }

    fn path(&self, collection: &str) -> Result<PathBuf, RegistryError> {
        let good = !collection.is_empty()
            && collection.len() <= 200
            && collection.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
            && !collection.starts_with('.');
        if good {
            Ok(self.folder.join(format!("{collection}.json")))
        } else {
            Err(RegistryError::Missing { collection: collection.to_owned() })
        }
    }

    fn lock(&self) -> Result<File, RegistryError> {
        let path = self.folder.join("registry.lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| unreadable(&path, &error))?;
        file.lock().map_err(|error| unreadable(&path, &error))?;
        Ok(file)
    }

    fn load(&self, collection: &str) -> Result<Record, RegistryError> {
        let path = self.path(collection)?;
        let bytes = std::fs::read(&path).map_err(|error| {
            // A folder that is gone says nothing about its records.
            if error.kind() == ErrorKind::NotFound && self.folder.is_dir() {
                RegistryError::Missing { collection: collection.to_owned() }
            } else {
                unreadable(&path, &error)
            }
        })?;
        let record: Record = serde_json::from_slice(&bytes)
            .map_err(|error| RegistryError::Garbled { collection: collection.to_owned(), reason: error.to_string() })?;
        if record.spec.collection != collection {
            return Err(RegistryError::Garbled {
                collection: collection.to_owned(),
                reason: format!("it names collection {}", record.spec.collection),
            });
        }
        Ok(record)
    }

    fn store(&self, record: &Record) -> Result<(), RegistryError> {
        let path = self.path(&record.spec.collection)?;
        let json = serde_json::to_vec_pretty(record)
            .map_err(|error| RegistryError::Unreadable { reason: error.to_string() })?;
        // tempfile makes its files 0600.
        let mut temp =
            tempfile::NamedTempFile::new_in(&self.folder).map_err(|error| unreadable(&self.folder, &error))?;
        temp.write_all(&json)
            .and_then(|()| temp.as_file().sync_all())
            .map_err(|error| unreadable(temp.path(), &error))?;
        temp.persist(&path).map_err(|error| unreadable(&path, &error.error))?;
        File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(|error| unreadable(&self.folder, &error))
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(Self) -> Result<T, RegistryError> + Send + 'static,
    ) -> Result<T, RegistryError> {
        let registry = self.clone();
        tokio::task::spawn_blocking(move || work(registry))
            .await
            .unwrap_or_else(|error| Err(RegistryError::Unreadable { reason: error.to_string() }))
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> RegistryError {
    RegistryError::Unreadable { reason: format!("{}: {error}", path.display()) }
}

#[async_trait]
impl Registry for FileRegistry {
    async fn read(&self, collection: &str) -> Result<Record, RegistryError> {
        let collection = collection.to_owned();
        self.blocking(move |registry| registry.load(&collection)).await
    }

    async fn declare(&self, spec: RecordSpec) -> Result<Record, RegistryError> {
        self.blocking(move |registry| {
            let _lock = registry.lock()?;
            match registry.load(&spec.collection) {
                Ok(record) if record.spec.writer.uid == spec.writer.uid => Ok(record),
                Ok(record) => Err(RegistryError::Taken {
                    collection: spec.collection,
                    holder: format!("{}/{}", record.spec.writer.namespace, record.spec.writer.name),
                }),
                Err(RegistryError::Missing { .. }) => {
                    registry.path(&spec.collection)?;
                    let record = Record { spec, status: crate::record::RecordStatus::default() };
                    registry.store(&record)?;
                    Ok(record)
                }
                Err(error) => Err(error),
            }
        })
        .await
    }

    async fn change_spec(&self, collection: &str, change: SpecChange) -> Result<Record, RegistryError> {
        let collection = collection.to_owned();
        self.blocking(move |registry| {
            let _lock = registry.lock()?;
            let mut record = registry.load(&collection)?;
            change(&mut record.spec);
            registry.store(&record)?;
            Ok(record)
        })
        .await
    }

    async fn change_status(&self, collection: &str, change: StatusChange) -> Result<Record, RegistryError> {
        let collection = collection.to_owned();
        self.blocking(move |registry| {
            let _lock = registry.lock()?;
            let mut record = registry.load(&collection)?;
            let before = record.status.clone();
            change(&mut record.status);
            if record.status != before {
                registry.store(&record)?;
            }
            Ok(record)
        })
        .await
    }

    async fn remove(&self, collection: &str) -> Result<(), RegistryError> {
        let collection = collection.to_owned();
        self.blocking(move |registry| {
            let _lock = registry.lock()?;
            let path = registry.path(&collection)?;
            match std::fs::remove_file(&path) {
                Ok(()) => Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                Err(error) => Err(unreadable(&path, &error)),
            }
        })
        .await
    }
}
