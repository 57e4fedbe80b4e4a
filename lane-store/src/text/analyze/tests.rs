//! Tests of the analyzer.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sqlx::{Connection, SqliteConnection};

use super::*;

fn tokens(text: &str) -> Vec<String> {
    document_tokens(text, Language::English)
}

fn terms(text: &str) -> Vec<String> {
    query_terms(text, Language::English).terms.into_iter().map(|term| term.token).collect()
}

fn enc(list: &[&str]) -> Vec<String> {
    list.iter().map(|token| encode(token)).collect()
}

#[test]
fn documents_keep_stop_words_repeats_and_order() {
    assert_eq!(tokens("The cats sat; the CATS ran."), enc(&["the", "cat", "sat", "the", "cat", "ran"]));
    assert_eq!(document_tokens("The cats", Language::None), enc(&["the", "cats"]));
    assert_eq!(document_tokens("Häuser", Language::German), document_tokens("haus", Language::German));
    assert_eq!(document_tokens("nacionales", Language::Spanish), document_tokens("nacional", Language::Spanish));
    assert_eq!(document_tokens("continuelles", Language::French), document_tokens("continuel", Language::French));
}

#[test]
fn c25_literals_are_whole_words_beside_their_pieces() {
    for (text, expected) in [
        ("GB/s", vec!["gb", "s", "gb/s"]),
        ("multi-agent", vec!["multi", "agent", "multi-agent"]),
        ("v2.5 release", vec!["v2", "5", "v2.5", "releas"]),
        ("host:8080", vec!["host", "8080", "host:8080"]),
        ("a'b", vec!["a", "b", "a'b"]),
        ("C++", vec!["c", "c++"]),
        ("rm -rf", vec!["rm", "rf", "-rf"]),
        ("DO NOT USE", vec!["do", "not", "use"]),
        ("BENCH-100821", vec!["bench", "100821", "bench-100821"]),
        ("(\"BENCH-100821\"),", vec!["bench", "100821", "bench-100821"]),
        ("multi\u{2011}agent", vec!["multi", "agent", "multi-agent"]),
    ] {
        assert_eq!(tokens(text), enc(&expected), "{text}");
    }
    assert_eq!(terms("DO NOT USE"), enc(&["use"]));
    assert_eq!(terms("GB/s"), enc(&["gb", "gb/s"]));
    assert_eq!(terms("a'b"), enc(&["b", "a'b"]));
    assert_ne!(tokens("C++"), tokens("C#"));
}

#[test]
fn c25_a_whole_prompt_is_cut_to_its_rarest_terms() {
    let prompt: String = (0..600).map(|n| format!("word{n} ")).collect();
    assert!(prompt.len() > 4_000);
    let mut found = query_terms(&prompt, Language::English);
    assert_eq!(found.terms.len(), 600);
    let number = |token: &str| token.trim_start_matches("word").parse::<u64>().unwrap();
    // Term n stands in 600 − n rows, and the last stands in none.
    found.keep_rarest(256, |token| 599 - number(token));
    assert_eq!(found.terms.len(), 256);
    assert_eq!(found.terms.first().unwrap().token, "word343");
    assert_eq!(found.terms.last().unwrap().token, "word598", "what no row holds finds nothing");
    let endless: String = (0..5_000).map(|n| format!("w{n} ")).collect();
    assert_eq!(query_terms(&endless, Language::English).terms.len(), MAX_QUERY_TERMS);
}

#[test]
fn c26_nothing_to_search_for_is_no_terms() {
    for text in ["", " \n", "the of and", "The, OF; \"and\"!", "```", "...", "don't", "\u{feff}", "\u{202e}", "\0"] {
        let found = query_terms(text, Language::English);
        assert!(!found.searchable(), "{text:?}: {found:?}");
        assert_eq!(match_expression(&found.terms), None);
    }
    assert!(query_terms("the of and", Language::None).searchable());
}

#[test]
fn c26_an_emoji_finds_itself_and_only_itself() {
    assert_eq!(terms("🎉"), enc(&["🎉"]));
    assert!(tokens("shipped🎉🎉!").contains(&encode("🎉")));
    assert_eq!(terms("👍🏽"), tokens("👍"));
    assert_eq!(terms("❤\u{fe0f}"), tokens("❤"));
    assert_ne!(terms("🎉"), tokens("🎊"));
}

