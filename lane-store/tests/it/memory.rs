//! Curated memory: saves, edits by hand, owners, forget, healing, on a real store in a temporary folder.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::stage::{sql, stage};
use lanekeeper_core::lane::LaneKind;
use lanekeeper_core::lane_client::{Caller, Idempotency, LaneClient};
use lanekeeper_core::limits::MEMORY_BYTES;
use lanekeeper_core::scope::{EffectiveScope, Role, Scope};
use lanekeeper_core::wire::forget::{Erasure, ForgetMemory, ForgetRequest};
use lanekeeper_core::wire::memory::{MemoryPage, MemorySaveRequest, MemorySaveResponse};
use lanekeeper_core::wire::recall::Filter;
use lanekeeper_core::wire::upkeep::RebuildRequest;
use lanekeeper_core::{LaneError, LaneUid, Seq};
use lanekeeper_federation::Registry;
use lanekeeper_lane_store::LaneStore;
use lanekeeper_lane_store::testing::Stage;
use sha2::Digest;

fn file(stage: &Stage, owner: &str) -> PathBuf {
    stage.folder.join("memory").join(owner).join("MEMORY.md")
}

fn on_disk(stage: &Stage, owner: &str) -> String {
    std::fs::read_to_string(file(stage, owner)).unwrap()
}

fn request(text: &str, shared: bool) -> MemorySaveRequest {
    MemorySaveRequest { text: text.into(), shared }
}

/// The version of an owner's file as a caller sees it.
async fn etag(store: &LaneStore, caller: &Caller, owner: &str) -> Option<String> {
    let page = store.memory(caller, "").await.unwrap();
    page.documents.into_iter().find(|document| document.owner == owner).map(|document| document.etag)
}

/// Replaces the caller's own file, whatever it is now.
async fn put(store: &LaneStore, caller: &Caller, text: &str) -> MemorySaveResponse {
    let etag = etag(store, caller, &caller.principal.owner_segment()).await;
    store.save_memory(caller, request(text, false), etag, None).await.unwrap()
}

async fn put_shared(store: &LaneStore, caller: &Caller, text: &str) -> MemorySaveResponse {
    let etag = etag(store, caller, "_shared").await;
    store.save_memory(caller, request(text, true), etag, None).await.unwrap()
}

fn texts(page: &MemoryPage) -> Vec<&str> {
    page.paragraphs.iter().map(|paragraph| paragraph.text.as_str()).collect()
}

async fn search(store: &LaneStore, caller: &Caller, query: &str) -> Vec<String> {
    let page = store.memory(caller, query).await.unwrap();
    assert_eq!(page.mode, "search");
    page.paragraphs.into_iter().map(|paragraph| paragraph.text).collect()
}

async fn recall(store: &LaneStore, caller: &Caller, query: &str) -> Vec<String> {
    let answer = store.ask(caller, query, Filter::default()).await.unwrap();
    answer.memory.into_iter().map(|hit| hit.paragraph.text).collect()
}

async fn history(store: &LaneStore, caller: &Caller) -> Vec<(String, String, Option<String>)> {
    let history = store.memory_history(caller).await.unwrap();
    history.versions.into_iter().map(|version| (version.owner, version.cause, version.text)).collect()
}

async fn id_of(store: &LaneStore, caller: &Caller, text: &str) -> String {
    let page = store.memory(caller, "").await.unwrap();
    page.paragraphs.into_iter().find(|paragraph| paragraph.text == text).unwrap().id
}

fn forget(owner: &str, ids: &[&str]) -> ForgetRequest {
    let paragraphs = ids.iter().map(|id| (*id).to_owned()).collect();
    ForgetRequest { memory: Some(ForgetMemory { owner: owner.into(), paragraphs }), ..ForgetRequest::default() }
}

fn key(name: &str, body: &MemorySaveRequest) -> Option<Idempotency> {
    let body = serde_json::to_vec(body).unwrap();
    Some(Idempotency { key: name.into(), body_sha256: sha2::Sha256::digest(body).into() })
}

/// Files of the lane that hold any of the words, plain or as base64 at any offset.
fn holding(stage: &Stage, words: &[&str]) -> Vec<String> {
    use base64::Engine;
    let mut needles: Vec<Vec<u8>> = Vec::new();
    for word in words {
        needles.push(word.as_bytes().to_vec());
        for shift in 0..3 {
            let padded = [vec![b' '; shift], word.as_bytes().to_vec()].concat();
            let encoded = base64::engine::general_purpose::STANDARD_NO_PAD.encode(padded);
            // Shorter ones would be found by chance.
            needles.extend(
                encoded.as_bytes().get(4..encoded.len() - 2).filter(|part| part.len() >= 8).map(<[u8]>::to_vec),
            );
        }
    }
    let mut found = Vec::new();
    for (path, bytes) in stage.all_bytes() {
        if needles.iter().any(|needle| bytes.windows(needle.len()).any(|part| part == needle)) {
            found.push(path.display().to_string());
        }
    }
    found
}

/// Everything derived, as text.
async fn tables(stage: &Stage) -> Vec<String> {
    use sqlx::{ConnectOptions, Connection};
    let path = stage.folder.join("lane.db");
    let mut conn = sqlx::sqlite::SqliteConnectOptions::new().filename(path).read_only(true).connect().await.unwrap();
    let mut all = Vec::new();
    for query in [
        "SELECT owner || '|' || hex(sha256) || '|' || event_seq || '|' || unwritten || coalesce(replaces, '') FROM memory_files ORDER BY 1",
        "SELECT owner || '|' || position || '|' || para_id || '|' || event_seq || '|' || hex(event_id) || '|' || at_ms || '|'
             || coalesce(principal, '-') || '|' || tokens || '|' || text FROM memory_paragraphs ORDER BY 1",
        "SELECT seq || '|' || owner || '|' || cause FROM memory_versions ORDER BY seq",
    ] {
        all.extend(sqlx::query_scalar::<_, String>(query).fetch_all(&mut conn).await.unwrap());
    }
    conn.close().await.unwrap();
    all
}

