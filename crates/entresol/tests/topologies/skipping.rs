//! ON ERROR SKIP ROW: a step leaves out the rows that it cannot process, and they are stored.

use super::{append, rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};
use std::fmt::Write;

fn prepare(session: &mut Session, path: &std::path::Path, clause: &str) {
    session
        .execute(&format!(
            "CREATE SOURCE line (id INT NOT NULL, a INT, b INT) WITH (connector = 'file', path = '{}');
             CREATE TABLE lines (id INT PRIMARY KEY, a INT, b INT);
             CREATE TABLE quotients (id INT PRIMARY KEY, quotient INT);
             CREATE TABLE small (id INT PRIMARY KEY, a SMALLINT NOT NULL);
             CREATE TABLE firsts (a INT PRIMARY KEY, id INT);
             CREATE TABLE inverse (id INT PRIMARY KEY, sum INT);
             CREATE TOPOLOGY loading COMMIT EVERY 700 ROWS {clause} AS (
                 INSERT INTO lines SELECT id, a, b FROM line;
                 INSERT INTO quotients SELECT id, a / b FROM line WHERE 100 / (b - 3) < 50;
                 INSERT INTO small SELECT id, a FROM line;
                 INSERT INTO firsts SELECT a % 500, id FROM line;
                 INSERT INTO inverse AS i SELECT a % 7, 1000 / b FROM line
                     ON CONFLICT (id) DO UPDATE SET sum = i.sum + 1000 / (EXCLUDED.sum - 250);
             )",
            path.display()
        ))
        .unwrap();
}

#[test]
fn rows_that_a_step_cannot_process_are_left_out_and_stored() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    let mut lines = "id,a,b\n".to_owned();
    for id in 0..3000_u32 {
        let a = if id % 11 == 0 { 40_000 + id } else { id * 7 % 5000 };
        writeln!(lines, "{id},{a},{}", id % 13).unwrap();
    }
    append(&path, &lines);
    append(&path, "3000,,5\n");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session, &path, "ON ERROR SKIP ROW INTO skipped");
    wait_for_end(&mut session, "loading");
    let one = |session: &mut Session, sql: &str| rows(session, sql)[0][0].clone();
    assert_eq!(one(&mut session, "SELECT count(*) FROM lines"), "3001");
    for (target, expected) in [
        (
            "quotients",
            "SELECT id, a / b FROM lines WHERE b NOT IN (0, 3) AND CASE WHEN b IN (0, 3) THEN 99 ELSE 100 / (b - 3) END < 50",
        ),
        ("small", "SELECT id, a FROM lines WHERE a <= 32767"),
        ("firsts", "SELECT a % 500, min(id) FROM lines WHERE a IS NOT NULL GROUP BY 1"),
    ] {
        for (one_side, other) in [(target, expected), (expected, target)] {
            let (one_side, other) = (from(one_side), from(other));
            let differ = format!("SELECT count(*) FROM ({one_side} EXCEPT ALL {other}) d");
            assert_eq!(one(&mut session, &differ), "0", "{target}: {differ}");
        }
    }
    // An update that divides by zero leaves its row as it was: the model is a loop over the lines.
    let mut sums = [None::<i64>; 7];
    for line in rows(&mut session, "SELECT a % 7, b FROM lines WHERE a IS NOT NULL AND b <> 0 ORDER BY id") {
        let (key, quotient) = (line[0].parse::<usize>().unwrap(), 1000 / line[1].parse::<i64>().unwrap());
        sums[key] = match sums[key] {
            None => Some(quotient),
            Some(sum) if quotient == 250 => Some(sum),
            Some(sum) => Some(sum + 1000 / (quotient - 250)),
        };
    }
    let stored = rows(&mut session, "SELECT id, sum FROM inverse ORDER BY id");
    let expected: Vec<Vec<String>> = sums
        .iter()
        .enumerate()
        .filter_map(|(key, sum)| sum.map(|sum| vec![key.to_string(), sum.to_string()]))
        .collect();
    assert_eq!(stored, expected);
    // Each row that is missing is there with the reason, and counted.
    let skipped = one(&mut session, "SELECT count(*) FROM skipped");
    assert_eq!(one(&mut session, "SELECT rejected FROM entresol.topologies"), skipped);
    let small = "SELECT count(*) FROM skipped WHERE source = 'step 3 (INSERT INTO small)'";
    let missing = one(&mut session, "SELECT count(*) FROM lines WHERE a > 32767 OR a IS NULL");
    assert_eq!(one(&mut session, small), missing);
    let duplicates = "SELECT count(*) FROM skipped WHERE reason LIKE '%duplicate key value%firsts%'";
    let all = one(&mut session, "SELECT count(*) - count(DISTINCT a % 500) FROM lines WHERE a IS NOT NULL");
    assert_eq!(one(&mut session, duplicates), all);
    let by_zero = "SELECT count(*) > 0 FROM skipped
        WHERE reason LIKE '%division by zero%' AND record = 'id = 3, a = 21, b = 3'";
    assert_eq!(one(&mut session, by_zero), "true");
    assert_eq!(one(&mut session, "SELECT count(*) FROM skipped WHERE record LIKE '%a = NULL%'"), "2");
}

