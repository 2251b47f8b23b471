//! Topologies in SQL: what they write equals the same query over all of their input; they are there again when
//! the database is opened; what they cannot do is refused by name.
#![allow(clippy::unwrap_used)]

#[path = "topologies/aborts.rs"]
mod aborts;
#[path = "topologies/aggregates.rs"]
mod aggregates;
#[path = "topologies/alterations.rs"]
mod alterations;
#[path = "topologies/altered_tables.rs"]
mod altered_tables;
#[path = "topologies/asof_joins.rs"]
mod asof_joins;
#[path = "topologies/boundaries.rs"]
mod boundaries;
#[path = "topologies/bounded_memory.rs"]
mod bounded_memory;
#[path = "topologies/chains.rs"]
mod chains;
#[path = "topologies/changing_joins.rs"]
mod changing_joins;
#[path = "topologies/common_parts.rs"]
mod common_parts;
#[path = "topologies/computed_columns.rs"]
mod computed_columns;
#[path = "topologies/conflicts.rs"]
mod conflicts;
#[path = "topologies/corrections.rs"]
mod corrections;
#[path = "topologies/deferred_views.rs"]
mod deferred_views;
#[path = "topologies/dependents.rs"]
mod dependents;
#[path = "topologies/documents.rs"]
mod documents;
#[path = "topologies/emission.rs"]
mod emission;
#[path = "topologies/envelopes.rs"]
mod envelopes;
#[path = "topologies/examples.rs"]
mod examples;
#[path = "topologies/failures.rs"]
mod failures;
#[path = "topologies/files.rs"]
mod files;
#[path = "topologies/first_rows.rs"]
mod first_rows;
#[path = "topologies/joins.rs"]
mod joins;
#[path = "topologies/large_states.rs"]
mod large_states;
#[path = "topologies/lifetimes.rs"]
mod lifetimes;
#[path = "topologies/lists.rs"]
mod lists;
#[path = "topologies/materialized_streams.rs"]
mod materialized_streams;
#[path = "topologies/names.rs"]
mod names;
#[path = "topologies/nexmark.rs"]
mod nexmark;
#[path = "topologies/own_changes.rs"]
mod own_changes;
#[path = "topologies/owned_targets.rs"]
mod owned_targets;
#[path = "topologies/parallel.rs"]
mod parallel;
#[path = "topologies/parquet.rs"]
mod parquet;
#[path = "topologies/patterns.rs"]
mod patterns;
#[path = "topologies/ranking.rs"]
mod ranking;
#[path = "topologies/real_series.rs"]
mod real_series;
#[path = "topologies/replacement.rs"]
mod replacement;
#[path = "topologies/row_windows.rs"]
mod row_windows;
#[path = "topologies/running.rs"]
mod running;
#[path = "topologies/same_patterns.rs"]
mod same_patterns;
#[path = "topologies/same_windows.rs"]
mod same_windows;
#[path = "topologies/seeking.rs"]
mod seeking;
#[path = "topologies/sessions.rs"]
mod sessions;
#[path = "topologies/shown.rs"]
mod shown;
#[path = "topologies/sinks.rs"]
mod sinks;
#[path = "topologies/skipping.rs"]
mod skipping;
#[path = "topologies/source_transactions.rs"]
mod source_transactions;
#[path = "topologies/status.rs"]
mod status;
#[path = "topologies/stored_streams.rs"]
mod stored_streams;
#[path = "topologies/stream_views.rs"]
mod stream_views;
#[path = "topologies/table_queries.rs"]
mod table_queries;
#[path = "topologies/table_sources.rs"]
mod table_sources;
#[path = "topologies/tables.rs"]
mod tables;
#[path = "topologies/taken_back.rs"]
mod taken_back;
#[path = "topologies/target_rules.rs"]
mod target_rules;
#[path = "topologies/tcp.rs"]
mod tcp;
#[path = "topologies/user_functions.rs"]
mod user_functions;
#[path = "topologies/window_chains.rs"]
mod window_chains;

use entresol::arrow::util::display::array_value_to_string;
use entresol::{Database, Options, Session};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Rows of a query, as texts.
fn rows(session: &mut Session, sql: &str) -> Vec<Vec<String>> {
    let batches = session.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let text = |column| array_value_to_string(batch.column(column), row).unwrap();
            rows.push((0..batch.num_columns()).map(text).collect());
        }
    }
    rows
}

/// Wait for what a topology does, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a query returns this value.
fn wait_for(session: &mut Session, sql: &str, wanted: &str) {
    let begin = Instant::now();
    loop {
        let found = rows(session, sql);
        if found.first().is_some_and(|row| row[0] == wanted) {
            return;
        }
        if begin.elapsed() > PATIENCE {
            let topologies = rows(session, "SELECT name, state, error FROM entresol.topologies");
            panic!("{sql}: {found:?}, wanted {wanted}; {topologies:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Messages of the notices since the last call.
fn notices_of(session: &Session) -> Vec<String> {
    session.take_notices().into_iter().map(|notice| notice.message).collect()
}

/// SQLSTATE of an error of a statement.
fn sqlstate(error: &entresol::Error) -> &'static str {
    let source = std::error::Error::source(error);
    source.and_then(|source| source.downcast_ref::<entresol::query::Error>()).unwrap().sqlstate()
}

fn wait_for_end(session: &mut Session, topology: &str) {
    let sql = format!("SELECT state FROM entresol.topologies WHERE name = '{topology}'");
    wait_for(session, &sql, "ended");
}

const SOURCE: &str = "CREATE SOURCE reading (
        at TIMESTAMP NOT NULL, meter INT NOT NULL, feeder VARCHAR NOT NULL, kw DOUBLE, cost DECIMAL(8,2),
        WATERMARK FOR at AS at - INTERVAL '2 minutes'
    ) WITH (connector = 'generator', rows = 5000, step = '7 seconds', meter.cardinality = 20,
        feeder.cardinality = 3, cost.cardinality = 100000)";

/// Tables that hold all readings, and topologies of each kind of step.
fn metering(session: &mut Session) {
    session.execute(SOURCE).unwrap();
    session
        .execute(
            "CREATE TABLE readings (at TIMESTAMP, meter INT, feeder VARCHAR, kw DOUBLE, cost DECIMAL(8,2),
                 PRIMARY KEY (at, meter));
             CREATE TABLE hourly (meter INT, from_time TIMESTAMP, readings BIGINT, many BIGINT, kw DOUBLE,
                 most DOUBLE, cost DECIMAL(20,2), mean_cost NUMERIC(20,6), PRIMARY KEY (meter, from_time));
             CREATE TABLE feeders (feeder VARCHAR, from_time TIMESTAMP, meters BIGINT, kw DOUBLE,
                 PRIMARY KEY (feeder, from_time));
             CREATE TABLE latest (meter INT PRIMARY KEY, at TIMESTAMP, kw DOUBLE, place VARCHAR);
             CREATE TABLE merged (meter INT PRIMARY KEY, at TIMESTAMP, kw DOUBLE);
             CREATE TABLE places (meter INT PRIMARY KEY, place VARCHAR);
             CREATE TABLE changed (meter INT, at TIMESTAMP, twice DOUBLE, PRIMARY KEY (meter, at));
             INSERT INTO places SELECT i, 'place ' || i FROM generate_series(0, 9) g(i)",
        )
        .unwrap();
    session
        .execute(
            "CREATE TOPOLOGY metering COMMIT EVERY 100 ROWS WITH (durability = 'none') AS (
                CREATE STREAM per_meter WITH (state_table = 'open_hours') AS
                    SELECT meter, feeder, window_start, window_end, count(*) AS readings,
                        count(*) FILTER (WHERE kw > 50) AS many, avg(kw) AS kw, max(kw) AS most,
                        sum(cost) AS cost, avg(cost) AS mean_cost
                    FROM TUMBLE(reading, at, INTERVAL '1 hour') WHERE kw >= 1
                    GROUP BY meter, feeder, window_start, window_end
                    EMIT ON WINDOW CLOSE LATE ROWS DROP;
                INSERT INTO hourly SELECT meter, window_start, sum(readings), sum(many), min(kw), max(most),
                        sum(cost), min(mean_cost)
                    FROM per_meter GROUP BY meter, window_start, window_end;
                INSERT INTO feeders SELECT feeder, window_start, count(*), sum(kw) FROM per_meter
                    GROUP BY feeder, window_start;
                INSERT INTO readings SELECT * FROM reading;
                INSERT INTO latest SELECT r.meter, r.at, r.kw, p.place FROM reading r LEFT JOIN places p
                        ON p.meter = r.meter
                    ON CONFLICT (meter) DO UPDATE SET at = EXCLUDED.at, kw = EXCLUDED.kw, place = EXCLUDED.place;
                MERGE INTO merged m USING reading r ON m.meter = r.meter
                    WHEN MATCHED THEN UPDATE SET at = r.at, kw = r.kw + 1
                    WHEN NOT MATCHED THEN INSERT VALUES (r.meter, r.at, r.kw + 1);
                INSERT INTO changed SELECT meter, at, kw * 2 FROM CHANGES(latest) FOR EACH COMMIT WHERE kw > 90;
            )",
        )
        .unwrap();
}

