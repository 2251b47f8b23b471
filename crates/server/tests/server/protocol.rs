//! The simple protocol: query texts, tags, states, errors.

use crate::raw::{Raw, message, shorts, startup};
use crate::support::{Served, code, one, options, texts};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_text_of_statements_is_answered_one_by_one() {
    let served = Served::start().await;
    let mut raw = Raw::start(served.address).await;
    let created = raw.query("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR)").await;
    assert_eq!(created, ["C CREATE TABLE", "Z I"]);
    let answer =
        raw.query("INSERT INTO t VALUES (1, 'a'), (2, NULL); SELECT * FROM t; UPDATE t SET name = 'x'").await;
    assert_eq!(answer, ["C INSERT 0 2", "T", "D", "D", "C SELECT 2", "C UPDATE 2", "Z I"]);
    assert_eq!(raw.query("DELETE FROM t WHERE id = 1").await, ["C DELETE 1", "Z I"]);
    let merge = "MERGE INTO t USING (VALUES (2), (3)) AS s (id) ON t.id = s.id \
                 WHEN MATCHED THEN UPDATE SET name = 'm' WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)";
    assert_eq!(raw.query(&format!("{merge}; SELECT 1")).await, ["C MERGE 2", "T", "D", "C SELECT 1", "Z I"]);
    let returning = format!("WITH c AS (SELECT 1) {merge} RETURNING merge_action(), t.*");
    assert_eq!(raw.query(&returning).await, ["T", "D", "D", "C MERGE 2", "Z I"]);
    let answer = raw.query(&format!("BEGIN; {merge}; ROLLBACK")).await;
    assert_eq!(answer, ["C BEGIN", "C MERGE 2", "C ROLLBACK", "Z I"]);
    let unmatched =
        "MERGE INTO t USING (SELECT 2 AS id) AS s ON t.id = s.id WHEN NOT MATCHED BY SOURCE THEN DELETE";
    assert_eq!(raw.query(unmatched).await, ["C MERGE 1", "Z I"]);
    assert_eq!(raw.query("").await, ["I", "Z I"]);
    assert_eq!(raw.query(" ; -- nothing\n").await, ["I", "Z I"]);
    assert_eq!(raw.query("SELECT 1;").await, ["T", "D", "C SELECT 1", "Z I"]);
    assert_eq!(raw.query("CREATE TABLE u AS SELECT * FROM t").await, ["C SELECT 1", "Z I"]);
    assert_eq!(raw.query("DROP TABLE u").await, ["C DROP TABLE", "Z I"]);
    drop(raw);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_show_their_state() {
    let served = Served::start().await;
    let mut raw = Raw::start(served.address).await;
    raw.query("CREATE TABLE t (id INT PRIMARY KEY)").await;
    assert_eq!(raw.query("BEGIN").await, ["C BEGIN", "Z T"]);
    assert_eq!(raw.query("INSERT INTO t VALUES (1)").await, ["C INSERT 0 1", "Z T"]);
    assert_eq!(raw.query("SELECT nothing").await, ["E ERROR 42703", "Z E"]);
    assert_eq!(raw.query("SELECT 1").await, ["E ERROR 25P02", "Z E"]);
    assert_eq!(raw.query("COMMIT").await, ["C ROLLBACK", "Z I"], "a commit that did not happen says so");
    assert_eq!(raw.query("SELECT * FROM t").await, ["T", "C SELECT 0", "Z I"]);
    // PostgreSQL only warns here.
    assert_eq!(raw.query("COMMIT").await, ["N WARNING 25P01", "C COMMIT", "Z I"]);
    assert_eq!(raw.query("ROLLBACK").await, ["N WARNING 25P01", "C ROLLBACK", "Z I"]);
    raw.query("BEGIN").await;
    assert_eq!(raw.query("BEGIN").await, ["N WARNING 25001", "C BEGIN", "Z T"]);
    assert_eq!(raw.query("SAVEPOINT a").await, ["C SAVEPOINT", "Z T"]);
    assert_eq!(raw.query("SELECT 1/0").await, ["T", "E ERROR 22012", "Z E"]);
    assert_eq!(raw.query("ROLLBACK TO a").await, ["C ROLLBACK", "Z T"]);
    assert_eq!(raw.query("COMMIT").await, ["C COMMIT", "Z I"]);
    assert_eq!(served.counts().open_transactions, 0);
    drop(raw);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_writes_of_one_text_are_one_transaction() {
    let served = Served::start().await;
    let client = served.client().await;
    client.batch_execute("CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    let failed =
        client.batch_execute("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); INSERT INTO t VALUES (1)");
    assert_eq!(code(failed.await), "23505");
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "0");
    client.batch_execute("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)").await.unwrap();
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "2");
    drop(client);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_codes_and_places() {
    let served = Served::start().await;
    let client = served.client().await;
    client.batch_execute("CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL)").await.unwrap();
    client.batch_execute("INSERT INTO t VALUES (1, 1)").await.unwrap();
    for (sql, expected) in [
        ("SELEC 1", "42601"),
        ("SELECT * FROM missing", "42P01"),
        ("SELECT missing FROM t", "42703"),
        ("SELECT missing(1)", "42883"),
        ("CREATE TABLE t (id INT PRIMARY KEY)", "42P07"),
        ("INSERT INTO t VALUES (1, 1)", "23505"),
        ("INSERT INTO t VALUES (2, NULL)", "23502"),
        ("INSERT INTO t VALUES (99999999999, 1)", "22003"),
        ("SELECT 1/0", "22012"),
        ("SELECT CAST('x' AS INT)", "22P02"),
        ("CREATE SERVER s FOREIGN DATA WRAPPER w", "0A000"),
    ] {
        let failed = client.simple_query(sql).await;
        let text = format!("{sql}: {failed:?}");
        assert_eq!(code(failed), expected, "{text}");
    }
    let error = client.simple_query("SELECT 1;\n SELECT )").await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.position(), Some(&tokio_postgres::error::ErrorPosition::Original(19)), "{error:?}");
    // The step of a topology, in the extended protocol too.
    let topology = "CREATE TOPOLOGY x AS (\n  CREATE STREAM s AS SELECT id FROM nothing)";
    let error = client.execute(topology, &[]).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.position(), Some(&tokio_postgres::error::ErrorPosition::Original(26)), "{error:?}");
    assert_eq!(error.where_(), Some("step 1 (CREATE STREAM s)"), "{error:?}");
    let error = client.simple_query("INSERT INTO t VALUES (1, 1)").await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.message(), "duplicate key value violates unique constraint \"t_pkey\"");
    assert!(error.detail().unwrap().contains('1'));
    drop(client);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_the_parameters_of_the_session() {
    let served = Served::start().await;
    let mut raw = Raw::open(served.address).await;
    raw.send(&startup(&[("user", "anna"), ("application_name", "it"), ("client_encoding", "UTF8")])).await;
    let messages = raw.until_ready().await;
    let values: Vec<String> = messages
        .iter()
        .filter(|(kind, _)| *kind == 'S')
        .map(|(_, body)| String::from_utf8_lossy(body).replace('\0', "="))
        .collect();
    for expected in
        ["server_version=16.", "client_encoding=UTF8=", "integer_datetimes=on=", "DateStyle=ISO, MDY="]
    {
        assert!(values.iter().any(|value| value.starts_with(expected)), "{expected} in {values:?}");
    }
    assert!(values.contains(&"application_name=it=".to_owned()), "{values:?}");
    assert!(values.iter().any(|value| value.contains("(Entresol ")), "{values:?}");
    assert!(messages.iter().any(|(kind, body)| *kind == 'K' && body.len() == 8));
    assert_eq!(raw.query("SET application_name = 'other'").await, ["C SET", "S", "Z I"]);
    assert_eq!(raw.query("SHOW application_name").await, ["T", "D", "C SHOW", "Z I"]);
    // A newer minor version is talked down.
    let mut newer = Raw::open(served.address).await;
    let mut bytes = startup(&[("user", "anna"), ("_pq_.new", "1")]);
    bytes[7] = 9;
    newer.send(&bytes).await;
    assert_eq!(newer.until_ready().await[0].0, 'v');
    // No user, no session.
    let mut nobody = Raw::open(served.address).await;
    nobody.send(&startup(&[("database", "x")])).await;
    assert_eq!(shorts(&nobody.until_ready().await), ["E FATAL 28000"]);
    drop((raw, newer, nobody));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_sent_while_they_are_computed() {
    let served = Served::start().await;
    let mut raw = Raw::start(served.address).await;
    // A hundred million rows: unread rows are not computed.
    raw.send(&message('Q', b"SELECT value FROM generate_series(1, 100000000)\0")).await;
    assert_eq!(raw.next().await.unwrap().0, 'T');
    let first = raw.next().await.unwrap();
    assert_eq!(first, ('D', b"\0\x01\0\0\0\x011".to_vec()));
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    // Socket buffers on both sides hold a few megabytes.
    let sent = served.metric("entresol_bytes_sent_total").await;
    assert!(sent < 64e6, "{sent} bytes were sent to a client that does not read");
    drop(raw);
    served.eventually("the client is gone", |counts| counts.connections == 0).await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_see_each_others_commits() {
    let served = Served::start().await;
    let (one_client, two) = (served.client().await, served.client().await);
    one_client
        .batch_execute("CREATE TABLE t (id INT PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 0)")
        .await
        .unwrap();
    one_client.batch_execute("BEGIN").await.unwrap();
    one_client.batch_execute("UPDATE t SET n = 1").await.unwrap();
    assert_eq!(texts(&two, "SELECT n FROM t").await, [[Some("0".to_owned())]]);
    two.batch_execute("UPDATE t SET n = 2").await.unwrap();
    let conflict = one_client.batch_execute("COMMIT").await.unwrap_err();
    assert_eq!(conflict.code().unwrap().code(), "40001");
    assert_eq!(one(&two, "SELECT n FROM t").await, "2");
    assert_eq!(served.metric("entresol_conflicts_total").await, 1.0);
    drop((one_client, two));
    served.stop().await;
}

/// The kind of a statement is that of its command: its first words may be those of a query.
#[tokio::test(flavor = "multi_thread")]
async fn writes_with_with_are_counted_as_writes() {
    let served = Served::with(options()).await;
    let client = served.client().await;
    client.batch_execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)").await.unwrap();
    let source = "WITH c AS (SELECT * FROM generate_series(1, 3) g(i))";
    client.batch_execute(&format!("{source} INSERT INTO t SELECT i, 0 FROM c")).await.unwrap();
    client.batch_execute(&format!("{source} UPDATE t SET n = 1 FROM c WHERE id = i")).await.unwrap();
    client.batch_execute(&format!("{source} DELETE FROM t USING c WHERE id = i AND i > 1")).await.unwrap();
    assert_eq!(
        client.execute("WITH c AS (SELECT 7 AS i) INSERT INTO t SELECT i, 0 FROM c", &[]).await.unwrap(),
        1
    );
    assert_eq!(served.metric("entresol_commits_total").await, 4.0);
    assert_eq!(served.metric("entresol_rows_written_total").await, 9.0);
    assert_eq!(texts(&client, &format!("{source} SELECT i FROM c")).await.len(), 3);
    let text = served.http("/metrics").await;
    assert!(text.contains("entresol_statements_total{kind=\"write\",sqlstate=\"00000\"} 4\n"), "{text}");
    assert!(text.contains("entresol_statements_total{kind=\"select\",sqlstate=\"00000\"} 1\n"), "{text}");
    // A statement that ends no block is an error of syntax, with or without one.
    let wrong = client.batch_execute("COMMIT rubbish").await.unwrap_err();
    assert_eq!(wrong.code().unwrap().code(), "42601");
    drop(client);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_metrics_are_served() {
    let served = Served::with(options()).await;
    let client = served.client().await;
    client.batch_execute("CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    client.batch_execute("INSERT INTO t VALUES (1)").await.unwrap();
    let _ = client.batch_execute("INSERT INTO t VALUES (1)").await;
    assert!(served.http("/healthz").await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(served.http("/other").await.starts_with("HTTP/1.1 404"));
    assert_eq!(served.metric("entresol_commits_total").await, 1.0);
    let text = served.http("/metrics").await;
    assert!(text.contains("entresol_statements_total{kind=\"write\",sqlstate=\"00000\"} 1\n"), "{text}");
    assert!(text.contains("entresol_statements_total{kind=\"write\",sqlstate=\"23505\"} 1\n"), "{text}");
    assert!(text.contains("entresol_statement_seconds_bucket{le=\"+Inf\"} 3\n"), "{text}");
    client
        .batch_execute(
            "CREATE SOURCE number (n INT NOT NULL) WITH (connector = 'generator', rows = 60, n.cardinality = 5);
             CREATE TABLE counts (n INT PRIMARY KEY, c BIGINT) WITH (changes = '1 hour');
             CREATE TOPOLOGY counting COMMIT EVERY 20 ROWS AS (INSERT INTO counts SELECT n, count(*) AS c FROM number GROUP BY n
                 ON CONFLICT (n) DO UPDATE SET c = excluded.c)",
        )
        .await
        .unwrap();
    let began = std::time::Instant::now();
    let all = "entresol_topology_tuples_total{topology=\"counting\"} 60\n";
    while !served.http("/metrics").await.contains(all) {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", served.http("/metrics").await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let written = tempfile::tempdir().unwrap();
    let sink = format!(
        "CREATE SINK copied AS SELECT n FROM number WITH (connector = 'file', path = '{}') FORMAT PLAIN ENCODE CSV",
        written.path().join("numbers.csv").display()
    );
    client.batch_execute(&sink).await.unwrap();
    let mut subscriber = Raw::start(served.address).await;
    subscriber.send(&message('Q', b"SUBSCRIBE TO counts\0")).await;
    let copied = "entresol_sink_rows_written_total{sink=\"copied\"} 60\n";
    let subscribed = ",user=\"test\",relations=\"counts\"} 5\n";
    loop {
        let text = served.http("/metrics").await;
        if text.contains(copied) && text.contains(subscribed) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let text = served.http("/metrics").await;
    for line in [
        "entresol_topology_state_rows{topology=\"counting\"} 5\n",
        "entresol_topology_state_bytes{topology=\"counting\"} ",
        "entresol_sink_bytes_written_total{sink=\"copied\"} 122\n",
        "entresol_subscription_seconds{session=\"",
        "# TYPE entresol_topology_tuples_per_second gauge\n",
        "# TYPE entresol_topology_commits_total counter\n",
        "entresol_topology_state{topology=\"counting\",state=\"",
        "entresol_operator_tuples_in_total{topology=\"counting\",number=\"0\",operator=\"",
        "entresol_source_tuples_total{topology=\"counting\",source=\"number\"} 60\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // PostgreSQL's tools send it with ANALYZE.
    client.batch_execute("EXPLAIN (ANALYZE, COSTS) SELECT count(*) FROM t").await.unwrap();
    assert!(
        client.query("EXPLAIN (ANALYZE, COSTS OFF) SELECT count(*) FROM t", &[]).await.unwrap().len() > 1
    );
    assert_eq!(served.metric("entresol_connections").await, 2.0);
    drop((client, subscriber));
    served.stop().await;
}