#[tokio::test]
async fn a_save_is_a_private_file_an_event_and_paragraphs() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    assert_eq!(store.memory(&bob, "").await.unwrap().documents, []);
    let text = "\u{feff}Releases go out on Thursdays.\r\n\r\n```sh\nmake\n\nmake test\n```\n\nNUL \0 and\ttab ";
    let first = put(&store, &bob, text).await;
    assert_eq!((first.seq, first.added, first.removed, first.kept_hand_edit), (Seq(2), 3, 0, None));
    assert_eq!(on_disk(&stage, "bob"), text);
    for (path, mode) in
        [(file(&stage, "bob"), 0o600), (stage.folder.join("memory/bob"), 0o700), (stage.folder.join("memory"), 0o700)]
    {
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
    }
    let page = store.memory(&bob, "").await.unwrap();
    assert_eq!(page.mode, "listing");
    assert_eq!(page.documents, std::slice::from_ref(&first.document));
    assert_eq!(page.documents[0].text, text);
    assert_eq!(
        texts(&page),
        ["\u{feff}Releases go out on Thursdays.", "```sh\nmake\n\nmake test\n```", "NUL \0 and\ttab "]
    );
    assert!(page.paragraphs.iter().all(|paragraph| (paragraph.event_id, paragraph.seq) == (first.event_id, first.seq)));
    // What stays keeps its id and its origin, wherever it stands.
    let second = put(&store, &bob, &format!("Straße 7\n\n{text}")).await;
    assert_eq!((second.added, second.removed), (1, 0));
    let later = store.memory(&bob, "").await.unwrap();
    assert_eq!(later.paragraphs.iter().map(|paragraph| paragraph.position).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(later.paragraphs[2].id, page.paragraphs[1].id);
    assert_eq!((later.paragraphs[2].seq, later.paragraphs[0].seq), (first.seq, second.seq));
    // Literal, without regard to case.
    assert_eq!(search(&store, &bob, "STRASSE").await, ["Straße 7"]);
    assert_eq!(search(&store, &bob, "make\n\nMAKE").await, ["```sh\nmake\n\nmake test\n```"]);
    assert_eq!(search(&store, &bob, "thursdays%").await, Vec::<String>::new());
    assert_eq!(recall(&store, &bob, "when are releases going out").await, ["\u{feff}Releases go out on Thursdays."]);
    let versions = store.memory_history(&bob).await.unwrap().versions;
    assert_eq!(versions.iter().map(|version| version.seq).collect::<Vec<_>>(), [second.seq, first.seq]);
    assert_eq!(versions[1].text.as_deref(), Some(text));
    assert_eq!(versions[1].principal.as_deref(), Some("user:bob"));
    store.close().await;
    let store = stage.open().await;
    assert_eq!(store.memory(&bob, "").await.unwrap(), later);
    assert!(store.verify(&bob).await.unwrap().ok);
    store.close().await;
}

#[tokio::test]
async fn c44_of_ten_paragraphs_replaced_by_seven_three_are_gone_everywhere() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    let ten: Vec<String> = (0..10).map(|n| format!("fact{n} about topic{n}")).collect();
    put(&store, &bob, &ten.join("\n\n")).await;
    let before = store.memory(&bob, "").await.unwrap();
    assert_eq!(before.paragraphs.len(), 10);
    let seven: Vec<String> = ten
        .iter()
        .filter(|text| !["fact1 ", "fact4 ", "fact9 "].iter().any(|gone| text.starts_with(gone)))
        .cloned()
        .collect();
    let saved = put(&store, &bob, &seven.join("\n\n")).await;
    assert_eq!((saved.added, saved.removed), (0, 3));
    let after = store.memory(&bob, "").await.unwrap();
    assert_eq!(texts(&after), seven);
    for n in 0..10 {
        let expected: Vec<String> =
            seven.iter().filter(|text| text.starts_with(&format!("fact{n} "))).cloned().collect();
        assert_eq!(search(&store, &bob, &format!("topic{n}")).await, expected);
        assert_eq!(recall(&store, &bob, &format!("topic{n}")).await, expected);
        assert_eq!(on_disk(&stage, "bob").contains(&format!("topic{n}")), !expected.is_empty());
        let mut kept = before.paragraphs.iter().filter(|old| expected.contains(&old.text));
        assert!(kept.all(|old| after.paragraphs.iter().any(|new| (&new.id, &new.text) == (&old.id, &old.text))));
    }
    store.close().await;
}

