//! CREATE MATERIALIZED VIEW over sources and streams: its table equals the query over all rows that were sent, over restarts
//! and kills; nothing else writes it; it is dropped with its topology; what is refused has a reason.

use super::{append, notices_of, rows, sqlstate, wait_for, wait_for_end};
use entresol::tables::{Table, Value};
use entresol::transactions::Transaction;
use entresol::{Database, Durability, Options, Session};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const READINGS: usize = 3000;
const SOURCE: &str = "
    CREATE SOURCE reading (at TIMESTAMP NOT NULL, meter INT NOT NULL, feeder VARCHAR NOT NULL, kw DOUBLE, cost DECIMAL(8,2),
        WATERMARK FOR at AS at - INTERVAL '2 minutes')
        WITH (connector = 'generator', rows = 3000, step = '7 seconds', meter.cardinality = 20, feeder.cardinality = 3, cost.cardinality = 500);
    CREATE TABLE place (meter INT PRIMARY KEY, town VARCHAR NOT NULL);
    INSERT INTO place SELECT i, 'town ' || i % 4 FROM generate_series(0, 18) g(i);
    CREATE STREAM of_town AS SELECT r.at, p.town, r.kw FROM reading r JOIN place p ON p.meter = r.meter;
    CREATE TABLE readings (at TIMESTAMP PRIMARY KEY, meter INT, feeder VARCHAR, kw DOUBLE, cost DECIMAL(8,2));
    CREATE TOPOLOGY copy AS (INSERT INTO readings SELECT * FROM reading)";

