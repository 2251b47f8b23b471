//! The extended protocol: parameters, pipelines, portals, messages skipped after an error.

use crate::raw::{Raw, extended, message, shorts};
use crate::support::{Served, code, one};
use futures::future::join_all;

#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_run_with_other_values() {
    let served = Served::start().await;
    let client = served.client().await;
    client.batch_execute("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR)").await.unwrap();
    let insert = client.prepare("INSERT INTO t VALUES ($1, $2)").await.unwrap();
    for id in 0..50i32 {
        assert_eq!(client.execute(&insert, &[&id, &format!("name {id}")]).await.unwrap(), 1);
    }
    let select = client.prepare("SELECT name FROM t WHERE id = $1").await.unwrap();
    for id in [0i32, 17, 49] {
        let row = client.query_one(&select, &[&id]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), format!("name {id}"));
    }
    assert!(client.query(&select, &[&50i32]).await.unwrap().is_empty());
    let update = client.prepare("UPDATE t SET name = $2 WHERE id = $1").await.unwrap();
    assert_eq!(client.execute(&update, &[&3i32, &"it's"]).await.unwrap(), 1);
    assert_eq!(one(&client, "SELECT name FROM t WHERE id = 3").await, "it's");
    let delete = client.prepare("DELETE FROM t WHERE id = $1").await.unwrap();
    assert_eq!(client.execute(&delete, &[&3i32]).await.unwrap(), 1);
    assert_eq!(client.execute(&delete, &[&3i32]).await.unwrap(), 0);
    assert_eq!(code(client.execute(&insert, &[&4i32, &"x"]).await), "23505");
    assert_eq!(code(client.prepare("SELECT * FROM missing WHERE id = $1").await), "42P01");
    drop(client);
    served.stop().await;
}