/// Rows of a table, or of a query.
fn from(relation: &str) -> String {
    if relation.contains(' ') { relation.to_owned() } else { format!("SELECT * FROM {relation}") }
}

#[test]
fn what_cannot_leave_out_rows_stops_and_other_tables_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "id,a,b\n1,1,1\n2,1,0\n3,1,1\n");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute("CREATE TABLE other (id INT)").unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE line (id INT NOT NULL, a INT, b INT) WITH (connector = 'file', path = '{}');
             CREATE TABLE quotients (id INT PRIMARY KEY, quotient INT)",
            path.display()
        ))
        .unwrap();
    let topology = |clause: &str| {
        format!(
            "CREATE TOPOLOGY loading {clause} AS (INSERT INTO quotients SELECT id, a / b FROM line; \
             ABORT WHEN (SELECT count(*) FROM CHANGES(quotients)) > 1)"
        )
    };
    let error = session.execute(&topology("ON ERROR SKIP ROW INTO other")).unwrap_err().to_string();
    assert!(
        error.contains(
            "table other has not the columns source, line, reason, record, topology and byte_offset"
        ),
        "{error}"
    );
    // A condition of the whole transaction is no error of a row.
    session.execute(&topology("ON ERROR SKIP ROW")).unwrap();
    wait_for(&mut session, "SELECT state FROM entresol.topologies", "failed");
    assert_eq!(rows(&mut session, "SELECT count(*) FROM quotients"), [["0"]]);
    session.execute("DROP TOPOLOGY loading").unwrap();
    session.execute(&topology("COMMIT EACH ROW ON ERROR SKIP ROW").replace('\\', "")).unwrap();
    wait_for_end(&mut session, "loading");
    assert_eq!(rows(&mut session, "SELECT id FROM quotients ORDER BY id").concat(), ["1", "3"]);
}

#[test]
fn skipped_rows_that_wait_for_a_commit_are_bounded() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE reading (at TIMESTAMP NOT NULL, meter INT NOT NULL)
                 WITH (connector = 'generator', rows = 20000, step = '1 second', meter.cardinality = 1);
             CREATE TABLE quotients (at TIMESTAMP PRIMARY KEY, quotient INT);
             CREATE TOPOLOGY loading COMMIT EVERY 1000000 ROWS ON ERROR SKIP ROW INTO skipped AS (
                 INSERT INTO quotients SELECT at, 1 / (meter - meter) FROM reading)",
        )
        .unwrap();
    wait_for_end(&mut session, "loading");
    let counts = "SELECT commits > 3, rejected, (SELECT count(*) FROM skipped) FROM entresol.topologies";
    assert_eq!(rows(&mut session, counts), [["true", "20000", "20000"]]);
}

