//! What a token reaches: UID binding, current access, narrowing, reads, publishing, suspension.

use http::StatusCode;
use lanekeeper_core::lane::{Access, LaneKind, Reader};
use lanekeeper_core::scope::{Role, Scope};
use serde_json::json;

use super::fake::{BOB, EVE, HANDBOOK, NOW_MS, World, access, principal, uid, view};

fn turns() -> serde_json::Value {
    json!({"session": "s", "turns": [{"role": "user", "text": "hello"}]})
}

async fn status(world: &World, token: &str, method: &str, path: &str) -> (u16, String) {
    let body = (method == "POST").then(turns);
    let answer = world.ask(method, path, token, body).await;
    (answer.status.as_u16(), answer.code())
}

// C12
#[tokio::test]
async fn a_name_made_anew_ends_old_tokens_even_for_the_same_owner() {
    let world = World::new();
    let token = world.token("user:bob", BOB);
    assert_eq!(status(&world, &token, "GET", "/v1/lanes/team/bob/events").await.0, 200);
    world.put(view("team/bob", 77, LaneKind::Personal, Some("user:bob")), &world.bob);
    assert_eq!(status(&world, &token, "GET", "/v1/lanes/team/bob/events").await.0, 404);
    let recall = world.ask("POST", "/v1/recall", &token, Some(json!({"query": "x"}))).await;
    assert_eq!(recall.status, StatusCode::NOT_FOUND);
    let list = world.ask("GET", "/v1/lanes", &token, None).await;
    assert_eq!((list.status, list.json()), (StatusCode::OK, json!({"lanes": []})));
    world.remove("team/bob");
    assert_eq!(status(&world, &token, "GET", "/v1/lanes/team/bob/events").await.0, 404);
}

#[tokio::test]
async fn access_counts_as_it_is_now() {
    let world = World::new();
    let token = world.token("sa:team/agent", BOB);
    assert_eq!(status(&world, &token, "POST", "/v1/lanes/team/bob/events").await.0, 201);
    world.change("team/bob", |view| view.access = vec![access("sa:team/agent", Role::Reader)]);
    assert_eq!(status(&world, &token, "POST", "/v1/lanes/team/bob/events").await, (403, "gate_required".into()));
    world.change("team/bob", |view| view.access.clear());
    assert_eq!(status(&world, &token, "POST", "/v1/lanes/team/bob/events").await.0, 404);
}

#[tokio::test]
async fn a_token_narrows_and_never_widens() {
    let world = World::new();
    let name = "team/bob".parse().unwrap();
    let reader = Scope::of_role(&name, uid(BOB), &principal("user:bob"), Role::Reader).unwrap();
    let narrowed = world.token_with("user:bob", BOB, NOW_MS, Some(reader));
    assert_eq!(status(&world, &narrowed, "GET", "/v1/lanes/team/bob/events").await.0, 200);
    assert_eq!(status(&world, &narrowed, "POST", "/v1/lanes/team/bob/events").await, (403, "gate_required".into()));
    // It names no path of the handbook, so that is not there.
    assert_eq!(status(&world, &narrowed, "GET", "/v1/lanes/team/handbook/events").await.0, 404);
    let wide = Scope { may_touch: ["/lanes/**".parse().unwrap()].into(), auto_actions: None, ..Scope::nothing() };
    let widened = world.token_with("user:eve", EVE, NOW_MS, Some(wide));
    assert_eq!(status(&world, &widened, "GET", "/v1/lanes/team/bob/events").await.0, 404);
    assert_eq!(status(&world, &widened, "GET", "/v1/lanes/team/eve/events").await.0, 200);
    let human = Scope {
        may_touch: ["/lanes/**".parse().unwrap()].into(),
        auto_actions: None,
        escalate_actions: [lanekeeper_core::scope::Action::Save].into(),
        ..Scope::nothing()
    };
    let escalated = world.token_with("user:bob", BOB, NOW_MS, Some(human));
    assert_eq!(status(&world, &escalated, "POST", "/v1/lanes/team/bob/events").await, (403, "human_required".into()));
    let nothing = world.token_with("user:bob", BOB, NOW_MS, Some(Scope::nothing()));
    let list = world.ask("GET", "/v1/lanes", &nothing, None).await.json();
    assert_eq!(list, json!({"lanes": []}));
}

