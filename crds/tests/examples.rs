//! The examples are manifests that work, and say what the demo relies on.

use std::collections::BTreeMap;
use std::path::Path;

use lanekeeper_core::fingerprint::FingerprintFields;
use lanekeeper_core::lane::LaneView;
use lanekeeper_core::scope::Role;
use lanekeeper_core::{LaneUid, Principal};
use lanekeeper_crds::{Manifest, parse_lane_manifest};

fn views() -> BTreeMap<String, LaneView> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/lanes");
    let fingerprint = FingerprintFields::builtin().fingerprint();
    let mut views = BTreeMap::new();
    for (number, entry) in std::fs::read_dir(folder).unwrap().enumerate() {
        let yaml = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for outcome in parse_lane_manifest(&yaml, "default").unwrap() {
            let Manifest::Lane(lane) = outcome.unwrap() else { panic!("only lanes are shown") };
            let uid: LaneUid = format!("0193a1b2-0000-7000-8000-{number:012}").parse().unwrap();
            let view = lane.to_view(uid, fingerprint).unwrap();
            views.insert(view.name.to_string(), view);
        }
    }
    views
}

#[test]
fn the_examples_show_scope_and_one_way_reads() {
    let views = views();
    let names: Vec<&str> = views.keys().map(String::as_str).collect();
    assert_eq!(names, ["team/ada", "team/bob", "team/handbook"]);
    let (ada, bob, handbook) = (&views["team/ada"], &views["team/bob"], &views["team/handbook"]);
    let principal = |text: &str| text.parse::<Principal>().unwrap();
    assert!(handbook.consents_to(bob));
    assert!(!bob.consents_to(handbook) && !handbook.consents_to(ada) && !ada.consents_to(bob));
    assert_eq!(bob.role_of(&principal("user:bob")), Some(Role::Admin));
    assert_eq!(bob.role_of(&principal("sa:team/bobs-agent")), Some(Role::Writer));
    assert_eq!(ada.role_of(&principal("sa:team/bobs-agent")), None);
    assert_eq!(handbook.role_of(&principal("user:bob")), None);
    let curator = handbook.access.iter().find(|entry| entry.principal == principal("user:ada")).unwrap();
    assert_eq!((curator.role, curator.may_publish), (Role::Curator, true));
}
