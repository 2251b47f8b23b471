//! Rankings in SQL: what is written equals the query over all rows, at each commit; late rows; restarts; refusals.

use super::{SOURCE, append, rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};
use std::path::Path;

/// Tables with all readings, and with what each ranking writes.
fn tables(session: &mut Session) {
    session.execute(SOURCE).unwrap();
    session
        .execute(
            "CREATE TABLE readings (at TIMESTAMP, meter INT, feeder VARCHAR, kw DOUBLE, cost DECIMAL(8,2), PRIMARY KEY (at, meter));
             CREATE TABLE top (meter INT, place BIGINT, at TIMESTAMP, kw DOUBLE, PRIMARY KEY (meter, place));
             CREATE TABLE last (meter INT PRIMARY KEY, at TIMESTAMP, feeder VARCHAR, kw DOUBLE);
             CREATE TABLE latest (feeder VARCHAR PRIMARY KEY, at TIMESTAMP, meter INT);
             CREATE TABLE high (meter INT, place BIGINT, kw DOUBLE, PRIMARY KEY (meter, place));
             CREATE TABLE tops (place BIGINT PRIMARY KEY, meters BIGINT, least DOUBLE, cost DECIMAL(20,2));
             CREATE TABLE first (meter INT, at TIMESTAMP, kw DOUBLE, PRIMARY KEY (meter, at));
             CREATE TABLE hourly (feeder VARCHAR, from_time TIMESTAMP, place BIGINT, at TIMESTAMP, kw DOUBLE);
             CREATE TABLE busy (from_time TIMESTAMP, place BIGINT, meter INT, readings BIGINT, kw DOUBLE);
             CREATE TABLE ends (until TIMESTAMP, place BIGINT, meter INT, at TIMESTAMP)",
        )
        .unwrap();
}

/// Steps of each kind of ranking.
const STEPS: &str = "
    INSERT INTO readings SELECT * FROM reading;
    INSERT INTO top SELECT meter, place, at, kw
        FROM (SELECT *, row_number() OVER (PARTITION BY meter ORDER BY kw DESC, at) AS place FROM reading) r
        WHERE place <= 3
        ON CONFLICT (meter, place) DO UPDATE SET at = EXCLUDED.at, kw = EXCLUDED.kw;
    INSERT INTO last SELECT meter, at, feeder, kw
        FROM (SELECT *, row_number() OVER (PARTITION BY meter ORDER BY at DESC) AS place FROM reading WHERE kw > 10) r
        WHERE 1 >= place
        ON CONFLICT (meter) DO UPDATE SET at = EXCLUDED.at, feeder = EXCLUDED.feeder, kw = EXCLUDED.kw;
    CREATE STREAM newest AS SELECT DISTINCT ON (feeder) at, feeder, meter FROM reading ORDER BY feeder, at DESC;
    INSERT INTO latest SELECT feeder, at, meter FROM newest
        ON CONFLICT (feeder) DO UPDATE SET at = EXCLUDED.at, meter = EXCLUDED.meter;
    INSERT INTO first SELECT meter, at, kw
        FROM (SELECT *, row_number() OVER (PARTITION BY meter ORDER BY at) AS place FROM reading) r
        WHERE place < 3 AND kw > 5;
    INSERT INTO hourly SELECT feeder, window_start, place, at, kw
        FROM (SELECT *, rank() OVER (PARTITION BY feeder, window_start ORDER BY trunc(kw / 10) DESC) AS place
            FROM TUMBLE(reading, at, INTERVAL '1 hour')) r
        WHERE place BETWEEN 2 AND 40;
    CREATE STREAM per_meter AS SELECT meter, window_start, count(*) AS readings, max(kw) AS kw
        FROM TUMBLE(reading, at, INTERVAL '1 hour') GROUP BY meter, window_start;
    INSERT INTO busy SELECT window_start, place, meter, readings, kw
        FROM (SELECT *, dense_rank() OVER (PARTITION BY window_start ORDER BY readings DESC) AS place FROM per_meter) r
        WHERE place <= 2;
    INSERT INTO ends SELECT window_end, place, meter, at
        FROM (SELECT *, row_number() OVER (PARTITION BY window_end ORDER BY at, meter) AS place
            FROM CUMULATE(reading, at, INTERVAL '30 minutes', INTERVAL '1 hour')) r
        WHERE place = 1;
    CREATE STREAM highest AS SELECT meter, place, kw, cost
        FROM (SELECT *, row_number() OVER (PARTITION BY meter ORDER BY kw DESC, at) AS place FROM reading) r WHERE place <= 4;
    INSERT INTO high SELECT meter, place, kw FROM highest WHERE kw < 97 ON CONFLICT (meter, place) DO UPDATE SET kw = EXCLUDED.kw;
    INSERT INTO tops SELECT place, count(*), min(kw), sum(cost) FROM highest WHERE place > 1 GROUP BY place
        ON CONFLICT (place) DO UPDATE SET meters = EXCLUDED.meters, least = EXCLUDED.least, cost = EXCLUDED.cost";

