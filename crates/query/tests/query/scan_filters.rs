//! Scans that evaluate filters before they decode other columns return what a filter over the scan does.
//!
//! A filter with `OR random() < 0` beside it is of the same rows, and stays over the scan.

use crate::runner::{TestDatabase, rows};
use entresol_query::{Session, StatementResult};

/// Enough for two parts of a scan, and for dynamic filters.
const ROWS: u32 = 40_000;

/// Conditions on columns of all types, most of which have NULLs, from those that no row meets to those that all do.
const CONDITIONS: [&str; 22] = [
    "flag",
    "NOT flag",
    "flag IS NULL",
    "small = 7 OR small IS NULL",
    "n % 1000 = 3",
    "n BETWEEN 100 AND 30000 AND small > 2",
    "far > 5000000000",
    "far IS NOT NULL",
    "half > 0.5 AND ratio < 1000",
    "price >= 12.50 AND wide <> 4",
    "day = DATE '2026-01-05'",
    "at < TIMESTAMP '2026-01-01 05:00:00' OR utc IS NULL",
    "utc > TIMESTAMPTZ '2026-01-01 02:00:00+00'",
    "span > INTERVAL '30 minutes'",
    "name = 'n5'",
    "name LIKE '%9' AND note IS NULL",
    "note > 'm' AND length(name) > 5",
    "id % 3 = 1 AND name < 'n2' AND far < 100000000",
    "id > 0",
    "id < 0",
    "coalesce(small, 0) + n > 39990",
    "CASE WHEN flag THEN n > 39900 ELSE name = 'n77' END",
];
const PROJECTIONS: [&str; 5] = [
    "id",
    "*",
    "name, far, note, flag",
    "count(*), sum(n), min(name), max(price)",
    "small, count(*), max(wide)",
];

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn read(session: &mut Session, sql: &str) -> Vec<String> {
    let mut results = session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    match results.pop().unwrap() {
        StatementResult::Rows(found) => rows(&found.batches),
        other => panic!("{sql}: {other:?}"),
    }
}

/// SQLSTATE of a query that fails; none of one that does not.
async fn failure(session: &mut Session, sql: &str) -> Option<String> {
    session.execute(sql).await.err().map(|error| error.sqlstate().to_owned())
}

async fn plan(session: &mut Session, sql: &str) -> String {
    read(session, &format!("EXPLAIN {sql}")).await.join("\n")
}

async fn fill(session: &mut Session, options: &str) {
    run(
        session,
        &format!(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, flag BOOLEAN, small SMALLINT, n INT, far BIGINT, half REAL, ratio DOUBLE, \
             price DECIMAL(12, 2), wide DECIMAL(38, 4), day DATE, at TIMESTAMP, utc TIMESTAMPTZ, span INTERVAL, name VARCHAR, \
             note VARCHAR) {options}"
        ),
    )
    .await;
    let null = |every: u32, value: &str| format!("CASE WHEN i % {every} = 0 THEN NULL ELSE {value} END");
    let insert = format!(
        "INSERT INTO t SELECT i, {}, {}, i, {}, {}, i / 3.0, {}, {}, {}, {}, {}, {}, 'n' || (i % 10007), {} \
         FROM generate_series(1, {ROWS}) g(i)",
        null(11, "i % 2 = 0"),
        null(13, "(i % 9)::SMALLINT"),
        null(17, "i::BIGINT * 1000000"),
        null(19, "(i % 100 / 100.0)::REAL"),
        null(23, "(i % 5000 / 100.0)::DECIMAL(12, 2)"),
        null(29, "(i % 7)::DECIMAL(38, 4)"),
        null(31, "DATE '2026-01-01' + (i % 30)::INT"),
        null(37, "TIMESTAMP '2026-01-01' + i * INTERVAL '1 second'"),
        null(41, "TIMESTAMPTZ '2026-01-01 00:00:00+00' + i * INTERVAL '1 second'"),
        null(43, "i % 60 * INTERVAL '1 minute'"),
        null(2, "repeat(chr(97 + i % 26), i % 40)"),
    );
    run(session, &insert).await;
}

fn query(projection: &str, source: &str, condition: &str, rest: &str) -> String {
    let group = if projection.starts_with("small, count") { "GROUP BY small" } else { "" };
    format!("SELECT {projection} FROM {source} WHERE {condition} {group} {rest}")
}

