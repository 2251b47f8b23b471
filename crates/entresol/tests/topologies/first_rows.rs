//! ORDER BY with LIMIT in steps: the target is at each commit what the query gives over all rows, over aborts, restarts and
//! kills.

use super::{Random, rows, sqlstate, wait_for_end};
use entresol::{Database, Options, Session};
use std::path::Path;

const READING: &str = "CREATE SOURCE reading (at TIMESTAMP NOT NULL, meter INT NOT NULL, feeder VARCHAR NOT NULL, kw INT NOT NULL,
        WATERMARK FOR at AS at)
    WITH (connector = 'generator', rows = 700, step = '30 seconds', meter.cardinality = 25, feeder.cardinality = 4, kw.cardinality = 90);
    CREATE TABLE readings (at TIMESTAMP PRIMARY KEY, meter INT, feeder VARCHAR, kw INT)";

/// Groups of meters, of which some leave.
const METERS: &str =
    "(SELECT meter, count(*) AS n, max(kw) AS most FROM reading GROUP BY meter HAVING count(*) % 6 <> 4) m";

/// Step: the table of its target, the columns that are its key and all others, and the query.
type Step = (&'static str, &'static [&'static str], &'static [&'static str], String);

fn steps() -> Vec<Step> {
    let of_meters = |clauses: &str| format!("SELECT meter, n, most FROM {METERS} {clauses}");
    vec![
        ("busiest", &["meter"], &["n", "most"], of_meters("ORDER BY n DESC, meter LIMIT 5")),
        ("behind", &["meter"], &["n", "most"], of_meters("ORDER BY most, n DESC, meter DESC LIMIT 6 OFFSET 3")),
        ("all_meters", &["meter"], &["n", "most"], of_meters("ORDER BY meter LIMIT 10000")),
        ("one", &["n"], &["meter", "most"], of_meters("ORDER BY n DESC, meter LIMIT 1")),
        ("third", &["most"], &["meter", "n"], of_meters("ORDER BY n, meter LIMIT 1 OFFSET 2")),
        (
            "highest",
            &["place"],
            &["at", "meter", "kw"],
            "SELECT row_number() OVER (ORDER BY kw DESC, at) AS place, at, meter, kw FROM reading ORDER BY place LIMIT 8".into(),
        ),
        (
            "next_highest",
            &["place"],
            &["at", "kw"],
            "SELECT place, at, kw FROM (SELECT *, row_number() OVER (ORDER BY kw DESC, at) AS place FROM reading) r
                ORDER BY place LIMIT 4 OFFSET 3"
                .into(),
        ),
        (
            "lowest",
            &["meter"],
            &["at", "kw"],
            "SELECT meter, at, kw FROM reading WHERE meter > 3 ORDER BY kw, at LIMIT 1".into(),
        ),
        (
            "summary",
            &["one"],
            &["many", "most", "least", "meters"],
            "SELECT 1 AS one, count(*) AS many, max(kw) AS most, min(kw) AS least, count(DISTINCT meter) AS meters
                FROM (SELECT kw + 1 AS kw, meter FROM reading ORDER BY kw DESC, at LIMIT 12) r"
                .into(),
        ),
        (
            "feeders",
            &["feeder"],
            &["meters"],
            "SELECT feeder, count(*) AS meters FROM (SELECT feeder, meter FROM (SELECT feeder, meter, count(*) AS n FROM reading
                GROUP BY feeder, meter) g ORDER BY n DESC, feeder, meter LIMIT 15) r GROUP BY feeder"
                .into(),
        ),
    ]
}

fn create(session: &mut Session, boundary: &str) {
    session.execute(READING).unwrap();
    let mut text = "INSERT INTO readings SELECT at, meter, feeder, kw FROM reading".to_owned();
    for (table, key, others, query) in steps() {
        let data_type = |column: &str| match column {
            "at" => "TIMESTAMP",
            "feeder" => "VARCHAR",
            "meter" | "kw" => "INT",
            _ => "BIGINT",
        };
        let columns: Vec<String> =
            key.iter().chain(others).map(|column| format!("{column} {}", data_type(column))).collect();
        let (columns, list) = (columns.join(", "), key.join(", "));
        session.execute(&format!("CREATE TABLE {table} ({columns}, PRIMARY KEY ({list}))")).unwrap();
        let names: Vec<&str> = key.iter().chain(others).copied().collect();
        let set: Vec<String> = others.iter().map(|column| format!("{column} = EXCLUDED.{column}")).collect();
        text += &format!(
            "; INSERT INTO {table} ({}) SELECT {} FROM ({query}) q ON CONFLICT ({list}) DO UPDATE SET {}",
            names.join(", "),
            names.join(", "),
            set.join(", ")
        );
    }
    session
        .execute(&format!(
            "CREATE TABLE bonus (meter INT PRIMARY KEY, points BIGINT);
             INSERT INTO bonus SELECT i, 1000 FROM generate_series(0, 20) g(i);
             CREATE TABLE first (at TIMESTAMP, kw INT); CREATE TABLE fourth (at TIMESTAMP, kw INT);
             CREATE TABLE best_hour (hour TIMESTAMP PRIMARY KEY, meter INT, n BIGINT);
             CREATE TOPOLOGY x COMMIT {boundary} ON ERROR ABORT WITH (durability = 'none') AS ({text};
                 MERGE INTO bonus b USING (SELECT meter, n FROM {METERS} ORDER BY n DESC, meter LIMIT 4) t ON b.meter = t.meter
                     WHEN MATCHED THEN UPDATE SET points = b.points + t.n
                     WHEN NOT MATCHED THEN INSERT VALUES (t.meter, t.n);
                 INSERT INTO first SELECT at, kw FROM reading ORDER BY at LIMIT 9;
                 INSERT INTO fourth SELECT at, kw FROM reading WHERE kw > 20 ORDER BY at ASC, kw LIMIT 5 OFFSET 3;
                 INSERT INTO best_hour SELECT window_start, meter, count(*) AS n FROM TUMBLE(reading, at, INTERVAL '1 hour')
                     GROUP BY window_start, meter ORDER BY n DESC, window_start, meter LIMIT 1
                     ON CONFLICT (hour) DO UPDATE SET meter = EXCLUDED.meter, n = EXCLUDED.n;
                 ABORT WHEN (SELECT count(*) FROM CHANGES(readings) WHERE meter = 7 AND kw < 15) > 0)"
        ))
        .unwrap();
}

/// Compares all targets with their queries over the table of all rows.
fn compare(session: &mut Session, context: &str, is_end: bool) {
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
    for (table, key, others, query) in steps() {
        let names: Vec<&str> = key.iter().chain(others).copied().collect();
        let names = names.join(", ");
        let batch = query.replace("FROM reading", "FROM readings");
        let target = rows(session, &format!("SELECT {names} FROM {table} ORDER BY {names}"));
        // An aggregate of no rows is no row of a step.
        let wanted = rows(
            session,
            &format!(
                "SELECT {names} FROM ({batch}) q WHERE EXISTS (SELECT 1 FROM readings) ORDER BY {names}"
            ),
        );
        assert_eq!(target, wanted, "{context}: {table}");
        assert!(!is_end || !target.is_empty(), "{context}: {table}");
    }
    let merged = format!(
        "SELECT coalesce(i, meter), CASE WHEN i IS NULL THEN 0 ELSE 1000 END + coalesce(n, 0) FROM generate_series(0, 20) g(i)
            FULL JOIN (SELECT meter, n FROM {} ORDER BY n DESC, meter LIMIT 4) t ON t.meter = i",
        METERS.replace("FROM reading", "FROM readings")
    );
    let bonus = rows(session, "SELECT meter, points FROM bonus ORDER BY meter");
    assert_eq!(bonus, rows(session, &(merged + " ORDER BY 1")), "{context}: bonus");
    if is_end {
        for (table, query) in [
            ("first", "SELECT at, kw FROM readings ORDER BY at LIMIT 9"),
            ("fourth", "SELECT at, kw FROM readings WHERE kw > 20 ORDER BY at ASC, kw LIMIT 5 OFFSET 3"),
        ] {
            let target = rows(session, &format!("SELECT at, kw FROM {table} ORDER BY at"));
            assert_eq!(target, rows(session, query), "{context}: {table}");
        }
        let best = "SELECT window_start, meter, count(*) AS n FROM TUMBLE(readings, at, INTERVAL '1 hour')
            GROUP BY window_start, meter ORDER BY n DESC, window_start, meter LIMIT 1";
        assert_eq!(rows(session, "SELECT * FROM best_hour"), rows(session, best), "{context}: best_hour");
    }
    session.execute("COMMIT").unwrap();
}

/// Opens a database, or opens it again.
fn open(directory: &Path) -> (Database, Session) {
    let database = Database::open(directory, Options::default()).unwrap();
    let session = database.session().unwrap();
    (database, session)
}

#[test]
fn first_rows_equal_their_queries_over_aborts_and_kills() {
    let mut random = Random(19);
    for boundary in ["EACH ROW", "EVERY 13 ROWS", "EVERY 150 ROWS"] {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..5 {
            let (database, mut session) = open(directory.path());
            if round == 0 {
                create(&mut session, boundary);
            }
            if round == 4 {
                wait_for_end(&mut session, "x");
            } else {
                std::thread::sleep(std::time::Duration::from_millis(random.below(80) as u64));
            }
            compare(&mut session, boundary, round == 4);
            if round == 1 {
                drop(session);
                database.close().unwrap();
            } else if round == 4 {
                assert!(database.check(|_| {}).unwrap().problems.is_empty());
            }
        }
    }
}

/// Views and sinks of first rows follow them, and of equal rows the one that came before is the first.
#[test]
fn views_and_sinks_have_the_first_rows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("top.json");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "{READING}; CREATE TOPOLOGY copying AS (INSERT INTO readings SELECT at, meter, feeder, kw FROM reading);
             CREATE MATERIALIZED VIEW most AS SELECT meter, count(*) AS n FROM reading GROUP BY meter ORDER BY n DESC, meter LIMIT 3;
             CREATE MATERIALIZED VIEW top AS SELECT at, kw FROM reading ORDER BY kw DESC LIMIT 1;
             CREATE MATERIALIZED VIEW mean AS SELECT sum(kw) AS kw FROM (SELECT kw FROM reading ORDER BY kw DESC LIMIT 10) r;
             CREATE SINK sent AS SELECT meter, kw FROM reading ORDER BY kw DESC, at LIMIT 4
                 WITH (connector = 'file', path = '{}') FORMAT PLAIN ENCODE JSON",
            path.display()
        ))
        .unwrap();
    for name in ["copying", "most", "top", "mean", "sent"] {
        wait_for_end(&mut session, name);
    }
    let most = "SELECT meter, count(*) AS n FROM readings GROUP BY meter ORDER BY n DESC, meter LIMIT 3";
    assert_eq!(
        rows(&mut session, "SELECT meter, n FROM most ORDER BY n DESC, meter"),
        rows(&mut session, most)
    );
    let first = "SELECT at, kw FROM readings ORDER BY kw DESC, at LIMIT 1";
    assert_eq!(rows(&mut session, "SELECT at, kw FROM top"), rows(&mut session, first));
    let mean = "SELECT sum(kw) FROM (SELECT kw FROM readings ORDER BY kw DESC LIMIT 10) r";
    assert_eq!(rows(&mut session, "SELECT kw FROM mean"), rows(&mut session, mean));
    // Changes that are added up are the rows.
    let mut there: Vec<(String, String)> = Vec::new();
    for line in std::fs::read_to_string(&path).unwrap().lines() {
        let value = |name: &str| {
            let rest = line.split_once(&format!("\"{name}\":")).unwrap().1;
            rest.split([',', '}']).next().unwrap().trim_matches('"').to_owned()
        };
        let row = (value("meter"), value("kw"));
        match value("change_type").as_str() {
            "insert" => there.push(row),
            _ => drop(there.remove(there.iter().position(|other| *other == row).unwrap())),
        }
        assert!(there.len() <= 5, "{there:?}");
    }
    there.sort();
    let wanted = rows(&mut session, "SELECT meter, kw FROM readings ORDER BY kw DESC, at LIMIT 4");
    let mut wanted: Vec<(String, String)> =
        wanted.into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    wanted.sort();
    assert_eq!(there, wanted);
}

