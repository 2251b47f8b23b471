//! Subscriptions: every change once, in the order of commits, beside writers; cursors over them; errors.

use crate::runner::{TestDatabase, rows};
use entresol_query::{Session, StatementResult};
use futures::StreamExt;
use std::collections::BTreeMap;
use std::time::Duration;

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Rows of a statement, each as its columns behind the timestamp.
async fn fetched(session: &mut Session, sql: &str) -> Vec<String> {
    let result = session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let StatementResult::Rows(collected) = result.into_iter().next_back().unwrap() else { panic!("{sql}") };
    let texts = rows(&collected.batches).into_iter();
    texts.map(|row| row.split_once(' ').unwrap().1.to_owned()).collect()
}

#[tokio::test]
async fn a_cursor_takes_what_is_there_and_goes_on_later() {
    let database = TestDatabase::volatile();
    let (mut reader, mut writer) = (database.session(), database.session());
    run(
        &mut writer,
        "CREATE TABLE alarm (id INT PRIMARY KEY, at TIMESTAMP, what TEXT) WITH (changes = '1 hour');
         CREATE TABLE balance (feeder TEXT PRIMARY KEY, kw DOUBLE) WITH (changes = '1 hour');
         INSERT INTO alarm VALUES (1, '2026-01-01', 'hot'), (2, NULL, NULL)",
    )
    .await;
    run(&mut reader, "BEGIN").await;
    run(&mut reader, "DECLARE c CURSOR FOR SUBSCRIBE TO (alarm, balance)").await;
    assert_eq!(
        fetched(&mut reader, "FETCH ALL c").await,
        [
            r#"alarm snapshot {"id":1,"at":"2026-01-01T00:00:00","what":"hot"}"#,
            r#"alarm snapshot {"id":2,"at":null,"what":null}"#
        ]
    );
    run(&mut writer, "BEGIN").await;
    run(&mut writer, "INSERT INTO balance VALUES ('north', 1.5)").await;
    run(&mut writer, "UPDATE alarm SET what = 'a \"word\"' WHERE id = 2").await;
    run(&mut writer, "COMMIT").await;
    run(&mut writer, "DELETE FROM alarm WHERE id = 1").await;
    assert_eq!(
        fetched(&mut reader, "FETCH 2 c").await,
        [
            r#"alarm update {"id":2,"at":null,"what":"a \"word\""}"#,
            r#"balance insert {"feeder":"north","kw":1.5}"#,
        ]
    );
    assert_eq!(
        fetched(&mut reader, "FETCH ALL c").await,
        [r#"alarm delete {"id":1,"at":"2026-01-01T00:00:00","what":"hot"}"#]
    );
    assert_eq!(fetched(&mut reader, "FETCH ALL c").await, [""; 0]);
    run(&mut reader, "COMMIT").await;
}

#[tokio::test]
async fn documents_are_parts_of_the_rows() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE a (id INT PRIMARY KEY, doc JSONB) WITH (changes = '1 hour');
         CREATE TABLE b (id INT PRIMARY KEY, doc JSON) WITH (changes = '1 hour');
         INSERT INTO a VALUES (1, '{\"n\": [1, 2.50]}'), (2, NULL);
         INSERT INTO b VALUES (3, E'[\\n\"x\"]')",
    )
    .await;
    run(&mut session, "BEGIN").await;
    run(&mut session, "DECLARE c CURSOR FOR SUBSCRIBE TO (a, b)").await;
    assert_eq!(
        fetched(&mut session, "FETCH ALL c").await,
        [
            r#"a snapshot {"id":1,"doc":{"n": [1, 2.50]}}"#,
            r#"a snapshot {"id":2,"doc":null}"#,
            r#"b snapshot {"id":3,"doc":["x"]}"#,
        ]
    );
    run(&mut session, "COMMIT").await;
}