#[tokio::test]
async fn if_match_must_name_what_is_on_disk() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    let save =
        |text: &'static str, if_match: Option<String>| store.save_memory(&bob, request(text, false), if_match, None);
    let unknown = save("one", Some("0".repeat(32))).await.unwrap_err();
    let LaneError::PreconditionFailed { current: empty } = unknown else { panic!("{unknown:?}") };
    let one = save("one", Some(empty)).await.unwrap().document.etag;
    assert_eq!(save("two", None).await.unwrap_err(), LaneError::PreconditionRequired { current: one.clone() });
    assert_eq!(
        save("two", Some("*".into())).await.unwrap_err(),
        LaneError::PreconditionFailed { current: one.clone() }
    );
    let two = save("two", Some(one.clone())).await.unwrap().document.etag;
    assert_ne!(one, two);
    assert_eq!(
        save("three", Some(one.clone())).await.unwrap_err(),
        LaneError::PreconditionFailed { current: two.clone() }
    );
    // An edit by hand is another version, though the store has not written it.
    std::fs::write(file(&stage, "bob"), "by hand").unwrap();
    let refused = save("three", Some(two.clone())).await.unwrap_err();
    let LaneError::PreconditionFailed { current } = refused else { panic!("{refused:?}") };
    assert_eq!(etag(&store, &bob, "bob").await.as_ref(), Some(&current));
    assert!(
        matches!(save("three", None).await.unwrap_err(), LaneError::PreconditionRequired { current: now } if now == current)
    );
    assert_eq!(on_disk(&stage, "bob"), "by hand", "a refused save writes nothing");
    assert_eq!(store.head().0, Seq(3), "and no event");
    let empty = save("", Some(current)).await.unwrap();
    assert_eq!((on_disk(&stage, "bob").as_str(), empty.removed), ("", 1));
    // An empty file has nothing to lose.
    assert_eq!(save("again", None).await.unwrap().added, 1);
    store.close().await;
}

#[tokio::test]
async fn an_edit_by_hand_is_seen_at_once_and_kept_by_the_next_save() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    put(&store, &bob, "alpha stays\n\nbeta goes").await;
    let alpha = id_of(&store, &bob, "alpha stays").await;
    std::fs::write(file(&stage, "bob"), "gamma by hand\n\nalpha stays\n").unwrap();
    let head = store.head();
    let page = store.memory(&bob, "").await.unwrap();
    assert_eq!(texts(&page), ["gamma by hand", "alpha stays"]);
    assert_eq!((page.paragraphs[0].seq, page.paragraphs[0].position, page.paragraphs[1].position), (Seq(0), 0, 1));
    assert_eq!(page.paragraphs[1].id, alpha);
    assert_eq!(page.documents[0].text, "gamma by hand\n\nalpha stays\n");
    assert_eq!(recall(&store, &bob, "gamma").await, ["gamma by hand"]);
    assert_eq!(recall(&store, &bob, "beta").await, Vec::<String>::new());
    assert_eq!(store.head(), head, "a read writes nothing");
    let saved = put(&store, &bob, "alpha stays\n\ndelta").await;
    assert_eq!((saved.added, saved.removed), (1, 1));
    let versions = store.memory_history(&bob).await.unwrap().versions;
    assert_eq!(versions.iter().map(|v| v.cause.as_str()).collect::<Vec<_>>(), ["save", "hand_edit", "save"]);
    assert_eq!(saved.kept_hand_edit, Some(versions[1].event_id));
    assert_eq!(versions[1].text.as_deref(), Some("gamma by hand\n\nalpha stays\n"));
    assert_eq!(versions[1].principal, None);
    assert_eq!(id_of(&store, &bob, "alpha stays").await, alpha);
    assert_eq!(on_disk(&stage, "bob"), "alpha stays\n\ndelta");
    // A file that nobody saved is one too; so is one that was emptied.
    std::fs::create_dir(stage.folder.join("memory/_shared")).unwrap();
    std::fs::write(file(&stage, "_shared"), "for all").unwrap();
    assert_eq!(search(&store, &bob, "for all").await, ["for all"]);
    put_shared(&store, &bob, "for some").await;
    assert_eq!(history(&store, &bob).await[1], ("_shared".into(), "hand_edit".into(), Some("for all".into())));
    std::fs::write(file(&stage, "bob"), "").unwrap();
    let saved = put(&store, &bob, "new").await;
    assert_eq!((saved.added, saved.removed, saved.kept_hand_edit.is_some()), (1, 0, true));
    assert!(store.verify(&bob).await.unwrap().ok);
    store.close().await;
}

#[tokio::test]
async fn bytes_that_are_no_text_are_kept_beside_the_file() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    put(&store, &bob, "good").await;
    let bytes = b"caf\xe9 in another encoding";
    std::fs::write(file(&stage, "bob"), bytes).unwrap();
    // The last good version is served, under the version that a save must name.
    let page = store.memory(&bob, "").await.unwrap();
    assert_eq!((page.documents[0].text.as_str(), texts(&page)), ("good", vec!["good"]));
    let saved = put(&store, &bob, "better").await;
    let kept = saved.kept_hand_edit.unwrap();
    let beside = stage.folder.join(format!("memory/bob/MEMORY.conflict-{kept}.md"));
    assert_eq!(std::fs::read(&beside).unwrap(), bytes);
    assert_eq!(std::fs::metadata(&beside).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(on_disk(&stage, "bob"), "better");
    let versions = history(&store, &bob).await;
    use base64::Engine;
    let encoded = base64::engine::general_purpose::STANDARD.encode(bytes);
    assert_eq!(versions[1], ("bob".into(), "conflict".into(), Some(encoded)));
    assert_eq!((saved.added, saved.removed), (1, 1), "against the last good version");
    store.close().await;
}