#[tokio::test]
async fn a_curated_save_takes_the_one_private_owner_path() {
    let world = World::new();
    let shared_only = Scope {
        may_touch: [format!("/lanes/team/bob@{}/memory/_shared/MEMORY.md", uid(BOB)).parse().unwrap()].into(),
        auto_actions: None,
        ..Scope::nothing()
    };
    let token = world.token_with("user:bob", BOB, NOW_MS, Some(shared_only));
    let save = async |shared: bool| {
        let body = json!({"text": "x", "shared": shared});
        let answer = world.ask("PUT", "/v1/lanes/team/bob/memory", &token, Some(body)).await;
        (answer.status.as_u16(), answer.code())
    };
    assert_eq!(save(true).await.0, 200);
    assert_eq!(save(false).await, (403, "single_private_owner_required".into()));
}

#[tokio::test]
async fn a_forget_is_decided_on_what_it_names() {
    let world = World::new();
    let token = world.token("user:bob", BOB);
    let forget = async |owner: &str| {
        let body = json!({"memory": {"owner": owner, "paragraphs": ["p"]}});
        world.ask("POST", "/v1/lanes/team/bob/forget", &token, Some(body)).await.status.as_u16()
    };
    assert_eq!(forget("bob").await, 200);
    assert_eq!(forget("_shared").await, 200);
    // Another owner's file, and what is no segment at all, do not exist for bob.
    for other in ["eve", "..", "a/b", ""] {
        assert_eq!(forget(other).await, 404, "{other}");
    }
}

// C16
#[tokio::test]
async fn reads_need_both_sides() {
    let world = World::new();
    let bob = world.token("user:bob", BOB);
    let handbook = "/v1/lanes/team/handbook/events";
    assert_eq!(status(&world, &bob, "GET", handbook).await.0, 200);
    let call = world.handbook.calls.lock().unwrap().last().unwrap().clone();
    assert_eq!(call.caller.reading_lane, Some(uid(BOB)));
    assert_eq!(call.caller.scope.granted, Scope::of_reads(&"team/handbook".parse().unwrap(), uid(HANDBOOK)).unwrap());
    // Recall and memory_read, no more.
    assert_eq!(status(&world, &bob, "POST", handbook).await, (403, "gate_required".into()));
    assert_eq!(status(&world, &bob, "GET", "/v1/lanes/team/handbook/memory").await.0, 200);
    assert_eq!(status(&world, &bob, "GET", "/v1/lanes/team/handbook/export").await.0, 403);
    // Not the other way round.
    let ann = world.token("user:ann", HANDBOOK);
    assert_eq!(status(&world, &ann, "GET", handbook).await.0, 200);
    assert_eq!(status(&world, &ann, "GET", "/v1/lanes/team/bob/events").await.0, 404);
    // One side is missing.
    for (lane, change) in [
        ("team/handbook", (|view: &mut lanekeeper_core::lane::LaneView| view.readers.clear()) as fn(&mut _)),
        ("team/handbook", |view: &mut lanekeeper_core::lane::LaneView| {
            view.readers = vec![Reader::Namespace("other".into())]
        }),
        ("team/handbook", |view: &mut lanekeeper_core::lane::LaneView| view.kind = LaneKind::Personal),
        ("team/bob", |view: &mut lanekeeper_core::lane::LaneView| view.reads.clear()),
        ("team/bob", |view: &mut lanekeeper_core::lane::LaneView| view.kind = LaneKind::Corpus),
        ("team/bob", |view: &mut lanekeeper_core::lane::LaneView| view.suspend = true),
    ] {
        let world = World::new();
        world.change("team/bob", |view| view.access = vec![access("user:bob", Role::Admin)]);
        let bob = world.token("user:bob", BOB);
        assert_eq!(status(&world, &bob, "GET", handbook).await.0, 200);
        world.change(lane, change);
        assert_eq!(status(&world, &bob, "GET", handbook).await.0, 404);
        let recall =
            world.ask("POST", "/v1/recall", &bob, Some(json!({"query": "x", "lanes": ["team/handbook"]}))).await;
        assert_eq!(recall.status, StatusCode::NOT_FOUND);
        assert_eq!(world.handbook.called(), ["list_events"]);
    }
}