#[tokio::test]
async fn a_view_is_its_query() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE t (id INT PRIMARY KEY, n INT) WITH (changes = '1 hour');
         INSERT INTO t VALUES (1, 1), (2, 2);
         CREATE VIEW \"High\" AS SELECT id, n * 10 AS n FROM t WHERE n > 1;
         CREATE VIEW sums AS SELECT sum(n) FROM t",
    )
    .await;
    run(&mut session, "BEGIN").await;
    run(&mut session, "DECLARE c CURSOR FOR SUBSCRIBE TO \"High\"").await;
    assert_eq!(fetched(&mut session, "FETCH ALL c").await, ["snapshot 2 20"]);
    run(&mut session, "COMMIT").await;
    let error = session.execute("SUBSCRIBE TO sums").await.unwrap_err().to_string();
    assert!(error.contains("CREATE MATERIALIZED VIEW"), "{error}");
}

#[tokio::test]
async fn times_in_quotes_are_in_the_zone_of_the_session() {
    let database = TestDatabase::volatile();
    let (mut reader, mut writer) = (database.session(), database.session());
    // Commits take their timestamps from the clock where a table keeps earlier versions.
    run(&mut writer, "CREATE TABLE t (id INT PRIMARY KEY) WITH (changes = '1 hour', history = '1 hour')")
        .await;
    run(&mut writer, "INSERT INTO t VALUES (1)").await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    run(&mut reader, "SET TIME ZONE 'Asia/Tokyo'").await;
    let local = rows(&reader.query("SELECT now()::timestamp::varchar").await.unwrap()).remove(0);
    tokio::time::sleep(Duration::from_millis(5)).await;
    run(&mut writer, "INSERT INTO t VALUES (2)").await;
    for (time, wanted) in [
        (format!("'{local}'"), vec!["insert 2"]),
        ("'2020-01-01 00:00'".to_owned(), vec!["insert 1", "insert 2"]),
        ("now()".to_owned(), vec![]),
    ] {
        run(&mut reader, "BEGIN").await;
        run(&mut reader, &format!("DECLARE c CURSOR FOR SUBSCRIBE t AS OF {time}")).await;
        assert_eq!(fetched(&mut reader, "FETCH ALL c").await, wanted, "{time}");
        run(&mut reader, "COMMIT").await;
    }
    let error = reader.execute("SUBSCRIBE t AS OF 'yesterday'").await.unwrap_err().to_string();
    assert!(error.contains("\"yesterday\" is not the time of a commit"), "{error}");
}

#[tokio::test]
async fn progress_says_up_to_where_changes_are_complete() {
    let database = TestDatabase::volatile();
    let (mut reader, mut writer) = (database.session(), database.session());
    run(&mut writer, "CREATE TABLE t (id INT PRIMARY KEY) WITH (changes = forever)").await;
    run(&mut writer, "INSERT INTO t VALUES (1)").await;
    let mut stream = reader.stream("SUBSCRIBE t WITH (SNAPSHOT = false, PROGRESS)").await.unwrap();
    let mut last = 0;
    let mut next = async || {
        let batch = stream.next().await.unwrap().unwrap();
        let row = rows(&[batch]).remove(0);
        let (cts, rest) = row.split_once(' ').unwrap();
        let cts: u64 = cts.parse().unwrap();
        assert!(cts >= last, "timestamps only grow");
        last = cts;
        rest.to_owned()
    };
    assert_eq!(next().await, "progress NULL");
    run(&mut writer, "INSERT INTO t VALUES (2)").await;
    let mut found = next().await;
    while found == "progress NULL" {
        found = next().await;
    }
    assert_eq!(found, "insert 2");
    assert_eq!(next().await, "progress NULL");
}

