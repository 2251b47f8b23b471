//! Sources of the logged changes of a table: windows over them, restarts, columns that are chosen, dependents, refusals.

use super::{rows, sqlstate, wait_for};
use entresol::{Database, Options, Session};

const TABLES: &str =
    "CREATE TABLE reading (id INT PRIMARY KEY, at TIMESTAMP, meter INT, kw DOUBLE) WITH (changes = '1 hour');
     CREATE TABLE half_hour (meter INT, begins TIMESTAMP, n BIGINT, kw DOUBLE, PRIMARY KEY (meter, begins));
     CREATE TABLE late (id INT PRIMARY KEY, at TIMESTAMP)";
const SOURCE: &str = "CREATE SOURCE written (WATERMARK FOR at AS at - INTERVAL '1 minute')
     WITH (connector = 'table', table = 'reading')";
const TOPOLOGY: &str = "CREATE TOPOLOGY halves COMMIT EVERY 7 ROWS OR EVERY INTERVAL '20 milliseconds' AS (
     CREATE STREAM added AS SELECT id, at, meter, kw FROM written WHERE change_type = 'insert';
     INSERT INTO half_hour SELECT meter, window_start, count(*), sum(kw) FROM TUMBLE(added, at, INTERVAL '30 minutes')
         GROUP BY meter, window_start EMIT ON WINDOW CLOSE)";

/// Writes readings, 15 s apart, in transactions of different lengths, with changes and deletes of older ones between them.
fn write(session: &mut Session, ids: std::ops::Range<i32>) {
    for id in ids {
        let values = format!(
            "({id}, TIMESTAMP '2026-01-01' + {id} * INTERVAL '15 seconds', {}, {}.5)",
            id % 5,
            id % 11
        );
        session.execute(&format!("INSERT INTO reading VALUES {values}")).unwrap();
        if id % 13 == 0 {
            let block = format!(
                "BEGIN; UPDATE reading SET kw = kw + 1 WHERE id = {}; DELETE FROM reading WHERE id = {}; COMMIT",
                id / 2,
                id / 3
            );
            session.execute(&block).unwrap();
        }
    }
}

fn refused(session: &mut Session, statement: &str, code: &str, expected: &str) {
    let error = session.execute(statement).err().unwrap_or_else(|| panic!("{statement} is accepted"));
    let found = sqlstate(&error);
    let error = error.to_string();
    assert!(found == code && error.contains(expected), "{statement}: {found} {error}");
}

#[test]
fn windows_over_the_changes_of_a_table_are_those_of_a_query() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Database::open(directory.path().join("db"), Options::default()).unwrap();
    {
        let database = open();
        let mut session = database.session().unwrap();
        session.execute(TABLES).unwrap();
        write(&mut session, 0..30);
        session.execute(SOURCE).unwrap();
        session.execute(TOPOLOGY).unwrap();
        write(&mut session, 30..400);
        wait_for(&mut session, "SELECT count(*) >= 10 FROM half_hour", "true");
    }
    let database = open();
    let mut session = database.session().unwrap();
    write(&mut session, 400..720);
    // 180 minutes: the last window closes behind a row that is a minute later than its end.
    session.execute("INSERT INTO reading VALUES (1000, TIMESTAMP '2026-01-01 03:01:00', 9, 0)").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM half_hour", "30");
    let expected = "SELECT meter, date_bin(INTERVAL '30 minutes', at, TIMESTAMP '2026-01-01'), count(*), sum(kw)
                    FROM CHANGES(reading) WHERE change_type = 'insert' AND id < 1000 GROUP BY 1, 2 ORDER BY 1, 2";
    assert_eq!(
        rows(&mut session, "SELECT * FROM half_hour ORDER BY meter, begins"),
        rows(&mut session, expected)
    );
    let source = "SELECT connector, topology, state FROM entresol.sources WHERE name = 'written'";
    assert_eq!(rows(&mut session, source), [["table", "halves", "running"]]);
}

