//! COUNT(*) without reading rows: it equals the number that reading them gives, at every snapshot.

use crate::runner::{TestDatabase, rows};
use entresol_query::Session;
use std::sync::atomic::{AtomicBool, Ordering};

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn one(session: &mut Session, sql: &str) -> String {
    rows(&session.query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))).join(";")
}

/// Number of rows that a session is told, and reads, in one snapshot.
async fn count(session: &mut Session) -> String {
    let both = one(session, "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM t WHERE id >= -1)").await;
    let (told, read) = both.split_once(' ').unwrap();
    assert_eq!(told, read);
    told.to_owned()
}

/// True if a count is known without reading rows.
async fn is_known(session: &mut Session) -> bool {
    one(session, "EXPLAIN ANALYZE SELECT count(*) FROM t").await.contains("rows_not_read=")
}

/// Origin of the count in a plan; none without such a node.
async fn origin(session: &mut Session, sql: &str) -> Option<String> {
    let plan = one(session, &format!("EXPLAIN {sql}")).await;
    let (_, behind) = plan.split_once("CountedRowsExec: table=t, count=")?;
    Some(behind.split([';', '\n']).next().unwrap_or_default().trim().to_owned())
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Statement that changes some rows of `t`.
    fn statement(&mut self) -> String {
        let (first, many) = (self.below(200), self.below(30));
        let ids = format!("SELECT i, i FROM generate_series({first}, {}) g(i)", first + many);
        match self.below(6) {
            0 => format!("DELETE FROM t WHERE id BETWEEN {first} AND {}", first + many),
            1 => format!(
                "UPDATE t SET id = id + 1000 WHERE id = {first} AND NOT EXISTS (SELECT 1 FROM t WHERE id = {first} + 1000)"
            ),
            2 => format!("UPDATE t SET v = v + 1 WHERE id > {first}"),
            3 => format!("DELETE FROM t WHERE id = {first}"),
            _ => format!("INSERT INTO t {ids} ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v + 1"),
        }
    }
}

