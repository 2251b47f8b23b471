//! Window functions over rows in SQL: what is written equals the query over all rows that were not late; restarts,
//! kills and aborts; late rows; results of windows; refusals.

use super::{Random, SOURCE, append, rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};

fn tables(session: &mut Session) {
    session.execute(SOURCE).unwrap();
    session
        .execute(
            "CREATE TABLE readings (at TIMESTAMP, meter INT, feeder VARCHAR, kw DOUBLE, cost DECIMAL(8,2), PRIMARY KEY (at, meter));
             CREATE TABLE moving (meter INT, at TIMESTAMP, n BIGINT, rows10 BIGINT, cost DECIMAL(20,2), mean DOUBLE, most DOUBLE, before DOUBLE,
                 PRIMARY KEY (meter, at));
             CREATE TABLE ranged (feeder VARCHAR, at TIMESTAMP, meters BIGINT, cost DECIMAL(20,2), first_kw DOUBLE, last_kw DOUBLE, middle DOUBLE,
                 PRIMARY KEY (feeder, at));
             CREATE TABLE running (meter INT, at TIMESTAMP, total DECIMAL(20,2), most DOUBLE, first_at TIMESTAMP, place BIGINT, dense BIGINT,
                 PRIMARY KEY (meter, at));
             CREATE TABLE everything (at TIMESTAMP PRIMARY KEY, n BIGINT, feeders VARCHAR);
             CREATE TABLE trend (meter INT, hour TIMESTAMP, kw DOUBLE, change DOUBLE, three DOUBLE, PRIMARY KEY (meter, hour));
             CREATE TABLE jumps (meter INT, at TIMESTAMP, kw DOUBLE, PRIMARY KEY (meter, at));
             CREATE TABLE blocks (hour TIMESTAMP PRIMARY KEY, readings BIGINT, n BIGINT)",
        )
        .unwrap();
}

const STEPS: &str = "
    INSERT INTO readings SELECT * FROM reading;
    INSERT INTO moving SELECT meter, at,
            row_number() OVER (PARTITION BY meter ORDER BY at),
            count(*) OVER last10, sum(cost) OVER last10, avg(kw) FILTER (WHERE kw > 20) OVER last10,
            max(kw) OVER (PARTITION BY meter ORDER BY at ROWS BETWEEN 5 PRECEDING AND 2 PRECEDING),
            lag(kw, 3, -1.0) OVER (PARTITION BY meter ORDER BY at)
        FROM reading WINDOW last10 AS (PARTITION BY meter ORDER BY at ROWS BETWEEN 9 PRECEDING AND CURRENT ROW);
    INSERT INTO ranged SELECT feeder, at, count(DISTINCT meter) OVER w, sum(cost) OVER w, first_value(kw) OVER w,
            last_value(kw) OVER (PARTITION BY feeder ORDER BY at RANGE BETWEEN INTERVAL '5 minutes' PRECEDING AND INTERVAL '1 minute' PRECEDING),
            median(kw) OVER w
        FROM reading WINDOW w AS (PARTITION BY feeder ORDER BY at RANGE BETWEEN INTERVAL '10 minutes' PRECEDING AND CURRENT ROW);
    INSERT INTO running SELECT meter, at, sum(cost) OVER (PARTITION BY meter ORDER BY at), max(kw) OVER (PARTITION BY meter ORDER BY at),
            first_value(at) OVER (PARTITION BY meter ORDER BY at), rank() OVER (PARTITION BY meter ORDER BY at),
            dense_rank() OVER (PARTITION BY meter ORDER BY at)
        FROM reading WHERE kw > 5;
    INSERT INTO everything SELECT at, row_number() OVER (ORDER BY at), string_agg(feeder, ',') OVER (ORDER BY at ROWS 2 PRECEDING)
        FROM reading;
    CREATE STREAM per_hour AS SELECT meter, window_start, max(kw) AS kw FROM TUMBLE(reading, at, INTERVAL '1 hour') GROUP BY meter, window_start;
    INSERT INTO trend SELECT meter, window_start, kw, kw - lag(kw) OVER (PARTITION BY meter ORDER BY window_start),
            max(kw) OVER (PARTITION BY meter ORDER BY window_start ROWS 2 PRECEDING)
        FROM per_hour;
    INSERT INTO jumps SELECT meter, at, kw
        FROM (SELECT *, lag(kw) OVER (PARTITION BY meter ORDER BY at) AS before FROM reading) r WHERE kw > before + 60 AND before < 30;
    CREATE STREAM numbered AS SELECT at, row_number() OVER (PARTITION BY feeder, meter % 3 ORDER BY at) AS n FROM reading;
    INSERT INTO blocks SELECT window_start, count(*), sum(n)::bigint FROM TUMBLE(numbered, at, INTERVAL '1 hour') GROUP BY window_start";

