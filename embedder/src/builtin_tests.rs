//! The built-in encoder against the reference vectors and against pooling done by hand.
//!
//! All of it needs the model; without it a test says SKIPPED, or fails where
//! `LANEKEEPER_REQUIRE_MODEL=1` says that it has to be there.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use futures::future::join_all;
use serde::Deserialize;

use super::*;
use crate::weights::model_dir;

fn skip(what: &str, why: &str) {
    assert!(std::env::var("LANEKEEPER_REQUIRE_MODEL").as_deref() != Ok("1"), "{what}: {why}");
    // Not `eprintln`, which the test harness swallows.
    let _ = writeln!(std::io::stderr(), "SKIPPED {what}: {why}");
}

fn installed(what: &str) -> Option<Installed> {
    match model_dir().and_then(|dir| Installed::check(&dir)) {
        Ok(installed) => Some(installed),
        Err(error) => {
            skip(what, &error.to_string());
            None
        }
    }
}

/// One for all tests: 90 MB and some tenths of a second each are better spent once.
fn engine(what: &str) -> Option<&'static MiniLm> {
    static ENGINE: OnceLock<MiniLm> = OnceLock::new();
    let installed = installed(what)?;
    Some(ENGINE.get_or_init(|| MiniLm::load(&installed, BuiltinOptions { threads: 1, query_threads: 1 }).unwrap()))
}

fn encoder(what: &str) -> Option<BuiltinEncoder> {
    static ENCODER: OnceLock<BuiltinEncoder> = OnceLock::new();
    let installed = installed(what)?;
    Some(ENCODER.get_or_init(|| BuiltinEncoder::open(installed.dir()).unwrap()).clone())
}

fn work(lane: u8, kind: WorkKind) -> Work {
    Work { lane: format!("00000000-0000-4000-8000-0000000000{lane:02x}").parse().unwrap(), kind }
}

fn passage(context: &str, header: &str, chunk: &str) -> Passage {
    Passage { context: context.into(), header: header.into(), chunk: chunk.into() }
}

fn run(engine: &MiniLm, jobs: Vec<Job>) -> Vec<Done> {
    let ready: Vec<Ready> = jobs
        .into_iter()
        .map(|job| match engine.prepare(job) {
            Step::Run(ready) => ready,
            Step::Finished(result) => panic!("{result:?}"),
        })
        .collect();
    engine.run(0, &ready).unwrap()
}

fn vector(done: Done) -> Vec<f32> {
    match done {
        Done::Passage(PassageVector::Vector(vector)) => vector,
        Done::Passage(PassageVector::ChunkTooLong) | Done::Query(_) => panic!("no vector"),
    }
}

#[derive(Deserialize)]
struct Reference {
    items: Vec<ReferenceItem>,
}

#[derive(Deserialize)]
struct ReferenceItem {
    text: String,
    vector: Vec<f32>,
}

#[test]
fn vectors_are_those_of_the_reference() {
    let what = "vectors_are_those_of_the_reference";
    let Some(engine) = engine(what) else { return };
    let shared = std::env::var_os("LANEKEEPER_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared")), PathBuf::from);
    let file = shared.join("data/minilm-reference.json");
    let Ok(json) = std::fs::read(&file) else { return skip(what, &format!("no {}", file.display())) };
    let reference: Reference = serde_json::from_slice(&json).unwrap();
    assert_eq!(reference.items.len(), 10);
    let job = |item: &ReferenceItem| Job::Sentence(item.text.clone());
    let batched = run(engine, reference.items.iter().map(job).collect());
    for (number, (item, batched)) in reference.items.iter().zip(batched).enumerate() {
        let alone = vector(run(engine, vec![job(item)]).remove(0));
        let batched = vector(batched);
        let mut expected = item.vector.clone();
        pooling::normalise(&mut expected);
        for (how, vector) in [("alone", &alone), ("batched", &batched)] {
            let cosine = pooling::dot(vector, &expected);
            assert!(cosine > 0.999, "text {number} {how}: {cosine}");
        }
        assert!(pooling::dot(&alone, &batched) > 0.99999, "text {number} depends on its batch");
    }
}

