//! What was found out about a lane, and what follows from it for Ready.

use k8s_openapi::api::core::v1::Pod;
use lanekeeper_core::fingerprint::Fingerprint;
use lanekeeper_crds::Lane;
use lanekeeper_crds::conditions::{
    COLLECTION_READY, EMBEDDER_READY, FENCE_ENFORCED, FENCE_HELD, READS_RESOLVED, STORE_READY, VOLUME_READY,
};
use lanekeeper_crds::federation_record::WriterMode;

use super::claim::Held;
use super::validate::Invalid;
use crate::status::{Finding, Reason};

/// What was found out. `None`: it was not looked at, and the condition stays as it is.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// FenceHeld.
    pub fence: Option<Finding>,
    /// FenceEnforced.
    pub enforced: Option<Finding>,
    /// VolumeReady.
    pub volume: Option<Finding>,
    /// CollectionReady.
    pub collection: Option<Finding>,
    /// EmbedderReady.
    pub embedder: Option<Finding>,
    /// StoreReady.
    pub store: Option<Finding>,
    /// ReadsResolved.
    pub reads: Option<Finding>,
    /// VolumeConflict, only where there is one.
    pub conflict: Option<String>,
    /// The Lane itself is wrong.
    pub spec: Option<Finding>,
    /// Events in the log.
    pub events: Option<i64>,
    /// Points in the collection.
    pub points: Option<i64>,
    /// The Embedder's name.
    pub embedder_name: Option<String>,
    /// Its fingerprint.
    pub fingerprint: Option<Fingerprint>,
    /// The collection's full name.
    pub collection_name: Option<String>,
}

impl Findings {
    /// Takes what validation found wrong.
    pub fn take_invalid(&mut self, invalid: Invalid) {
        match invalid {
            Invalid::Spec(finding) => self.spec = Some(finding),
            Invalid::Embedder { name, finding } => {
                self.embedder_name = Some(name);
                self.embedder = Some(finding);
            }
        }
    }

    /// Whether FenceHeld did not say so before.
    #[must_use]
    pub fn is_news(&self, lane: &Lane, fence: &Finding) -> bool {
        let conditions = lane.status.as_ref().map_or(&[][..], |status| &status.conditions);
        crate::status::finding_of(conditions, FENCE_HELD).is_none_or(|before| before.reason != fence.reason)
    }

    /// Every condition but Ready and VolumeConflict, in the order in which they are written.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, Option<&Finding>); 7] {
        [
            (FENCE_HELD, self.fence.as_ref()),
            (FENCE_ENFORCED, self.enforced.as_ref()),
            (VOLUME_READY, self.volume.as_ref()),
            (COLLECTION_READY, self.collection.as_ref()),
            (EMBEDDER_READY, self.embedder.as_ref()),
            (STORE_READY, self.store.as_ref()),
            (READS_RESOLVED, self.reads.as_ref()),
        ]
    }
}

/// Ready, from the other conditions as they will be. It does not depend on FenceEnforced and ReadsResolved: those are
/// warnings of their own, shown as Ready's reason while Ready is True.
#[must_use]
pub fn ready(spec: Option<&Finding>, parts: &[(&str, Finding)]) -> Finding {
    if let Some(finding) = spec {
        return Finding::no(finding.reason, finding.message.clone());
    }
    let of = |kind: &str| parts.iter().find(|(found, _)| *found == kind).map(|(_, finding)| finding);
    if let Some(store) = of(STORE_READY).filter(|store| store.reason == Reason::Suspended) {
        return Finding::no(Reason::Suspended, store.message.clone());
    }
    let needed = [VOLUME_READY, FENCE_HELD, STORE_READY, COLLECTION_READY, EMBEDDER_READY];
    // A problem goes before what is only under way: it is what somebody has to act on.
    let failing = || needed.iter().filter_map(|kind| of(kind)).filter(|finding| !finding.holds);
    if let Some(finding) = failing().find(|finding| finding.reason.is_problem()).or_else(|| failing().next()) {
        return Finding::no(finding.reason, finding.message.clone());
    }
    if let Some(missing) = needed.iter().find(|kind| of(kind).is_none()) {
        return Finding::no(Reason::Pending, format!("{missing} is not known yet"));
    }
    for warning in [FENCE_ENFORCED, READS_RESOLVED] {
        if let Some(finding) = of(warning).filter(|finding| !finding.holds) {
            return Finding::yes(finding.reason, finding.message.clone());
        }
    }
    Finding::yes(Reason::Ready, "the lane takes saves and answers recalls")
}

