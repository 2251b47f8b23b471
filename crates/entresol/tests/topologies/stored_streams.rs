//! CREATE STREAM outside of a topology: a step that topologies read by its name, each with state of its own.

use super::{rows, sqlstate, wait_for_end};
use entresol::{Database, Options, Session};

fn prepare(session: &mut Session) {
    session
        .execute(
            "CREATE SOURCE reading (at TIMESTAMP NOT NULL, meter INT NOT NULL, kw DOUBLE, WATERMARK FOR at AS at)
                 WITH (connector = 'generator', rows = 5000, step = '7 seconds', meter.cardinality = 20);
             CREATE STREAM high AS SELECT at, meter, kw FROM reading WHERE kw > 50;
             CREATE OR REPLACE STREAM hours AS SELECT meter, window_start, window_end, count(*) AS readings
                 FROM TUMBLE(high, at, INTERVAL '1 hour') GROUP BY meter, window_start, window_end
                 EMIT ON WINDOW CLOSE LATE ROWS INTO too_late;
             CREATE TABLE readings (at TIMESTAMP PRIMARY KEY, meter INT, kw DOUBLE);
             CREATE TABLE hourly (meter INT, hour TIMESTAMP, readings BIGINT, PRIMARY KEY (meter, hour));
             CREATE TABLE total (hour TIMESTAMP PRIMARY KEY, readings BIGINT)",
        )
        .unwrap();
}

const TOPOLOGIES: &str = "CREATE TOPOLOGY one COMMIT EVERY 100 ROWS AS (
        INSERT INTO hourly SELECT meter, window_start, readings FROM hours; INSERT INTO readings SELECT * FROM reading);
    CREATE TOPOLOGY two COMMIT EVERY 37 ROWS AS (
        INSERT INTO total SELECT window_start, sum(readings) FROM hours GROUP BY window_start, window_end)";

/// Compares the targets with the queries over all rows.
fn check(session: &mut Session) {
    let hourly = "SELECT meter, date_trunc('hour', at), count(*) FROM readings WHERE kw > 50 GROUP BY 1, 2";
    let total = "SELECT date_trunc('hour', at), count(*) FROM readings WHERE kw > 50 GROUP BY 1";
    for (target, expected) in [("hourly", hourly), ("total", total)] {
        let differ = format!(
            "SELECT count(*), (SELECT count(*) > 0 FROM {target}) FROM ((SELECT * FROM {target} EXCEPT ALL {expected}) UNION ALL
                 ({expected} EXCEPT ALL SELECT * FROM {target})) d"
        );
        assert_eq!(rows(session, &differ), [["0", "true"]], "{target}");
    }
}

#[test]
fn topologies_read_streams_by_their_names() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            prepare(&mut session);
            let shown = rows(&mut session, "SHOW STREAMS");
            assert_eq!(shown[0][..2], ["high", ""]);
            session.execute(TOPOLOGIES).unwrap();
        }
        wait_for_end(&mut session, "one");
        wait_for_end(&mut session, "two");
        check(&mut session);
        let shown = rows(&mut session, "SELECT name, topologies FROM entresol.streams ORDER BY name");
        assert_eq!(shown, [["high", "one, two"], ["hours", "one, two"]]);
        assert_eq!(
            rows(&mut session, "DESCRIBE hours"),
            [
                ["meter", "INT", "NO"],
                ["window_start", "TIMESTAMP", "NO"],
                ["window_end", "TIMESTAMP", "NO"],
                ["readings", "BIGINT", "NO"]
            ]
        );
        let plan = rows(&mut session, "EXPLAIN TOPOLOGY two");
        assert!(plan.iter().any(|line| line[0] == "  stream hours"), "{plan:?}");
        drop(session);
        database.close().unwrap();
    }
}

