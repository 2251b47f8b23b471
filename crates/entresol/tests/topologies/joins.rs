//! Joins of two streams.

use super::*;

/// Sources of readings and of prices that come a little later and end earlier, with a table of all rows of each.
pub(super) fn create_sources(session: &mut Session, options: &str) {
    session
        .execute(&format!(
            "CREATE SOURCE reading (
                 at TIMESTAMP NOT NULL, meter INT NOT NULL, feeder VARCHAR NOT NULL, kw DOUBLE,
                 WATERMARK FOR at AS at - INTERVAL '1 minute'
             ) WITH (connector = 'generator', rows = 900, step = '37 seconds', meter.cardinality = 9,
                 feeder.cardinality = 3 {options});
             CREATE SOURCE price (
                 id BIGINT NOT NULL, meter INT NOT NULL, feeder VARCHAR NOT NULL, at TIMESTAMP NOT NULL, cents DOUBLE,
                 WATERMARK FOR at AS at
             ) WITH (connector = 'generator', rows = 700, step = '41 seconds', start = '2026-01-01 00:03:00',
                 meter.cardinality = 11, feeder.cardinality = 4 {options});
             CREATE TABLE readings (at TIMESTAMP, meter INT, feeder VARCHAR, kw DOUBLE);
             CREATE TABLE prices (id BIGINT, meter INT, feeder VARCHAR, at TIMESTAMP, cents DOUBLE)"
        ))
        .unwrap();
    session
        .execute(
            "CREATE TOPOLOGY everything AS (INSERT INTO readings SELECT * FROM reading;
                 INSERT INTO prices SELECT * FROM price)",
        )
        .unwrap();
    wait_for_end(session, "everything");
}

/// Checks that a table has the rows of a query.
pub(super) fn check(session: &mut Session, target: &str, batch: &str, what: &str) {
    let differ = format!(
        "SELECT count(*) FROM ((SELECT * FROM {target} EXCEPT ALL {batch}) UNION ALL
            ({batch} EXCEPT ALL SELECT * FROM {target})) d"
    );
    let counts = [format!("SELECT count(*) FROM {target}"), format!("SELECT count(*) FROM ({batch}) b")];
    let counts = counts.map(|count| rows(session, &count)[0][0].clone());
    assert_eq!(rows(session, &differ)[0], ["0"], "{what}: {counts:?}");
    assert_eq!(counts[0], counts[1], "{what}");
}

