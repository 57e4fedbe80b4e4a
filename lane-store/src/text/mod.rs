//! Text as the lane store computes with it: tokens, stop words, exact scores, windows, the hashed
//! form of a content, and how a question's token states become one vector.
//!
//! What must always hold: everything here is a pure function of its arguments, total over every
//! `&str`, and the same on both sides of the index. Nothing here knows SQL, files or clocks.
//!
//! Changing what any function returns for a text changes what is stored: raise the projection's task
//! version and rebuild.

pub(crate) mod analyze;
pub(crate) mod bm25;
mod chars;
pub(crate) mod content;
mod encode;
pub(crate) mod header;
mod lexer;
pub(crate) mod pool;
pub(crate) mod speakers;
pub(crate) mod stop_words;
pub(crate) mod windows;
