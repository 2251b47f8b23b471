//! Joins of tables by columns, whose scans take the keys of the other side, beside those of the same tables by rows.

use crate::runner::{TestDatabase, rows};
use entresol_query::{Session, StatementResult};

const BIG_ROWS: u32 = 100_000;

/// Queries over `big` and `small`, and whether a scan of `big` takes keys.
const QUERIES: [(&str, bool); 16] = [
    ("SELECT s.k, b.n FROM small s JOIN (SELECT k, count(*) AS n FROM big GROUP BY k) b ON s.k = b.k", true),
    (
        "SELECT s.k, b.v FROM small s LEFT JOIN (SELECT k, max(v) AS v FROM big GROUP BY k) b ON s.k = b.k",
        true,
    ),
    ("SELECT s.k, name FROM small s WHERE EXISTS (SELECT 1 FROM big b WHERE b.k = s.k AND b.v > 900)", true),
    (
        "SELECT s.k, name FROM small s WHERE NOT EXISTS (SELECT 1 FROM big b WHERE b.k = s.k AND b.v > 900)",
        true,
    ),
    ("SELECT s.k, b.id FROM small s JOIN big b ON s.k = b.k AND s.g = b.g", true),
    ("SELECT s.k, b.id FROM small s JOIN big b ON s.k = b.k AND b.v % 7 > s.g", true),
    ("SELECT b.id, s.name FROM small s LEFT JOIN big b ON s.k = b.k AND b.v = 3", true),
    ("SELECT count(*), count(s.k), sum(b.v) FROM small s RIGHT JOIN big b ON s.k = b.k", false),
    ("SELECT count(*), count(s.k), sum(b.v) FROM small s FULL JOIN big b ON s.k = b.k", false),
    ("SELECT s.k FROM small s WHERE s.k NOT IN (SELECT k FROM big WHERE k IS NOT NULL)", false),
    ("SELECT s.k FROM small s WHERE s.k NOT IN (SELECT k FROM big)", false),
    ("SELECT count(*) FROM big a JOIN big b ON a.id = b.g WHERE a.v < 9 AND a.k > 100", true),
    ("SELECT count(*), sum(b.v) FROM small s JOIN big b ON s.far = b.id", true),
    ("SELECT count(*), sum(b.v) FROM small s JOIN big b ON s.k = b.k WHERE s.name = 'nobody'", true),
    (
        "SELECT count(*), sum(c.v) FROM small s JOIN big b ON s.k = b.k AND s.g < 2 JOIN big c ON c.id = b.g \
         WHERE b.v < 500",
        true,
    ),
    (
        "WITH RECURSIVE r(k, depth) AS (SELECT 3, 0 UNION ALL SELECT b.k + 1, depth + 1 FROM r JOIN big b \
         ON b.id = r.k * 10 WHERE depth < 20) SELECT k, depth FROM r",
        false,
    ),
];

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn read(session: &mut Session, sql: &str) -> Vec<String> {
    let mut results = session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let mut found = match results.pop().unwrap() {
        StatementResult::Rows(found) => rows(&found.batches),
        other => panic!("{sql}: {other:?}"),
    };
    found.sort();
    found
}

async fn fill(session: &mut Session) {
    let tables = [
        ("big", "id BIGINT NOT NULL, k INT, g INT, v INT"),
        ("small", "k INT, g BIGINT, name VARCHAR, far BIGINT"),
    ];
    for (name, columns) in tables {
        run(session, &format!("CREATE TABLE {name}_by_rows ({columns})")).await;
        run(session, &format!("CREATE TABLE {name} ({columns}) WITH (layout = 'columns')")).await;
    }
    let big = format!(
        "INSERT INTO big_by_rows SELECT i, CASE WHEN i % 50 = 0 THEN NULL ELSE i * 37 % 5003 END, i % 4, i * 31 % 1009 \
         FROM generate_series(1, {BIG_ROWS}) g(i)"
    );
    run(session, &big).await;
    run(
        session,
        "INSERT INTO small_by_rows SELECT CASE WHEN i % 9 = 0 THEN NULL ELSE i * 13 % 5100 END, i % 4, 'n' || i % 3, \
         CASE WHEN i % 2 = 0 THEN i * 1000000000000 ELSE i END FROM generate_series(1, 60) g(i)",
    )
    .await;
    for name in ["big", "small"] {
        run(session, &format!("INSERT INTO {name} SELECT * FROM {name}_by_rows")).await;
    }
    run(session, "VACUUM").await;
}

fn of_rows(sql: &str) -> String {
    let words = sql.split(' ').map(|word| match word {
        "big" | "small" => format!("{word}_by_rows"),
        "big)" => "big_by_rows)".to_owned(),
        other => other.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_that_take_keys_of_joins_leave_no_row_out() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    fill(&mut session).await;
    for (sql, takes) in QUERIES {
        let expected = read(&mut session, &of_rows(sql)).await;
        for _ in 0..2 {
            assert_eq!(read(&mut session, sql).await, expected, "{sql}");
        }
        let plan = read(&mut session, &format!("EXPLAIN {sql}")).await.join("\n");
        assert_eq!(plan.contains("dynamic="), takes, "{sql}\n{plan}");
    }
    // Changes since: rows of the delta store, and deleted ones.
    for name in ["big", "big_by_rows"] {
        run(&mut session, &format!("UPDATE {name} SET k = 13 WHERE id % 1000 = 7")).await;
        run(&mut session, &format!("DELETE FROM {name} WHERE id % 777 = 5")).await;
    }
    for (sql, _) in QUERIES {
        let expected = read(&mut session, &of_rows(sql)).await;
        assert_eq!(read(&mut session, sql).await, expected, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_join_with_nothing_are_not_read() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    fill(&mut session).await;
    let sql = "EXPLAIN ANALYZE SELECT s.k, b.n FROM small s JOIN (SELECT k, count(*) AS n FROM big GROUP BY k) b \
               ON s.k = b.k WHERE s.name = 'n1'";
    let plan = read(&mut session, sql).await.join("\n");
    let scan = plan.lines().find(|line| line.contains("EntresolColumnScan: table=big")).unwrap();
    let read = scan.split("output_rows=").nth(1).unwrap();
    let (number, unit) = read.split_at(read.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap());
    let number = number.parse::<f64>().unwrap() * if unit.starts_with(" K") { 1000.0 } else { 1.0 };
    assert!(number < f64::from(BIG_ROWS) / 50.0, "{plan}");
}
