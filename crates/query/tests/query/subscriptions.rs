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