#[tokio::test]
async fn publishing_into_a_corpus_lane_is_gated_for_who_has_a_personal_lane() {
    let world = World::new();
    let save = "/v1/lanes/team/handbook/events";
    world.change("team/handbook", |view| {
        view.access = vec![access("user:eve", Role::Admin), access("user:zoe", Role::Writer)]
    });
    let eve = world.token("user:eve", HANDBOOK);
    let zoe = world.token("user:zoe", HANDBOOK);
    assert_eq!(status(&world, &zoe, "POST", save).await.0, 201);
    assert_eq!(status(&world, &eve, "POST", save).await, (403, "gate_required".into()));
    let memory = world.ask("PUT", "/v1/lanes/team/handbook/memory", &eve, Some(json!({"text": "x"}))).await;
    assert_eq!((memory.status.as_u16(), memory.code()), (403, "gate_required".into()));
    let mut import = super::fake::request("POST", "/v1/lanes/team/handbook/import", Some(&eve), None);
    import.headers_mut().insert("content-type", "application/x-ndjson".parse().unwrap());
    assert_eq!(world.send(import).await.code(), "gate_required");
    // What publishes nothing is not gated, and the store is told the same.
    assert_eq!(status(&world, &eve, "GET", save).await.0, 200);
    let told = world.handbook.calls.lock().unwrap().last().unwrap().caller.clone();
    assert_eq!(told.on_events(lanekeeper_core::scope::Action::Save), lanekeeper_core::scope::Decision::Gate);
    world.change("team/handbook", |view| {
        view.access = vec![Access { may_publish: true, ..access("user:eve", Role::Admin) }];
    });
    assert_eq!(status(&world, &eve, "POST", save).await.0, 201);
    // Asked of the lanes as they are now.
    world.change("team/handbook", |view| view.access = vec![access("user:eve", Role::Admin)]);
    world.remove("team/eve");
    assert_eq!(status(&world, &eve, "POST", save).await.0, 201);
}

#[tokio::test]
async fn a_suspended_lane_answers_nothing() {
    let world = World::new();
    let token = world.token("user:bob", BOB);
    world.change("team/bob", |view| view.suspend = true);
    assert_eq!(status(&world, &token, "POST", "/v1/lanes/team/bob/events").await, (409, "lane_suspended".into()));
    let eve = world.token("user:eve", EVE);
    assert_eq!(status(&world, &eve, "POST", "/v1/lanes/team/bob/events").await.0, 404);
    let recall = world.ask("POST", "/v1/recall", &token, Some(json!({"query": "x"}))).await.json();
    assert_eq!(recall["coverage"]["complete_corpus"], false);
    assert_eq!(recall["coverage"]["lanes"][0]["arms"]["turn_text"]["reason"], "lane_suspended");
    assert_eq!(world.bob.called(), Vec::<&str>::new());
    let list = world.ask("GET", "/v1/lanes", &token, None).await.json();
    assert_eq!(list["lanes"][0]["reasons"], json!(["lane_suspended"]));
}

// C1, C2, C6
#[tokio::test]
async fn the_url_and_lanes_choose_and_never_widen() {
    let world = World::new();
    world.put(view("team/bob-corp", 9, LaneKind::Personal, Some("user:eve")), &world.eve);
    let token = world.token("user:bob", BOB);
    for path in [
        "/v1/lanes/team/bob-corp/events",
        "/v1/lanes/team/bo%25/events",
        "/v1/lanes/team/bob_/events",
        "/v1/lanes/team/BOB/events",
        "/v1/lanes/team%2Fbob/bob/events",
        "/v1/lanes/team/..%2Fteam%2Fbob/events",
        "/v1/lanes/team/%2562ob/events",
        "/v1/lanes/team/%ff/events",
        &format!("/v1/lanes/team/bob@{}/events", uid(BOB)),
        &format!("/v1/lanes/team/{}/events", uid(BOB)),
    ] {
        assert_eq!(status(&world, &token, "GET", path).await, (404, "not_found".into()), "{path}");
    }
    // Decoded once.
    assert_eq!(status(&world, &token, "GET", "/v1/lanes/team/%62ob/events").await.0, 200);
    world.bob.calls.lock().unwrap().clear();
    let recall = async |lanes: serde_json::Value| {
        let answer = world.ask("POST", "/v1/recall", &token, Some(json!({"query": "x", "lanes": lanes}))).await;
        (answer.status.as_u16(), answer.json()["errors"][0]["field"].as_str().map(str::to_owned))
    };
    assert_eq!(recall(json!(["other/x"])).await, (404, None));
    assert_eq!(recall(json!(["team/bob", "team/eve"])).await, (404, None));
    assert_eq!(recall(json!([uid(BOB).to_string()])).await, (400, Some("lanes[0]".into())));
    assert_eq!(recall(json!(["team/bob", format!("team/bob@{}", uid(BOB))])).await, (400, Some("lanes[1]".into())));
    assert_eq!(recall(json!([])).await, (400, Some("lanes".into())));
    assert_eq!(recall(json!(["%"])).await, (400, Some("lanes[0]".into())));
    assert_eq!(recall(json!("team/bob")).await, (400, Some("lanes".into())));
    assert_eq!(world.bob.called(), Vec::<&str>::new());
    assert_eq!(recall(json!(["team/bob", "team/bob"])).await.0, 200);
    assert_eq!(world.bob.called(), ["recall"]);
    assert_eq!(world.eve.called(), Vec::<&str>::new());
}