/// Views, what stands behind their names and queries, and the queries of the same rows over all readings.
const VIEWS: [(&str, &str, &str, &str); 10] = [
    ("high", "AS SELECT at, meter, kw * 1000 AS watts FROM reading WHERE kw > 50", "at, meter, watts",
     "SELECT at, meter, kw * 1000 FROM readings WHERE kw > 50"),
    ("hourly", "(feeder, hour) WITH (durability = 'none') AS SELECT feeder, window_start, count(*) AS n, max(kw) AS most
        FROM TUMBLE(reading, at, INTERVAL '1 hour') GROUP BY feeder, window_start EMIT ON WINDOW CLOSE", "feeder, hour, n, most",
     "SELECT feeder, date_trunc('hour', at), count(*), max(kw) FROM readings GROUP BY 1, 2"),
    ("early", "WITH (changes = '1 hour', history = '1 hour') AS SELECT meter, window_end, min(kw) AS least
        FROM TABLE(TUMBLE(TABLE reading, DESCRIPTOR(at), INTERVAL '1 hour')) GROUP BY meter, window_end EMIT CHANGES", "meter, window_end, least",
     "SELECT meter, date_trunc('hour', at) + INTERVAL '1 hour', min(kw) FROM readings GROUP BY 1, 2"),
    ("totals", "WITH (changes = '1 hour') AS SELECT meter, count(*) AS n, sum(cost) AS cost, max(kw) AS most FROM reading GROUP BY meter EMIT CHANGES",
     "meter, n, cost, most", "SELECT meter, count(*), sum(cost), max(kw) FROM readings GROUP BY meter"),
    ("all_of_it", "AS SELECT count(*) AS n, sum(cost) AS cost FROM reading", "n, cost", "SELECT count(*), sum(cost) FROM readings"),
    ("seen", "AS SELECT DISTINCT meter, feeder FROM reading", "meter, feeder", "SELECT DISTINCT meter, feeder FROM readings"),
    ("spread", "AS SELECT n, count(*) AS meters FROM (SELECT meter, count(*) AS n FROM reading GROUP BY meter) m GROUP BY n", "n, meters",
     "SELECT n, count(*) FROM (SELECT meter, count(*) AS n FROM readings GROUP BY meter) m GROUP BY n"),
    ("top", "WITH (parallelism = '2') AS SELECT feeder, place, meter, kw FROM
        (SELECT *, row_number() OVER (PARTITION BY feeder ORDER BY kw DESC, meter) AS place FROM reading) r WHERE place <= 3", "feeder, place, kw",
     "SELECT feeder, place, kw FROM (SELECT feeder, kw, row_number() OVER (PARTITION BY feeder ORDER BY kw DESC, meter) AS place FROM readings) r WHERE place <= 3"),
    ("towns", "AS SELECT town, count(*) AS n FROM of_town GROUP BY town", "town, n",
     "SELECT p.town, count(*) FROM readings r JOIN place p ON p.meter = r.meter GROUP BY p.town"),
    ("some", "AS WITH many AS (SELECT meter, count(*) AS n FROM reading GROUP BY meter), few AS (SELECT * FROM many WHERE meter < 10)
        SELECT meter, n FROM few", "meter, n", "SELECT meter, count(*) FROM readings WHERE meter < 10 GROUP BY meter"),
];

fn create_views(session: &mut Session) {
    session.execute(SOURCE).unwrap();
    for (name, rest, ..) in VIEWS {
        let create = format!("CREATE MATERIALIZED VIEW {name} {rest}");
        session.execute(&create).unwrap_or_else(|error| panic!("{create}: {error}"));
    }
    assert_eq!(notices_of(session), Vec::<String>::new());
}

/// Waits for the end of all views, and compares each with its query over all readings.
fn compare(session: &mut Session) {
    wait_for_end(session, "copy");
    assert_eq!(rows(session, "SELECT count(*) FROM readings")[0], [READINGS.to_string()]);
    for (name, _, columns, batch) in VIEWS {
        wait_for_end(session, name);
        let view = format!("SELECT {columns} FROM {name}");
        for (one, other) in [(view.as_str(), batch), (batch, view.as_str())] {
            let differ = rows(session, &format!("SELECT * FROM ({one} EXCEPT ALL {other}) d LIMIT 3"));
            assert!(differ.is_empty(), "{name}: {differ:?} of {one} are not in {other}");
        }
        assert_ne!(rows(session, &format!("SELECT count(*) FROM {name}"))[0], ["0"], "{name}");
    }
}

#[test]
fn views_equal_their_queries_over_all_rows_that_were_sent() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    create_views(&mut session);
    compare(&mut session);
    for (name, key) in [
        ("high", None),
        ("hourly", None),
        ("early", Some("meter, window_end")),
        ("totals", Some("meter")),
        ("all_of_it", None),
        ("top", Some("feeder, place")),
    ] {
        let found =
            rows(&mut session, &format!("SELECT indexdef FROM pg_indexes WHERE tablename = '{name}'"));
        let found: Vec<bool> =
            found.iter().map(|row| key.is_some_and(|key| row[0].contains(&format!("({key})")))).collect();
        assert_eq!(found, if key.is_some() { vec![true] } else { Vec::new() }, "{name}");
    }
    let last = rows(&mut session, "SELECT last_commit FROM entresol.topologies WHERE name = 'early'");
    session.execute(&format!("BEGIN AS OF TRANSACTION {}", last[0][0])).unwrap();
    let early = "SELECT count(*) FROM early";
    let before = rows(&mut session, early);
    session.execute("COMMIT").unwrap();
    assert_eq!(rows(&mut session, early), before);
    let plan = rows(&mut session, "EXPLAIN TOPOLOGY totals");
    assert!(plan.iter().any(|line| line[0] == "  materialized view totals"), "{plan:?}");
    assert!(plan.iter().any(|line| line[0] == "    changes, rows are taken back, by meter"), "{plan:?}");
    let shown = rows(&mut session, "SELECT name, state FROM entresol.topologies WHERE name = 'high'");
    assert_eq!(shown, [["high", "ended"]]);
}

#[test]
fn views_go_on_where_they_were_over_restarts() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            create_views(&mut session);
        }
        if round == 3 {
            compare(&mut session);
        } else {
            let begin = Instant::now();
            let count = "SELECT n FROM all_of_it";
            while rows(&mut session, count)
                .first()
                .is_none_or(|row| row[0].parse::<usize>().unwrap() < 700 * round)
            {
                assert!(
                    begin.elapsed() < Duration::from_secs(20),
                    "{:?}",
                    rows(&mut session, "SELECT name, state, error FROM entresol.topologies")
                );
            }
        }
        drop(session);
        // Closed, or left as by a crash.
        if round != 1 {
            database.close().unwrap();
        }
    }
}

/// Directory of a database that this process opens to be killed, if it is the child of the test below.
const CHILD: &str = "ENTRESOL_VIEW_CHILD";