/// Join of random kind, keys, bounds in time and conditions: over streams, and over the tables of all of their rows.
fn random_join(random: &mut Random) -> (String, String) {
    let kind = random.one(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
    let keys = random.one(&[
        "r.meter = p.meter",
        "r.feeder = p.feeder AND p.meter = r.meter",
        "r.meter % 4 = p.meter % 3 AND r.feeder = p.feeder",
        "p.meter = r.meter + 1",
        "true",
    ]);
    let condition = random.one(&["", "", " AND r.kw < p.cents", " AND (r.kw > 40 OR p.feeder = 'feeder 1')"]);
    let columns =
        "SELECT r.at, r.meter, r.feeder, r.kw, p.id, p.at AS price_at, p.meter AS price_meter, p.cents";
    let of = |from: &str, with: &str, on: &str| format!("{columns} FROM {from} {kind} {with} ON {on}");
    if random.below(3) == 0 {
        let on = format!("{keys} AND {{}}{condition}");
        let edges = random.one(&["r.window_start = p.window_start", "p.window_end = r.window_end"]);
        let (windows, size) =
            [("TUMBLE({}, at, INTERVAL '5 minutes')", 5), ("TUMBLE({}, at, INTERVAL '1 hour')", 60)]
                [random.below(2)];
        let relation = |name: &str, alias: &str| format!("{} {alias}", windows.replace("{}", name));
        let start = |alias: &str| format!("floor(extract(epoch FROM {alias}.at) / {})", size * 60);
        return (
            of(&relation("reading", "r"), &relation("price", "p"), &on.replace("{}", edges)),
            of("readings r", "prices p", &on.replace("{}", &format!("{} = {}", start("r"), start("p")))),
        );
    }
    let bounds = random.one(&[
        "p.at BETWEEN r.at - INTERVAL '5 minutes' AND r.at + INTERVAL '3 minutes'",
        "r.at >= p.at - INTERVAL '10 minutes' AND r.at < p.at",
        "p.at - r.at <= INTERVAL '4 minutes' AND r.at - p.at <= INTERVAL '90 seconds'",
        "p.at + INTERVAL '1 minute' > r.at AND NOT p.at > r.at + INTERVAL '2 minutes'",
        "date_trunc('hour', r.at) = date_trunc('hour', p.at) AND p.at - INTERVAL '1 hour' < r.at AND r.at <= p.at + INTERVAL '1 hour'",
        "p.at - r.at BETWEEN INTERVAL '2 minutes' AND INTERVAL '20 minutes'",
        "p.at > r.at + INTERVAL '3 minutes' AND p.at < r.at + INTERVAL '3 minutes 30 seconds'",
    ]);
    if kind == "JOIN" && random.below(2) == 0 {
        let query = |from: &str, with: &str| {
            format!("{columns} FROM {from}, {with} WHERE {keys} AND {bounds}{condition}")
        };
        return (query("reading r", "price p"), query("readings r", "prices p"));
    }
    let on = format!("{keys} AND {bounds}{condition}");
    (of("reading r", "price p", &on), of("readings r", "prices p", &on))
}

#[test]
fn random_joins_equal_their_queries() {
    let seed = std::env::var("ENTRESOL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(11);
    let topologies =
        std::env::var("ENTRESOL_TOPOLOGIES").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    println!("ENTRESOL_SEED={seed}");
    let mut random = Random(seed);
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    create_sources(&mut session, "");
    let mut joined = 0;
    for _ in 0..topologies {
        let (of_streams, of_tables) = random_join(&mut random);
        let commit = random.one(&["EVERY 1 ROW", "EVERY 37 ROWS", "EVERY 5000 ROWS"]);
        let merge = random.one(&["arrival", "event_time"]);
        session
            .execute(&format!("CREATE TABLE target AS SELECT * FROM ({of_tables}) b WHERE false"))
            .unwrap();
        let create = format!(
            "CREATE TOPOLOGY x COMMIT {commit} WITH (durability = 'none', merge = '{merge}') AS (INSERT INTO target {of_streams})"
        );
        session.execute(&create).unwrap_or_else(|error| panic!("{create}: {error}"));
        wait_for_end(&mut session, "x");
        check(&mut session, "target", &of_tables, &create);
        assert_eq!(rows(&mut session, "SELECT count(*) FROM x_open")[0], ["0"], "{create}");
        joined +=
            rows(&mut session, "SELECT count(*) FROM target WHERE id IS NOT NULL AND meter IS NOT NULL")[0]
                [0]
            .parse::<usize>()
            .unwrap();
        session.execute("DROP TOPOLOGY x; DROP TABLE target").unwrap();
    }
    assert!(joined > topologies * 100, "{joined} pairs");
}

#[test]
fn joins_go_on_when_the_database_is_opened_again() {
    let mut random = Random(3);
    let mut kept = 0;
    for round in 0..3 {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        create_sources(&mut session, "");
        session.execute("DROP TOPOLOGY everything; DROP SOURCE reading; DROP SOURCE price").unwrap();
        session.execute("ALTER TABLE readings RENAME TO r; ALTER TABLE prices RENAME TO p").unwrap();
        create_sources(&mut session, ", rows_per_second = 3000");
        let joins: Vec<(String, String)> = (0..3).map(|_| random_join(&mut random)).collect();
        for (number, (of_streams, of_tables)) in joins.iter().enumerate() {
            let commit = random.one(&["EACH ROW", "EVERY 37 ROWS"]);
            session
                .execute(&format!(
                    "CREATE TABLE target_{number} AS SELECT * FROM ({of_tables}) b WHERE false"
                ))
                .unwrap();
            session
                .execute(&format!(
                    "CREATE TOPOLOGY x{number} COMMIT {commit} WITH (durability = 'none') AS (
                         INSERT INTO target_{number} {of_streams})"
                ))
                .unwrap();
        }
        wait_for(
            &mut session,
            "SELECT min(tuples) > 200 FROM entresol.topologies WHERE name LIKE 'x%'",
            "true",
        );
        // Closed, or left as by a crash.
        drop(session);
        if round > 0 {
            database.close().unwrap();
        }
        drop(database);
        let options = Options::default().start_topologies(false);
        let database = Database::open(directory.path(), options).unwrap();
        let mut session = database.session().unwrap();
        for number in 0..joins.len() {
            kept += rows(&mut session, &format!("SELECT count(*) FROM x{number}_open"))[0][0]
                .parse::<usize>()
                .unwrap();
        }
        drop(session);
        drop(database);
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        for (number, (of_streams, of_tables)) in joins.iter().enumerate() {
            wait_for_end(&mut session, &format!("x{number}"));
            check(&mut session, &format!("target_{number}"), of_tables, of_streams);
        }
    }
    assert!(kept > 0, "no row was kept over a restart");
}

/// Targets of joins of windows, and of windows and joins over joins.
const TARGETS: &str = "CREATE TABLE both (window_start TIMESTAMP, meter INT, readings BIGINT, prices BIGINT);
    CREATE TABLE hopped (meter INT, window_start TIMESTAMP, window_end TIMESTAMP, kw DOUBLE, cents DOUBLE);
    CREATE TABLE cumulated (meter INT, window_end TIMESTAMP, kw DOUBLE, cents DOUBLE);
    CREATE TABLE counts (window_start TIMESTAMP, feeder VARCHAR, pairs BIGINT, most DOUBLE);
    CREATE TABLE sessions (feeder VARCHAR, window_start TIMESTAMP, window_end TIMESTAMP, pairs BIGINT);
    CREATE TABLE three (id BIGINT, meter INT, at TIMESTAMP, other TIMESTAMP)";

const STEPS: &str = "CREATE STREAM of_reading AS SELECT meter, window_start, count(*) AS n
        FROM TUMBLE(reading, at, INTERVAL '10 minutes') GROUP BY meter, window_start;
    CREATE STREAM of_price AS SELECT window_start, meter, count(*) AS n
        FROM TUMBLE(price, at, INTERVAL '10 minutes') GROUP BY meter, window_start;
    CREATE STREAM matched WITH (state_table = 'kept_windows') AS
        SELECT r.window_start, r.meter, r.n AS readings, p.n AS prices
        FROM of_reading r LEFT JOIN of_price p ON p.meter = r.meter AND p.window_start = r.window_start;
    INSERT INTO both SELECT * FROM matched;
    INSERT INTO hopped SELECT r.meter, r.window_start, p.window_end, r.kw, p.cents
        FROM HOP(reading, at, INTERVAL '4 minutes', INTERVAL '10 minutes') r
        JOIN HOP(price, at, INTERVAL '4 minutes', INTERVAL '10 minutes') p
            ON r.meter = p.meter AND r.window_start = p.window_start AND r.window_end = p.window_end;
    INSERT INTO cumulated SELECT p.meter, p.window_end, r.kw, p.cents
        FROM CUMULATE(reading, at, INTERVAL '20 minutes', INTERVAL '1 hour') r
        RIGHT JOIN CUMULATE(price, at, INTERVAL '20 minutes', INTERVAL '1 hour') p
            ON r.meter = p.meter AND r.window_start = p.window_start AND r.window_end = p.window_end;
    CREATE STREAM near AS SELECT r.at, r.feeder, r.kw * p.cents AS cost FROM reading r
        JOIN price p ON p.feeder = r.feeder
            AND p.at BETWEEN r.at - INTERVAL '2 minutes' AND r.at + INTERVAL '5 minutes';
    INSERT INTO counts SELECT window_start, feeder, count(*), max(cost)
        FROM TUMBLE(near, at, INTERVAL '10 minutes') GROUP BY window_start, feeder;
    INSERT INTO sessions SELECT feeder, window_start, window_end, count(*)
        FROM SESSION(near, at, INTERVAL '2 minutes') GROUP BY feeder, window_start, window_end;
    INSERT INTO three SELECT p.id, r.meter, r.at, o.at FROM price p
        JOIN reading r ON r.meter = p.meter AND r.at >= p.at - INTERVAL '1 minute' AND r.at <= p.at
        LEFT JOIN reading o ON o.meter = r.meter AND o.feeder = 'feeder 1'
            AND o.at > p.at AND o.at < p.at + INTERVAL '3 minutes'";

/// Each target, and the query over all rows.
fn batches() -> Vec<(&'static str, String)> {
    let windowed = |table: &str| {
        format!(
            "(SELECT meter, date_bin(INTERVAL '10 minutes', at, TIMESTAMP '1970-01-01 00:00:00') AS w, count(*) AS n
                 FROM {table} GROUP BY 1, 2)"
        )
    };
    let series = |every: &str, number: i64| {
        let start = format!("TIMESTAMP '2025-12-31 22:00:00' + i * INTERVAL '{every}'");
        format!("(SELECT {start} AS s FROM generate_series(0, {number}) g(i))")
    };
    let within = |alias: &str, end: &str| format!("{alias}.at >= s AND {alias}.at < {end}");
    let near = "readings r JOIN prices p ON p.feeder = r.feeder
        AND p.at BETWEEN r.at - INTERVAL '2 minutes' AND r.at + INTERVAL '5 minutes'";
    let ends = format!(
        "(SELECT s, s + j * INTERVAL '20 minutes' AS e FROM {} w, generate_series(1, 3) h(j))",
        series("1 hour", 30)
    );
    vec![
        (
            "both",
            format!(
                "SELECT r.w, r.meter, r.n, p.n FROM {} r LEFT JOIN {} p ON p.meter = r.meter AND p.w = r.w",
                windowed("readings"),
                windowed("prices")
            ),
        ),
        (
            "hopped",
            format!(
                "SELECT r.meter, s, s + INTERVAL '10 minutes', r.kw, p.cents FROM {} w
                    JOIN readings r ON {} JOIN prices p ON p.meter = r.meter AND {}",
                series("4 minutes", 400),
                within("r", "s + INTERVAL '10 minutes'"),
                within("p", "s + INTERVAL '10 minutes'")
            ),
        ),
        (
            "cumulated",
            format!(
                "SELECT p.meter, e, r.kw, p.cents FROM {ends} w JOIN prices p ON {}
                    LEFT JOIN readings r ON p.meter = r.meter AND {}",
                within("p", "e"),
                within("r", "e")
            ),
        ),
        (
            "counts",
            format!(
                "SELECT date_bin(INTERVAL '10 minutes', r.at, TIMESTAMP '1970-01-01 00:00:00'), r.feeder, count(*),
                    max(r.kw * p.cents) FROM {near} GROUP BY 1, 2"
            ),
        ),
        (
            "sessions",
            format!(
                "SELECT feeder, min(at), max(at) + INTERVAL '2 minutes', count(*) FROM (
                     SELECT feeder, at, sum(begins) OVER (PARTITION BY feeder ORDER BY at) AS number FROM (
                         SELECT r.feeder, r.at, CASE WHEN r.at - lag(r.at) OVER (PARTITION BY r.feeder ORDER BY r.at)
                             >= INTERVAL '2 minutes' THEN 1 ELSE 0 END AS begins FROM {near}) b) n
                 GROUP BY feeder, number"
            ),
        ),
        (
            "three",
            "SELECT p.id, r.meter, r.at, o.at FROM prices p
                JOIN readings r ON r.meter = p.meter AND r.at >= p.at - INTERVAL '1 minute' AND r.at <= p.at
                LEFT JOIN readings o ON o.meter = r.meter AND o.feeder = 'feeder 1'
                    AND o.at > p.at AND o.at < p.at + INTERVAL '3 minutes'"
                .to_owned(),
        ),
    ]
}