#[tokio::test]
async fn owners_are_never_mixed() {
    let stage = stage().await;
    let (bob, eve) = (stage.bob(), stage.caller("user:eve", Role::Curator));
    let store = stage.open().await;
    put(&store, &bob, "the deadline is October 15th\n\nsame words").await;
    put(&store, &eve, "eve keeps a walrus secret\n\nsame words").await;
    put_shared(&store, &eve, "the deadline is October 16th\n\nsame words").await;
    // Contradicting and equal paragraphs of two owners are two records.
    assert_eq!(
        search(&store, &bob, "deadline").await,
        ["the deadline is October 16th", "the deadline is October 15th"]
    );
    assert_eq!(search(&store, &bob, "same words").await.len(), 2);
    let mut recalled = recall(&store, &bob, "deadline in October").await;
    recalled.sort();
    assert_eq!(recalled, ["the deadline is October 15th", "the deadline is October 16th"]);
    // Of eve's own file bob sees nothing anywhere, not even a count or a name.
    let page = store.memory(&bob, "").await.unwrap();
    assert_eq!(page.documents.iter().map(|document| document.owner.as_str()).collect::<Vec<_>>(), ["_shared", "bob"]);
    assert!(page.paragraphs.iter().all(|paragraph| paragraph.owner != "eve"));
    assert_eq!(search(&store, &bob, "walrus").await, Vec::<String>::new());
    assert_eq!(recall(&store, &bob, "walrus secret").await, Vec::<String>::new());
    assert!(history(&store, &bob).await.iter().all(|(owner, _, _)| owner != "eve"));
    std::fs::write(file(&stage, "eve"), "eve edited a walrus secret").unwrap();
    assert_eq!(search(&store, &bob, "walrus").await, Vec::<String>::new());
    assert_eq!(search(&store, &eve, "walrus").await, ["eve edited a walrus secret"]);
    // Nor can he forget it, or learn that it is there.
    let id = id_of(&store, &eve, "eve edited a walrus secret").await;
    for owner in ["eve", "nobody", "..", "../lane2"] {
        let refused = store.forget(&bob, forget(owner, &[&id]), None).await.unwrap_err();
        assert_eq!(refused, LaneError::NotFound { what: "lane" }, "{owner}");
    }
    // A writer may read its own and the shared file, and write neither.
    let reader = stage.caller("sa:team/agent", Role::Writer);
    let refused = store.save_memory(&reader, request("x", true), None, None).await.unwrap_err();
    assert!(matches!(refused, LaneError::GateRequired { .. }), "{refused:?}");
    let page = store.memory(&reader, "").await.unwrap();
    assert_eq!(page.documents.iter().map(|document| document.owner.as_str()).collect::<Vec<_>>(), ["_shared"]);
    // eve's forget leaves bob's equal paragraph alone.
    let id = {
        let page = store.memory(&eve, "").await.unwrap();
        page.paragraphs.into_iter().find(|p| p.owner == "_shared" && p.text == "same words").unwrap().id
    };
    store.forget(&eve, forget("_shared", &[&id]), None).await.unwrap();
    assert_eq!(search(&store, &bob, "same words").await, ["same words"]);
    assert!(history(&store, &bob).await.contains(&(
        "bob".into(),
        "save".into(),
        Some("the deadline is October 15th\n\nsame words".into())
    )));
    store.close().await;
}

#[tokio::test]
async fn a_reading_lane_sees_the_shared_file_only() {
    let mut stage = stage().await;
    stage.kind = LaneKind::Corpus;
    let bob = stage.bob();
    let reading = LaneUid::from_uuid(uuid::Uuid::new_v4());
    stage.registry.change_spec(&stage.collection(), Box::new(move |spec| spec.readers = vec![reading])).await.unwrap();
    let store = stage.open().await;
    put(&store, &bob, "private").await;
    put_shared(&store, &bob, "shared").await;
    let granted = Scope::of_reads(&stage.lane, stage.uid).unwrap();
    let reader = Caller {
        scope: EffectiveScope { granted, narrowed: None },
        reading_lane: Some(reading),
        ..stage.caller("user:eve", Role::Reader)
    };
    assert_eq!(texts(&store.memory(&reader, "").await.unwrap()), ["shared"]);
    assert_eq!(recall(&store, &reader, "private shared").await, ["shared"]);
    assert_eq!(history(&store, &reader).await.len(), 1);
    store.close().await;
}

#[tokio::test]
async fn a_key_makes_one_version_also_across_a_restart() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    let one = request("one xylophone", false);
    let first = store.save_memory(&bob, one.clone(), None, key("k", &one)).await.unwrap();
    let two = request("two", false);
    // The second of the same request has no If-Match either, and the file exists now.
    assert_eq!(store.save_memory(&bob, one.clone(), None, key("k", &one)).await.unwrap(), first);
    let other = store.save_memory(&bob, two.clone(), None, key("k", &two)).await.unwrap_err();
    assert_eq!(other, LaneError::IdempotencyConflict);
    // The key of another principal is another key.
    let eve = stage.caller("user:eve", Role::Curator);
    let hers = store.save_memory(&eve, one.clone(), None, key("k", &one)).await.unwrap();
    assert_eq!((hers.document.owner.as_str(), hers.seq), ("eve", first.seq.next()));
    put(&store, &bob, "later").await;
    // Forgetting eve's text is a matter of her own file.
    let id = id_of(&store, &eve, "one xylophone").await;
    store.forget(&eve, forget("eve", &[&id]), None).await.unwrap();
    store.close().await;
    let store = stage.open().await;
    let head = store.head();
    assert_eq!(store.save_memory(&bob, one.clone(), None, key("k", &one)).await.unwrap(), first);
    assert_eq!(on_disk(&stage, "bob"), "later", "a replay writes nothing");
    // Once the version is forgotten, any body gets the same ids, marked, and no text.
    let page = store.memory(&bob, "").await.unwrap();
    let id = format!("p-{}-0", &first.event_id.as_uuid().simple().to_string()[16..]);
    store.forget(&bob, forget("bob", &[&id]), None).await.unwrap();
    let forgotten = store.save_memory(&bob, two.clone(), None, key("k", &two)).await.unwrap();
    assert!(forgotten.forgotten);
    assert_eq!((forgotten.event_id, forgotten.seq), (first.event_id, first.seq));
    assert_eq!((forgotten.document.text.as_str(), &forgotten.document.etag), ("", &page.documents[0].etag));
    assert_eq!(store.head().0, Seq(head.0.0 + 2), "the forget and what it left, nothing else");
    store.settle_down().await;
    assert_eq!(holding(&stage, &["xylophone"]), Vec::<String>::new());
    store.close().await;
}