/// Targets, and the queries over all readings that they equal.
const AT_END: [(&str, &str); 7] = [
    (
        "SELECT meter, at, n, rows10, cost, round(mean, 6), most, before FROM moving",
        "SELECT meter, at, row_number() OVER (PARTITION BY meter ORDER BY at), count(*) OVER w, sum(cost) OVER w,
            round(avg(CASE WHEN kw > 20 THEN kw END) OVER w, 6),
            max(kw) OVER (PARTITION BY meter ORDER BY at ROWS BETWEEN 5 PRECEDING AND 2 PRECEDING),
            lag(kw, 3, -1.0) OVER (PARTITION BY meter ORDER BY at)
            FROM readings WINDOW w AS (PARTITION BY meter ORDER BY at ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)",
    ),
    (
        "SELECT feeder, at, meters, cost, first_kw, last_kw, middle FROM ranged",
        "SELECT r.feeder, r.at, count(DISTINCT o.meter), sum(o.cost), first_value(o.kw ORDER BY o.at),
            last_value(o.kw ORDER BY o.at) FILTER (WHERE o.at >= r.at - INTERVAL '5 minutes' AND o.at <= r.at - INTERVAL '1 minute'),
            median(o.kw)
            FROM readings r JOIN readings o ON o.feeder = r.feeder AND o.at <= r.at AND o.at >= r.at - INTERVAL '10 minutes'
            GROUP BY r.feeder, r.at",
    ),
    (
        "SELECT meter, at, total, most, first_at, place, dense FROM running",
        "SELECT meter, at, sum(cost) OVER w, max(kw) OVER w, first_value(at) OVER w, rank() OVER w, dense_rank() OVER w
            FROM readings WHERE kw > 5 WINDOW w AS (PARTITION BY meter ORDER BY at)",
    ),
    (
        "SELECT at, n, feeders FROM everything",
        "SELECT at, n, concat_ws(',', b2, b1, feeder) FROM (SELECT at, feeder, row_number() OVER (ORDER BY at) AS n,
            lag(feeder, 1) OVER (ORDER BY at) AS b1, lag(feeder, 2) OVER (ORDER BY at) AS b2 FROM readings) r",
    ),
    (
        "SELECT meter, hour, kw, change, three FROM trend",
        "SELECT meter, hour, kw, kw - lag(kw) OVER (PARTITION BY meter ORDER BY hour),
            max(kw) OVER (PARTITION BY meter ORDER BY hour ROWS 2 PRECEDING)
            FROM (SELECT meter, date_trunc('hour', at) AS hour, max(kw) AS kw FROM readings GROUP BY 1, 2) h",
    ),
    (
        "SELECT meter, at, kw FROM jumps",
        "SELECT meter, at, kw FROM (SELECT *, lag(kw) OVER (PARTITION BY meter ORDER BY at) AS before FROM readings) r
            WHERE kw > before + 60 AND before < 30",
    ),
    (
        "SELECT hour, readings, n FROM blocks",
        "SELECT date_trunc('hour', at), count(*), sum(n)::bigint
            FROM (SELECT at, row_number() OVER (PARTITION BY feeder, meter % 3 ORDER BY at) AS n FROM readings) r GROUP BY 1",
    ),
];

