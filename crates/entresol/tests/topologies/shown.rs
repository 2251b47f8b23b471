//! Counters of the operators of a topology, sizes of its state, and progress of subscriptions.

use super::{append, rows, wait_for};
use entresol::{Database, Options};

#[test]
fn rows_late_rows_watermarks_and_state_are_of_each_operator() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "at,meter\n");
    for minute in [10, 20, 70, 80, 15, 90, 5, 130] {
        append(&path, &format!("2026-01-01 {:02}:{:02}:00,{}\n", minute / 60, minute % 60, minute % 3));
    }
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE line (at TIMESTAMP NOT NULL, meter INT NOT NULL, WATERMARK FOR at AS at)
                 WITH (connector = 'file', path = '{}', tail = true);
             CREATE TABLE hourly (meter INT, hour TIMESTAMP, n BIGINT, PRIMARY KEY (meter, hour));
             CREATE TOPOLOGY counting COMMIT EACH ROW AS (
                 INSERT INTO hourly SELECT meter, window_start, count(*) FROM TUMBLE(line, at, INTERVAL '1 hour')
                     WHERE meter >= 0 GROUP BY meter, window_start)",
            path.display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT tuples FROM entresol.topologies", "8");
    let late = "SELECT operator, late, watermark FROM entresol.operators WHERE late > 0";
    assert_eq!(rows(&mut session, late), [["window counting_open", "2", "2026-01-01T02:00:00"]]);
    let source = "SELECT tuples_out, late, watermark FROM entresol.operators WHERE operator = 'source line'";
    assert_eq!(rows(&mut session, source)[0][..2], ["8", "0"]);
    let open = rows(&mut session, "SELECT count(*) FROM counting_open")[0][0].clone();
    let shown = rows(&mut session, "SELECT state_rows, state_bytes > 0 FROM entresol.topologies");
    assert_eq!(shown, [[open.clone(), "true".to_owned()]]);
    let lines: Vec<String> =
        rows(&mut session, "EXPLAIN ANALYZE TOPOLOGY counting").into_iter().flatten().collect();
    let has = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(has("running: 8 rows in 8 transactions"), "{lines:#?}");
    assert!(has("source line: file "), "{lines:#?}");
    assert!(has(" (0 rows in, 8 out"), "{lines:#?}");
    assert!(has("2 late, watermark 2026-01-01 02:00:00)"), "{lines:#?}");
    assert!(has(&format!("state counting_open: {open} rows, ")), "{lines:#?}");
    assert!(!rows(&mut session, "EXPLAIN TOPOLOGY counting").iter().any(|line| line[0].contains(" rows in")));
    let error = session.execute("EXPLAIN ANALYZE TOPOLOGY nothing").unwrap_err().to_string();
    assert!(error.contains("topology \"nothing\" does not exist"), "{error}");
}

#[test]
fn subscriptions_are_shown_while_they_run() {
    let database = Database::volatile(Options::default()).unwrap();
    let (mut session, mut reader) = (database.session().unwrap(), database.session().unwrap());
    session
        .execute(
            "CREATE TABLE alarm (id INT PRIMARY KEY) WITH (changes = '1 hour');
             CREATE TABLE balance (id INT PRIMARY KEY) WITH (changes = '1 hour');
             INSERT INTO alarm VALUES (1), (2)",
        )
        .unwrap();
    assert!(rows(&mut session, "SHOW SUBSCRIPTIONS").is_empty());
    reader.execute("BEGIN; DECLARE c CURSOR FOR SUBSCRIBE TO (alarm, balance); FETCH ALL c").unwrap();
    session.execute("INSERT INTO balance VALUES (7)").unwrap();
    assert_eq!(rows(&mut reader, "FETCH 1 c").len(), 1);
    let shown = "SELECT relations, phase, rows, position > 0 FROM entresol.subscriptions";
    wait_for(&mut session, "SELECT rows FROM entresol.subscriptions", "3");
    assert_eq!(rows(&mut session, shown), [["alarm, balance", "changes", "3", "true"]]);
    reader.execute("CLOSE c; COMMIT").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM entresol.subscriptions", "0");
}

/// A join waits for a source that sends nothing for as long as its option says.
#[test]
fn a_source_that_sends_nothing_is_waited_for_as_long_as_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "at\n2026-01-01 00:10:00\n");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    for (name, timeout) in [("patient", "1 hour"), ("hasty", "200 milliseconds")] {
        session
            .execute(&format!(
                "CREATE SOURCE {name}_line (at TIMESTAMP NOT NULL, WATERMARK FOR at AS at)
                     WITH (connector = 'file', path = '{}', tail = true, idle_timeout = '{timeout}');
                 CREATE SOURCE {name}_tick (at TIMESTAMP NOT NULL, WATERMARK FOR at AS at)
                     WITH (connector = 'generator', step = '1 minute', rows_per_second = 100);
                 CREATE TABLE {name} (at TIMESTAMP, line TIMESTAMP);
                 CREATE TOPOLOGY {name}_join COMMIT EACH ROW AS (
                     INSERT INTO {name} SELECT t.at, l.at FROM {name}_tick t LEFT JOIN {name}_line l ON l.at = t.at
                         AND l.at BETWEEN t.at AND t.at)",
                path.display()
            ))
            .unwrap();
    }
    // Ticks behind the watermark of the line have no partner only if that is not waited for.
    wait_for(&mut session, "SELECT count(*) > 20 FROM hasty WHERE at > '2026-01-01 00:10:00'", "true");
    let early = "SELECT count(*) FROM patient WHERE at > '2026-01-01 00:10:00'";
    assert_eq!(rows(&mut session, early), [["0"]]);
    let states = "SELECT DISTINCT state FROM entresol.topologies";
    assert_eq!(rows(&mut session, states), [["running"]]);
    let error = session.execute("ALTER SOURCE hasty_line SET (idle_timeout = '0 seconds')").unwrap_err();
    assert!(error.to_string().contains("invalid value for option \"idle_timeout\""), "{error}");
}