/// Compares each target with the batch query over all readings.
fn check_metering(session: &mut Session) {
    assert_eq!(rows(session, "SELECT count(*) FROM readings")[0], ["5000"]);
    let windows = "date_trunc('hour', at)";
    for (target, batch) in [
        (
            "SELECT meter, from_time, readings, many, round(most, 9), cost FROM hourly".to_owned(),
            format!(
                "SELECT meter, {windows}, count(*), count(*) FILTER (WHERE kw > 50), round(max(kw), 9), sum(cost) FROM readings
                 WHERE kw >= 1 GROUP BY meter, {windows}"
            ),
        ),
        (
            "SELECT feeder, from_time, meters, round(kw, 6) FROM feeders".to_owned(),
            format!(
                "SELECT feeder, w, count(*), round(sum(kw), 6) FROM (SELECT feeder, meter, {windows} AS w,
                    avg(kw) AS kw FROM readings WHERE kw >= 1 GROUP BY feeder, meter, {windows}) m GROUP BY feeder, w"
            ),
        ),
        (
            "SELECT meter, at, kw, place FROM latest".to_owned(),
            "SELECT r.meter, r.at, r.kw, p.place FROM readings r LEFT JOIN places p ON p.meter = r.meter
                WHERE r.at = (SELECT max(at) FROM readings m WHERE m.meter = r.meter)"
                .to_owned(),
        ),
    ] {
        let differ = format!("SELECT count(*) FROM (({target} EXCEPT {batch}) UNION ALL ({batch} EXCEPT {target})) d");
        assert_eq!(rows(session, &differ)[0], ["0"], "{target}");
        let (of_target, of_batch) =
            (rows(session, &format!("SELECT count(*) FROM ({target}) t")), rows(session, &format!("SELECT count(*) FROM ({batch}) b")));
        assert_eq!(of_target, of_batch);
    }
    let merged = "SELECT count(*) FROM merged m JOIN latest l ON l.meter = m.meter AND l.at = m.at AND l.kw + 1 = m.kw";
    assert_eq!(rows(session, merged)[0], ["20"]);
    let means = "SELECT count(*) FROM hourly h JOIN (SELECT meter, date_trunc('hour', at) AS w, feeder, avg(cost) AS c
        FROM readings WHERE kw >= 1 GROUP BY 1, 2, 3) b ON b.meter = h.meter AND b.w = h.from_time
        WHERE h.mean_cost = round(b.c, 6) OR h.mean_cost < b.c";
    assert_ne!(rows(session, means)[0], ["0"]);
    assert_ne!(rows(session, "SELECT count(*) FROM changed")[0], ["0"]);
    assert_eq!(rows(session, "SELECT count(*) FROM changed WHERE twice <= 180")[0], ["0"]);
}

#[test]
fn targets_equal_the_queries_over_all_input() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    metering(&mut session);
    wait_for_end(&mut session, "metering");
    check_metering(&mut session);
    let plan = rows(&mut session, "EXPLAIN TOPOLOGY metering");
    assert_eq!(plan[0], ["Topology metering, commit every 100 rows"]);
    assert!(plan.iter().any(|line| line[0] == "  upsert into latest"), "{plan:?}");
    assert!(plan.iter().any(|line| line[0].contains("TableScan: reading")), "{plan:?}");
    let shown = rows(&mut session, "SHOW TOPOLOGIES");
    assert_eq!(shown[0][..4], ["metering", "ended", "5000", "51"]);
    let error = session.execute("UPDATE open_hours SET readings = 0").unwrap_err().to_string();
    assert!(error.contains("topology metering"), "{error}");
    for (table, expected) in [
        ("open_hours", "DROP TOPOLOGY metering removes it"),
        ("streams_topologies", "belongs to the topologies"),
    ] {
        let error = session.execute(&format!("DROP TABLE {table}")).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let error = session.execute("DROP TABLE hourly").unwrap_err().to_string();
    assert!(error.contains("topology metering uses it"), "{error}");
    session.execute("DROP TOPOLOGY metering; DROP TABLE hourly; DROP SOURCE reading").unwrap();
    assert_eq!(rows(&mut session, "SELECT count(*) FROM streams_positions")[0], ["0"]);
    assert!(session.query("SELECT * FROM open_hours").is_err(), "its state is gone with it");
    drop(session);
    database.close().unwrap();
}

#[test]
fn a_topology_goes_on_where_it_was_when_the_database_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0.. {
        let database = Database::open(directory.path(), Options::default()).unwrap();
        let mut session = database.session().unwrap();
        if round == 0 {
            metering(&mut session);
        }
        if round < 3 {
            let wanted = 500 * (round + 1);
            let begin = Instant::now();
            while rows(&mut session, "SELECT count(*) FROM readings")[0][0].parse::<i64>().unwrap() < wanted {
                assert!(begin.elapsed() < Duration::from_secs(20));
            }
            // Closed, or left as by a crash.
            if round == 1 {
                drop(session);
                database.close().unwrap();
            }
            continue;
        }
        wait_for_end(&mut session, "metering");
        check_metering(&mut session);
        break;
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    fn one<'o>(&mut self, of: &[&'o str]) -> &'o str {
        of[self.below(of.len())]
    }
}

/// Windows that overlap or leave gaps, and how many minutes each starts after another and lasts.
const WINDOWS: [(&str, &str, i64, i64); 5] = [
    ("hop 1", "HOP(reading, at, INTERVAL '20 minutes', INTERVAL '1 hour')", 20, 60),
    ("hop 2", "HOP(reading, at, INTERVAL '7 minutes', INTERVAL '30 minutes')", 7, 30),
    ("hop 3", "HOP(reading, at, INTERVAL '1 hour', INTERVAL '25 minutes')", 60, 25),
    ("cumulate 1", "CUMULATE(reading, at, INTERVAL '30 minutes', INTERVAL '3 hours')", 30, 180),
    ("cumulate 2", "CUMULATE(reading, at, INTERVAL '1 hour', INTERVAL '1 hour')", 60, 60),
];