/// Streams of windows are joined, and joined streams are aggregated in windows and joined again.
#[test]
fn windows_are_joined_and_joins_are_windowed() {
    for commit in ["EVERY 1 ROW", "EVERY 50 ROWS", "EVERY 5000 ROWS"] {
        let database = Database::volatile(Options::default()).unwrap();
        let mut session = database.session().unwrap();
        create_sources(&mut session, "");
        session.execute(TARGETS).unwrap();
        session
            .execute(&format!("CREATE TOPOLOGY x COMMIT {commit} WITH (durability = 'none') AS ({STEPS})"))
            .unwrap();
        wait_for_end(&mut session, "x");
        for (target, batch) in batches() {
            check(&mut session, target, &batch, &format!("{target}, {commit}"));
            assert_ne!(rows(&mut session, &format!("SELECT count(*) FROM {target}"))[0], ["0"], "{target}");
        }
        assert_eq!(rows(&mut session, "SELECT late FROM entresol.topologies WHERE name = 'x'"), [["0"]]);
        let plan = rows(&mut session, "EXPLAIN TOPOLOGY x");
        let has = |text: &str| plan.iter().any(|line| line[0].contains(text));
        assert!(has("Left Join: r.meter = p.meter"), "{plan:?}");
        let error = session.execute("DELETE FROM kept_windows").unwrap_err().to_string();
        assert!(error.contains("topology x"), "{error}");
        session.execute("DROP TOPOLOGY x").unwrap();
        assert!(session.query("SELECT * FROM kept_windows").is_err(), "its state is gone with it");
    }
}