fn compare(session: &mut Session) {
    for (target, query) in AT_END {
        for (one, other) in [(target, query), (query, target)] {
            let missing = rows(session, &format!("SELECT * FROM ({one} EXCEPT ALL {other}) d LIMIT 3"));
            assert_eq!(missing, Vec::<Vec<String>>::new(), "{one} has more than {other}");
        }
        assert_ne!(rows(session, &format!("SELECT count(*) FROM ({target}) t"))[0], ["0"], "{target}");
    }
}

#[test]
fn values_equal_the_queries_over_all_rows() {
    for (boundary, threads) in [("EACH ROW", 1), ("EVERY 70 ROWS", 3), ("EVERY 10000 ROWS", 2)] {
        let database = Database::volatile(Options::default()).unwrap();
        let mut session = database.session().unwrap();
        tables(&mut session);
        let source = SOURCE.replace("rows = 5000", "rows = 1500");
        session.execute(&format!("DROP SOURCE reading; {source}")).unwrap();
        session
            .execute(&format!(
                "CREATE TOPOLOGY windows COMMIT {boundary} WITH (parallelism = '{threads}') AS ({STEPS})"
            ))
            .unwrap();
        wait_for_end(&mut session, "windows");
        assert_eq!(rows(&mut session, "SELECT count(*) FROM readings")[0], ["1500"]);
        compare(&mut session);
        let explained: Vec<String> =
            rows(&mut session, "EXPLAIN TOPOLOGY windows").into_iter().flatten().collect();
        let text = explained.join("\n");
        for line in [
            "stored of each partition: the last 9 rows, what goes on from its first row; sent in the order of event time",
            "stored of each partition: the rows of 600 s; sent",
            "lag() over rows, stored of each partition: the last 1 rows; sent",
            "append-only",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        drop(session);
        database.close().unwrap();
    }
}

/// Values go on over restarts, crashes and aborts, with any transactions; other steps cannot have their state.
#[test]
fn values_go_on_where_they_were() {
    let mut random = Random(0x0081);
    let directory = tempfile::tempdir().unwrap();
    let steps = format!("{STEPS}; ABORT WHEN (SELECT count(*) FROM CHANGES(readings) WHERE meter = 7) > 1");
    for round in 0..5 {
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            tables(&mut session);
            session
                .execute(&format!("CREATE TOPOLOGY windows COMMIT EVERY 20 ROWS ON ERROR ABORT AS ({steps})"))
                .unwrap();
        }
        if round == 2 {
            let refused = steps.replace("ROWS BETWEEN 9 PRECEDING", "ROWS BETWEEN 8 PRECEDING");
            let error =
                session.execute(&format!("ALTER TOPOLOGY windows AS ({refused})")).unwrap_err().to_string();
            assert!(error.contains("cannot go on with its state in windows_open"), "{error}");
            let altered =
                steps.replace("kw > before + 60 AND before < 30", "kw > before + 60 AND 30 > before");
            session.execute(&format!("ALTER TOPOLOGY windows AS ({altered})")).unwrap();
        }
        if round == 4 {
            wait_for_end(&mut session, "windows");
            let count = rows(&mut session, "SELECT count(*) FROM readings")[0][0].parse::<u64>().unwrap();
            assert!((500..5000).contains(&count), "{count}");
            compare(&mut session);
            break;
        }
        let more = 250 * (round + 1) + random.below(100);
        wait_for(&mut session, &format!("SELECT count(*) > {more} FROM readings"), "true");
        // Left as by a crash, paused and closed, or closed.
        if round == 1 {
            session.execute("ALTER TOPOLOGY windows PAUSE; ALTER TOPOLOGY windows RESUME").unwrap();
        }
        if round % 2 == 1 {
            drop(session);
            database.close().unwrap();
        }
    }
}