#[test]
fn punctuation_is_asked_for_only_where_it_is_all_that_is_asked() {
    assert_eq!(terms("&&"), enc(&["&&"]));
    assert_eq!(terms(">= <="), enc(&[">=", "<="]));
    assert_eq!(terms("disk - full"), enc(&["disk", "full"]));
    assert!(terms("what - of").is_empty(), "a lone dash would hit half the lane");
    assert_eq!(tokens("disk - full"), enc(&["disk", "-", "full"]));
}

#[test]
fn contractions_say_no_more_than_their_pieces() {
    assert_eq!(tokens("don\u{2019}t"), enc(&["don", "t"]));
    assert!(terms("don't won't what's it’s you're").is_empty());
    assert_eq!(terms("Don won Caroline's race"), enc(&["don", "won", "carolin", "race"]));
    assert_eq!(terms("rock'n'roll"), enc(&["rock", "n", "roll", "rock'n'roll"]));
    let french: Vec<_> =
        query_terms("l'eau d\u{2019}accord", Language::French).terms.into_iter().map(|term| term.token).collect();
    assert_eq!(french, enc(&["eau", "accord"]));
    assert_eq!(terms("and/or to-do"), enc(&["and/or", "to-do"]), "stop words apply to pieces only");
}

#[test]
fn c28_scripts_without_blanks_are_pairs() {
    assert_eq!(tokens("数据库"), enc(&["数据", "据库"]));
    assert_eq!(tokens("GPU节点故障"), enc(&["gpu", "节点", "点故", "故障"]));
    assert_eq!(tokens("猫"), enc(&["猫"]));
    assert_eq!(tokens("第3章"), enc(&["第", "3", "章"]));
    assert_eq!(tokens("サーバー"), enc(&["サー", "ーバ", "バー"]));
    assert_eq!(tokens("ｻｰﾊﾞｰ"), tokens("サーバー"), "half-width kana");
    assert_eq!(tokens("\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}"), tokens("한글"), "decomposed Hangul");
    assert_eq!(terms("节点"), enc(&["节点"]));
    assert_eq!(terms("ＧＰＵ节点"), terms("gpu节点"));
    assert_eq!(tokens("你好，世界。"), enc(&["你好", "世界"]));
    assert_eq!(tokens("ที่นี่").len(), 1, "marks stay with their letter: one pair");
}

#[test]
fn c28_two_characters_find_the_right_sentence_and_not_all() {
    let sentences = [
        ["他昨天修好了数据库。", "今天下雨了。", "我们换了新的缓存。", "GPU节点又故障了。", "部署在星期五进行。"],
        [
            "昨日データベースを直した。",
            "今日は雨です。",
            "新しいキャッシュに替えた。",
            "会議は金曜日です。",
            "鍵をなくした。",
        ],
        [
            "어제 데이터베이스를 고쳤다.",
            "오늘은 비가 온다.",
            "새 캐시로 바꿨다.",
            "회의는 금요일이다.",
            "열쇠를 잃어버렸다.",
        ],
    ];
    for (language, queries) in
        [["数据", "缓存", "节点"], ["雨で", "会議", "鍵を"], ["캐시", "회의", "열쇠"]].iter().enumerate()
    {
        for query in queries {
            let asked = terms(query);
            let hits: Vec<_> = sentences[language]
                .iter()
                .filter(|sentence| tokens(sentence).iter().any(|token| asked.contains(token)))
                .collect();
            assert!(hits.len() == 1 && hits[0].contains(query), "{query}: {hits:?}");
        }
    }
}

#[test]
fn c21_what_is_invisible_does_not_hide_a_word() {
    assert_eq!(tokens("\u{feff}deploy"), tokens("deploy"));
    assert_eq!(tokens("\u{202e}deploy\u{202c}"), tokens("deploy"));
    assert_eq!(tokens("de\u{ad}ploy"), tokens("deploy"));
    assert_eq!(tokens("disk\0full"), enc(&["disk", "full"]));
    assert_eq!(tokens("cafe\u{301}"), tokens("caf\u{e9}"));
}

#[test]
fn words_have_their_place() {
    let text = "Don't, GPU节点 the é!";
    let words = words_with_offsets(text, Language::English);
    let shown: Vec<_> = words
        .iter()
        .map(|word| (&text[word.start..word.end], word.is_stop, word.is_punct, word.tokens.len()))
        .collect();
    assert_eq!(
        shown,
        [
            ("Don", true, false, 1),
            ("'", false, true, 0),
            ("t", true, false, 1),
            (",", false, true, 0),
            ("GPU", false, false, 1),
            ("节", false, false, 1),
            ("点", false, false, 1),
            ("the", true, false, 1),
            ("é", false, false, 1),
            ("!", false, true, 0),
        ]
    );
}

