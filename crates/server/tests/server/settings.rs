//! Settings as clients use them: reported parameters, ROLLBACK, timeouts, DISCARD.

use crate::raw::{Message, Raw, extended, message, shorts, startup};
use crate::support::{Served, code, one};
use std::time::{Duration, Instant};

/// The parameters that an answer reports.
fn told(messages: &[Message]) -> Vec<String> {
    let bodies = messages.iter().filter(|(kind, _)| *kind == 'S').map(|(_, body)| &body[..body.len() - 1]);
    bodies.map(|body| String::from_utf8_lossy(body).replace('\0', "=")).collect()
}

async fn answer(raw: &mut Raw, sql: &str) -> Vec<Message> {
    raw.send(&message('Q', format!("{sql}\0").as_bytes())).await;
    raw.until_ready().await
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_get_changed_and_rolled_back_parameters() {
    let served = Served::start().await;
    let mut raw = Raw::open(served.address).await;
    raw.send(&startup(&[
        ("user", "anna"),
        ("application_name", "first"),
        ("TimeZone", "europe/berlin"),
        ("options", "-c statement_timeout=7s -c no.such=1"),
    ]))
    .await;
    let started = told(&raw.until_ready().await);
    for expected in
        ["application_name=first", "session_authorization=anna", "is_superuser=on", "TimeZone=Europe/Berlin"]
    {
        assert!(started.contains(&expected.to_owned()), "{expected} in {started:?}");
    }
    assert_eq!(told(&answer(&mut raw, "SET application_name = 'second'").await), ["application_name=second"]);
    assert!(told(&answer(&mut raw, "SET application_name = 'second'").await).is_empty(), "nothing new");
    answer(&mut raw, "BEGIN").await;
    assert_eq!(told(&answer(&mut raw, "SET application_name = 'third'").await), ["application_name=third"]);
    answer(&mut raw, "SAVEPOINT a").await;
    let set = "SELECT set_config('application_name', 'fourth', false)";
    assert_eq!(told(&answer(&mut raw, set).await), ["application_name=fourth"]);
    assert_eq!(told(&answer(&mut raw, "ROLLBACK TO a").await), ["application_name=third"]);
    assert_eq!(told(&answer(&mut raw, "ROLLBACK").await), ["application_name=second"]);
    assert_eq!(told(&answer(&mut raw, "RESET ALL").await), ["application_name=first"]);
    for (sql, expected) in [
        ("SET client_encoding = 'LATIN1'", "E ERROR 22023"),
        ("SET nothing = 1", "E ERROR 42704"),
        ("SET server_version = '17'", "E ERROR 55P02"),
        ("SET TimeZone = 'Europe/Nowhere'", "E ERROR 22023"),
    ] {
        assert_eq!(raw.query(sql).await, [expected, "Z I"], "{sql}");
    }
    let client = served.client().await;
    assert_eq!(one(&client, "SHOW statement_timeout").await, "0");
    assert_eq!(one(&client, "SELECT current_user").await, "test");
    let mut refused = Raw::open(served.address).await;
    refused.send(&startup(&[("user", "x"), ("client_encoding", "LATIN1")])).await;
    assert_eq!(shorts(&refused.until_ready().await), ["E FATAL 22023"]);
    drop((raw, refused, client));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn times_of_the_session_are_kept() {
    let served = Served::start().await;
    let client = served.client().await;
    client.batch_execute("CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    // SET and the statement in one text.
    let endless = "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100000000) b";
    let start = Instant::now();
    let ended = client.batch_execute(&format!("SET statement_timeout = '60ms'; {endless}")).await;
    assert_eq!(code(ended), "57014");
    assert!(start.elapsed() >= Duration::from_millis(60));
    let mut idle = Raw::start(served.address).await;
    idle.query("SET idle_session_timeout = '50ms'").await;
    assert_eq!(shorts(&idle.until_ready().await), ["E FATAL 57P05"]);
    let mut open = Raw::start(served.address).await;
    open.query("SET idle_in_transaction_session_timeout = '50ms'").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    open.query("BEGIN").await;
    assert_eq!(shorts(&open.until_ready().await), ["E FATAL 25P03"]);
    drop((client, idle, open));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_are_forgotten_by_name_and_all() {
    let served = Served::start().await;
    let mut raw = Raw::start(served.address).await;
    let prepare = [message('P', b"Py_1\0SELECT 1\0\0\0"), message('S', b"")].concat();
    let run = [message('B', b"\0Py_1\0\0\0\0\0\0\0"), message('S', b"")].concat();
    for forget in ["DEALLOCATE \"Py_1\"", "DEALLOCATE ALL", "DISCARD ALL"] {
        raw.send(&prepare).await;
        assert_eq!(shorts(&raw.until_ready().await), ["1", "Z I"], "{forget}");
        raw.send(&run).await;
        assert_eq!(shorts(&raw.until_ready().await), ["2", "Z I"]);
        let answer = raw.query(forget).await;
        assert!(answer[0].starts_with("C D"), "{answer:?}");
        raw.send(&run).await;
        assert_eq!(shorts(&raw.until_ready().await), ["E ERROR 26000", "Z I"], "{forget}");
    }
    assert_eq!(raw.query("DEALLOCATE py_1").await, ["E ERROR 26000", "Z I"]);
    drop(raw);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_put_off_wait_for_nothing() {
    let served = Served::start().await;
    let mut raw = Raw::start(served.address).await;
    raw.query("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await;
    raw.query("INSERT INTO t VALUES (1, 10)").await;
    let endless = "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100000000) b";
    let quick = [extended("SELECT v FROM t WHERE id = 1"), message('S', b"")].concat();
    // Behind it a statement that takes for ever: as a text, parsed, copied, or half of a message.
    for behind in [
        message('Q', format!("{endless}\0").as_bytes()),
        extended(endless),
        message('Q', format!("COPY ({endless}) TO STDOUT\0").as_bytes()),
        message('Q', b"COPY t FROM STDIN\0"),
        message('Q', b"SELECT 1\0")[..9].to_vec(),
    ] {
        let mut raw = Raw::start(served.address).await;
        raw.send(&[quick.clone(), behind].concat()).await;
        assert_eq!(shorts(&raw.until_ready().await), ["1", "2", "D", "C SELECT 1", "Z I"]);
    }
    // A hundred at once, and good-bye.
    let mut raw = Raw::start(served.address).await;
    raw.send(&[quick.repeat(100), message('X', b"")].concat()).await;
    for _ in 0..100 {
        assert_eq!(raw.until_ready().await.len(), 5);
    }
    assert_eq!(raw.next().await, None);
    served.eventually("the endless ones are interrupted", |counts| counts.connections <= 1).await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_of_one_fingerprint_keep_their_meaning() {
    let served = Served::start().await;
    let client = served.client().await;
    client.batch_execute("CREATE TABLE t (id INT PRIMARY KEY, v BIGINT, s VARCHAR, d DOUBLE)").await.unwrap();
    for id in 0..20 {
        let sql = format!("INSERT INTO t VALUES ({id}, {}, 'row ''{id}''', 0.5)", id * 10);
        client.batch_execute(&sql).await.unwrap();
    }
    for id in 0..20 {
        assert_eq!(one(&client, &format!("SELECT v FROM t WHERE id = {id}")).await, (id * 10).to_string());
        assert_eq!(one(&client, &format!("SELECT s FROM t WHERE id={id}")).await, format!("row '{id}'"));
        client.batch_execute(&format!("UPDATE t SET v = v + {id}, s = 'new' WHERE id = {id}")).await.unwrap();
        client.batch_execute(&format!("UPDATE t SET d = {id} WHERE id = {id}")).await.unwrap();
    }
    assert_eq!(one(&client, "SELECT sum(v) FROM t").await, (190 * 11).to_string());
    assert_eq!(one(&client, "SELECT sum(d) FROM t WHERE s = 'new'").await, "190");
    // No INT has this value, and no text is a number; an overflow and a duplicate are errors as ever.
    assert!(crate::support::texts(&client, "SELECT v FROM t WHERE id = 3000000000").await.is_empty());
    assert_eq!(code(client.batch_execute("INSERT INTO t VALUES (3000000000, 1, 'x', 0.5)").await), "22003");
    assert_eq!(code(client.batch_execute("INSERT INTO t VALUES (5, 1, 'x', 0.5)").await), "23505");
    assert_eq!(
        code(client.batch_execute("UPDATE t SET v = v + 9223372036854775807 WHERE id = 1").await),
        "22003"
    );
    assert_eq!(code(client.batch_execute("SELECT v FROM t WHERE id = 'x'").await), "22P02");
    // The same text for another table of the name.
    client.batch_execute("DROP TABLE t").await.unwrap();
    assert_eq!(code(client.batch_execute("SELECT v FROM t WHERE id = 7").await), "42P01");
    client.batch_execute("CREATE TABLE t (id VARCHAR PRIMARY KEY, v VARCHAR)").await.unwrap();
    client.batch_execute("INSERT INTO t VALUES ('7', 'seven')").await.unwrap();
    assert_eq!(one(&client, "SELECT v FROM t WHERE id = '7'").await, "seven");
    // In blocks.
    client.batch_execute("BEGIN").await.unwrap();
    client.batch_execute("UPDATE t SET v = 'changed' WHERE id = '7'").await.unwrap();
    assert_eq!(one(&client, "SELECT v FROM t WHERE id = '7'").await, "changed");
    assert_eq!(code(client.batch_execute("INSERT INTO t VALUES ('7', 'x')").await), "23505");
    assert_eq!(code(client.batch_execute("SELECT v FROM t WHERE id = '7'").await), "25P02");
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(one(&client, "SELECT v FROM t WHERE id = '7'").await, "seven");
    client.batch_execute("BEGIN READ ONLY").await.unwrap();
    assert_eq!(code(client.batch_execute("UPDATE t SET v = 'x' WHERE id = '7'").await), "25006");
    client.batch_execute("ROLLBACK").await.unwrap();
    drop(client);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vacuum_names_the_session_that_holds_it_back_by_its_process_id() {
    let served = Served::start().await;
    let (writer, reader) = (served.client().await, served.client().await);
    writer.batch_execute("CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    writer.batch_execute("INSERT INTO t SELECT value FROM generate_series(1, 500)").await.unwrap();
    reader.batch_execute("BEGIN; SELECT count(*) FROM t").await.unwrap();
    let pid = one(&reader, "SELECT pg_backend_pid()").await;
    writer.batch_execute("DELETE FROM t").await.unwrap();
    writer.batch_execute("VACUUM t").await.unwrap();
    let held = one(&writer, "SELECT held_by FROM entresol.vacuum").await;
    assert!(held.starts_with(&format!("session {pid} of ")), "{held}, not {pid}");
    drop((writer, reader));
    served.stop().await;
}
