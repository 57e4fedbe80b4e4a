//! Names of payload fields as every engine stores them. They never change meaning.

/// The event that owns the content, hyphenated.
pub(super) const EVENT_ID: &str = "event_id";
/// Sessions of every holder.
pub(super) const SESSIONS: &str = "sessions";
/// Roles of every holder.
pub(super) const ROLES: &str = "roles";
/// Hashed speakers of every holder.
pub(super) const SPEAKERS: &str = "speakers";
/// Times of every holder, milliseconds since the epoch.
pub(super) const AT_MS: &str = "at_ms";
