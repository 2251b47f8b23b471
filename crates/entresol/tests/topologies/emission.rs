//! EMIT: results of open windows and of aggregates without windows before they are final, at commits and in intervals.

use super::{rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};

const SOURCE: &str = "CREATE SOURCE reading (
        at TIMESTAMP NOT NULL, meter INT NOT NULL, feeder VARCHAR NOT NULL, kw DOUBLE,
        WATERMARK FOR at AS at - INTERVAL '2 minutes'
    ) WITH (connector = 'generator', rows = 2000, step = '67 seconds', meter.cardinality = 23, feeder.cardinality = 4)";

fn compare(session: &mut Session, pairs: &[(&str, &str)], what: &str) {
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
    for (target, query) in pairs {
        for (one, other) in [(target, query), (query, target)] {
            let missing = rows(session, &format!("SELECT * FROM ({one} EXCEPT ALL {other}) d LIMIT 3"));
            assert_eq!(missing, Vec::<Vec<String>>::new(), "{what}: {one} has more than {other}");
        }
    }
    session.execute("COMMIT").unwrap();
}

const TABLES: &str = "
    CREATE TABLE readings (at TIMESTAMP PRIMARY KEY, meter INT, feeder VARCHAR, kw DOUBLE);
    CREATE TABLE hourly (meter INT, hour TIMESTAMP, readings BIGINT, most DOUBLE, PRIMARY KEY (meter, hour));
    CREATE TABLE slides (feeder VARCHAR, until TIMESTAMP, readings BIGINT, PRIMARY KEY (feeder, until));
    CREATE TABLE meters (meter INT PRIMARY KEY, readings BIGINT, most DOUBLE);
    CREATE TABLE meters_later (meter INT PRIMARY KEY, readings BIGINT, most DOUBLE);
    CREATE TABLE hourly_later (meter INT, hour TIMESTAMP, readings BIGINT, most DOUBLE, PRIMARY KEY (meter, hour));";

const STEPS: &str = "
    INSERT INTO readings SELECT * FROM reading;
    INSERT INTO hourly SELECT meter, window_start, count(*), max(kw) FROM TUMBLE(reading, at, INTERVAL '1 hour')
        GROUP BY meter, window_start
        ON CONFLICT (meter, hour) DO UPDATE SET readings = EXCLUDED.readings, most = EXCLUDED.most EMIT ON COMMIT;
    INSERT INTO slides SELECT feeder, window_end, count(*) FROM HOP(reading, at, INTERVAL '20 minutes', INTERVAL '1 hour')
        GROUP BY feeder, window_end ON CONFLICT (feeder, until) DO UPDATE SET readings = EXCLUDED.readings EMIT CHANGES;
    INSERT INTO meters SELECT meter, count(*), max(kw) FROM reading GROUP BY meter
        ON CONFLICT (meter) DO UPDATE SET readings = EXCLUDED.readings, most = EXCLUDED.most EMIT ON COMMIT;
    INSERT INTO meters_later SELECT meter, count(*), max(kw) FROM reading GROUP BY meter
        ON CONFLICT (meter) DO UPDATE SET readings = EXCLUDED.readings, most = EXCLUDED.most EMIT CHANGES EVERY INTERVAL '30 milliseconds';
    INSERT INTO hourly_later SELECT meter, window_start, count(*), max(kw) FROM TUMBLE(reading, at, INTERVAL '1 hour')
        GROUP BY meter, window_start
        ON CONFLICT (meter, hour) DO UPDATE SET readings = EXCLUDED.readings, most = EXCLUDED.most
        EMIT CHANGES EVERY INTERVAL '30 milliseconds' LATE ROWS DROP";

const AT_COMMIT: [(&str, &str); 3] = [
    (
        "SELECT meter, hour, readings, most FROM hourly",
        "SELECT meter, date_trunc('hour', at), count(*), max(kw) FROM readings GROUP BY 1, 2",
    ),
    (
        "SELECT feeder, until, readings FROM slides",
        "SELECT feeder, date_bin(INTERVAL '20 minutes', at, TIMESTAMP '1970-01-01') + n * INTERVAL '20 minutes', count(*)
            FROM readings CROSS JOIN generate_series(1, 3) g(n) GROUP BY 1, 2",
    ),
    ("SELECT meter, readings, most FROM meters", "SELECT meter, count(*), max(kw) FROM readings GROUP BY meter"),
];

const AT_END: [(&str, &str); 2] = [
    (
        "SELECT meter, readings, most FROM meters_later",
        "SELECT meter, count(*), max(kw) FROM readings GROUP BY meter",
    ),
    (
        "SELECT meter, hour, readings, most FROM hourly_later",
        "SELECT meter, date_trunc('hour', at), count(*), max(kw) FROM readings GROUP BY 1, 2",
    ),
];

#[test]
fn early_results_equal_the_queries_over_all_rows() {
    for (boundary, threads) in [("EACH ROW", "1"), ("EVERY 41 ROWS", "1"), ("EVERY 300 ROWS", "3")] {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..4 {
            let database = Database::open(directory.path(), Options::default()).unwrap();
            let mut session = database.session().unwrap();
            if round == 0 {
                session.execute(SOURCE).unwrap();
                session.execute(TABLES).unwrap();
                let create = format!(
                    "CREATE TOPOLOGY early COMMIT {boundary} WITH (durability = 'none', parallelism = '{threads}') AS ({STEPS})"
                );
                session.execute(&create).unwrap();
            }
            if round < 3 {
                for _ in 0..2 {
                    compare(&mut session, &AT_COMMIT, boundary);
                }
                if round == 1 {
                    drop(session);
                    database.close().unwrap();
                }
                continue;
            }
            wait_for_end(&mut session, "early");
            compare(&mut session, &AT_COMMIT, boundary);
            compare(&mut session, &AT_END, boundary);
            assert_eq!(rows(&mut session, "SELECT count(*) FROM readings")[0], ["2000"]);
            let plan = rows(&mut session, "EXPLAIN TOPOLOGY early");
            assert!(
                plan.iter().any(|line| line[0].contains("early results that replace each other")),
                "{plan:?}"
            );
        }
    }
}

