//! The follower under a clock of its own.

use super::*;

fn lane(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: lanekeeper.dev/v1alpha1\nkind: Lane\nmetadata: {{name: {name}, namespace: team}}\nspec: {spec}\n"
    )
}

fn bob(more: &str) -> String {
    lane("bob", &format!("{{kind: personal, owner: bob{more}}}"))
}

fn name(text: &str) -> LaneName {
    text.parse().unwrap()
}

/// A folder that a test writes, a clock that it moves, and changes that happen at once.
#[derive(Default)]
struct World {
    follower: Follower,
    files: BTreeMap<String, (Option<i64>, Result<String, String>)>,
    now_ms: i64,
}

/// Wall time at steady time 0.
const START_MS: i64 = 1_800_000_000_000;

impl World {
    fn new() -> Self {
        Self { now_ms: 1_000_000, ..Self::default() }
    }

    /// A file that was written long ago.
    fn old(&mut self, file: &str, text: impl Into<String>) {
        self.files.insert(file.into(), (Some(START_MS), Ok(text.into())));
    }

    /// A file that is written now.
    fn write(&mut self, file: &str, text: impl Into<String>) {
        self.files.insert(file.into(), (Some(START_MS + self.now_ms), Ok(text.into())));
    }

    fn remove(&mut self, file: &str) {
        assert!(self.files.remove(file).is_some());
    }

    fn observe(&mut self, observation: Observation) -> Pass {
        let now = Moment { steady_ms: self.now_ms, wall_ms: START_MS + self.now_ms };
        let pass = self.follower.observe(now, observation);
        for change in &pass.changes {
            match change.clone() {
                Change::Create { name, lane, source } | Change::Update { name, lane, source } => {
                    self.follower.set(name, *lane, source);
                }
                Change::Remove { name } => self.follower.forget(&name),
            }
        }
        pass
    }

    fn look(&mut self) -> Pass {
        let files = self
            .files
            .iter()
            .map(|(name, (modified_ms, content))| ObservedFile {
                name: name.clone(),
                modified_ms: *modified_ms,
                content: content.clone(),
            })
            .collect();
        self.observe(Observation::Files(files))
    }

    /// Looks once a second for `seconds`, and gives what happened in all of it.
    fn wait(&mut self, seconds: i64) -> Vec<String> {
        (0..seconds)
            .flat_map(|_| {
                self.now_ms += 1_000;
                kinds(&self.look())
            })
            .collect()
    }
}

fn kinds(pass: &Pass) -> Vec<String> {
    pass.changes
        .iter()
        .map(|change| match change {
            Change::Create { name, .. } => format!("create {name}"),
            Change::Update { name, .. } => format!("update {name}"),
            Change::Remove { name } => format!("remove {name}"),
        })
        .collect()
}

fn running() -> World {
    let mut world = World::new();
    world.old("bob.yaml", bob(""));
    world.old("other.yaml", lane("other", "{kind: corpus}"));
    assert_eq!(kinds(&world.look()), ["create team/bob", "create team/other"]);
    world
}

#[test]
fn a_file_becomes_a_lane_and_a_change_an_update() {
    let mut world = running();
    assert!(world.wait(3).is_empty());
    world.old("bob.yaml", bob(", suspend: true"));
    assert_eq!(kinds(&world.look()), ["update team/bob"]);
    assert!(world.wait(3).is_empty());
}

#[test]
fn a_change_that_a_rule_forbids_is_refused_and_the_old_state_goes_on() {
    let mut world = running();
    world.old("bob.yaml", lane("bob", "{kind: personal, owner: eve}"));
    let pass = world.look();
    assert!(pass.changes.is_empty());
    assert_eq!(pass.problems.codes(), [("lane team/bob".to_owned(), "manifest_refused")]);
    assert!(pass.problems.text(&Subject::Lane(name("team/bob"))).contains("owner is immutable"));
    // The other one goes on, and nothing is ever removed for it.
    world.old("other.yaml", lane("other", "{kind: corpus, suspend: true}"));
    assert_eq!(world.wait(10), ["update team/other"]);
    // Mended, it counts again.
    world.old("bob.yaml", bob(", suspend: true"));
    assert_eq!(kinds(&world.look()), ["update team/bob"]);
    assert!(world.look().problems.codes().is_empty());
}

#[test]
fn a_manifest_that_breaks_a_rule_is_named_while_others_go_on() {
    let mut world = running();
    world.old("eve.yaml", lane("eve", "{kind: personal}"));
    let pass = world.look();
    assert!(pass.changes.is_empty());
    assert!(pass.problems.text(&Subject::Lane(name("team/eve"))).contains("a personal lane needs an owner"));
}

