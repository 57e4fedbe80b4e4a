//! Projection t0: vectors for turns, without a model that writes text.
//!
//! What must always hold: a claim is COMPLETE only after its points are durable and only if nothing
//! changed under it; whatever a crash leaves RUNNING gives the same point ids again; nothing here holds up
//! a save.

pub(crate) mod heal;
pub(crate) mod mark;
pub(crate) mod passages;
pub(crate) mod projector;
