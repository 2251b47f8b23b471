//! Statements that are stopped: nothing of them takes effect, and the client learns the true outcome.

use crate::raw::{Raw, message, shorts};
use crate::support::{Served, code, one, options};
use entresol::memory::Env;
use entresol::memory::env::{Fault, FaultyFiles};
use entresol::{Database, DomainChoice, Options};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

const ROWS: u32 = 60_000;
/// Maximum delay of a stop. Such tests run beside others, without optimisation.
const LATE_MAX: Duration = Duration::from_millis(1500);

/// A server on a journal, where commits wait for the disk.
async fn durable(dir: &tempfile::TempDir) -> Served {
    let database = Options::default().domain(DomainChoice::Journal).worker_threads(2);
    Served::on(Database::open(dir.path().join("db"), database).unwrap(), options()).await
}

/// Rows for the statements: all values are 0.
async fn fill(client: &Client) {
    let rows = format!("INSERT INTO old SELECT value, 0 FROM generate_series(1, {ROWS})");
    client.batch_execute("CREATE TABLE old (id INT PRIMARY KEY, n INT)").await.unwrap();
    client.batch_execute("CREATE TABLE new (id INT PRIMARY KEY, n INT)").await.unwrap();
    client.batch_execute(&rows).await.unwrap();
}

/// A statement, and a query that is true if and only if it happened, false if it did not: anything else is
/// half of it.
struct Statement {
    sql: String,
    happened: String,
    undo: &'static str,
}

fn statements() -> Vec<Statement> {
    let all_or_nothing = |query: &str, all: u32| {
        format!("SELECT CASE n WHEN {all} THEN 'yes' WHEN 0 THEN 'no' ELSE 'half' END FROM ({query}) AS q(n)")
    };
    vec![
        Statement {
            sql: format!("INSERT INTO new SELECT value, 1 FROM generate_series(1, {ROWS})"),
            happened: all_or_nothing("SELECT count(*) FROM new", ROWS),
            undo: "DELETE FROM new",
        },
        Statement {
            sql: "UPDATE old SET n = n + 1".to_owned(),
            happened: all_or_nothing("SELECT sum(n) FROM old", ROWS),
            undo: "UPDATE old SET n = 0",
        },
        Statement {
            sql: "DELETE FROM old".to_owned(),
            happened: all_or_nothing(&format!("SELECT {ROWS} - count(*) FROM old"), ROWS),
            undo: "INSERT INTO old SELECT value, 0 FROM generate_series(1, 60000)",
        },
        Statement {
            sql: "CREATE INDEX by_n ON old (n)".to_owned(),
            happened: all_or_nothing("SELECT count(*) FROM pg_indexes WHERE indexname = 'by_n'", 1),
            undo: "DROP INDEX by_n",
        },
    ]
}

async fn happened(client: &Client, statement: &Statement) -> bool {
    let answer = one(client, &statement.happened).await;
    assert!(["yes", "no"].contains(&answer.as_str()), "{answer} of {}", statement.sql);
    answer == "yes"
}

/// Runs a statement with shorter and longer timeouts, until it succeeds. The reported outcome must be true at
/// once and stay so.
async fn with_every_timeout(served: &Served, statement: &Statement, block: bool) {
    let (client, other) = (served.client().await, served.client().await);
    let mut stopped = 0;
    for time_ms in [1, 10, 30, 60, 100, 150, 200, 300, 500, 1000, 30_000] {
        client.batch_execute(&format!("SET statement_timeout = {time_ms}")).await.unwrap();
        let told = if block {
            client.batch_execute("BEGIN").await.unwrap();
            let ran = code(client.batch_execute(&statement.sql).await);
            let committed = code(client.batch_execute("COMMIT").await);
            if ran == "00000" { committed } else { ran }
        } else {
            code(client.batch_execute(&statement.sql).await)
        };
        let there = happened(&other, statement).await;
        assert!(["00000", "57014"].contains(&told.as_str()), "{told}");
        assert_eq!(there, told == "00000", "{told} after {time_ms} ms of {}, block: {block}", statement.sql);
        if there {
            other.batch_execute(statement.undo).await.unwrap();
            if time_ms >= 1000 {
                break;
            }
            continue;
        }
        stopped += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!happened(&other, statement).await, "later, after {time_ms} ms of {}", statement.sql);
    }
    assert!(stopped > 0, "the shortest time was long enough for {}", statement.sql);
}