#[test]
fn a_removed_file_counts_after_five_seconds() {
    let mut world = running();
    world.remove("bob.yaml");
    assert!(kinds(&world.look()).is_empty());
    assert!(world.wait(4).is_empty());
    assert_eq!(world.wait(1), ["remove team/bob"]);
    assert!(world.wait(10).is_empty());
}

#[test]
fn a_file_that_comes_back_in_time_was_never_gone() {
    let mut world = running();
    world.remove("bob.yaml");
    assert!(world.wait(4).is_empty());
    world.write("bob.yaml", bob(""));
    assert!(world.wait(20).is_empty());
}

#[test]
fn an_unreadable_folder_deletes_nothing_and_stops_the_count() {
    let mut world = running();
    world.remove("bob.yaml");
    assert!(world.wait(4).is_empty());
    for _ in 0..100 {
        world.now_ms += 1_000;
        let pass = world.observe(Observation::Unreadable("it is gone".into()));
        assert!(pass.changes.is_empty());
        assert_eq!(pass.problems.codes(), [("the folder of manifests".to_owned(), "manifests_unreadable")]);
        assert_eq!(pass.problems.codes_of(&name("team/other")), ["manifests_unreadable"]);
    }
    // Readable again: the five seconds start anew.
    assert!(world.wait(5).is_empty());
    assert_eq!(world.wait(1), ["remove team/bob"]);
}

#[test]
fn an_emptied_folder_deletes_nothing() {
    let mut world = running();
    world.files.clear();
    for _ in 0..100 {
        world.now_ms += 1_000;
        let pass = world.look();
        assert!(pass.changes.is_empty());
        assert_eq!(pass.problems.codes(), [("the folder of manifests".to_owned(), "manifests_emptied")]);
    }
    // A file that says nothing on purpose makes it a folder with manifests again.
    world.old("none.yaml", "# no lanes any more\n");
    assert!(world.wait(5).is_empty());
    assert_eq!(world.wait(1), ["remove team/bob", "remove team/other"]);
}

#[test]
fn an_empty_folder_without_lanes_is_in_order() {
    assert!(World::new().look().problems.codes().is_empty());
}

#[test]
fn a_file_cut_to_nothing_and_written_again_is_one_change() {
    let mut world = running();
    world.write("bob.yaml", "");
    world.now_ms += 100;
    assert!(kinds(&world.look()).is_empty());
    world.write("bob.yaml", bob(", suspend: true"));
    world.now_ms += 100;
    let pass = world.look();
    assert!(kinds(&pass).is_empty() && pass.problems.codes().is_empty(), "what changed just now has not settled");
    assert!(!pass.settled);
    assert_eq!(world.wait(3), ["update team/bob"]);
}

#[test]
fn half_a_file_is_never_read() {
    let mut world = World::new();
    let both = format!("{}---\n{}", bob(""), lane("ada", "{kind: personal, owner: ada}"));
    world.old("team.yaml", both.clone());
    assert_eq!(kinds(&world.look()), ["create team/ada", "create team/bob"]);
    // Written in two steps, with a look in between: the first half is a valid file without ada.
    world.write("team.yaml", bob(", suspend: true"));
    world.now_ms += 500;
    assert!(kinds(&world.look()).is_empty());
    world.write("team.yaml", both.replace("owner: bob", "owner: bob, suspend: true"));
    assert_eq!(world.wait(10), ["update team/bob"]);
}

#[test]
fn a_file_that_stays_empty_or_broken_removes_nothing() {
    for broken in [
        "",
        "\n \n",
        "kind: [",
        "just words",
        "- a\n- b\n",
        "kind: Lane\napiVersion: lanekeeper.dev/v1\n",
        "kind: Pod\n",
    ] {
        let mut world = running();
        world.old("bob.yaml", broken);
        assert!(world.wait(20).is_empty(), "{broken:?}");
        let pass = world.look();
        let about: Vec<String> = pass.problems.codes().into_iter().map(|(subject, _)| subject).collect();
        assert_eq!(about, ["manifest bob.yaml", "lane team/bob"], "{broken:?}");
        // It does not hold up the removal of a lane that another file declared.
        world.remove("other.yaml");
        assert_eq!(world.wait(7), ["remove team/other"], "{broken:?}");
    }
}