#[test]
fn columns_of_a_table_source_are_chosen_by_name() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(TABLES).unwrap();
    session
        .execute(
            "CREATE SOURCE chosen (change_type VARCHAR NOT NULL, old_kw DOUBLE, kw DOUBLE, id INT NOT NULL)
                 WITH (connector = 'table', table = 'reading');
             CREATE TABLE steps (id INT, what VARCHAR, difference DOUBLE);
             CREATE TOPOLOGY differences AS (
                 INSERT INTO steps SELECT id, change_type, kw - coalesce(old_kw, 0) FROM chosen);
             INSERT INTO reading VALUES (1, NULL, 3, 5);
             UPDATE reading SET kw = 7.5 WHERE id = 1;
             DELETE FROM reading",
        )
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM steps", "3");
    let found = rows(&mut session, "SELECT * FROM steps ORDER BY what");
    assert_eq!(found, [["1", "delete", "0.0"], ["1", "insert", "5.0"], ["1", "update", "2.5"]]);
    let described = rows(&mut session, "DESCRIBE chosen");
    assert_eq!(described.len(), 4);
    session.execute("CREATE SOURCE every () WITH (connector = 'table', table = 'reading')").unwrap();
    let described = rows(&mut session, "DESCRIBE every");
    assert_eq!(described.len(), 10);
    assert_eq!(described[0], ["id", "INT", "NO"]);
    assert_eq!(described[8], ["change_type", "VARCHAR", "NO"]);
    // The table may have more columns: the topology goes on.
    session.execute("ALTER TABLE reading ADD COLUMN place VARCHAR").unwrap();
    session.execute("INSERT INTO reading VALUES (2, NULL, 3, 1, 'attic')").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM steps", "4");
    assert_eq!(rows(&mut session, "DESCRIBE every").len(), 12);
}

#[test]
fn a_table_with_a_source_is_dropped_by_cascade_alone() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(TABLES).unwrap();
    session.execute(SOURCE).unwrap();
    refused(&mut session, "DROP TABLE reading", "2BP01", "source written uses it");
    session.execute(TOPOLOGY).unwrap();
    refused(&mut session, "DROP TABLE reading", "2BP01", "topology halves uses it, source written uses it");
    refused(&mut session, "ALTER TABLE reading RESET (changes)", "2BP01", "halves");
    refused(&mut session, "ALTER TABLE reading DROP COLUMN kw", "2BP01", "halves");
    session.execute("DROP TABLE reading CASCADE").unwrap();
    let left = "SELECT (SELECT count(*) FROM entresol.sources), (SELECT count(*) FROM entresol.topologies)";
    assert_eq!(rows(&mut session, left), [["0", "0"]]);
}

#[test]
fn mistakes_in_a_table_source_are_named() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(TABLES).unwrap();
    session.execute("CREATE VIEW shown AS SELECT * FROM reading").unwrap();
    let with = "WITH (connector = 'table', table = 'reading')";
    for (statement, code, expected) in [
        (
            "CREATE SOURCE s () WITH (connector = 'file', path = 'x')".to_owned(),
            "42601",
            "source \"s\" has no columns",
        ),
        ("CREATE SOURCE s () WITH (connector = 'table')".to_owned(), "22023", "needs the option \"table\""),
        ("CREATE SOURCE s () WITH (connector = 'table', table = 'nothing')".to_owned(), "42P01", "nothing"),
        ("CREATE SOURCE s () WITH (connector = 'table', table = 'shown')".to_owned(), "42809", "shown"),
        ("CREATE SOURCE s () WITH (connector = 'table', table = 'late')".to_owned(), "55000", "late"),
        (
            "CREATE SOURCE s () WITH (connector = 'table', table = 'reading', path = 'x')".to_owned(),
            "22023",
            "path",
        ),
        (
            format!("CREATE SOURCE s (power DOUBLE) {with}"),
            "42703",
            "column \"power\" of the changes of table \"reading\"",
        ),
        (format!("CREATE SOURCE s (kw INT) {with}"), "42804", "is DOUBLE, not INT"),
        (format!("CREATE SOURCE s (kw DOUBLE NOT NULL) {with}"), "42804", "is DOUBLE, not DOUBLE NOT NULL"),
        (format!("CREATE SOURCE s (WATERMARK FOR kw AS kw) {with}"), "42804", "not a timestamp"),
        (format!("CREATE SOURCE s (id INT, PRIMARY KEY (id)) {with}"), "0A000", "PRIMARY KEY"),
        (
            format!("CREATE SOURCE s () INCLUDE OFFSET {with}"),
            "0A000",
            "INCLUDE of a source with the connector \"table\"",
        ),
        (format!("CREATE SOURCE s () {with} FORMAT PLAIN ENCODE JSON"), "22023", "FORMAT of a source"),
    ] {
        refused(&mut session, &statement, code, expected);
    }
    session.execute(SOURCE).unwrap();
    refused(
        &mut session,
        "CREATE TOPOLOGY own AS (INSERT INTO reading SELECT id + 1, at, meter, kw FROM written)",
        "42P17",
        "would read what it causes",
    );
    refused(&mut session, "ALTER SOURCE written ADD COLUMN x INT", "55000", "all columns of the changes");
    refused(&mut session, "ALTER SOURCE written SEEK TO BEGINNING", "55000", "no topology reads source");
}