/// Targets, and the queries over all readings that they equal at each commit.
const AT_COMMIT: [(&str, &str); 5] = [
    (
        "SELECT meter, place, at, kw FROM top",
        "SELECT meter, place, at, kw FROM (SELECT *, row_number() OVER (PARTITION BY meter ORDER BY kw DESC, at) AS place
            FROM readings) r WHERE place <= 3",
    ),
    (
        "SELECT meter, place, kw FROM high",
        "SELECT meter, place, kw FROM (SELECT *, row_number() OVER (PARTITION BY meter ORDER BY kw DESC, at) AS place
            FROM readings) r WHERE place <= 4 AND kw < 97",
    ),
    (
        "SELECT place, meters, least, cost FROM tops",
        "SELECT place, count(*), min(kw), sum(cost) FROM (SELECT *, row_number() OVER (PARTITION BY meter ORDER BY kw DESC, at) AS place
            FROM readings) r WHERE place BETWEEN 2 AND 4 GROUP BY place",
    ),
    (
        "SELECT meter, at, feeder, kw FROM last",
        "SELECT meter, at, feeder, kw FROM (SELECT *, row_number() OVER (PARTITION BY meter ORDER BY at DESC) AS place
            FROM readings WHERE kw > 10) r WHERE place = 1",
    ),
    (
        "SELECT feeder, at, meter FROM latest",
        "SELECT feeder, at, meter FROM (SELECT *, row_number() OVER (PARTITION BY feeder ORDER BY at DESC) AS place
            FROM readings) r WHERE place = 1",
    ),
];

/// Targets that are complete at the end.
const AT_END: [(&str, &str); 4] = [
    (
        "SELECT meter, at, kw FROM first",
        "SELECT meter, at, kw FROM (SELECT *, row_number() OVER (PARTITION BY meter ORDER BY at) AS place
            FROM readings) r WHERE place <= 2 AND kw > 5",
    ),
    (
        "SELECT feeder, from_time, place, at, kw FROM hourly",
        "SELECT feeder, hour, place, at, kw FROM (SELECT *, rank() OVER (PARTITION BY feeder, hour ORDER BY trunc(kw / 10) DESC) AS place
            FROM (SELECT *, date_trunc('hour', at) AS hour FROM readings) h) r WHERE place BETWEEN 2 AND 40",
    ),
    (
        "SELECT from_time, place, meter, readings, kw FROM busy",
        "SELECT hour, place, meter, readings, kw
            FROM (SELECT *, dense_rank() OVER (PARTITION BY hour ORDER BY readings DESC) AS place
                FROM (SELECT meter, date_trunc('hour', at) AS hour, count(*) AS readings, max(kw) AS kw
                    FROM readings GROUP BY 1, 2) h) r
            WHERE place <= 2",
    ),
    (
        "SELECT until, place, meter, at FROM ends",
        "SELECT until, place, meter, at FROM (SELECT *, row_number() OVER (PARTITION BY until ORDER BY at, meter) AS place
            FROM (SELECT meter, at, date_trunc('hour', at) + INTERVAL '1 hour' AS until FROM readings
                UNION ALL SELECT meter, at, date_trunc('hour', at) + INTERVAL '30 minutes' FROM readings
                    WHERE at < date_trunc('hour', at) + INTERVAL '30 minutes') c) r
            WHERE place = 1",
    ),
];