#[tokio::test]
async fn a_forgotten_paragraph_is_in_no_byte_of_the_lanes_files() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    put(&store, &bob, "keep one\n\nsecretword told once\n\nkeep two").await;
    // Every way into the history: a save, an edit by hand, a conflict, a sentence round it.
    std::fs::write(file(&stage, "bob"), "keep one\r\n\r\nsecretword told once\r\n\r\nkeep two").unwrap();
    put(&store, &bob, "he said: secretword told once, twice\n\nkeep one").await;
    std::fs::write(file(&stage, "bob"), b"\xff secretword told once").unwrap();
    put(&store, &bob, "keep one\n\nsecretword told once\n\nkeep two\n\nsecretword told once").await;
    put_shared(&store, &bob, "shared stays").await;
    let leftover = stage.folder.join("memory/bob/.MEMORY.md.part-left");
    std::fs::write(&leftover, "secretword told once").unwrap();
    assert!(holding(&stage, &["secretword"]).len() >= 3, "it must be there before it is forgotten");
    let id = id_of(&store, &bob, "secretword told once").await;
    let keep = id_of(&store, &bob, "keep one").await;
    assert_eq!(
        store.forget(&bob, forget("bob", &[&id, "p-0000000000000000-0"]), None).await.unwrap_err(),
        LaneError::NotFound { what: "paragraph" }
    );
    let head = store.head();
    let dry = store.forget(&bob, ForgetRequest { dry_run: true, ..forget("bob", &[&id]) }, None).await.unwrap();
    assert_eq!((dry.counts["paragraphs"], dry.counts["versions"], dry.receipt), (2, 5, None));
    assert_eq!((store.head(), on_disk(&stage, "bob").contains("secretword")), (head, true));
    let done = store.forget(&bob, forget("bob", &[&id]), None).await.unwrap();
    assert_eq!((&done.events, &done.counts), (&dry.events, &dry.counts));
    let receipt = done.receipt.unwrap();
    assert_eq!((receipt.count, receipt.by.as_str()), (5, "user:bob"));
    assert_eq!(receipt.surfaces["backups"], Erasure::Unreachable);
    assert!(!format!("{receipt:?}").contains("vector"), "{receipt:?}");
    store.settle_down().await;
    assert_eq!(holding(&stage, &["secretword", "told once"]), Vec::<String>::new());
    assert_eq!(on_disk(&stage, "bob"), "keep one\n\nkeep two\n");
    assert_eq!(search(&store, &bob, "secretword").await, Vec::<String>::new());
    assert_eq!(recall(&store, &bob, "secretword").await, Vec::<String>::new());
    assert_eq!(id_of(&store, &bob, "keep one").await, keep);
    let versions = history(&store, &bob).await;
    let bobs: Vec<_> = versions.iter().filter(|(owner, _, _)| owner == "bob").collect();
    assert_eq!(
        bobs.iter().map(|(_, cause, _)| cause.as_str()).collect::<Vec<_>>(),
        ["forget", "save", "conflict", "save", "hand_edit", "save"]
    );
    assert_eq!(bobs[0].2.as_deref(), Some("keep one\n\nkeep two\n"));
    assert!(bobs[1..].iter().all(|(_, _, text)| text.is_none()));
    let report = store.verify(&bob).await.unwrap();
    assert!(report.ok && report.purged == 5, "{}", report.statement);
    // A repeat has nothing to find.
    assert_eq!(
        store.forget(&bob, forget("bob", &[&id]), None).await.unwrap_err(),
        LaneError::NotFound { what: "paragraph" }
    );
    store.close().await;
    let store = stage.open().await;
    assert!(store.verify(&bob).await.unwrap().ok);
    assert_eq!(texts(&store.memory(&bob, "keep").await.unwrap()), ["keep one", "keep two"]);
    assert_eq!(holding(&stage, &["secretword", "told once"]), Vec::<String>::new());
    store.close().await;
}

#[tokio::test]
async fn what_stands_only_in_the_history_or_only_on_disk_can_be_forgotten() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    put(&store, &bob, "old walrus\n\nstays").await;
    let old = id_of(&store, &bob, "old walrus").await;
    put(&store, &bob, "stays\n\nsecond").await;
    let done = store.forget(&bob, forget("bob", &[&old]), None).await.unwrap();
    assert_eq!((done.counts["paragraphs"], done.counts["versions"]), (0, 1));
    assert_eq!(on_disk(&stage, "bob"), "stays\n\nsecond");
    // Its first event is gone now; the trail still knows the id of what stays.
    let stays = id_of(&store, &bob, "stays").await;
    put(&store, &bob, "second").await;
    let done = store.forget(&bob, forget("bob", &[&stays]), None).await.unwrap();
    assert_eq!(done.counts["paragraphs"], 0);
    store.settle_down().await;
    assert_eq!(holding(&stage, &["old walrus", "stays"]), Vec::<String>::new());
    // An edit by hand that no save has kept yet.
    std::fs::write(file(&stage, "bob"), "second\n\nhandwritten giraffe\n").unwrap();
    std::fs::write(stage.folder.join("memory/bob/MEMORY.md~"), "handwritten giraffe").unwrap();
    let hand = id_of(&store, &bob, "handwritten giraffe").await;
    assert!(hand.starts_with("hand-"), "{hand}");
    let done = store.forget(&bob, forget("bob", &[&hand]), None).await.unwrap();
    assert_eq!(done.counts["paragraphs"], 1);
    let receipt = done.receipt.unwrap();
    assert_eq!(receipt.surfaces["curated_copies"], Erasure::Unreachable, "an editor's copy is not ours to remove");
    assert_eq!(on_disk(&stage, "bob"), "second\n");
    std::fs::remove_file(stage.folder.join("memory/bob/MEMORY.md~")).unwrap();
    store.settle_down().await;
    assert_eq!(holding(&stage, &["giraffe"]), Vec::<String>::new());
    // All of it: an older version must not come back.
    let second = id_of(&store, &bob, "second").await;
    store.forget(&bob, forget("bob", &[&second]), None).await.unwrap();
    assert_eq!(on_disk(&stage, "bob"), "");
    assert!(store.verify(&bob).await.unwrap().ok);
    store.rebuild(&bob, RebuildRequest { erase_vectors: false }).await.unwrap();
    assert_eq!(store.memory(&bob, "").await.unwrap().documents[0].text, "");
    store.close().await;
}