/// Creates a table of all windows that may have a reading.
fn create_windows(session: &mut Session) {
    session
        .execute("CREATE TABLE windows (name VARCHAR, window_start TIMESTAMP, window_end TIMESTAMP)")
        .unwrap();
    let edges = "SELECT CAST(floor(extract(epoch FROM min(at)) / 60) AS BIGINT), CAST(extract(epoch FROM max(at)) / 60 AS BIGINT) FROM readings";
    let edges: Vec<i64> = rows(session, edges)[0].iter().map(|text| text.parse().unwrap()).collect();
    let at = |minutes: &str| format!("TIMESTAMP '1970-01-01 00:00:00' + ({minutes}) * INTERVAL '1 minute'");
    for (name, _, every, size) in WINDOWS {
        let starts_every = if name.starts_with("hop") { every } else { size };
        let (first, last) = ((edges[0] - size).div_euclid(starts_every), edges[1] / starts_every + 1);
        let ends = if name.starts_with("hop") { 1..=1 } else { 1..=size / every };
        for end in ends {
            let length = if name.starts_with("hop") { size } else { end * every };
            let (start, end) =
                (at(&format!("i * {starts_every}")), at(&format!("i * {starts_every} + {length}")));
            let insert = format!(
                "INSERT INTO windows SELECT '{name}', {start}, {end} FROM generate_series({first}, {last}) g(i)"
            );
            session.execute(&insert).unwrap();
        }
    }
}

/// Query over sessions with a gap: over the source, and over the table of all of its rows.
fn of_sessions(gap: &str, columns: &str, condition: &str, groups: &[&str], having: &str) -> (String, String) {
    let keys: String = groups.iter().map(|group| format!(", {group}")).collect();
    let of = |from: &str, condition: &str| {
        format!(
            "SELECT window_start, window_end, {columns} FROM {from} WHERE {condition}
                GROUP BY window_start, window_end{keys}{having}"
        )
    };
    let partition = format!("PARTITION BY true{keys}");
    let all = format!(
        "(SELECT *, min(at) OVER ({partition}, number) AS window_start,
                max(at) OVER ({partition}, number) + INTERVAL '{gap}' AS window_end
            FROM (SELECT *, sum(begins) OVER ({partition} ORDER BY at) AS number
                FROM (SELECT *, CASE WHEN at - lag(at) OVER ({partition} ORDER BY at) < INTERVAL '{gap}'
                        THEN 0 ELSE 1 END AS begins
                    FROM readings reading WHERE {condition}) reading) reading) reading"
    );
    (of(&format!("SESSION(reading, at, INTERVAL '{gap}')"), condition), of(&all, "true"))
}

/// Query over windows of random size, groups, aggregates and conditions: over a source, and over the table of
/// all of its rows.
fn random_query(random: &mut Random) -> (String, String) {
    let (size, truncated) = [("1 minute", "minute"), ("1 hour", "hour"), ("1 day", "day")][random.below(3)];
    let mut groups: Vec<&str> = ["meter", "feeder", "meter % 3", "upper(feeder)", "kw > 40"]
        .into_iter()
        .filter(|_| random.below(4) == 0)
        .collect();
    groups.truncate(3);
    const AGGREGATES: [&str; 25] = [
        "count(*)",
        "count(kw)",
        "sum(meter)",
        "min(kw)",
        "max(feeder)",
        "sum(cost)",
        "min(cost)",
        "max(at)",
        "count(*) FILTER (WHERE kw < 10)",
        "sum(meter * 2) FILTER (WHERE feeder <> 'feeder 1')",
        "max(meter) - min(meter)",
        "min(CASE WHEN kw > 50 THEN meter END)",
        "count(DISTINCT meter)",
        "sum(DISTINCT meter) FILTER (WHERE kw > 10)",
        "round(stddev(kw)::numeric, 6)",
        "round(var_pop(meter)::numeric, 6)",
        "round(corr(kw, meter)::numeric, 6)",
        "median(cost)",
        "bool_and(kw > 20) FILTER (WHERE meter > 5)",
        "bit_xor(meter)",
        "first_value(kw ORDER BY at)",
        "last_value(feeder ORDER BY kw DESC)",
        "approx_distinct(feeder)",
        "round(avg(DISTINCT meter)::numeric, 6)",
        "round(regr_slope(kw, meter)::numeric, 6)",
    ];
    let aggregates: Vec<&str> = (0..1 + random.below(4)).map(|_| random.one(&AGGREGATES)).collect();
    let condition = random.one(&[
        "true",
        "kw > 20",
        "meter IN (1, 2, 3, 5, 8, 13)",
        "feeder LIKE '%1' OR kw < 30",
        "NOT (meter BETWEEN 4 AND 9) AND cost > 100",
        "coalesce(nullif(meter, 3), 0) <> 0",
    ]);
    let having = random.one(&["", "", " HAVING count(*) > 1", " HAVING max(kw) > 60 AND min(meter) < 15"]);
    let columns: Vec<String> = groups
        .iter()
        .chain(&aggregates)
        .enumerate()
        .map(|(at, expression)| format!("{expression} AS c{at}"))
        .collect();
    let keys: String = groups.iter().map(|group| format!(", {group}")).collect();
    let of = |window: &str, from: &str, group: &str| {
        let columns = columns.join(", ");
        format!("SELECT {window}, {columns} FROM {from} WHERE {condition} GROUP BY {group}{keys}{having}")
    };
    if random.below(3) == 0 {
        let gap = random.one(&["1 second", "2 minutes", "9 minutes", "1 hour", "3 days"]);
        return of_sessions(gap, &columns.join(", "), condition, &groups, having);
    }
    if random.below(2) == 0 {
        let (name, windows, ..) = WINDOWS[random.below(WINDOWS.len())];
        let all = format!(
            "(SELECT r.*, window_start, window_end FROM readings r JOIN windows w
                ON w.name = '{name}' AND r.at >= window_start AND r.at < window_end) reading"
        );
        let both = "window_start, window_end";
        let shown = random.one(&[both, "window_end"]);
        return (of(shown, windows, both), of(shown, &all, both));
    }
    let window = format!("date_trunc('{truncated}', at)");
    (
        of("window_start AS w", &format!("TUMBLE(reading, at, INTERVAL '{size}')"), "window_start"),
        of(&format!("{window} AS w"), "readings", &window),
    )
}

#[test]
fn random_topologies_equal_their_queries() {
    let seed = std::env::var("ENTRESOL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    let topologies =
        std::env::var("ENTRESOL_TOPOLOGIES").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    println!("ENTRESOL_SEED={seed}");
    let mut random = Random(seed);
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&SOURCE.replace("rows = 5000, step = '7 seconds'", "rows = 1500, step = '67 seconds'"))
        .unwrap();
    session
        .execute(
            "CREATE TABLE readings (at TIMESTAMP, meter INT, feeder VARCHAR, kw DOUBLE, cost DECIMAL(8,2))",
        )
        .unwrap();
    session.execute("CREATE TOPOLOGY everything AS (INSERT INTO readings SELECT * FROM reading)").unwrap();
    wait_for_end(&mut session, "everything");
    create_windows(&mut session);
    for _ in 0..topologies {
        let (of_stream, of_table) = random_query(&mut random);
        let commits =
            ["EVERY 1 ROW", "EVERY 37 ROWS", "EVERY 5000 ROWS", "EVERY 600 ROWS", "ON WINDOW CLOSE"];
        // A session has no edge that is known before it closes.
        let commits = if of_stream.contains("SESSION") { &commits[..4] } else { &commits };
        let commit = random.one(commits);
        let threads = random.one(&["1", "2", "3", "auto"]);
        session.execute(&format!("CREATE TABLE target AS SELECT * FROM ({of_table}) b WHERE false")).unwrap();
        let create = format!(
            "CREATE TOPOLOGY x COMMIT {commit} WITH (durability = 'none', parallelism = '{threads}')
                AS (INSERT INTO target {of_stream})"
        );
        session.execute(&create).unwrap_or_else(|error| panic!("{create}: {error}"));
        wait_for_end(&mut session, "x");
        let differ = format!(
            "SELECT count(*) FROM ((SELECT * FROM target EXCEPT ALL {of_table}) UNION ALL
                ({of_table} EXCEPT ALL SELECT * FROM target)) d"
        );
        assert_eq!(rows(&mut session, &differ)[0], ["0"], "{create}");
        session.execute("DROP TOPOLOGY x; DROP TABLE target").unwrap();
    }
}