#[test]
fn c22_a_megabyte_is_analysed_at_once() {
    for unit in ["a", "a ", "C++ ", "節", "\u{301}", "e\u{301}", "z", "🎉"] {
        let text = unit.repeat(1_000_000 / unit.len());
        let started = std::time::Instant::now();
        assert!(!tokens(&text).is_empty());
        assert!(started.elapsed().as_secs() < 3, "{unit:?}: {:?}", started.elapsed());
    }
}

/// Random text of the kinds that broke others: any character, controls, marks, scripts, syntax.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[a-zA-Z0-9'’\"`*()+:^~\\-_.,;!? \u{0}\u{feff}\u{202e}]{0,60}",
        "[\u{300}-\u{36f}a-zäöüßéèñ一-三ぁ-んァ-ヶ가-힣ก-๛]{0,60}",
    ]
}

#[test]
fn c25_ten_thousand_random_strings_never_panic_and_find_themselves() {
    let languages = [Language::English, Language::German, Language::French, Language::Spanish, Language::None];
    let mut runner = TestRunner::new(Config { cases: 10_000, failure_persistence: None, ..Config::default() });
    runner
        .run(&(any_text(), 0..languages.len()), |(text, language)| {
            let language = languages[language];
            let stored: HashSet<String> = document_tokens(&text, language).into_iter().collect();
            for token in &stored {
                prop_assert!(!token.is_empty() && token.len() <= 64);
                prop_assert!(token.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()));
            }
            for term in query_terms(&text, language).terms {
                prop_assert!(stored.contains(&term.token), "{:?} is not stored", term);
            }
            let mut end = 0;
            for word in words_with_offsets(&text, language) {
                prop_assert!(word.start >= end && word.end > word.start && text.get(word.start..word.end).is_some());
                end = word.end;
                for token in word.tokens {
                    prop_assert!(stored.contains(&token), "{:?} is not stored", token);
                }
            }
            Ok(())
        })
        .unwrap();
}

/// FTS5 itself: one token each, no syntax, and only the literal is found.
#[tokio::test]
async fn c25_fts5_takes_every_query_and_finds_the_literal() {
    let mut db = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    sqlx::query("CREATE VIRTUAL TABLE t USING fts5(tokens)").execute(&mut db).await.unwrap();
    sqlx::query("CREATE VIRTUAL TABLE v USING fts5vocab(t, 'row')").execute(&mut db).await.unwrap();
    let literals = [
        "GB/s",
        "multi-agent",
        "v2.5 release",
        "host:8080",
        "a'b",
        "C++",
        "rm -rf",
        "DO NOT USE",
        "BENCH-100821",
        "节点",
        "🎉",
        "OR",
        "NEAR(a b)",
        "\"",
        "tokens:x",
        "^start",
        "end*",
    ];
    let mut stored = HashSet::new();
    for literal in literals {
        let tokens = tokens(&format!("unrelated {literal} words"));
        stored.extend(tokens.iter().cloned());
        sqlx::query("INSERT INTO t(tokens) VALUES (?)").bind(tokens.join(" ")).execute(&mut db).await.unwrap();
    }
    let vocabulary: Vec<String> = sqlx::query_scalar("SELECT term FROM v").fetch_all(&mut db).await.unwrap();
    assert_eq!(vocabulary.into_iter().collect::<HashSet<_>>(), stored, "one token in, one term stored");
    for (index, literal) in literals.into_iter().enumerate() {
        let found = query_terms(literal, Language::English);
        let Some(expression) = match_expression(&found.terms) else {
            assert!(["OR", "\""].contains(&literal), "{literal}");
            continue;
        };
        let rows: Vec<i64> = sqlx::query_scalar("SELECT rowid FROM t WHERE t MATCH ? ORDER BY rank")
            .bind(expression)
            .fetch_all(&mut db)
            .await
            .unwrap();
        assert!(rows.contains(&(i64::try_from(index).unwrap() + 1)), "{literal}");
        assert!(rows.len() < literals.len(), "{literal} finds everything");
    }
    // The widest expression there can be.
    let endless: String = (0..5_000).map(|n| format!("w{n} ")).collect();
    let expression = match_expression(&query_terms(&endless, Language::English).terms).unwrap();
    let none: Vec<i64> =
        sqlx::query_scalar("SELECT rowid FROM t WHERE t MATCH ?").bind(expression).fetch_all(&mut db).await.unwrap();
    assert!(none.is_empty());
}