#[tokio::test]
async fn the_log_alone_gives_the_same_tables_and_files() {
    let stage = stage().await;
    let (bob, eve) = (stage.bob(), stage.caller("user:eve", Role::Curator));
    let store = stage.open().await;
    put(&store, &bob, "a\n\nb\n\nc").await;
    put(&store, &bob, "b\n\na\n\nnew\n\na").await;
    std::fs::write(file(&stage, "bob"), "by hand\n\na\n\nb").unwrap();
    put(&store, &bob, "a\n\nb\n\nby hand\n\nlast").await;
    std::fs::write(file(&stage, "bob"), b"\xff").unwrap();
    put(&store, &bob, "a\n\nb\n\nby hand\n\nlast of all").await;
    put(&store, &eve, "eve's").await;
    let gone = id_of(&store, &bob, "by hand").await;
    store.forget(&bob, forget("bob", &[&gone]), None).await.unwrap();
    put(&store, &bob, "b\n\nlast of all\n\nafter").await;
    let gone = id_of(&store, &bob, "b").await;
    store.forget(&bob, forget("bob", &[&gone]), None).await.unwrap();
    store.settle_down().await;
    let (live, page, versions) =
        (tables(&stage).await, store.memory(&bob, "").await.unwrap(), history(&store, &bob).await);
    store.rebuild(&bob, RebuildRequest { erase_vectors: false }).await.unwrap();
    assert_eq!(tables(&stage).await, live);
    store.close().await;
    // Tables and files lost: nothing but the log is left.
    sql(
        &stage.folder.join("lane.db"),
        "DELETE FROM memory_files; DELETE FROM memory_paragraphs; DELETE FROM memory_versions",
    )
    .await;
    std::fs::remove_dir_all(stage.folder.join("memory")).unwrap();
    let store = stage.open().await;
    assert_eq!(store.memory(&bob, "").await.unwrap().documents, []);
    store.rebuild(&bob, RebuildRequest { erase_vectors: false }).await.unwrap();
    assert_eq!(tables(&stage).await, live);
    assert_eq!(store.memory(&bob, "").await.unwrap(), page);
    assert_eq!(history(&store, &bob).await, versions);
    assert_eq!((on_disk(&stage, "bob").as_str(), on_disk(&stage, "eve").as_str()), ("last of all\n\nafter", "eve's"));
    store.close().await;
}

/// As a kill between commit and rename leaves it: the row unwritten, the old file on disk.
async fn killed_before_rename(stage: &Stage, old: &str) {
    let digest: String = sha2::Sha256::digest(old).iter().map(|byte| format!("{byte:02x}")).collect();
    sql(&stage.folder.join("lane.db"), &format!("UPDATE memory_files SET unwritten = 1, replaces = x'{digest}'")).await;
}

#[tokio::test]
async fn a_kill_between_event_and_file_is_healed_and_no_edit_is_lost() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    put(&store, &bob, "first").await;
    put(&store, &bob, "second").await;
    store.close().await;
    // Before the rename.
    std::fs::write(file(&stage, "bob"), "first").unwrap();
    std::fs::write(stage.folder.join("memory/bob/.MEMORY.md.part-x1y2z3"), "second").unwrap();
    killed_before_rename(&stage, "first").await;
    let store = stage.open().await;
    assert_eq!(on_disk(&stage, "bob"), "second");
    assert_eq!(std::fs::read_dir(stage.folder.join("memory/bob")).unwrap().count(), 1, "no part is left");
    assert_eq!(history(&store, &bob).await.len(), 2);
    store.close().await;
    // After the rename, before the mark.
    killed_before_rename(&stage, "first").await;
    let store = stage.open().await;
    assert_eq!((on_disk(&stage, "bob").as_str(), history(&store, &bob).await.len()), ("second", 2));
    assert!(tables(&stage).await[0].ends_with("|0"), "marked as written");
    store.close().await;
    // Edited by hand after the kill.
    std::fs::write(file(&stage, "bob"), "edited after the kill").unwrap();
    killed_before_rename(&stage, "first").await;
    let store = stage.open().await;
    assert_eq!(on_disk(&stage, "bob"), "second");
    let versions = store.memory_history(&bob).await.unwrap().versions;
    assert_eq!(versions.iter().map(|version| version.cause.as_str()).collect::<Vec<_>>(), ["conflict", "save", "save"]);
    let beside = stage.folder.join(format!("memory/bob/MEMORY.conflict-{}.md", versions[0].event_id));
    assert_eq!(std::fs::read_to_string(beside).unwrap(), "edited after the kill");
    // The conflict never was the file.
    store.rebuild(&bob, RebuildRequest { erase_vectors: false }).await.unwrap();
    assert_eq!(texts(&store.memory(&bob, "").await.unwrap()), ["second"]);
    store.close().await;
    // A file that is gone is no edit: it comes back from the log.
    std::fs::remove_dir_all(stage.folder.join("memory")).unwrap();
    let store = stage.open().await;
    assert_eq!(on_disk(&stage, "bob"), "second");
    std::fs::remove_file(file(&stage, "bob")).unwrap();
    assert_eq!(texts(&store.memory(&bob, "").await.unwrap()), ["second"]);
    let refused = store.save_memory(&bob, request("third", false), None, None).await.unwrap_err();
    assert!(matches!(refused, LaneError::PreconditionRequired { .. }));
    put(&store, &bob, "third").await;
    assert_eq!((on_disk(&stage, "bob").as_str(), history(&store, &bob).await.len()), ("third", 4));
    store.close().await;
}