/// Results that wait for an interval come although nothing follows.
#[test]
fn results_come_when_the_interval_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path(), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE TABLE events (id INT PRIMARY KEY, kind TEXT) WITH (changes = '1 day');
             CREATE TABLE kinds (kind TEXT PRIMARY KEY, events BIGINT) WITH (changes = '1 day');
             CREATE TOPOLOGY counting COMMIT EVERY INTERVAL '5 milliseconds' AS (
                 INSERT INTO kinds SELECT kind, count(*) FROM CHANGES(events) GROUP BY kind
                     ON CONFLICT (kind) DO UPDATE SET events = EXCLUDED.events EMIT CHANGES EVERY INTERVAL '400 milliseconds')",
        )
        .unwrap();
    for id in 0..40 {
        session.execute(&format!("INSERT INTO events VALUES ({id}, 'kind {}')", id % 2)).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    wait_for(&mut session, "SELECT coalesce(sum(events), 0)::bigint FROM kinds", "40");
    let changes: i64 = rows(&mut session, "SELECT count(*) FROM CHANGES(kinds)")[0][0].parse().unwrap();
    assert!(changes < 40, "{changes} changes: each commit has sent some");
    session.execute("INSERT INTO events VALUES (99, 'kind 2')").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM kinds", "3");
}

/// A result that the target refuses when its interval is over is of rows that are committed: it ends the topology with the
/// reason, whatever ON ERROR is.
#[test]
fn a_result_that_is_refused_behind_its_interval_ends_the_topology() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path(), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE TABLE events (id INT PRIMARY KEY, kind INT) WITH (changes = '1 day');
             CREATE TABLE kinds (kind SMALLINT PRIMARY KEY, events BIGINT);
             CREATE TOPOLOGY counting COMMIT EACH ROW ON ERROR ABORT AS (
                 INSERT INTO kinds SELECT kind, count(*) FROM CHANGES(events) GROUP BY kind
                     ON CONFLICT (kind) DO UPDATE SET events = EXCLUDED.events EMIT CHANGES EVERY INTERVAL '100 milliseconds')",
        )
        .unwrap();
    session.execute("INSERT INTO events VALUES (1, 1)").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM kinds", "1");
    session.execute("INSERT INTO events VALUES (2, 100000), (3, 2)").unwrap();
    wait_for(&mut session, "SELECT state FROM entresol.topologies WHERE name = 'counting'", "failed");
    let error = rows(&mut session, "SELECT error FROM entresol.topologies WHERE name = 'counting'");
    assert!(error[0][0].contains("had waited for their interval were refused"), "{error:?}");
    assert_eq!(rows(&mut session, "SELECT count(*) FROM kinds")[0], ["1"]);
}

#[test]
fn emissions_without_effect_are_refused() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(SOURCE).unwrap();
    session.execute("CREATE TABLE t (meter INT PRIMARY KEY, n BIGINT)").unwrap();
    let upsert = "ON CONFLICT (meter) DO UPDATE SET n = EXCLUDED.n";
    for (steps, expected) in [
        (format!("INSERT INTO t SELECT meter, count(*) FROM reading GROUP BY meter {upsert} EMIT ON WINDOW CLOSE"), "of an aggregate without a window"),
        (
            format!("INSERT INTO t SELECT meter, count(*) FROM SESSION(reading, at, INTERVAL '1 hour') GROUP BY meter, window_start {upsert} EMIT CHANGES"),
            "the edges of an open session change",
        ),
        (
            format!("INSERT INTO t SELECT meter, count(*) FROM TUMBLE(reading, at, INTERVAL '1 hour') GROUP BY meter, window_start {upsert} EMIT CHANGES"),
            "of results that are sent before they are final, other than ON CONFLICT",
        ),
        (
            format!("INSERT INTO t SELECT meter, count(*) FROM reading GROUP BY meter HAVING count(*) > 1 {upsert} EMIT CHANGES EVERY INTERVAL '1 s'"),
            "WHERE of results that are sent before they are final",
        ),
        (
            format!(
                "CREATE STREAM s WITH (state_ttl = '1 hour') AS SELECT meter, count(*) AS n FROM reading GROUP BY meter EMIT CHANGES EVERY INTERVAL '1 s';
                 INSERT INTO t SELECT meter, n FROM s {upsert}"
            ),
            "whose groups live for ever",
        ),
        (format!("INSERT INTO t SELECT meter, count(*) FROM reading GROUP BY meter {upsert} EMIT CHANGES EVERY INTERVAL '0 s'"), "EMIT CHANGES EVERY"),
    ] {
        let refused = session.execute(&format!("CREATE TOPOLOGY x AS ({steps})"));
        let error = refused.err().unwrap_or_else(|| panic!("{steps} is accepted")).to_string();
        assert!(error.contains(expected), "{steps}: {error}");
    }
}