#[test]
fn joins_that_could_not_end_are_refused() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    create_sources(&mut session, "");
    session
        .execute(
            "CREATE SOURCE timeless (at TIMESTAMP, meter INT) WITH (connector = 'generator', rows = 10);
             CREATE TABLE t (meter INT)",
        )
        .unwrap();
    let near = "r.at BETWEEN p.at - INTERVAL '1 minute' AND p.at";
    for (from, expected) in [
        ("reading r JOIN price p ON r.meter = p.meter".to_owned(), "two streams without end: bound the time"),
        ("reading r, price p".to_owned(), "two streams without end: bound the time"),
        (
            "reading r JOIN price p ON r.meter = p.meter AND r.at > p.at".to_owned(),
            "without end, with an upper bound only",
        ),
        (
            "reading r JOIN price p ON r.meter = p.meter AND r.at < p.at + INTERVAL '1 minute'".to_owned(),
            "without end, with a lower bound only",
        ),
        (
            "reading r JOIN price p ON r.at BETWEEN p.at AND p.at + r.kw * INTERVAL '1 minute'".to_owned(),
            "without end, with an upper bound only",
        ),
        (
            "reading r JOIN price p ON p.at < r.at - INTERVAL '5 minutes' AND p.at > r.at".to_owned(),
            "bounds in time exclude each other",
        ),
        (format!("reading r JOIN timeless p ON {near}"), "one has no event time: declare WATERMARK FOR"),
        (
            format!("(SELECT meter, date_trunc('hour', at) AS at FROM reading) r JOIN price p ON {near}"),
            "one has no event time: declare WATERMARK FOR",
        ),
        (
            "TUMBLE(reading, at, INTERVAL '1 hour') r JOIN TUMBLE(price, at, INTERVAL '2 hours') p
                ON r.window_start = p.window_start"
                .to_owned(),
            "windows of different kinds or sizes",
        ),
        (
            "TUMBLE(reading, at, INTERVAL '1 hour') r JOIN TUMBLE(price, at, INTERVAL '1 hour') p
                ON r.window_start = p.window_end"
                .to_owned(),
            "two streams without end",
        ),
        (format!("reading r JOIN price p ON {near} LATE ROWS INTO l"), "a step that joins streams"),
        (format!("reading r JOIN price p ON {near} WHERE random() > 0.5"), "random() in a step"),
        (
            format!("SESSION(reading, at, INTERVAL '1 minute') r JOIN price p ON {near}"),
            "an edge of SESSION(relation, time, gap)",
        ),
        (
            "(SELECT meter, window_start FROM SESSION(reading, at, INTERVAL '1 minute') GROUP BY meter, window_start) r
                JOIN TUMBLE(price, at, INTERVAL '1 minute') p ON r.window_start = p.window_start"
                .to_owned(),
            "one has no event time",
        ),
    ] {
        let refused =
            session.execute(&format!("CREATE TOPOLOGY x AS (INSERT INTO t SELECT r.meter FROM {from})"));
        let error = refused.err().unwrap_or_else(|| panic!("{from} is accepted")).to_string();
        assert!(error.contains(expected), "{from}: {error}");
    }
}