/// Rows of one query that another has not, as texts.
fn missing(session: &mut Session, one: &str, other: &str) -> Vec<Vec<String>> {
    rows(session, &format!("SELECT * FROM ({one} EXCEPT ALL {other}) d LIMIT 3"))
}

fn compare(session: &mut Session, pairs: &[(&str, &str)]) {
    for (target, query) in pairs {
        assert_eq!(
            missing(session, target, query),
            Vec::<Vec<String>>::new(),
            "{target} has more than {query}"
        );
        assert_eq!(
            missing(session, query, target),
            Vec::<Vec<String>>::new(),
            "{target} has less than {query}"
        );
    }
}

#[test]
fn rankings_equal_the_queries_over_all_rows() {
    for boundary in ["EACH ROW", "EVERY 70 ROWS", "EVERY 10000 ROWS"] {
        let database = Database::volatile(Options::default()).unwrap();
        let mut session = database.session().unwrap();
        tables(&mut session);
        let source = SOURCE.replace("rows = 5000", "rows = 1500");
        session.execute(&format!("DROP SOURCE reading; {source}")).unwrap();
        session.execute(&format!("CREATE TOPOLOGY ranked COMMIT {boundary} AS ({STEPS})")).unwrap();
        // What changes while rows come is right at any commit.
        for _ in 0..5 {
            session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
            compare(&mut session, &AT_COMMIT);
            session.execute("COMMIT").unwrap();
        }
        wait_for_end(&mut session, "ranked");
        assert_eq!(rows(&mut session, "SELECT count(*) FROM readings")[0], ["1500"]);
        compare(&mut session, &AT_COMMIT);
        compare(&mut session, &AT_END);
        for (target, _) in AT_COMMIT.iter().chain(&AT_END) {
            assert_ne!(
                rows(&mut session, &format!("SELECT count(*) FROM ({target}) t"))[0],
                ["0"],
                "{target}"
            );
        }
        let explained = rows(&mut session, "EXPLAIN TOPOLOGY ranked");
        for line in [
            "  state ranked_open: ranking by row_number(), first 3, sent at each commit, as far as they have changed",
            "  state ranked_open_4: ranking by row_number(), first 2, sent in the order of event time",
            "  state ranked_open_5: ranking by rank(), first 40, sent when windows close",
            "  state ranked_open_6: windows",
        ] {
            assert!(explained.iter().any(|row| row[0] == line), "{line}: {explained:?}");
        }
        let operators = "SELECT count(*) FROM entresol.operators WHERE operator LIKE 'rank %'";
        assert_eq!(rows(&mut session, operators)[0], ["8"]);
        drop(session);
        database.close().unwrap();
    }
}