/// Rows that come out of order are in the order of their times; those behind the watermark are stored.
#[test]
fn late_rows_count_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("door.csv");
    append(
        &path,
        "at,door,people\n2026-01-01 10:00:30,1,3\n2026-01-01 10:00:10,1,1\n2026-01-01 10:00:20,2,2\n",
    );
    append(&path, "2026-01-01 10:02:00,1,9\n2026-01-01 10:00:05,2,7\n2026-01-01 10:01:30,1,8\n");
    append(&path, "2026-01-01 10:10:00,2,9\n");
    let open = || Database::open(directory.path().join("db"), Options::default()).unwrap();
    {
        let database = open();
        let mut session = database.session().unwrap();
        session
            .execute(&format!(
                "CREATE SOURCE door (at TIMESTAMP NOT NULL, door INT NOT NULL, people INT, WATERMARK FOR at AS at - INTERVAL '1 minute')
                     WITH (connector = 'file', path = '{}', tail = true);
                 CREATE TABLE inside (door INT, n BIGINT, at TIMESTAMP, people BIGINT, before INT, PRIMARY KEY (door, n));
                 CREATE TOPOLOGY doors COMMIT EACH ROW AS (
                     CREATE STREAM counted WITH (state_table = 'last_people') AS
                         SELECT door, row_number() OVER w AS n, at, sum(people) OVER w AS people, lag(people) OVER w AS before
                         FROM door WINDOW w AS (PARTITION BY door ORDER BY at)
                         EMIT ON WINDOW CLOSE LATE ROWS INTO late_people;
                     INSERT INTO inside SELECT door, n, at, people, before FROM counted)",
                path.display()
            ))
            .unwrap();
        wait_for(&mut session, "SELECT count(*) FROM late_people", "1");
        wait_for(&mut session, "SELECT count(*) FROM inside", "5");
        assert_eq!(
            rows(&mut session, "SELECT door, n, at::time::text, people, before FROM inside ORDER BY door, n"),
            [
                ["1", "1", "10:00:10", "1", ""],
                ["1", "2", "10:00:30", "4", "1"],
                ["1", "3", "10:01:30", "12", "3"],
                ["1", "4", "10:02:00", "21", "8"],
                ["2", "1", "10:00:20", "2", ""],
            ]
        );
        // The last row of each door, with what is carried on, and the one that waits.
        assert_eq!(
            rows(&mut session, "SELECT door, people FROM last_people ORDER BY door, at"),
            [["1", "9"], ["2", "2"], ["2", "9"]]
        );
    }
    append(&path, "2026-01-01 10:20:00,2,4\n");
    let database = open();
    let mut session = database.session().unwrap();
    wait_for(&mut session, "SELECT people FROM inside WHERE door = 2 AND n = 2", "11");
}

/// Values that a step may have, over all kinds of frames.
const VALUES: [&str; 14] = [
    "count(*) OVER (PARTITION BY meter ORDER BY at ROWS 4 PRECEDING)",
    "sum(kw) OVER (PARTITION BY meter ORDER BY at ROWS BETWEEN 6 PRECEDING AND 2 PRECEDING)",
    "avg(kw) OVER (PARTITION BY meter ORDER BY at ROWS 30 PRECEDING)",
    "max(cost) OVER (PARTITION BY meter ORDER BY at RANGE INTERVAL '40 seconds' PRECEDING)",
    "min(kw) OVER (ORDER BY at RANGE BETWEEN INTERVAL '1 minute' PRECEDING AND INTERVAL '10 seconds' PRECEDING)",
    "sum(cost) OVER (PARTITION BY meter ORDER BY at)",
    "count(kw) OVER (ORDER BY at ROWS UNBOUNDED PRECEDING)",
    "max(kw) OVER (PARTITION BY meter % 2 ORDER BY at)",
    "lag(kw, 2) OVER (PARTITION BY meter ORDER BY at)",
    "lag(cost, 1, 7) OVER (ORDER BY at)",
    "first_value(kw) OVER (PARTITION BY meter ORDER BY at)",
    "last_value(kw) OVER (PARTITION BY meter ORDER BY at ROWS BETWEEN 5 PRECEDING AND 1 PRECEDING)",
    "nth_value(kw, 3) OVER (PARTITION BY meter ORDER BY at ROWS 5 PRECEDING)",
    "row_number() OVER (PARTITION BY meter ORDER BY at)",
];

