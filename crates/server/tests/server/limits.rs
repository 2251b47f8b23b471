//! Limits of clients, and the end of clients that exceed them, disconnect, or are ended.

use crate::raw::{Raw, extended, message, shorts, startup};
use crate::support::{Served, code, one, options};
use entresol::memory::budget::MemorySize;
use entresol::{Database, Options};
use entresol_server::{Limits, ServerOptions};
use std::time::{Duration, Instant};
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// Takes for ever, unless it is interrupted.
const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100000000) b";

fn limited(change: impl FnOnce(&mut Limits)) -> ServerOptions {
    let mut options = options();
    change(&mut options.limits);
    options
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_request_ends_the_statement() {
    let served = Served::start().await;
    let client = served.client().await;
    let cancel = client.cancel_token();
    client.batch_execute("CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    client.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await.unwrap();
    let canceller = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        cancel.cancel_query(NoTls).await.unwrap();
    });
    let start = Instant::now();
    assert_eq!(code(client.batch_execute(ENDLESS).await), "57014");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    canceller.await.unwrap();
    assert_eq!(code(client.batch_execute("SELECT 1").await), "25P02", "the block has failed");
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "0");
    assert_eq!(served.metric("entresol_cancelled_total").await, 1.0);
    // Nothing runs: nothing is cancelled.
    client.cancel_token().cancel_query(NoTls).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(one(&client, "SELECT 1").await, "1");
    drop(client);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_have_a_time_limit() {
    let served = Served::with(limited(|limits| limits.statement = Some(Duration::from_millis(300)))).await;
    let client = served.client().await;
    assert_eq!(code(client.batch_execute(ENDLESS).await), "57014");
    assert_eq!(one(&client, "SELECT 1").await, "1");
    client.batch_execute("SET statement_timeout = '50ms'").await.unwrap();
    let start = Instant::now();
    assert_eq!(code(client.batch_execute(ENDLESS).await), "57014");
    assert!(start.elapsed() >= Duration::from_millis(50));
    drop(client);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_transactions_end() {
    let limit = Some(Duration::from_millis(200));
    let served = Served::with(limited(|limits| limits.idle_in_transaction = limit)).await;
    let (mut raw, other) = (Raw::start(served.address).await, served.client().await);
    raw.query("CREATE TABLE t (id INT PRIMARY KEY)").await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(raw.query("BEGIN").await, ["C BEGIN", "Z T"], "idle outside of a transaction is no harm");
    raw.query("INSERT INTO t VALUES (1)").await;
    assert_eq!(shorts(&raw.until_ready().await), ["E FATAL 25P03"]);
    served.eventually("the transaction ends", |counts| counts.open_transactions == 0).await;
    assert_eq!(one(&other, "SELECT count(*) FROM t").await, "0");
    drop((raw, other));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_connections_are_refused_and_others_go_on() {
    let served = Served::with(limited(|limits| limits.connections = 3)).await;
    let clients = [served.client().await, served.client().await, served.client().await];
    assert_eq!(code(served.connect(&served.config()).await), "53300");
    assert_eq!(one(&clients[0], "SELECT 1").await, "1");
    // A cancel request needs no place.
    let cancel = clients[1].cancel_token();
    let ((), cancelled) = tokio::join!(
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            cancel.cancel_query(NoTls).await.unwrap();
        },
        clients[1].batch_execute(ENDLESS)
    );
    assert_eq!(code(cancelled), "57014");
    drop(clients);
    served.eventually("the places are free", |counts| counts.connections == 0).await;
    drop(served.client().await);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_leaves_nothing() {
    let served = Served::start().await;
    let other = served.client().await;
    other.batch_execute("CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    // Idle in a transaction, in the middle of a statement, in the middle of a message, of its rows.
    let mut idle = Raw::start(served.address).await;
    idle.query("BEGIN").await;
    idle.query("INSERT INTO t VALUES (1)").await;
    let mut busy = Raw::start(served.address).await;
    busy.query("BEGIN").await;
    busy.query("INSERT INTO t VALUES (2)").await;
    busy.send(&message('Q', format!("{ENDLESS}\0").as_bytes())).await;
    let mut half = Raw::start(served.address).await;
    half.query("BEGIN").await;
    half.send(&message('Q', b"INSERT INTO t VALUES (3)\0")[..12]).await;
    let mut reading = Raw::start(served.address).await;
    reading.send(&message('Q', b"SELECT value FROM generate_series(1, 100000000)\0")).await;
    reading.next().await.unwrap();
    assert_eq!(served.counts().open_transactions, 3);
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop((idle, busy, half, reading));
    served
        .eventually("they are gone", |counts| counts.open_transactions == 0 && counts.connections == 1)
        .await;
    assert_eq!(one(&other, "SELECT count(*) FROM t").await, "0");
    // Nothing holds the keys.
    other.batch_execute("INSERT INTO t VALUES (1), (2), (3)").await.unwrap();
    served.memory_is_back().await;
    drop(other);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_sent_before_terminate_are_run() {
    let served = Served::start().await;
    let other = served.client().await;
    other.batch_execute("CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    for leaving in ["at once", "before it reads what was answered", "without a word of TCP"] {
        let mut raw = Raw::start(served.address).await;
        let mut bytes = extended("INSERT INTO t SELECT value FROM generate_series(1, 20000)");
        bytes.extend(message('S', b""));
        bytes.extend(message('X', b""));
        raw.send(&bytes).await;
        match leaving {
            "before it reads what was answered" => raw.answered().await,
            "without a word of TCP" => raw.reset_when_closed(),
            _ => {}
        }
        drop(raw);
        served.eventually("it has ended", |counts| counts.connections == 1).await;
        assert_eq!(one(&other, "SELECT count(*) FROM t").await, "20000", "a client that left {leaving}");
        other.batch_execute("DELETE FROM t").await.unwrap();
    }
    drop(other);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_for_a_client_that_left_with_terminate_are_not_computed_on() {
    let served = Served::start().await;
    let mut raw = Raw::start(served.address).await;
    let mut bytes = message('Q', b"SELECT value FROM generate_series(1, 1000000000000)\0");
    bytes.extend(message('X', b""));
    raw.send(&bytes).await;
    raw.answered().await;
    drop(raw);
    served.eventually("it has ended", |counts| counts.connections == 0).await;
    served.memory_is_back().await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_a_statement_is_bounded() {
    let served = Served::with(limited(|limits| limits.statement_memory_bytes = 1 << 20)).await;
    let client = served.client().await;
    let greedy = "SELECT count(*) FROM (SELECT value, count(*) FROM generate_series(1, 3000000) GROUP BY value \
                  HAVING array_agg(value) IS NOT NULL) AS g";
    assert_eq!(code(client.batch_execute(greedy).await), "53200");
    assert_eq!(one(&client, "SELECT 1").await, "1");
    drop(client);
    served.eventually("memory is back", |counts| counts.connections == 0).await;
    served.memory_is_back().await;
    served.stop().await;
}

/// Rows are sent as they are computed, whatever their source; rows that a statement has to hold are counted.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_sent_need_no_memory_and_rows_that_are_held_do() {
    let served = Served::with(limited(|limits| limits.statement_memory_bytes = 2 << 20)).await;
    let client = served.client().await;
    client
        .batch_execute("CREATE TABLE t (id BIGINT PRIMARY KEY, x BIGINT) WITH (history = '1 h')")
        .await
        .unwrap();
    client.batch_execute("INSERT INTO t SELECT g, g FROM generate_series(1, 400000) g(g)").await.unwrap();
    client.batch_execute("PREPARE series AS SELECT value FROM generate_series(1, 1000000)").await.unwrap();
    let sent = [
        ("SELECT value FROM generate_series(1, 1000000)", 1_000_000),
        ("EXECUTE series", 1_000_000),
        ("SELECT * FROM t FOR SYSTEM_TIME AS OF now()", 400_000),
        ("SELECT * FROM t LIMIT (SELECT 300000)", 300_000),
    ];
    for (sql, count) in sent {
        let rows = client.simple_query(sql).await.unwrap();
        let rows = rows.iter().filter(|message| matches!(message, SimpleQueryMessage::Row(_)));
        assert_eq!(rows.count(), count, "{sql}");
    }
    let held = [
        "UPDATE t SET x = x + 1",
        "DELETE FROM t",
        "INSERT INTO t SELECT id + 1000000, x FROM t",
        "INSERT INTO t SELECT id + 1000000, x FROM t RETURNING id",
        "INSERT INTO t SELECT g, g FROM generate_series(1000000, 2000000) g(g) RETURNING id, x",
    ];
    for sql in held {
        assert_eq!(code(client.batch_execute(sql).await), "53200", "{sql}");
    }
    assert_eq!(one(&client, "SELECT count(*) || ' ' || sum(x) FROM t").await, "400000 80000200000");
    drop(client);
    served.eventually("memory is back", |counts| counts.connections == 0).await;
    served.memory_is_back().await;
    served.stop().await;
}

/// Prepared statements are counted: lists of constants take more than a hundred times their text.
#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_are_bounded_by_the_memory_there_is() {
    let database = Options::default().memory_max(MemorySize::Bytes(128 << 20)).worker_threads(2);
    let served = Served::on(Database::volatile(database).unwrap(), options()).await;
    let client = served.client().await;
    client.batch_execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await.unwrap();
    let constants: Vec<String> = (0..10_000).map(|number| number.to_string()).collect();
    let prepare =
        |name: u32| format!("PREPARE p{name} AS SELECT v FROM t WHERE v IN ({})", constants.join(","));
    let mut prepared = 0;
    let error = loop {
        match client.batch_execute(&prepare(prepared)).await {
            Ok(()) => prepared += 1,
            error => break code(error),
        }
        assert!(prepared < 100, "a hundred of 6 MiB are in 128 MiB");
    };
    assert_eq!(error, "53200");
    assert!(prepared > 3, "{prepared} are prepared");
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "0");
    client.batch_execute("DEALLOCATE ALL").await.unwrap();
    client.batch_execute(&prepare(prepared)).await.unwrap();
    drop(client);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_packets_end_their_connection() {
    let served = Served::with(limited(|limits| limits.packet_bytes = 1 << 16)).await;
    let other = served.client().await;
    let mut raw = Raw::start(served.address).await;
    raw.send(&[b'Q', 0, 2, 0, 0]).await;
    assert_eq!(shorts(&raw.until_ready().await), ["E FATAL 08P01"]);
    assert_eq!(one(&other, "SELECT 1").await, "1");
    drop((raw, other));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_starts_are_ended() {
    let served = Served::with(limited(|limits| limits.startup = Duration::from_millis(100))).await;
    let mut silent = Raw::open(served.address).await;
    let mut half = Raw::open(served.address).await;
    half.send(&startup(&[("user", "x")])[..6]).await;
    assert_eq!(silent.next().await, None);
    assert_eq!(half.next().await, None);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutting_down_waits_for_statements_and_not_for_ever() {
    let served = Served::with(limited(|limits| limits.shutdown = Duration::from_millis(800))).await;
    let mut idle = Raw::start(served.address).await;
    let mut open = Raw::start(served.address).await;
    let mut endless = Raw::start(served.address).await;
    open.query("CREATE TABLE t (id INT PRIMARY KEY)").await;
    open.query("BEGIN").await;
    open.query("INSERT INTO t VALUES (1)").await;
    endless.send(&message('Q', format!("{ENDLESS}\0").as_bytes())).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let db = served.db.clone();
    let stopping = tokio::spawn(served.stop());
    assert_eq!(shorts(&idle.until_ready().await), ["E FATAL 57P01"]);
    // An open transaction may end well.
    assert_eq!(open.query("COMMIT").await, ["C COMMIT", "Z I"]);
    assert_eq!(shorts(&open.until_ready().await), ["E FATAL 57P01"]);
    let ended = shorts(&endless.until_ready().await);
    assert_eq!(ended.last().unwrap(), "E FATAL 57P01");
    stopping.await.unwrap();
    let mut session = db.session().unwrap();
    assert_eq!(
        session.query("SELECT * FROM t").unwrap().iter().map(|batch| batch.num_rows()).sum::<usize>(),
        1
    );
    drop(session);
    db.close().unwrap();
}
