//! Shedding load: a request beyond the limit is answered 503 at once, with Retry-After; it never queues.
//!
//! A semaphore of our own instead of tower's layers: those count per route unless shared by hand, and turn
//! the refusal into a boxed error that has to be told apart again.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::app::App;
use crate::problem::EdgeError;

pub(crate) async fn shed(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match app.permits().try_acquire() {
        Ok(_permit) => next.run(request).await,
        Err(_) => {
            app.metrics().shed();
            EdgeError::Busy.into_response()
        }
    }
}
