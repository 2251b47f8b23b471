//! LATE ROWS UPDATE: at each commit what was sent of a window equals the query over all of its rows, over aborts and
//! restarts; rows that are later; refusals.

use super::{Random, append, rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};
use std::path::Path;

/// Source of a file with readings, and tables for what is computed of them.
fn tables(session: &mut Session, path: &Path, options: &str) {
    session
        .execute(&format!(
            "CREATE SOURCE reading (at TIMESTAMP NOT NULL, id INT NOT NULL, meter INT NOT NULL, wh BIGINT,
                 WATERMARK FOR at AS at - INTERVAL '2 minutes') WITH (connector = 'file', path = '{}'{options});
             CREATE TABLE readings (at TIMESTAMP, id INT PRIMARY KEY, meter INT, wh BIGINT);
             CREATE TABLE hourly (meter INT, from_time TIMESTAMP, readings BIGINT, wh BIGINT, kinds BIGINT,
                 PRIMARY KEY (meter, from_time));
             CREATE TABLE hops (until TIMESTAMP PRIMARY KEY, readings BIGINT, least BIGINT);
             CREATE TABLE sums (from_time TIMESTAMP, until TIMESTAMP, readings BIGINT, PRIMARY KEY (until, from_time));
             CREATE TABLE seen (meter INT, from_time TIMESTAMP, wh BIGINT, PRIMARY KEY (meter, from_time))",
            path.display()
        ))
        .unwrap();
}

const STEPS: &str = "
    INSERT INTO readings SELECT * FROM reading;
    CREATE STREAM per_hour WITH (state_table = 'hours_open') AS
        SELECT meter, window_start, window_end, count(*) AS readings, sum(wh) AS wh, count(DISTINCT wh % 7) AS kinds
        FROM TUMBLE(reading, at, INTERVAL '1 hour') GROUP BY meter, window_start, window_end
        EMIT ON WINDOW CLOSE LATE ROWS UPDATE FOR INTERVAL '30 days';
    INSERT INTO hourly SELECT meter, window_start, readings, wh, kinds FROM per_hour
        ON CONFLICT (meter, from_time) DO UPDATE SET readings = EXCLUDED.readings, wh = EXCLUDED.wh, kinds = EXCLUDED.kinds;
    INSERT INTO hops SELECT window_end, count(*), min(wh)
        FROM HOP(reading, at, INTERVAL '20 minutes', INTERVAL '1 hour') GROUP BY window_start, window_end
        ON CONFLICT (until) DO UPDATE SET readings = EXCLUDED.readings, least = EXCLUDED.least
        LATE ROWS UPDATE FOR INTERVAL '30 days';
    INSERT INTO sums SELECT window_start, window_end, count(*)
        FROM CUMULATE(reading, at, INTERVAL '30 minutes', INTERVAL '1 hour') GROUP BY window_start, window_end
        ON CONFLICT (from_time, until) DO UPDATE SET readings = EXCLUDED.readings
        LATE ROWS UPDATE FOR INTERVAL '30 days';
    INSERT INTO seen SELECT meter, from_time, wh FROM CHANGES(hourly) FOR EACH COMMIT
        ON CONFLICT (meter, from_time) DO UPDATE SET wh = EXCLUDED.wh;
    ABORT WHEN (SELECT count(*) FROM CHANGES(readings) WHERE wh % 37 = 5) > 1";

/// Targets, and the queries over all readings.
const PAIRS: [(&str, &str); 4] = [
    (
        "SELECT meter, from_time, readings, wh, kinds FROM hourly",
        "SELECT meter, date_trunc('hour', at) AS from_time, count(*) AS readings, sum(wh) AS wh,
            count(DISTINCT wh % 7) AS kinds FROM readings GROUP BY 1, 2",
    ),
    (
        "SELECT until, readings, least FROM hops",
        "SELECT date_bin(INTERVAL '20 minutes', at, TIMESTAMP '1970-01-01 00:00:00') + n * INTERVAL '20 minutes' AS until,
            count(*) AS readings, min(wh) AS least FROM readings CROSS JOIN generate_series(1, 3) g(n) GROUP BY 1",
    ),
    (
        "SELECT from_time, until, readings FROM sums",
        "SELECT date_trunc('hour', at) AS from_time, date_trunc('hour', at) + n * INTERVAL '30 minutes' AS until,
            count(*) AS readings FROM readings CROSS JOIN generate_series(1, 2) g(n)
            WHERE at < date_trunc('hour', at) + n * INTERVAL '30 minutes' GROUP BY 1, 2",
    ),
    (
        "SELECT meter, from_time, wh FROM seen",
        "SELECT meter, date_trunc('hour', at) AS from_time, sum(wh) AS wh FROM readings GROUP BY 1, 2",
    ),
];

