//! kill −9 at random moments and at failpoints under load. The oracle is the client's own fsynced journal.
//!
//! `make crash KILLS=200 SEED=…` runs it long; `make test` runs 20 kills.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lanekeeper_tests::embed_server;
use lanekeeper_tests::process::{Server, client, post, write_lane};
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lanekeeper-hooked");
const POINTS: [&str; 5] = ["before_commit", "after_commit", "points_written", "points_flushed", "outbox_flushed"];

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).filter(|value| *value > 0).unwrap_or(default)
}

/// What the client knows for certain, on disk before it goes on.
struct Journal(Mutex<std::fs::File>);

impl Journal {
    fn write(&self, what: &str, text: &str, id: &str) {
        let mut file = self.0.lock().unwrap();
        writeln!(file, "{what}\t{text}\t{id}").unwrap();
        file.sync_data().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_event_is_lost_or_doubled() {
    let kills = setting("LANEKEEPER_KILLS", 20);
    let seed = setting("LANEKEEPER_SEED", rand::random_range(1..u64::from(u32::MAX)));
    eprintln!("kills {kills}, seed {seed}");
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    write_lane(root, "acme", "bob", "");
    let address = embed_server::start().await;
    let arguments: Vec<String> = [
        "--embedder",
        &format!("http://{address}"),
        "--embedder-model",
        embed_server::MODEL,
        "--embedder-dimension",
        &embed_server::DIMENSION.to_string(),
    ]
    .map(str::to_owned)
    .into();
    let path = root.join("journal");
    let journal = Arc::new(Journal(Mutex::new(std::fs::File::create(&path).unwrap())));
    let client = client();
    let mut token = None;
    let mut doubtful: Vec<(String, Value)> = Vec::new();
    let mut number = 0_u64;
    for _ in 0..kills {
        let mut environment = Vec::new();
        if random.random_bool(0.5) {
            let point = POINTS[random.random_range(0..POINTS.len())];
            environment.push(("LANEKEEPER_FAULT", format!("{point}=abort@{}", random.random_range(1..12))));
        }
        let Ok(mut server) = Server::start(PROGRAM, root, &arguments, &environment) else {
            // A failpoint may end it before it listens: the next start must heal.
            continue;
        };
        let token: &String = token.get_or_insert_with(|| server.token("team/acme", "user:bob"));
        let url = format!("{}/v1/lanes/team/acme/events", server.url);
        let mut writers = Vec::new();
        let retries = std::mem::take(&mut doubtful);
        for writer in 0..8_usize {
            let mut work: Vec<(String, Value)> = retries.iter().skip(writer).step_by(8).cloned().collect();
            for _ in 0..200 {
                number += 1;
                let text = format!("fact{number}x of writer{writer} under load");
                work.push((
                    text.clone(),
                    json!({"session": format!("s{}", number % 5), "turns": [{"role": "assistant", "text": text}]}),
                ));
            }
            let (client, url, token, journal) = (client.clone(), url.clone(), token.clone(), journal.clone());
            writers.push(tokio::spawn(async move {
                for (text, body) in work {
                    match post(&client, &url, &token, Some(&text.replace(' ', "-")), &body).await {
                        Ok((201, answer)) => {
                            let id = answer["events"][0]["id"].as_str().unwrap().to_owned();
                            journal.write("saved", &text, &id);
                            // Now and then one is forgotten again.
                            if text.as_bytes()[4] == b'7' {
                                let forget = url.replace("/events", "/forget");
                                if let Ok((200, _)) =
                                    post(&client, &forget, &token, None, &json!({"events": [id]})).await
                                {
                                    journal.write("forgotten", &text, &id);
                                } else {
                                    journal.write("forgetting", &text, &id);
                                }
                            }
                        }
                        Ok((429 | 503, _)) => tokio::time::sleep(Duration::from_millis(20)).await,
                        Ok((status, answer)) => panic!("{status}: {answer}"),
                        Err(_) => return Some((text, body)),
                    }
                }
                None
            }));
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(200..900))).await;
        server.kill();
        for writer in writers {
            if let Some(in_doubt) = writer.await.unwrap() {
                doubtful.push(in_doubt);
            }
        }
    }
    // The last start is a calm one: what was in doubt is tried again under its key.
    let mut server = Server::start(PROGRAM, root, &arguments, &[]).unwrap();
    let token = token.expect("at least one start got as far as a token");
    let events = format!("{}/v1/lanes/team/acme/events", server.url);
    for (text, body) in doubtful {
        let (status, answer) = post(&client, &events, &token, Some(&text.replace(' ', "-")), &body).await.unwrap();
        assert_eq!(status, 201, "{answer}");
        journal.write("saved", &text, answer["events"][0]["id"].as_str().unwrap());
    }
    let mut found: BTreeMap<String, u32> = BTreeMap::new();
    let mut gone = BTreeSet::new();
    let mut after = 0;
    loop {
        let response =
            client.get(format!("{events}?after={after}&limit=1000")).bearer_auth(&token).send().await.unwrap();
        let page: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        for event in page["events"].as_array().unwrap().iter().filter(|event| event["kind"] == "turn") {
            match event["text"].as_str() {
                Some(text) => *found.entry(text.to_owned()).or_default() += 1,
                None => drop(gone.insert(event["id"].as_str().unwrap().to_owned())),
            }
        }
        match page["next_after"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    let mut saved = BTreeMap::new();
    let mut forgotten = BTreeSet::new();
    let mut forgetting = BTreeSet::new();
    for line in std::fs::read_to_string(&path).unwrap().lines() {
        let mut fields = line.split('\t').map(str::to_owned);
        let (what, text, id) = (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap());
        match what.as_str() {
            "saved" => drop(saved.insert(text, id)),
            "forgotten" => drop(forgotten.insert(id)),
            _ => drop(forgetting.insert(id)),
        }
    }
    let lost: Vec<&String> = saved
        .iter()
        .filter(|(text, id)| !found.contains_key(*text) && !forgotten.contains(*id) && !forgetting.contains(*id))
        .map(|(text, _)| text)
        .collect();
    let doubled: Vec<&String> = found.iter().filter(|(_, count)| **count > 1).map(|(text, _)| text).collect();
    let returned: Vec<&String> = saved
        .iter()
        .filter(|(text, id)| forgotten.contains(*id) && found.contains_key(*text))
        .map(|(text, _)| text)
        .collect();
    let verify = format!("{}/v1/lanes/team/acme/verify", server.url);
    let (_, report) = post(&client, &verify, &token, None, &json!({})).await.unwrap();
    eprintln!(
        "acknowledged {}, found {}, forgotten {}, lost {}, doubled {}, chain {}",
        saved.len(),
        found.len(),
        forgotten.len(),
        lost.len(),
        doubled.len(),
        report["statement"]
    );
    assert!(saved.len() > usize::try_from(kills).unwrap(), "too little was acknowledged to show anything");
    assert_eq!((lost, doubled, returned), (vec![], vec![], vec![]));
    assert!(forgotten.iter().all(|id| gone.contains(id)));
    assert_eq!(report["ok"], true, "{report}");
    // Vectors are whole again too.
    let lanes = format!("{}/v1/lanes", server.url);
    let deadline = std::time::Instant::now() + Duration::from_secs(120);
    loop {
        let response = client.get(&lanes).bearer_auth(&token).send().await.unwrap();
        let list: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        if list["lanes"][0]["counts"]["pending_projection"] == 0 {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{list}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (status, took) = server.stop();
    assert!(status.success() && took < Duration::from_secs(5), "{status}, {took:?}");
}