#[test]
fn what_has_no_first_rows_is_refused() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "{READING}; CREATE TABLE t (meter INT PRIMARY KEY, kw INT); CREATE TABLE keyless (meter INT, kw INT)"
        ))
        .unwrap();
    let upsert = "ON CONFLICT (meter) DO UPDATE SET kw = EXCLUDED.kw";
    for (step, expected) in [
        (format!("SELECT meter, kw FROM reading ORDER BY kw {upsert}"), "ORDER BY or OFFSET without LIMIT"),
        (
            format!("SELECT meter, kw FROM reading ORDER BY kw LIMIT ALL {upsert}"),
            "ORDER BY or OFFSET without LIMIT",
        ),
        (
            format!("SELECT meter, kw FROM reading ORDER BY kw OFFSET 3 {upsert}"),
            "ORDER BY or OFFSET without LIMIT",
        ),
        (format!("SELECT meter, kw FROM reading LIMIT 3 {upsert}"), "LIMIT without ORDER BY"),
        (format!("SELECT meter, kw FROM reading ORDER BY kw LIMIT 0 {upsert}"), "LIMIT 0 in a step"),
        (
            format!("SELECT meter, kw FROM reading ORDER BY kw LIMIT 20000 {upsert}"),
            "up to 20000: at most 10000 rows",
        ),
        (
            format!("SELECT meter, kw FROM reading ORDER BY kw LIMIT 3 {upsert}"),
            "into a table whose key is that of the rows that are ordered, if they have one, or their place",
        ),
        (
            "SELECT meter, kw FROM reading ORDER BY kw LIMIT 1".to_owned(),
            "the rows of ORDER BY and LIMIT, which change with later rows, other than ON CONFLICT (key) DO UPDATE",
        ),
    ] {
        let error = session.execute(&format!("CREATE TOPOLOGY x AS (INSERT INTO t {step})")).unwrap_err();
        assert!(error.to_string().contains(expected), "{step}: {error}");
        assert_eq!(sqlstate(&error), "0A000", "{step}: {error}");
    }
    let view = "CREATE MATERIALIZED VIEW v AS SELECT meter, kw FROM reading ORDER BY kw DESC LIMIT 3";
    let error = session.execute(view).unwrap_err().to_string();
    assert!(error.contains("the rows of ORDER BY and LIMIT"), "{error}");
    let keyless =
        "CREATE TOPOLOGY x AS (INSERT INTO keyless SELECT meter, kw FROM reading ORDER BY kw LIMIT 1)";
    assert_eq!(sqlstate(&session.execute(keyless).unwrap_err()), "0A000");
}

#[test]
fn explain_says_what_is_kept() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "{READING}; CREATE TABLE t (meter INT PRIMARY KEY, n BIGINT);
             CREATE TOPOLOGY x AS (INSERT INTO t SELECT meter, count(*) AS n FROM reading GROUP BY meter ORDER BY n DESC LIMIT 3 OFFSET 2
                 ON CONFLICT (meter) DO UPDATE SET n = EXCLUDED.n)"
        ))
        .unwrap();
    let plan: Vec<String> = rows(&mut session, "EXPLAIN TOPOLOGY x").into_iter().flatten().collect();
    for text in [
        "first 5 rows of an order, without the first 2, sent at each commit, as far as they have changed of changes, with all rows",
        "changes, rows are taken back, by meter",
    ] {
        assert!(plan.iter().any(|line| line.contains(text)), "{text}: {plan:#?}");
    }
}
