//! What leaves a lane whole and comes back: export and import, backup and restore.
//!
//! What must always hold: text and times come back as they were sent; what was forgotten here never comes
//! back by an import; nothing is in place after a restore before all of it was verified.
//! What it does not do: know HTTP or files that callers name; hold keys outside the lane's folder.
//! The formats are told in docs/formats.md.

pub(crate) mod accept;
pub(crate) mod archive;
pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod lines;
pub(crate) mod origins;
pub(crate) mod place;
pub(crate) mod rekey;
pub(crate) mod restore;