/// Compares the targets with the queries over the readings of one snapshot: windows that are open still are in no target,
/// and end behind all that are.
fn compare(session: &mut Session, is_end: bool) {
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
    for (target, query) in PAIRS {
        let edge = if query.contains("AS until") { "until" } else { "from_time" };
        let closed = format!("{edge} <= (SELECT max({edge}) FROM ({target}) t)");
        let closed = if is_end { "true" } else { closed.as_str() };
        let query = format!("SELECT * FROM ({query}) q WHERE {closed}");
        for (one, other) in [(target, query.as_str()), (query.as_str(), target)] {
            let missing = rows(session, &format!("SELECT * FROM ({one} EXCEPT ALL {other}) d LIMIT 3"));
            assert_eq!(missing, Vec::<Vec<String>>::new(), "{one} has more than {other}");
        }
    }
    session.execute("COMMIT").unwrap();
}

/// Readings a minute apart, some of them hours late.
fn readings(seed: u64, count: usize) -> String {
    let mut random = Random(seed);
    let mut lines = String::from("at,id,meter,wh\n");
    for id in 0..count {
        let late = if random.below(4) == 0 { random.below(400) } else { 0 };
        let minute = (1000 + id).saturating_sub(late);
        let (day, hour) = (1 + minute / 1440, minute / 60 % 24);
        lines += &format!(
            "2026-01-{day:02} {hour:02}:{:02}:{:02},{id},{},{}\n",
            minute % 60,
            random.below(60),
            random.below(4),
            random.below(1000)
        );
    }
    lines
}

#[test]
fn corrected_windows_equal_the_queries_over_all_rows() {
    for (seed, boundary) in [(1, "EVERY 1 ROW"), (2, "EVERY 17 ROWS"), (3, "ON WINDOW CLOSE")] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("readings.csv");
        append(&path, &readings(seed, 2500));
        for round in 0.. {
            let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
            let mut session = database.session().unwrap();
            if round == 0 {
                tables(&mut session, &path, "");
                let create = format!(
                    "CREATE TOPOLOGY corrected COMMIT {boundary} ON ERROR ABORT WITH (durability = 'none') AS ({STEPS})"
                );
                session.execute(&create).unwrap();
            }
            if round == 3 {
                wait_for_end(&mut session, "corrected");
                compare(&mut session, true);
                for (target, _) in PAIRS {
                    let count = rows(&mut session, &format!("SELECT count(*) FROM ({target}) t"));
                    assert_ne!(count[0], ["0"], "{target}");
                }
                let late = rows(&mut session, "SELECT late FROM entresol.topologies");
                assert_eq!(late[0][0], "0", "all are in time for a correction");
                let explained = rows(&mut session, "EXPLAIN TOPOLOGY corrected");
                let line = "  state hours_open: windows, corrected by rows that are up to 2592000s late";
                assert!(explained.iter().any(|row| row[0] == line), "{explained:?}");
                break;
            }
            for _ in 0..4 {
                compare(&mut session, false);
            }
            // Left as by a crash, or closed.
            if round == 1 {
                drop(session);
                database.close().unwrap();
            }
        }
    }
}

#[test]
fn rows_that_are_too_late_for_a_correction_are_stored() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("readings.csv");
    append(&path, "at,id,meter,wh\n2026-01-01 10:30:00,1,1,5\n2026-01-01 11:10:00,2,1,7\n");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    tables(&mut session, &path, ", tail = true");
    session
        .execute(
            "CREATE TOPOLOGY corrected COMMIT EACH ROW AS (
                 INSERT INTO hourly SELECT meter, window_start, count(*), sum(wh), 0
                     FROM TUMBLE(reading, at, INTERVAL '1 hour') GROUP BY meter, window_start
                     ON CONFLICT (meter, from_time) DO UPDATE SET readings = EXCLUDED.readings, wh = EXCLUDED.wh,
                         kinds = EXCLUDED.kinds
                     EMIT ON WINDOW CLOSE LATE ROWS UPDATE FOR INTERVAL '1 hour' LATE ROWS INTO too_late)",
        )
        .unwrap();
    let hourly = "SELECT meter, from_time::time::text, readings, wh FROM hourly ORDER BY 1, 2";
    wait_for(&mut session, "SELECT count(*) FROM hourly", "1");
    assert_eq!(rows(&mut session, hourly), [["1", "10:00:00", "1", "5"]]);
    // One of a group that is there, and one of another.
    append(&path, "2026-01-01 10:59:59,3,1,100\n2026-01-01 10:00:00,4,2,9\n");
    wait_for(&mut session, "SELECT count(*) FROM hourly", "2");
    assert_eq!(rows(&mut session, hourly), [["1", "10:00:00", "2", "105"], ["2", "10:00:00", "1", "9"]]);
    // The watermark is an hour behind the end of the first window: nothing corrects it any more.
    append(&path, "2026-01-01 12:02:00,5,1,1\n2026-01-01 10:20:00,6,2,1\n2026-01-01 11:59:00,7,2,3\n");
    wait_for(&mut session, "SELECT count(*) FROM too_late", "1");
    wait_for(&mut session, "SELECT count(*) FROM hourly", "4");
    assert_eq!(rows(&mut session, "SELECT id FROM too_late"), [["6"]]);
    assert_eq!(
        rows(&mut session, hourly)[1..],
        [["1", "11:00:00", "1", "7"], ["2", "10:00:00", "1", "9"], ["2", "11:00:00", "1", "3"]]
    );
    assert_eq!(rows(&mut session, "SELECT late FROM entresol.topologies")[0], ["1"]);
}

