//! Concurrent sessions.

use crate::runner::{TestDatabase, rows};
use entresol_query::{Error, SAVEPOINTS_MAX, Session, StatementResult};
use futures::StreamExt;

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn one(session: &mut Session, sql: &str) -> String {
    let batches = session.query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows(&batches).join(";")
}

async fn accounts() -> (TestDatabase, Session, Session) {
    let database = TestDatabase::volatile();
    let (mut a, b) = (database.session(), database.session());
    run(&mut a, "CREATE TABLE account (id INT PRIMARY KEY, amount BIGINT)").await;
    run(&mut a, "INSERT INTO account VALUES (1, 100), (2, 200)").await;
    (database, a, b)
}

#[tokio::test]
async fn a_block_reads_one_snapshot_and_its_own_writes() {
    let (_database, mut a, mut b) = accounts().await;
    run(&mut a, "BEGIN").await;
    assert_eq!(one(&mut a, "SELECT sum(amount) FROM account").await, "300");
    run(&mut b, "UPDATE account SET amount = 0 WHERE id = 1").await;
    run(&mut b, "INSERT INTO account VALUES (3, 1000)").await;
    assert_eq!(one(&mut a, "SELECT sum(amount) FROM account").await, "300");
    run(&mut a, "UPDATE account SET amount = amount + 1 WHERE id = 2").await;
    assert_eq!(one(&mut a, "SELECT amount FROM account WHERE id = 2").await, "201");
    assert_eq!(one(&mut a, "SELECT sum(amount) FROM account").await, "301");
    assert_eq!(one(&mut b, "SELECT amount FROM account WHERE id = 2").await, "200");
    run(&mut a, "COMMIT").await;
    assert_eq!(one(&mut a, "SELECT sum(amount) FROM account").await, "1201");
}

/// A unique index younger than a snapshot that has a value twice implies nothing for that snapshot.
#[tokio::test]
async fn a_unique_index_says_nothing_of_older_snapshots() {
    let (_database, mut a, mut b) = accounts().await;
    run(&mut b, "INSERT INTO account VALUES (3, 200)").await;
    let grouped = "SELECT count(*) FROM (SELECT amount, id, count(*) FROM account GROUP BY amount, id) g";
    let sorted = "SELECT id FROM account ORDER BY amount, id DESC";
    let by_amount = "SELECT amount, id FROM account GROUP BY amount";
    run(&mut a, "BEGIN").await;
    assert_eq!((one(&mut a, grouped).await, one(&mut a, sorted).await), ("3".into(), "1;3;2".into()));
    run(&mut b, "DELETE FROM account WHERE id = 3").await;
    run(&mut b, "CREATE UNIQUE INDEX by_amount ON account (amount)").await;
    assert_eq!((one(&mut a, grouped).await, one(&mut a, sorted).await), ("3".into(), "1;3;2".into()));
    assert_eq!((one(&mut b, grouped).await, one(&mut b, sorted).await), ("2".into(), "1;2".into()));
    a.query(by_amount).await.expect_err("an amount may have several ids there");
    run(&mut a, "ROLLBACK").await;
    assert_eq!(one(&mut a, by_amount).await, "100 1;200 2");
}

#[tokio::test]
async fn the_first_committer_wins() {
    let (_database, mut a, mut b) = accounts().await;
    run(&mut a, "BEGIN; UPDATE account SET amount = amount - 10 WHERE id = 1").await;
    run(&mut b, "BEGIN; UPDATE account SET amount = amount - 20 WHERE id = 1").await;
    run(&mut b, "COMMIT").await;
    let error = a.execute("COMMIT").await.unwrap_err();
    assert!(error.is_conflict(), "{error:?}");
    assert!(!a.in_transaction());
    assert_eq!(one(&mut a, "SELECT amount FROM account WHERE id = 1").await, "80");
}