#[tokio::test]
async fn a_question_has_its_own_tokens_and_no_padding() {
    let Some(encoder) = encoder("a_question_has_its_own_tokens_and_no_padding") else { return };
    let text = "Größe of the café's config.yaml?";
    let QueryEncoding::States { text: of, tokens } =
        encoder.encode_query(work(1, WorkKind::Query), text).await.unwrap()
    else {
        panic!("pooled")
    };
    let words: Vec<&str> = tokens.iter().map(|token| &of[token.start as usize..token.end as usize]).collect();
    assert_eq!(words, ["Gr", "ö", "ße", "of", "the", "café", "'", "s", "con", "fi", "g", ".", "ya", "ml", "?"]);
    assert!(tokens.iter().all(|token| token.state.len() == 384 && token.state.iter().all(|x| x.is_finite())));
    assert_ne!(tokens[0].state, tokens[3].state);
}

#[tokio::test]
async fn a_long_question_is_cut_and_an_empty_one_has_no_tokens() {
    let Some(encoder) = encoder("a_long_question_is_cut_and_an_empty_one_has_no_tokens") else { return };
    let ask = async |text: &str| match encoder.encode_query(work(1, WorkKind::Query), text).await.unwrap() {
        QueryEncoding::States { tokens, .. } => tokens,
        QueryEncoding::Pooled(_) => panic!("pooled"),
    };
    assert_eq!(ask(&"ä lot ".repeat(100_000)).await.len(), 254);
    for nothing in ["", "  ", "\u{0}\u{200b}"] {
        assert_eq!(ask(nothing).await.len(), 0, "{nothing:?}");
    }
    // Text that spells a special token is text.
    assert!(ask("[SEP]").await.len() > 1);
}

#[tokio::test]
async fn only_the_chunk_is_pooled_and_its_context_is_read() {
    let Some(encoder) = encoder("only_the_chunk_is_pooled_and_its_context_is_read") else { return };
    let Some(engine) = engine("only_the_chunk_is_pooled_and_its_context_is_read") else { return };
    let (context, header, chunk) =
        ("Bob: Do you mean the Müller account?", "[log 7f3a91c2 2026-03-14]", "Ana: Yes, it ends on Friday.");
    let text = format!("{context} {header} {chunk}");
    let start = text.len() - chunk.len();

    // By hand: the tokenizer's own encoding with its own special tokens, and a plain loop.
    let json = std::fs::read(installed("").unwrap().tokenizer()).unwrap();
    let mut tokenizer = tokenizers::Tokenizer::from_bytes(json).unwrap();
    tokenizer.with_padding(None);
    let encoding = tokenizer.encode(text.as_str(), true).unwrap();
    let states = engine.model.forward(&[encoding.get_ids()], &engine.seats[0]).unwrap();
    let mut expected = vec![0.0; 384];
    let mut pooled = 0;
    for (index, state) in states.of(0, 0..encoding.len()).enumerate() {
        if encoding.get_special_tokens_mask()[index] == 0 && encoding.get_offsets()[index].0 >= start {
            pooled += 1;
            for (total, value) in expected.iter_mut().zip(state) {
                *total += value;
            }
        }
    }
    assert_eq!(pooled, 9, "ana : yes , it ends on friday .");
    pooling::normalise(&mut expected);

    let passages = vec![passage(context, header, chunk), passage("", header, chunk), passage("", "", chunk)];
    let answers = encoder.encode_passages(work(1, WorkKind::Projection), passages).await.unwrap();
    let vectors: Vec<Vec<f32>> = answers
        .into_iter()
        .map(|answer| match answer {
            PassageVector::Vector(vector) => vector,
            PassageVector::ChunkTooLong => panic!("too long"),
        })
        .collect();
    assert!(pooling::dot(&vectors[0], &expected) > 0.99999);
    assert!(vectors.iter().all(|vector| (pooling::dot(vector, vector) - 1.0).abs() < 1e-5));
    // The context is read: it moves the vector, but does not become it.
    let moved = pooling::dot(&vectors[0], &vectors[1]);
    assert!((0.5..0.99).contains(&moved), "{moved}");
    assert!(pooling::dot(&vectors[1], &vectors[2]) < 0.999);
}