/// Compares all conditions with their filters over the scan.
async fn compare(session: &mut Session, source: &str) {
    for condition in CONDITIONS {
        for projection in PROJECTIONS {
            let above = query(projection, source, &format!("(({condition}) OR random() < 0)"), "");
            let within = query(projection, source, condition, "");
            let (mut expected, mut found) = (read(session, &above).await, read(session, &within).await);
            expected.sort();
            found.sort();
            assert!(expected == found, "{within}: {} rows, expected {}", found.len(), expected.len());
        }
        let backwards = query("id, name", source, condition, "ORDER BY id DESC");
        let mut expected = read(session, &query("id, name", source, condition, "ORDER BY id")).await;
        expected.reverse();
        assert!(read(session, &backwards).await == expected, "{backwards}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_within_scans_let_the_same_rows_pass() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    fill(&mut session, "").await;
    let within = plan(&mut session, "SELECT id, note FROM t WHERE name = 'n5'").await;
    assert!(within.contains("projection=[id, note], filter=[name = n5]"), "{within}");
    assert!(!within.contains("FilterExec"), "{within}");
    let above = plan(&mut session, "SELECT id FROM t WHERE name = 'n5' OR random() < 0").await;
    assert!(above.contains("FilterExec") && !above.contains("filter=["), "{above}");
    compare(&mut session, "t").await;
    // Beside what the transaction has written itself, rows of another version of the schema among it.
    run(&mut session, "ALTER TABLE t ADD COLUMN added INT DEFAULT 5").await;
    run(&mut session, "BEGIN").await;
    run(&mut session, "UPDATE t SET name = 'n5', small = 7 WHERE id % 500 = 1").await;
    run(&mut session, "DELETE FROM t WHERE id % 701 = 3").await;
    run(&mut session, "INSERT INTO t (id, n, name) VALUES (-5, 3, 'n5'), (1000000, 39999, 'n9')").await;
    compare(&mut session, "t").await;
    let added = "SELECT count(*), count(added), sum(id) FROM t WHERE added = 5 AND name = 'n5'";
    let expected = read(&mut session, &format!("{added} OR random() < 0")).await;
    assert_eq!(read(&mut session, added).await, expected);
    run(&mut session, "ROLLBACK").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_within_scans_of_the_history_let_the_same_rows_pass() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    fill(&mut session, "WITH (history = '1 day')").await;
    let at = read(&mut session, "SELECT entresol_current_commit()").await.join("");
    run(&mut session, "UPDATE t SET name = 'later', n = -1, note = NULL WHERE id % 3 = 0").await;
    run(&mut session, "DELETE FROM t WHERE id % 5 = 1").await;
    let source = format!("t FOR SYSTEM_TIME AS OF to_timestamp_nanos({at})");
    let within = plan(&mut session, &format!("SELECT id FROM {source} WHERE name = 'n5'")).await;
    assert!(within.contains("filter=[name = n5]") && within.contains("as_of="), "{within}");
    assert_eq!(read(&mut session, &format!("SELECT count(*) FROM {source} WHERE n < 0")).await, ["0"]);
    for condition in CONDITIONS {
        let above = query("id, name, n, note", &source, &format!("(({condition}) OR random() < 0)"), "");
        let within = query("id, name, n, note", &source, condition, "");
        let (mut expected, mut found) = (read(&mut session, &above).await, read(&mut session, &within).await);
        expected.sort();
        found.sort();
        assert!(expected == found, "{within}: {} rows, expected {}", found.len(), expected.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_count_rows_behind_filters() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    fill(&mut session, "").await;
    for (condition, rest, expected) in [
        ("n % 8000 = 7", "LIMIT 3", 3),
        ("n % 8000 = 7", "LIMIT 30", 5),
        ("n % 8000 = 7", "ORDER BY id DESC LIMIT 2", 2),
        ("n % 2 = 7 % 2", "LIMIT 9000", 9000),
        ("n < 0", "LIMIT 3", 0),
        ("n > 0", "LIMIT 0", 0),
        ("note IS NULL AND n > 39000", "LIMIT 7 OFFSET 3", 7),
    ] {
        let sql = format!("SELECT id, name FROM t WHERE {condition} {rest}");
        assert_eq!(read(&mut session, &sql).await.len(), expected, "{sql}");
    }
    let latest = "SELECT id FROM t WHERE n % 8000 = 7 ORDER BY id DESC LIMIT 2";
    assert_eq!(read(&mut session, latest).await, ["32007", "24007"]);
    let shown = plan(&mut session, "SELECT id FROM t WHERE n % 8000 = 7 LIMIT 3").await;
    let scan = shown.lines().find(|line| line.contains("EntresolScan")).unwrap();
    assert!(scan.contains("filter=[n % 8000 = 7]") && scan.contains("limit=3"), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_within_scans_fail_for_the_same_rows() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    fill(&mut session, "").await;
    for (condition, fails) in [
        ("100 / (n - 20000) > 1", Some("22012")),
        ("n <> 20000 AND 100 / (n - 20000) > 1", None),
        ("100 / (n - 20000) > 1 AND n <> 20000", None),
        ("n = 20000 OR 100 / (n - 20000) > 1", None),
        ("n > 20000 AND n + 2147483647 > 0", Some("22003")),
        ("far * 1000000000000 > 0", Some("22003")),
        ("substring(name FROM 2)::INT = 4", None),
        ("name::INT = 4", Some("22P02")),
        ("id < 100 AND 100 / (n - 20000) > 1", None),
    ] {
        let sql = format!("SELECT id, note FROM t WHERE {condition}");
        assert_eq!(failure(&mut session, &sql).await.as_deref(), fails, "{sql}");
        let above = format!("SELECT id, note FROM t WHERE ({condition}) OR random() < 0");
        assert_eq!(failure(&mut session, &above).await.as_deref(), fails, "{above}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_analyze_says_how_many_rows_were_read_and_passed() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    fill(&mut session, "").await;
    let sql = "EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) SELECT id, note FROM t WHERE n % 100 = 7";
    let shown = read(&mut session, sql).await.join("\n");
    assert!(shown.contains("\"Actual Rows\": 400") && shown.contains("\"rows_read\": 40000"), "{shown}");
    // The first rows of each part have enough.
    let sql = "EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) SELECT id, note FROM t WHERE n % 100 = 7 LIMIT 9";
    let shown = read(&mut session, sql).await.join("\n");
    assert!(!shown.contains("\"rows_read\": 40000"), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_of_few_rows_and_of_subqueries_stay_over_the_scan() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    fill(&mut session, "").await;
    run(&mut session, "CREATE TABLE few (id INT PRIMARY KEY, v INT)").await;
    run(&mut session, "INSERT INTO few SELECT i, i FROM generate_series(1, 1000) g(i)").await;
    for sql in [
        "SELECT id FROM few WHERE v > 5",
        "SELECT note FROM t WHERE id = 5 AND n > 0",
        "SELECT note FROM t WHERE n > (SELECT max(v) FROM few) * 39",
    ] {
        let shown = plan(&mut session, sql).await;
        assert!(shown.contains("FilterExec") && !shown.contains("filter=["), "{sql}\n{shown}");
    }
    let sql = "SELECT count(*) FROM t WHERE n > (SELECT max(v) FROM few) * 39";
    assert_eq!(read(&mut session, sql).await, ["1000"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_of_rows_take_keys_of_joins() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    fill(&mut session, "").await;
    run(&mut session, "CREATE TABLE small (k INT, g INT, label VARCHAR)").await;
    let values = "SELECT CASE WHEN i % 9 = 0 THEN NULL ELSE i * 577 % 45000 END, i % 9, 'l' || i % 3 \
                  FROM generate_series(1, 200) g(i)";
    run(&mut session, &format!("INSERT INTO small {values}")).await;
    // A key that is computed is none that a scan takes.
    for (sql, takes) in [
        ("SELECT s.k, t.note FROM small s JOIN t ON s.k = KEY", true),
        ("SELECT s.k, t.note FROM small s JOIN t ON s.k = KEY WHERE t.flag AND t.note > 'k'", true),
        ("SELECT s.k, t.name FROM small s LEFT JOIN t ON s.k = KEY", true),
        ("SELECT s.k FROM small s WHERE NOT EXISTS (SELECT 1 FROM t WHERE KEY = s.k AND t.flag)", true),
        ("SELECT s.k, t.note FROM small s JOIN t ON s.k = KEY WHERE s.label = 'nobody'", true),
        ("SELECT count(*), count(s.k), sum(t.id) FROM small s RIGHT JOIN t ON s.k = KEY", false),
        ("SELECT s.k FROM small s WHERE s.k NOT IN (SELECT KEY FROM t)", false),
    ] {
        let (taking, computing) = (sql.replace("KEY", "t.n"), sql.replace("KEY", "(t.n + 0)"));
        let (mut found, mut expected) =
            (read(&mut session, &taking).await, read(&mut session, &computing).await);
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{taking}");
        let shown = plan(&mut session, &taking).await;
        assert_eq!(shown.contains("dynamic="), takes, "{taking}\n{shown}");
    }
    let sql = "EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) SELECT s.k, t.note FROM small s JOIN t ON s.k = t.n WHERE s.label = 'nobody'";
    let shown = read(&mut session, sql).await.join("\n");
    assert!(shown.contains("\"rows_read\": 0"), "{shown}");
}
