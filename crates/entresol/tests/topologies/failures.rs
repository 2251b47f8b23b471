//! Errors of topologies: each names its step, the reason with its SQLSTATE, and the row.

use super::{append, rows, sqlstate, wait_for, wait_for_end};
use entresol::{Database, Options, Session};
use std::path::Path;
use std::time::Duration;

const LINES: &str = "at,id,a,b,name\n\
    2026-01-01 00:00:01,1,1,5,1\n\
    2026-01-01 00:00:02,2,7,2,2\n\
    2026-01-01 00:00:03,3,2000000,0,x\n\
    2026-01-01 00:00:04,4,,1,4\n\
    2026-01-01 00:00:05,5,7,3,5\n";

fn prepare(session: &mut Session, path: &Path) {
    append(path, LINES);
    session
        .execute(&format!(
            "CREATE SOURCE line (at TIMESTAMP NOT NULL, id INT NOT NULL, a INT, b INT, name VARCHAR, WATERMARK FOR at AS at)
                 WITH (connector = 'file', path = '{}');
             CREATE TABLE results (id INT PRIMARY KEY, n INT);
             CREATE TABLE needed (id INT PRIMARY KEY, n INT NOT NULL);
             CREATE TABLE checked (id INT PRIMARY KEY, n INT, CONSTRAINT small CHECK (n < 1000));
             CREATE TABLE singles (id INT PRIMARY KEY, n INT UNIQUE);
             CREATE TABLE sums (id INT PRIMARY KEY, n BIGINT);
             CREATE TABLE windows (at TIMESTAMP PRIMARY KEY, n BIGINT);
             CREATE TABLE bounds (n INT PRIMARY KEY);
             INSERT INTO bounds VALUES (1), (2)",
            path.display()
        ))
        .unwrap();
}

/// Steps that fail with the third or a later row of a batch, and what is shown of them.
const FAILURES: [(&str, &str); 13] = [
    (
        "CREATE STREAM halves AS SELECT id, 10 / b AS n FROM line; INSERT INTO results SELECT id, n FROM halves",
        "step 1 (CREATE STREAM halves): division by zero (SQLSTATE 22012); row: at = 2026-01-01T00:00:03, id = 3, a = 2000000, b = 0, name = x",
    ),
    (
        "CREATE STREAM all_lines AS SELECT * FROM line; INSERT INTO results SELECT id, b FROM all_lines WHERE 10 / b < 100",
        "step 2 (INSERT INTO results): division by zero (SQLSTATE 22012); row: at = 2026-01-01T00:00:03, id = 3,",
    ),
    (
        "INSERT INTO results SELECT id, a * 2000 FROM line",
        "step 1 (INSERT INTO results): *(SQLSTATE 22003); row: at = 2026-01-01T00:00:03, id = 3,",
    ),
    (
        "INSERT INTO results SELECT id, name::int FROM line",
        "step 1 (INSERT INTO results): *(SQLSTATE 22P02); row: at = 2026-01-01T00:00:03, id = 3,",
    ),
    (
        "INSERT INTO needed SELECT id, a FROM line",
        "step 1 (INSERT INTO needed): *needed*n*(SQLSTATE 23502); row: id = 4, n = NULL",
    ),
    (
        "INSERT INTO checked SELECT id, a FROM line",
        "step 1 (INSERT INTO checked): *small*(SQLSTATE 23514); row: id = 3, n = 2000000",
    ),
    (
        "INSERT INTO results SELECT b % 3, id FROM line",
        "step 1 (INSERT INTO results): *duplicate key*(SQLSTATE 23505); row: id = 2, n = 2",
    ),
    (
        "INSERT INTO singles SELECT id, a FROM line",
        "step 1 (INSERT INTO singles): *(SQLSTATE 23505); row: id = 5, n = 7",
    ),
    (
        "MERGE INTO results r USING line l ON r.id = l.id WHEN NOT MATCHED THEN INSERT (id, n) VALUES (l.id, 10 / l.b)",
        "step 1 (MERGE INTO results): division by zero (SQLSTATE 22012); row: at = 2026-01-01T00:00:03, id = 3,",
    ),
    (
        "INSERT INTO sums SELECT 1, sum(a::bigint * 4611686000000) FROM line ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n",
        "step 1 (INSERT INTO sums): *(SQLSTATE 22003)*",
    ),
    (
        "INSERT INTO results SELECT id, a FROM line WHERE 10 / b > (SELECT min(n) FROM bounds)",
        "step 1 (INSERT INTO results): division by zero (SQLSTATE 22012); row: *3*",
    ),
    (
        "INSERT INTO windows SELECT window_start, 10 / (count(*) - 5) FROM TUMBLE(line, at, INTERVAL '1 minute') GROUP BY window_start",
        "step 1 (INSERT INTO windows): division by zero (SQLSTATE 22012); row: *2026-01-01T00:00:00*5*",
    ),
    (
        "INSERT INTO results SELECT id, b FROM line; ABORT WHEN (SELECT max(id) FROM CHANGES(results)) = 5",
        "step 2 (ABORT WHEN): the transaction was aborted 6 times: ABORT WHEN (SELECT max(id) FROM CHANGES(results)) = 5; *(SQLSTATE 40000)",
    ),
];