#[test]
fn child_that_is_killed() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let database = Database::open(Path::new(&directory).join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    if rows(&mut session, "SELECT 1 FROM entresol.sources").is_empty() {
        create_views(&mut session);
    }
    std::fs::write(Path::new(&directory).join("open"), "").unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

/// A process that has the views is killed again and again: no row is lost or there twice.
#[test]
fn views_have_each_row_once_over_kills() {
    let directory = tempfile::tempdir().unwrap();
    let open = directory.path().join("open");
    for kill in 0..4 {
        let _ = std::fs::remove_file(&open);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "materialized_streams::child_that_is_killed"])
            .env(CHILD, directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        while !open.exists() {
            assert!(begin.elapsed() < Duration::from_secs(50), "the child does not open the database");
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(30 * kill));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    compare(&mut database.session().unwrap());
}

const NUMBERS: &str =
    "CREATE SOURCE number (at TIMESTAMP NOT NULL, n INT NOT NULL, kind INT, WATERMARK FOR at AS at)
    WITH (connector = 'generator', rows = 500, step = '1 second', n.cardinality = 10, kind.cardinality = 3)";

#[test]
fn late_rows_of_a_view_are_stored() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows.csv");
    std::fs::write(
        &path,
        "at,n\n2026-01-01 00:00:10,1\n2026-01-01 00:05:00,2\n2026-01-01 00:00:20,3\n2026-01-01 00:09:00,4\n",
    )
    .unwrap();
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE row (at TIMESTAMP, n INT, WATERMARK FOR at AS at) WITH (connector = 'file', path = '{}') FORMAT PLAIN ENCODE CSV;
             CREATE MATERIALIZED VIEW minutes AS SELECT window_start, sum(n) AS n FROM TUMBLE(row, at, INTERVAL '1 minute')
                 GROUP BY window_start EMIT ON WINDOW CLOSE LATE ROWS INTO late_row",
            path.display()
        ))
        .unwrap();
    wait_for_end(&mut session, "minutes");
    assert_eq!(rows(&mut session, "SELECT n FROM minutes ORDER BY window_start"), [["1"], ["2"], ["4"]]);
    assert_eq!(rows(&mut session, "SELECT n FROM late_row"), [["3"]]);
}

#[test]
fn views_over_views_follow_in_the_same_commits_or_by_the_change_log() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(NUMBERS).unwrap();
    session
        .execute(
            "CREATE MATERIALIZED VIEW counts WITH (changes = '1 hour') AS SELECT n, count(*) AS many FROM number GROUP BY n;
             CREATE INDEX by_many ON counts (many);
             CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS groups, sum(many) AS many FROM counts;
             CREATE VIEW shown AS SELECT n FROM counts WHERE many > 0;
             CREATE MATERIALIZED VIEW changed AS SELECT n, many, old_many, change_type FROM CHANGES(counts) FOR EACH ROW;
             CREATE MATERIALIZED VIEW most AS SELECT n, max(many) AS many FROM CHANGES(counts) GROUP BY n",
        )
        .unwrap();
    wait_for_end(&mut session, "counts");
    let counts = rows(&mut session, "SELECT n, many FROM counts ORDER BY n");
    assert_eq!(counts.len(), 10);
    assert_eq!(rows(&mut session, "SELECT groups, many FROM sums"), [["10", "500"]]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM shown"), [["10"]]);
    wait_for(&mut session, "SELECT sum(many) FROM most", "500");
    wait_for(&mut session, "SELECT sum(many - coalesce(old_many, 0)) FROM changed", "500");
    assert_eq!(rows(&mut session, "SELECT n, many FROM most ORDER BY n"), counts);
    // Each lost view is named; CASCADE drops them in an order in which none reads what is gone.
    let error = session.execute("DROP SOURCE number").unwrap_err();
    for expected in [
        "materialized view counts uses it",
        "materialized view changed uses it",
        "materialized view sums depends on source number",
    ] {
        assert!(error.to_string().contains(expected), "{error}");
    }
    notices_of(&session);
    session.execute("DROP SOURCE number CASCADE").unwrap();
    let notices = notices_of(&session);
    for expected in [
        "drop cascades to materialized view counts",
        "drop cascades to materialized view sums",
        "drop cascades to view shown",
    ] {
        assert!(notices.iter().any(|notice| notice == expected), "{notices:?}");
    }
    assert_eq!(
        rows(&mut session, "SELECT relname FROM pg_class WHERE relkind = 'm' OR relname LIKE '%_open%'"),
        Vec::<Vec<String>>::new()
    );
    for left in ["entresol.topologies", "streams_positions", "streams_unused_state"] {
        assert_eq!(rows(&mut session, &format!("SELECT count(*) FROM {left}"))[0], ["0"], "{left}");
    }
}