/// Writers of two tables in one transaction, some of them slow, and subscribers that begin at any time: what
/// each gets is a snapshot and changes that lead from it to the end, and both tables always fit each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_subscribers_see_beside_writers_is_whole_commits_in_their_order() {
    const COMMITS: usize = 150;
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE a (id INT PRIMARY KEY, n BIGINT) WITH (changes = forever, layout = 'columns');
         CREATE TABLE b (id INT PRIMARY KEY, n BIGINT) WITH (changes = forever);
         INSERT INTO a SELECT i, 0 FROM generate_series(0, 7) g(i);
         INSERT INTO b SELECT i, 0 FROM generate_series(0, 7) g(i)",
    )
    .await;
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let mut session = database.session();
            tokio::spawn(async move {
                for number in 0..COMMITS {
                    let id = (number * 3 + writer) % 8;
                    run(&mut session, "BEGIN").await;
                    // The first committer wins: one of both may fail.
                    let update = |table| format!("UPDATE {table} SET n = n + 1 WHERE id % 2 = {}", id % 2);
                    for table in ["a", "b"] {
                        if session.execute(&update(table)).await.is_err() {
                            break;
                        }
                    }
                    if session.execute("COMMIT").await.is_err() {
                        let _ = session.execute("ROLLBACK").await;
                    }
                }
            })
        })
        .collect();
    let subscribers: Vec<_> = (0..3)
        .map(|number| {
            let mut session = database.session();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(20 * number)).await;
                follow(&mut session).await
            })
        })
        .collect();
    // Merges change no row.
    for _ in 0..5 {
        run(&mut session, "VACUUM a").await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    run(&mut session, "BEGIN; INSERT INTO a VALUES (99, 0); INSERT INTO b VALUES (99, 0); COMMIT").await;
    let rows_of = "SELECT 'a ' || id, n FROM a UNION ALL SELECT 'b ' || id, n FROM b";
    let last = rows(&session.query(rows_of).await.unwrap());
    let last: BTreeMap<String, i64> = last
        .iter()
        .map(|row| {
            let (key, n) = row.rsplit_once(' ').unwrap();
            (key.to_owned(), n.parse().unwrap())
        })
        .collect();
    for subscriber in subscribers {
        assert_eq!(subscriber.await.unwrap(), last);
    }
}

