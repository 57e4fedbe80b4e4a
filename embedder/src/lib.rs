//! Text to vectors: the built-in model with token states, and clients of external servers.
//!
//! Both are a [`lanekeeper_core::encoder::Encoder`]. The built-in one needs its weights once on the
//! machine ([`fetch`]), checks them at every start and computes on threads of its own.
//!
//! What must always hold: no text that is embedded reaches a log or an error; an async caller's
//! thread never computes; an encoder that cannot answer says so at once.
//!
//! What it deliberately does not do: rank, weigh by idf or store. The lane does.
#![warn(missing_docs)]

mod admission;
mod baseline;
mod baseline_sentences;
mod builtin;
mod convert;
mod external;
mod external_wire;
mod fair_queue;
mod fetch;
mod model;
mod pooling;
mod remote;
mod remote_wire;
mod scheduler;
#[cfg(feature = "server")]
pub mod server;
#[cfg(any(test, feature = "test-support"))]
pub mod testing;
mod tokens;
mod weights;

pub use builtin::{BuiltinEncoder, BuiltinOptions, OpenError, PASSAGES_PER_LANE, QUERIES_PER_LANE};
pub use convert::{Attention, CONVERTER_VERSION, ConvertError, convert};
pub use external::{ExternalConfig, ExternalEncoder, ExternalError};
pub use fetch::{FetchError, Progress, fetch, fetch_into};
pub use model::ModelError;
pub use remote::{RemoteConfig, RemoteEncoder};
pub use remote_wire::Info;
pub use tokens::TokenizerError;
pub use weights::{Installed, MODEL_DIR_ENV, MODEL_WHEEL_ENV, WHEEL_FILE, WeightsError, builtin_available, model_dir};