#[test]
fn without_context_or_header_there_is_no_leading_blank() {
    let Some(engine) = engine("without_context_or_header_there_is_no_leading_blank") else { return };
    let whole = |text: &str| engine.vocabulary.query(text).unwrap().ids;
    let of = |context, header, chunk| engine.vocabulary.passage(&passage(context, header, chunk)).unwrap().unwrap();
    assert_eq!(of("", "[log 1 2]", "chunk").ids, whole("[log 1 2] chunk"));
    assert_eq!(of("before", "", "chunk").ids, whole("before chunk"));
    assert_eq!(of("", "", "chunk"), PassageTokens { ids: whole("chunk"), pooled: 1..2 });
    // The blanks are part of the offsets that decide what is pooled.
    assert_eq!(of("before", "[x]", "chunk two").pooled, 5..7);
}

#[test]
fn a_chunk_without_tokens_of_its_own_has_a_vector() {
    let Some(engine) = engine("a_chunk_without_tokens_of_its_own_has_a_vector") else { return };
    for (header, pooled) in [("[x]", 1..4), ("", 0..2)] {
        let ready = engine.vocabulary.passage(&passage("", header, "\u{200b}\u{0}")).unwrap().unwrap();
        assert_eq!(ready.pooled, pooled);
        let vector = vector(engine.run(0, &[Ready::Passage(ready)]).unwrap().remove(0));
        assert!((pooling::dot(&vector, &vector) - 1.0).abs() < 1e-5);
    }
}

#[test]
fn a_context_is_cut_from_the_left_by_words_until_all_fits() {
    let Some(engine) = engine("a_context_is_cut_from_the_left_by_words_until_all_fits") else { return };
    // Words of several pieces, so that a cut by tokens would land inside one.
    let long: Vec<String> = (0..150).map(|number| format!("Unverträglichkeit{number}")).collect();
    let long = long.join(" ");
    let (header, chunk) = ("[log 7f3a91c2 2026-03-14]", "The chunk stays whole.");
    let tokens = engine.vocabulary.passage(&passage(&long, header, chunk)).unwrap().unwrap();
    let tail = engine.vocabulary.passage(&passage("", header, chunk)).unwrap().unwrap();
    let tail = &tail.ids[1..];
    assert!(tokens.ids.len() <= 256, "{}", tokens.ids.len());
    assert!(tokens.ids.ends_with(tail), "header and chunk are whole");
    assert_eq!(tokens.pooled, tokens.ids.len() - 6..tokens.ids.len() - 1, "the chunk's five tokens");
    // What is kept is a suffix by whole words, the longest that fits.
    let kept: Vec<usize> = (0..150)
        .filter(|&first| {
            let suffix = long.split(' ').skip(first).collect::<Vec<_>>().join(" ");
            engine.vocabulary.query(&format!("{suffix} {header} {chunk}")).unwrap().ids == tokens.ids
        })
        .collect();
    let [first] = kept[..] else { panic!("{kept:?}") };
    let word = engine.vocabulary.query(long.split(' ').nth(first - 1).unwrap()).unwrap().ids.len() - 2;
    assert!(tokens.ids.len() + word > 256, "one more word would have fitted");
    // A context of megabytes costs no more than its end.
    let huge = format!("{}{long}", "lorem ipsum ".repeat(200_000));
    assert_eq!(engine.vocabulary.passage(&passage(&huge, header, chunk)).unwrap().unwrap(), tokens);
}