#[tokio::test]
async fn read_committed_sees_what_was_committed_before_each_statement() {
    let (_database, mut a, mut b) = accounts().await;
    run(&mut a, "BEGIN ISOLATION LEVEL READ COMMITTED").await;
    run(&mut a, "UPDATE account SET amount = amount + 1 WHERE id = 2; SAVEPOINT s").await;
    run(&mut b, "UPDATE account SET amount = 0 WHERE id = 1").await;
    assert_eq!(one(&mut a, "SELECT sum(amount) FROM account").await, "201");
    run(&mut a, "UPDATE account SET amount = amount + 5 WHERE id = 1").await;
    assert_eq!(one(&mut a, "SELECT sum(amount) FROM account").await, "206");
    run(&mut a, "ROLLBACK TO s").await;
    assert_eq!(one(&mut a, "SELECT sum(amount) FROM account").await, "201");
    run(&mut b, "UPDATE account SET amount = 7 WHERE id = 2").await;
    let error = a.execute("SELECT 1").await.unwrap_err();
    assert!(error.is_conflict(), "what it wrote was committed by somebody else: {error}");
    assert!(matches!(a.execute("SELECT 1").await, Err(Error::TransactionAborted(_))));
    run(&mut a, "ROLLBACK").await;
    assert_eq!(one(&mut a, "SELECT sum(amount) FROM account").await, "7");
}

#[tokio::test]
async fn serializable_blocks_fail_where_snapshots_would_skew() {
    for (level, second_commits) in [("REPEATABLE READ", true), ("SERIALIZABLE", false)] {
        let (_database, mut a, mut b) = accounts().await;
        for (session, id) in [(&mut a, 1), (&mut b, 2)] {
            run(session, &format!("BEGIN ISOLATION LEVEL {level}")).await;
            assert_eq!(one(session, "SELECT sum(amount) FROM account").await, "300");
            run(session, &format!("UPDATE account SET amount = amount - 300 WHERE id = {id}")).await;
        }
        run(&mut a, "COMMIT").await;
        match b.execute("COMMIT").await {
            Ok(_) => assert!(second_commits, "{level}"),
            Err(error) => assert!(error.is_conflict() && !second_commits, "{level}: {error}"),
        }
    }
}

#[tokio::test]
async fn two_inserts_of_one_key_conflict() {
    let (_database, mut a, mut b) = accounts().await;
    run(&mut a, "BEGIN; INSERT INTO account VALUES (7, 1)").await;
    run(&mut b, "INSERT INTO account VALUES (7, 2)").await;
    assert!(a.execute("COMMIT").await.unwrap_err().is_conflict());
    assert_eq!(one(&mut a, "SELECT amount FROM account WHERE id = 7").await, "2");
}

#[tokio::test]
async fn a_failed_statement_is_undone_and_a_savepoint_goes_on() {
    let (_database, mut a, _b) = accounts().await;
    run(&mut a, "BEGIN; UPDATE account SET amount = 1 WHERE id = 1; SAVEPOINT s").await;
    // The first two rows are new: the statement must not leave them behind.
    let many: Vec<String> = (10..9000).map(|id| format!("({id}, 0)")).chain(["(2, 0)".into()]).collect();
    let error = a.execute(&format!("INSERT INTO account VALUES {}", many.join(","))).await.unwrap_err();
    assert!(error.to_string().contains("account") && error.to_string().contains('2'), "{error}");
    let error = a.query("SELECT 1").await.unwrap_err();
    assert!(matches!(error, Error::TransactionAborted(_)), "{error:?}");
    run(&mut a, "ROLLBACK TO s").await;
    assert_eq!(one(&mut a, "SELECT count(*) FROM account").await, "2");
    run(&mut a, "COMMIT").await;
    assert_eq!(one(&mut a, "SELECT amount FROM account ORDER BY id").await, "1;200");
}

#[tokio::test]
async fn committing_a_failed_block_says_that_it_did_not_happen() {
    let (_database, mut a, _b) = accounts().await;
    run(&mut a, "BEGIN; DELETE FROM account").await;
    a.execute("SELECT nonsense").await.unwrap_err();
    let error = a.execute("COMMIT").await.unwrap_err();
    assert!(matches!(error, Error::RolledBack(_)), "{error:?}");
    assert_eq!(one(&mut a, "SELECT count(*) FROM account").await, "2");
}