#[test]
fn nothing_else_writes_or_drops_a_view() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(NUMBERS).unwrap();
    session
        .execute(
            "CREATE TABLE t (n INT PRIMARY KEY, many BIGINT) WITH (changes = '1 hour');
             CREATE MATERIALIZED VIEW v AS SELECT n, count(*) AS many FROM number GROUP BY n;
             CREATE VIEW reader AS SELECT many FROM v;
             CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT n FROM number",
        )
        .unwrap();
    wait_for_end(&mut session, "v");
    for (statement, code, expected) in [
        (
            "INSERT INTO v VALUES (1, 1)",
            "55000",
            "the topology of materialized view v, which alone writes it",
        ),
        ("UPDATE v SET many = 1", "55000", "which alone writes it"),
        ("DELETE FROM v", "55000", "which alone writes it"),
        ("TRUNCATE v", "55000", "materialized view v"),
        ("MERGE INTO v USING t ON t.n = v.n WHEN MATCHED THEN DELETE", "55000", "which alone writes it"),
        (
            "ALTER TABLE v ADD COLUMN more INT",
            "42809",
            "v is a materialized view: use DROP MATERIALIZED VIEW v",
        ),
        ("ALTER TABLE v RENAME TO w", "42809", "v is a materialized view"),
        ("DROP TABLE v", "42809", "v is a materialized view: use DROP MATERIALIZED VIEW v"),
        ("DROP TOPOLOGY v", "42809", "\"v\" is a materialized view: use DROP MATERIALIZED VIEW v"),
        ("DROP SINK v", "42809", "\"v\" is not a sink"),
        ("DROP VIEW v", "42809", "v"),
        (
            "ALTER TOPOLOGY v AS (INSERT INTO t SELECT n, 1 FROM number)",
            "42809",
            "\"v\" is a materialized view",
        ),
        (
            "CREATE OR REPLACE TOPOLOGY v AS (INSERT INTO t SELECT n, 1 FROM number)",
            "42809",
            "\"v\" is a materialized view",
        ),
        ("ALTER TOPOLOGY v SET (changes = '1 hour')", "42809", "ALTER TABLE v SET (changes = ...)"),
        ("CREATE TOPOLOGY w AS (INSERT INTO v SELECT n, 1 FROM number)", "55000", "materialized view v"),
        (
            "CREATE TOPOLOGY w AS (INSERT INTO v SELECT n, 1 FROM number ON CONFLICT (n) DO NOTHING)",
            "55000",
            "materialized view v",
        ),
        (
            "CREATE TOPOLOGY w AS (MERGE INTO v USING number x ON v.n = x.n WHEN MATCHED THEN DELETE)",
            "55000",
            "materialized view v",
        ),
        ("DROP MATERIALIZED VIEW v", "2BP01", "view reader depends on materialized view v"),
        ("DROP MATERIALIZED VIEW t", "42809", "\"t\" is not a materialized view"),
        ("DROP SOURCE number", "2BP01", "materialized view v uses it"),
        (
            "REFRESH MATERIALIZED VIEW v",
            "0A000",
            "REFRESH of materialized view \"v\", which reads a stream: the rows that have passed are not stored",
        ),
    ] {
        let error = session.execute(statement).err().unwrap_or_else(|| panic!("{statement} is accepted"));
        assert!(error.to_string().contains(expected), "{statement}: {error}");
        assert_eq!(sqlstate(&error), code, "{statement}: {error}");
    }
    session.execute("ALTER TABLE v SET (changes = '1 hour'); CREATE INDEX of_v ON v (many); ALTER TOPOLOGY v SET (durability = 'none')").unwrap();
    assert_eq!(rows(&mut session, "SELECT sum(many) FROM v"), [["500"]]);
    session
        .execute("DROP MATERIALIZED VIEW v CASCADE; DROP MATERIALIZED VIEW IF EXISTS v; DROP SOURCE number")
        .unwrap();
    assert!(session.query("SELECT * FROM v").is_err());
    assert!(session.query("SELECT * FROM reader").is_err());
}

