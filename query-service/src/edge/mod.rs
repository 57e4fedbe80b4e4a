//! What every request passes before a handler sees it: its id, its span, limits, its body, its headers.
//!
//! What must always hold: query strings, bodies, tokens and field values are never logged; what a caller
//! sends wrong is a 4xx that names the field and the rule and never repeats the value.

pub(crate) mod body;
pub(crate) mod busy;
pub(crate) mod headers;
pub(crate) mod json_error;
pub(crate) mod lines;
pub(crate) mod observe;
pub(crate) mod query;
pub(crate) mod request_id;