/// FenceHeld for a record that names this lane.
#[must_use]
pub fn fence(lane: &Lane, held: &Held, pod: Option<&Pod>) -> Finding {
    let record = &held.record;
    if record.spec.mode == WriterMode::Sealed {
        return Finding::no(Reason::Sealed, "the record is sealed: nobody may write the collection");
    }
    let holder = record.status.as_ref().and_then(|status| status.holder.as_ref()).filter(|holder| !holder.released);
    let pod = pod.and_then(|pod| pod.metadata.uid.as_deref());
    match (pod, holder) {
        (Some(pod), Some(holder)) if holder.id == pod => Finding::yes(
            Reason::Held,
            format!("the record names this lane, and its store holds epoch {}", record.spec.epoch),
        ),
        (Some(_), _) if !lane.spec.suspend => {
            Finding::no(Reason::AwaitingHolder, "the store that runs has not become the holder yet")
        }
        (Some(_) | None, _) => Finding::yes(Reason::Claimed, "the record names this lane; no store runs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_well() -> Vec<(&'static str, Finding)> {
        [
            (FENCE_HELD, Reason::Held),
            (FENCE_ENFORCED, Reason::Enforced),
            (VOLUME_READY, Reason::Bound),
            (COLLECTION_READY, Reason::CollectionThere),
            (EMBEDDER_READY, Reason::Answers),
            (STORE_READY, Reason::Running),
            (READS_RESOLVED, Reason::Resolved),
        ]
        .map(|(kind, reason)| (kind, Finding::yes(reason, "")))
        .into()
    }

    fn with(kind: &str, finding: Finding) -> Vec<(&'static str, Finding)> {
        let mut parts = all_well();
        let part = parts.iter_mut().find(|(found, _)| *found == kind).unwrap();
        part.1 = finding;
        parts
    }

    #[test]
    fn ready_needs_five_and_warns_of_two() {
        assert_eq!(ready(None, &all_well()).reason, Reason::Ready);
        for kind in [FENCE_HELD, VOLUME_READY, COLLECTION_READY, EMBEDDER_READY, STORE_READY] {
            let parts = with(kind, Finding::no(Reason::CrashLoop, "why"));
            assert_eq!(ready(None, &parts), Finding::no(Reason::CrashLoop, "why"), "{kind}");
            let without: Vec<_> = all_well().into_iter().filter(|(found, _)| *found != kind).collect();
            assert!(!ready(None, &without).holds, "{kind} is unknown");
        }
        for (kind, reason) in [(FENCE_ENFORCED, Reason::NoQdrant), (READS_RESOLVED, Reason::ReadTargetMissing)] {
            let found = ready(None, &with(kind, Finding::no(reason, "why")));
            assert_eq!(found, Finding::yes(reason, "why"));
        }
    }

    #[test]
    fn a_problem_is_told_before_what_is_only_under_way() {
        let mut parts = with(FENCE_HELD, Finding::no(Reason::AwaitingHolder, "soon"));
        parts[5].1 = Finding::no(Reason::ImagePullFailed, "image x");
        assert_eq!(ready(None, &parts).reason, Reason::ImagePullFailed);
        parts[5].1 = Finding::no(Reason::Suspended, "suspended");
        assert_eq!(ready(None, &parts).reason, Reason::Suspended);
    }
}