/// A row without an event time is an error of that row, which names its own columns; it may be left out and stored.
#[test]
fn rows_without_an_event_time_are_left_out_and_stored() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "at,k\n2026-01-01T00:00:10,1\n,2\n2026-01-01T00:00:20,1\n,3\n2026-01-01T00:05:00,1\n");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE line (at TIMESTAMP, k INT, WATERMARK FOR at AS at) WITH (connector = 'file', path = '{}');
             CREATE TABLE counts (k INT, minute TIMESTAMP, n BIGINT);
             CREATE TABLE stays (k INT, n BIGINT);
             CREATE TABLE firsts (k INT, at TIMESTAMP);
             CREATE TABLE numbered (k INT, n BIGINT);
             CREATE TABLE edges (k INT, minute TIMESTAMP);
             CREATE TOPOLOGY counting ON ERROR SKIP ROW INTO skipped AS (
                 INSERT INTO counts SELECT k, window_start, count(*) FROM TUMBLE(line, at, INTERVAL '1 minute') GROUP BY k, window_start;
                 INSERT INTO stays SELECT k, count(*) FROM SESSION(line, at, INTERVAL '1 minute') GROUP BY k, window_start;
                 INSERT INTO firsts SELECT k, at FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY at) AS n FROM line) l WHERE n = 1;
                 INSERT INTO numbered SELECT k, row_number() OVER (PARTITION BY k ORDER BY at) FROM line;
                 INSERT INTO edges SELECT k, window_start FROM TUMBLE(line, at, INTERVAL '1 minute'));
             CREATE TOPOLOGY stopping AS (
                 INSERT INTO counts SELECT k, window_start, count(*) FROM TUMBLE(line, at, INTERVAL '1 minute') GROUP BY k, window_start)",
            path.display()
        ))
        .unwrap();
    wait_for_end(&mut session, "counting");
    for (query, expected) in [
        ("SELECT k, n FROM counts ORDER BY minute", vec![["1", "2"], ["1", "1"]]),
        ("SELECT k, n FROM stays ORDER BY n", vec![["1", "1"], ["1", "2"]]),
        ("SELECT k, count(*) FROM firsts GROUP BY k", vec![["1", "1"]]),
        ("SELECT k, max(n) FROM numbered GROUP BY k", vec![["1", "3"]]),
        ("SELECT count(*), count(minute) FROM edges", vec![["5", "3"]]),
    ] {
        assert_eq!(rows(&mut session, query), expected, "{query}");
    }
    let reason = "event time \"at\" is NULL";
    let skipped = "SELECT left(record, 16), count(*), bool_and(reason LIKE '%event time \"at\" is NULL%') FROM skipped GROUP BY 1 ORDER BY 1";
    assert_eq!(
        rows(&mut session, skipped),
        [["at = NULL, k = 2", "4", "true"], ["at = NULL, k = 3", "4", "true"]]
    );
    wait_for(&mut session, "SELECT state FROM entresol.topologies WHERE name = 'stopping'", "failed");
    let error =
        rows(&mut session, "SELECT error FROM entresol.topologies WHERE name = 'stopping'")[0][0].clone();
    assert!(error.contains(reason) && error.contains("row: at = NULL, k = 2"), "{error}");
    assert!(!error.contains("nulls") && !error.contains("event_time"), "{error}");
}

/// Rejected rows say which topology had them; a table that was made without the column takes them as before.
#[test]
fn rejected_rows_name_their_topology() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "id,b\n1,0\nx,1\n2,2\n");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE TABLE earlier (source VARCHAR NOT NULL, line BIGINT NOT NULL, reason VARCHAR NOT NULL, record VARCHAR NOT NULL);
             CREATE SOURCE line (id INT NOT NULL, b INT) WITH (connector = 'file', path = '{0}', rejects = 'bad');
             CREATE SOURCE line_again (id INT NOT NULL, b INT) WITH (connector = 'file', path = '{0}', rejects = 'earlier');
             CREATE TABLE halves (id INT, half INT)",
            path.display()
        ))
        .unwrap();
    for (name, table, source) in
        [("one", "bad", "line"), ("two", "bad", "line"), ("three", "earlier", "line_again")]
    {
        session
            .execute(&format!(
                "CREATE TOPOLOGY {name} ON ERROR SKIP ROW INTO {table} AS (INSERT INTO halves SELECT id, 10 / b FROM {source})"
            ))
            .unwrap();
        wait_for_end(&mut session, name);
    }
    assert_eq!(
        rows(&mut session, "SELECT topology, source, line, record FROM bad ORDER BY topology, line"),
        [
            ["one", "step 1 (INSERT INTO halves)", "0", "id = 1, b = 0"],
            ["one", "line", "3", "x,1"],
            ["two", "step 1 (INSERT INTO halves)", "0", "id = 1, b = 0"],
            ["two", "line", "3", "x,1"],
        ]
    );
    assert_eq!(
        rows(&mut session, "SELECT * FROM earlier ORDER BY line")
            .iter()
            .map(|row| row[..2].to_vec())
            .collect::<Vec<_>>(),
        [["step 1 (INSERT INTO halves)", "0"], ["line_again", "3"]]
    );
}