#[test]
fn what_a_view_cannot_be_is_refused_with_the_reason() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(NUMBERS).unwrap();
    session
        .execute(
            "CREATE TABLE t (n INT PRIMARY KEY); CREATE STREAM s AS SELECT n FROM number;
             CREATE TOPOLOGY busy AS (INSERT INTO t SELECT DISTINCT n FROM number)",
        )
        .unwrap();
    for (statement, code, expected) in [
        (
            "v AS SELECT count(*) AS many FROM number GROUP BY n",
            "0A000",
            "its query lacks the key by which they are found again, the columns of GROUP BY. Select it",
        ),
        (
            "v AS SELECT n FROM (SELECT n, row_number() OVER (ORDER BY n) AS place FROM number) r WHERE place < 3",
            "0A000",
            "the columns of PARTITION BY and the rank",
        ),
        ("v AS SELECT n FROM number ORDER BY n", "0A000", "ORDER BY or OFFSET without LIMIT"),
        ("v AS SELECT n, n FROM number", "42701", "n"),
        ("v (a, b) AS SELECT n FROM number", "42601", "specifies more column names than columns"),
        ("v AS SELECT nope FROM number", "42703", "nope"),
        ("v AS SELECT random() AS r FROM number", "0A000", "random"),
        (
            "v WITH (refresh = 'deferred') AS SELECT n FROM number",
            "0A000",
            "option \"refresh\" of materialized view \"v\", which reads a stream",
        ),
        ("v WITH (refresh_interval = '1 s') AS SELECT n FROM number", "0A000", "option \"refresh_interval\""),
        (
            "v WITH (layout = 'columns') AS SELECT n FROM number",
            "22023",
            "unrecognized option \"layout\" of materialized view \"v\"",
        ),
        ("v WITH (parallelism = '0') AS SELECT n FROM number", "22023", "\"parallelism\""),
        (
            "v WITH (state_ttl = '1 hour') AS SELECT n FROM number",
            "22023",
            "\"state_ttl\" of materialized view \"v\"",
        ),
        ("v WITH (changes = 'soon') AS SELECT n FROM number", "22023", "changes"),
        (
            "v AS SELECT n FROM t EMIT CHANGES",
            "0A000",
            "whose query reads no source, stream or CHANGES(table)",
        ),
        ("v AS SELECT n FROM number EMIT SOMETIMES", "42601", "syntax error"),
        ("v AS SELECT n FROM CHANGES(t)", "55000", "change"),
        ("t AS SELECT n FROM number", "42P07", "relation \"t\" already exists"),
        ("number AS SELECT n FROM number", "42P07", "source \"number\" already exists"),
        ("s AS SELECT n FROM number", "42P07", "stream \"s\" already exists"),
        ("busy AS SELECT n FROM number", "42710", "topology \"busy\" already exists"),
    ] {
        let statement = format!("CREATE MATERIALIZED VIEW {statement}");
        let error = session.execute(&statement).err().unwrap_or_else(|| panic!("{statement} is accepted"));
        assert!(error.to_string().contains(expected), "{statement}: {error}");
        assert_eq!(sqlstate(&error), code, "{statement}: {error}");
    }
    let error = session.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT n FROM number").unwrap_err();
    assert!(error.to_string().contains("OR REPLACE"), "{error}");
    let left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'v%' AND relkind <> 'v'";
    assert_eq!(rows(&mut session, left)[0], ["0"], "nothing is left");
    session
        .execute("CREATE MATERIALIZED VIEW v AS SELECT kind, count(*) AS many FROM number GROUP BY kind")
        .unwrap();
    for (statement, expected) in [
        (
            "CREATE TOPOLOGY v AS (INSERT INTO t SELECT n FROM number)",
            "materialized view \"v\" already exists",
        ),
        ("CREATE TABLE v (n INT)", "v"),
        ("CREATE SOURCE v (n INT) WITH (connector = 'generator')", "\"v\" already exists"),
        ("CREATE STREAM v AS SELECT n FROM number", "\"v\" already exists"),
    ] {
        let error = session.execute(statement).err().unwrap_or_else(|| panic!("{statement} is accepted"));
        assert!(error.to_string().contains(expected), "{statement}: {error}");
    }
}

