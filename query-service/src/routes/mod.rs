//! The routes and the layers round them. A file is a route; `lane/` holds those under
//! `/v1/lanes/{namespace}/{name}`.
//!
//! Order of layers, outermost first: observe (id, span, count), panic catcher, and for `/v1` load shedding.
//! The public routes are never shed: a service that is full is still alive.

mod health;
mod lane;
mod lanes;
mod openapi_json;
mod recall;

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::edge::{busy, observe};
use crate::openapi;
use crate::problem::{EdgeError, method_not_allowed, no_route};

/// Every route behind a token.
fn v1() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default()
        .routes(routes!(lanes::list_lanes))
        .routes(routes!(recall::recall))
        .routes(routes!(lane::events::save_events, lane::events::list_events))
        .routes(routes!(lane::forget::forget))
        .routes(routes!(lane::memory::read_memory, lane::memory::save_memory))
        .routes(routes!(lane::memory_history::memory_history))
        .routes(routes!(lane::verify::verify))
        .routes(routes!(lane::rebuild::rebuild))
        .routes(routes!(lane::export::export))
        .routes(routes!(lane::import::import))
        .routes(routes!(lane::backup::backup))
}

/// Every public route.
fn public() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default()
        .routes(routes!(openapi_json::openapi))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
}

/// All routes with their description.
pub(crate) fn api() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(openapi::head()).merge(v1()).merge(public())
}

/// The API, to be served on the main port.
pub fn router(app: &Arc<App>) -> Router {
    let (v1, _) = v1().split_for_parts();
    let (public, _) = public().split_for_parts();
    v1.layer(from_fn_with_state(Arc::clone(app), busy::shed))
        .merge(public)
        .fallback(no_route)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(Arc::clone(app), observe::observe))
        .with_state(Arc::clone(app))
}

/// The panic's own words may hold memory text, so they are not repeated.
fn panicked(_: Box<dyn Any + Send + 'static>) -> Response {
    tracing::error!("a handler panicked");
    EdgeError::Panicked.into_response()
}