fn append(path: &Path, text: &str) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_file_is_followed_and_bad_lines_are_in_their_table() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "id,at,value\n1,2026-01-01 00:00:00,1.5\nx,y,z\n2,2026-01-01 00:00:01,2.5\n");
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE lines (id INT NOT NULL, at TIMESTAMP NOT NULL, value DOUBLE)
                 WITH (connector = 'file', path = '{}', tail = true, rejects = 'bad_lines') FORMAT PLAIN ENCODE CSV;
             CREATE TABLE stored (id INT PRIMARY KEY, value DOUBLE);
             CREATE TOPOLOGY follow COMMIT EVERY INTERVAL '10 ms' AS (INSERT INTO stored SELECT id, value FROM lines)",
            path.display()
        ))
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", "2");
    let bad = rows(&mut session, "SELECT source, line, record FROM bad_lines");
    assert_eq!(bad, [["lines", "3", "x,y,z"]]);
    // A line in two pieces is one line.
    append(&path, "3,2026-01-01 00:0");
    std::thread::sleep(Duration::from_millis(30));
    append(&path, "0:02,3.5\n");
    wait_for(&mut session, "SELECT count(*) FROM stored", "3");
    session.execute("ALTER TOPOLOGY follow PAUSE").unwrap();
    append(&path, "4,2026-01-01 00:00:03,4.5\n");
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(rows(&mut session, "SELECT state FROM entresol.topologies"), [["paused"]]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM stored")[0], ["3"]);
    drop(session);
    database.close().unwrap();
    // It stays paused.
    drop(database);
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    assert_eq!(rows(&mut session, "SELECT state FROM entresol.topologies"), [["paused"]]);
    session.execute("ALTER TOPOLOGY follow RESUME").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM stored", "4");
    assert_eq!(rows(&mut session, "SELECT count(*) FROM bad_lines")[0], ["1"]);
    // The file is replaced by a shorter one.
    std::fs::write(&path, "id,at,value\n").unwrap();
    wait_for(&mut session, "SELECT state FROM entresol.topologies", "failed");
    let error = rows(&mut session, "SELECT error FROM entresol.topologies");
    drop(session);
    drop(database);
    let options = Options::default().start_topologies(false);
    let database = Database::open(directory.path().join("db"), options).unwrap();
    let mut session = database.session().unwrap();
    assert!(rows(&mut session, "SHOW TOPOLOGIES").is_empty());
    assert!(error[0][0].contains("shorter than the stored position"), "{error:?}");
}

/// Steps of a topology that are refused, and what the error says.
const REFUSED_STEPS: &[(&str, &str)] = &[
    ("INSERT INTO t SELECT meter, sum(kw) FROM TUMBLE(reading, at, INTERVAL '1 hour') GROUP BY meter", "without end"),
    ("INSERT INTO t SELECT meter, kw FROM reading ORDER BY kw", "ORDER BY or OFFSET without LIMIT"),
    ("INSERT INTO t SELECT meter, kw FROM t", "triggers nothing"),
    ("INSERT INTO t SELECT meter, kw FROM nothing", "nothing"),
    ("INSERT INTO nothing SELECT meter FROM reading", "\"nothing\" does not exist"),
    ("INSERT INTO t SELECT meter, kw, kw FROM reading", "has 2 columns, its query has 3"),
    ("INSERT INTO t SELECT meter, at FROM reading", "does not fit"),
    ("INSERT INTO t SELECT a, 1.0 FROM TUMBLE(timeless, a, INTERVAL '1 hour')", "not a timestamp"),
    ("INSERT INTO t SELECT meter, kw FROM reading EMIT CHANGES EVERY INTERVAL '1 second'", "without an aggregate"),
    ("INSERT INTO t SELECT meter, kw FROM reading EMIT CHANGES EVERY 5", "there are EMIT ON WINDOW CLOSE"),
    ("INSERT INTO t SELECT meter, 1.5 FROM CHANGES(keyless)", "table keyless logs no changes"),
    (
        "INSERT INTO t SELECT meter, count(*) FROM CUMULATE(reading, at, INTERVAL '1 hour', INTERVAL '1 day')
            GROUP BY meter, window_start",
        "GROUP BY window_end of CUMULATE(stream, time, step, size)",
    ),
    (
        "INSERT INTO t SELECT meter, kw FROM CUMULATE(reading, at, INTERVAL '7 hours', INTERVAL '1 day')",
        "CUMULATE: the size 86400000000 us is not a multiple of the step 25200000000 us",
    ),
    (
        "INSERT INTO t SELECT meter, kw FROM HOP(reading, at, INTERVAL '1 microsecond', INTERVAL '1 day')",
        "HOP: a time is in 86400000000 windows, more than 10000",
    ),
    (
        "INSERT INTO t SELECT meter, kw FROM HOP(reading, at, INTERVAL '1 hour')",
        "expected HOP(relation, time column, INTERVAL 'slide', INTERVAL 'size')",
    ),
    (
        "INSERT INTO t SELECT meter, kw FROM SESSION(reading, at, INTERVAL '1 hour', INTERVAL '1 hour')",
        "expected SESSION(relation, time column, INTERVAL 'gap')",
    ),
    (
        "INSERT INTO t SELECT meter, sum(kw) FROM SESSION(reading, at, INTERVAL '1 hour') GROUP BY meter",
        "GROUP BY window_start of SESSION(stream, time, gap)",
    ),
    (
        "CREATE STREAM s AS SELECT * FROM SESSION(reading, at, INTERVAL '1 hour')",
        "an edge of SESSION(relation, time, gap) other than in GROUP BY",
    ),
    (
        "CREATE STREAM s AS SELECT window_end, kw FROM SESSION(reading, at, INTERVAL '1 hour')",
        "an edge of SESSION(relation, time, gap) other than in GROUP BY",
    ),
    (
        "INSERT INTO t SELECT meter, max(kw) FROM SESSION(reading, at, INTERVAL '1 hour')
            WHERE window_start > '2026-01-01' GROUP BY meter, window_start",
        "an edge of SESSION(relation, time, gap) other than in GROUP BY",
    ),
    (
        "INSERT INTO t SELECT meter, extract(epoch FROM max(window_end)) FROM SESSION(reading, at, INTERVAL '1 hour')
            GROUP BY meter, window_start",
        "an edge of SESSION(relation, time, gap) other than in GROUP BY",
    ),
    ("INSERT INTO t SELECT meter, random() FROM reading", "random() in a step"),
    ("INSERT INTO t SELECT meter, kw FROM reading WHERE at < now()", "now() in a step"),
    (
        "INSERT INTO t WITH reading AS (SELECT * FROM reading WHERE kw > 1) SELECT meter, kw FROM reading",
        "take another name",
    ),
    ("INSERT INTO t SELECT meter, length(current_user) FROM reading", "current_user() in a step"),
    ("INSERT INTO t SELECT meter, kw FROM reading LATE ROWS INTO l", "of a step without windows"),
    ("INSERT INTO t SELECT meter, kw FROM reading LATE ROWS DROP", "LATE ROWS of a step without GROUP BY"),
    (
        "INSERT INTO t SELECT meter, kw FROM reading EMIT ON WINDOW CLOSE",
        "EMIT ON WINDOW CLOSE of a step without GROUP BY",
    ),
    (
        "INSERT INTO t SELECT meter, kw FROM reading; ABORT WHEN (SELECT count(*) FROM CHANGES(t))",
        "needs one truth value, found Int64",
    ),
    ("INSERT INTO t SELECT meter, kw FROM reading; ABORT WHEN kw < 0 FROM CHANGES(t)", "Expected: "),
    (
        "INSERT INTO t SELECT meter, kw FROM reading; ABORT WHEN EXISTS (SELECT 1 FROM CHANGES(t) WHERE now() IS NULL)",
        "now() in a step",
    ),
    ("ABORT WHEN 1 > 2", "ABORT WHEN of anything but CHANGES"),
    ("ABORT WHEN (SELECT count(*) FROM CHANGES(t)) > 1", "which no step of this topology writes"),
    ("DELETE FROM t WHERE meter = 1", "DELETE in a step, other than"),
    ("DELETE FROM t USING reading r WHERE t.kw = r.kw", "DELETE in a step, other than"),
    (
        "MERGE INTO t USING reading r ON t.kw = r.kw WHEN MATCHED THEN DELETE",
        "ON all columns of the table's key",
    ),
    (
        "MERGE INTO t USING reading r ON t.meter = r.meter AND t.kw > 0 WHEN MATCHED THEN DELETE",
        "ON all columns of the table's key",
    ),
    (
        "MERGE INTO t USING reading r ON t.meter = r.meter WHEN MATCHED THEN UPDATE SET meter = 1",
        "UPDATE of column \"meter\" in a step, which is in the key of table t",
    ),
    (
        "MERGE INTO t USING reading r ON t.meter = r.meter WHEN NOT MATCHED BY SOURCE THEN DELETE",
        "a stream has no end",
    ),
    (
        "MERGE INTO t USING reading r ON t.meter = r.meter WHEN MATCHED THEN UPDATE SET kw = (SELECT 1.0)",
        "a subquery in a step",
    ),
    (
        "INSERT INTO t SELECT meter, kw FROM reading ON CONFLICT (kw) DO NOTHING",
        "ON CONFLICT in a step on other columns than those of the table's key",
    ),
    (
        "INSERT INTO t SELECT meter, kw FROM reading ON CONFLICT (meter) DO UPDATE SET watts = 1",
        "column \"watts\" of relation \"t\" does not exist",
    ),
    (
        "INSERT INTO t (kw) SELECT kw FROM reading ON CONFLICT (meter) DO NOTHING",
        "without column \"meter\" of its key",
    ),
    ("INSERT INTO t SELECT meter, kw FROM CHANGES(t)", "writes the table whose changes it reads"),
    ("INSERT INTO other SELECT meter, kw FROM CHANGES(t)", "table t logs no changes"),
];