/// A ranking goes on over restarts, crashes and aborts, and with other steps behind it.
#[test]
fn rankings_go_on_where_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let mut steps =
        format!("{STEPS}; ABORT WHEN (SELECT count(*) FROM CHANGES(readings) WHERE meter = 7) > 1");
    for round in 0..4 {
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            tables(&mut session);
            session
                .execute(&format!("CREATE TOPOLOGY ranked COMMIT EVERY 20 ROWS ON ERROR ABORT AS ({steps})"))
                .unwrap();
        }
        if round == 2 {
            steps = steps.replace("WHERE place < 3 AND kw > 5", "WHERE place < 3 AND kw > 5.0");
            let refused = steps.replace("WHERE place <= 3", "WHERE place <= 4");
            let error =
                session.execute(&format!("ALTER TOPOLOGY ranked AS ({refused})")).unwrap_err().to_string();
            assert!(error.contains("cannot go on with its state in ranked_open:"), "{error}");
            session.execute(&format!("ALTER TOPOLOGY ranked AS ({steps})")).unwrap();
        }
        if round == 3 {
            wait_for_end(&mut session, "ranked");
            let aborts = rows(&mut session, "SELECT aborts > 0 FROM entresol.topologies");
            assert!(aborts[0][0] == "true" || aborts[0][0] == "false");
            let count = rows(&mut session, "SELECT count(*) FROM readings")[0][0].parse::<u64>().unwrap();
            assert!((500..5000).contains(&count), "{count}");
            compare(&mut session, &AT_COMMIT);
            compare(&mut session, &AT_END);
            break;
        }
        let more = 300 * (round + 1);
        wait_for(&mut session, &format!("SELECT count(*) > {more} FROM readings"), "true");
        // Left as by a crash, or closed.
        if round == 1 {
            drop(session);
            database.close().unwrap();
        }
    }
}

/// The first row of each key, in order of time; later copies and late rows are none.
#[test]
fn rows_out_of_order_are_deduplicated_by_their_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("payments.csv");
    append(
        &path,
        "at,id,amount\n2026-01-01 10:00:30,1,3\n2026-01-01 10:00:10,1,1\n2026-01-01 10:00:20,2,2\n",
    );
    append(&path, "2026-01-01 10:02:00,1,9\n2026-01-01 10:00:05,3,7\n2026-01-01 10:00:59,3,8\n");
    append(&path, "2026-01-01 10:10:00,2,9\n");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE payment (at TIMESTAMP NOT NULL, id INT NOT NULL, amount INT,
                     WATERMARK FOR at AS at - INTERVAL '1 minute')
                 WITH (connector = 'file', path = '{}', tail = true);
             CREATE TABLE once (id INT PRIMARY KEY, at TIMESTAMP, amount INT);
             CREATE TABLE totals (from_time TIMESTAMP PRIMARY KEY, payments BIGINT, amount BIGINT);
             CREATE TOPOLOGY dedup COMMIT EACH ROW AS (
                 CREATE STREAM original WITH (state_table = 'seen') AS
                     SELECT at, id, amount
                     FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY at) AS copy FROM payment) p
                     WHERE copy = 1
                     EMIT ON WINDOW CLOSE LATE ROWS INTO late_payment;
                 INSERT INTO once SELECT id, at, amount FROM original;
                 INSERT INTO totals SELECT window_start, count(*), sum(amount)
                     FROM TUMBLE(original, at, INTERVAL '1 minute') GROUP BY window_start)",
            path.display()
        ))
        .unwrap();
    let once = "SELECT id, at::time::text, amount FROM once ORDER BY id";
    wait_for(&mut session, "SELECT count(*) FROM once", "2");
    wait_for(&mut session, "SELECT count(*) FROM late_payment", "2");
    assert_eq!(rows(&mut session, once), [["1", "10:00:10", "1"], ["2", "10:00:20", "2"]]);
    wait_for(&mut session, "SELECT amount FROM totals", "3");
    drop(session);
    database.close().unwrap();
    drop(database);
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    append(
        Path::new(&path.display().to_string()),
        "2026-01-01 10:11:00,3,5\n2026-01-01 10:10:30,1,4\n2026-01-01 10:20:00,1,6\n",
    );
    wait_for(&mut session, "SELECT count(*) FROM once", "3");
    assert_eq!(rows(&mut session, once)[2], ["3", "10:11:00", "5"]);
    assert_eq!(rows(&mut session, "SELECT count(*), max(slot) FROM seen"), [["3", "0"]]);
}