#[test]
fn a_document_of_another_api_is_left_alone_and_holds_nothing() {
    let mut world = running();
    world.old("bob.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n");
    assert_eq!(world.look().problems.codes(), [("manifest bob.yaml".to_owned(), "manifest_foreign")]);
    assert_eq!(world.wait(6), ["remove team/bob"]);
}

#[test]
fn a_file_that_cannot_be_read_removes_nothing() {
    let mut world = running();
    world.files.insert("bob.yaml".into(), (None, Err("permission denied".into())));
    assert!(world.wait(20).is_empty());
    let pass = world.look();
    assert_eq!(
        pass.problems.codes(),
        [("manifest bob.yaml".to_owned(), "manifest_unreadable"), ("lane team/bob".to_owned(), "manifest_unreadable")]
    );
}

#[test]
fn two_files_that_name_one_lane_are_both_named_and_neither_counts() {
    let mut world = running();
    world.old("copy.yaml", bob(", suspend: true"));
    for _ in 0..10 {
        world.now_ms += 1_000;
        let pass = world.look();
        assert!(pass.changes.is_empty());
        let text = pass.problems.text(&Subject::Lane(name("team/bob")));
        assert!(text.contains("bob.yaml and copy.yaml"), "{text}");
    }
    // One goes, the other counts.
    world.remove("bob.yaml");
    assert_eq!(world.wait(10), ["update team/bob"]);
    // Nor does a new lane come to be that way.
    world.old("a.yaml", lane("new", "{kind: corpus}"));
    world.old("b.yaml", lane("new", "{kind: corpus}"));
    assert!(world.wait(10).is_empty());
}

#[test]
fn a_lane_twice_in_one_file_is_refused() {
    let mut world = running();
    world.old("bob.yaml", format!("{}---\n{}", bob(", suspend: true"), bob("")));
    assert!(world.wait(10).is_empty());
    assert!(world.look().problems.text(&Subject::Lane(name("team/bob"))).contains("twice"));
}

#[test]
fn a_lane_may_move_to_another_file() {
    let mut world = running();
    let text = world.files.remove("bob.yaml").unwrap();
    world.files.insert("renamed.yaml".into(), text);
    assert!(world.wait(10).is_empty());
    // From then on the new file is the one whose damage holds it.
    world.old("renamed.yaml", "kind: [");
    assert!(world.wait(10).is_empty());
    world.remove("renamed.yaml");
    assert_eq!(world.wait(6), ["remove team/bob"]);
}

#[test]
fn after_a_restart_a_broken_file_still_holds_the_lane_it_declared() {
    let mut world = World::new();
    let Ok(Manifest::Lane(lane)) = parse_lane_manifest(&bob(""), "default").unwrap().remove(0) else { panic!() };
    world.follower.set(name("team/bob"), *lane, "bob.yaml".into());
    world.old("bob.yaml", "kind: [");
    assert!(world.wait(20).is_empty());
    world.old("bob.yaml", "# gone on purpose");
    assert_eq!(world.wait(7), ["remove team/bob"]);
}

#[test]
fn a_change_is_offered_until_it_has_happened() {
    let mut follower = Follower::default();
    let file = ObservedFile { name: "bob.yaml".into(), modified_ms: Some(0), content: Ok(bob("")) };
    for at in 0..3 {
        let now = Moment { steady_ms: at * 1_000, wall_ms: START_MS };
        let pass = follower.observe(now, Observation::Files(vec![file.clone()]));
        assert_eq!(kinds(&pass), ["create team/bob"]);
    }
}

#[test]
fn a_time_stamp_from_the_future_settles_by_our_own_clock() {
    let mut world = World::new();
    world.files.insert("bob.yaml".into(), (Some(i64::MAX / 2), Ok(bob(""))));
    assert!(kinds(&world.look()).is_empty());
    assert_eq!(world.wait(1), ["create team/bob"]);
}

#[test]
fn embedders_are_declared_once() {
    let embedder = |dimension: u32| {
        format!(
            "apiVersion: lanekeeper.dev/v1alpha1\nkind: Embedder\nmetadata: {{name: big}}\nspec: {{model: m, dimension: {dimension}, runtime: external, external: {{url: 'http://127.0.0.1:9/v1'}}}}\n"
        )
    };
    let mut world = World::new();
    world.old("a.yaml", embedder(8));
    let pass = world.look();
    assert_eq!(pass.embedders.unwrap()["big"].dimension, Some(8));
    world.old("b.yaml", embedder(9));
    let pass = world.look();
    assert!(pass.embedders.unwrap().is_empty());
    assert_eq!(pass.problems.codes(), [("embedder big".to_owned(), "manifest_ambiguous")]);
}