#[test]
fn what_a_topology_cannot_do_is_refused_by_name() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(SOURCE).unwrap();
    session
        .execute(
            "CREATE SOURCE timeless (a INT) WITH (connector = 'generator', rows = 10);
             CREATE TABLE t (meter INT PRIMARY KEY, kw DOUBLE);
             CREATE TABLE other (meter INT PRIMARY KEY, kw DOUBLE);
             CREATE TABLE keyless (meter INT)",
        )
        .unwrap();
    for (steps, expected) in REFUSED_STEPS {
        let refused = session.execute(&format!("CREATE TOPOLOGY x AS ({steps})"));
        let error = refused.err().unwrap_or_else(|| panic!("{steps} is accepted")).to_string();
        assert!(error.contains(expected), "{steps}: {error}");
    }
    for (commit, expected) in [
        ("WITH SOURCE", "source \"reading\" marks no transactions"),
        ("WITH SOURCE OR EACH ROW", "COMMIT WITH SOURCE OR another boundary"),
        ("ON WINDOW CLOSE", "a transaction per window needs a window"),
        ("ON WINDOW CLOSE OF nothing", "no step is a CREATE STREAM nothing with windows"),
        ("ON WINDOW CLOSE OF t OR ON WINDOW CLOSE", "ON WINDOW CLOSE OF several streams"),
    ] {
        let create =
            format!("CREATE TOPOLOGY x COMMIT {commit} AS (INSERT INTO t SELECT meter, kw FROM reading)");
        let refused = session.execute(&create);
        let error = refused.err().unwrap_or_else(|| panic!("{commit} is accepted")).to_string();
        assert!(error.contains(expected), "{commit}: {error}");
    }
    for (sql, expected) in [
        (
            "CREATE SOURCE s (a INT) WITH (connector = 'kafka')",
            "there are file, tcp, table, generator and nexmark",
        ),
        (
            "CREATE SOURCE s (a INT) WITH (connector = 'generator', speed = 3)",
            "unrecognized option \"speed\"",
        ),
        ("CREATE SOURCE s (a INT) WITH (connector = 'file')", "needs the option \"path\""),
        ("CREATE SOURCE s (a INT, WATERMARK FOR a AS a) WITH (connector = 'generator')", "not a timestamp"),
        ("CREATE SOURCE reading (a INT) WITH (connector = 'generator')", "already exists"),
        ("DROP TOPOLOGY nothing", "does not exist"),
        ("ALTER TOPOLOGY nothing PAUSE", "does not exist"),
    ] {
        let error = session.execute(sql).unwrap_err().to_string();
        assert!(error.contains(expected), "{sql}: {error}");
    }
    assert!(rows(&mut session, "SELECT * FROM entresol.topologies").is_empty());
    session.execute("DROP TOPOLOGY IF EXISTS nothing; DROP SOURCE IF EXISTS nothing").unwrap();
}

#[test]
fn late_rows_are_stored_where_they_are_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "at,id\n2026-01-01 00:00:30,1\n2026-01-01 00:02:00,2\n2026-01-01 00:00:59,3\n");
    append(&path, "2026-01-01 00:01:59,4\n2026-01-01 00:05:00,5\n2026-01-01 00:01:00,6\n");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE lines (at TIMESTAMP NOT NULL, id INT NOT NULL, WATERMARK FOR at AS at - INTERVAL '10 seconds')
                 WITH (connector = 'file', path = '{}');
             CREATE TABLE minutes (minute TIMESTAMP PRIMARY KEY, lines BIGINT);
             CREATE TOPOLOGY counting AS (
                 INSERT INTO minutes SELECT window_start, count(id) FROM TUMBLE(lines, at, INTERVAL '1 minute')
                     WHERE id <> 5 OR id = 5 GROUP BY window_start EMIT ON WINDOW CLOSE LATE ROWS INTO late_lines)",
            path.display()
        ))
        .unwrap();
    wait_for_end(&mut session, "counting");
    assert_eq!(
        rows(&mut session, "SELECT at::text, id FROM late_lines ORDER BY id"),
        [["2026-01-01 00:00:59", "3"], ["2026-01-01 00:01:00", "6"]]
    );
    assert_eq!(rows(&mut session, "SELECT sum(lines)::bigint, count(*) FROM minutes"), [["4", "4"]]);
    assert_eq!(rows(&mut session, "SELECT late FROM entresol.topologies"), [["2"]]);
}

/// Windows over windows of another size: none of the inner results is late.
#[test]
fn windows_over_windows_of_other_sizes_lose_nothing() {
    for (inner, outer) in [(10, 15), (10, 7), (60, 60), (7, 21)] {
        let database = Database::volatile(Options::default()).unwrap();
        let mut session = database.session().unwrap();
        session
            .execute(&format!(
                "CREATE SOURCE numbers (at TIMESTAMP NOT NULL, n INT NOT NULL, WATERMARK FOR at AS at)
                     WITH (connector = 'generator', rows = 3000, step = '1 second');
                 CREATE TABLE summed (at TIMESTAMP PRIMARY KEY, n BIGINT);
                 CREATE TOPOLOGY sums COMMIT EVERY 13 ROWS WITH (durability = 'none') AS (
                     CREATE STREAM inner_windows AS SELECT window_start AS begins, count(*) AS n
                         FROM TUMBLE(numbers, at, INTERVAL '{inner} seconds') GROUP BY window_start;
                     INSERT INTO summed SELECT window_start, sum(n)
                         FROM TUMBLE(inner_windows, begins, INTERVAL '{outer} seconds') GROUP BY window_start)"
            ))
            .unwrap();
        wait_for_end(&mut session, "sums");
        assert_eq!(
            rows(&mut session, "SELECT sum(n)::bigint FROM summed")[0],
            ["3000"],
            "{inner} in {outer}"
        );
        assert_eq!(rows(&mut session, "SELECT late FROM entresol.topologies")[0], ["0"]);
    }
}

