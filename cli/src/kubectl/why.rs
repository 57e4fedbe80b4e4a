//! `kubectl lane why LANE`

use std::fmt::Write as _;

use lanekeeper_core::LaneName;
use lanekeeper_crds::conditions;

use super::chain::Chain;
use super::cluster::{Cluster, Part};
use super::{advice, status};
use crate::failure::Failure;
use crate::output;
use crate::output::plain;

pub(super) async fn run(cluster: &Cluster, name: &LaneName) -> Result<(), Failure> {
    output::print(&words(&Chain::of(cluster, name).await?))
}

fn words(chain: &Chain) -> String {
    let Chain { name, lane, embedder, warnings, .. } = chain;
    let Some(found) = lane.status.as_ref().map(|status| status.conditions.as_slice()).filter(|all| !all.is_empty())
    else {
        return format!(
            "Lane {name} was not looked at yet. If that lasts, the operator does not run: kubectl get pods -l \
             app.kubernetes.io/name=lanekeeper-operator --all-namespaces\n"
        );
    };
    let ready = status::condition(found, conditions::READY).is_some_and(|ready| ready.status == "True");
    // A conflict is the one condition that is bad when it is True.
    let holds = |kind: &str, status: &str| (status == "True") != (kind == conditions::VOLUME_CONFLICT);
    let open: Vec<_> = status::links(lane).filter(|link| !holds(&link.type_, &link.status)).collect();
    let mut text = match (ready, open.is_empty()) {
        (true, true) => return format!("Lane {name} is ready and waits for nothing.\n"),
        (true, false) => format!("Lane {name} is ready. What is not as it should be:\n"),
        (false, _) => format!("Lane {name} is not ready. It waits for:\n"),
    };
    for link in open {
        let _ = write!(text, "\n  {} is {} ({})\n", link.type_, link.status, link.reason);
        if !link.message.is_empty() {
            let _ = writeln!(text, "    what is found: {}", plain(&link.message));
        }
        if let Some(advice) = advice::on(&link.reason) {
            let _ = writeln!(text, "    what to do:    {advice}");
        }
        // The lane's condition says that its embedder is not there; why it is not, the Embedder's own says.
        if link.type_ == conditions::EMBEDDER_READY
            && let Some(Part::Found(embedder)) = embedder
            && let Some(own) =
                embedder.status.as_ref().and_then(|found| status::condition(&found.conditions, conditions::READY))
            && own.reason != link.reason
        {
            let _ = writeln!(text, "    the Embedder:  {} ({}) {}", own.status, own.reason, plain(&own.message));
            if let Some(advice) = advice::on(&own.reason) {
                let _ = writeln!(text, "    what to do:    {advice}");
            }
        }
    }
    for warning in warnings {
        let _ = writeln!(text, "\n  the cluster warns: {}", plain(warning));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::status::tests::{chain, one};
    use super::words;

    #[test]
    fn what_it_waits_for_comes_with_what_to_change() {
        let text = words(&chain(json!([
            one("Ready", "False", "VolumeConflict", ""),
            one("VolumeConflict", "True", "VolumeConflict", "the volume lane-bob holds an earlier lane's memory"),
            one("FenceHeld", "True", "Held", ""),
        ])));
        assert!(text.starts_with("Lane team/bob is not ready. It waits for:\n\n  VolumeConflict is True"), "{text}");
        assert!(text.contains("what is found: the volume lane-bob holds"), "{text}");
        assert!(text.contains("what to do:    The volume of this name holds an earlier lane's memory."), "{text}");
        assert!(!text.contains("FenceHeld"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn a_warning_beside_ready_and_nothing_at_all_differ() {
        let ready = one("Ready", "True", "Ready", "");
        let text = words(&chain(json!([ready, one("FenceEnforced", "False", "QdrantAuthOff", "it admits")])));
        assert!(text.starts_with("Lane team/bob is ready. What is not"), "{text}");
        assert!(text.contains("jwt_rbac"), "{text}");
        assert_eq!(words(&chain(json!([ready]))), "Lane team/bob is ready and waits for nothing.\n");
        assert!(words(&chain(json!([]))).contains("the operator does not run"));
    }
}