#[test]
fn what_takes_no_corrections_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    tables(&mut session, Path::new("/tmp/never.csv"), "");
    session.execute("CREATE TABLE log (meter INT, from_time TIMESTAMP, wh BIGINT)").unwrap();
    let update = "LATE ROWS UPDATE FOR INTERVAL '1 hour'";
    let query = "SELECT meter, window_start, sum(wh) AS wh FROM TUMBLE(reading, at, INTERVAL '1 hour')
        GROUP BY meter, window_start";
    let stream = format!("CREATE STREAM s AS {query} {update}");
    let upsert = "ON CONFLICT (meter, from_time) DO UPDATE SET wh = EXCLUDED.wh";
    for (steps, expected) in [
        (
            format!("INSERT INTO log {query} {update}"),
            "INSERT INTO log of rows that LATE ROWS UPDATE corrects, other than ON CONFLICT",
        ),
        (format!("INSERT INTO seen {query} {update}"), "into a table whose key is the columns of GROUP BY"),
        (
            format!("INSERT INTO seen {query} ON CONFLICT (meter, from_time) DO NOTHING {update}"),
            "the rows of table seen of rows that LATE ROWS UPDATE corrects",
        ),
        (
            format!("INSERT INTO seen SELECT 1, window_start, wh FROM s {upsert}; {stream}"),
            "relation \"s\" does not exist",
        ),
        (
            format!("{stream}; INSERT INTO seen SELECT 1, window_start, wh FROM s {upsert}"),
            "key is the columns of GROUP BY",
        ),
        (
            format!("{stream}; INSERT INTO seen SELECT * FROM s WHERE wh > 3 {upsert}"),
            "WHERE of rows that LATE ROWS UPDATE corrects",
        ),
        (
            format!("INSERT INTO seen {query} HAVING sum(wh) > 3 {upsert} {update}"),
            "WHERE of rows that LATE ROWS UPDATE corrects",
        ),
        (
            format!("{stream}; INSERT INTO log SELECT 1, window_start, sum(wh) FROM s GROUP BY window_start"),
            "GROUP BY of rows that LATE ROWS UPDATE corrects",
        ),
        (
            format!("INSERT INTO seen {} {upsert} {update}", query.replace("TUMBLE", "SESSION")),
            "LATE ROWS UPDATE of SESSION",
        ),
        (format!("INSERT INTO readings SELECT * FROM reading {update}"), "without GROUP BY of windows"),
        (
            format!("INSERT INTO seen {query} {upsert} LATE ROWS UPDATE FOR INTERVAL '0 seconds'"),
            "LATE ROWS UPDATE FOR: \"0 seconds\"",
        ),
        (
            format!("INSERT INTO seen {query} {upsert} LATE ROWS UPDATE"),
            "LATE ROWS UPDATE FOR INTERVAL '...'",
        ),
    ] {
        let refused = session.execute(&format!("CREATE TOPOLOGY x AS ({steps})"));
        let error = refused.err().unwrap_or_else(|| panic!("{steps} is accepted")).to_string();
        assert!(error.contains(expected), "{steps}: {error}");
    }
    let sink = format!(
        "CREATE SINK k AS {query} {update} WITH (connector = 'file', path = '/tmp/never.json') FORMAT PLAIN ENCODE JSON"
    );
    let error = session.execute(&sink).unwrap_err().to_string();
    assert!(error.contains("a sink of rows that LATE ROWS UPDATE corrects"), "{error}");
}