#[tokio::test(flavor = "multi_thread")]
async fn timed_out_statements_take_no_effect_and_effects_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let served = durable(&dir).await;
    fill(&served.client().await).await;
    for statement in &statements() {
        with_every_timeout(&served, statement, false).await;
        // Definitions are no part of a transaction.
        if !statement.sql.starts_with("CREATE") {
            with_every_timeout(&served, statement, true).await;
        }
    }
    served.eventually("all have gone", |counts| counts.connections == 0).await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_statements_take_no_effect_and_effects_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let served = durable(&dir).await;
    let (client, other) = (served.client().await, served.client().await);
    fill(&client).await;
    for statement in &statements() {
        for time_ms in [5, 40, 120, 250, 400, 700] {
            let cancel = client.cancel_token();
            let cancelled = async move {
                tokio::time::sleep(Duration::from_millis(time_ms)).await;
                cancel.cancel_query(NoTls).await.unwrap();
            };
            let (told, ()) = tokio::join!(client.batch_execute(&statement.sql), cancelled);
            let told = code(told);
            let there = happened(&other, statement).await;
            assert_eq!(there, told == "00000", "{told} after {time_ms} ms of {}", statement.sql);
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(happened(&other, statement).await, there, "later, {}", statement.sql);
            if there {
                other.batch_execute(statement.undo).await.unwrap();
            }
        }
    }
    drop((client, other));
    served.eventually("all have gone", |counts| counts.connections == 0).await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_a_disconnected_client_takes_no_effect() {
    let dir = tempfile::tempdir().unwrap();
    let served = durable(&dir).await;
    let other = served.client().await;
    fill(&other).await;
    let long = "INSERT INTO new SELECT value, 1 FROM generate_series(1, 3000000)";
    for sql in [long.to_owned(), "UPDATE old SET n = n + 1".to_owned(), "DELETE FROM old".to_owned()] {
        let mut raw = Raw::start(served.address).await;
        raw.send(&message('Q', format!("{sql}\0").as_bytes())).await;
        tokio::time::sleep(Duration::from_millis(15)).await;
        drop(raw);
        served.eventually("it is gone", |counts| counts.connections == 1).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let untouched = format!("SELECT count(*) = {ROWS} AND sum(n) = 0 FROM old");
        assert_eq!(one(&other, "SELECT count(*) FROM new").await, "0", "{sql}");
        assert_eq!(one(&other, &untouched).await, "t", "{sql}");
    }
    drop(other);
    served.eventually("all have gone", |counts| counts.connections == 0).await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_from_a_query_that_was_stopped_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let served = durable(&dir).await;
    let (client, other) = (served.client().await, served.client().await);
    let absent = "SELECT count(*) FROM pg_class WHERE relname = 'made'";
    client.batch_execute("SET statement_timeout = 150").await.unwrap();
    let sql = "CREATE TABLE made AS SELECT value FROM generate_series(1, 3000000)";
    assert_eq!(code(client.batch_execute(sql).await), "57014");
    assert_eq!(one(&other, absent).await, "0");
    client.batch_execute("RESET statement_timeout").await.unwrap();
    let cancel = client.cancel_token();
    let cancelled = async move {
        tokio::time::sleep(Duration::from_millis(150)).await;
        cancel.cancel_query(NoTls).await.unwrap();
    };
    let (told, ()) = tokio::join!(client.batch_execute(sql), cancelled);
    assert_eq!(code(told), "57014");
    assert_eq!(one(&other, absent).await, "0");
    client.batch_execute("CREATE TABLE made AS SELECT 1 AS one").await.unwrap();
    drop((client, other));
    served.eventually("all have gone", |counts| counts.connections == 0).await;
    served.stop().await;
}

