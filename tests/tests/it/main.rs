//! Tests over several parts, in one binary: linking the engine once is enough.
#![expect(clippy::print_stderr, reason = "seeds and counts of a run are for its reader")]

mod apollo;
mod cases_forget;
mod cases_isolation;
mod cases_search;
mod cases_writes;
mod check;
mod control;
mod crash;
mod model;
mod no_leak;
mod scope_matrix;