/// Views over columns that may be NULL, and the queries of the same rows over all of them.
const NULLABLE: [(&str, &str, &str); 12] = [
    (
        "totals",
        "SELECT a, b, count(*) AS n, sum(x) AS x FROM item GROUP BY a, b",
        "SELECT a, b, count(*), sum(x) FROM items GROUP BY a, b",
    ),
    ("seen", "SELECT DISTINCT b FROM item", "SELECT DISTINCT b FROM items"),
    (
        "per_a",
        "SELECT a, count(DISTINCT b) AS b, max(at) AS at FROM item GROUP BY a HAVING count(*) > 1",
        "SELECT a, count(DISTINCT b), max(at) FROM items GROUP BY a HAVING count(*) > 1",
    ),
    (
        "early",
        "SELECT b, window_end, max(x) AS x FROM TUMBLE(item, at, INTERVAL '1 minute') GROUP BY b, window_end EMIT CHANGES",
        "SELECT b, date_trunc('minute', at) + INTERVAL '1 minute', max(x) FROM items GROUP BY 1, 2",
    ),
    (
        "closed",
        "SELECT a, b, a % 2 AS odd, window_start, count(*) AS n FROM TUMBLE(item, at, INTERVAL '1 minute')
            GROUP BY a, b, a % 2, window_start EMIT ON WINDOW CLOSE",
        "SELECT a, b, a % 2, date_trunc('minute', at), count(*) FROM items
            WHERE at < (SELECT date_trunc('minute', max(at)) FROM items) GROUP BY 1, 2, 3, 4",
    ),
    (
        "sessions",
        "SELECT a, window_start, window_end, count(*) AS n FROM SESSION(item, at, INTERVAL '2 seconds')
            GROUP BY a, window_start, window_end EMIT ON WINDOW CLOSE",
        "SELECT a, window_start, window_end, count(*) FROM SESSION(items, at, INTERVAL '2 seconds')
            GROUP BY a, window_start, window_end HAVING window_end <= (SELECT max(at) FROM items)",
    ),
    (
        "sizes",
        "SELECT x, count(*) AS groups FROM (SELECT b, max(x) AS x FROM item GROUP BY b) m GROUP BY x",
        "SELECT x, count(*) FROM (SELECT b, max(x) AS x FROM items GROUP BY b) m GROUP BY x",
    ),
    (
        "greatest_of_a",
        "SELECT a, place, at, x FROM (SELECT *, row_number() OVER (PARTITION BY a ORDER BY x DESC NULLS LAST, at) AS place
            FROM item) r WHERE place <= 3",
        "SELECT a, place, at, x FROM (SELECT *, row_number() OVER (PARTITION BY a ORDER BY x DESC NULLS LAST, at) AS place
            FROM items) r WHERE place <= 3",
    ),
    (
        "newest",
        "SELECT DISTINCT ON (b) b, at, x FROM item ORDER BY b, at DESC",
        "SELECT DISTINCT ON (b) b, at, x FROM items ORDER BY b, at DESC",
    ),
    (
        "first_of_pairs",
        "SELECT a, b, place, at FROM (SELECT *, row_number() OVER (PARTITION BY a, b ORDER BY at) AS place FROM item) r
            WHERE place <= 2",
        "SELECT a, b, place, at FROM (SELECT *, row_number() OVER (PARTITION BY a, b ORDER BY at) AS place FROM items) r
            WHERE place <= 2 AND at < (SELECT max(at) FROM items)",
    ),
    (
        "greatest_of_minutes",
        "SELECT a % 2 AS odd, window_start, place, at FROM (SELECT *,
            row_number() OVER (PARTITION BY a % 2, window_start ORDER BY x DESC NULLS LAST, at) AS place
            FROM TUMBLE(item, at, INTERVAL '1 minute')) r WHERE place <= 2",
        "SELECT odd, start, place, at FROM (SELECT a % 2 AS odd, date_trunc('minute', at) AS start, at,
            row_number() OVER (PARTITION BY a % 2, date_trunc('minute', at) ORDER BY x DESC NULLS LAST, at) AS place
            FROM items) r WHERE place <= 2 AND start < (SELECT date_trunc('minute', max(at)) FROM items)",
    ),
    (
        "sums_of_three",
        "SELECT at, b, sum(x) OVER (PARTITION BY b ORDER BY at ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS x FROM item",
        "SELECT at, b, x FROM (SELECT at, b, sum(x) OVER (PARTITION BY b ORDER BY at ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)
            AS x FROM items) r WHERE at < (SELECT max(at) FROM items)",
    ),
];

/// NULL is a group, a partition and a value as any other, over restarts, and its row is replaced and taken back.
#[test]
fn null_is_a_value_in_what_identifies_the_rows_of_a_view() {
    for parallelism in [1, 2] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("items.csv");
        append(&path, "at,a,b,x\n");
        for round in 0..3_u32 {
            let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
            let mut session = database.session().unwrap();
            if round == 0 {
                create_nullable(&mut session, &path, parallelism);
            }
            let of = |n: u32, every: u32, value: String| {
                if n.is_multiple_of(every) { String::new() } else { value }
            };
            let lines: Vec<String> = (round * 300..round * 300 + 300)
                .map(|n| {
                    let (a, b) = (of(n, 5, (n % 3).to_string()), of(n, 4, format!("b{}", n % 7)));
                    format!(
                        "2026-01-01 10:{:02}:{:02},{a},{b},{}\n",
                        n / 60,
                        n % 60,
                        of(n, 11, (n * 37 % 101).to_string())
                    )
                })
                .collect();
            append(&path, &lines.concat());
            wait_for(&mut session, "SELECT count(*) FROM items", &(round * 300 + 300).to_string());
            for (name, _, batch) in NULLABLE {
                let differ = format!(
                    "SELECT count(*) FROM ((SELECT * FROM {name} EXCEPT ALL ({batch})) UNION ALL (({batch}) EXCEPT ALL SELECT * FROM {name})) d"
                );
                wait_for(&mut session, &differ, "0");
            }
            let nulls = rows(&mut session, "SELECT count(*), count(b) FROM totals WHERE a IS NULL");
            assert_eq!(nulls, [["8", "7"]], "groups with NULL");
            drop(session);
            // Closed, or left as by a crash.
            if round == 1 {
                database.close().unwrap();
            }
        }
    }
}