/// Lines with CR, in quotes over several lines, and a header alone.
/// Each of the windows that contain a row counts it, and so do windows over those windows.
#[test]
fn overlapping_windows_are_grouped_again() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE numbers (at TIMESTAMP NOT NULL, n INT NOT NULL, WATERMARK FOR at AS at - INTERVAL '5 seconds')
                 WITH (connector = 'generator', rows = 3000, step = '1 second');
             CREATE TABLE hops (at TIMESTAMP PRIMARY KEY, until TIMESTAMP, groups BIGINT, n BIGINT);
             CREATE TABLE all_rows (at TIMESTAMP, starts TIMESTAMP, PRIMARY KEY (at, starts));
             CREATE TABLE steps (at TIMESTAMP, until TIMESTAMP, groups BIGINT, n BIGINT, PRIMARY KEY (at, until));
             CREATE TOPOLOGY overlapping COMMIT EVERY 13 ROWS WITH (durability = 'none') AS (
                 CREATE STREAM hop AS SELECT window_start, window_end, n % 4 AS part, count(*) AS n
                     FROM HOP(numbers, at, INTERVAL '10 seconds', INTERVAL '30 seconds')
                     GROUP BY window_start, window_end, n % 4;
                 INSERT INTO hops SELECT window_start, window_end, count(*), sum(n) FROM hop
                     GROUP BY window_start, window_end;
                 INSERT INTO all_rows SELECT at, window_start
                     FROM HOP(numbers, at, INTERVAL '10 seconds', INTERVAL '30 seconds');
                 CREATE STREAM step AS SELECT window_start, window_end, n % 4 AS part, count(*) AS n
                     FROM CUMULATE(numbers, at, INTERVAL '10 seconds', INTERVAL '30 seconds')
                     GROUP BY window_start, window_end, n % 4;
                 INSERT INTO steps SELECT window_start, window_end, count(*), sum(n) FROM step
                     GROUP BY window_start, window_end)",
        )
        .unwrap();
    wait_for_end(&mut session, "overlapping");
    assert_eq!(rows(&mut session, "SELECT late FROM entresol.topologies")[0], ["0"]);
    assert_eq!(
        rows(&mut session, "SELECT count(*), sum(n)::bigint, max(until - at) FROM hops")[0][..2],
        ["302", "9000"]
    );
    let differ =
        "SELECT count(*) FROM hops h JOIN (SELECT starts, count(*) AS n FROM all_rows GROUP BY starts) a
        ON a.starts = h.at AND a.n = h.n";
    assert_eq!(rows(&mut session, differ)[0], ["302"]);
    // A row in the first ten seconds of a window counts in three, the next one in two.
    assert_eq!(rows(&mut session, "SELECT count(*), sum(n)::bigint FROM steps")[0], ["300", "6000"]);
    let lengths = "SELECT (extract(epoch FROM until) - extract(epoch FROM at))::int AS s, min(n), max(n)
        FROM steps GROUP BY 1 ORDER BY 1";
    assert_eq!(rows(&mut session, lengths), [["10", "10", "10"], ["20", "20", "20"], ["30", "30", "30"]]);
}

#[test]
fn a_late_row_is_stored_once_and_counts_where_its_windows_are_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "at,id\n2026-01-01 00:00:10,1\n2026-01-01 00:01:10,2\n2026-01-01 00:00:50,3\n");
    append(&path, "2026-01-01 00:10:00,4\n2026-01-01 00:00:20,5\n");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE lines (at TIMESTAMP NOT NULL, id INT NOT NULL, WATERMARK FOR at AS at)
                 WITH (connector = 'file', path = '{}');
             CREATE TABLE counts (at TIMESTAMP PRIMARY KEY, lines BIGINT);
             CREATE TOPOLOGY counting AS (
                 INSERT INTO counts SELECT window_start, count(*)
                     FROM HOP(lines, at, INTERVAL '1 minute', INTERVAL '2 minutes') GROUP BY window_start
                     EMIT ON WINDOW CLOSE LATE ROWS INTO late_lines)",
            path.display()
        ))
        .unwrap();
    wait_for_end(&mut session, "counting");
    // Row 3 comes when the window until 00:01 is closed, and counts in that until 00:02.
    assert_eq!(
        rows(&mut session, "SELECT at::text, lines FROM counts ORDER BY at"),
        [
            ["2025-12-31 23:59:00", "1"],
            ["2026-01-01 00:00:00", "3"],
            ["2026-01-01 00:01:00", "1"],
            ["2026-01-01 00:09:00", "1"],
            ["2026-01-01 00:10:00", "1"]
        ]
    );
    assert_eq!(rows(&mut session, "SELECT id FROM late_lines ORDER BY id"), [["3"], ["5"]]);
    assert_eq!(rows(&mut session, "SELECT late FROM entresol.topologies"), [["2"]]);
}

/// Orders of a file, one of which may take back what another one did just before.
const ORDERS: &str = "MERGE INTO stock t USING orders s ON t.k = s.k
    WHEN MATCHED AND s.kind = 'end' THEN DELETE
    WHEN MATCHED AND t.v > 500 THEN DO NOTHING
    WHEN MATCHED THEN UPDATE SET v = t.v + s.v, n = n + 1
    WHEN NOT MATCHED AND s.kind <> 'end' THEN INSERT (k, n, v) VALUES (k, 1, v)";

#[test]
fn rows_are_changed_by_what_they_are_one_after_another() {
    let directory = tempfile::tempdir().unwrap();
    for (seed, commit) in
        [(1, "EACH ROW"), (2, "EVERY 7 ROWS"), (3, "EVERY 1000 ROWS"), (4, "EVERY 5000 ROWS")]
    {
        let mut random = Random(seed);
        let path = directory.path().join(format!("orders {seed}.csv"));
        let (mut lines, mut stock) = ("k,kind,v\n".to_owned(), std::collections::BTreeMap::new());
        let (mut counts, mut first) = (std::collections::BTreeMap::new(), std::collections::BTreeMap::new());
        for _ in 0..3000 {
            let (k, v) = (random.below(40) as i64, random.below(100) as i64);
            let kind = if random.below(6) == 0 { "end" } else { "more" };
            lines.push_str(&format!("{k},{kind},{v}\n"));
            let known: Option<(i64, i64)> = stock.get(&k).copied();
            match known {
                Some(_) if kind == "end" => drop(stock.remove(&k)),
                Some((_, all)) if all > 500 => {}
                Some((n, all)) => drop(stock.insert(k, (n + 1, all + v))),
                None if kind == "end" => {}
                None => drop(stock.insert(k, (1, v))),
            }
            let count: &mut (i64, i64) = counts.entry(k).or_insert((0, v));
            *count = (count.0 + 1, count.1.max(v));
            first.entry(k).or_insert(v);
        }
        append(&path, &lines);
        let database = Database::volatile(Options::default()).unwrap();
        let mut session = database.session().unwrap();
        session
            .execute(&format!(
                "CREATE SOURCE orders (k INT NOT NULL, kind VARCHAR, v INT) WITH (connector = 'file', path = '{}');
                 CREATE TABLE stock (k INT PRIMARY KEY, v INT, n BIGINT);
                 CREATE TABLE counts (k INT PRIMARY KEY, n INT, most INT);
                 CREATE TABLE firsts (k INT PRIMARY KEY, v INT);
                 CREATE TABLE open (k INT PRIMARY KEY, v INT);
                 CREATE TABLE ended (k INT, v INT);
                 CREATE TOPOLOGY counting COMMIT {commit} WITH (durability = 'none') AS ({ORDERS};
                     INSERT INTO counts AS c SELECT k, 1, v FROM orders ON CONFLICT (k)
                         DO UPDATE SET n = c.n + EXCLUDED.n, most = greatest(c.most, EXCLUDED.most);
                     INSERT INTO firsts SELECT k, v FROM orders ON CONFLICT (k) DO NOTHING;
                     INSERT INTO open SELECT k, v FROM orders WHERE kind <> 'end'
                         ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v WHERE open.v < EXCLUDED.v;
                     DELETE FROM open o USING orders s WHERE s.k = o.k AND s.kind = 'end' AND o.v >= 0)",
                path.display()
            ))
            .unwrap();
        wait_for_end(&mut session, "counting");
        let texts = |rows: Vec<[i64; 3]>| -> Vec<Vec<String>> {
            rows.iter().map(|row| row.iter().map(i64::to_string).collect()).collect()
        };
        let wanted = stock.iter().map(|(k, (n, v))| [*k, *v, *n]).collect();
        assert_eq!(rows(&mut session, "SELECT k, v, n FROM stock ORDER BY k"), texts(wanted), "{commit}");
        let wanted = counts.iter().map(|(k, (n, most))| [*k, *n, *most]).collect();
        assert_eq!(rows(&mut session, "SELECT k, n, most FROM counts ORDER BY k"), texts(wanted), "{commit}");
        let wanted = first.iter().map(|(k, v)| [*k, *v, 0]).collect();
        assert_eq!(rows(&mut session, "SELECT k, v, 0 FROM firsts ORDER BY k"), texts(wanted), "{commit}");
        let open: i64 = rows(&mut session, "SELECT count(*) FROM open")[0][0].parse().unwrap();
        assert!((1..=40).contains(&open), "{open} of 40 are open");
        let plan = rows(&mut session, "EXPLAIN TOPOLOGY counting");
        assert!(plan.iter().any(|line| line[0].contains("change rows of stock by key")), "{plan:?}");
        assert!(database.check(|_| {}).unwrap().problems.is_empty());
    }
}