#[test]
fn what_a_ranking_cannot_do_is_refused_by_name() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    tables(&mut session);
    session.execute("CREATE TABLE places (meter INT PRIMARY KEY, place VARCHAR)").unwrap();
    let top = "SELECT meter, place, at, kw FROM (SELECT *, row_number() OVER (PARTITION BY meter ORDER BY kw DESC) AS place
        FROM reading) r WHERE place <= 3";
    let upsert = "ON CONFLICT (meter, place) DO UPDATE SET at = EXCLUDED.at, kw = EXCLUDED.kw";
    let stream = format!("CREATE STREAM s AS {top}");
    for (steps, expected) in [
        (format!("INSERT INTO top {top}"), "other than ON CONFLICT (key) DO UPDATE"),
        (
            format!("INSERT INTO last SELECT meter, at, 'f', kw FROM ({top}) t ON CONFLICT (meter) DO UPDATE SET
                at = EXCLUDED.at, feeder = EXCLUDED.feeder, kw = EXCLUDED.kw"),
            "a table whose key is the columns of PARTITION BY and the rank",
        ),
        (format!("INSERT INTO top {} {upsert}", top.replace("<= 3", "<= 20000")), "at most 10000 rows"),
        (format!("INSERT INTO top {} {upsert}", top.replace("<= 3", ">= 3")), "WHERE rank <= n"),
        (format!("INSERT INTO top {} {upsert}", top.replace("row_number", "rank")), "several rows have one rank"),
        (format!("INSERT INTO top {} {upsert}", top.replace("row_number", "percent_rank")), "percent_rank() over a stream"),
        (format!("INSERT INTO top {} {upsert}", top.replace("ORDER BY kw DESC", "")), "without ORDER BY"),
        (
            format!("INSERT INTO top {} {upsert}", top.replace("PARTITION BY meter", "PARTITION BY meter % 3")),
            "PARTITION BY of an expression",
        ),
        (
            "INSERT INTO top SELECT meter, a, at, kw FROM (SELECT *, row_number() OVER (PARTITION BY meter ORDER BY kw) AS a,
                rank() OVER (PARTITION BY meter ORDER BY kw) AS b FROM reading) r WHERE a <= 3"
                .to_owned(),
            "other than ORDER BY the event time, ascending",
        ),
        (
            "INSERT INTO latest SELECT DISTINCT ON (feeder) feeder, at, meter FROM reading".to_owned(),
            "a ranking of a stream without ORDER BY",
        ),
        (
            format!("{stream}; INSERT INTO last SELECT p.meter, at, p.place, kw FROM s JOIN places p ON p.meter = s.meter"),
            "INSERT INTO last of ranked rows that change",
        ),
        (
            format!("{stream}; INSERT INTO first SELECT meter, window_start, max(kw) FROM SESSION(s, at, INTERVAL '1 hour')
                GROUP BY meter, window_start"),
            "INSERT INTO first of results of an aggregate without a window",
        ),
        (format!("{stream}; INSERT INTO top SELECT * FROM s UNION ALL SELECT * FROM s"), "INSERT INTO top of ranked rows that change"),
        (format!("INSERT INTO top {top} {upsert} LATE ROWS INTO l"), "none is late"),
        (
            "INSERT INTO ends SELECT window_end, place, meter, at FROM (SELECT *, row_number() OVER
                (PARTITION BY window_start ORDER BY at) AS place FROM SESSION(reading, at, INTERVAL '1 hour')) r WHERE place = 1"
                .to_owned(),
            "an edge of SESSION(relation, time, gap) other than in GROUP BY",
        ),
    ] {
        let refused = session.execute(&format!("CREATE TOPOLOGY x AS ({steps})"));
        let error = refused.err().unwrap_or_else(|| panic!("{steps} is accepted")).to_string();
        assert!(error.contains(expected), "{steps}: {error}");
    }
}