#[tokio::test]
async fn a_kill_inside_a_forget_ends_with_nothing_of_it() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    let old = "keep\n\nsecretword";
    put(&store, &bob, old).await;
    std::fs::write(file(&stage, "bob"), b"\xff secretword").unwrap();
    let kept = put(&store, &bob, old).await.kept_hand_edit.unwrap();
    let id = id_of(&store, &bob, "secretword").await;
    store.forget(&bob, forget("bob", &[&id]), None).await.unwrap();
    store.settle_down().await;
    store.close().await;
    // Committed; neither the file nor the conflict file beside it was touched yet.
    std::fs::write(file(&stage, "bob"), old).unwrap();
    std::fs::write(stage.folder.join(format!("memory/bob/MEMORY.conflict-{kept}.md")), b"\xff secretword").unwrap();
    killed_before_rename(&stage, old).await;
    let store = stage.open().await;
    assert_eq!(on_disk(&stage, "bob"), "keep\n");
    assert_eq!(holding(&stage, &["secretword"]), Vec::<String>::new());
    store.close().await;
}

#[tokio::test]
async fn what_is_too_large_or_no_file_is_refused_and_left_alone() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    let over = "x".repeat(MEMORY_BYTES + 1);
    let refused = store.save_memory(&bob, request(&over, false), None, None).await.unwrap_err();
    assert_eq!(refused, LaneError::TooLarge { what: "text".into(), limit: MEMORY_BYTES });
    put(&store, &bob, &over[1..]).await;
    put(&store, &bob, "small").await;
    std::fs::write(file(&stage, "bob"), &over).unwrap();
    let page = store.memory(&bob, "").await.unwrap();
    assert_eq!(texts(&page), ["small"], "the last version is served");
    let etag = page.documents[0].etag.clone();
    let refused = store.save_memory(&bob, request("new", false), Some(etag.clone()), None).await.unwrap_err();
    assert!(matches!(refused, LaneError::TooLarge { what, .. } if what.contains("on the volume")));
    assert_eq!(std::fs::metadata(file(&stage, "bob")).unwrap().len(), over.len() as u64);
    // A link is never followed: it could lead out of the lane.
    std::fs::write(stage.folder.join("elsewhere"), "of another lane").unwrap();
    std::fs::remove_file(file(&stage, "bob")).unwrap();
    std::os::unix::fs::symlink(stage.folder.join("elsewhere"), file(&stage, "bob")).unwrap();
    assert_eq!(texts(&store.memory(&bob, "").await.unwrap()), ["small"]);
    let refused = store.save_memory(&bob, request("new", false), Some(etag), None).await.unwrap_err();
    assert_eq!(refused.code(), "memory_not_a_file");
    store.close().await;
}

#[tokio::test]
async fn a_file_behind_the_log_is_served_from_the_log_and_written_by_the_next_save() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    put(&store, &bob, "first").await;
    put(&store, &bob, "second").await;
    // As a request that was given up between commit and rename leaves it.
    std::fs::write(file(&stage, "bob"), "first").unwrap();
    killed_before_rename(&stage, "first").await;
    let page = store.memory(&bob, "").await.unwrap();
    assert_eq!((texts(&page), page.documents[0].text.as_str()), (vec!["second"], "second"));
    assert_ne!(page.paragraphs[0].seq, Seq(0));
    let saved = put(&store, &bob, "third").await;
    assert_eq!((on_disk(&stage, "bob").as_str(), saved.kept_hand_edit), ("third", None));
    store.close().await;
}

#[tokio::test]
async fn a_volume_that_gives_no_answer_refuses_saves_and_leaves_recall() {
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    let saved = put(&store, &bob, "the walrus").await;
    let aside = stage.folder.join("aside");
    std::fs::rename(stage.folder.join("memory"), &aside).unwrap();
    std::fs::write(stage.folder.join("memory"), "in the way").unwrap();
    let etag = Some(saved.document.etag);
    let refused = store.save_memory(&bob, request("second", false), etag.clone(), None).await.unwrap_err();
    assert!(refused.is_transient(), "{refused:?}");
    assert!(store.memory(&bob, "").await.unwrap_err().is_transient());
    assert_eq!(recall(&store, &bob, "walrus").await, ["the walrus"]);
    assert_eq!(store.head().0, saved.seq, "nothing was written");
    std::fs::remove_file(stage.folder.join("memory")).unwrap();
    std::fs::rename(&aside, stage.folder.join("memory")).unwrap();
    store.save_memory(&bob, request("second", false), etag, None).await.unwrap();
    assert_eq!(on_disk(&stage, "bob"), "second");
    store.close().await;
}

/// Kills a process at a failpoint and opens the lane again. Needs `--features test-hooks`.
#[cfg(feature = "test-hooks")]
mod kills {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use lanekeeper_core::clock::SystemClock;
    use lanekeeper_core::testing::HashEncoder;
    use lanekeeper_federation::FileRegistry;
    use lanekeeper_lane_store::{LaneConfig, LaneParts};