/// Parameters in conditions of a pattern, and statements that differ in their literals only.
#[tokio::test(flavor = "multi_thread")]
async fn patterns_of_rows_have_the_values_of_each_run() {
    let served = Served::start().await;
    let client = served.client().await;
    client
        .batch_execute("CREATE TABLE t (id INT PRIMARY KEY, n INT); INSERT INTO t SELECT i, i % 4 FROM generate_series(1, 12) g(i)")
        .await
        .unwrap();
    let matched = |condition: &str| {
        format!(
            "SELECT f, l FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES first(id) AS f, last(id) AS l PATTERN (x y{{2}}) DEFINE y AS {condition}) ORDER BY f"
        )
    };
    let select = client.prepare(&matched("n > prev(n) AND n >= $1 AND id < $2")).await.unwrap();
    for (least, end, expected) in
        [(2i32, 100i32, vec![(1, 3), (5, 7), (9, 11)]), (1, 8, vec![(1, 3), (4, 6)]), (3, 100, vec![])]
    {
        let rows = client.query(&select, &[&least, &end]).await.unwrap();
        let found: Vec<(i32, i32)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert_eq!(found, expected, "{least}, {end}");
    }
    for (least, expected) in [(2, "3"), (1, "3"), (3, "0"), (2, "3")] {
        let statement = matched(&format!("n > prev(n) AND n >= {least}"));
        assert_eq!(one(&client, &format!("SELECT count(*)::text FROM ({statement}) m")).await, expected);
    }
    let lines = client.copy_out(&format!("COPY ({}) TO STDOUT", matched("n = 3"))).await.unwrap();
    assert_eq!(futures::StreamExt::collect::<Vec<_>>(lines).await.len(), 0);
    drop(client);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_queries_are_answered_in_order() {
    let served = Served::start().await;
    let client = served.client().await;
    client.batch_execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)").await.unwrap();
    let insert = client.prepare("INSERT INTO t VALUES ($1, $2)").await.unwrap();
    let values: Vec<(i32, i32)> = (0..300).map(|id| (id, id * id)).collect();
    let done = join_all(values.iter().map(|(id, n)| {
        let (client, insert) = (&client, &insert);
        async move { client.execute(insert, &[id, n]).await }
    }));
    assert!(done.await.into_iter().all(|done| done.unwrap() == 1));
    let select = client.prepare("SELECT n FROM t WHERE id = $1").await.unwrap();
    let rows = join_all(values.iter().map(|(id, _)| {
        let (client, select) = (&client, &select);
        async move { client.query_one(select, &[id]).await.unwrap().get::<_, i32>(0) }
    }));
    assert_eq!(rows.await, values.iter().map(|(_, n)| *n).collect::<Vec<_>>());
    drop(client);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_between_two_syncs_are_one_transaction() {
    let served = Served::start().await;
    let mut raw = Raw::start(served.address).await;
    raw.query("CREATE TABLE t (id INT PRIMARY KEY)").await;
    let mut pipeline = extended("INSERT INTO t VALUES (1)");
    pipeline.extend(extended("INSERT INTO t VALUES (1)"));
    pipeline.extend(extended("INSERT INTO t VALUES (2)"));
    pipeline.extend(message('S', b""));
    raw.send(&pipeline).await;
    // The third is skipped, the first is taken back.
    let answer = shorts(&raw.until_ready().await);
    assert_eq!(answer, ["1", "2", "C INSERT 0 1", "1", "2", "E ERROR 23505", "Z I"]);
    assert_eq!(raw.query("SELECT * FROM t").await, ["T", "C SELECT 0", "Z I"]);
    let mut pipeline = extended("INSERT INTO t VALUES (1)");
    pipeline.extend(extended("INSERT INTO t VALUES (2)"));
    pipeline.extend(message('S', b""));
    raw.send(&pipeline).await;
    assert_eq!(shorts(&raw.until_ready().await), ["1", "2", "C INSERT 0 1", "1", "2", "C INSERT 0 1", "Z I"]);
    assert_eq!(raw.query("SELECT * FROM t").await, ["T", "D", "D", "C SELECT 2", "Z I"]);
    // An error in a block leaves it failed.
    raw.query("BEGIN").await;
    let mut pipeline = extended("INSERT INTO t VALUES (1)");
    pipeline.extend(message('S', b""));
    raw.send(&pipeline).await;
    assert_eq!(shorts(&raw.until_ready().await), ["1", "2", "E ERROR 23505", "Z E"]);
    assert_eq!(raw.query("ROLLBACK").await, ["C ROLLBACK", "Z I"]);
    drop(raw);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_give_as_many_rows_as_are_asked_for() {
    let served = Served::start().await;
    let mut client = served.client().await;
    client
        .batch_execute("CREATE TABLE t AS SELECT CAST(value AS INT) AS id FROM generate_series(1, 25000)")
        .await
        .unwrap();
    let transaction = client.transaction().await.unwrap();
    let statement = transaction.prepare("SELECT id FROM t WHERE id > $1 ORDER BY id").await.unwrap();
    let portal = transaction.bind(&statement, &[&0i32]).await.unwrap();
    let mut next = 1;
    loop {
        let rows = transaction.query_portal(&portal, 7_000).await.unwrap();
        for row in &rows {
            assert_eq!(row.get::<_, i32>(0), next);
            next += 1;
        }
        if rows.len() < 7_000 {
            break;
        }
    }
    assert_eq!(next, 25_001);
    // Two portals at a time, and one that is left open.
    let (one, two) = (
        transaction.bind(&statement, &[&0i32]).await.unwrap(),
        transaction.bind(&statement, &[&100i32]).await.unwrap(),
    );
    assert_eq!(transaction.query_portal(&one, 1).await.unwrap()[0].get::<_, i32>(0), 1);
    assert_eq!(transaction.query_portal(&two, 1).await.unwrap()[0].get::<_, i32>(0), 101);
    assert_eq!(transaction.query_portal(&one, 1).await.unwrap()[0].get::<_, i32>(0), 2);
    drop((portal, one, two));
    transaction.commit().await.unwrap();
    drop((statement, client));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_names_and_numbers_are_told() {
    let served = Served::start().await;
    let mut raw = Raw::start(served.address).await;
    let sync = message('S', b"");
    for (bytes, expected) in [
        (message('B', b"\0nothing\0\0\0\0\0\0\0"), "E ERROR 26000"),
        (message('E', b"nothing\0\0\0\0\0"), "E ERROR 34000"),
        (message('D', b"Snothing\0"), "E ERROR 26000"),
        (message('P', b"\0SELECT 1; SELECT 2\0\0\0"), "E ERROR 42601"),
        (message('P', b"\0SELEC 1\0\0\0"), "E ERROR 42601"),
        (message('F', b"\0\0\0\0"), "E ERROR 0A000"),
    ] {
        raw.send(&bytes).await;
        if bytes[0] != b'F' {
            raw.send(&sync).await;
        }
        assert_eq!(shorts(&raw.until_ready().await), [expected, "Z I"]);
    }
    // A parameter that is missing, and one that is no number.
    raw.send(&message('P', b"s\0SELECT $1 + 1\0\0\x01\0\0\0\x17")).await;
    raw.send(&message('B', b"\0s\0\0\0\0\0\0\0")).await;
    raw.send(&sync).await;
    assert_eq!(shorts(&raw.until_ready().await), ["1", "E ERROR 08P01", "Z I"]);
    raw.send(&message('B', b"\0s\0\0\0\0\x01\0\0\0\x03abc\0\0")).await;
    raw.send(&sync).await;
    assert_eq!(shorts(&raw.until_ready().await), ["E ERROR 22P02", "Z I"]);
    raw.send(&message('P', b"s\0SELECT 1\0\0\0")).await;
    raw.send(&sync).await;
    assert_eq!(shorts(&raw.until_ready().await), ["E ERROR 42P05", "Z I"]);
    let mut empty = extended("");
    empty.extend(sync);
    raw.send(&empty).await;
    assert_eq!(shorts(&raw.until_ready().await), ["1", "2", "I", "Z I"]);
    drop(raw);
    served.stop().await;
}

/// asyncpg prepares with Parse, Describe, Flush, and sends Sync only when it knows how that went.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_told_before_the_sync() {
    let served = Served::start().await;
    let mut raw = Raw::start(served.address).await;
    for _ in 0..2 {
        raw.send(&message('P', b"\0SELECT * FROM nothing\0\0\0")).await;
        raw.send(&message('D', b"S\0")).await;
        raw.send(&message('H', b"")).await;
        assert_eq!(shorts(&[raw.next().await.unwrap()]), ["E ERROR 42P01"]);
        raw.send(&message('S', b"")).await;
        assert_eq!(shorts(&raw.until_ready().await), ["Z I"]);
    }
    drop(raw);
    served.stop().await;
}

/// Drivers declare a cursor in SQL and describe it as a portal.
#[tokio::test(flavor = "multi_thread")]
async fn a_declared_cursor_is_a_portal() {
    let served = Served::start().await;
    let mut raw = Raw::start(served.address).await;
    assert_eq!(raw.query("BEGIN").await, ["C BEGIN", "Z T"]);
    let declared = "DECLARE part CURSOR FOR SELECT value FROM generate_series(1, 5)";
    assert_eq!(raw.query(declared).await, ["C DECLARE CURSOR", "Z T"]);
    raw.send(&message('D', b"Ppart\0")).await;
    raw.send(&message('S', b"")).await;
    assert_eq!(shorts(&raw.until_ready().await), ["T", "Z T"]);
    raw.send(&message('D', b"Pother\0")).await;
    raw.send(&message('S', b"")).await;
    assert_eq!(shorts(&raw.until_ready().await), ["E ERROR 34000", "Z E"]);
    drop(raw);
    served.stop().await;
}

/// A statement by the key of a view is planned for its table, which is behind what the block has written.
#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_statement_sees_what_its_block_has_changed_of_a_view() {
    let served = Served::start().await;
    let client = served.client().await;
    client
        .batch_execute(
            "CREATE TABLE reading (id INT PRIMARY KEY, meter INT);
             CREATE MATERIALIZED VIEW by_meter AS SELECT meter, count(*) AS n FROM reading GROUP BY meter;
             CREATE UNIQUE INDEX one_by_meter ON by_meter (meter);
             INSERT INTO reading VALUES (1, 7)",
        )
        .await
        .unwrap();
    let read = client.prepare("SELECT n FROM by_meter WHERE meter = $1").await.unwrap();
    let insert = client.prepare("INSERT INTO reading VALUES ($1, 7)").await.unwrap();
    for round in 0..3_i64 {
        assert_eq!(client.query_one(&read, &[&7]).await.unwrap().get::<_, i64>(0), 1 + 2 * round);
        client.batch_execute("BEGIN").await.unwrap();
        for id in 0..2_i64 {
            let id = id + 2 * round;
            client.execute(&insert, &[&(id as i32 + 2)]).await.unwrap();
            assert_eq!(client.query_one(&read, &[&7]).await.unwrap().get::<_, i64>(0), 2 + id);
            // As a statement that comes again, too.
            assert_eq!(one(&client, "SELECT n FROM by_meter WHERE meter = 7").await, (2 + id).to_string());
        }
        client.batch_execute("COMMIT").await.unwrap();
    }
    drop(client);
    served.stop().await;
}
