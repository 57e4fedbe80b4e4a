//! The extractors: the only way for a handler to get hold of a lane.
//!
//! [`InLane`] names the action in its type, so the decision is made before the handler runs and before the
//! body is read. Where an action's path depends on the body (a curated save, a forget of paragraphs), the
//! extractor asks for any path on which it is allowed and the handler decides again on the very path; the
//! store decides a third time.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use lanekeeper_core::hooks::guard;
use lanekeeper_core::lane_client::{Caller, LaneClient, require};
use lanekeeper_core::scope::{Action, Decision, SHARED_OWNER};
use lanekeeper_core::{LaneError, LaneName};

use super::reach::{Reach, Reached};
use crate::app::App;
use crate::problem::EdgeError;

/// An action on a lane and how it is decided.
pub(crate) trait OnLane: Send + Sync + 'static {
    const ACTION: Action;

    fn decide(caller: &Caller) -> Decision;
}

macro_rules! on_lane {
    ($($name:ident: $decide:expr;)*) => {
        $(
            /// See [`Action`].
            #[derive(Debug)]
            pub(crate) struct $name;
            impl OnLane for $name {
                const ACTION: Action = Action::$name;
                fn decide(caller: &Caller) -> Decision {
                    let decide: fn(&Caller, Action) -> Decision = $decide;
                    decide(caller, Self::ACTION)
                }
            }
        )*
    };
}

on_lane! {
    Recall: Caller::on_events;
    Save: Caller::on_events;
    Export: Caller::on_events;
    Import: Caller::on_events;
    Verify: Caller::on_events;
    Rebuild: Caller::on_events;
    Backup: Caller::on_events;
    MemoryRead: on_any_memory;
    MemoryWrite: on_any_memory;
    Forget: on_anything;
}

fn most_lenient(decisions: impl IntoIterator<Item = Decision>) -> Decision {
    let mut best = Decision::Deny;
    for decision in decisions {
        best = match (best, decision) {
            (Decision::Auto, _) | (_, Decision::Auto) => Decision::Auto,
            (Decision::Gate, _) | (_, Decision::Gate) => Decision::Gate,
            (Decision::Human, _) | (_, Decision::Human) => Decision::Human,
            (Decision::Deny, Decision::Deny) => Decision::Deny,
        };
    }
    best
}

fn on_any_memory(caller: &Caller, action: Action) -> Decision {
    let own = caller.principal.owner_segment();
    most_lenient([caller.on_memory(&own, action), caller.on_memory(SHARED_OWNER, action)])
}

fn on_anything(caller: &Caller, action: Action) -> Decision {
    most_lenient([caller.on_events(action), on_any_memory(caller, action)])
}

/// The lane in the URL, reached by a credential that may do `A` there now.
#[derive(Debug)]
pub(crate) struct InLane<A> {
    lane: Reached,
    action: PhantomData<fn() -> A>,
}

impl<A: OnLane> InLane<A> {
    pub(crate) fn caller(&self) -> &Caller {
        self.lane.caller()
    }

    pub(crate) fn client(&self) -> &dyn LaneClient {
        self.lane.client().as_ref()
    }
}

impl<A: OnLane> FromRequestParts<Arc<App>> for InLane<A> {
    type Rejection = EdgeError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, EdgeError> {
        let reach = app.gate().reach(&parts.headers).await?;
        // Escapes are decoded once, by the router's own extractor; what is no lane name names nothing.
        let not_found = || LaneError::NotFound { what: "lane" };
        let Path((namespace, name)) =
            Path::<(String, String)>::from_request_parts(parts, app).await.map_err(|_| not_found())?;
        let name = LaneName::new(&namespace, &name).map_err(|_| not_found())?;
        let lane = reach.lane(&name)?.clone();
        if guard("scope_deny") {
            require(A::decide(lane.caller()), A::ACTION)?;
        }
        lane.require_active()?;
        Ok(Self { lane, action: PhantomData })
    }
}

/// All that the credential reaches, for the routes that name no lane in the URL.
#[derive(Debug)]
pub(crate) struct InReach(pub(crate) Reach);

impl FromRequestParts<Arc<App>> for InReach {
    type Rejection = EdgeError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, EdgeError> {
        Ok(Self(app.gate().reach(&parts.headers).await?))
    }
}
