//! Events on transitions, and only there; the API server aggregates a repeated one.
//!
//! An Event that cannot be written is logged and forgotten: nothing waits for it, and a terminating namespace takes
//! none.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use crate::error::{chain, is_terminating};
use crate::status::Transition;

/// Writes Events.
#[derive(Clone)]
pub struct Events(Recorder);

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}

/// Longest text of an Event, characters.
const NOTE: usize = 1000;

impl Events {
    /// In the name of `pod`.
    #[must_use]
    pub fn new(client: Client, pod: &str) -> Self {
        let reporter = Reporter { controller: "lanekeeper.dev/operator".into(), instance: Some(pod.to_owned()) };
        Self(Recorder::new(client, reporter))
    }

    /// Tells of each transition.
    pub async fn tell(&self, about: &ObjectReference, transitions: &[Transition]) {
        for Transition { kind, good, reason, message } in transitions {
            let type_ = if *good { EventType::Normal } else { EventType::Warning };
            self.write(about, type_, kind, reason, message).await;
        }
    }

    /// Warns of something that no condition holds, since its object is about to go.
    pub async fn warn(&self, about: &ObjectReference, action: &str, reason: &str, message: &str) {
        self.write(about, EventType::Warning, action, reason, message).await;
    }

    async fn write(&self, about: &ObjectReference, type_: EventType, action: &str, reason: &str, message: &str) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(message.chars().take(NOTE).collect()),
            action: action.to_owned(),
            secondary: None,
        };
        match self.0.publish(&event, about).await {
            Ok(()) => {}
            Err(error) if is_terminating(&error) => {}
            Err(error) => tracing::warn!(reason, error = chain(&error), "an Event was not written"),
        }
    }
}