#[test]
fn values_are_computed_for_rows_that_change() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE numbers (n INT NOT NULL) WITH (connector = 'generator', rows = 100, n.cardinality = 10);
             CREATE TABLE shares (n INT PRIMARY KEY, share INT);
             CREATE TOPOLOGY dividing COMMIT EVERY 9 ROWS AS (
                 MERGE INTO shares s USING numbers i ON i.n = s.n
                     WHEN MATCHED AND i.n <> 0 AND s.share < 1000 THEN UPDATE SET share = s.share + 100 / i.n
                     WHEN NOT MATCHED THEN INSERT (share, n) VALUES (0, i.n))",
        )
        .unwrap();
    wait_for_end(&mut session, "dividing");
    assert_eq!(rows(&mut session, "SELECT count(*), sum((share = 0)::int)::int FROM shares"), [["10", "1"]]);
    assert_eq!(rows(&mut session, "SELECT share FROM shares WHERE n = 0"), [["0"]]);
}

#[test]
fn a_growing_file_is_read_record_by_record() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.csv");
    append(&path, "id,note\r\n");
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE lines (id INT NOT NULL, note VARCHAR)
                 WITH (connector = 'file', path = '{}', tail = true, rejects = 'bad');
             CREATE TABLE stored (id INT PRIMARY KEY, note VARCHAR);
             CREATE TOPOLOGY follow COMMIT EACH ROW AS (INSERT INTO stored SELECT id, note FROM lines)",
            path.display()
        ))
        .unwrap();
    std::thread::sleep(Duration::from_millis(30));
    append(&path, "1,one\r\n2,\"two\r\n");
    wait_for(&mut session, "SELECT count(*) FROM stored", "1");
    std::thread::sleep(Duration::from_millis(30));
    append(&path, "and\r\n");
    std::thread::sleep(Duration::from_millis(30));
    append(&path, "more\"\r\n3,three\r\n\r\n");
    wait_for(&mut session, "SELECT count(*) FROM stored", "3");
    let notes = rows(
        &mut session,
        "SELECT replace(replace(note, chr(13), '-'), chr(10), '+') FROM stored ORDER BY id",
    );
    assert_eq!(notes, [["one"], ["two-+and-+more"], ["three"]]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM bad")[0], ["0"]);
}

/// The same topology created and changed by several sessions at once: it runs once.
#[test]
fn sessions_at_once_make_a_topology_once() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE numbers (at TIMESTAMP NOT NULL) WITH (connector = 'generator', rows_per_second = 100000);
             CREATE TABLE stored (at TIMESTAMP PRIMARY KEY)",
        )
        .unwrap();
    let create =
        "CREATE TOPOLOGY one WITH (durability = 'none') AS (INSERT INTO stored SELECT at FROM numbers)";
    let made: usize = std::thread::scope(|scope| {
        let sessions: Vec<_> = (0..4)
            .map(|_| {
                let mut session = database.session().unwrap();
                scope.spawn(move || {
                    let made = session.execute(create).is_ok();
                    for change in ["PAUSE", "RESUME", "PAUSE", "RESUME"] {
                        session.execute(&format!("ALTER TOPOLOGY one {change}")).unwrap();
                    }
                    usize::from(made)
                })
            })
            .collect();
        sessions.into_iter().map(|session| session.join().unwrap()).sum()
    });
    assert_eq!(made, 1);
    session.execute("ALTER TOPOLOGY one RESUME").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(rows(&mut session, "SELECT state, error FROM entresol.topologies"), [["running", ""]]);
    session.execute("DROP TOPOLOGY one; DROP TABLE stored").unwrap();
}

/// Transactions that a condition aborts leave nothing; what was committed before, the condition may read.
#[test]
fn a_condition_aborts_transactions() {
    for (on_error, state) in [("ABORT", "ended"), ("STOP", "failed")] {
        let database = Database::volatile(Options::default()).unwrap();
        let mut session = database.session().unwrap();
        session
            .execute(&format!(
                "CREATE SOURCE numbers (at TIMESTAMP NOT NULL, n INT NOT NULL)
                     WITH (connector = 'generator', rows = 1000, step = '1 second', n.cardinality = 1000);
                 CREATE TABLE stored (at TIMESTAMP PRIMARY KEY, n INT);
                 CREATE TABLE highest (at TIMESTAMP PRIMARY KEY, n INT);
                 CREATE TABLE bounds (n_max INT PRIMARY KEY);
                 INSERT INTO bounds VALUES (970);
                 CREATE TOPOLOGY guarded COMMIT EVERY 10 ROWS ON ERROR {on_error} AS (
                     INSERT INTO stored SELECT at, n FROM numbers;
                     INSERT INTO highest SELECT at, n FROM CHANGES(stored) FOR EACH COMMIT WHERE n > 900;
                     ABORT WHEN (SELECT max(n) FROM CHANGES(highest)) > (SELECT max(n_max) FROM bounds)
                         OR (SELECT count(*) FROM stored) > 500)"
            ))
            .unwrap();
        wait_for(&mut session, "SELECT state FROM entresol.topologies", state);
        let stored: i64 = rows(&mut session, "SELECT count(*) FROM stored")[0][0].parse().unwrap();
        let aborts: i64 = rows(&mut session, "SELECT aborts FROM entresol.topologies")[0][0].parse().unwrap();
        assert!(stored <= 500 && stored % 10 == 0, "{stored}");
        assert_eq!(rows(&mut session, "SELECT count(*) FROM stored WHERE n > 970")[0], ["0"]);
        let agree = "SELECT (SELECT count(*) FROM stored WHERE n > 900) = (SELECT count(*) FROM highest)";
        assert_eq!(rows(&mut session, agree)[0], ["true"]);
        if on_error == "ABORT" {
            assert_eq!(stored / 10 + aborts, 100);
            assert!(stored > 100 && aborts > 20, "{stored} {aborts}");
        } else {
            let error = rows(&mut session, "SELECT error FROM entresol.topologies");
            assert!(error[0][0].contains("the transaction was aborted 6 times: ABORT WHEN"), "{error:?}");
            assert_eq!(aborts, 1);
        }
    }
}