    const ROOT: &str = "LANEKEEPER_TEST_MEMORY_ROOT";
    const UID: &str = "LANEKEEPER_TEST_MEMORY_UID";
    const WHAT: &str = "LANEKEEPER_TEST_MEMORY_WHAT";

    async fn run_child(stage: &Stage, root: &Path, fault: &str, what: &str) -> std::process::Output {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "memory::kills::the_child", "--ignored", "--nocapture"]);
        child.env("LANEKEEPER_FAULT", fault).env(ROOT, root).env(UID, stage.uid.to_string()).env(WHAT, what);
        tokio::task::spawn_blocking(move || child.output()).await.unwrap().unwrap()
    }

    async fn in_a_child(stage: &Stage, root: &Path, point: &str, what: &str) {
        let output = run_child(stage, root, &format!("{point}=abort"), what).await;
        let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
        assert_eq!(signal, Some(6), "killed at {point} in {what}: {output:?}");
    }

    #[tokio::test]
    #[ignore = "run by the test below, in a process of its own"]
    async fn the_child() {
        let (Ok(root), Ok(uid), Ok(what)) = (std::env::var(ROOT), std::env::var(UID), std::env::var(WHAT)) else {
            return;
        };
        let stage = Stage::at(tempfile::tempdir().unwrap().path(), "team/acme", Arc::new(HashEncoder::new())).await;
        let uid: LaneUid = uid.parse().unwrap();
        let config = LaneConfig { folder: Path::new(&root).join("team.acme"), uid, ..stage.config() };
        let registry = Arc::new(FileRegistry::open(Path::new(&root).join("records")).unwrap());
        let parts =
            LaneParts { registry, encoder: Arc::new(HashEncoder::new()), vectors: None, clock: Arc::new(SystemClock) };
        let store = LaneStore::open(config, parts).await.unwrap();
        let bob = Caller { lane_uid: uid, ..stage.bob() };
        let scope = Scope::of_role(&bob.lane, uid, &bob.principal, Role::Admin).unwrap();
        let bob = Caller { scope: EffectiveScope { granted: scope, narrowed: None }, ..bob };
        match what.as_str() {
            "unwritten" => {
                return unwritten(&store, &bob, &Path::new(&root).join("team.acme/memory/bob/MEMORY.md")).await;
            }
            "save" => drop(put(&store, &bob, "keep\n\nsaved").await),
            _ => {
                let id = id_of(&store, &bob, "secretword").await;
                drop(store.forget(&bob, forget("bob", &[&id]), None).await.unwrap());
            }
        }
        panic!("it was to be killed");
    }

    /// The rename fails once: the save says so, stands in the log, is served from there, and upkeep writes it.
    async fn unwritten(store: &LaneStore, bob: &Caller, file: &Path) {
        let save = request("in the log", false);
        let failed = store.save_memory(bob, save.clone(), None, key("k", &save)).await.unwrap_err();
        assert!(failed.is_transient(), "{failed:?}");
        assert_eq!(texts(&store.memory(bob, "").await.unwrap()), ["in the log"]);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while std::fs::read_to_string(file).ok().as_deref() != Some("in the log") {
            assert!(std::time::Instant::now() < deadline, "upkeep never wrote the file");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let again = store.save_memory(bob, save.clone(), None, key("k", &save)).await.unwrap();
        assert_eq!((again.seq, store.head().0), (Seq(2), Seq(2)), "one event");
        store.close().await;
    }

    #[tokio::test]
    async fn a_save_whose_file_failed_is_written_by_upkeep() {
        let root = tempfile::tempdir().unwrap();
        let stage = Stage::at(root.path(), "team/acme", Arc::new(HashEncoder::new())).await;
        let output = run_child(&stage, root.path(), "memory_committed=error@1", "unwritten").await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    #[tokio::test]
    async fn a_kill_at_any_point_ends_with_the_last_event_in_the_file() {
        for point in ["before_commit", "after_commit", "memory_committed", "memory_renamed"] {
            for what in ["save", "forget"] {
                let root = tempfile::tempdir().unwrap();
                let stage = Stage::at(root.path(), "team/acme", Arc::new(HashEncoder::new())).await;
                let bob = stage.bob();
                let store = stage.open().await;
                put(&store, &bob, "keep\n\nsecretword").await;
                store.settle_down().await;
                store.close().await;
                std::fs::write(file(&stage, "bob"), "keep\n\nsecretword\n\nby hand").unwrap();
                in_a_child(&stage, root.path(), point, what).await;
                let store = stage.open().await;
                store.settle_down().await;
                let committed = point != "before_commit";
                let (expected, word) = match (committed, what) {
                    (false, _) => ("keep\n\nsecretword\n\nby hand", true),
                    (true, "save") => ("keep\n\nsaved", true),
                    (true, _) => ("keep\n\nby hand", false),
                };
                assert_eq!(on_disk(&stage, "bob"), expected, "{point} in {what}");
                assert_eq!(store.memory(&bob, "").await.unwrap().documents[0].text, expected, "{point} in {what}");
                let versions = history(&store, &bob).await;
                if committed {
                    assert_eq!(versions[0].2.as_deref(), Some(expected), "{point} in {what}");
                    assert_eq!(versions[1].1, "hand_edit", "{point} in {what}");
                }
                assert_eq!(!holding(&stage, &["secretword"]).is_empty(), word, "{point} in {what}");
                assert!(store.verify(&bob).await.unwrap().ok, "{point} in {what}");
                store.close().await;
            }
        }
    }
}
