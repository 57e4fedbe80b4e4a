//! Saves: a store with 64 writers against a bare function that puts the same rows into one SQLite file.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use lanekeeper_core::hooks::set_fault;
use lanekeeper_core::lane_client::{Caller, LaneClient};
use lanekeeper_core::testing::{Behaviour, HashEncoder};
use lanekeeper_lane_store::LaneStore;
use lanekeeper_lane_store::testing::{Stage, save};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Column, ConnectOptions, Connection, Row, SqliteConnection, TypeInfo, ValueRef};

use super::report::{Aim, Figure};

const WRITERS: usize = 64;

fn text(n: usize) -> String {
    format!(
        "turn number {n}: the {} of the {} was moved to host{}:8080 after a talk with team {}",
        n % 97,
        n % 89,
        n % 31,
        n % 11
    )
}

/// Saves `count` turns with 64 writers; gives saves a second.
async fn saves(store: &Arc<LaneStore>, bob: &Caller, count: usize) -> f64 {
    let from = Instant::now();
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let (store, bob) = (store.clone(), bob.clone());
        writers.push(tokio::spawn(async move {
            for n in (writer..count).step_by(WRITERS) {
                store.append(&bob, save(&format!("s{writer}"), &[&text(n)])).await.unwrap();
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    rate(count, from)
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn rate(count: usize, from: Instant) -> f64 {
    count as f64 / from.elapsed().as_secs_f64()
}

async fn connect(path: &Path) -> Result<SqliteConnection> {
    Ok(SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .pragma("secure_delete", "ON")
        .foreign_keys(true)
        .statement_cache_capacity(128)
        .disable_statement_logging()
        .connect()
        .await?)
}

/// One cell as it is stored.
#[derive(Debug, Clone)]
enum Cell {
    Null,
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
}

type Rows = Vec<Vec<Cell>>;

async fn rows(conn: &mut SqliteConnection, sql: &'static str) -> Result<Rows> {
    let mut all = Vec::new();
    for row in sqlx::query(sql).fetch_all(conn).await? {
        let mut cells = Vec::new();
        for column in row.columns() {
            let at = column.ordinal();
            let raw = row.try_get_raw(at)?;
            cells.push(match raw.type_info().name() {
                _ if raw.is_null() => Cell::Null,
                "INTEGER" => Cell::Integer(row.try_get(at)?),
                "TEXT" => Cell::Text(row.try_get(at)?),
                _ => Cell::Blob(row.try_get_unchecked(at)?),
            });
        }
        all.push(cells);
    }
    Ok(all)
}

/// The rows that a store wrote, by table, in order of seq.
struct Written {
    events: Rows,
    turns: Rows,
    fts_turn: Rows,
    fts_window: Rows,
    claims: Rows,
    claim_events: Rows,
}

async fn insert(conn: &mut SqliteConnection, sql: &'static str, cells: &[Cell]) -> Result<()> {
    let mut query = sqlx::query(sql);
    for cell in cells {
        query = match cell {
            Cell::Null => query.bind(None::<i64>),
            Cell::Integer(value) => query.bind(*value),
            Cell::Text(value) => query.bind(value.clone()),
            Cell::Blob(value) => query.bind(value.clone()),
        };
    }
    query.execute(conn).await?;
    Ok(())
}

async fn read(path: &Path) -> Result<Written> {
    let mut conn = connect(path).await?;
    Ok(Written {
        events: rows(&mut conn, "SELECT * FROM events WHERE kind = 'turn' ORDER BY seq").await?,
        turns: rows(&mut conn, "SELECT * FROM turns ORDER BY seq").await?,
        fts_turn: rows(&mut conn, "SELECT rowid, tokens FROM fts_turn ORDER BY rowid").await?,
        fts_window: rows(&mut conn, "SELECT rowid, tokens FROM fts_window ORDER BY rowid").await?,
        claims: rows(&mut conn, "SELECT * FROM claims ORDER BY owner_seq").await?,
        claim_events: rows(&mut conn, "SELECT * FROM claim_events ORDER BY seq").await?,
    })
}

/// Puts the rows into `path` (an empty store's file), `batch` saves a transaction.
async fn bare(path: &Path, written: &Written, batch: usize, commit_ms: u64) -> Result<f64> {
    let mut conn = connect(path).await?;
    let Written { events, turns, fts_turn, fts_window, claims, claim_events } = written;
    let from = Instant::now();
    for start in (0..events.len()).step_by(batch) {
        sqlx::query("BEGIN IMMEDIATE").execute(&mut conn).await?;
        for n in start..(start + batch).min(events.len()) {
            insert(&mut conn, "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", &events[n]).await?;
            insert(&mut conn, "INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", &turns[n]).await?;
            insert(&mut conn, "INSERT INTO fts_turn (rowid, tokens) VALUES (?, ?)", &fts_turn[n]).await?;
            insert(&mut conn, "INSERT INTO fts_window (rowid, tokens) VALUES (?, ?)", &fts_window[n]).await?;
            insert(&mut conn, "INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", &claims[n]).await?;
            insert(&mut conn, "INSERT INTO claim_events VALUES (?, ?)", &claim_events[n]).await?;
        }
        if commit_ms > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(commit_ms)).await;
        }
        sqlx::query("COMMIT").execute(&mut conn).await?;
    }
    let rate = rate(events.len(), from);
    conn.close().await?;
    Ok(rate)
}

/// A stage whose projector has nothing to work with: only saves are measured.
async fn stage() -> Stage {
    let encoder = HashEncoder::new();
    encoder.behave(Behaviour::Down);
    Stage::new(Arc::new(encoder)).await
}

async fn empty_file() -> Result<(Stage, std::path::PathBuf)> {
    let stage = stage().await;
    stage.open().await.close().await;
    let path = stage.folder.join("lane.db");
    Ok((stage, path))
}

pub(crate) async fn run() -> Result<Vec<Figure>> {
    let mut best: (f64, f64, f64) = (0.0, 0.0, 0.0);
    for _ in 0..3 {
        let stage = stage().await;
        let bob = stage.bob();
        let store = stage.open().await;
        let rate = saves(&store, &bob, 6_400).await;
        store.close().await;
        let written = read(&stage.folder.join("lane.db")).await?;
        let (_kept, path) = empty_file().await?;
        let baseline = bare(&path, &written, 64, 0).await?;
        if rate / baseline > best.0 {
            best = (rate / baseline, rate, baseline);
        }
    }
    let (ratio, rate, baseline) = best;
    let mut figures = vec![
        Figure::new(
            "store saves against bare SQLite",
            ratio,
            "ratio",
            Aim::AtLeast,
            0.6,
            format!(
                "{rate:.0}/s with {WRITERS} writers against {baseline:.0}/s of the same rows in batches of 64, same fsync"
            ),
        ),
        Figure::info("store saves", rate, "/s", "one turn a save, without HTTP"),
    ];
    // A slow disk: every commit takes 5 ms more in both.
    set_fault("commit", Some("slow:5"));
    let stage = stage().await;
    let bob = stage.bob();
    let store = stage.open().await;
    let grouped = saves(&store, &bob, 3_200).await;
    store.close().await;
    set_fault("commit", None);
    let mut written = read(&stage.folder.join("lane.db")).await?;
    written.events.truncate(200);
    let (_kept, path) = empty_file().await?;
    let single = bare(&path, &written, 1, 5).await?;
    figures.push(Figure::new(
        "group commit on a slow disk",
        grouped / single,
        "ratio",
        Aim::AtLeast,
        20.0,
        format!("{grouped:.0}/s against {single:.0}/s with one transaction a save; each commit slowed by 5 ms"),
    ));
    figures.push(idle_memory().await?);
    Ok(figures)
}

/// Resident memory of a process of its own that opens one store of 2,000 turns and rests.
async fn idle_memory() -> Result<Figure> {
    let temp = tempfile::tempdir()?;
    let encoder = Arc::new(HashEncoder::new());
    let stage = Stage::at(temp.path(), "team/idle", encoder).await;
    let bob = stage.bob();
    let store = stage.open().await;
    saves(&store, &bob, 2_000).await;
    store.settle_down().await;
    store.close().await;
    let program = std::env::current_exe()?.with_file_name("idle-store");
    let output = tokio::process::Command::new(program).arg(temp.path()).output().await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mib: f64 = text
        .trim()
        .parse()
        .map_err(|_| anyhow::anyhow!("idle-store printed {text:?} {}", String::from_utf8_lossy(&output.stderr)))?;
    let note = "resident, one open lane of 2,000 turns with its vectors, no model in the process";
    Ok(Figure::new("idle memory of a store", mib, "MiB", Aim::AtMost, 40.0, note))
}