#[tokio::test]
async fn a_dropped_session_aborts() {
    let (_database, mut a, mut b) = accounts().await;
    run(&mut a, "BEGIN; DELETE FROM account").await;
    drop(a);
    assert_eq!(one(&mut b, "SELECT count(*) FROM account").await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn autocommitted_statements_are_retried_after_conflicts() {
    let (database, mut a, _b) = accounts().await;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let mut session = database.session();
        tasks.push(tokio::spawn(async move {
            for _ in 0..25 {
                run(&mut session, "UPDATE account SET amount = amount + 1 WHERE id = 1").await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(one(&mut a, "SELECT amount FROM account WHERE id = 1").await, "200");
}

#[tokio::test]
async fn a_stream_keeps_its_snapshot() {
    let database = TestDatabase::volatile();
    let (mut a, mut b) = (database.session(), database.session());
    run(&mut a, "CREATE TABLE t (id BIGINT PRIMARY KEY)").await;
    run(&mut a, "INSERT INTO t SELECT value FROM generate_series(1, 30000)").await;
    let mut stream = a.stream("SELECT id FROM t").await.unwrap();
    let first = stream.next().await.unwrap().unwrap().num_rows();
    run(&mut b, "DELETE FROM t").await;
    let mut count = first;
    while let Some(batch) = stream.next().await {
        count += batch.unwrap().num_rows();
    }
    assert_eq!(count, 30000);
    assert_eq!(one(&mut a, "SELECT count(*) FROM t").await, "0");
}

#[tokio::test]
async fn the_errors_of_one_text_end_it() {
    let (_database, mut a, _b) = accounts().await;
    let sql = "INSERT INTO account VALUES (5, 5); INSERT INTO account VALUES (5, 5); DELETE FROM account";
    a.execute(sql).await.unwrap_err();
    assert_eq!(one(&mut a, "SELECT count(*) FROM account").await, "3");
    let results = a.execute("DELETE FROM account WHERE id = 5; SELECT 1").await.unwrap();
    assert!(matches!(results[0], StatementResult::Count { verb: "DELETE", rows: 1 }));
    assert!(matches!(&results[1], StatementResult::Rows(rows) if rows.schema.fields().len() == 1));
}

/// The SQLSTATE of an error does not depend on names and values in its message.
#[tokio::test(flavor = "multi_thread")]
async fn sqlstates_are_not_guessed_from_names_and_values() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    session.execute("CREATE TABLE t (id INT PRIMARY KEY, n SMALLINT, s VARCHAR(3))").await.unwrap();
    let code = async |session: &mut Session, sql: &str| match session.execute(sql).await {
        Ok(_) => "00000",
        Err(error) => error.sqlstate(),
    };
    for (sql, expected) in [
        ("INSERT INTO t (id, n) SELECT 1, 70000", "22003"),
        ("INSERT INTO t (id, n) SELECT 1, DATE '2026-01-01'", "42804"),
        ("INSERT INTO t (id, s) VALUES (1, 'is ambiguous')", "22001"),
        ("INSERT INTO t (id, \"No field named\") VALUES (1, 2)", "42703"),
        ("INSERT INTO t (id, n) SELECT 1, 2, 3", "42601"),
        ("INSERT INTO t (id, n) SELECT 'does not exist', 1", "22P02"),
        ("INSERT INTO t (id, n) SELECT '99999999999', 1", "22003"),
        ("SELECT '99999999999'::int", "22003"),
        ("SELECT '2026-02-30'::date", "22008"),
        ("SELECT 'is ambiguous'::date", "22007"),
        ("CREATE TABLE u (a INT, a TEXT)", "42701"),
    ] {
        assert_eq!(code(&mut session, sql).await, expected, "{sql}");
    }
    session.execute("BEGIN").await.unwrap();
    for number in 0..SAVEPOINTS_MAX {
        session.execute(&format!("SAVEPOINT s{number}")).await.unwrap();
    }
    assert_eq!(code(&mut session, "SAVEPOINT one_more").await, "54000");
    session.execute("ROLLBACK").await.unwrap();
}