/// Random rows out of order, some of them late; random values, transactions, threads and aborts; kills.
#[test]
fn random_values_equal_their_queries() {
    let mut random = Random(20_261_127);
    for round in 0..8 {
        let directory = tempfile::tempdir().unwrap();
        let mut lines = "at,meter,kw,cost\n".to_owned();
        for n in 0..600 {
            let second = n + 100 - random.below(90);
            let kw = if random.below(20) == 0 {
                String::new()
            } else {
                format!("{}", random.below(800) as f64 / 8.0)
            };
            let (at, meter) =
                (format!("2026-01-01 10:{:02}:{:02}.{n:06}", second / 60, second % 60), random.below(5));
            lines += &format!("{at},{meter},{kw},{}.{:02}\n", random.below(90), random.below(100));
        }
        std::fs::write(directory.path().join("rows.csv"), lines).unwrap();
        let values = [0; 3].map(|_| random.one(&VALUES));
        let columns =
            format!("{}::double AS a, {}::double AS b, {}::double AS c", values[0], values[1], values[2]);
        let boundary = random.one(&["EACH ROW", "EVERY 7 ROWS", "EVERY 100 ROWS"]);
        let (threads, aborted) = (1 + random.below(3), random.below(5));
        let what = format!("round {round}: {values:?}, {boundary}, {threads} threads");
        for run in 0..3 {
            let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
            let mut session = database.session().unwrap();
            if run == 0 {
                session
                    .execute(&format!(
                        "CREATE SOURCE reading (at TIMESTAMP NOT NULL, meter INT NOT NULL, kw DOUBLE, cost DECIMAL(8,2),
                             WATERMARK FOR at AS at - INTERVAL '1 minute')
                             WITH (connector = 'file', path = '{}/rows.csv');
                         CREATE TABLE readings (at TIMESTAMP PRIMARY KEY, meter INT, kw DOUBLE, cost DECIMAL(8,2));
                         CREATE TABLE valued (at TIMESTAMP PRIMARY KEY, meter INT, a DOUBLE, b DOUBLE, c DOUBLE);
                         CREATE TOPOLOGY windows COMMIT {boundary} ON ERROR ABORT WITH (parallelism = '{threads}') AS (
                             INSERT INTO readings SELECT * FROM reading;
                             CREATE STREAM over_rows AS SELECT at, meter, {columns} FROM reading LATE ROWS INTO late_reading;
                             INSERT INTO valued SELECT at, meter, a, b, c FROM over_rows;
                             ABORT WHEN (SELECT count(*) FROM CHANGES(readings) WHERE meter = {aborted} AND cost > 89) > 0)",
                        directory.path().display()
                    ))
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            if run < 2 {
                let more = 100 * (run + 1) + random.below(100);
                let ended = "EXISTS (SELECT 1 FROM entresol.topologies WHERE state = 'ended')";
                wait_for(&mut session, &format!("SELECT count(*) > {more} OR {ended} FROM readings"), "true");
                continue;
            }
            wait_for_end(&mut session, "windows");
            // The end of the file is of the last transaction: if that is aborted, it is left to the next run.
            session.execute("ALTER TOPOLOGY windows RESUME").unwrap();
            wait_for_end(&mut session, "windows");
            let late = rows(&mut session, "SELECT count(*) > 0, count(*) < 400 FROM late_reading");
            assert_eq!(late, [["true", "true"]], "{what}");
            let query = format!(
                "SELECT at, meter, {columns} FROM (SELECT * FROM readings EXCEPT ALL SELECT * FROM late_reading) r"
            );
            for (one, other) in [("SELECT * FROM valued", query.as_str()), (&query, "SELECT * FROM valued")] {
                let missing =
                    rows(&mut session, &format!("SELECT * FROM ({one} EXCEPT ALL {other}) d LIMIT 3"));
                assert_eq!(missing, Vec::<Vec<String>>::new(), "{what}: {one} has more than {other}");
            }
        }
    }
}

