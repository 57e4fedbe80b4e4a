//! Bodies of the query API. The OpenAPI document is made from these types.
//!
//! Requests refuse unknown fields. Checks that need more than a type are in `check` methods, which
//! name the field by its JSON path.

pub mod events;
pub mod forget;
pub mod lanes;
pub mod memory;
pub mod recall;
pub mod upkeep;
