//! What the tests over several parts share: a whole product in process, and the data beside the checkout.
#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod bench;
pub mod embed_server;
pub mod process;
pub mod shared;
pub mod world;

use std::sync::Arc;

use lanekeeper_embedder::{BuiltinEncoder, model_dir};

/// The built-in model from its cache. `None` prints a visible skip, or fails under
/// `LANEKEEPER_REQUIRE_MODEL=1` (which `make test` sets after fetching it).
#[must_use]
pub fn builtin() -> Option<Arc<BuiltinEncoder>> {
    match model_dir()
        .map_err(|error| error.to_string())
        .and_then(|dir| BuiltinEncoder::open(&dir).map_err(|error| error.to_string()))
    {
        Ok(encoder) => Some(Arc::new(encoder)),
        Err(error) => {
            assert!(std::env::var_os("LANEKEEPER_REQUIRE_MODEL").is_none(), "{error}");
            #[expect(clippy::print_stderr, reason = "a skip must be seen")]
            {
                eprintln!("SKIPPED: the model is not in its cache: {error}");
            }
            None
        }
    }
}
