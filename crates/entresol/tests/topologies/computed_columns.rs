//! Columns of sources that are computed from the others, and watermarks that are.

use super::{append, rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};

/// Checks that a statement is refused with this in its message.
fn refused(session: &mut Session, sql: &str, expected: &str) {
    let error = session.execute(sql).err().unwrap_or_else(|| panic!("{sql} is accepted")).to_string();
    assert!(error.contains(expected), "{sql}: {error}");
}

#[test]
fn columns_are_computed_from_those_of_the_record() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("readings.csv");
    append(&path, "ms,feeder,amps,volts\n0,f1,2,230\n60000,f1,,230\n90000,f2,3,0\n1800000,f1,1,231\n");
    let open = || Database::open(directory.path().join("db"), Options::default()).unwrap();
    let database = open();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE reading (ms BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL AS to_timestamp(ms / 1000.0), feeder VARCHAR NOT NULL,
                 name VARCHAR(4) AS upper(feeder), amps INT, volts INT, watts INT NOT NULL AS amps * volts,
                 amps_per_volt DECIMAL(8,2) AS amps::decimal / volts, next BIGINT AS behind + 1,
                 WATERMARK FOR at AS at - 2 * INTERVAL '1 minute')
                 INCLUDE OFFSET AS behind
                 WITH (connector = 'file', path = '{}', tail = true, rejects = 'bad') FORMAT PLAIN ENCODE CSV;
             CREATE TABLE seen (ms BIGINT, at TIMESTAMPTZ, name VARCHAR, watts INT, ratio DECIMAL(8,2), next BIGINT);
             CREATE TABLE mean (feeder VARCHAR, from_time TIMESTAMPTZ, watts DOUBLE, PRIMARY KEY (feeder, from_time));
             CREATE TOPOLOGY readings COMMIT EVERY 2 ROWS OR EVERY INTERVAL '5 ms' AS (
                 INSERT INTO seen SELECT ms, at, name, watts, amps_per_volt, next FROM reading;
                 INSERT INTO mean SELECT feeder, window_start, avg(watts) FROM TUMBLE(reading, at, INTERVAL '30 minutes')
                     GROUP BY feeder, window_start, window_end EMIT ON WINDOW CLOSE)",
            path.display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM seen", "2");
    wait_for(&mut session, "SELECT count(*) FROM bad", "2");
    assert_eq!(
        rows(&mut session, "SELECT * FROM seen ORDER BY ms"),
        [
            ["0", "1970-01-01T00:00:00Z", "F1", "460", "0.01", "33"],
            ["1800000", "1970-01-01T00:30:00Z", "F1", "231", "0.00", "77"]
        ]
    );
    let bad = rows(&mut session, "SELECT line, byte_offset, reason, record FROM bad ORDER BY line");
    assert_eq!(bad[0][..2], ["3", "32"]);
    assert_eq!(bad[0][2], "column watts: NULL in a NOT NULL column");
    assert_eq!(bad[0][3], "ms = 60000, feeder = f1, amps = NULL, volts = 230, behind = 46");
    assert_eq!(bad[1][..2], ["4", "46"]);
    assert!(bad[1][2].starts_with("column amps_per_volt: division by zero"), "{bad:?}");
    // The watermark is two minutes behind the last row.
    assert_eq!(rows(&mut session, "SELECT count(*) FROM mean")[0], ["0"]);
    drop(session);
    database.close().unwrap();
    drop(database);

    append(&path, "1920000,f22222,1,1\n1920000,f1,1,9\n");
    let database = open();
    let mut session = database.session().unwrap();
    wait_for(&mut session, "SELECT count(*) FROM mean", "1");
    wait_for(&mut session, "SELECT count(*) FROM bad", "3");
    assert_eq!(rows(&mut session, "SELECT * FROM mean"), [["f1", "1970-01-01T00:00:00Z", "460.0"]]);
    let bad = rows(&mut session, "SELECT line, reason FROM bad ORDER BY line");
    assert_eq!((bad.len(), &*bad[2][0]), (3, "6"));
    assert!(bad[2][1].starts_with("column name: ") && bad[2][1].contains("4"), "{bad:?}");
    assert_eq!(
        rows(&mut session, "DESCRIBE reading")[..4],
        [
            ["ms", "BIGINT", "NO"],
            ["at", "TIMESTAMPTZ", "NO"],
            ["feeder", "VARCHAR", "NO"],
            ["name", "VARCHAR(4)", "YES"]
        ]
    );
    // One more, computed from those that are read.
    session.execute("ALTER SOURCE reading ADD COLUMN seconds INT AS cast(ms / 1000 AS int)").unwrap();
    session.execute("CREATE TABLE late (ms BIGINT, seconds INT)").unwrap();
    session.execute("CREATE TOPOLOGY more AS (INSERT INTO late SELECT ms, seconds FROM reading)").unwrap();
    append(&path, "1923500,f2,1,1\n");
    wait_for(&mut session, "SELECT count(*) FROM late", "4");
    assert_eq!(rows(&mut session, "SELECT max(seconds) FROM late")[0], ["1923"]);
    wait_for(&mut session, "SELECT count(*) FROM seen", "4");
}

