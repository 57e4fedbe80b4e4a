//! Bodies of the query API (the OpenAPI document is made from these types), and of the protocols between the
//! parts in a cluster ([`store`], [`problem`], [`encoding`]).
//!
//! Requests refuse unknown fields. Checks that need more than a type are in `check` methods, which
//! name the field by its JSON path.

pub mod encoding;
pub mod events;
pub mod forget;
pub mod lanes;
pub mod memory;
pub mod problem;
pub mod recall;
pub mod store;
pub mod upkeep;