/// Each operator stands below its input, with what it looks up, and a line says how transactions run.
#[test]
fn operators_are_shown_as_a_tree() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE reading (at TIMESTAMP, meter INT, kw DOUBLE, WATERMARK FOR at AS at)
                 WITH (connector = 'generator', rows = 10, step = '1 second', meter.cardinality = 4);
             CREATE TABLE hourly (meter INT, hour TIMESTAMP, n BIGINT, PRIMARY KEY (meter, hour));
             CREATE TABLE latest (meter INT PRIMARY KEY, kw DOUBLE);
             CREATE TABLE limits (meter INT PRIMARY KEY, kw_max DOUBLE);
             CREATE TABLE alarms (meter INT, kw DOUBLE);
             CREATE TOPOLOGY metering ON ERROR SKIP ROW INTO bad WITH (durability = 'group:10ms') AS (
                 CREATE STREAM per_meter AS
                     SELECT meter, window_start, count(*) AS n FROM TUMBLE(reading, at, INTERVAL '1 hour')
                     GROUP BY meter, window_start EMIT ON WINDOW CLOSE LATE ROWS INTO late_reading;
                 INSERT INTO hourly SELECT meter, window_start, n FROM per_meter;
                 INSERT INTO latest SELECT meter, kw FROM reading ON CONFLICT (meter) DO UPDATE SET kw = EXCLUDED.kw;
                 INSERT INTO alarms SELECT l.meter, l.kw FROM CHANGES(latest) FOR EACH COMMIT AS l
                     JOIN limits m ON m.meter = l.meter WHERE l.kw > m.kw_max)",
        )
        .unwrap();
    let lines: Vec<String> =
        rows(&mut session, "EXPLAIN TOPOLOGY metering").into_iter().flatten().take(13).collect();
    let expected = [
        "Topology metering, commit every 1000 rows or every 100 ms",
        "  isolation repeatable read, durability group:10ms, on error skip row into bad",
        "  source reading: generator",
        "  ├─ windows 1: TUMBLE(at, 3600s)",
        "  │  └─ filter 2: at is not NULL",
        "  │     └─ window metering_open: windows, count(1) by reading.meter, reading.window_start, late rows into late_reading",
        "  │        └─ projection 6: stream per_meter",
        "  │           └─ TO_TABLE hourly",
        "  └─ TO_TABLE latest: by its key (meter)",
        "     └─ TO_STREAM latest",
        "        └─ lookup join 15: limits by its key (meter)",
        "           └─ filter 17: m.kw_max < l.kw",
        "              └─ TO_TABLE alarms",
    ];
    assert_eq!(lines, expected);
}

/// Joins say by which columns, and queries of batches which tables they read.
#[test]
fn joins_are_shown_with_their_columns() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE a (at TIMESTAMP NOT NULL, k INT NOT NULL, v DOUBLE, WATERMARK FOR at AS at)
                 WITH (connector = 'generator', rows = 10, step = '1 second', k.cardinality = 5);
             CREATE SOURCE b (at TIMESTAMP NOT NULL, k INT NOT NULL, w DOUBLE, WATERMARK FOR at AS at)
                 WITH (connector = 'generator', rows = 10, step = '1 second', k.cardinality = 5);
             CREATE TABLE both (at TIMESTAMP, k INT, v DOUBLE, w DOUBLE);
             CREATE TABLE names (id INT PRIMARY KEY, k INT, name VARCHAR);
             CREATE TABLE named (k INT, name VARCHAR);
             CREATE TOPOLOGY t AS (
                 INSERT INTO both SELECT a.at, a.k, a.v, b.w FROM a JOIN b ON a.k = b.k
                     AND b.at BETWEEN a.at - INTERVAL '1 second' AND a.at;
                 INSERT INTO named SELECT a.k, x.name FROM a JOIN names x ON x.k = a.k)",
        )
        .unwrap();
    let lines: Vec<String> = rows(&mut session, "EXPLAIN TOPOLOGY t").into_iter().flatten().take(8).collect();
    let expected = [
        "  source a: generator",
        "  ├─ join t_open: join of streams, on a.k = b.k",
        "  │  └─ TO_TABLE both",
        "  └─ query of each batch (JOIN): names on a.k = x.k",
        "     └─ TO_TABLE named",
        "  source b: generator",
    ];
    assert_eq!(lines[2..], expected);
    assert!(rows(&mut session, "EXPLAIN TOPOLOGY t").concat().contains(&"  └─ → join t_open".to_owned()));
}
