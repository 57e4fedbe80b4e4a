//! The registry of writers: who may write a collection, under which epoch, and what head was last seen.
//!
//! What must always hold: a write happens only while [`Fence::confirm`] gave a [`Fenced`], and it gives
//! one only for a record that was read at most 15 s ago and names exactly this writer. Anything unknown,
//! missing, garbled or unreadable refuses.
//! What it does not do: renew leases. A store that is not writing does not read the registry.

mod fence;
mod file_registry;
mod holder;
#[cfg(feature = "kubernetes")]
mod kube_registry;
mod record;
mod registry;

pub use fence::{Expectation, Fence, Fenced, Refusal, check};
pub use file_registry::FileRegistry;
pub use holder::{TAKE_OVER_WAIT, take_over};
#[cfg(feature = "kubernetes")]
pub use kube_registry::KubeRegistry;
pub use record::{Holder, Mode, PublishedHead, Record, RecordSpec, RecordStatus, Writer};
pub use registry::{Registry, RegistryError, SpecChange, StatusChange};