#[test]
fn what_cannot_be_over_rows_is_refused_by_name() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    tables(&mut session);
    let step = |value: &str| format!("INSERT INTO jumps SELECT meter, at, {value} FROM reading");
    session
        .execute(&format!(
            "CREATE TOPOLOGY fits AS ({}); DROP TOPOLOGY fits",
            step("avg(kw) OVER (PARTITION BY meter ORDER BY at ROWS 10000 PRECEDING)")
        ))
        .unwrap();
    for (value, expected) in [
        ("sum(kw) OVER (PARTITION BY meter ORDER BY kw)", "other than ORDER BY the event time, ascending"),
        (
            "sum(kw) OVER (PARTITION BY meter ORDER BY at DESC)",
            "other than ORDER BY the event time, ascending",
        ),
        ("sum(kw) OVER (PARTITION BY meter)", "other than ORDER BY the event time, ascending"),
        ("lag(kw) OVER (PARTITION BY meter)", "other than ORDER BY the event time, ascending"),
        (
            "lead(kw) OVER (PARTITION BY meter ORDER BY at)",
            "lead() over a stream: a row is sent when the watermark",
        ),
        ("lag(kw, -1) OVER (PARTITION BY meter ORDER BY at)", "may never be a next one"),
        (
            "lag(kw, 20000) OVER (PARTITION BY meter ORDER BY at)",
            "at most 10000 of each partition are stored",
        ),
        (
            "sum(kw) OVER (PARTITION BY meter ORDER BY at ROWS 20000 PRECEDING)",
            "at most 10000 of each partition",
        ),
        (
            "sum(kw) OVER (PARTITION BY meter ORDER BY at ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
            "FOLLOWING in a frame over a stream",
        ),
        (
            "sum(kw) OVER (PARTITION BY meter ORDER BY at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)",
            "UNBOUNDED PRECEDING AND anything but CURRENT ROW",
        ),
        ("median(kw) OVER (PARTITION BY meter ORDER BY at)", "which goes on from all values so far"),
        ("count(DISTINCT kw) OVER (PARTITION BY meter ORDER BY at)", "which goes on from all values so far"),
        ("nth_value(kw, 2) OVER (PARTITION BY meter ORDER BY at)", "bound the frame"),
        ("ntile(4) OVER (PARTITION BY meter ORDER BY at)", "window function ntile() over a stream"),
        (
            "sum(kw) OVER (PARTITION BY meter ORDER BY at RANGE INTERVAL '1 month' PRECEDING)",
            "an INTERVAL of a fixed length",
        ),
        (
            "sum(kw) OVER (PARTITION BY meter ORDER BY at GROUPS 2 PRECEDING)",
            "a frame of GROUPS over a stream",
        ),
    ] {
        let refused = session.execute(&format!("CREATE TOPOLOGY x AS ({})", step(value)));
        let error = refused.err().unwrap_or_else(|| panic!("{value} is accepted")).to_string();
        assert!(error.contains(expected), "{value}: {error}");
    }
    for (steps, expected) in [
        (
            "INSERT INTO jumps SELECT meter, at, sum(kw) OVER (PARTITION BY window_start ORDER BY at)
                FROM TUMBLE(reading, at, INTERVAL '1 hour')",
            "other columns than the edges of windows",
        ),
        (
            "CREATE STREAM counts AS SELECT meter, count(*) AS n, max(at) AS at FROM reading GROUP BY meter;
             INSERT INTO jumps SELECT meter, at, lag(n) OVER (PARTITION BY meter ORDER BY at) FROM counts",
            "a window function of results of an aggregate without a window",
        ),
    ] {
        let error = session.execute(&format!("CREATE TOPOLOGY x AS ({steps})")).unwrap_err().to_string();
        assert!(error.contains(expected), "{steps}: {error}");
    }
}
