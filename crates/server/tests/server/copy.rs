//! COPY: in and out, in both protocols, by the real psql; errors, and clients that disconnect.

use crate::raw::{Raw, extended, field, message, shorts};
use crate::support::{Served, code, one, options};
use bytes::Bytes;
use entresol_server::{Limits, ServerOptions};
use futures::{SinkExt, StreamExt, TryStreamExt, pin_mut};
use std::error::Error;
use std::time::Duration;
use tokio_postgres::NoTls;
use tokio_postgres::binary_copy::{BinaryCopyInWriter, BinaryCopyOutStream};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type};

async fn table() -> (Served, tokio_postgres::Client) {
    let served = Served::start().await;
    let client = served.client().await;
    client.batch_execute("CREATE TABLE t (id INT PRIMARY KEY, v BIGINT, s VARCHAR)").await.unwrap();
    (served, client)
}

fn data(text: &str) -> Vec<u8> {
    message('d', text.as_bytes())
}

fn query(sql: &str) -> Vec<u8> {
    message('Q', format!("{sql}\0").as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_and_go_as_text_and_csv() {
    let (served, client) = table().await;
    let mut raw = Raw::start(served.address).await;
    raw.send(&query("COPY t FROM STDIN")).await;
    // Three columns, all of them text.
    assert_eq!(raw.next().await.unwrap(), ('G', vec![0, 0, 3, 0, 0, 0, 0, 0, 0]));
    // In pieces of any length; Flush and Sync do not matter.
    for piece in ["1\t10\ta\\tb\n2\t", "\\N\t\\N\n3", "\t-7\tx"] {
        raw.send(&data(piece)).await;
        raw.send(&message('H', b"")).await;
        raw.send(&message('S', b"")).await;
    }
    raw.send(&message('c', b"")).await;
    assert_eq!(shorts(&raw.until_ready().await), ["C COPY 3", "Z I"]);
    raw.send(&query("COPY t TO STDOUT")).await;
    let answer = raw.until_ready().await;
    assert_eq!(shorts(&answer), ["H", "d", "d", "d", "c", "C COPY 3", "Z I"]);
    let lines: Vec<&[u8]> =
        answer.iter().filter(|(kind, _)| *kind == 'd').map(|(_, body)| &body[..]).collect();
    assert_eq!(lines, [&b"1\t10\ta\\tb\n"[..], b"2\t\\N\t\\N\n", b"3\t-7\tx\n"], "a line each");
    // The other protocol, and the other format.
    let sink =
        client.copy_in("COPY t (s, id) FROM STDIN WITH (FORMAT csv, HEADER, DELIMITER ';')").await.unwrap();
    pin_mut!(sink);
    sink.send(Bytes::from_static(b"s;id\n\"a \"\"q\"\"\nb\";4\n;5\n")).await.unwrap();
    assert_eq!(sink.finish().await.unwrap(), 2);
    let out =
        client.copy_out("COPY (SELECT id, s FROM t WHERE id > 3 ORDER BY id) TO STDOUT CSV HEADER").await;
    let lines: Vec<Bytes> = out.unwrap().try_collect().await.unwrap();
    assert_eq!(lines, [&b"id,s\n"[..], b"4,\"a \"\"q\"\"\nb\"\n", b"5,\n"]);
    assert_eq!(served.metric("entresol_rows_written_total").await, 5.0);
    drop((client, raw));
    served.stop().await;
}

/// Every type in the binary format, both ways, by a client that has its own implementation of it.
#[tokio::test(flavor = "multi_thread")]
async fn rows_come_and_go_in_binary() {
    let served = Served::start().await;
    let client = served.client().await;
    client
        .batch_execute(
            "CREATE TABLE t (id INT PRIMARY KEY, b BOOLEAN, l BIGINT, f DOUBLE, s VARCHAR, d DATE, at TIMESTAMP, n DECIMAL(9, 2))",
        )
        .await
        .unwrap();
    let types = [Type::INT4, Type::BOOL, Type::INT8, Type::FLOAT8, Type::TEXT, Type::DATE, Type::TIMESTAMP];
    let columns = "id, b, l, f, s, d, at";
    let sink = client.copy_in(&format!("COPY t ({columns}) FROM STDIN WITH (FORMAT binary)")).await.unwrap();
    let writer = BinaryCopyInWriter::new(sink, &types);
    pin_mut!(writer);
    let epoch = std::time::SystemTime::UNIX_EPOCH;
    for id in 0..3000i32 {
        let text = (id % 3 > 0).then(|| format!("text {id}"));
        let at = epoch + Duration::from_secs(1_700_000_000 + id as u64);
        let row: [&(dyn ToSql + Sync); 7] =
            [&id, &(id % 2 == 0), &i64::from(id), &f64::from(id), &text, &None::<Day>, &at];
        writer.as_mut().write(&row).await.unwrap();
    }
    assert_eq!(writer.finish().await.unwrap(), 3000);
    client.batch_execute("UPDATE t SET d = DATE '2024-02-29', n = -12.30 WHERE id = 1").await.unwrap();
    let shown = one(&client, "SELECT count(*) FROM t WHERE l = id AND f = id AND b = (id % 2 = 0)").await;
    assert_eq!(shown, "3000");
    let sql = format!("COPY (SELECT {columns} FROM t ORDER BY id) TO STDOUT (FORMAT binary)");
    let out = client.copy_out(&sql).await.unwrap();
    let rows: Vec<_> = BinaryCopyOutStream::new(out, &types).try_collect().await.unwrap();
    assert_eq!(rows.len(), 3000);
    assert_eq!((rows[1].get::<i32>(0), rows[1].get::<Option<&str>>(4)), (1, Some("text 1")));
    assert_eq!(rows[2].get::<std::time::SystemTime>(6), epoch + Duration::from_secs(1_700_000_002));
    assert_eq!((rows[0].get::<Option<Day>>(5), rows[1].get::<Option<Day>>(5)), (None, Some(Day(8825))));
    // Output of one server is input of the same.
    client.batch_execute("CREATE TABLE u (id INT PRIMARY KEY, d DATE, n DECIMAL(9, 2))").await.unwrap();
    let out = client.copy_out("COPY (SELECT id, d, n FROM t) TO STDOUT (FORMAT binary)").await.unwrap();
    let bytes: Vec<Bytes> = out.try_collect().await.unwrap();
    let sink = client.copy_in("COPY u FROM STDIN BINARY").await.unwrap();
    pin_mut!(sink);
    for piece in bytes.concat().chunks(1000) {
        sink.send(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    assert_eq!(sink.finish().await.unwrap(), 3000);
    assert_eq!(one(&client, "SELECT n FROM u WHERE d = DATE '2024-02-29'").await, "-12.30");
    client.batch_execute("CREATE TABLE w (id INT PRIMARY KEY, i INTERVAL, b JSONB, j JSON)").await.unwrap();
    let sql = "COPY (SELECT 1, INTERVAL '1-2 3 04:05:06.5', '{\"b\":[1], \"a\":2.50}'::jsonb, '{ }'::json) TO STDOUT (FORMAT binary)";
    let out = client.copy_out(sql).await.unwrap();
    let bytes: Vec<Bytes> = out.try_collect().await.unwrap();
    let sink = client.copy_in("COPY w FROM STDIN BINARY").await.unwrap();
    pin_mut!(sink);
    sink.send(Bytes::from(bytes.concat())).await.unwrap();
    assert_eq!(sink.finish().await.unwrap(), 1);
    let shown = one(&client, "SELECT i || ' ' || b::text || ' ' || j::text FROM w").await;
    assert_eq!(shown, "1 year 2 mons 3 days 04:05:06.5 {\"a\": 2.50, \"b\": [1]} { }");
    // Not a row of what is broken stays.
    let mut raw = Raw::start(served.address).await;
    for (bytes, expected) in [(&bytes[0][..19], "22P04"), (b"1\t\\N\t1.5\n", "22P04")] {
        raw.send(&query("DELETE FROM u; COPY u FROM STDIN WITH (FORMAT binary)")).await;
        while raw.next().await.unwrap().0 != 'G' {}
        raw.send(&message('d', &[bytes, &[0, 3, 0]].concat())).await;
        raw.send(&message('c', b"")).await;
        let answer = raw.until_ready().await;
        assert_eq!(shorts(&answer), [format!("E ERROR {expected}"), "Z I".to_owned()]);
        assert_eq!(field(&answer[0].1, 'W'), "COPY u, line 1");
    }
    drop((client, raw));
    served.stop().await;
}

/// A DATE as the wire has it: days since 2000.
#[derive(Debug, PartialEq)]
struct Day(i32);

impl ToSql for Day {
    fn to_sql(&self, _: &Type, out: &mut bytes::BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::DATE
    }

    tokio_postgres::types::to_sql_checked!();
}

impl FromSql<'_> for Day {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Day, Box<dyn Error + Sync + Send>> {
        Ok(Day(i32::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::DATE
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_their_line_and_leave_nothing() {
    let (served, client) = table().await;
    client.batch_execute("INSERT INTO t VALUES (9, 9, 'nine')").await.unwrap();
    let mut raw = Raw::start(served.address).await;
    for (lines, expected, context) in [
        ("1\t1\tx\n2\t2\n", "22P04", "COPY t, line 2"),
        ("1\t1\tx\ty\n", "22P04", "COPY t, line 1"),
        ("1\t1\tx\n2\tten\tx\n", "22P02", "COPY t, line 2, column v"),
        ("1\t1\tx\n99999999999\t1\tx\n", "22003", "COPY t, line 2, column id"),
        ("1\t1\tx\n2\t2\ty\n9\t1\tx\n", "23505", "COPY t, line 3"),
        ("\\N\t1\tx\n", "23502", "COPY t, line 1"),
        ("1\t1\t\\xff\n", "22021", "COPY t, line 1"),
    ] {
        raw.send(&query("COPY t FROM STDIN")).await;
        raw.next().await.unwrap();
        raw.send(&data(lines)).await;
        // It has failed, or does here; what follows is skipped.
        raw.send(&message('c', b"")).await;
        raw.send(&data("5\t5\t5\n")).await;
        raw.send(&message('c', b"")).await;
        let answer = raw.until_ready().await;
        assert_eq!(shorts(&answer), [format!("E ERROR {expected}").as_str(), "Z I"], "{lines}");
        assert_eq!(field(&answer[0].1, 'W'), context);
        assert!(!field(&answer[0].1, 'M').contains("COPY"));
    }
    for (sql, expected) in [
        ("COPY nothing FROM STDIN", "42P01"),
        ("COPY t (id, nothing) FROM STDIN", "42703"),
        ("COPY (SELECT nothing FROM t) TO STDOUT", "42703"),
        ("COPY t FROM STDIN WITH (FORMAT parquet)", "0A000"),
        ("COPY t FROM '/nothing/there'", "58P01"),
        ("COPY t FROM PROGRAM 'id'", "0A000"),
        ("COPY t FROM", "42601"),
    ] {
        assert_eq!(raw.query(sql).await, [format!("E ERROR {expected}").as_str(), "Z I"], "{sql}");
    }
    // The client gives up, or says something else.
    for (bytes, expected) in [
        (message('f', b"no more\0"), "57014"),
        (message('E', b"\0\0\0\0\0"), "08P01"),
        (message('Q', b"SELECT 1\0"), "08P01"),
    ] {
        raw.send(&query("COPY t FROM STDIN")).await;
        raw.next().await.unwrap();
        raw.send(&data("1\t1\tx\n")).await;
        raw.send(&bytes).await;
        assert_eq!(shorts(&raw.until_ready().await), [format!("E ERROR {expected}").as_str(), "Z I"]);
    }
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "1");
    drop((client, raw));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_one_statement_of_its_transaction() {
    let (served, client) = table().await;
    let mut raw = Raw::start(served.address).await;
    raw.query("BEGIN").await;
    raw.query("SAVEPOINT a").await;
    raw.send(&query("COPY t FROM STDIN")).await;
    raw.next().await.unwrap();
    raw.send(&data("1\t1\tx\nbroken\n")).await;
    assert_eq!(shorts(&raw.until_ready().await), ["E ERROR 22P04", "Z E"]);
    raw.send(&message('c', b"")).await;
    assert_eq!(raw.query("COPY t TO STDOUT").await, ["E ERROR 25P02", "Z E"]);
    assert_eq!(raw.query("ROLLBACK TO a").await, ["C ROLLBACK", "Z T"]);
    raw.send(&query("COPY t FROM STDIN")).await;
    raw.next().await.unwrap();
    raw.send(&data("2\t2\tx\n")).await;
    raw.send(&message('c', b"")).await;
    assert_eq!(shorts(&raw.until_ready().await), ["C COPY 1", "Z T"]);
    assert_eq!(raw.query("COPY t TO STDOUT").await, ["H", "d", "c", "C COPY 1", "Z T"]);
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "0");
    assert_eq!(raw.query("COMMIT").await, ["C COMMIT", "Z I"]);
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "1");
    // Statements of one text are one transaction, a COPY too.
    raw.send(&query("INSERT INTO t VALUES (3, 3, 'y'); COPY t FROM STDIN; SELECT 1/0")).await;
    assert_eq!(raw.next().await.unwrap().0, 'C');
    assert_eq!(raw.next().await.unwrap().0, 'G');
    raw.send(&data("4\t4\tx\n")).await;
    raw.send(&message('c', b"")).await;
    assert_eq!(shorts(&raw.until_ready().await).last().unwrap(), "Z I");
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "1");
    // A COPY between two Syncs, too; the Sync behind Execute is the COPY's own to ignore.
    let mut bytes = extended("INSERT INTO t VALUES (3, 3, 'y')");
    bytes.extend(extended("COPY t FROM STDIN"));
    bytes.extend(message('S', b""));
    raw.send(&bytes).await;
    while raw.next().await.unwrap().0 != 'G' {}
    let mut bytes = data("4\t4\tx\n2\t2\ttwice\n");
    bytes.extend(message('c', b""));
    bytes.extend(message('S', b""));
    raw.send(&bytes).await;
    assert_eq!(shorts(&raw.until_ready().await), ["E ERROR 23505", "Z I"]);
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "1");
    drop((client, raw));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_rows_stream_both_ways() {
    const ROWS: u32 = 50_000;
    let (served, client) = table().await;
    let sink = client.copy_in("COPY t FROM STDIN").await.unwrap();
    pin_mut!(sink);
    let mut text = String::new();
    for id in 0..ROWS {
        text.push_str(&format!("{id}\t{}\trow {id}\n", u64::from(id) * 3));
        if text.len() > 100_000 {
            sink.send(Bytes::from(std::mem::take(&mut text))).await.unwrap();
        }
    }
    sink.send(Bytes::from(text)).await.unwrap();
    assert_eq!(sink.finish().await.unwrap(), u64::from(ROWS));
    let out = client.copy_out("COPY (SELECT * FROM t ORDER BY id) TO STDOUT").await.unwrap();
    pin_mut!(out);
    let mut id = 0;
    while let Some(line) = out.next().await {
        assert_eq!(line.unwrap(), format!("{id}\t{}\trow {id}\n", id * 3));
        id += 1;
    }
    assert_eq!(id, ROWS);
    // Rows that the client does not read are not computed, and the COPY can be cancelled.
    let mut raw = Raw::start(served.address).await;
    raw.send(&query("COPY (SELECT value FROM generate_series(1, 100000000)) TO STDOUT")).await;
    assert_eq!(raw.next().await.unwrap().0, 'H');
    assert_eq!(raw.next().await.unwrap(), ('d', b"1\n".to_vec()));
    tokio::time::sleep(Duration::from_millis(200)).await;
    let sent = served.metric("entresol_bytes_sent_total").await;
    assert!(sent < 64e6, "{sent} bytes were sent to a client that does not read");
    drop((client, raw));
    served.eventually("they are gone", |counts| counts.connections == 0).await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_stop_or_vanish_leave_nothing() {
    let (served, client) = table().await;
    let other = served.client().await;
    let rows: String = (0..3000).map(|id| format!("{id}\t1\tx\n")).collect();
    // One goes away in the middle of a line, one in a block, one while it is sent rows.
    let mut alone = Raw::start(served.address).await;
    alone.send(&query("COPY t FROM STDIN")).await;
    alone.send(&data(&rows)).await;
    alone.send(&data("3000\t1\t")).await;
    let mut block = Raw::start(served.address).await;
    block.query("BEGIN").await;
    block.send(&query("COPY t FROM STDIN")).await;
    block.send(&data(&rows)).await;
    block.send(&data("half")[..6]).await;
    let mut reading = Raw::start(served.address).await;
    reading.send(&query("COPY (SELECT value FROM generate_series(1, 100000000)) TO STDOUT")).await;
    reading.next().await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop((alone, block, reading));
    served
        .eventually("they are gone", |counts| counts.connections == 2 && counts.open_transactions == 0)
        .await;
    assert_eq!(one(&other, "SELECT count(*) FROM t").await, "0");
    // One is cancelled while the server waits for its data.
    let cancel = client.cancel_token();
    let sink = client.copy_in::<_, Bytes>("COPY t FROM STDIN").await.unwrap();
    pin_mut!(sink);
    sink.send(Bytes::from(rows)).await.unwrap();
    sink.flush().await.unwrap();
    cancel.cancel_query(NoTls).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(code(sink.finish().await), "57014");
    assert_eq!(one(&other, "SELECT count(*) FROM t").await, "0");
    other.batch_execute("INSERT INTO t VALUES (0, 0, 'free')").await.unwrap();
    served.memory_is_back().await;
    drop((client, other));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_has_the_time_of_a_statement() {
    let limits = Limits { statement: Some(Duration::from_millis(200)), ..options().limits };
    let served = Served::with(ServerOptions { limits, ..options() }).await;
    let mut raw = Raw::start(served.address).await;
    raw.query("CREATE TABLE t (id INT PRIMARY KEY)").await;
    raw.send(&query("COPY t FROM STDIN")).await;
    raw.send(&data("1\n")).await;
    assert_eq!(shorts(&raw.until_ready().await), ["G", "E ERROR 57014", "Z I"]);
    raw.send(&message('c', b"")).await;
    assert_eq!(raw.query("SELECT * FROM t").await, ["T", "C SELECT 0", "Z I"]);
    drop(raw);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_copies_files() {
    if !crate::psql::installed() {
        return;
    }
    let (served, client) = table().await;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("in.csv"), "id,v,s\n1,10,\"a, b\"\n2,,\n").unwrap();
    std::fs::write(
        path("script.sql"),
        format!(
            "\\copy t from '{}' with (format csv, header)\nCOPY t FROM STDIN;\n3\t\\N\tc\\\\d\n\\.\n\
             \\copy (SELECT * FROM t ORDER BY id) to '{}'\nCOPY t (id) TO STDOUT;\n",
            path("in.csv"),
            path("out.txt")
        ),
    )
    .unwrap();
    let mut command = crate::psql::command(served.address);
    command.args(["-v", "ON_ERROR_STOP=1", "-f", &path("script.sql")]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "COPY 2\nCOPY 1\nCOPY 3\n1\n2\n3\n");
    let out = std::fs::read_to_string(path("out.txt")).unwrap();
    assert_eq!(out, "1\t10\ta, b\n2\t\\N\t\\N\n3\t\\N\tc\\\\d\n");
    let mut command = crate::psql::command(served.address);
    std::fs::write(path("bad.csv"), "4,1,x\n5,five,x\n").unwrap();
    command.args(["-c", &format!("\\copy t from '{}' csv", path("bad.csv"))]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.starts_with("ERROR:  22P02: invalid input syntax for type bigint: \"five\"\n"), "{text}");
    assert!(text.contains("CONTEXT:  COPY t, line 2, column v\n"), "{text}");
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "3");
    drop(client);
    served.stop().await;
}
