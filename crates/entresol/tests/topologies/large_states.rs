//! States of groups that are larger than a row: medians and different values of long windows, sessions and running
//! aggregates equal their queries, over aborts, restarts and kills, on one thread and several.

use super::{rows, wait_for_end};
use entresol::{Database, Options, Session};

const SOURCE: &str = "CREATE SOURCE reading (
        at TIMESTAMP NOT NULL, meter INT NOT NULL, feeder VARCHAR NOT NULL, kw DOUBLE, number BIGINT NOT NULL,
        WATERMARK FOR at AS at - INTERVAL '2 minutes'
    ) WITH (connector = 'generator', rows = 24000, step = '2 seconds', meter.cardinality = 3, feeder.cardinality = 100000,
        number.cardinality = 1000000000)";

const TABLES: &str = "
    CREATE TABLE readings (at TIMESTAMP PRIMARY KEY, meter INT, feeder VARCHAR, kw DOUBLE, number BIGINT);
    CREATE TABLE of_windows (meter INT, from_time TIMESTAMP, middle DOUBLE, feeders BIGINT, numbers BIGINT, PRIMARY KEY (meter, from_time));
    CREATE TABLE of_sessions (meter INT, from_time TIMESTAMP, middle DOUBLE, feeders BIGINT, PRIMARY KEY (meter, from_time));
    CREATE TABLE so_far (meter INT PRIMARY KEY, middle DOUBLE, feeders BIGINT, most VARCHAR);
    CREATE TABLE all_of_it (one INT PRIMARY KEY, feeders BIGINT)";

const STEPS: &str = "
    INSERT INTO readings SELECT * FROM reading;
    CREATE STREAM w WITH (state_table = 'window_state') AS
        SELECT meter, window_start, median(kw) AS middle, count(DISTINCT feeder) AS feeders, count(DISTINCT number) AS numbers
        FROM TUMBLE(reading, at, INTERVAL '4 hours') GROUP BY meter, window_start;
    INSERT INTO of_windows SELECT meter, window_start, middle, feeders, numbers FROM w;
    CREATE STREAM s WITH (state_table = 'session_state') AS
        SELECT meter % 2 AS meter, window_start, median(kw) AS middle, count(DISTINCT feeder) AS feeders
        FROM SESSION(reading, at, INTERVAL '20 seconds') GROUP BY meter % 2, window_start, window_end;
    INSERT INTO of_sessions SELECT meter, window_start, middle, feeders FROM s;
    CREATE STREAM r WITH (state_table = 'running_state') AS
        SELECT meter, median(kw) AS middle, count(DISTINCT feeder) AS feeders, max(feeder) AS most FROM reading WHERE kw < 40 GROUP BY meter;
    INSERT INTO so_far SELECT meter, middle, feeders, most FROM r
        ON CONFLICT (meter) DO UPDATE SET middle = EXCLUDED.middle, feeders = EXCLUDED.feeders, most = EXCLUDED.most;
    INSERT INTO all_of_it SELECT 1, count(DISTINCT feeder) FROM reading
        ON CONFLICT (one) DO UPDATE SET feeders = EXCLUDED.feeders;
    ABORT WHEN (SELECT count(*) FROM CHANGES(readings) WHERE number % 20011 = 0 AND at < TIMESTAMP '2026-01-01 08:00:00') > 0";

const WINDOWS: &str = "date_bin(INTERVAL '4 hours', at, TIMESTAMP '1970-01-01 00:00:00')";

/// Targets that equal their queries at each commit.
fn running() -> [(&'static str, &'static str); 2] {
    [
        (
            "SELECT meter, middle, feeders, most FROM so_far",
            "SELECT meter, median(kw), count(DISTINCT feeder), max(feeder) FROM readings WHERE kw < 40 GROUP BY meter",
        ),
        ("SELECT feeders FROM all_of_it", "SELECT count(DISTINCT feeder) FROM readings HAVING count(*) > 0"),
    ]
}

fn compare(session: &mut Session, pairs: &[(&str, &str)], what: &str) {
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
    for (target, query) in pairs {
        for (one, other) in [(target, query), (query, target)] {
            let found = rows(session, &format!("SELECT * FROM ({one} EXCEPT ALL {other}) d LIMIT 3"));
            assert!(found.is_empty(), "{what}: {one} has more than {other}: {found:?}");
        }
    }
    session.execute("COMMIT").unwrap();
}