#[test]
fn changes_of_a_table_and_generated_rows_have_computed_columns() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE TABLE price (id INT PRIMARY KEY, cents INT) WITH (changes = '1 hour');
             CREATE SOURCE changed (euros DECIMAL(10,2) AS cents / 100.0, id INT, cents INT, change_type VARCHAR NOT NULL)
                 WITH (connector = 'table', table = 'price');
             CREATE SOURCE numbered (n BIGINT NOT NULL, square BIGINT AS n * n, half INT AS 100 / (n - 3))
                 WITH (connector = 'generator', rows = 100, n.cardinality = 5, rejects = 'bad');
             CREATE TABLE prices (id INT, euros DECIMAL(10,2), kind VARCHAR);
             CREATE TABLE squares (n BIGINT, square BIGINT, half INT);
             CREATE TOPOLOGY prices_seen COMMIT EACH ROW AS (
                 INSERT INTO prices SELECT id, euros, change_type FROM changed);
             CREATE TOPOLOGY squared AS (INSERT INTO squares SELECT n, square, half FROM numbered);
             INSERT INTO price VALUES (1, 1250), (2, 99);
             UPDATE price SET cents = 5 WHERE id = 2",
        )
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM prices", "3");
    assert_eq!(
        rows(&mut session, "SELECT * FROM prices ORDER BY id, euros"),
        [["1", "12.50", "insert"], ["2", "0.05", "update"], ["2", "0.99", "insert"]]
    );
    wait_for_end(&mut session, "squared");
    let wrong = "SELECT count(*) FROM squares WHERE square <> n * n OR half <> 100 / (n - 3)";
    assert_eq!(rows(&mut session, wrong)[0], ["0"]);
    let kept = rows(&mut session, "SELECT count(*) FROM squares");
    let bad = rows(
        &mut session,
        "SELECT count(*) FROM bad WHERE record = 'n = 3' AND line = 0 AND byte_offset IS NULL",
    );
    let counts = [&kept, &bad].map(|count| count[0][0].parse::<usize>().unwrap());
    assert!(counts[0] + counts[1] == 100 && counts[0] > 0 && counts[1] > 0, "{counts:?}");
}

#[test]
fn watermarks_are_intervals_behind_the_event_time() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    let source = |name: &str, watermark: &str| {
        format!(
            "CREATE SOURCE {name} (at TIMESTAMP NOT NULL, n INT, WATERMARK FOR at AS {watermark})
                 WITH (connector = 'generator', rows = 3, start = '2026-01-01', step = '1 minute')"
        )
    };
    let same = [
        "at - INTERVAL '90 seconds'",
        "(at - INTERVAL '2 minutes') + INTERVAL '30' SECOND",
        "at - '1.5 minutes'::interval",
    ];
    for (number, watermark) in same.iter().enumerate() {
        session.execute(&source(&format!("s{number}"), watermark)).unwrap();
        session
            .execute(&format!(
                "CREATE TABLE t{number} (w TIMESTAMP, n BIGINT);
                 CREATE TOPOLOGY of_{number} AS (INSERT INTO t{number}
                     SELECT window_start, count(*) FROM TUMBLE(s{number}, at, INTERVAL '1 minute')
                     GROUP BY window_start, window_end EMIT ON WINDOW CLOSE)"
            ))
            .unwrap();
        wait_for_end(&mut session, &format!("of_{number}"));
    }
    let lateness = rows(&mut session, "SELECT DISTINCT watermark FROM entresol.topologies");
    assert_eq!(lateness.len(), 1, "{lateness:?}");
    for (watermark, expected) in [
        ("at - n * INTERVAL '1 second'", "with the same interval for all rows"),
        ("at + INTERVAL '1 second'", "the interval must not be negative"),
        ("at - INTERVAL '1 month'", "months differ in length"),
        ("at - 2 * INTERVAL '1 month'", "months differ in length"),
        ("at - random() * INTERVAL '1 second'", "with the same interval for all rows"),
        ("INTERVAL '1 second'", "with the same interval for all rows"),
        ("at - 5", "5"),
    ] {
        refused(&mut session, &source("wrong", watermark), expected);
    }
}

#[test]
fn computed_columns_that_cannot_be_are_refused() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute("CREATE TABLE price (id INT PRIMARY KEY) WITH (changes = '1 hour')").unwrap();
    let generator = "WITH (connector = 'generator')";
    for (columns, rest, expected) in [
        ("a INT, b AS a + 1", generator, "write b type AS"),
        ("a INT, b INT AS", generator, "expression"),
        ("a INT, b INT AS c + 1", generator, "c"),
        ("a INT, b INT AS a + 1, c INT AS b + 1", generator, "b"),
        ("a INT, b TIMESTAMPTZ AS now()", generator, "now() in a computed column"),
        ("a INT, b DOUBLE AS random()", generator, "random() in a computed column"),
        ("a INT, b INT AS (SELECT 1)", generator, "a subquery in computed column \"b\""),
        ("a INT, b INT AS max(a)", generator, "an aggregate function in computed column \"b\""),
        (
            "a INT, b DATE AS a",
            generator,
            "computed column \"b\" of source \"wrong\": an expression of type Int32 does not fit DATE",
        ),
        ("b INT AS 1", generator, "no columns but computed ones"),
        ("b INT AS 1", "WITH (connector = 'table', table = 'price')", "no columns but computed ones"),
        ("a INT, a INT AS a", generator, "specified more than once"),
        (
            "a INT PRIMARY KEY, b INT AS a + 1",
            "WITH (connector = 'file', path = 'x') FORMAT UPSERT ENCODE JSON",
            "computed columns of a source whose rows change",
        ),
    ] {
        refused(&mut session, &format!("CREATE SOURCE wrong ({columns}) {rest}"), expected);
    }
}