#[tokio::test]
async fn a_chunk_that_does_not_fit_is_to_be_split() {
    let Some(encoder) = encoder("a_chunk_that_does_not_fit_is_to_be_split") else { return };
    // "a" and "[" "x" "]" are one token each: 3 + 251 + 2 special ones are 256.
    let passages = [251, 252].map(|count| passage("context", "[x]", &"a ".repeat(count)));
    let answers = encoder.encode_passages(work(1, WorkKind::Projection), passages.into()).await.unwrap();
    assert!(matches!(answers[0], PassageVector::Vector(_)));
    assert_eq!(answers[1], PassageVector::ChunkTooLong);
}

#[tokio::test]
async fn another_lanes_question_is_answered_beside_500_passages() {
    let Some(encoder) = encoder("another_lanes_question_is_answered_beside_500_passages") else { return };
    let many = (0..500).map(|number| passage("", "", &format!("Note {number}: {}", "the server said no. ".repeat(20))));
    let flood = encoder.encode_passages(work(1, WorkKind::Projection), many.collect());
    let question = encoder.encode_query(work(2, WorkKind::Query), "What did the server say?");
    tokio::select! {
        biased;
        answer = flood => panic!("the flood of {} ended first", answer.unwrap().len()),
        answer = question => assert!(answer.is_ok()),
    }
    // Its caller is gone: the rest of the flood is dropped, and the lane is free again.
    let again = encoder.encode_passages(work(1, WorkKind::Projection), vec![passage("", "", "after")]).await.unwrap();
    assert_eq!(again.len(), 1);
}

#[tokio::test]
async fn too_many_questions_of_one_lane_are_overload_and_other_lanes_go_on() {
    let Some(encoder) = encoder("too_many_questions_of_one_lane_are_overload_and_other_lanes_go_on") else { return };
    let text = "a question of some length ".repeat(40);
    let many = join_all((0..300).map(|_| encoder.encode_query(work(3, WorkKind::Query), &text)));
    let other = encoder.encode_query(work(4, WorkKind::Query), "one");
    let (many, other) = tokio::join!(many, other);
    assert!(other.is_ok());
    let refused = many.iter().filter(|answer| matches!(answer, Err(EncodeError::Overloaded))).count();
    let answered = many.iter().filter(|answer| answer.is_ok()).count();
    assert!(refused > 0 && answered >= QUERIES_PER_LANE, "{refused} refused, {answered} answered");
    assert_eq!(refused + answered, 300);
}

#[tokio::test]
async fn the_baseline_becomes_known_and_parts_related_from_unrelated() {
    let Some(encoder) = encoder("the_baseline_becomes_known_and_parts_related_from_unrelated") else { return };
    let baseline = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            if let Some(baseline) = encoder.baseline() {
                return baseline;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert!(baseline.pairs >= 3600, "{baseline:?}");
    assert!(baseline.mean < baseline.p99, "{baseline:?}");
    let sentences = Sentences::builtin();
    let cosine = async |question: &str, chunk: &str| {
        let question = encoder.encode_query(work(5, WorkKind::Query), question).await.unwrap();
        let question = sentences.pool_question(&question).unwrap();
        let header = "[log 7f3a91c2 2026-03-14]";
        let answers =
            encoder.encode_passages(work(5, WorkKind::Projection), vec![passage("", header, chunk)]).await.unwrap();
        match &answers[0] {
            PassageVector::Vector(vector) => pooling::dot(&question, vector),
            PassageVector::ChunkTooLong => panic!("too long"),
        }
    };
    // The exact text of a memory is over the floor, and so is a question that it answers.
    let memory = "We moved the nightly backup from two to four o'clock.";
    for related in [memory, "When does the nightly backup run?"] {
        let cosine = cosine(related, memory).await;
        assert!(cosine > f64::from(baseline.p99), "{related}: {cosine} against {baseline:?}");
    }
    let unrelated = cosine("Which colour has the parrot of my aunt?", memory).await;
    assert!(unrelated < f64::from(baseline.p99), "{unrelated} against {baseline:?}");
}