/// Applies a snapshot and changes until both tables have the last row; returns their rows.
async fn follow(session: &mut Session) -> BTreeMap<String, i64> {
    let mut stream = session.stream("SUBSCRIBE TO (a, b) WITH (PROGRESS)").await.unwrap();
    let mut tables: BTreeMap<String, i64> = BTreeMap::new();
    let (mut commit, mut progress) = (0_u64, 0);
    loop {
        let batch = stream.next().await.unwrap().unwrap();
        for row in rows(&[batch]) {
            let fields: Vec<&str> = row.splitn(4, ' ').collect();
            let cts: u64 = fields[0].parse().unwrap();
            assert!(cts >= commit, "in the order of commits");
            if cts > commit && progress > 0 {
                let sum = |table: &str| -> i64 {
                    tables.iter().filter(|(key, _)| key.starts_with(table)).map(|(_, n)| n).sum()
                };
                assert_eq!(sum("a"), sum("b"), "whole commits: {tables:?}");
                if tables.contains_key("b 99") {
                    return tables;
                }
            }
            commit = cts;
            let kind = fields[2];
            if kind == "progress" {
                progress = cts;
                continue;
            }
            assert!(kind == "snapshot" || cts > progress, "{row} after progress up to {progress}");
            let row: Vec<&str> = fields[3].split([':', ',', '}']).collect();
            let (id, n): (&str, i64) = (row[1], row[3].parse().unwrap());
            let before = tables.insert(format!("{} {id}", fields[1]), n);
            match kind {
                "update" => assert_eq!(before, Some(n - 1), "{fields:?}"),
                _ => assert_eq!(before, None, "{fields:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_subscription_whose_table_goes_says_so() {
    let database = TestDatabase::volatile();
    let (mut reader, mut writer) = (database.session(), database.session());
    run(&mut writer, "CREATE TABLE t (id INT PRIMARY KEY) WITH (changes = forever)").await;
    let mut stream = reader.stream("SUBSCRIBE t WITH (SNAPSHOT = false, PROGRESS)").await.unwrap();
    stream.next().await.unwrap().unwrap();
    run(&mut writer, "ALTER TABLE t ADD COLUMN n INT").await;
    run(&mut writer, "INSERT INTO t VALUES (1, 1)").await;
    let error = loop {
        if let Err(error) = stream.next().await.unwrap() {
            break error.to_string();
        }
    };
    assert!(error.contains("table t has changed or is gone: subscribe again"), "{error}");
}

/// Each pair of rows before and after, with the query's condition true or not, and results that differ or not.
#[tokio::test]
async fn a_query_of_a_table_is_computed_change_by_change() {
    let database = TestDatabase::volatile();
    let (mut reader, mut writer) = (database.session(), database.session());
    run(
        &mut writer,
        "CREATE TABLE meter (id INT PRIMARY KEY, place TEXT, kw INT) WITH (changes = '1 hour');
         CREATE VIEW loud AS SELECT id, place, 10 * kw AS w FROM meter WHERE kw > 5;
         INSERT INTO meter VALUES (1, 'a', 9), (2, 'b', 1), (3, NULL, NULL)",
    )
    .await;
    run(&mut reader, "BEGIN").await;
    let query = "SELECT m.id, upper(place) AS place, kw * 2 AS double FROM meter m WHERE 100 / kw < 30";
    run(&mut reader, &format!("DECLARE c CURSOR FOR SUBSCRIBE TO ({query})")).await;
    run(&mut reader, "DECLARE v CURSOR FOR SUBSCRIBE TO (SELECT place, w FROM loud) WITH (SNAPSHOT = false)")
        .await;
    assert_eq!(fetched(&mut reader, "FETCH ALL c").await, ["snapshot 1 A 18"]);
    for (statement, by_key, without_key) in [
        // In, with another result, with the same, out.
        ("UPDATE meter SET kw = 7 WHERE id = 2", vec!["insert 2 B 14"], vec!["insert b 70"]),
        (
            "UPDATE meter SET kw = kw + 1 WHERE id = 2",
            vec!["update 2 B 16"],
            vec!["delete b 70", "insert b 80"],
        ),
        ("UPDATE meter SET place = 'B' WHERE id = 2", vec![], vec!["delete b 80", "insert B 80"]),
        ("UPDATE meter SET kw = 2 WHERE id = 2", vec!["delete 2 B 16"], vec!["delete B 80"]),
        // Neither passes.
        ("UPDATE meter SET kw = 1 WHERE id = 2", vec![], vec![]),
        ("UPDATE meter SET place = 'c' WHERE id = 3", vec![], vec![]),
        ("INSERT INTO meter VALUES (4, 'd', 8), (5, 'e', 1)", vec!["insert 4 D 16"], vec!["insert d 80"]),
        ("DELETE FROM meter WHERE id > 1", vec!["delete 4 D 16"], vec!["delete d 80"]),
    ] {
        run(&mut writer, statement).await;
        assert_eq!(fetched(&mut reader, "FETCH ALL c").await, by_key, "{statement}");
        assert_eq!(fetched(&mut reader, "FETCH ALL v").await, without_key, "{statement}");
    }
    run(&mut reader, "COMMIT").await;
}

/// Rows of a subscriber, which are the query's result at each commit, beside a writer and from any beginning.
#[tokio::test]
async fn rows_of_a_subscribed_query_are_those_of_the_query() {
    let database = TestDatabase::volatile();
    let (mut reader, mut writer) = (database.session(), database.session());
    run(
        &mut writer,
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, s TEXT) WITH (changes = forever);
         INSERT INTO t SELECT i, i % 7, 's' || i % 3 FROM generate_series(1, 3000) g(i)",
    )
    .await;
    let query = "SELECT s, n * 10 AS n FROM (SELECT * FROM t WHERE n <> 3) x WHERE n BETWEEN 2 AND 5";
    let mut stream = reader.stream(&format!("SUBSCRIBE TO ({query}) WITH (PROGRESS)")).await.unwrap();
    for round in 0..40 {
        let statement = match round % 4 {
            0 => format!("UPDATE t SET n = (n + {round}) % 7 WHERE id % 11 = {}", round % 11),
            1 => format!("DELETE FROM t WHERE id % 13 = {}", round % 13),
            2 => format!(
                "INSERT INTO t SELECT i, i % 5, 'new' FROM generate_series({0}, {0} + 40) g(i)",
                5000 + 100 * round
            ),
            _ => format!("UPDATE t SET s = 's' || n WHERE id % 3 = {}", round % 3),
        };
        run(&mut writer, &statement).await;
    }
    let mut expected = rows(&writer.query(query).await.unwrap());
    expected.sort_unstable();
    let mut held: BTreeMap<String, i64> = BTreeMap::new();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let batch = tokio::time::timeout_at(deadline, stream.next()).await.unwrap().unwrap().unwrap();
        for row in rows(&[batch]) {
            let [_, kind, row] = row.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
            let change = match kind {
                "snapshot" | "insert" => 1,
                "delete" => -1,
                "progress" => continue,
                other => panic!("{other} of rows without a key"),
            };
            let count = held.entry(row.to_owned()).or_default();
            *count += change;
            assert!(*count >= 0, "{row} is taken back once too often");
        }
        let copies = |(row, count): (&String, &i64)| vec![row.clone(); *count as usize];
        if held.iter().flat_map(copies).collect::<Vec<_>>() == expected {
            return;
        }
    }
}

#[tokio::test]
async fn queries_with_state_are_not_subscribed_to() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, at TIMESTAMP) WITH (changes = '1 hour');
         CREATE TABLE plain (id INT PRIMARY KEY)",
    )
    .await;
    for (query, expected) in [
        ("SELECT count(*) FROM t", "an aggregate or GROUP BY"),
        ("SELECT n, max(id) FROM t GROUP BY n", "an aggregate or GROUP BY"),
        ("SELECT a.id FROM t a JOIN t b ON a.n = b.id", "a join"),
        ("SELECT DISTINCT n FROM t", "DISTINCT"),
        ("SELECT id FROM t UNION ALL SELECT n FROM t", "a set operation"),
        ("SELECT id FROM t ORDER BY n", "ORDER BY"),
        ("SELECT id FROM t LIMIT 1", "LIMIT"),
        ("SELECT row_number() OVER (ORDER BY id) FROM t", "a window function"),
        ("SELECT id FROM t WHERE n IN (SELECT id FROM plain)", "a subquery"),
        ("SELECT id FROM t WHERE at > now()", "now(), which changes without a commit"),
        ("SELECT id FROM t WHERE n > random()", "random(), which changes without a commit"),
        ("SELECT generate_series(1, n) FROM t", "a function of several rows"),
        ("SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES 1 AS one PATTERN (a))", "MATCH_RECOGNIZE"),
        ("SELECT 1", "no relation"),
        ("SELECT id FROM t FOR SYSTEM_TIME AS OF now()", "write AS OF behind the parentheses"),
        ("SELECT relname FROM pg_class", "which is not a table"),
        ("SELECT id FROM plain", "plain"),
        ("SELECT nothing FROM t", "nothing"),
    ] {
        let error = session.execute(&format!("SUBSCRIBE TO ({query})")).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{query}: {error}");
        let names_way = error.contains("CREATE MATERIALIZED VIEW v WITH (changes = '1 hour')");
        assert_eq!(names_way, error.contains("SUBSCRIBE to a query with"), "{query}: {error}");
    }
}