fn create_nullable(session: &mut Session, path: &Path, parallelism: u32) {
    session
        .execute(&format!(
            "CREATE SOURCE item (at TIMESTAMP NOT NULL, a INT, b VARCHAR, x INT, WATERMARK FOR at AS at)
                 WITH (connector = 'file', path = '{}', tail = true);
             CREATE TABLE items (at TIMESTAMP, a INT, b VARCHAR, x INT);
             CREATE TOPOLOGY copy AS (INSERT INTO items SELECT * FROM item)",
            path.display()
        ))
        .unwrap();
    for (name, query, _) in NULLABLE {
        let create = format!(
            "CREATE MATERIALIZED VIEW {name} WITH (parallelism = '{parallelism}', changes = '1 hour') AS {query}"
        );
        session.execute(&create).unwrap_or_else(|error| panic!("{create}: {error}"));
    }
    assert_eq!(notices_of(session), Vec::<String>::new());
    let error = session.execute("DROP INDEX totals_key").err().unwrap();
    assert!(error.to_string().contains("materialized view totals finds its rows by it"), "{error}");
}

#[test]
fn a_view_without_a_key_logs_its_rows() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(NUMBERS).unwrap();
    session
        .execute(
            "CREATE MATERIALIZED VIEW v WITH (changes = '1 hour') AS SELECT at, n FROM number WHERE n < 5",
        )
        .unwrap();
    wait_for_end(&mut session, "v");
    let there = rows(&mut session, "SELECT at, n FROM v ORDER BY at");
    assert!(there.len() > 100, "{} rows", there.len());
    assert_eq!(
        rows(&mut session, "SELECT at, n FROM CHANGES(v) WHERE change_type = 'insert' ORDER BY at"),
        there
    );
}

#[test]
fn a_paused_view_stays_as_it_is_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let state = "SELECT state FROM entresol.topologies WHERE name = 'v'";
    for round in 0..2 {
        let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            let path = directory.path().join("rows.csv");
            std::fs::write(&path, "n\n1\n2\n").unwrap();
            session
                .execute(&format!(
                    "CREATE SOURCE row (n INT NOT NULL) WITH (connector = 'file', path = '{}', tail = true) FORMAT PLAIN ENCODE CSV;
                     CREATE MATERIALIZED VIEW v AS SELECT n, count(*) AS many FROM row GROUP BY n",
                    path.display()
                ))
                .unwrap();
            wait_for(&mut session, "SELECT count(*) FROM v", "2");
            session.execute("ALTER TOPOLOGY v PAUSE").unwrap();
            std::fs::write(&path, "n\n1\n2\n2\n3\n").unwrap();
        }
        assert_eq!(rows(&mut session, state), [["paused"]]);
        assert_eq!(rows(&mut session, "SELECT n, many FROM v ORDER BY n"), [["1", "1"], ["2", "1"]]);
        if round == 1 {
            session.execute("ALTER TOPOLOGY v RESUME").unwrap();
            wait_for(&mut session, "SELECT count(*) FROM v", "3");
            assert_eq!(
                rows(&mut session, "SELECT n, many FROM v ORDER BY n"),
                [["1", "1"], ["2", "2"], ["3", "1"]]
            );
        }
        drop(session);
        database.close().unwrap();
    }
}

const COUNTS: &str = "CREATE MATERIALIZED VIEW v AS SELECT n, count(*) AS many FROM number GROUP BY n";

/// Commits changes of tables that statements do not write.
fn change(
    database: &Database,
    change: impl FnOnce(&Transaction, &dyn Fn(&str) -> Arc<Table>) -> entresol::tables::Result<()>,
) {
    let transaction = database.begin().unwrap();
    change(&transaction, &|name| database.catalog().table(name).unwrap()).unwrap();
    transaction.commit(Durability::Sync).unwrap();
}

