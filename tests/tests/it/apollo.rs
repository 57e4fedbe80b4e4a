//! The main job on real input: 11,259 turns of conversation through the API, on the built-in model.

use std::collections::HashSet;
use std::sync::Arc;

use lanekeeper_embedder::BuiltinEncoder;
use lanekeeper_query_service::rank::Steps;
use lanekeeper_tests::shared::{Line, questions, transcript};
use lanekeeper_tests::world::{LaneSpec, World, call};
use serde_json::{Value, json};

/// Distinct contents by other code than the product's: folded blanks, lower case, NFKC.
fn distinct(lines: &[Line]) -> usize {
    use unicode_normalization::UnicodeNormalization;
    let mut seen = HashSet::new();
    for line in lines {
        let folded: String = line.text.nfkc().collect::<String>().to_lowercase();
        seen.insert(folded.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    seen.len()
}

/// English function words, for choosing lines that say something; not the product's list.
const COMMON: &str = "a an the of to in on at for and or but is are was were be been it its this that these those i you he she we \
    they them your our my me us do does did have has had not no yes so as if then there here with from by up out about into over \
    what when where which who how why will would can could should may might just okay roger got get go going all one two now";

async fn evidence_recall(world: &World, token: &str, ranking: &str, all: &[Line]) -> f64 {
    let questions = questions().unwrap();
    let router = world.router_with(Steps::all());
    let mut found = 0_u32;
    for question in &questions {
        let body = json!({"query": question.query, "top_k": 5, "ranking": ranking}).to_string().into_bytes();
        let answer = call(&router, http::Method::POST, "/v1/recall", Some(token), &[], body).await.expect(200);
        let wanted: HashSet<&str> = question.lines.iter().map(|line| all[line - 1].text.as_str()).collect();
        let hit = answer["hits"].as_array().unwrap().iter().any(|hit| wanted.contains(hit["text"].as_str().unwrap()));
        found += u32::from(hit);
    }
    f64::from(found) / f64::from(u32::try_from(questions.len()).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_transcript_goes_in_and_every_line_is_found_again() {
    let Some(lines) = transcript() else { return };
    let encoder: Arc<BuiltinEncoder> = match lanekeeper_tests::builtin() {
        Some(encoder) => encoder,
        None => return,
    };
    let lanes = vec![LaneSpec::personal("apollo/thirteen", "flight"), LaneSpec::personal("apollo/other", "other")];
    let world = World::new(encoder, lanes).await;
    let token = world.token("apollo/thirteen", "user:flight");
    let mut batch: Vec<Value> = Vec::new();
    let mut saved = 0;
    let mut duplicates = 0;
    for (index, line) in lines.iter().enumerate() {
        batch.push(json!({"role": "assistant", "text": line.text, "speaker": line.speaker, "at": line.at}));
        let last = lines.get(index + 1).is_none_or(|next| next.session != line.session);
        if last || batch.len() == 256 {
            let body = json!({"session": line.session, "turns": std::mem::take(&mut batch)});
            let answer = world.post("/v1/lanes/apollo/thirteen/events", &token, body).await.expect(201);
            let events = answer["events"].as_array().unwrap();
            saved += events.len();
            duplicates += events.iter().filter(|event| event["projection"] == "duplicate").count();
        }
    }
    assert_eq!(saved, lines.len());
    assert_eq!(duplicates, lines.len() - distinct(&lines));
    let counts =
        world.recall(&token, json!({"query": "oxygen tank"})).await.expect(200)["coverage"]["lanes"][0]["counts"]
            .clone();
    assert_eq!(counts["events"], lines.len());

    // Vectors first: a turn without one yet is ranked by its text alone, behind those that have both.
    world.settle().await;
    let setting =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default);
    let (seed, count) = (setting("LANEKEEPER_SEED", 13), setting("LANEKEEPER_LINES", 200));
    eprintln!("seed {seed}, lines {count}");
    let common: HashSet<&str> = COMMON.split_whitespace().collect();
    let mut chosen: Vec<&Line> = lines
        .iter()
        .filter(|line| {
            let words: HashSet<String> = line
                .text
                .split(|c: char| !c.is_alphanumeric())
                .filter(|word| word.len() > 1)
                .map(str::to_lowercase)
                .filter(|word| !common.contains(word.as_str()))
                .collect();
            words.len() >= 4
        })
        .collect();
    {
        use rand::SeedableRng;
        use rand::seq::SliceRandom;
        chosen.shuffle(&mut rand_chacha::ChaCha8Rng::seed_from_u64(seed));
    }
    let fold = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let mut missed = Vec::new();
    for line in chosen.iter().take(usize::try_from(count).unwrap()) {
        let answer = world.recall(&token, json!({"query": line.text, "top_k": 50, "explain": true})).await.expect(200);
        let hit = answer["hits"]
            .as_array()
            .unwrap()
            .iter()
            .find(|hit| fold(hit["text"].as_str().unwrap()) == fold(&line.text));
        let Some(hit) = hit else {
            missed.push(line.text.as_str());
            continue;
        };
        let ranked = ["turn_text", "window_text"].iter().any(|arm| hit["arms"][arm]["rank"].is_u64());
        assert!(ranked, "no text rank: {hit}");
    }

    assert!(missed.is_empty(), "not among the first 50: {missed:#?}");
    let (fused, rrf) =
        (evidence_recall(&world, &token, "fused", &lines).await, evidence_recall(&world, &token, "rrf", &lines).await);
    eprintln!("evidence recall@5: fused {fused:.3}, rrf {rrf:.3}");
    assert!(fused >= rrf, "fused {fused} < rrf {rrf}");
    let report = world.post("/v1/lanes/apollo/thirteen/verify", &token, json!({})).await.expect(200);
    assert_eq!((report["ok"].as_bool(), report["events"].as_u64()), (Some(true), Some(lines.len() as u64 + 1)));
    // The other lane sees nothing of it.
    let other = world.token("apollo/other", "user:other");
    assert_eq!(world.texts(&other, "oxygen tank").await, Vec::<String>::new());
    world.close().await;
}