/// Tells whether a text has these parts, `*` between them, from its beginning.
fn is_like(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    parts.all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

#[test]
fn a_failed_topology_says_which_step_which_row_and_why() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session, &path);
    for options in ["", "COMMIT EACH ROW", "ON ERROR STOP INTO failed_rows WITH (parallelism = '2')"] {
        for (steps, expected) in FAILURES {
            if options == "COMMIT EACH ROW" && steps.contains("count(*)") {
                continue;
            }
            session.execute(&format!("CREATE TOPOLOGY failing {options} AS ({steps})")).unwrap();
            wait_for(&mut session, "SELECT state <> 'running' FROM entresol.topologies", "true");
            let shown = rows(&mut session, "SELECT error FROM entresol.topologies")[0][0].clone();
            assert!(is_like(&shown, expected), "{steps}\n{options}\n{shown}\nexpected {expected}");
            session
                .execute(
                    "DROP TOPOLOGY failing; DELETE FROM results; DELETE FROM needed; DELETE FROM checked; DELETE FROM singles;
                     DELETE FROM sums; DELETE FROM windows",
                )
                .unwrap();
        }
    }
    // The reason is beside each row of the transaction, too.
    let reasons = "SELECT count(*) FROM failed_rows WHERE reason LIKE 'step 1 (INSERT INTO singles): %; row: id = 5, n = 7'";
    assert_eq!(rows(&mut session, reasons), [["5"]]);
}

#[test]
fn rows_that_are_left_out_are_stored_with_step_and_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session, &path);
    session
        .execute(
            "CREATE TOPOLOGY skipping ON ERROR SKIP ROW INTO skipped AS (
                 CREATE STREAM halves AS SELECT id, a, 10 / b AS n FROM line;
                 INSERT INTO checked SELECT id, a FROM line;
                 INSERT INTO results SELECT id, n FROM halves)",
        )
        .unwrap();
    wait_for_end(&mut session, "skipping");
    let skipped = rows(&mut session, "SELECT source, reason, record FROM skipped ORDER BY source");
    assert_eq!(skipped.len(), 2, "{skipped:?}");
    assert_eq!(
        skipped[0],
        [
            "step 1 (CREATE STREAM halves)",
            "step 1 (CREATE STREAM halves): division by zero (SQLSTATE 22012)",
            "at = 2026-01-01T00:00:03, id = 3, a = 2000000, b = 0, name = x"
        ]
    );
    assert_eq!(skipped[1][0], "step 2 (INSERT INTO checked)");
    assert!(
        skipped[1][1].contains("\"small\"") && skipped[1][1].ends_with("(SQLSTATE 23514)"),
        "{skipped:?}"
    );
    assert_eq!(skipped[1][2], "id = 3, n = 2000000");
    assert_eq!(rows(&mut session, "SELECT count(*) FROM checked"), [["4"]]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM results"), [["4"]]);
}

/// A long value does not make a long error.
#[test]
fn the_row_of_an_error_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, &format!("name,b\n{},0\n", "ä".repeat(100_000)));
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE text (name VARCHAR, b INT) WITH (connector = 'file', path = '{}');
             CREATE TABLE results (n INT);
             CREATE TOPOLOGY failing AS (INSERT INTO results SELECT 10 / b FROM text)",
            path.display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT state FROM entresol.topologies", "failed");
    let shown = rows(&mut session, "SELECT error FROM entresol.topologies")[0][0].clone();
    assert!(shown.contains("; row: name = ääää") && shown.ends_with('…') && shown.len() < 700, "{shown}");
}

/// A topology that others are always ahead of says of which row.
#[test]
fn the_last_conflict_names_the_table_and_the_key() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE TABLE total (meter INT, day VARCHAR, n BIGINT, PRIMARY KEY (meter, day));
             INSERT INTO total VALUES (3, 'monday', 0);
             CREATE SOURCE number (at TIMESTAMP NOT NULL, meter INT NOT NULL)
                 WITH (connector = 'generator', rows = 3000, step = '1 second', meter.cardinality = 1)",
        )
        .unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = database.session().unwrap();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let update = other.execute("UPDATE total SET n = n + 1 WHERE meter = 3");
                if let Err(error) = update {
                    assert_eq!(sqlstate(&error), "40001", "{error}");
                }
            }
        });
        session
            .execute(
                "CREATE TOPOLOGY counting COMMIT EVERY 3000 ROWS WITH (durability = 'none') AS (
                     INSERT INTO total AS t SELECT 3, 'monday', 1 FROM number ON CONFLICT (meter, day) DO UPDATE SET n = t.n + 1)",
            )
            .unwrap();
        let state = "SELECT state FROM entresol.topologies";
        let begin = std::time::Instant::now();
        while rows(&mut session, state) == [["running"]] && begin.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let shown = rows(&mut session, "SELECT state, error FROM entresol.topologies");
    assert_eq!(shown[0][0], "failed", "{shown:?}");
    assert!(
        shown[0][1].contains("could not serialize access: table \"total\", key (meter = 3, day = monday)"),
        "{shown:?}"
    );
    assert!(shown[0][1].contains("SQLSTATE 40001"), "{shown:?}");
}