#[tokio::test]
async fn counts_equal_those_of_reading_at_every_snapshot() {
    let database = TestDatabase::journal();
    let mut writer = database.session();
    run(&mut writer, "CREATE TABLE t (id INT PRIMARY KEY, v INT); CREATE INDEX tv ON t (v)").await;
    let mut random = Random(7);
    let mut readers: Vec<(Session, String)> = Vec::new();
    for _ in 0..120 {
        let statement = random.statement();
        let is_block = random.below(3) == 0;
        if is_block {
            run(&mut writer, "BEGIN").await;
        }
        run(&mut writer, &statement).await;
        if is_block {
            count(&mut writer).await;
            run(&mut writer, "SAVEPOINT s").await;
            run(&mut writer, &random.statement()).await;
            count(&mut writer).await;
            run(&mut writer, "ROLLBACK TO s").await;
            count(&mut writer).await;
            run(&mut writer, if random.below(2) == 0 { "ROLLBACK" } else { "COMMIT" }).await;
        }
        let counted = count(&mut writer).await;
        assert!(is_known(&mut writer).await, "{statement}");
        let mut reader = database.session();
        run(&mut reader, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
        assert_eq!(count(&mut reader).await, counted);
        readers.push((reader, counted));
        let number = random.below(readers.len() as u64) as usize;
        let (reader, of_then) = &mut readers[number];
        assert_eq!(&count(reader).await, of_then, "an older snapshot");
        if readers.len() > 6 {
            readers.swap_remove(number);
        }
    }
}

/// Writers and counters race; each counter compares both numbers of one snapshot.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn counts_beside_writers() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id INT PRIMARY KEY, v INT)").await;
    static STOP: AtomicBool = AtomicBool::new(false);
    let writers: Vec<_> = (0..3)
        .map(|number| {
            let mut session = database.session();
            tokio::spawn(async move {
                let mut random = Random(number);
                for _ in 0..150 {
                    match session.execute(&random.statement()).await {
                        Ok(_) => (),
                        Err(error) => assert_eq!(error.sqlstate(), "40001", "{error}"),
                    }
                }
            })
        })
        .collect();
    let counters: Vec<_> = (0..2)
        .map(|_| {
            let mut session = database.session();
            tokio::spawn(async move {
                let mut counts = 0;
                while !STOP.load(Ordering::Relaxed) {
                    count(&mut session).await;
                    counts += 1;
                }
                counts
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    STOP.store(true, Ordering::Relaxed);
    for counter in counters {
        assert!(counter.await.unwrap() > 0);
    }
    count(&mut session).await;
    assert!(is_known(&mut session).await);
}

#[tokio::test]
async fn rows_are_read_once_behind_a_restart_and_known_behind_a_load() {
    let database = TestDatabase::journal();
    {
        let mut session = database.session();
        run(&mut session, "CREATE TABLE t AS SELECT i AS id, i % 7 AS v FROM generate_series(0, 39999) g(i)")
            .await;
        assert!(is_known(&mut session).await);
        assert_eq!(count(&mut session).await, "40000");
        run(&mut session, "DELETE FROM t WHERE id < 10").await;
        assert_eq!(count(&mut session).await, "39990");
    }
    let mut database = database.copied();
    for _ in 0..2 {
        let mut session = database.session();
        let sql = "SELECT count(*) FROM t";
        assert_eq!(origin(&mut session, sql).await.as_deref(), Some("read, and remembered from then on"));
        assert!(!is_known(&mut session).await, "it was not counted in this run");
        assert_eq!(origin(&mut session, sql).await.as_deref(), Some("of commits"));
        assert!(is_known(&mut session).await);
        assert_eq!(count(&mut session).await, "39990");
        run(&mut session, "INSERT INTO t VALUES (100000, 1), (100001, 2)").await;
        assert_eq!(count(&mut session).await, "39992");
        run(&mut session, "DELETE FROM t WHERE id >= 100000").await;
        drop(session);
        database = database.copied();
    }
}

#[tokio::test]
async fn counts_hold_over_changes_of_the_table() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id INT PRIMARY KEY, v INT)").await;
    run(&mut session, "INSERT INTO t SELECT i, i FROM generate_series(1, 3000) g(i)").await;
    let mut old = database.session();
    run(&mut old, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    assert_eq!(count(&mut old).await, "3000");
    run(&mut session, "ALTER TABLE t ADD COLUMN w INT NOT NULL DEFAULT 5; CREATE INDEX tw ON t (w)").await;
    assert!(is_known(&mut session).await);
    assert_eq!(count(&mut session).await, "3000");
    assert_eq!(one(&mut session, "SELECT count(w), count(v), count(*) FROM t").await, "3000 3000 3000");
    run(&mut session, "ALTER TABLE t SET (layout = 'columns')").await;
    run(&mut session, "DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (9000, 1, 1)").await;
    assert_eq!(count(&mut session).await, "3000");
    assert!(!is_known(&mut session).await, "rows are in row groups");
    assert_eq!(count(&mut old).await, "3000");
    run(&mut old, "COMMIT").await;
    run(&mut session, "VACUUM t").await;
    run(&mut session, "DELETE FROM t WHERE id = 2").await;
    run(&mut session, "ALTER TABLE t SET (layout = 'rows')").await;
    assert_eq!(count(&mut session).await, "2999");
    run(&mut session, "TRUNCATE t").await;
    assert_eq!(count(&mut session).await, "0");
    run(&mut session, "VACUUM").await;
    run(&mut session, "INSERT INTO t SELECT i, i, i FROM generate_series(1, 5000) g(i)").await;
    assert_eq!(count(&mut session).await, "5000");
    run(&mut session, "DROP TABLE t; CREATE TABLE t (id INT PRIMARY KEY)").await;
    assert!(is_known(&mut session).await);
    assert_eq!(count(&mut session).await, "0");
}

#[tokio::test]
async fn only_rows_are_counted() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (id INT PRIMARY KEY, v INT, n INT NOT NULL) WITH (history = '1 hour')")
        .await;
    run(&mut session, "INSERT INTO t SELECT i, NULLIF(i % 2, 0), i % 3 FROM generate_series(1, 100) g(i)")
        .await;
    let counted = [
        ("SELECT count(*) FROM t", "100"),
        ("SELECT count(*), count(1), count('x') FROM t", "100 100 100"),
        ("SELECT count(n), count(id) FROM t", "100 100"),
        ("SELECT count(*) + 1 FROM (SELECT v FROM t) s", "101"),
        ("SELECT max(c) FROM (SELECT count(*) AS c FROM t) s", "100"),
        ("SELECT count(*) FROM t HAVING count(*) > 100", ""),
    ];
    for (sql, expected) in counted {
        assert_eq!(origin(&mut session, sql).await.as_deref(), Some("of commits"), "{sql}");
        assert_eq!(one(&mut session, sql).await, expected, "{sql}");
    }
    let others = [
        ("SELECT count(v) FROM t", "50"),
        ("SELECT count(DISTINCT n) FROM t", "3"),
        ("SELECT count(*) FILTER (WHERE n = 1) FROM t", "34"),
        ("SELECT count(*) FROM t WHERE v IS NULL", "50"),
        ("SELECT count(*) FROM t GROUP BY n ORDER BY 1", "33;33;34"),
        ("SELECT count(*), sum(n) FROM t", "100 100"),
        ("SELECT count(NULL) FROM t", "0"),
        ("SELECT count(*) FROM (SELECT 1 FROM t LIMIT 7) s", "7"),
        ("SELECT count(*) FROM t a, t b", "10000"),
        ("SELECT count(*) FROM t FOR SYSTEM_TIME AS OF now()", "100"),
    ];
    for (sql, expected) in others {
        assert_eq!(one(&mut session, sql).await, expected, "{sql}");
        if !sql.ends_with(" b") {
            assert_eq!(origin(&mut session, sql).await, None, "{sql}");
        }
    }
    run(&mut session, "BEGIN; DELETE FROM t WHERE id = 1").await;
    assert_eq!(origin(&mut session, "SELECT count(*) FROM t").await.as_deref(), Some("read"));
    assert_eq!(count(&mut session).await, "99");
    run(&mut session, "ROLLBACK").await;
    assert!(is_known(&mut session).await);
    assert_eq!(count(&mut session).await, "100");
}

#[tokio::test]
async fn prepared_and_repeated_counts_are_of_their_run() {
    let database = TestDatabase::journal();
    let (mut session, mut other) = (database.session(), database.session());
    run(&mut session, "CREATE TABLE t (id INT PRIMARY KEY)").await;
    run(&mut session, "PREPARE c AS SELECT count(*) FROM t").await;
    let mut third = database.session();
    run(&mut third, "BEGIN; DECLARE held CURSOR FOR SELECT count(*) FROM t").await;
    for number in 0..8 {
        let expected = number.to_string();
        assert_eq!(one(&mut session, "EXECUTE c").await, expected);
        assert_eq!(one(&mut session, "SELECT count(*) FROM t").await, expected);
        run(&mut other, &format!("INSERT INTO t VALUES ({number})")).await;
    }
    assert_eq!(one(&mut third, "FETCH ALL FROM held").await, "0");
    run(&mut third, "INSERT INTO t VALUES (100)").await;
    assert_eq!(one(&mut third, "SELECT count(*) FROM t").await, "1", "its snapshot, and its own row");
    run(&mut third, "ROLLBACK").await;
    assert_eq!(one(&mut session, "EXECUTE c").await, "8");
}

/// A serializable transaction that counts has read all rows: a row that is added meanwhile is a conflict.
#[tokio::test]
async fn serializable_counts_see_no_phantoms() {
    let database = TestDatabase::journal();
    let (mut session, mut other) = (database.session(), database.session());
    run(&mut session, "CREATE TABLE t (id INT PRIMARY KEY); CREATE TABLE u (n INT PRIMARY KEY)").await;
    run(&mut session, "BEGIN ISOLATION LEVEL SERIALIZABLE").await;
    run(&mut session, "INSERT INTO u SELECT count(*) FROM t").await;
    run(&mut other, "INSERT INTO t VALUES (1)").await;
    let error = session.execute("COMMIT").await.unwrap_err();
    assert_eq!(error.sqlstate(), "40001", "{error}");
}

/// The number of rows is that of all commits for the planner too: the smaller table is built.
#[tokio::test]
async fn plans_know_the_number_of_rows() {
    let database = TestDatabase::journal();
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE t (id INT PRIMARY KEY, v INT); CREATE TABLE s (id INT PRIMARY KEY, v INT)",
    )
    .await;
    run(&mut session, "INSERT INTO t SELECT i, i FROM generate_series(1, 4000) g(i)").await;
    run(&mut session, "INSERT INTO s SELECT i, i FROM generate_series(1, 3900) g(i)").await;
    run(&mut session, "SET datafusion.explain.show_statistics = true").await;
    let plan = one(&mut session, "EXPLAIN SELECT v FROM t").await;
    assert!(plan.contains("Rows=Inexact(4000)"), "{plan}");
    run(&mut session, "DELETE FROM s WHERE id <= 3").await;
    let live = "SELECT n_live_tup FROM pg_stat_user_tables ORDER BY relname";
    assert_eq!(one(&mut session, live).await, "3897;4000", "without ANALYZE");
}