/// Queries of every kind of loop that would take minutes.
const LOOPS: [&str; 8] = [
    // Pairs of which none meets the condition: not one batch comes out.
    "SELECT count(*) FROM generate_series(1, 300000) a, generate_series(1, 300000) b WHERE a.value + b.value < 0",
    "SELECT count(*) FROM generate_series(1, 300000) a, generate_series(1, 300000) b",
    "SELECT count(*) FROM generate_series(1, 300000) a JOIN generate_series(1, 300000) b \
     ON a.value % 2 = b.value % 2 AND a.value + b.value < 0",
    "SELECT a.value FROM generate_series(1, 100000000) a ORDER BY a.value % 1000, -a.value LIMIT 5 OFFSET 2000",
    "SELECT count(*) FROM (SELECT a.value % 7919 AS v, count(*) FROM generate_series(1, 1000000000) a GROUP BY 1) q",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 1000000000) SELECT max(n) FROM r",
    // Functions that take long for each row, and results that would be gigabytes for a batch.
    "SELECT sum(length(regexp_replace(repeat('ab', 1000 + a.value % 2), '(a)(b)', '\\2\\1', 'g'))) \
     FROM generate_series(1, 100000000) a",
    "SELECT sum(length(repeat('x', 1000000) || a.value)) FROM generate_series(1, 100000000) a",
];

/// Runs each loop once: code that was never run is read from the disk first, which may take seconds and is
/// not measured.
async fn run_once(client: &Client) {
    client.batch_execute("SET statement_timeout = 100").await.unwrap();
    for sql in LOOPS {
        assert_eq!(code(client.batch_execute(sql).await), "57014", "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_loop_stops_in_time() {
    let served = Served::start().await;
    let client = served.client().await;
    run_once(&client).await;
    client.batch_execute("SET statement_timeout = 300").await.unwrap();
    for sql in LOOPS {
        let start = Instant::now();
        assert_eq!(code(client.batch_execute(sql).await), "57014", "{sql}");
        let late = start.elapsed().saturating_sub(Duration::from_millis(300));
        println!("{late:?} late: {sql}");
        assert!(late < LATE_MAX, "{late:?} late: {sql}");
    }
    drop(client);
    served.eventually("all have gone", |counts| counts.connections == 0).await;
    served.memory_is_back().await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_loop_stops_when_its_client_is_gone() {
    let served = Served::start().await;
    let client = served.client().await;
    run_once(&client).await;
    drop(client);
    served.eventually("the first client has gone", |counts| counts.connections == 0).await;
    for sql in LOOPS {
        let mut raw = Raw::start(served.address).await;
        raw.send(&message('Q', format!("{sql}\0").as_bytes())).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let start = Instant::now();
        drop(raw);
        served.eventually(sql, |counts| counts.connections == 0).await;
        println!("{:?}: {sql}", start.elapsed());
        assert!(start.elapsed() < 2 * LATE_MAX, "{:?}: {sql}", start.elapsed());
    }
    served.memory_is_back().await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_a_write_returned_are_told_although_the_time_is_over() {
    let served = Served::start().await;
    let mut raw = Raw::start(served.address).await;
    raw.query("CREATE TABLE t (id INT PRIMARY KEY, long VARCHAR)").await;
    raw.query("SET statement_timeout = 1500").await;
    // More than the sockets hold, and the client does not read until the time is over.
    let sql = "INSERT INTO t SELECT value, repeat('x', 1000) FROM generate_series(1, 8000) RETURNING *\0";
    raw.send(&message('Q', sql.as_bytes())).await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let answers = shorts(&raw.until_ready().await);
    let told = &answers[answers.len() - 2];
    let there = raw.query("SELECT id FROM t").await.iter().filter(|answer| *answer == "D").count();
    assert_eq!(there > 0, told == "C INSERT 0 8000", "{told}, and {there} rows are there");
    drop(raw);
    served.eventually("all have gone", |counts| counts.connections == 0).await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_unknown_outcome_is_reported_as_that() {
    for block in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let files = FaultyFiles::new();
        let mut database = Options::default().domain(DomainChoice::Journal).worker_threads(2);
        database.env = Env::real().with_files(Arc::new(files.clone()));
        let served = Served::on(Database::open(dir.path().join("db"), database).unwrap(), options()).await;
        let client = served.client().await;
        client.batch_execute("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)").await.unwrap();
        if block {
            client.batch_execute("BEGIN; INSERT INTO t VALUES (2)").await.unwrap();
        }
        files.arm(Fault::SyncError, 0);
        let sql = if block { "COMMIT" } else { "INSERT INTO t VALUES (2)" };
        assert_eq!(code(client.batch_execute(sql).await), "08007");
        assert_eq!(code(client.batch_execute("INSERT INTO t VALUES (3)").await), "58030");
        assert_eq!(one(&client, "SELECT count(*) FROM t").await, "1", "reads go on");
        drop(client);
        served.eventually("all have gone", |counts| counts.connections == 0).await;
        served.stop().await;
    }
}