#[test]
fn states_larger_than_a_row_equal_their_queries() {
    let mut largest = 0;
    for (boundary, threads) in [("EVERY 500 ROWS", "1"), ("EVERY 3000 ROWS", "3"), ("EVERY 8000 ROWS", "1")] {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..4 {
            let database = Database::open(directory.path(), Options::default()).unwrap();
            let mut session = database.session().unwrap();
            if round == 0 {
                session.execute(SOURCE).unwrap();
                session.execute(TABLES).unwrap();
                session
                    .execute(&format!(
                        "CREATE TOPOLOGY large COMMIT {boundary} ON ERROR ABORT
                             WITH (durability = 'none', parallelism = '{threads}') AS ({STEPS})"
                    ))
                    .unwrap();
            }
            for _ in 0..2 {
                compare(&mut session, &running(), boundary);
            }
            let parts = "SELECT coalesce(max(parts), 0) FROM";
            for state in ["window_state", "session_state", "running_state"] {
                let found: i64 = rows(&mut session, &format!("{parts} {state}"))[0][0].parse().unwrap();
                largest = largest.max(found);
            }
            // Closed, or left as by a crash, in the middle.
            if round < 3 {
                if round == 1 {
                    drop(session);
                    database.close().unwrap();
                }
                continue;
            }
            wait_for_end(&mut session, "large");
            compare(&mut session, &running(), boundary);
            check_windows(&mut session, boundary);
            let left = "SELECT (SELECT count(*) FROM window_state) + (SELECT count(*) FROM session_state)";
            assert_eq!(rows(&mut session, left)[0], ["0"], "{boundary}");
            let whole = "SELECT (SELECT coalesce(sum(parts), 0)::bigint FROM running_state WHERE part = 0) = (SELECT count(*) FROM running_state)";
            assert_eq!(rows(&mut session, whole)[0], ["true"], "{boundary}");
            assert!(database.check(|_| {}).unwrap().problems.is_empty());
        }
    }
    assert!(largest > 4, "{largest}");
}

/// Compares the results of closed windows and sessions.
fn check_windows(session: &mut Session, what: &str) {
    let windows = format!(
        "SELECT meter, {WINDOWS}, median(kw), count(DISTINCT feeder), count(DISTINCT number) FROM readings GROUP BY 1, 2"
    );
    let sessions = "SELECT meter, min(at), median(kw), count(DISTINCT feeder) FROM (
            SELECT meter % 2 AS meter, at, kw, feeder, sum(begins) OVER (PARTITION BY meter % 2 ORDER BY at) AS number FROM (
                SELECT *, CASE WHEN at - lag(at) OVER (PARTITION BY meter % 2 ORDER BY at) < INTERVAL '20 seconds' THEN 0 ELSE 1 END AS begins
                FROM readings) b) s GROUP BY meter, number";
    let pairs = [
        ("SELECT meter, from_time, middle, feeders, numbers FROM of_windows", windows.as_str()),
        ("SELECT meter, from_time, middle, feeders FROM of_sessions", sessions),
    ];
    compare(session, &pairs, what);
}

/// Results that are taken back make states shorter: of results that leave their group.
#[test]
fn states_that_get_shorter_keep_no_old_values() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE number (at TIMESTAMP NOT NULL, id INT NOT NULL, v BIGINT NOT NULL) WITH (connector = 'generator', rows = 12000,
                 step = '1 second', id.cardinality = 3000, v.cardinality = 1000000000);
             CREATE TABLE numbers (at TIMESTAMP, id INT, v BIGINT);
             CREATE TABLE of_times (times BIGINT PRIMARY KEY, sums BIGINT, middle DOUBLE);
             CREATE TOPOLOGY moving COMMIT EVERY 400 ROWS WITH (durability = 'none') AS (
                 INSERT INTO numbers SELECT * FROM number;
                 CREATE STREAM per_id AS SELECT id, count(*) AS times, sum(v) AS v FROM number GROUP BY id;
                 CREATE STREAM of WITH (state_table = 'moving_state') AS
                     SELECT times, count(DISTINCT v) AS sums, CAST(median(v) AS DOUBLE) AS middle FROM per_id GROUP BY times;
                 INSERT INTO of_times SELECT times, sums, middle FROM of
                     ON CONFLICT (times) DO UPDATE SET sums = EXCLUDED.sums, middle = EXCLUDED.middle)",
        )
        .unwrap();
    let query = "SELECT times, count(DISTINCT v), CAST(median(v) AS DOUBLE) FROM
        (SELECT id, count(*) AS times, sum(v) AS v FROM numbers GROUP BY id) p GROUP BY times";
    let pairs = [("SELECT times, sums, middle FROM of_times", query)];
    for _ in 0..5 {
        compare(&mut session, &pairs, "while it runs");
    }
    wait_for_end(&mut session, "moving");
    compare(&mut session, &pairs, "at the end");
    let shrunk = "SELECT count(*) FROM moving_state WHERE part > 0 AND rest = ''";
    assert_ne!(rows(&mut session, shrunk)[0], ["0"]);
}
