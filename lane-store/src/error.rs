//! Errors of the engine, and how SQLite's become them.
//!
//! [`StoreError`] is for opening and upkeep; requests answer [`LaneError`]. No error holds memory text:
//! SQLite's messages name tables and constraints, never bound values.

use lanekeeper_core::LaneError;
use lanekeeper_core::ids::LaneUid;

/// Why a store does not open or an upkeep step failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder or a file in it cannot be used. A person must look.
    #[error("{action} {path}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Another process holds the lane.
    #[error("another process holds the lock of {path}")]
    Locked {
        /// The lock file.
        path: String,
    },
    /// The file was written by a newer program. Nothing was touched; use that program.
    #[error("the store's schema is version {found}, newer than this program's {known}; nothing was touched")]
    SchemaTooNew {
        /// In the file.
        found: i64,
        /// Of this program.
        known: i64,
    },
    /// The log belongs to another lane. Adoption must be asked for.
    #[error("the log is bound to lane uid {bound}, not {asked}")]
    OtherLane {
        /// In the log.
        bound: LaneUid,
        /// Asked for.
        asked: LaneUid,
    },
    /// The log's id is not the declared one: rows or a file of another lane.
    #[error("the log_id in the file is not the declared one")]
    OtherLog,
    /// The log was published with a head and its file is gone.
    #[error("the registry knows a head at seq {seq} and there is no log file: restore a backup")]
    FileGone {
        /// The published head.
        seq: u64,
    },
    /// The folder holds a lane already. Nothing was touched; move it away first.
    #[error("{path} is there already: a restore writes over nothing, move it away first")]
    Occupied {
        /// What is in the way.
        path: String,
    },
    /// The backup is not what was written. Nothing was put in place; use another.
    #[error("the backup cannot be used: {why}")]
    BackupDamaged {
        /// What is wrong, and where.
        why: String,
    },
    /// The database.
    #[error("{action}")]
    Sqlite {
        /// What was tried.
        action: &'static str,
        /// Why not.
        #[source]
        source: sqlx::Error,
    },
    /// The registry.
    #[error("the federation registry")]
    Registry(#[source] lanekeeper_federation::RegistryError),
    /// The vector engine.
    #[error("the vector engine: {0}")]
    Vectors(String),
    /// A file is not what it claims to be.
    #[error("{what}: {why}")]
    Malformed {
        /// Which.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// A request-level refusal.
    #[error(transparent)]
    Lane(#[from] LaneError),
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: &std::path::Path, source: std::io::Error) -> Self {
        Self::Io { action, path: path.display().to_string(), source }
    }

    pub(crate) fn sqlite(action: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| Self::Sqlite { action, source }
    }

    /// The error with its chain of causes, for the log.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

impl From<StoreError> for LaneError {
    fn from(error: StoreError) -> Self {
        if let StoreError::Lane(error) = error { error } else { Self::internal(error.chain()) }
    }
}

/// A failed statement as a request sees it. SQLITE_FULL (13) is the volume.
pub(crate) fn statement(error: sqlx::Error) -> LaneError {
    if is_disk_full(&error) {
        return LaneError::DiskFull;
    }
    LaneError::internal(format!("sqlite: {error}"))
}

pub(crate) fn is_disk_full(error: &sqlx::Error) -> bool {
    // 13 is SQLITE_FULL. A full tmpfs may also answer SQLITE_IOERR_WRITE (778) with ENOSPC below it.
    matches!(error.as_database_error().and_then(|db| db.code()).as_deref(), Some("13" | "778"))
}