/// A division by zero in a step ends the topology, or drops the transaction, as it was told.
#[test]
fn an_error_in_a_step_stops_the_topology_or_drops_its_transaction() {
    for (on_error, state, stored) in [("STOP", "failed", "100"), ("ABORT", "ended", "900")] {
        let database = Database::volatile(Options::default()).unwrap();
        let mut session = database.session().unwrap();
        session
            .execute(&format!(
                "CREATE SOURCE numbers (at TIMESTAMP NOT NULL, n BIGINT NOT NULL)
                     WITH (connector = 'generator', rows = 1000, step = '1 second', n.cardinality = 1000000);
                 CREATE TABLE divided (at TIMESTAMP PRIMARY KEY, n BIGINT);
                 CREATE TOPOLOGY division COMMIT EVERY 100 ROWS ON ERROR {on_error} AS (
                     INSERT INTO divided SELECT at, n / (extract(epoch FROM at)::bigint - 1767225750) FROM numbers)"
            ))
            .unwrap();
        wait_for(&mut session, "SELECT state FROM entresol.topologies", state);
        assert_eq!(rows(&mut session, "SELECT count(*) FROM divided")[0], [stored], "{on_error}");
        if state == "failed" {
            let error = rows(&mut session, "SELECT error FROM entresol.topologies");
            assert!(error[0][0].to_lowercase().contains("zero"), "{error:?}");
        }
    }
}

/// Changes of a table that clients write: each counts once, over restarts, in transactions that end within a
/// commit.
#[test]
fn changes_of_a_table_flow_into_another_topology_once() {
    flow_into_another_topology_once("rows");
}

/// The same of a table by column, whose rows are merged and whose layout changes beside the topology.
#[test]
fn changes_of_a_table_by_column_flow_into_another_topology_once() {
    flow_into_another_topology_once("columns");
}

fn flow_into_another_topology_once(layout: &str) {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options::default().start_topologies(true);
    let database = Database::open(dir.path().join("db"), options()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE TABLE account (id INT PRIMARY KEY, owner TEXT, amount BIGINT)
                          WITH (changes = '1 day', layout = '{layout}');
             CREATE TABLE movement (cts BIGINT, id INT, what TEXT, amount BIGINT, PRIMARY KEY (cts, id));
             CREATE TABLE balance (id INT PRIMARY KEY, amount BIGINT);
             INSERT INTO account SELECT i, 'owner ' || i, 100 FROM generate_series(1, 50) g(i);
             VACUUM account"
        ))
        .unwrap();
    session
        .execute(
            "CREATE TOPOLOGY movements COMMIT EVERY 7 ROWS OR EVERY INTERVAL '5 milliseconds' AS (
                 INSERT INTO movement SELECT commit_cts, id, change_type,
                     CASE change_type WHEN 'delete' THEN -old_amount ELSE amount - coalesce(old_amount, 0) END
                 FROM CHANGES(account);
                 INSERT INTO balance SELECT id, amount FROM CHANGES(account) WHERE change_type <> 'delete'
                     ON CONFLICT (id) DO UPDATE SET amount = EXCLUDED.amount;
             )",
        )
        .unwrap();
    let total = "SELECT coalesce(sum(amount), 0) FROM movement";
    wait_for(&mut session, total, "5000");
    session
        .execute("BEGIN; UPDATE account SET amount = amount + id; DELETE FROM account WHERE id > 48; COMMIT")
        .unwrap();
    // 50 movements of the load, 50 of the update and the delete: two rows were gone at once.
    let accounts = rows(&mut session, "SELECT sum(amount) FROM account")[0][0].clone();
    wait_for(&mut session, total, &accounts);
    assert_eq!(
        rows(&mut session, "SELECT what, count(*) FROM movement GROUP BY what ORDER BY what"),
        [["delete", "2"], ["insert", "50"], ["update", "48"]]
    );
    session.execute("UPDATE account SET amount = 0 WHERE id = 1; VACUUM account").unwrap();
    if layout == "columns" {
        let there_and_back =
            "ALTER TABLE account SET (layout = 'rows'); ALTER TABLE account SET (layout = 'columns')";
        session.execute(there_and_back).unwrap();
    }
    drop(session);
    database.close().unwrap();
    drop(database);

    let database = Database::open(dir.path().join("db"), options()).unwrap();
    let mut session = database.session().unwrap();
    session.execute("INSERT INTO account VALUES (77, 'new', 1)").unwrap();
    let accounts = rows(&mut session, "SELECT sum(amount) FROM account")[0][0].clone();
    wait_for(&mut session, total, &accounts);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM movement")[0], ["102"]);
    // What it has read may leave the log, and it goes on behind that.
    session
        .execute("ALTER TOPOLOGY movements PAUSE; ALTER TABLE account SET (changes = '1 millisecond')")
        .unwrap();
    let begun = Instant::now();
    while rows(&mut session, "SELECT count(*) FROM CHANGES(account)")[0] != ["0"] {
        assert!(begun.elapsed() < Duration::from_secs(20), "the log is not pruned");
        std::thread::sleep(Duration::from_millis(20));
    }
    session.execute("ALTER TABLE account SET (changes = '1 day'); ALTER TOPOLOGY movements RESUME").unwrap();
    session.execute("UPDATE account SET amount = 2 WHERE id = 77").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM movement", "103");
    session.execute("UPDATE account SET amount = 1 WHERE id = 77").unwrap();
    wait_for(&mut session, "SELECT count(*) FROM movement", "104");
    let both = "SELECT b.id, b.amount FROM balance b JOIN account a USING (id) WHERE a.amount = b.amount";
    assert_eq!(rows(&mut session, both).len(), 49);
    refuse_changes(&mut session);
    drop(session);
    database.close().unwrap();
}

/// Topologies that cannot read the changes that they name, beside one of `account` into `balance`.
fn refuse_changes(session: &mut Session) {
    for (statement, expected) in [
        (
            "CREATE TOPOLOGY t AS (INSERT INTO balance SELECT id, amount FROM CHANGES(movement))",
            "logs no changes",
        ),
        (
            "CREATE TOPOLOGY t AS (INSERT INTO balance SELECT id, amount FROM CHANGES(account);
                 INSERT INTO account SELECT id, 'x', amount FROM CHANGES(balance))",
            "a step writes the table whose changes it reads",
        ),
        (
            "CREATE TOPOLOGY t AS (INSERT INTO balance SELECT id, amount FROM CHANGES(account);
                 ABORT WHEN (SELECT count(*) FROM CHANGES(movement)) > 1)",
            "which no step of this topology writes",
        ),
        (
            "CREATE TOPOLOGY t AS (INSERT INTO balance SELECT id, amount FROM CHANGES(account);
                 ABORT WHEN (SELECT count(*) FROM CHANGES(account)) > 1)",
            "which no step of this topology writes",
        ),
        (
            "CREATE TOPOLOGY back AS (INSERT INTO account SELECT id, 'back', amount FROM CHANGES(balance))",
            "topology \"back\" would read what it causes: back → account → movements → balance → back",
        ),
    ] {
        session.execute("ALTER TABLE balance SET (changes = '1 hour')").unwrap();
        let error = session.execute(statement).unwrap_err().to_string();
        assert!(error.contains(expected), "{statement}: {error}");
    }
}

/// Columns of JSON have documents, JSONB in its normal form.
#[test]
fn a_generator_makes_documents() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE SOURCE made (n INT, doc JSONB, plain JSON) WITH (connector = 'generator', rows = 50, doc.cardinality = 1);
             CREATE TABLE found (doc JSONB, plain JSON);
             CREATE TOPOLOGY finding AS (INSERT INTO found SELECT doc, plain FROM made)",
        )
        .unwrap();
    wait_for_end(&mut session, "finding");
    assert_eq!(
        rows(&mut session, "SELECT doc, doc::varchar::jsonb = doc, count(*) FROM found GROUP BY 1, 2"),
        [[r#"{"name": "value 0", "count": 0}"#, "true", "50"]]
    );
    let differ = "SELECT count(*) FROM found WHERE plain ->> 'name' <> 'value ' || (plain ->> 'count')";
    assert_eq!(rows(&mut session, differ), [["0"]]);
}