#[test]
fn what_reads_a_stream_is_named_and_dropped_with_it() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session);
    session.execute(TOPOLOGIES).unwrap();
    for (statement, code, expected) in [
        ("CREATE STREAM high AS SELECT at FROM reading", "42710", "stream \"high\" already exists"),
        ("CREATE STREAM reading AS SELECT at FROM high", "42710", "source \"reading\" already exists"),
        ("CREATE STREAM hourly AS SELECT at FROM high", "42P07", "table \"hourly\" already exists"),
        (
            "CREATE SOURCE high (a INT) WITH (connector = 'generator')",
            "42710",
            "stream \"high\" already exists",
        ),
        ("CREATE STREAM x AS SELECT at FROM nothing", "42P01", "nothing"),
        (
            "CREATE STREAM x AS SELECT at FROM high EMIT ON WINDOW CLOSE",
            "0A000",
            "EMIT ON WINDOW CLOSE of a step",
        ),
        ("CREATE STREAM x AS SELECT at FROM x", "42P01", "x"),
        ("CREATE OR REPLACE STREAM high AS SELECT at FROM reading", "2BP01", "cannot replace stream high"),
        ("ALTER STREAM high PAUSE", "0A000", "ALTER STREAM"),
        ("DROP STREAM nothing", "42704", "stream \"nothing\" does not exist"),
        ("DROP STREAM high", "2BP01", "topology one uses it, topology two uses it, stream hours uses it"),
        ("DROP SOURCE reading", "2BP01", "stream high uses it, stream hours uses it"),
    ] {
        let error = session.execute(statement).err().unwrap_or_else(|| panic!("{statement} is accepted"));
        assert!(error.to_string().contains(expected), "{statement}: {error}");
        assert_eq!(sqlstate(&error), code, "{statement}: {error}");
    }
    super::notices_of(&session);
    session.execute("DROP STREAM high CASCADE").unwrap();
    let notices = super::notices_of(&session);
    let expected =
        ["drop cascades to topology one", "drop cascades to topology two", "drop cascades to stream hours"];
    assert_eq!(notices, expected);
    assert!(rows(&mut session, "SHOW STREAMS").is_empty());
    assert!(rows(&mut session, "SHOW TOPOLOGIES").is_empty());
    session.execute("DROP STREAM IF EXISTS high; DROP SOURCE reading").unwrap();
    // None reads it: it may be another.
    session
        .execute(
            "CREATE SOURCE reading (at TIMESTAMP NOT NULL, kw DOUBLE) WITH (connector = 'generator', rows = 10);
             CREATE STREAM s AS SELECT at FROM reading;
             CREATE STREAM t AS SELECT at FROM s;
             DROP STREAM t;
             CREATE OR REPLACE STREAM s AS SELECT kw FROM reading",
        )
        .unwrap();
    assert_eq!(rows(&mut session, "DESCRIBE s"), [["kw", "DOUBLE", "YES"]]);
    let error = session.execute("CREATE OR REPLACE STREAM s AS SELECT kw FROM s").unwrap_err();
    assert_eq!(sqlstate(&error), "42P17", "{error}");
}

/// Names of WITH are those of queries, and what stands in these are streams as in any FROM.
#[test]
fn queries_behind_with_read_streams() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session);
    session
        .execute(
            "CREATE VIEW low AS WITH all_of_it AS (SELECT at, meter, kw FROM reading) SELECT * FROM all_of_it WHERE kw <= 50;
             CREATE TABLE split (at TIMESTAMP PRIMARY KEY, is_high BOOLEAN);
             CREATE TOPOLOGY splitting AS (
                 INSERT INTO split WITH h AS (SELECT at FROM high) SELECT at, true FROM h;
                 INSERT INTO split WITH l AS (SELECT at FROM low) SELECT at, false FROM l;
                 INSERT INTO readings SELECT * FROM reading)",
        )
        .unwrap();
    wait_for_end(&mut session, "splitting");
    let differ = "SELECT count(*) FROM readings r LEFT JOIN split s ON s.at = r.at WHERE s.is_high IS DISTINCT FROM r.kw > 50";
    assert_eq!(rows(&mut session, differ), [["0"]]);
    let error = session.execute("DROP STREAM high").unwrap_err().to_string();
    assert!(error.contains("topology splitting"), "{error}");
}

/// A stream of no topology has nothing that runs by its name, which statements on topologies say.
#[test]
fn a_stream_is_not_a_topology() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    prepare(&mut session);
    for (statement, kind) in [
        ("EXPLAIN TOPOLOGY hours", "\"hours\" is a stream, not a topology: it is a definition"),
        ("ALTER TOPOLOGY hours PAUSE", "\"hours\" is a stream, not a topology"),
        ("DROP TOPOLOGY high", "\"high\" is a stream, not a topology"),
        ("ALTER TOPOLOGY reading PAUSE", "\"reading\" is a source, not a topology"),
        ("ALTER SINK hours PAUSE", "\"hours\" is a stream, not a sink"),
        ("SUBSCRIBE TO reading", "\"reading\" is a source, not a table"),
        ("SUBSCRIBE TO hours", "\"hours\" is a stream, not a table"),
    ] {
        let error = session.execute(statement).unwrap_err();
        assert_eq!(sqlstate(&error), "42809", "{statement}: {error}");
        assert!(error.to_string().contains(kind), "{statement}: {error}");
    }
}
