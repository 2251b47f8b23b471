//! Settings and options that are accepted: they have their effect, or a notice says that they have none.

use crate::raw::{Message, Raw, field, message};
use crate::support::{Served, code, one, options};
use entresol::memory::budget::MemorySize;
use entresol::{Database, Options};
use std::time::Duration;

/// Levels and texts of the notices of an answer.
fn notices(messages: &[Message]) -> Vec<String> {
    let bodies = messages.iter().filter(|(kind, _)| *kind == 'N').map(|(_, body)| body);
    bodies.map(|body| format!("{}: {}", field(body, 'S'), field(body, 'M'))).collect()
}

async fn noticed(raw: &mut Raw, sql: &str) -> Vec<String> {
    raw.send(&message('Q', format!("{sql}\0").as_bytes())).await;
    notices(&raw.until_ready().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_only_reads_writes_in_no_way() {
    let served = Served::start().await;
    let client = served.client().await;
    client.batch_execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await.unwrap();
    let insert = client.prepare("INSERT INTO t VALUES ($1, 0)").await.unwrap();
    client.execute(&insert, &[&1i32]).await.unwrap();
    for set in
        ["SET default_transaction_read_only = on", "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"]
    {
        client.batch_execute(set).await.unwrap();
        assert_eq!(code(client.execute(&insert, &[&2i32]).await), "25006");
        for sql in [
            "INSERT INTO t VALUES (2, 2)",
            "UPDATE t SET v = 1 WHERE id = 1",
            "DELETE FROM t",
            "CREATE TABLE u (id INT)",
            "CREATE ROLE anna",
            "INSERT INTO t VALUES (2, 2); INSERT INTO t VALUES (3, 3)",
        ] {
            assert_eq!(code(client.batch_execute(sql).await), "25006", "{sql}");
        }
        assert_eq!(code(client.batch_execute("COPY t FROM STDIN").await), "25006");
        assert_eq!(one(&client, "SELECT count(*) FROM t").await, "1");
        client.batch_execute("RESET ALL").await.unwrap();
    }
    client.execute(&insert, &[&2i32]).await.unwrap();
    drop(client);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_tell_the_limits_in_force() {
    let database = Options::default()
        .worker_threads(2)
        .memory_max(MemorySize::Bytes(128 << 20))
        .max_snapshot_age(Duration::from_secs(90));
    let mut options = options();
    options.limits.statement = Some(Duration::from_secs(30));
    let served = Served::on(Database::volatile(database).unwrap(), options).await;
    let client = served.client().await;
    for (name, expected) in [
        ("idle_in_transaction_session_timeout", "10min"),
        ("statement_timeout", "30s"),
        ("memory_max", "128MiB"),
        ("max_snapshot_age", "90s"),
    ] {
        assert_eq!(one(&client, &format!("SHOW {name}")).await, expected, "{name}");
        assert_eq!(one(&client, &format!("SELECT current_setting('{name}')")).await, expected, "{name}");
    }
    for name in ["memory_max", "max_snapshot_age"] {
        assert_eq!(code(client.batch_execute(&format!("SET {name} = 1")).await), "55P02", "{name}");
    }
    client.batch_execute("SET idle_in_transaction_session_timeout = '5s'").await.unwrap();
    assert_eq!(one(&client, "SHOW idle_in_transaction_session_timeout").await, "5s");
    let mut raw = Raw::start(served.address).await;
    assert!(noticed(&mut raw, "SET statement_timeout = '1s'").await.is_empty());
    let expected = "NOTICE: \"statement_timeout\" is 30s, the longest time that the server allows";
    for sql in ["SET statement_timeout = 0", "SET statement_timeout = '1h'"] {
        assert_eq!(noticed(&mut raw, sql).await, [expected], "{sql}");
    }
    drop((client, raw));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_effect_is_said() {
    let served = Served::start().await;
    let mut raw = Raw::start(served.address).await;
    raw.query("CREATE TABLE t (id INT PRIMARY KEY)").await;
    assert!(noticed(&mut raw, "SET lock_timeout = 0").await.is_empty());
    assert!(noticed(&mut raw, "SET search_path = nothing, public").await.is_empty());
    for (sql, words) in [
        ("SET lock_timeout = '1s'", "\"lock_timeout\" has no effect"),
        ("SET search_path = public, entresol", "schema \"entresol\" in \"search_path\" has no effect"),
        ("SET extra_float_digits = 0", "\"extra_float_digits\" has no effect"),
        ("SET LOCAL statement_timeout = '1s'", "SET LOCAL has no effect"),
        ("SET TRANSACTION READ ONLY", "SET TRANSACTION has no effect"),
        ("VACUUM FREEZE t", "VACUUM option FREEZE has no effect"),
        ("VACUUM (PARALLEL 2) t", "VACUUM option PARALLEL has no effect"),
    ] {
        let told = noticed(&mut raw, sql).await;
        assert!(told.len() == 1 && told[0].starts_with("NOTICE: ") && told[0].contains(words), "{told:?}");
    }
    assert!(noticed(&mut raw, "VACUUM (FREEZE off) t").await.is_empty());
    drop(raw);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vacuum_tells_what_it_did_and_what_holds_it_back() {
    let served = Served::start().await;
    let (mut raw, other) = (Raw::start(served.address).await, served.client().await);
    raw.query("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await;
    raw.query("CREATE INDEX t_v ON t (v)").await;
    raw.query("INSERT INTO t SELECT i, i FROM generate_series(1, 100) AS g(i)").await;
    other.batch_execute("BEGIN; SELECT count(*) FROM t").await.unwrap();
    raw.query("DELETE FROM t WHERE id > 10").await;
    // Nobody asked.
    assert!(noticed(&mut raw, "VACUUM t").await.is_empty());
    raw.query("SET client_min_messages = error").await;
    let told = noticed(&mut raw, "VACUUM VERBOSE t").await;
    let table = told.iter().find(|line| line.starts_with("INFO: table \"t\": ")).unwrap();
    assert!(table.contains("90 are left, held back by session ") && table.contains(" of test "), "{told:?}");
    assert!(told.iter().any(|line| line.starts_with("INFO: index \"t_v\" of table \"t\": ")), "{told:?}");
    assert!(told.iter().any(|line| line.starts_with("INFO: visited ")), "{told:?}");
    other.batch_execute("COMMIT").await.unwrap();
    let told = noticed(&mut raw, "VACUUM (VERBOSE) t").await;
    assert!(told.iter().any(|line| line.contains("dead keys, 0 are left")), "{told:?}");
    assert!(!told.iter().any(|line| line.contains("held back")), "{told:?}");
    drop((raw, other));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_propose_what_was_meant() {
    let served = Served::start().await;
    let client = served.client().await;
    client.batch_execute("CREATE TABLE r (id INT PRIMARY KEY, amount INT)").await.unwrap();
    for (sql, expected, message, hint) in [
        (
            "SELECT amuont FROM r",
            "42703",
            "column \"amuont\" does not exist",
            Some("Perhaps you meant to reference the column \"r.amount\"."),
        ),
        ("SELECT r.zzzzz FROM r", "42703", "column r.zzzzz does not exist", None),
        ("SELECT id FROM r a, r b", "42702", "column reference \"id\" is ambiguous", None),
        ("EXPLAIN EXECUTE q", "0A000", "EXPLAIN of EXECUTE is not supported", None),
        (
            "SELECT amount, count(*) FROM r",
            "42803",
            "column \"r.amount\" must appear in the GROUP BY clause or be used in an aggregate function",
            None,
        ),
        ("SELECT 1 + 'x'", "22P02", "invalid input syntax for type integer: \"x\"", None),
    ] {
        let error = client.batch_execute(sql).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        let found = (error.code().code(), error.message(), error.hint());
        assert_eq!(found, (expected, message, hint), "{sql}");
    }
    let error =
        client.batch_execute("WITH q AS (DELETE FROM r RETURNING id) SELECT * FROM q").await.unwrap_err();
    let message = error.as_db_error().unwrap().message().to_owned();
    assert!(message.ends_with(" is not supported") && !message.contains("not implemented"), "{message}");
    drop(client);
    served.stop().await;
}
