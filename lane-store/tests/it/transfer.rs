//! Export, import, backup, restore and accepted heads, on real stores in temporary folders.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::stage::{sql, stage};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use lanekeeper_core::error::ReadOnlyReason;
use lanekeeper_core::lane::LaneKind;
use lanekeeper_core::lane_client::{ByteStream, LaneClient};
use lanekeeper_core::testing::HashEncoder;
use lanekeeper_core::wire::events::{Head, ListedEvent, Projection, SaveRequest, Turn, TurnRole};
use lanekeeper_core::wire::forget::ForgetRequest;
use lanekeeper_core::wire::recall::{Arm, Filter};
use lanekeeper_core::wire::upkeep::{ImportReport, RebuildRequest};
use lanekeeper_core::{Epoch, Hash32, LaneError, Seq};
use lanekeeper_federation::{FileRegistry, Record, RecordSpec, Registry, RegistryError, SpecChange, StatusChange};
use lanekeeper_lane_store::testing::{Stage, keyed, save};
use lanekeeper_lane_store::{
    LaneStore, Standing, StoreError, accept_head, read_manifest, restore, verify_backup, verify_export,
};
use serde_json::{Value, json};

async fn all(mut stream: ByteStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.next().await {
        bytes.extend(chunk.unwrap());
    }
    bytes
}

/// A body whose chunks end anywhere.
fn body(bytes: &[u8]) -> ByteStream {
    let chunks: Vec<_> = bytes.chunks(97).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
    Box::pin(stream::iter(chunks))
}

async fn export(stage: &Stage, store: &LaneStore) -> Vec<u8> {
    all(store.export(&stage.bob()).await.unwrap()).await
}

async fn import(stage: &Stage, store: &LaneStore, bytes: &[u8]) -> ImportReport {
    let report = store.import(&stage.bob(), body(bytes), false).await.unwrap();
    assert_eq!(report.lines, report.imported + report.already_present + report.refused, "{report:?}");
    report
}

fn counts(report: &ImportReport) -> (u64, u64, u64) {
    (report.imported, report.already_present, report.refused)
}