/// More results for a batch than one batch has rows: each is there once.
#[test]
fn a_batch_has_many_results() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE number (n INT NOT NULL) WITH (connector = 'generator', rows = 60, n.cardinality = 1000);
             CREATE TABLE place (id INT PRIMARY KEY, kind INT);
             INSERT INTO place SELECT i, i % 2 FROM generate_series(1, 1000) g(i);
             CREATE TABLE stored (n INT);
             CREATE TABLE found (n INT, id INT);
             CREATE TOPOLOGY finding COMMIT EVERY 60 ROWS WITH (durability = 'none') AS (
                 INSERT INTO stored SELECT n FROM number;
                 INSERT INTO found SELECT s.n, p.id FROM number s JOIN place p ON p.kind = s.n % 2)",
        )
        .unwrap();
    wait_for_end(&mut session, "finding");
    let expected =
        "SELECT s.n, p.id, count(*) FROM stored s JOIN place p ON p.kind = s.n % 2 GROUP BY s.n, p.id";
    let found = "SELECT n, id, count(*) FROM found GROUP BY n, id";
    let differ =
        format!("SELECT count(*) FROM (({expected} EXCEPT {found}) UNION ALL ({found} EXCEPT {expected})) d");
    assert_eq!(rows(&mut session, &differ), [["0"]]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM found"), [["30000"]]);
}