/// A crash of a creation between statement and table leaves a topology that makes its table when the database is opened.
#[test]
fn a_crash_while_a_view_is_created_leaves_one_that_begins() {
    let directory = tempfile::tempdir().unwrap();
    for is_paused in [false, true] {
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        session.execute("DROP MATERIALIZED VIEW IF EXISTS v; DROP SOURCE IF EXISTS number CASCADE").unwrap();
        session.execute(NUMBERS).unwrap();
        // The tables of definitions are there.
        session
            .execute("CREATE MATERIALIZED VIEW w AS SELECT n FROM number; DROP MATERIALIZED VIEW w")
            .unwrap();
        let stored = [Value::from("v"), Value::from(COUNTS), Value::Boolean(is_paused)];
        change(&database, |transaction, table| table("streams_topologies").insert(transaction, &stored));
        drop(session);
        database.close().unwrap();
        drop(database);
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if is_paused {
            assert_eq!(rows(&mut session, "SELECT count(*) FROM v"), [["0"]]);
            session.execute("ALTER TOPOLOGY v RESUME").unwrap();
        }
        wait_for_end(&mut session, "v");
        assert_eq!(rows(&mut session, "SELECT count(*), sum(many) FROM v"), [["10", "500"]]);
        drop(session);
        database.close().unwrap();
    }
}

/// A crash of a DROP behind the removal of the statement leaves a table, which the next open removes; one that a view
/// reads stays until that is dropped.
#[test]
fn a_crash_while_a_view_is_dropped_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let there =
        "SELECT relname FROM pg_class WHERE relname IN ('v', 'v_open', 'plain', 'w') ORDER BY relname";
    for with_reader in [false, true] {
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        session.execute("DROP SOURCE IF EXISTS number CASCADE").unwrap();
        session.execute(&format!("{NUMBERS}; {COUNTS}; CREATE VIEW plain AS SELECT n FROM v")).unwrap();
        if with_reader {
            session.execute("CREATE MATERIALIZED VIEW w AS SELECT sum(many) AS n FROM v").unwrap();
        }
        wait_for_end(&mut session, "v");
        let name = Value::from("v");
        change(&database, |transaction, table| {
            table("streams_topologies").delete(transaction, std::slice::from_ref(&name))?;
            table("streams_unused_state").insert(transaction, &[name.clone(), name.clone()])
        });
        drop(session);
        database.close().unwrap();
        drop(database);
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if with_reader {
            assert_eq!(rows(&mut session, there), [["plain"], ["v"], ["w"]]);
            assert_eq!(rows(&mut session, "SELECT n FROM w"), [["500"]]);
            session.execute("DROP MATERIALIZED VIEW v CASCADE").unwrap();
        }
        assert_eq!(rows(&mut session, there), Vec::<Vec<String>>::new());
        for left in ["entresol.topologies", "streams_positions", "streams_unused_state"] {
            assert_eq!(rows(&mut session, &format!("SELECT count(*) FROM {left}"))[0], ["0"], "{left}");
        }
        session.execute(COUNTS).unwrap();
        wait_for_end(&mut session, "v");
        assert_eq!(rows(&mut session, "SELECT sum(many) FROM v"), [["500"]]);
        drop(session);
        database.close().unwrap();
    }
}

/// A view is listed with its query, and its table with the kind of materialized views.
#[test]
fn catalogs_show_views_with_their_queries() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(NUMBERS).unwrap();
    session
        .execute(
            "CREATE TABLE t (n INT PRIMARY KEY);
             CREATE MATERIALIZED VIEW v (number) WITH (changes = '1 hour') AS SELECT n, count(*) AS many FROM number GROUP BY n EMIT CHANGES;
             CREATE MATERIALIZED VIEW over_tables AS SELECT n FROM t",
        )
        .unwrap();
    assert_eq!(
        rows(&mut session, "SELECT matviewname, hasindexes, definition FROM pg_matviews ORDER BY 1"),
        [
            ["over_tables", "true", "SELECT n FROM t"],
            ["v", "true", "SELECT n, count(*) AS many FROM number GROUP BY n EMIT CHANGES"],
        ]
    );
    let query = "SELECT relkind, pg_get_viewdef(oid, true) FROM pg_class WHERE relname = 'v'";
    assert_eq!(
        rows(&mut session, query),
        [["m", "SELECT n, count(*) AS many FROM number GROUP BY n EMIT CHANGES"]]
    );
    for none in ["pg_tables WHERE tablename", "information_schema.tables WHERE table_name"] {
        assert_eq!(
            rows(&mut session, &format!("SELECT count(*) FROM {none} IN ('v', 'over_tables')")),
            [["0"]],
            "{none}"
        );
    }
    let described = rows(&mut session, "DESCRIBE v");
    assert_eq!((described[0][0].as_str(), described[1][0].as_str()), ("number", "many"));
}