fn lines(export: &[u8]) -> Vec<Value> {
    export
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

/// The turn lines as text, without what differs between two lanes that hold the same.
fn turns(export: &[u8]) -> Vec<String> {
    let all = lines(export);
    all[1..all.len() - 1]
        .iter()
        .map(|line| {
            let mut line = line.as_object().unwrap().clone();
            line.remove("id");
            line.remove("origin");
            Value::Object(line).to_string()
        })
        .collect()
}

async fn two_lanes() -> (tempfile::TempDir, Stage, Stage) {
    let temp = tempfile::tempdir().unwrap();
    let encoder = Arc::new(HashEncoder::new());
    let one = Stage::at(temp.path(), "team/acme", encoder.clone()).await;
    let two = Stage::at(temp.path(), "team/other", encoder).await;
    (temp, one, two)
}

/// Texts that were changed on their way through other services.
const EXACT: [&str; 9] = [
    "a subject\tand tabs\t\r\n\r\nCRLF lines  \r\ntrailing blanks   ",
    "\u{feff}a byte-order mark first",
    "NUL \u{0} in the middle, escape \u{1b}, delete \u{7f}",
    "right-to-left \u{202e}marks\u{202c} \u{200f}",
    " leading blank, \"quotes\", back\\slash, </script>",
    "line separator \u{2028} and \u{2029}, not a character \u{ffff}",
    "e\u{301} stays decomposed, é composed, ﬁ a ligature",
    "GPU节点 日本語 한국어 👩‍👩‍👧 🇩🇪",
    "C++ rm -rf / DO NOT USE\n\n\n",
];

#[tokio::test]
async fn c18_c21_what_was_exported_and_imported_is_exported_the_same() {
    let (_temp, one, two) = two_lanes().await;
    let store = one.open().await;
    let times =
        [None, Some("1970-01-01T00:00:00+14:00"), Some("2026-11-30T09:00:00.123456789Z"), Some("0000-01-01T00:00:00Z")];
    for (index, text) in EXACT.iter().enumerate() {
        let turn = Turn {
            role: [TurnRole::User, TurnRole::Assistant, TurnRole::Tool, TurnRole::System][index % 4],
            text: (*text).to_owned(),
            speaker: (index % 2 == 0).then(|| "Zoë \u{200f}O'Neil".to_owned()),
            at: times[index % times.len()].map(str::to_owned),
            metadata: (index % 3 == 0)
                .then(|| json!({"z": 1.5e300, "a": [null, "\u{0}", {"lane": "other"}]}).as_object().unwrap().clone()),
        };
        let save = SaveRequest { session: format!("s\t{}", index % 2), turns: vec![turn], expected_head: None };
        let caller =
            one.caller(if index % 2 == 0 { "user:bob" } else { "sa:team/agent" }, lanekeeper_core::scope::Role::Writer);
        store.append(&caller, lanekeeper_core::lane_client::AppendRequest { save, idempotency: None }).await.unwrap();
    }
    let first = export(&one, &store).await;
    let other = two.open().await;
    assert_eq!(counts(&import(&two, &other, &first).await), (9, 0, 0));
    let second = export(&two, &other).await;
    assert_eq!(turns(&first), turns(&second));
    let texts: Vec<String> =
        lines(&second)[1..10].iter().map(|line| line["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(texts, EXACT);
    assert_eq!(lines(&second)[1]["at"], Value::Null);
    assert_eq!(lines(&second)[1]["at_ms"], lines(&first)[1]["at_ms"]);
    // Back to where it came from, and by both ways into a third: each turn once.
    assert_eq!(counts(&import(&one, &store, &second).await), (0, 9, 0));
    let temp = tempfile::tempdir().unwrap();
    let three = Stage::at(temp.path(), "team/third", one.encoder.clone()).await;
    let third = three.open().await;
    assert_eq!(counts(&import(&three, &third, &second).await), (9, 0, 0));
    assert_eq!(counts(&import(&three, &third, &first).await), (0, 9, 0));
    for (stage, store) in [(&one, &store), (&two, &other), (&three, &third)] {
        assert!(store.verify(&stage.bob()).await.unwrap().ok);
        store.close().await;
    }
}

#[tokio::test]
async fn a_second_import_writes_nothing_and_the_log_names_the_importer() {
    let (_temp, one, two) = two_lanes().await;
    let store = one.open().await;
    let texts: Vec<String> = (0..250).map(|n| format!("turn number {n}")).collect();
    for texts in texts.chunks(125) {
        store.put(&one.bob(), "s", &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
    let file = export(&one, &store).await;
    store.close().await;
    let other = two.open().await;
    let eve = two.caller("user:eve", lanekeeper_core::scope::Role::Admin);
    let report = other.import(&eve, body(&file), false).await.unwrap();
    assert_eq!(counts(&report), (250, 0, 0));
    let events = listed(&two, &other).await;
    let imported: Vec<&ListedEvent> = events.iter().filter(|event| event.kind == "imported").collect();
    assert_eq!(imported.len(), 3);
    assert!(imported.iter().all(|event| event.principal.as_deref() == Some("user:eve")));
    assert!(
        events.iter().filter(|event| event.kind == "turn").all(|event| event.principal.as_deref() == Some("user:bob"))
    );
    let head = other.head();
    assert_eq!(counts(&import(&two, &other, &file).await), (0, 250, 0));
    assert_eq!(other.head(), head);
    // Found by text and, once projected, by vector.
    other.settle_down().await;
    let found = other.ask(&two.bob(), "turn number 17", Filter::default()).await.unwrap();
    assert!(found.candidates.iter().any(|hit| hit.text == "turn number 17"));
    other.close().await;
}

async fn listed(stage: &Stage, store: &LaneStore) -> Vec<ListedEvent> {
    let mut events = Vec::new();
    let mut after = Seq(0);
    loop {
        let page = store.list_events(&stage.bob(), after, 100).await.unwrap();
        events.extend(page.events);
        match page.next_after {
            Some(next) => after = Seq(next),
            None => return events,
        }
    }
}

#[tokio::test]
async fn what_was_forgotten_is_not_brought_back() {
    let (_temp, one, two) = two_lanes().await;
    let store = one.open().await;
    store.put(&one.bob(), "gone", &["a walrus", "another walrus"]).await;
    store.put(&one.bob(), "kept", &["a seal"]).await;
    let file = export(&one, &store).await;
    let other = two.open().await;
    assert_eq!(counts(&import(&two, &other, &file).await), (3, 0, 0));
    let gone = || ForgetRequest { session: Some("gone".into()), ..ForgetRequest::default() };
    for (stage, store) in [(&one, &store), (&two, &other)] {
        store.forget(&stage.bob(), gone(), None).await.unwrap();
        // Also after everything derived was made again from the log.
        store.rebuild(&stage.bob(), RebuildRequest::default()).await.unwrap();
        assert_eq!(counts(&import(stage, store, &file).await), (0, 3, 0));
        let after = export(stage, store).await;
        assert_eq!(turns(&after).len(), 1, "{}", String::from_utf8_lossy(&after));
        assert!(!String::from_utf8_lossy(&after).contains("walrus"));
        assert!(store.verify(&stage.bob()).await.unwrap().ok);
        store.close().await;
    }
}

#[tokio::test]
async fn bad_rows_are_told_one_by_one_and_the_counts_add_up() {
    let (_temp, one, two) = two_lanes().await;
    let store = one.open().await;
    store.put(&one.bob(), "s", &["one", "two", "three"]).await;
    let file = String::from_utf8(export(&one, &store).await).unwrap();
    store.close().await;
    let good: Vec<&str> = file.lines().collect();
    let mut bad = vec![good[0].to_owned(), good[1].to_owned()];
    let change = |from: &str, to: &str| good[2].replacen(from, to, 1);
    bad.extend([
        change(r#""role":"assistant""#, r#""role":"robot""#),
        change(r#""text":"two""#, r#""text":"  ""#),
        change(r#""text":"two""#, r#""text":"\udc00""#),
        change(r#""principal":"user:bob""#, r#""principal":"bob""#),
        change(r#""principal":"user:bob","#, "").replacen(r#","principal":"user:bob""#, "", 1),
        change(r#""at":null"#, r#""at":"2026-01-01T00:00:00""#),
        change(r#""session":"s""#, r#""session":"""#),
        change(r#""id":"#, r#""unknown":1,"id":"#),
        String::new(),
        "not json".to_owned(),
        good[2][..good[2].find("two").unwrap() + 1].to_owned(),
        format!(r#"{{"text":"{}"}}"#, "x".repeat(2 * 1024 * 1024)),
    ]);
    let refused = bad.len() as u64 - 2;
    bad.extend([good[3].to_owned(), good[3].to_owned()]);
    let turns = bad.len() - 1;
    bad.push(format!(r#"{{"lanekeeper_export_end":1,"turns":{turns}}}"#));
    bad.push(good[2].to_owned());
    let other = two.open().await;
    let report = import(&two, &other, bad.join("\n").as_bytes()).await;
    // Twice the same id is once; a line after the end is refused.
    assert_eq!(counts(&report), (2, 1, refused + 1), "{report:?}");
    let told: Vec<(u64, &str)> = report.errors.iter().map(|error| (error.line, error.field.as_str())).collect();
    let fields = ["role", "text", "text", "principal", "principal", "at", "session", "", "", "", "text", "", ""];
    let expected: Vec<(u64, &str)> = (3..15).chain([18]).zip(fields).collect();
    assert_eq!(told, expected);
    assert_eq!(listed(&two, &other).await.iter().filter(|event| event.kind == "turn").count(), 2);
    // Only the first hundred are told, all are counted.
    let many: Vec<String> = std::iter::once(good[0].to_owned()).chain((0..150).map(|_| "x".to_owned())).collect();
    let report = import(&two, &other, many.join("\n").as_bytes()).await;
    assert_eq!((report.refused, report.errors.len()), (151, 100));
    other.close().await;
}

#[tokio::test]
async fn a_file_that_was_cut_or_changed_says_so() {
    let (_temp, one, two) = two_lanes().await;
    let store = one.open().await;
    store.put(&one.bob(), "s", &["one", "two", "three"]).await;
    let file = export(&one, &store).await;
    store.close().await;
    let other = two.open().await;
    let end = file[..file.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    // Without its end line, within its last turn, with one turn missing: what is whole goes in, and it is told.
    let report = import(&two, &other, &file[..end]).await;
    assert_eq!((report.imported, report.refused, report.errors[0].field.as_str()), (3, 1, "lanekeeper_export_end"));
    let report = import(&two, &other, &file[..end - 9]).await;
    assert_eq!((report.already_present, report.refused), (2, 2));
    let second = file.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let third = second + file[second..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let missing = [&file[..second], &file[third..]].concat();
    let report = import(&two, &other, &missing).await;
    assert_eq!((report.already_present, report.errors[0].field.as_str()), (2, "turns"));
    // Without a header nothing is taken.
    let head = other.head();
    for bad in [&b""[..], &file[second..], b"\n", b"hello"] {
        let error = other.import(&two.bob(), body(bad), false).await.unwrap_err();
        assert!(matches!(&error, LaneError::Invalid { field, .. } if field == "lanekeeper_export"), "{error}");
    }
    assert_eq!(other.head(), head);
    other.close().await;
    // Offline.
    let report = verify_export(file.as_slice()).unwrap();
    assert!(report.ok && report.signature_checked, "{}", report.statement);
    assert_eq!((report.events, report.log_id), (3, one.log_id.to_string()));
    assert!(!verify_export(&file[..end]).unwrap().ok);
    assert!(!verify_export(missing.as_slice()).unwrap().ok);
    for at in (0..file.len() - 1).step_by(7) {
        let mut flipped = file.clone();
        flipped[at] ^= 1;
        assert!(!verify_export(flipped.as_slice()).is_ok_and(|report| report.ok), "byte {at}");
    }
}

#[tokio::test]
async fn a_sender_that_goes_away_leaves_whole_batches() {
    let (_temp, one, two) = two_lanes().await;
    let store = one.open().await;
    for _ in 0..2 {
        store.put(&one.bob(), "s", &(0..125).map(|_| "the same again").collect::<Vec<_>>()).await;
    }
    let file = export(&one, &store).await;
    store.close().await;
    let other = two.open().await;
    let whole: Vec<_> = file.chunks(97).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
    let cut = whole.len() - 20;
    let broken = whole.into_iter().take(cut).chain([Err(LaneError::Unavailable { what: "the caller".into() })]);
    let error = other.import(&two.bob(), Box::pin(stream::iter(broken)), false).await.unwrap_err();
    assert_eq!(error, LaneError::Unavailable { what: "the caller".into() });
    assert_eq!(listed(&two, &other).await.iter().filter(|event| event.kind == "turn").count(), 200);
    assert_eq!(counts(&import(&two, &other, &file).await), (50, 200, 0));
    assert!(other.verify(&two.bob()).await.unwrap().ok);
    other.close().await;
}

#[tokio::test]
async fn a_personal_lane_goes_into_a_corpus_lane_only_by_force() {
    let (_temp, one, mut two) = two_lanes().await;
    two.kind = LaneKind::Corpus;
    let store = one.open().await;
    store.put(&one.bob(), "s", &["mine"]).await;
    let file = export(&one, &store).await;
    let other = two.open().await;
    let error = other.import(&two.bob(), body(&file), false).await.unwrap_err();
    assert_eq!(error.code(), "personal_into_corpus");
    assert_eq!(listed(&two, &other).await.iter().filter(|event| event.kind == "turn").count(), 0);
    assert_eq!(counts(&other.import(&two.bob(), body(&file), true).await.unwrap()), (1, 0, 0));
    // The other way is nobody's secret.
    other.put(&two.bob(), "s", &["ours"]).await;
    let file = export(&two, &other).await;
    assert_eq!(counts(&import(&one, &store, &file).await), (1, 1, 0));
    store.close().await;
    other.close().await;
}

#[tokio::test]
async fn rows_without_a_principal_come_and_go_under_the_headers_word() {
    let (_temp, one, two) = two_lanes().await;
    let store = one.open().await;
    let header = |word: &str| {
        format!(
            r#"{{"lanekeeper_export":1,"log_id":"{}","lane":"old/system","kind":"personal"{word}}}"#,
            "ab".repeat(32)
        )
    };
    let row = r#"{"id":"memory:17","session":"s","role":"assistant","text":"from elsewhere","at":"2020-05-05T05:05:05+02:00"}"#;
    let end = r#"{"lanekeeper_export_end":1,"turns":1}"#;
    let report = import(&one, &store, format!("{}\n{row}\n{end}\n", header("")).as_bytes()).await;
    assert_eq!((report.refused, report.errors[0].field.as_str()), (1, "principal"));
    let report =
        import(&one, &store, format!("{}\n{row}\n{end}\n", header(r#","unattributed":true"#)).as_bytes()).await;
    assert_eq!(counts(&report), (1, 0, 0));
    let file = export(&one, &store).await;
    assert_eq!(lines(&file)[1]["principal"], Value::Null);
    assert_eq!(lines(&file)[1]["at"], "2020-05-05T05:05:05+02:00");
    let other = two.open().await;
    assert_eq!(counts(&import(&two, &other, &file).await), (1, 0, 0));
    store.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_row_that_does_not_hold_is_not_exported_as_genuine() {
    let one = stage().await;
    let store = one.open().await;
    store.put(&one.bob(), "s", &["one", "two", "three"]).await;
    store.close().await;
    sql(
        &one.folder.join("lane.db"),
        r#"UPDATE events SET body = CAST(replace(CAST(body AS TEXT), 'two', 'TWO') AS BLOB) WHERE seq = 3"#,
    )
    .await;
    let store = one.open().await;
    let file = export(&one, &store).await;
    store.close().await;
    assert_eq!(turns(&file).len(), 2);
    assert_eq!(lines(&file)[3]["damaged"], 1);
    assert!(!String::from_utf8(file).unwrap().contains("TWO"));
}

/// The same lane on another machine: its record is there, its folder is not.
async fn elsewhere(stage: &Stage) -> (tempfile::TempDir, Stage) {
    let temp = tempfile::tempdir().unwrap();
    let mut twin = Stage::at(temp.path(), &stage.lane.to_string(), stage.encoder.clone()).await;
    twin.registry.remove(&twin.collection()).await.unwrap();
    twin.uid = stage.uid;
    twin.log_id = stage.log_id;
    twin.registry.declare(twin.spec()).await.unwrap();
    (temp, twin)
}

async fn backup(stage: &Stage, store: &LaneStore) -> Vec<u8> {
    all(store.backup(&stage.bob()).await.unwrap()).await
}

async fn put_back(stage: &Stage, archive: &[u8]) -> Result<lanekeeper_lane_store::RestoreReport, StoreError> {
    let archive = std::io::Cursor::new(archive.to_vec());
    restore(archive, &stage.folder, &*stage.registry, &stage.collection(), stage.uid).await
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

async fn until(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !check() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_restores_to_the_same_lane() {
    let one = stage().await;
    let store = one.open().await;
    let first = store.append(&one.bob(), keyed(save("k", &["kept once"]), "key-1")).await.unwrap();
    store.put(&one.bob(), "f", &["a walrus that nobody may remember"]).await;
    let forget = ForgetRequest { session: Some("f".into()), ..ForgetRequest::default() };
    store.forget(&one.bob(), forget, None).await.unwrap();
    std::fs::create_dir_all(one.folder.join("memory/bob")).unwrap();
    std::fs::write(one.folder.join("memory/bob/MEMORY.md"), "A paragraph.\r\n\r\nAnother.\n").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (store, stop, bob) = (store.clone(), stop.clone(), one.bob());
            tokio::spawn(async move {
                let mut n = 0;
                while !stop.load(Ordering::SeqCst) {
                    store.put(&bob, &format!("w{writer}"), &[&format!("writer {writer} says {n}")]).await;
                    n += 1;
                }
            })
        })
        .collect();
    until("writers write", || store.head().0 > Seq(100)).await;
    let archive = backup(&one, &store).await;
    stop.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    let events = listed(&one, &store).await;
    store.close().await;
    assert!(!names(&one.folder).iter().any(|name| name.contains("tmp")), "{:?}", names(&one.folder));
    assert!(!archive.windows(6).any(|window| window == b"walrus"));

    let manifest = read_manifest(archive.as_slice()).unwrap();
    assert_eq!((manifest.log_id, manifest.uid, manifest.lane.clone()), (one.log_id, one.uid, one.lane.clone()));
    let offline = verify_backup(std::io::Cursor::new(archive.clone())).await.unwrap();
    assert!(offline.ok && offline.head == Some(manifest.head), "{}", offline.statement);

    let (_temp, two) = elsewhere(&one).await;
    let report = put_back(&two, &archive).await.unwrap();
    assert!(report.verified.ok && report.verified.purged == 1);
    assert_eq!((report.standing, report.memory_files, report.manifest.head), (Standing::Unpublished, 1, manifest.head));
    assert_eq!(names(&two.folder), ["lane.db", "lane.lock", "memory"]);
    for name in ["lane.db", "memory/bob/MEMORY.md"] {
        assert_eq!(std::fs::metadata(two.folder.join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    assert_eq!(std::fs::read(two.folder.join("memory/bob/MEMORY.md")).unwrap(), b"A paragraph.\r\n\r\nAnother.\n");
    // A second restore writes over nothing.
    assert!(matches!(put_back(&two, &archive).await, Err(StoreError::Occupied { .. })));

    let store = two.open().await;
    // New keys: the log says so, and what was derived under the old ones is made again.
    until("the new keys are told", || store.head().0 > manifest.head.seq).await;
    store.settle_down().await;
    let restored = listed(&two, &store).await;
    let length = usize::try_from(manifest.head.seq.0).unwrap();
    let same = |event: &ListedEvent| (event.id, event.seq, event.hash, event.text.clone(), event.principal.clone());
    assert_eq!(
        restored[..length].iter().map(same).collect::<Vec<_>>(),
        events[..length].iter().map(same).collect::<Vec<_>>()
    );
    assert!(restored[length..].iter().any(|event| event.kind == "restored"));
    assert!(store.verify(&two.bob()).await.unwrap().ok);
    let again = store.append(&two.bob(), keyed(save("k", &["kept once"]), "key-1")).await.unwrap();
    assert_eq!(again.events[0].id, first.events[0].id);
    let repeat = store.put(&two.bob(), "k", &["Kept  once"]).await;
    assert_eq!(
        (repeat.events[0].projection, repeat.events[0].duplicate_of),
        (Projection::Duplicate, Some(first.events[0].id))
    );
    let found = store.ask(&two.bob(), "writer 3 says 2", Filter::default()).await.unwrap();
    let hit = found.candidates.iter().find(|hit| hit.text == "writer 3 says 2").unwrap();
    assert!(hit.scores.contains_key(&Arm::TurnText) && hit.scores.contains_key(&Arm::Vector), "{:?}", hit.scores);
    store.close().await;
    let store = two.open().await;
    assert!(store.verify(&two.bob()).await.unwrap().ok);
    assert_eq!(listed(&two, &store).await.iter().filter(|event| event.kind == "restored").count(), 1);
    store.close().await;
}

#[tokio::test]
async fn a_flipped_byte_in_a_backup_leaves_nothing_behind() {
    let one = stage().await;
    let store = one.open().await;
    store.put(&one.bob(), "s", &["one", "two"]).await;
    let archive = backup(&one, &store).await;
    store.close().await;
    let (_temp, two) = elsewhere(&one).await;
    let last = archive.len() - 1;
    for at in [0, 9, 12, 14, 20, 60, 300, 700, archive.len() / 3, archive.len() / 2, last - 70, last - 34, last] {
        let mut flipped = archive.clone();
        flipped[at] ^= 0x10;
        let error = put_back(&two, &flipped).await.unwrap_err();
        assert!(matches!(error, StoreError::BackupDamaged { .. }), "byte {at}: {error}");
        assert_eq!(names(&two.folder), ["lane.lock"], "byte {at}");
    }
    let mut flipped = archive.clone();
    flipped[archive.len() / 2] ^= 1;
    assert!(put_back(&two, &flipped).await.unwrap_err().to_string().contains("lane.db"));
    assert!(put_back(&two, &archive[..archive.len() - 1]).await.unwrap_err().to_string().contains("cut short"));
    put_back(&two, &archive).await.unwrap();
}

/// The archive with another database in it, every length and hash of the frames made right again.
fn with_database(archive: &[u8], database: &[u8]) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    let (mut made, mut rest) = archive.split_at(12);
    let mut out = made.to_vec();
    let mut entries = 0_u32;
    while rest[0] == 1 {
        let name_length = usize::from(u16::from_be_bytes([rest[1], rest[2]]));
        let name = rest[3..3 + name_length].to_vec();
        let (head, content) = rest.split_at(3 + name_length + 8);
        let length = usize::try_from(u64::from_be_bytes(head[head.len() - 8..].try_into().unwrap())).unwrap();
        (made, rest) = (&content[..length], &content[length + 32..]);
        let content = if name == b"lane.db" { database } else { made };
        let entry = [&head[..head.len() - 8], &(content.len() as u64).to_be_bytes(), content].concat();
        out.extend(&entry);
        out.extend(Sha256::digest(&entry));
        entries += 1;
    }
    out.push(2);
    out.extend(entries.to_be_bytes());
    let whole = Sha256::digest(&out);
    out.extend(whole);
    out
}

#[tokio::test]
async fn a_whole_backup_of_a_log_that_does_not_hold_is_refused() {
    let one = stage().await;
    let store = one.open().await;
    store.put(&one.bob(), "s", &["one", "two"]).await;
    store.settle_down().await;
    let archive = backup(&one, &store).await;
    store.close().await;
    let (_temp, two) = elsewhere(&one).await;
    let database = one.folder.join("lane.db");
    // A backup holds a database without a write-ahead log. With the same rows it is as good as before: what
    // is refused below is the log alone.
    sql(&database, "PRAGMA journal_mode = DELETE").await;
    put_back(&two, &with_database(&archive, &std::fs::read(&database).unwrap())).await.unwrap();
    let (_temp, three) = elsewhere(&one).await;
    sql(&database, "UPDATE events SET body = replace(body, 'one', 'eno') WHERE seq = 2").await;
    let error = put_back(&three, &with_database(&archive, &std::fs::read(&database).unwrap())).await.unwrap_err();
    assert!(error.to_string().contains("its log does not hold"), "{error}");
    assert_eq!(names(&three.folder), ["lane.lock"]);
}

fn is_read_only(error: &LaneError, reason: &ReadOnlyReason) -> bool {
    matches!(error, LaneError::ReadOnly(found) if found == reason)
}

async fn record(stage: &Stage) -> Record {
    stage.registry.read(&stage.collection()).await.unwrap()
}

#[tokio::test]
async fn an_older_backup_only_reads_until_its_head_is_accepted() {
    let one = stage().await;
    let store = one.open().await;
    store.put(&one.bob(), "s", &["one", "two"]).await;
    let archive = backup(&one, &store).await;
    store.put(&one.bob(), "s", &["three", "four"]).await;
    store.settle_down().await;
    store.close().await;
    let published = record(&one).await.status.head.unwrap();
    // The vectors stay: those of the two newer turns are strays afterwards.
    for name in ["lane.db", "lane.db-wal", "lane.db-shm"] {
        let _ = std::fs::remove_file(one.folder.join(name));
    }
    assert!(matches!(one.try_open().await, Err(StoreError::FileGone { .. })));
    let _ = std::fs::remove_file(one.folder.join("lane.db"));
    let report = put_back(&one, &archive).await.unwrap();
    let head = report.manifest.head;
    assert_eq!(report.standing, Standing::Behind { published: Head { seq: published.seq, hash: published.hash } });

    let store = one.open().await;
    let error = store.append(&one.bob(), save("s", &["five"])).await.unwrap_err();
    assert!(is_read_only(&error, &ReadOnlyReason::Rollback), "{error}");
    let found = store.ask(&one.bob(), "two", Filter::default()).await.unwrap();
    assert!(found.candidates.iter().any(|hit| hit.text == "two"));
    let error = accept_head(&one.folder, &*one.registry, &one.collection(), one.uid, head).await.unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    store.close().await;
    assert_eq!(record(&one).await.status.head, Some(published));

    let wrong = Head { seq: Seq(head.seq.0 - 1), hash: head.hash };
    for wrong in
        [wrong, Head { seq: published.seq, hash: published.hash }, Head { seq: head.seq, hash: published.hash }]
    {
        let error = accept_head(&one.folder, &*one.registry, &one.collection(), one.uid, wrong).await.unwrap_err();
        assert!(matches!(error, StoreError::Lane(LaneError::HeadMismatch { .. })), "{error}");
    }
    assert_eq!(record(&one).await.spec.epoch, Epoch(1));
    let report = accept_head(&one.folder, &*one.registry, &one.collection(), one.uid, head).await.unwrap();
    assert_eq!((report.epoch, report.given_up), (Epoch(2), Some(Head { seq: published.seq, hash: published.hash })));

    let store = one.open().await;
    until("the acceptance is told", || store.head().0 > head.seq).await;
    store.put(&one.bob(), "s", &["five"]).await;
    store.settle_down().await;
    let events = listed(&one, &store).await;
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["opened", "turn", "turn", "restored", "turn"]);
    assert!(store.verify(&one.bob()).await.unwrap().ok);
    let found = store.ask(&one.bob(), "three four", Filter::default()).await.unwrap();
    assert!(!found.candidates.iter().any(|hit| hit.text == "three" || hit.text == "four"));
    assert_eq!(found.counts.dangling_skipped, 0, "vectors of events that were given up are deleted");
    store.close().await;
    assert_eq!(
        column(&one, "SELECT group_concat(epoch) FROM (SELECT epoch FROM events ORDER BY seq)").await,
        "1,1,1,2,2"
    );
    let accepted =
        "SELECT json_extract(CAST(body AS TEXT), '$.accepted_seq') || '' FROM events WHERE kind = 'restored'";
    assert_eq!(column(&one, accepted).await, head.seq.to_string());
    let error =
        accept_head(&one.folder, &*one.registry, &one.collection(), one.uid, last(&one).await).await.unwrap_err();
    assert!(matches!(&error, StoreError::Lane(error) if error.code() == "nothing_to_accept"), "{error}");
    let store = one.open().await;
    store.put(&one.bob(), "s", &["six"]).await;
    assert_eq!(listed(&one, &store).await.iter().filter(|event| event.kind == "restored").count(), 1);
    store.close().await;
}

async fn column(stage: &Stage, query: &str) -> String {
    use sqlx::{ConnectOptions, Connection};
    let path = stage.folder.join("lane.db");
    let mut conn = sqlx::sqlite::SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    let value = sqlx::query_scalar(sqlx::AssertSqlSafe(query.to_owned())).fetch_one(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    value
}

async fn last(stage: &Stage) -> Head {
    let found = column(stage, "SELECT seq || ':' || lower(hex(hash)) FROM events ORDER BY seq DESC LIMIT 1").await;
    let (seq, hash) = found.split_once(':').unwrap();
    Head { seq: Seq(seq.parse().unwrap()), hash: hash.parse::<Hash32>().unwrap() }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[tokio::test]
async fn a_forked_log_only_reads_until_its_head_is_accepted() {
    let one = stage().await;
    let store = one.open().await;
    store.put(&one.bob(), "s", &["one"]).await;
    store.close().await;
    let (_temp, two) = elsewhere(&one).await;
    copy_folder(&one.folder, &two.folder);
    for (stage, text) in [(&one, "here"), (&two, "there")] {
        let store = stage.open().await;
        store.put(&stage.bob(), "s", &[text]).await;
        store.close().await;
    }
    // The copy comes back, with keys and all.
    std::fs::remove_dir_all(&one.folder).unwrap();
    copy_folder(&two.folder, &one.folder);
    let store = one.open().await;
    let error = store.append(&one.bob(), save("s", &["more"])).await.unwrap_err();
    assert!(is_read_only(&error, &ReadOnlyReason::Fork), "{error}");
    let archive = backup(&one, &store).await;
    store.close().await;
    std::fs::remove_dir_all(&one.folder).unwrap();
    assert!(matches!(put_back(&one, &archive).await.unwrap().standing, Standing::Forked { .. }));
    std::fs::remove_dir_all(&one.folder).unwrap();
    copy_folder(&two.folder, &one.folder);
    accept_head(&one.folder, &*one.registry, &one.collection(), one.uid, last(&one).await).await.unwrap();
    let store = one.open().await;
    store.put(&one.bob(), "s", &["more"]).await;
    let kinds: Vec<String> = listed(&one, &store).await.into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["opened", "turn", "turn", "restored", "turn"]);
    assert!(store.verify(&one.bob()).await.unwrap().ok);
    store.close().await;
}

/// A registry whose next change of one kind fails, as if the process had died before it.
#[derive(Debug)]
struct Dies {
    inner: Arc<FileRegistry>,
    spec: bool,
}

#[async_trait]
impl Registry for Dies {
    async fn read(&self, collection: &str) -> Result<Record, RegistryError> {
        self.inner.read(collection).await
    }
    async fn declare(&self, spec: RecordSpec) -> Result<Record, RegistryError> {
        self.inner.declare(spec).await
    }
    async fn change_spec(&self, collection: &str, change: SpecChange) -> Result<Record, RegistryError> {
        if self.spec {
            return Err(RegistryError::Unreadable { reason: "a test".into() });
        }
        self.inner.change_spec(collection, change).await
    }
    async fn change_status(&self, _: &str, _: StatusChange) -> Result<Record, RegistryError> {
        Err(RegistryError::Unreadable { reason: "a test".into() })
    }
    async fn remove(&self, collection: &str) -> Result<(), RegistryError> {
        self.inner.remove(collection).await
    }
}

#[tokio::test]
async fn an_acceptance_that_was_cut_short_is_gone_on_with() {
    for spec in [true, false] {
        let one = stage().await;
        let store = one.open().await;
        store.put(&one.bob(), "s", &["one"]).await;
        store.close().await;
        let (temp, _) = elsewhere(&one).await;
        let kept = temp.path().join("kept");
        copy_folder(&one.folder, &kept);
        let store = one.open().await;
        store.put(&one.bob(), "s", &["two"]).await;
        store.close().await;
        std::fs::remove_dir_all(&one.folder).unwrap();
        copy_folder(&kept, &one.folder);
        let head = last(&one).await;
        let dies = Dies { inner: one.registry.clone(), spec };
        let error = accept_head(&one.folder, &dies, &one.collection(), one.uid, head).await.unwrap_err();
        assert!(matches!(error, StoreError::Registry(_)), "{error}");
        let store = one.open().await;
        let error = store.append(&one.bob(), save("s", &["more"])).await.unwrap_err();
        assert!(is_read_only(&error, &ReadOnlyReason::Rollback), "{error}");
        store.close().await;
        // Twice, as somebody who is not sure does.
        for _ in 0..2 {
            let report = accept_head(&one.folder, &*one.registry, &one.collection(), one.uid, head).await.unwrap();
            assert_eq!(report.epoch, Epoch(2));
        }
        let store = one.open().await;
        store.put(&one.bob(), "s", &["more"]).await;
        assert!(store.verify(&one.bob()).await.unwrap().ok);
        store.close().await;
    }
}

#[tokio::test]
async fn what_belongs_to_another_lane_is_refused() {
    let (_temp, one, two) = two_lanes().await;
    let store = one.open().await;
    store.put(&one.bob(), "s", &["one", "two"]).await;
    let archive = backup(&one, &store).await;
    store.close().await;
    assert!(matches!(put_back(&two, &archive).await, Err(StoreError::OtherLog)));
    assert_eq!(names(&two.folder), ["lane.lock"]);
    let foreign = restore(std::io::Cursor::new(archive), &two.folder, &*two.registry, &two.collection(), one.uid).await;
    assert!(matches!(foreign, Err(StoreError::OtherLane { .. })));
    // The whole file of the other lane, and then with this lane's log_id written over it.
    std::fs::copy(one.folder.join("lane.db"), two.folder.join("lane.db")).unwrap();
    assert!(matches!(two.try_open().await, Err(StoreError::OtherLog)));
    sql(&two.folder.join("lane.db"), &format!("UPDATE meta SET value = x'{}' WHERE key = 'log_id'", two.log_id)).await;
    sql(&two.folder.join("lane.db"), "DELETE FROM checkpoints").await;
    assert!(matches!(two.try_open().await, Err(StoreError::OtherLane { .. })));
    // Even where it is asked for as an adoption, no row fits the log_id.
    let (_temp, mut two) = (_temp, two);
    two.adopt = Some(one.uid);
    let store = two.open().await;
    let error = store.append(&two.bob(), save("s", &["more"])).await.unwrap_err();
    assert!(is_read_only(&error, &ReadOnlyReason::BadRow(Seq(1))), "{error}");
    let forged = backup(&two, &store).await;
    store.close().await;
    let (_temp_three, three) = elsewhere(&two).await;
    let error = put_back(&three, &forged).await.unwrap_err();
    assert!(error.to_string().contains("row 1"), "{error}");
    assert_eq!(names(&three.folder), ["lane.lock"]);
}

#[tokio::test]
async fn a_database_of_a_newer_schema_is_left_as_it_is() {
    let one = stage().await;
    let store = one.open().await;
    store.put(&one.bob(), "s", &["one"]).await;
    store.close().await;
    sql(&one.folder.join("lane.db"), "PRAGMA user_version = 99").await;
    let head = last(&one).await;
    let before = one.all_bytes();
    let refusals = [
        one.try_open().await.map(drop),
        accept_head(&one.folder, &*one.registry, &one.collection(), one.uid, head).await.map(drop),
        lanekeeper_lane_store::verify_file(&one.folder.join("lane.db"), None).await.map(drop),
    ];
    for refusal in refusals {
        assert!(matches!(refusal, Err(StoreError::SchemaTooNew { found: 99, .. })), "{refusal:?}");
    }
    for (path, bytes) in before {
        if !path.ends_with("lane.lock") {
            assert_eq!(std::fs::read(&path).unwrap(), bytes, "{}", path.display());
        }
    }
}

#[tokio::test]
async fn a_key_that_is_lost_is_made_again_and_duplicates_are_known_as_before() {
    let one = stage().await;
    let store = one.open().await;
    let first = store.put(&one.bob(), "s", &["the deadline is in October"]).await;
    store.settle_down().await;
    store.close().await;
    std::fs::remove_file(one.folder.join("dedupe.key")).unwrap();
    let store = one.open().await;
    let commits = store.commits();
    until("what was derived is made again", || store.commits() > commits).await;
    store.settle_down().await;
    let repeat = store.put(&one.bob(), "s", &["The deadline  is in October"]).await;
    assert_eq!(repeat.events[0].duplicate_of, Some(first.events[0].id));
    store.close().await;
}
